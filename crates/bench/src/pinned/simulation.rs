//! Simulates the counter of pinned bytes on more processors than this machine has. Called by `pinned`.
//!
//! Each of N processors works for a time, and then adds to the counter. With one lock, every addition takes it; with
//! shards, a fraction of them. The lock is held for the time of an addition (measured with one thread), and, if another
//! processor held it before, also for the time of its cache line's transfer. Later processors wait in line. Events
//! happen in the order of their times; the lengths of work vary by a fixed sequence of numbers, so that every run is
//! the same.
//!
//! The simplifications favour the lock: waiters at a spinlock contend for its line, a line's way between sockets is
//! longer, and no other lock is involved. The two processors of a virtual machine may be threads of one core, which
//! pass a line faster than cores do: `--transfer-ns` sets another time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt::Write as _;

use serde::Serialize;

use super::Way;
use super::micro::Measured;
use crate::row::as_float;

const CORES: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Additions of each processor.
const ADDS_PER_CORE: u64 = 4_000;
/// Processors that the workload was measured on.
const MEASURED_CORES_DEFAULT: usize = 2;

/// The work of the workload on a mount.
pub(super) struct Work {
    pub(super) seconds: f64,
    /// Additions to the counters.
    pub(super) adds: u64,
    /// How often each way accessed the shared counter.
    pub(super) shared: BTreeMap<Way, u64>,
}

/// The times of one way, in picoseconds: integers, so that events have one order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Load {
    way: Way,
    /// Between two additions of a processor.
    work_ps: u64,
    /// An addition that stays in the processor's shard.
    local_ps: u64,
    /// One that takes the lock.
    hold_ps: u64,
    /// More where another processor had the lock.
    transfer_ps: u64,
    /// Every so many additions go to the lock.
    adds_per_lock: u64,
}

/// The result for N processors.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Seen {
    way: Way,
    work_ns: f64,
    cores: u32,
    /// Additions of all in a microsecond.
    adds_per_us: f64,
    /// The part of the time that the lock is held.
    lock_use: f64,
    /// The part of the processors' time that they wait.
    waiting: f64,
}

fn ps(ns: f64) -> u64 {
    std::time::Duration::try_from_secs_f64(ns / 1e6).map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(0))
}

impl Load {
    fn new(measured: &Measured, way: Way, work_ns: f64, adds_per_lock: u64) -> Self {
        // Moving a shard to the total does the same, however seldom.
        let shared = if way == Way::OurBatch { Way::Batch32 } else { way };
        Self {
            way,
            work_ps: ps(work_ns),
            local_ps: ps(measured.add_ns(Way::OurBatch)),
            hold_ps: ps(measured.add_ns(shared)),
            transfer_ps: ps(measured.transfer_ns),
            adds_per_lock: adds_per_lock.max(1),
        }
    }

    /// Nothing between two additions but a hundred nanoseconds of other work; a tree block at each.
    pub(super) fn of_micro(measured: &Measured) -> Vec<Self> {
        Way::ALL.map(|way| Self::new(measured, way, 100.0, if way == Way::OurBatch { 4096 } else { 1 })).to_vec()
    }

    /// As the workload had it on this machine's processors, and the same with a hundredth of the work between two
    /// additions, as if all but the counter were so much faster.
    pub(super) fn of_workload(measured: &Measured, work: &Work) -> Vec<Self> {
        let cores = std::thread::available_parallelism().map_or(MEASURED_CORES_DEFAULT, usize::from);
        let work_ns = work.seconds * 1e9 * as_float(u64::try_from(cores).unwrap_or(1)) / as_float(work.adds.max(1));
        let of = |work_ns| {
            Way::ALL.map(|way| {
                let shared = work.shared.get(&way).copied().unwrap_or(work.adds).max(1);
                Self::new(measured, way, work_ns, work.adds.div_ceil(shared))
            })
        };
        [of(work_ns), of(work_ns / 100.0)].concat()
    }
}

/// Numbers that look random, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end.max(1)
    }

    /// Half of `length` to one and a half times as much.
    fn around(&mut self, length: u64) -> u64 {
        length / 2 + self.below(length + 1)
    }
}

/// Lets `cores` processors add.
fn simulate(load: &Load, cores: u32) -> Seen {
    let mut numbers = Numbers(1);
    // When each is done with its work, and how many additions it made.
    let mut events: BinaryHeap<Reverse<(u64, u32, u64)>> =
        (0..cores).map(|core| Reverse((numbers.around(load.work_ps), core, 0))).collect();
    let (mut free_at, mut had_by, mut held, mut waited, mut end) = (0, None, 0, 0, 0);
    while let Some(Reverse((now, core, adds))) = events.pop() {
        // The processors' shards are not full at the same time.
        let goes_to_lock = (adds + u64::from(core)) % load.adds_per_lock == 0;
        let done = if goes_to_lock {
            let begin = now.max(free_at);
            let moved = if had_by == Some(core) || had_by.is_none() { 0 } else { load.transfer_ps };
            let hold = load.hold_ps + moved;
            (held, waited) = (held + hold, waited + (begin - now));
            (free_at, had_by) = (begin + hold, Some(core));
            free_at
        } else {
            now + load.local_ps
        };
        end = end.max(done);
        if adds + 1 < ADDS_PER_CORE {
            events.push(Reverse((done + numbers.around(load.work_ps), core, adds + 1)));
        }
    }
    let (total, end) = (as_float(ADDS_PER_CORE) * f64::from(cores), as_float(end.max(1)));
    Seen {
        way: load.way,
        work_ns: as_float(load.work_ps) / 1e3,
        cores,
        adds_per_us: total / end * 1e6,
        lock_use: as_float(held) / end,
        waiting: as_float(waited) / end / f64::from(cores),
    }
}

pub(super) fn all(loads: &[Load]) -> Vec<Seen> {
    loads.iter().flat_map(|load| CORES.map(|cores| simulate(load, cores))).collect()
}

pub(super) fn markdown(loads: &[Load], seen: &[Seen]) -> String {
    let mut text = String::from(
        "Simulated: additions in a microsecond, the lock's use and the part of the processors' time that they wait\n\n\
         | counter | work between, ns | under the lock, ns | additions by lock |",
    );
    for cores in CORES {
        let _ = write!(text, " {cores} |");
    }
    text.push_str("\n|---|---|---|---|---|---|---|---|---|---|---|\n");
    for load in loads {
        let (work, hold, moved) = (load.work_ps / 1000, as_float(load.hold_ps) / 1e3, load.transfer_ps / 1000);
        let _ =
            write!(text, "| {} | {work} | {hold:.1}, and {moved} to come | {} |", load.way.name(), load.adds_per_lock);
        let work_ns = as_float(load.work_ps) / 1e3;
        let same = seen.iter().filter(|one| one.way == load.way && one.work_ns.total_cmp(&work_ns).is_eq());
        for one in same {
            let digits = match one.adds_per_us {
                few if few < 1.0 => 3,
                some if some < 10.0 => 2,
                _ => 1,
            };
            let (lock_use, waiting) = (one.lock_use * 100.0, one.waiting * 100.0);
            let _ = write!(text, " {:.digits$}, {lock_use:.0} %, {waiting:.0} % |", one.adds_per_us);
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(way: Way, adds_per_lock: u64) -> Load {
        Load { way, work_ps: 900_000, local_ps: 10_000, hold_ps: 100_000, transfer_ps: 0, adds_per_lock }
    }

    #[test]
    fn a_single_processor_never_waits() {
        let seen = simulate(&load(Way::Locked, 1), 1);
        assert_eq!(seen.waiting, 0.0);
        // 900 ns of work and 100 under the lock, on average.
        assert!((seen.adds_per_us - 1.0).abs() < 0.02, "{seen:?}");
        assert!((seen.lock_use - 0.1).abs() < 0.005, "{seen:?}");
    }

    #[test]
    fn a_lock_gives_no_more_than_its_hold_time_allows() {
        let many = simulate(&load(Way::Locked, 1), 64);
        // 100 ns each: ten in a microsecond, however many processors want it.
        assert!((many.adds_per_us - 10.0).abs() < 0.1, "{many:?}");
        assert!(many.lock_use > 0.99 && many.lock_use <= 1.0, "{many:?}");
        assert!(many.waiting > 0.8, "{many:?}");
    }

    #[test]
    fn a_line_that_moves_makes_the_lock_slower() {
        let moving = Load { transfer_ps: 100_000, ..load(Way::Locked, 1) };
        let seen = simulate(&moving, 64);
        assert!((seen.adds_per_us - 5.0).abs() < 0.1, "{seen:?}");
        assert_eq!(simulate(&moving, 1), simulate(&load(Way::Locked, 1), 1));
    }

    #[test]
    fn shards_scale_with_the_processors() {
        let seen = simulate(&load(Way::OurBatch, 1000), 64);
        // Each processor: 910 ns an addition.
        assert!((seen.adds_per_us - 64.0 / 0.91).abs() < 1.5, "{seen:?}");
        assert!(seen.waiting < 0.01, "{seen:?}");
    }

    #[test]
    fn the_same_load_gives_the_same_figures() {
        assert_eq!(all(&[load(Way::Locked, 3)]), all(&[load(Way::Locked, 3)]));
    }
}
