//! Balances a volume: rewrites block groups, to compact scattered extents, to free groups, or to convert their profile;
//! and moves data to the front of a device before the volume is made smaller. Called by `volume::balance` for commands,
//! by `vfs_impl::balancing` for a mount, and by `open_volume::status` for a resize.
//!
//! `spec` selects block groups, in the syntax of `btrfs balance` and as stored in the balance item; `run` balances them
//! one after the other, from the last; `evacuation` moves the contents of one ([`btrfs_store::Emptying`]); `shrink`
//! moves the groups that lie beyond a new end; `removal` those that have a part of a device; `reclaim` finds groups
//! that are almost empty.
//!
//! Invariants
//! * Every step is a transaction of its own, after which the volume is consistent. From the first to the last step of a
//!   balance its item is in the root tree: after a crash the kernel resumes it, or this program when asked to. A
//!   reclaim or a resize has no such item, and is not resumed.
//! * Data is moved under the volume's `Moving` lock, held exclusively; operations that remember addresses of data hold
//!   it shared.
//!
//! Failure: a group whose contents find no space elsewhere is skipped and counted, and the balance fails with `NoSpace`
//! at its end; any other error ends the balance at once, and it can be resumed.

mod evacuation;
mod pace;
mod reclaim;
mod removal;
mod run;
mod shrink;
mod spec;
mod status;

pub(crate) use pace::Pace;
pub(crate) use reclaim::Reclaim;
pub use removal::RemovalProgress;
pub(crate) use removal::clear_device;
pub(crate) use run::{Running, cancel, go_on, status};
pub(crate) use shrink::{clear_from, gather};
pub use spec::{BalanceSpec, NotBalance};
pub use status::{BalanceStatus, NotStatus};

/// How far a balance has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BalanceProgress {
    /// Number of block groups chosen for the balance.
    pub expected: u64,
    /// Number of block groups in the volume when the balance began, chosen or not.
    pub considered: u64,
    /// Number of block groups that are done: their contents were moved.
    pub completed: u64,
    /// Block groups skipped because there was no space for their contents.
    pub without_room: u64,
    /// Used bytes in the chosen groups when the balance began.
    pub bytes: u64,
    /// Bytes of data and tree blocks moved.
    pub moved_bytes: u64,
}

/// How a balance ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BalanceEnd {
    /// All chosen groups are done.
    Done(BalanceProgress),
    /// It was paused, and can be resumed.
    Paused(BalanceProgress),
}
