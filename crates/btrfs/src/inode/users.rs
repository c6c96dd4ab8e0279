//! Counts the users of an inode: handles, references of servers; and claims its removal after the last
//! ([`super::usage`]). Called by `vfs_impl` and `dir`.

use std::sync::atomic::Ordering;

use super::Inode;
use crate::error::Result;

impl Inode {
    /// Counts a new handle. Fails when the inode's removal has begun.
    pub(crate) fn open(&self) -> Result<()> {
        let _state = self.state.write();
        self.usage.check_stays()?;
        // Before the check whether the subvolume is deleted, which comes before a check of this count
        // (`Usage::is_open`).
        self.usage.open_count.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    /// Counts a further handle on an inode that is open, or that no other thread has yet.
    pub(crate) fn open_again(&self) {
        let _state = self.state.write();
        self.usage.open_count.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a closed handle.
    pub(crate) fn close(&self) {
        let _state = self.state.write();
        let before = self.usage.open_count.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "a handle is closed once");
    }

    /// True while the inode has an open handle.
    pub(crate) fn is_open(&self) -> bool {
        self.usage.is_open()
    }

    /// True from the moment on from which the inode cannot be opened any more.
    #[cfg(test)]
    pub(crate) fn is_going(&self) -> bool {
        self.usage.is_going()
    }

    /// True when the inode has one name left and is not in use: from then on it cannot be opened, and the caller
    /// removes it. The link count stays until the transaction that removes the name: other threads may stage the item
    /// before, and a commit must not have a name without its link.
    pub(crate) fn begin_removal(&self) -> bool {
        self.usage.begin_removal(&mut self.state.write(), 1)
    }

    /// True for one caller, when the inode has no names and is not in use: that caller removes it.
    pub(crate) fn claim_removal(&self) -> bool {
        // Most inodes that are closed have names, and need not take the lock.
        self.is_nameless() && self.usage.begin_removal(&mut self.state.write(), 0)
    }

    /// Notes that the items are about to leave the tree: nothing is staged from here on.
    pub(crate) fn set_gone(&self) {
        let mut state = self.state.write();
        state.nlink = 0;
        self.usage.is_gone.store(true, Ordering::Relaxed);
    }

    /// Keeps the inode in the tree although its link count is 0: damage, not the loss of the last name.
    pub(super) fn keep_without_names(&self) {
        self.usage.is_kept.store(true, Ordering::Relaxed);
    }

    /// True for an inode that was made without a name and never had one.
    pub(crate) fn is_linkable(&self) -> bool {
        self.usage.is_linkable.load(Ordering::Relaxed)
    }

    /// Notes that the inode was made without a name, or has got its first.
    pub(crate) fn set_linkable(&self, is_linkable: bool) {
        self.usage.is_linkable.store(is_linkable, Ordering::Relaxed);
    }

    /// True when no name leads to the inode any more.
    pub(crate) fn is_nameless(&self) -> bool {
        self.state.read().nlink == 0
    }

    /// Counts a further reference of a server. Fails when the inode's removal has begun.
    pub(crate) fn add_known(&self) -> Result<()> {
        // A removal begins under the sole lock.
        let _state = self.state.read();
        self.usage.check_stays()?;
        self.usage.known_count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Drops up to `count` references of the server; returns how many.
    pub(crate) fn drop_known(&self, count: u64) -> u64 {
        let less = |known: u64| Some(known.saturating_sub(count));
        let before = self.usage.known_count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        before.map_or(0, |known| known.min(count))
    }

    /// True while a server refers to the inode.
    pub(crate) fn is_known(&self) -> bool {
        self.usage.is_known()
    }

    /// True for an inode that the table must keep because a server refers to it: a directory (a process may be in it),
    /// and an inode without names, which is removed with the last reference.
    pub(super) fn is_kept_for_server(&self) -> bool {
        let is_nameless = || self.state.try_read().is_none_or(|state| state.nlink == 0);
        self.is_known() && (self.kind().is_dir() || is_nameless())
    }
}
