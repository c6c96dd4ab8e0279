//! Records each use of a lock in its order, for a simulation of more processors than there are. Builds with the feature
//! `lock-statistics` have it; `counters` records through it.
//!
//! Each thread has a list of its own. Times are nanoseconds since the recording began, by one clock for all threads.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::Access;

/// Events that a thread keeps; later ones are dropped, and [`Recorded::is_cut`] says so.
const EVENTS_MAX: usize = 1 << 23;

static IS_ON: AtomicBool = AtomicBool::new(false);
static BEGAN: OnceLock<Instant> = OnceLock::new();
static LISTS: parking_lot::Mutex<Vec<Arc<List>>> = parking_lot::const_mutex(Vec::new());

static NEXT_THREAD: AtomicU32 = AtomicU32::new(1);

thread_local! {
    /// 0: not numbered yet.
    static THREAD: Cell<u32> = const { Cell::new(0) };
    static LIST: RefCell<Option<Arc<List>>> = const { RefCell::new(None) };
}

struct List {
    thread: u32,
    events: parking_lot::Mutex<Recorded>,
}

/// One step of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It took a lock for itself alone, after waiting so many nanoseconds.
    Took(u64),
    /// It took a lock that readers share, after waiting so many nanoseconds.
    Shared(u64),
    /// It let go of a lock.
    LetGo,
    /// It changed or read an atomic that threads share.
    Touched,
}

/// A step, with its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Nanoseconds since the recording began.
    pub at_ns: u64,
    /// The lock's address, which another lock can have later.
    pub lock: usize,
    /// The class of the lock.
    pub class: &'static str,
    /// The step.
    pub step: Step,
}

/// The steps of one thread.
#[derive(Debug, Clone, Default)]
pub struct Recorded {
    /// Its number, from 1.
    pub thread: u32,
    /// In their order.
    pub events: Vec<Event>,
    /// There were more than are kept.
    pub is_cut: bool,
}

/// Begins a recording, or ends it. Locks are recorded that are measured: see [`super::measure`].
pub fn record(is_on: bool) {
    BEGAN.get_or_init(Instant::now);
    IS_ON.store(is_on, Relaxed);
}

/// Nanoseconds since the first recording began: the clock of the events.
#[must_use]
pub fn now_ns() -> u64 {
    nanoseconds(BEGAN.get().map_or(Duration::ZERO, Instant::elapsed))
}

/// Takes the steps of all threads that had any.
#[must_use]
pub fn take() -> Vec<Recorded> {
    let mut lists = LISTS.lock();
    let taken = lists.iter().map(|list| {
        let recorded = std::mem::take(&mut *list.events.lock());
        Recorded { thread: list.thread, ..recorded }
    });
    let taken = taken.filter(|recorded| !recorded.events.is_empty()).collect();
    // Lists of threads that have ended.
    lists.retain(|list| Arc::strong_count(list) > 1);
    taken
}

fn add(lock: usize, class: &'static str, step: Step) {
    if !IS_ON.load(Relaxed) {
        return;
    }
    let event = Event { at_ns: now_ns(), lock, class, step };
    // A thread that ends has no list any more.
    let _ = LIST.try_with(|list| {
        let mut list = list.borrow_mut();
        let list = list.get_or_insert_with(|| {
            let list = Arc::new(List { thread: thread_number(), events: parking_lot::Mutex::default() });
            LISTS.lock().push(Arc::clone(&list));
            list
        });
        let mut recorded = list.events.lock();
        recorded.is_cut |= recorded.events.len() >= EVENTS_MAX;
        if !recorded.is_cut {
            recorded.events.push(event);
        }
    });
}

pub(super) fn took(lock: usize, class: &'static str, access: Access, waited: Option<Duration>) {
    let waited = waited.map_or(0, nanoseconds);
    let step = if access == Access::Shared { Step::Shared(waited) } else { Step::Took(waited) };
    add(lock, class, step);
}

pub(super) fn let_go(lock: usize, class: &'static str) {
    add(lock, class, Step::LetGo);
}

pub(super) fn touched(atomic: usize, class: &'static str) {
    add(atomic, class, Step::Touched);
}

/// The number of the calling thread, from 1.
#[must_use]
pub fn thread_number() -> u32 {
    THREAD.with(|thread| {
        if thread.get() == 0 {
            thread.set(NEXT_THREAD.fetch_add(1, Relaxed));
        }
        thread.get()
    })
}

pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
