//! Balances a volume: rewrites block groups, to compact scattered extents, to free groups, or to convert their profile;
//! and makes the moves that make a volume smaller. Called by `volume::balance` for commands, and by
//! `vfs_impl::balancing` for a mount.
//!
//! `spec` selects block groups, in the syntax of `btrfs balance` and as stored in the balance item; `run` takes them
//! one after the other, from the last; `evacuation` moves the contents of one ([`btrfs_store::Emptying`]), and `shrink`
//! of those that lie too far back; `reclaim` finds those that are almost empty.
//!
//! Invariants
//! * Every step is a transaction of its own, after which the volume is whole. From the first to the last the balance
//!   item is in the root tree: after a crash the kernel resumes it, or this program when asked to.
//! * Data is moved under the volume's `Moving` lock, held exclusively; operations that remember addresses of data hold
//!   it shared.
//!
//! Failure: a group without room elsewhere is skipped, and counted; any other error ends the balance, which can be
//! resumed.

mod evacuation;
mod pace;
mod reclaim;
mod run;
mod shrink;
mod spec;
mod status;

pub(crate) use pace::Pace;
pub(crate) use reclaim::Reclaim;
pub(crate) use run::{Running, cancel, go_on, status};
pub(crate) use shrink::{clear_from, gather};
pub use spec::{BalanceSpec, NotBalance};
pub use status::{BalanceStatus, NotStatus};

/// How far a balance has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BalanceProgress {
    /// Block groups that are balanced altogether.
    pub expected: u64,
    /// Block groups looked at.
    pub considered: u64,
    /// Block groups written anew.
    pub completed: u64,
    /// Block groups skipped because there was no space for their contents.
    pub without_room: u64,
    /// Bytes in the groups that are balanced altogether, when it began.
    pub bytes: u64,
    /// Bytes of data and tree blocks moved.
    pub moved_bytes: u64,
}

/// How a balance ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BalanceEnd {
    /// All groups were looked at.
    Done(BalanceProgress),
    /// It was paused, and can be resumed.
    Paused(BalanceProgress),
}
