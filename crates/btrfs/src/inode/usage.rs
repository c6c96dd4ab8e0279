//! Records the users of an inode (open handles, references of servers), and its removal after the last of them. Each
//! inode has one; `users` changes it, and the inode table asks it which inodes it may forget.
//!
//! A removal begins under the write lock of the inode's `state`, where `nlink` lives. A new handle or reference checks
//! under the same lock whether one has begun: either the removal sees the user, or the user is refused.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::InodeState;
use crate::error::{CallerError, Result};

/// The users of one inode.
#[derive(Debug)]
pub(super) struct Usage {
    /// Handles on the inode. Changed under the write lock of `state`.
    pub(super) open_count: AtomicU64,
    /// References that servers gave out: while there are any the inode is not removed, with or
    /// without names. Grows under the `state` lock, shared or not.
    pub(super) known_count: AtomicU64,
    /// A thread is removing the inode. Changed under the write lock of `state`.
    is_going: AtomicBool,
    /// Its items are being removed from the tree, or have been. Changed under the write lock of `state`.
    pub(super) is_gone: AtomicBool,
    /// Made without a name and still without one: it may be linked.
    pub(super) is_linkable: AtomicBool,
    /// Never removed, regardless of its link count. Set before another thread can have the inode.
    pub(super) is_kept: AtomicBool,
    /// Set by every look-up, cleared by the table's sweep.
    recently_used: AtomicBool,
}

impl Usage {
    pub(super) fn new() -> Self {
        Self {
            open_count: AtomicU64::new(0),
            known_count: AtomicU64::new(0),
            is_going: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            is_linkable: AtomicBool::new(false),
            is_kept: AtomicBool::new(false),
            recently_used: AtomicBool::new(true),
        }
    }

    /// True when the items are being removed from the tree, or have been.
    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }

    /// Notes a look-up.
    pub(super) fn touch(&self) {
        // Most look-ups find it set, and leave the cache line to other threads.
        if !self.recently_used.load(Ordering::Relaxed) {
            self.recently_used.store(true, Ordering::Relaxed);
        }
    }

    /// True when there was a look-up since the last call.
    pub(super) fn take_recently_used(&self) -> bool {
        self.recently_used.swap(false, Ordering::Relaxed)
    }

    pub(super) fn is_going(&self) -> bool {
        self.is_going.load(Ordering::Relaxed)
    }

    /// Fails when a removal has begun.
    pub(super) fn check_stays(&self) -> Result<()> {
        match self.is_going() {
            true => Err(CallerError::Stale.into()),
            false => Ok(()),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open_count.load(Ordering::SeqCst) > 0
    }

    pub(super) fn is_known(&self) -> bool {
        self.known_count.load(Ordering::Relaxed) > 0
    }

    /// True for one caller, when an inode with at most `nlink_max` names is not in use.
    pub(super) fn begin_removal(&self, state: &mut InodeState, nlink_max: u32) -> bool {
        let is_unused = state.nlink <= nlink_max && !self.is_open() && !self.is_known();
        is_unused && !self.is_kept.load(Ordering::Relaxed) && !self.is_going.swap(true, Ordering::Relaxed)
    }
}
