//! Simulates recorded operations on more processors than there are. Called by `mod`.
//!
//! Each processor runs one worker, which does its operations one after the other. Work takes its recorded time. A lock
//! that is held makes a worker wait: in a loop at first, and asleep from [`Costs::spin_ns`] on. A lock that becomes
//! free goes to the first worker that waits in a loop. If all of them sleep, the first is woken, and tries again when
//! it runs; others that come before have the lock. A lock, or a shared atomic, that another worker had last costs the
//! transfer of its cache line; transfers of one line follow each other.
//!
//! Left out: the cache lines of the data that a lock protects, the page cache and the locks of the kernel, the memory's
//! bandwidth, and threads that work beside the callers. Commits come at the same operations as in the recording.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use super::operations::{Action, Operations, Part};

/// Times of the machine, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Costs {
    /// A cache line's way to another processor.
    pub(super) transfer_ns: u64,
    /// How long a worker looks at a lock before it sleeps.
    pub(super) spin_ns: u64,
    /// From the wake-up of a sleeping worker until it runs.
    pub(super) wake_ns: u64,
    /// The time of the call that wakes another one, for the worker that lets go of a lock.
    pub(super) call_ns: u64,
}

/// The result for a number of processors.
#[derive(Debug, Clone)]
pub(super) struct Outcome {
    /// Until the last worker ended.
    pub(super) ns: u64,
    /// Nanoseconds that workers waited, by the class of the lock.
    pub(super) waits: BTreeMap<&'static str, u64>,
    /// Locks that were given to a worker because nobody could go on: places in memory that served as two locks.
    pub(super) forced: u64,
}

struct Lock {
    /// Workers that have it.
    holders: usize,
    is_exclusive: bool,
    /// The worker that changed its cache line last, and when the line is free.
    last: usize,
    free_ns: u64,
    queue: VecDeque<Waiter>,
}

#[derive(Clone, Copy)]
struct Waiter {
    worker: usize,
    is_shared: bool,
    since_ns: u64,
}

const NOBODY: usize = usize::MAX;

struct Worker<'a> {
    operations: Vec<&'a [Part]>,
    /// The present operation, and its next part.
    at: (usize, usize),
    /// Since when it waits for a lock, if it was woken for it in vain.
    waits_since: Option<u64>,
}

impl Worker<'_> {
    fn part(&self) -> Option<Part> {
        self.operations.get(self.at.0)?.get(self.at.1).copied()
    }

    fn advance(&mut self) {
        self.at.1 += 1;
        if self.operations.get(self.at.0).is_some_and(|parts| self.at.1 >= parts.len()) {
            self.at = (self.at.0 + 1, 0);
        }
    }
}

struct Simulation<'a> {
    costs: Costs,
    /// Thousandths of the recorded time that work takes.
    slower: u64,
    workers: Vec<Worker<'a>>,
    locks: Vec<Lock>,
    /// When each worker has done the work before its next action.
    events: BinaryHeap<Reverse<(u64, usize)>>,
    classes: &'a [&'static str],
    outcome: Outcome,
}

/// Runs all operations on `processors`, to each of which the workers with its remainder belong. Work takes `slower`
/// times as long as recorded.
pub(super) fn simulate(operations: &Operations, processors: usize, (costs, slower): (Costs, f64)) -> Outcome {
    let mut workers: Vec<Worker<'_>> =
        (0..processors).map(|_| Worker { operations: Vec::new(), at: (0, 0), waits_since: None }).collect();
    for operation in &operations.list {
        if let Some(worker) = workers.get_mut(operation.worker % processors) {
            worker.operations.push(&operation.parts);
        }
    }
    let new = |_| Lock { holders: 0, is_exclusive: false, last: NOBODY, free_ns: 0, queue: VecDeque::new() };
    let thousandths = std::time::Duration::try_from_secs_f64(slower).map_or(1000, |slower| slower.as_millis());
    let mut simulation = Simulation {
        costs,
        slower: u64::try_from(thousandths).unwrap_or(1000),
        workers,
        locks: (0..operations.classes.len()).map(new).collect(),
        events: BinaryHeap::new(),
        classes: &operations.classes,
        outcome: Outcome { ns: 0, waits: BTreeMap::new(), forced: 0 },
    };
    (0..processors).for_each(|worker| simulation.go_on(worker, 0));
    simulation.run()
}

impl Simulation<'_> {
    fn run(mut self) -> Outcome {
        loop {
            while let Some(Reverse((now, worker))) = self.events.pop() {
                self.outcome.ns = self.outcome.ns.max(now);
                self.act(worker, now);
            }
            // No worker can go on: give a lock to the first that waits.
            let stuck = self.locks.iter().position(|lock| !lock.queue.is_empty());
            let Some(lock) = stuck else { return self.outcome };
            self.outcome.forced += 1;
            let now = self.outcome.ns;
            if let Some(state) = self.locks.get_mut(lock) {
                state.holders = 0;
            }
            self.hand_over(lock, now);
        }
    }

    /// The worker works until its next action.
    fn go_on(&mut self, worker: usize, now: u64) {
        if let Some(part) = self.workers.get(worker).and_then(Worker::part) {
            self.events.push(Reverse((now + part.work_ns * self.slower / 1000, worker)));
        }
    }

    fn act(&mut self, worker: usize, now: u64) {
        let Some(part) = self.workers.get(worker).and_then(Worker::part) else { return };
        let then = match part.action {
            Action::End => Some(now),
            Action::Touch { lock } => Some(self.pass_line(lock, worker, now)),
            Action::LetGo { lock } => Some(self.let_go(lock, worker, now)),
            Action::Take { lock, is_shared } => self.take(lock, is_shared, worker, now),
        };
        // One that waits is advanced when it gets the lock.
        if let Some(then) = then {
            self.advance(worker, then);
        }
    }

    fn advance(&mut self, worker: usize, now: u64) {
        if let Some(state) = self.workers.get_mut(worker) {
            state.advance();
        }
        self.outcome.ns = self.outcome.ns.max(now);
        self.go_on(worker, now);
    }

    /// When the lock's cache line is at the worker.
    fn pass_line(&mut self, lock: usize, worker: usize, now: u64) -> u64 {
        let transfer_ns = self.costs.transfer_ns;
        let Some(lock) = self.locks.get_mut(lock) else { return now };
        if lock.last == worker {
            return now;
        }
        let is_first = lock.last == NOBODY;
        lock.last = worker;
        if is_first {
            return now;
        }
        lock.free_ns = lock.free_ns.max(now) + transfer_ns;
        lock.free_ns
    }

    /// When the worker has the lock; `None` where it waits.
    fn take(&mut self, lock: usize, is_shared: bool, worker: usize, now: u64) -> Option<u64> {
        let state = self.locks.get_mut(lock)?;
        if state.holders > 0 && (state.is_exclusive || !is_shared) {
            state.queue.push_back(Waiter { worker, is_shared, since_ns: now });
            return None;
        }
        state.holders += 1;
        state.is_exclusive = !is_shared;
        if let Some(since_ns) = self.workers.get_mut(worker).and_then(|worker| worker.waits_since.take()) {
            let class = self.classes.get(lock).copied().unwrap_or_default();
            *self.outcome.waits.entry(class).or_default() += now.saturating_sub(since_ns);
        }
        Some(self.pass_line(lock, worker, now))
    }

    /// When the worker goes on.
    fn let_go(&mut self, lock: usize, worker: usize, now: u64) -> u64 {
        let now = self.pass_line(lock, worker, now);
        let Some(state) = self.locks.get_mut(lock) else { return now };
        state.holders = state.holders.saturating_sub(1);
        if state.holders > 0 { now } else { self.hand_over(lock, now) }
    }

    /// Gives a free lock to those who wait in a loop, or wakes one who sleeps; when the caller goes on.
    fn hand_over(&mut self, lock: usize, now: u64) -> u64 {
        let Costs { spin_ns, wake_ns, call_ns, .. } = self.costs;
        loop {
            let Some(state) = self.locks.get_mut(lock) else { return now };
            let is_awake = |waiter: &Waiter| now.saturating_sub(waiter.since_ns) <= spin_ns;
            let fits = |waiter: &Waiter| state.holders == 0 || (!state.is_exclusive && waiter.is_shared);
            let next = state.queue.iter().position(|waiter| is_awake(waiter) && fits(waiter));
            if let Some(next) = next.and_then(|place| state.queue.remove(place)) {
                state.holders += 1;
                state.is_exclusive = !next.is_shared;
                let starts = self.pass_line(lock, next.worker, now);
                let since = self.workers.get_mut(next.worker).and_then(|worker| worker.waits_since.take());
                let class = self.classes.get(lock).copied().unwrap_or_default();
                let waited = starts.saturating_sub(since.unwrap_or(next.since_ns));
                *self.outcome.waits.entry(class).or_default() += waited;
                self.advance(next.worker, starts);
                continue;
            }
            if state.holders > 0 {
                return now;
            }
            let Some(sleeper) = state.queue.pop_front() else { return now };
            if let Some(worker) = self.workers.get_mut(sleeper.worker) {
                worker.waits_since.get_or_insert(sleeper.since_ns);
            }
            // It does the same action again.
            self.events.push(Reverse((now + wake_ns, sleeper.worker)));
            return now + call_ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::operations::Operation;
    use super::*;

    const FREE: Costs = Costs { transfer_ns: 0, spin_ns: 1000, wake_ns: 50, call_ns: 5 };

    /// Each of `workers` workers does ten operations: some work, and some more under lock 0.
    fn operations(workers: usize, (apart_ns, under_ns): (u64, u64), is_shared: bool) -> Operations {
        let parts = vec![
            Part { work_ns: apart_ns, action: Action::Take { lock: 0, is_shared } },
            Part { work_ns: under_ns, action: Action::LetGo { lock: 0 } },
            Part { work_ns: 0, action: Action::End },
        ];
        let list = (0..10 * workers).map(|number| Operation { worker: number % workers, parts: parts.clone() });
        Operations { list: list.collect(), classes: vec!["A"], steps: 0 }
    }

    fn run(operations: &Operations, processors: usize, costs: Costs) -> Outcome {
        simulate(operations, processors, (costs, 1.0))
    }

    #[test]
    fn the_time_of_one_processor_is_all_the_work() {
        let outcome = run(&operations(4, (70, 30), false), 1, FREE);
        assert_eq!((outcome.ns, outcome.forced, outcome.waits.len()), (4000, 0, 0));
    }

    #[test]
    fn a_lock_bounds_what_more_processors_gain() {
        let work = operations(8, (70, 30), false);
        let times: Vec<u64> = [1, 2, 4, 8].iter().map(|processors| run(&work, *processors, FREE).ns).collect();
        // All that is done under the lock takes 2400 ns on any number of processors.
        assert_eq!(times[0], 8000);
        assert!((4000..4200).contains(&times[1]), "{times:?}");
        assert!((2400..2600).contains(&times[2]) && (2400..2600).contains(&times[3]), "{times:?}");
        let readers = operations(8, (70, 30), true);
        assert_eq!(run(&readers, 8, FREE).ns, 1000);
    }

    #[test]
    fn those_who_sleep_are_woken_late() {
        let work = operations(2, (0, 100), false);
        let spins = run(&work, 2, FREE).ns;
        let sleeps = run(&work, 2, Costs { spin_ns: 10, ..FREE }).ns;
        assert_eq!(spins, 2000);
        assert!(sleeps > spins + 15 * 50, "{sleeps}");
        let lines = run(&work, 2, Costs { transfer_ns: 10, ..FREE }).ns;
        assert!(lines > spins + 10 * 10, "{lines}");
    }

    #[test]
    fn a_place_that_served_as_two_locks_stops_nobody() {
        let take = |lock| Part { work_ns: 1, action: Action::Take { lock, is_shared: false } };
        let go = |lock| Part { work_ns: 1, action: Action::LetGo { lock } };
        let end = Part { work_ns: 1, action: Action::End };
        let list = vec![
            Operation { worker: 0, parts: vec![take(0), take(1), go(1), go(0), end] },
            Operation { worker: 1, parts: vec![take(1), take(0), go(0), go(1), end] },
        ];
        let outcome = run(&Operations { list, classes: vec!["A", "A"], steps: 0 }, 2, FREE);
        assert_eq!(outcome.forced, 1);
        assert!(outcome.ns < 200, "{outcome:?}");
    }
}
