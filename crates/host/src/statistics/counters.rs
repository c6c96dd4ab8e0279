//! Counts the use of locks, each thread in a shard of its own. Builds with the feature `lock-statistics` have it;
//! `locks` counts through it.

use std::ops::Deref;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use std::time::{Duration, Instant};

use super::trace::{self, nanoseconds, thread_number};
use super::{Access, Row, Slot};

/// Shards of the counts of a class: threads beyond this number share.
const SHARD_COUNT: usize = 16;

impl Row {
    fn add(&mut self, other: &Self) {
        self.acquisitions += other.acquisitions;
        self.shared += other.shared;
        self.contended += other.contended;
        self.wait_ns += other.wait_ns;
        self.hold_ns += other.hold_ns;
        self.transfers += other.transfers;
    }
}

/// All classes of which there ever was a lock, and the names of those that are measured.
struct Known {
    classes: Vec<&'static Class>,
    /// All when empty; none when there is no list.
    measured: Option<Vec<String>>,
}

impl Known {
    fn measures(&self, name: &str) -> bool {
        self.measured.as_ref().is_some_and(|names| names.is_empty() || names.iter().any(|known| known == name))
    }
}

static KNOWN: parking_lot::Mutex<Known> = parking_lot::const_mutex(Known { classes: Vec::new(), measured: None });

/// Counts on a cache line of their own.
#[derive(Debug)]
#[repr(align(128))]
struct Counts {
    acquisitions: AtomicU64,
    shared: AtomicU64,
    contended: AtomicU64,
    wait_ns: AtomicU64,
    hold_ns: AtomicU64,
    transfers: AtomicU64,
}

impl Counts {
    const fn new() -> Self {
        Self {
            acquisitions: AtomicU64::new(0),
            shared: AtomicU64::new(0),
            contended: AtomicU64::new(0),
            wait_ns: AtomicU64::new(0),
            hold_ns: AtomicU64::new(0),
            transfers: AtomicU64::new(0),
        }
    }

    fn all(&self) -> [&AtomicU64; 6] {
        [&self.acquisitions, &self.shared, &self.contended, &self.wait_ns, &self.hold_ns, &self.transfers]
    }
}

/// Locks that are counted together; a static beside the protected data.
#[derive(Debug)]
pub struct Class {
    name: &'static str,
    is_known: AtomicBool,
    is_measured: AtomicBool,
    shards: [Counts; SHARD_COUNT],
}

impl Class {
    /// A class of this name; those with the same name share a row.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            is_known: AtomicBool::new(false),
            is_measured: AtomicBool::new(false),
            shards: [const { Counts::new() }; SHARD_COUNT],
        }
    }

    /// Lists the class, with the first of its locks.
    fn make_known(&'static self) {
        if self.is_known.load(Acquire) {
            return;
        }
        let mut known = KNOWN.lock();
        if !self.is_known.swap(true, AcqRel) {
            self.is_measured.store(known.measures(self.name), Release);
            known.classes.push(self);
        }
    }

    fn shard(&self) -> &Counts {
        &self.shards[usize::try_from(thread_number()).unwrap_or(0) % SHARD_COUNT]
    }

    fn count(&self, access: Access, waited: Option<Duration>, is_transfer: bool) {
        let counts = self.shard();
        counts.acquisitions.fetch_add(1, Relaxed);
        if access == Access::Shared {
            counts.shared.fetch_add(1, Relaxed);
        }
        if let Some(waited) = waited {
            counts.contended.fetch_add(1, Relaxed);
            counts.wait_ns.fetch_add(nanoseconds(waited), Relaxed);
        }
        if is_transfer {
            counts.transfers.fetch_add(1, Relaxed);
        }
    }

    fn row(&self) -> Row {
        let mut row = Row { class: self.name, ..Row::default() };
        for counts in &self.shards {
            let [acquisitions, shared, contended, wait_ns, hold_ns, transfers] =
                counts.all().map(|count| count.load(Relaxed));
            row.add(&Row { class: self.name, acquisitions, shared, contended, wait_ns, hold_ns, transfers });
        }
        row
    }
}

/// Measures the classes with these names from now on, all where there are no names, and no others.
pub fn measure(names: &[&str]) {
    let mut known = KNOWN.lock();
    known.measured = Some(names.iter().map(|name| (*name).to_owned()).collect());
    for class in &known.classes {
        class.is_measured.store(known.measures(class.name), Release);
    }
}

/// Resets the counts.
pub fn reset() {
    for class in &KNOWN.lock().classes {
        for count in class.shards.iter().flat_map(Counts::all) {
            count.store(0, Relaxed);
        }
    }
}

/// A row for each class that was taken, the most often taken first. Exact when no thread takes a lock meanwhile.
#[must_use]
pub fn rows() -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for class in &KNOWN.lock().classes {
        let row = class.row();
        match rows.iter_mut().find(|known| known.class == row.class) {
            Some(known) => known.add(&row),
            None => rows.push(row),
        }
    }
    rows.retain(|row| row.acquisitions > 0);
    rows.sort_by(|a, b| b.acquisitions.cmp(&a.acquisitions).then(a.class.cmp(b.class)));
    rows
}

/// Which thread had a lock last.
#[derive(Debug)]
pub(crate) struct Last(AtomicU32);

impl Last {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Its address, by which a recording knows the lock.
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// It is this thread now; true when it was another before.
    fn pass(&self) -> bool {
        let thread = thread_number();
        // A line that is this thread's already is not written.
        if self.0.load(Relaxed) == thread {
            return false;
        }
        let before = self.0.swap(thread, Relaxed);
        before != 0 && before != thread
    }
}

/// Counts accesses to an atomic that threads share without a lock.
#[derive(Debug)]
pub struct Watch {
    class: &'static Class,
    last: Last,
}

impl Watch {
    /// For a class.
    #[must_use]
    pub fn new(class: &'static Class) -> Self {
        class.make_known();
        Self { class, last: Last::new() }
    }

    /// This thread changed or read the atomic: an acquisition without wait and hold times, and a transfer where another
    /// thread did so before.
    pub fn touch(&self) {
        if self.class.is_measured.load(Relaxed) {
            self.class.count(Access::Exclusive, None, self.last.pass());
            trace::touched(self.last.address(), self.class.name);
        }
    }
}

/// Measures one lock.
#[derive(Clone, Copy)]
pub(crate) struct Meter(&'static Class);

impl Meter {
    pub(crate) fn new(class: &'static Class) -> Self {
        class.make_known();
        Self(class)
    }

    /// Takes the lock, by `attempt` where it is free, and else by `wait`.
    pub(crate) fn take<T: ?Sized, G: Deref<Target = Slot<T>>>(
        self,
        access: Access,
        attempt: impl FnOnce() -> Option<G>,
        wait: impl FnOnce() -> G,
    ) -> (G, Timed) {
        if !self.0.is_measured.load(Relaxed) {
            return (wait(), Timed::none());
        }
        let (guard, waited) = match attempt() {
            Some(guard) => (guard, None),
            None => {
                let begin = Instant::now();
                let guard = wait();
                (guard, Some(begin.elapsed()))
            }
        };
        self.0.count(access, waited, guard.last.pass());
        let timed = Timed::since_now(self.0, &guard.last);
        trace::took(guard.last.address(), self.0.name, access, waited);
        (guard, timed)
    }

    /// The lock was free, and is taken.
    pub(crate) fn took(self, access: Access, last: &Last) -> Timed {
        if !self.0.is_measured.load(Relaxed) {
            return Timed::none();
        }
        self.0.count(access, None, last.pass());
        trace::took(last.address(), self.0.name, access, None);
        Timed::since_now(self.0, last)
    }
}

/// Runs while a guard lives.
pub(crate) struct Timed(Option<Held>);

/// A lock that is held, or let go of for a while.
struct Held {
    class: &'static Class,
    lock: usize,
    since: Option<Instant>,
}

impl Timed {
    pub(crate) const fn none() -> Self {
        Self(None)
    }

    fn since_now(class: &'static Class, last: &Last) -> Self {
        Self(Some(Held { class, lock: last.address(), since: Some(Instant::now()) }))
    }

    /// The guard lets go of the lock for a while.
    pub(crate) fn pause(&mut self) {
        if let Some(held) = &mut self.0
            && let Some(since) = held.since.take()
        {
            held.class.shard().hold_ns.fetch_add(nanoseconds(since.elapsed()), Relaxed);
            trace::let_go(held.lock, held.class.name);
        }
    }

    /// The guard has the lock again.
    pub(crate) fn resume(&mut self, access: Access, last: &Last) {
        if let Some(held) = &mut self.0 {
            held.class.count(access, None, last.pass());
            trace::took(held.lock, held.class.name, access, None);
            held.since = Some(Instant::now());
        }
    }
}

impl Drop for Timed {
    fn drop(&mut self) {
        self.pause();
    }
}
