//! Balance: block groups are written anew, to gather what is scattered over many of them, to give the rest back, or to
//! store them with another profile; and what has to be moved so that a volume can be smaller.
//!
//! `spec` says which groups a balance is of, in the words of `btrfs balance` and as the balance item has them; `run`
//! takes them one after the other, from the last; `empty` moves what is in one of them ([`btrfs_store::Emptying`]), and
//! `shrink` those that lie too far back; `reclaim` finds those that have become all but empty.
//!
//! Invariants
//! * Every step is a transaction of its own, after which the volume is whole. From the first to the last the balance
//!   item is in the root tree: after a crash the kernel goes on with what it says, or this program when it is told to.
//! * Data is moved under the volume's `Moving` lock, which everybody shares who remembers where data is.
//!
//! Failure: a group that there is no room for is left, and counted; anything else ends the balance, which can be taken
//! up again. Callers: the volume, for its commands and its server.

mod empty;
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
    /// Block groups that there was no room for.
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
    /// It was told to stop, and can be resumed.
    Paused(BalanceProgress),
}
