//! Measures what the simulation has to know of this machine. Called by `mod`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::simulation::Costs;
use crate::pinned::transfer_ns;
use crate::row::as_float;

/// For how long a thread looks at a lock before it sleeps: see the module `spinning` of the crate `host`.
const SPIN_NS: u64 = 20_000;
/// The part of a wake-up that the caller pays: a system call.
const CALL_NS: u64 = 2_000;
const WAKES: u32 = 2_000;
const RUNS: usize = 5;
/// Numbers that a loop looks up: 256 KiB of them, as much as an operation uses.
const NUMBERS: usize = 1 << 15;
/// How many it looks up.
const LOOKS: usize = 1 << 21;

/// The measurements.
#[derive(Debug, Clone, Copy)]
pub(super) struct Machine {
    pub(super) costs: Costs,
    /// How much longer work takes while the other processor works, too: the two may be threads of one core.
    pub(super) slower_beside: f64,
}

impl Machine {
    pub(super) fn measure() -> Self {
        let transfer_ns = nanoseconds(transfer_ns() / 1e9);
        let costs = Costs { transfer_ns, spin_ns: SPIN_NS, wake_ns: wake_ns(), call_ns: CALL_NS };
        Self { costs, slower_beside: slower_beside() }
    }
}

fn nanoseconds(seconds: f64) -> u64 {
    let time = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// From the call that wakes a thread until that runs: half of a round of two threads that wake each other.
fn wake_ns() -> u64 {
    let turn = AtomicBool::new(false);
    let other = thread::current();
    let wait_for = |mine: bool| {
        while turn.load(Ordering::Acquire) != mine {
            thread::park();
        }
    };
    let seconds = thread::scope(|scope| {
        let answering = scope.spawn(|| {
            for _ in 0..WAKES {
                wait_for(true);
                turn.store(false, Ordering::Release);
                other.unpark();
            }
        });
        let begin = Instant::now();
        for _ in 0..WAKES {
            turn.store(true, Ordering::Release);
            answering.thread().unpark();
            wait_for(false);
        }
        begin.elapsed().as_secs_f64()
    });
    nanoseconds(seconds / f64::from(2 * WAKES))
}

/// The time of the same work on two processors at once, to that on one.
fn slower_beside() -> f64 {
    let least = |threads: usize| {
        let times = (0..RUNS).map(|_| {
            let begin = Instant::now();
            thread::scope(|scope| {
                for thread in 0..threads {
                    scope.spawn(move || std::hint::black_box(work(thread)));
                }
            });
            begin.elapsed().as_secs_f64()
        });
        times.fold(f64::INFINITY, f64::min)
    };
    (least(2) / least(1)).max(1.0)
}

/// Looks up numbers, each at the place that the one before gives, and computes with them.
fn work(seed: usize) -> u64 {
    let mut state = u64::try_from(seed).unwrap_or(0) | 1;
    let numbers: Vec<AtomicU64> = (0..NUMBERS)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            AtomicU64::new(state >> 20)
        })
        .collect();
    let mut sum = 0_u64;
    let mut at = seed;
    for _ in 0..LOOKS {
        let number = numbers.get(at % NUMBERS).map_or(0, |number| number.load(Ordering::Relaxed));
        sum = sum.rotate_left(7) ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        at = usize::try_from(number ^ (sum & 7)).unwrap_or(0);
    }
    std::hint::black_box(as_float(sum));
    sum
}
