//! Remembers attributes that an inode is known not to have. `vfs_impl` asks it before it searches for capabilities and
//! ACLs; `dir/create` fills it for new inodes, and `dir/xattr` clears it.

use std::sync::atomic::{AtomicU8, Ordering};

/// Attributes whose absence is cached, so that they are not searched for in the tree again. An absence is noted under
/// the shared `names` lock; when any attribute changes, all are forgotten under the exclusive lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Absent {
    /// `security.capability`.
    Capability,
    /// `system.posix_acl_access`.
    AccessAcl,
    /// `system.posix_acl_default`.
    DefaultAcl,
}

/// The attributes that one inode is known not to have.
#[derive(Debug, Default)]
pub(crate) struct AbsentSet(AtomicU8);

impl AbsentSet {
    /// True when the attribute is known to be missing.
    pub(crate) fn contains(&self, what: Absent) -> bool {
        self.0.load(Ordering::Relaxed) & bit(what) != 0
    }

    /// Notes that the attribute is missing. The caller holds the `names` lock.
    pub(crate) fn insert(&self, what: Absent) {
        self.0.fetch_or(bit(what), Ordering::Relaxed);
    }

    /// Forgets all: an attribute may have been added. The caller holds the `names` lock exclusively.
    pub(crate) fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

const fn bit(what: Absent) -> u8 {
    match what {
        Absent::Capability => 1,
        Absent::AccessAcl => 2,
        Absent::DefaultAcl => 4,
    }
}
