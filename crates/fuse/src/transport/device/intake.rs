//! Which threads take the requests of `/dev/fuse`: the near thread alone, or all workers.
//!
//! A request wakes a thread of the server, a reply wakes the program that asked. A wake-up that crosses to another
//! processor takes longer than answering a small request; in a virtual machine, where an idle processor has to be
//! started again, ten times as long. So while requests follow each other quickly, one thread takes them on the
//! processor where the asker sleeps. This near thread has the policy `SCHED_IDLE`: the kernel counts a processor that
//! runs only such threads as idle, so it leaves a woken asker there, and the asker runs at once.
//!
//! A thread of that policy starves where other programs want the processor. So it does not begin where its own
//! wake-ups are late, and ends where a request has taken it too long. One of the workers, which stand by meanwhile,
//! watches: if requests wait and none is taken, the workers take over. Each time the near thread then rests, twice as
//! long as before. The workers also take over when no request comes for a while; and where requests pile up the near
//! thread calls one of them to help.
//!
//! [`Worker`](super::Worker) asks here before each read; [`Seat`](super::seat::Seat) chooses the processor.

use parking_lot::{Condvar, Mutex};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::thread::CpuSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Requests that come within this time of each other are quick.
const QUICK: Duration = Duration::from_micros(500);
/// Quick requests in a row after which the near thread takes over.
const QUICK_COUNT: u32 = 8;
/// How often the watching worker looks: at first and after something went wrong, and at most.
const LOOK_MIN: Duration = Duration::from_micros(500);
const LOOK_MAX: Duration = Duration::from_millis(2);
/// Requests in a row, each with another one waiting behind it, from which on a worker helps. One program makes several
/// at a time: it does not wait for the end of a `RELEASE`.
const PILE: u32 = 4;
/// Wake-ups of the near thread before it begins, and the longest that each may take.
const WAKES: u32 = 3;
const WAKE_MAX: Duration = Duration::from_micros(300);
/// A request that takes the near thread longer is none for it: it waits for a device, computes, or starves.
const SLOW: Duration = Duration::from_millis(8);
/// Time without requests after which the workers take over.
const IDLE_MAX: Duration = Duration::from_millis(10);
/// How long the other workers stand by without being called.
const STAND_BY_MAX: Duration = Duration::from_secs(1);
/// Rests of the near thread: the first, and the longest.
const REST_MIN: Duration = Duration::from_millis(20);
const REST_MAX: Duration = Duration::from_secs(4);
/// Requests taken by the near thread without a rest, after which rests are short again.
const TAKEN_WELL: u64 = 1000;

/// State shared by the workers and the near thread of a mount.
#[derive(Debug)]
pub(crate) struct Intake {
    /// True while the near thread takes the requests.
    is_near: AtomicBool,
    has_ended: AtomicBool,
    /// The near thread is being woken, since this time in nanoseconds since `began`; 0 if it is not.
    called_nanos: AtomicU64,
    /// The number of the near thread, 0 before it runs.
    near_thread: AtomicI32,
    /// The processors that this process may use.
    allowed: CpuSet,
    /// Wakes the near thread where it waits for a request or for its turn; `None` without a near thread.
    bell: Option<OwnedFd>,
    began: Instant,
    /// When the workers took their last request, in nanoseconds since `began`, and how many were quick.
    last_nanos: AtomicU64,
    quick_count: AtomicU32,
    /// Number of requests that the near thread has taken, or a worker beside it.
    taken: AtomicU64,
    rests: Mutex<Rests>,
    standing_by: Mutex<StandingBy>,
    called: Condvar,
}

/// The rests of the near thread.
#[derive(Debug)]
struct Rests {
    next: Duration,
    until: Option<Instant>,
    /// The count of requests at the end of the last rest.
    taken_then: u64,
}

/// Workers on standby.
#[derive(Debug, Default)]
struct StandingBy {
    /// True if one of them watches.
    has_watcher: bool,
}

/// The observations of the worker that watches.
#[derive(Debug)]
struct Watch {
    taken: u64,
    look: Duration,
    idle: Duration,
    /// Requests were waiting at the last look.
    is_late: bool,
}

/// The conclusion of the watching worker from a look.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// The near thread takes the requests.
    Well,
    /// There are none.
    Idle,
    /// They wait, and are not taken.
    Late,
}

impl Intake {
    /// Without a near thread, unless `has_near` and the system gives what it needs.
    pub(crate) fn new(has_near: bool) -> Self {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell = has_near.then(|| rustix::event::eventfd(0, flags).ok()).flatten();
        Self {
            is_near: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            called_nanos: AtomicU64::new(0),
            near_thread: AtomicI32::new(0),
            allowed: rustix::thread::sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new()),
            bell,
            began: Instant::now(),
            last_nanos: AtomicU64::new(0),
            quick_count: AtomicU32::new(0),
            taken: AtomicU64::new(0),
            rests: Mutex::new(Rests { next: REST_MIN, until: None, taken_then: 0 }),
            standing_by: Mutex::default(),
            called: Condvar::new(),
        }
    }

    /// Whether a near thread is wanted.
    pub(crate) const fn has_near(&self) -> bool {
        self.bell.is_some()
    }

    /// Whether the near thread takes the requests now.
    pub(crate) fn is_near(&self) -> bool {
        self.is_near.load(Ordering::Relaxed)
    }

    /// Notes that a worker took a request, with no near thread at work; quick ones bring it to work.
    pub(crate) fn took_far(&self) {
        if self.bell.is_none() {
            return;
        }
        let now = Instant::now();
        let nanos = self.nanos(now);
        let last = self.last_nanos.swap(nanos, Ordering::Relaxed);
        if Duration::from_nanos(nanos.saturating_sub(last)) > QUICK {
            self.quick_count.store(0, Ordering::Relaxed);
        } else if self.quick_count.fetch_add(1, Ordering::Relaxed) >= QUICK_COUNT {
            self.quick_count.store(0, Ordering::Relaxed);
            self.call_near(now);
        }
    }

    /// Notes that the near thread, or a worker beside it, took a request, the last of `behind` in a row behind which
    /// another one waited; from some number on it calls a worker.
    pub(crate) fn took(&self, behind: u32) {
        self.taken.fetch_add(1, Ordering::Relaxed);
        if behind >= PILE {
            self.called.notify_one();
        }
    }

    /// Ends all waiting: the mount is gone.
    pub(crate) fn end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
        self.end_near();
    }

    /// For the near thread: waits until it is to take the requests; false once the mount is gone.
    pub(crate) fn wait_for_turn(&self) -> bool {
        let Some(bell) = &self.bell else { return false };
        self.near_thread.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Relaxed);
        // The bell of a call that came during the last turn was heard there.
        self.called_nanos.store(0, Ordering::Relaxed);
        let mut prompt = 0;
        loop {
            if self.has_ended.load(Ordering::Relaxed) {
                return false;
            }
            wait_for(&mut [readable(bell.as_fd())]);
            self.quiet();
            let called = self.called_nanos.swap(0, Ordering::Relaxed);
            let now = Instant::now();
            if called == 0 {
                continue;
            }
            if now.saturating_duration_since(self.began + Duration::from_nanos(called)) > WAKE_MAX {
                prompt = 0;
                self.rest(now);
                continue;
            }
            prompt += 1;
            if prompt == WAKES {
                self.is_near.store(true, Ordering::Relaxed);
                return true;
            }
        }
    }

    /// For the near thread: notes how long a request took it. After one that took too long the workers take over.
    pub(crate) fn served(&self, took: Duration) {
        if took > SLOW {
            self.rest(Instant::now());
            self.end_near();
        }
    }

    /// For the near thread: waits for a request on its channel, or until the workers take over.
    pub(crate) fn wait_near(&self, channel: BorrowedFd<'_>) {
        let Some(bell) = &self.bell else { return };
        wait_for(&mut [readable(channel), readable(bell.as_fd())]);
        self.quiet();
    }

    /// For a worker, while the near thread takes the requests: waits until it is needed. One worker watches.
    pub(crate) fn stand_by(&self, channel: BorrowedFd<'_>) {
        let mut standing_by = self.standing_by.lock();
        let watches = !std::mem::replace(&mut standing_by.has_watcher, true);
        if !watches {
            if self.is_near() {
                self.called.wait_for(&mut standing_by, STAND_BY_MAX);
            }
            return;
        }
        let mut watch = Watch::new(self.taken.load(Ordering::Relaxed));
        while self.is_near() {
            let was_called = !self.called.wait_for(&mut standing_by, watch.look).timed_out();
            if was_called {
                break;
            }
            match watch.look(self.taken.load(Ordering::Relaxed), || is_readable(channel)) {
                Verdict::Well => {}
                Verdict::Idle => self.end_near_of(&standing_by),
                Verdict::Late => {
                    self.rest(Instant::now());
                    self.end_near_of(&standing_by);
                }
            }
        }
        standing_by.has_watcher = false;
        // Another one watches from now on, if there is one.
        self.called.notify_one();
    }

    fn nanos(&self, now: Instant) -> u64 {
        u64::try_from(now.duration_since(self.began).as_nanos()).unwrap_or(u64::MAX)
    }

    /// Wakes the near thread, unless it rests.
    fn call_near(&self, now: Instant) {
        let mut rests = self.rests.lock();
        if rests.until.is_some_and(|until| now < until) {
            return;
        }
        if rests.until.take().is_some() {
            rests.taken_then = self.taken.load(Ordering::Relaxed);
        }
        drop(rests);
        if self.called_nanos.compare_exchange(0, self.nanos(now), Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.ring();
        }
    }

    fn end_near(&self) {
        let standing_by = self.standing_by.lock();
        self.end_near_of(&standing_by);
    }

    /// With the lock of the workers on standby, so that none begins to wait meanwhile.
    fn end_near_of(&self, _: &StandingBy) {
        self.is_near.store(false, Ordering::Relaxed);
        self.ring();
        self.called.notify_all();
        // It may be in the middle of a request and starve: any processor will do.
        let near = rustix::thread::Pid::from_raw(self.near_thread.load(Ordering::Relaxed));
        if near.is_some() && rustix::thread::sched_setaffinity(near, &self.allowed).is_err() {
            tracing::debug!("the near thread stays on its processor");
        }
    }

    fn rest(&self, now: Instant) {
        let mut rests = self.rests.lock();
        if self.taken.load(Ordering::Relaxed).saturating_sub(rests.taken_then) >= TAKEN_WELL {
            rests.next = REST_MIN;
        }
        rests.until = Some(now + rests.next);
        rests.next = rests.next.saturating_mul(2).min(REST_MAX);
    }

    fn ring(&self) {
        if let Some(bell) = &self.bell {
            // The counter cannot be full.
            let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
        }
    }

    fn quiet(&self) {
        if let Some(bell) = &self.bell {
            let mut count = [0; 8];
            // It need not have been rung.
            let _ = rustix::io::read(bell, &mut count);
        }
    }
}

impl Watch {
    const fn new(taken: u64) -> Self {
        Self { taken, look: LOOK_MIN, idle: Duration::ZERO, is_late: false }
    }

    fn look(&mut self, taken: u64, are_waiting: impl FnOnce() -> bool) -> Verdict {
        if taken != self.taken {
            self.taken = taken;
            self.idle = Duration::ZERO;
            self.is_late = false;
            self.look = self.look.saturating_mul(2).min(LOOK_MAX);
            return Verdict::Well;
        }
        if are_waiting() {
            self.look = LOOK_MIN;
            // The request may have come just now: only the second look counts.
            return if std::mem::replace(&mut self.is_late, true) { Verdict::Late } else { Verdict::Well };
        }
        self.is_late = false;
        self.idle += self.look;
        if self.idle >= IDLE_MAX { Verdict::Idle } else { Verdict::Well }
    }
}

/// Whether a request waits on the channel.
pub(super) fn is_readable(channel: BorrowedFd<'_>) -> bool {
    rustix::event::poll(&mut [readable(channel)], Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))
        .is_ok_and(|count| count > 0)
}

/// The question whether this can be read.
fn readable(fd: BorrowedFd<'_>) -> PollFd<'_> {
    PollFd::from_borrowed_fd(fd, PollFlags::IN)
}

/// Waits until one of these can be read, or a signal comes.
fn wait_for(fds: &mut [PollFd<'_>]) {
    match rustix::event::poll(fds, None) {
        Ok(_) | Err(Errno::INTR) => {}
        // Without memory: not again at once.
        Err(_) => std::thread::sleep(LOOK_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;

    /// Both ends of a pipe that stands for the channel: a byte is a request.
    fn channel() -> (OwnedFd, OwnedFd) {
        rustix::pipe::pipe().unwrap()
    }

    #[test]
    fn a_watch_tells_an_idle_near_thread_from_a_late_one() {
        let mut watch = Watch::new(0);
        for taken in 1..20 {
            assert_eq!(watch.look(taken, || true), Verdict::Well, "it takes requests");
        }
        assert_eq!(watch.look, LOOK_MAX);
        assert_eq!(watch.look(19, || true), Verdict::Well, "the request may have come just now");
        assert_eq!(watch.look, LOOK_MIN);
        assert_eq!(watch.look(19, || true), Verdict::Late);
        let mut watch = Watch::new(0);
        let mut looks = 0;
        while watch.look(0, || false) == Verdict::Well {
            looks += 1;
        }
        assert!(LOOK_MIN * looks < IDLE_MAX && LOOK_MIN * (looks + 1) >= IDLE_MAX, "{looks}");
    }

    #[test]
    fn rests_grow_until_the_near_thread_has_taken_enough() {
        let intake = Intake::new(true);
        let mut rest = REST_MIN;
        for _ in 0..12 {
            let now = Instant::now();
            intake.rest(now);
            assert_eq!(intake.rests.lock().until, Some(now + rest));
            intake.call_near(now + rest - Duration::from_nanos(1));
            assert_eq!(intake.called_nanos.load(Ordering::Relaxed), 0, "it rests");
            intake.call_near(now + rest);
            assert_ne!(intake.called_nanos.swap(0, Ordering::Relaxed), 0, "it is called");
            rest = (rest * 2).min(REST_MAX);
        }
        assert_eq!(rest, REST_MAX);
        (0..TAKEN_WELL).for_each(|_| intake.took(0));
        let now = Instant::now();
        intake.rest(now);
        assert_eq!(intake.rests.lock().until, Some(now + REST_MIN));
    }

    #[test]
    fn quick_requests_bring_the_near_thread_to_work_and_the_end_of_them_ends_it() {
        let intake = Arc::new(Intake::new(true));
        let (reader, writer) = channel();
        let near = {
            let intake = Arc::clone(&intake);
            thread::spawn(move || {
                let mut turns = 0;
                while intake.wait_for_turn() {
                    turns += 1;
                    while intake.is_near() {
                        intake.took(0);
                        thread::sleep(Duration::from_micros(100));
                    }
                }
                turns
            })
        };
        // On a busy machine its wake-ups may be late, and it rests first.
        while !intake.is_near() {
            intake.took_far();
        }
        thread::scope(|scope| {
            let workers: Vec<_> = (0..3).map(|_| scope.spawn(|| intake.stand_by(reader.as_fd()))).collect();
            // A pile of requests brings one worker; another one watches from then on.
            while workers.iter().all(|worker| !worker.is_finished()) {
                intake.took(PILE);
                thread::yield_now();
            }
            // The others come when the near thread ends.
            intake.end_near();
            workers.into_iter().for_each(|worker| worker.join().unwrap());
        });
        // A call during a turn, whose bell is heard as the end of the turn, does not keep later calls away.
        let turns = Intake::new(true);
        turns.call_near(Instant::now());
        turns.quiet();
        turns.has_ended.store(true, Ordering::Relaxed);
        assert!(!turns.wait_for_turn());
        turns.call_near(Instant::now());
        assert_ne!(turns.called_nanos.load(Ordering::Relaxed), 0);
        assert!(turns.bell.as_ref().is_some_and(|bell| is_readable(bell.as_fd())), "the second call rings");
        // Late: a request waits, and the count stands still.
        rustix::io::write(&writer, b"r").unwrap();
        let late = Intake::new(true);
        late.is_near.store(true, Ordering::Relaxed);
        late.stand_by(reader.as_fd());
        assert!(!late.is_near() && late.rests.lock().until.is_some());
        intake.end();
        assert!(near.join().unwrap() >= 1);
    }

    #[test]
    fn without_a_near_thread_the_workers_are_on_their_own() {
        let intake = Intake::new(false);
        (0..1000).for_each(|_| intake.took_far());
        assert!(!intake.is_near() && !intake.wait_for_turn());
        let (reader, _writer) = channel();
        intake.stand_by(reader.as_fd());
    }
}
