//! Holds switches for benchmarks and tests: earlier implementations, clocks, deliberate bugs.
//!
//! Everything here is decided by the feature `ablation`. Without it every question is answered
//! by a constant, every clock is empty, and nothing of it is in the program. With it the switches
//! are atomics, so that one process can measure both ways in turn.
//!
//! ```text
//! items in the leaf    file extent items of the log are made in the locked leaf, one search and one
//!                      lock for each item, one field after the other: as it was done before items
//!                      were prepared and copied in at once
//! commit each sync     an fsync commits, as if there were no log
//! allocate apart       several flushes allocate at once, extent by extent: what one writes lies between what the
//!                      others write, and its requests are cut there
//! collect checksums    an overwrite in place collects all checksums of the range, instead of asking only
//!                      whether there is any
//! sums                 counters of pinned bytes with another batch than ours (the kernel's default is 32), or as one
//!                      number under a lock
//! hold times           how long leaves of log trees are locked for writing
//! mutations            deliberate bugs, which the crash tests have to find
//! ```
//!
//! Invariants
//! * Nothing is switched but by calls of the functions here; the default is how the engine works.
//!
//! Callers: any module of the engine reads the switches; benchmarks and tests set them.

mod clock;
#[cfg(feature = "ablation")]
mod in_leaf;
mod mutation;
mod sums;
mod switches;

pub(crate) use clock::LeafClock;
pub use clock::{HoldTimes, take_hold_times};
#[cfg(feature = "ablation")]
pub(crate) use in_leaf::fill;
pub use mutation::{Mutation, mutate, mutated};
pub use sums::{Sums, set_sums, sums};
pub use switches::{
    allocates_apart, collects_csums, commits_each_sync, makes_items_in_leaf, set_allocates_apart, set_collects_csums,
    set_commits_each_sync, set_makes_items_in_leaf,
};
