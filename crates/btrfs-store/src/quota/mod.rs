//! Keeps quota groups ("qgroups") in memory: bytes that each refers to, bytes exclusive to it, and their limits.
//!
//! A subvolume has a group of level 0; groups of higher levels have others as members. An extent that some of a
//! group's subvolumes reach counts once for it (`rfer`), and as its own (`excl`) where no other subvolume reaches it.
//! `accounting` determines which subvolumes reach an extent; this module does the sums.
//!
//! Invariants
//! - `is_on` is one flag, read without a lock: with quotas off, nothing else of this module is touched.
//! - Every change of a group notes the key of the item that has to follow; the commit writes these items, with the
//!   state of that transaction.
//! - Where an extent cannot be counted, the numbers become *inconsistent*, on disk too, until a rescan counts anew.
//!   They are kept as well as possible meanwhile, and limits are checked against them, as the kernel does.
//!
//! A limit is checked against the sum of the last commit, plus the bytes that the running transaction allocated, plus
//! those promised to data that is not written yet (a [`Charge`]). Frees of the transaction count when it is committed.
//!
//! Failure: `Corrupt` for items that cannot be read; [`crate::QuotaError`] for requests that contradict the existing
//! groups.
//!
//! Callers: the commit (`txn/quotas`), reservations, and the store's front.

mod change;
mod groups;
mod item;
mod limits;
mod report;

pub(crate) use groups::{Event, Groups, Roots};
pub use limits::Charge;
pub(crate) use limits::Over;
pub use report::{QgroupReport, QuotaReport};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::locks::{Mutex, MutexGuard, Rank};

/// The quota groups of a store.
#[derive(Debug)]
pub(crate) struct Quota {
    is_on: AtomicBool,
    /// Extents count for the subvolume that allocated them.
    is_simple: AtomicBool,
    /// Some group has a limit.
    has_limits: AtomicBool,
    groups: Mutex<Groups>,
}

impl Quota {
    /// Quotas that are off.
    pub(crate) fn off() -> Arc<Self> {
        let groups = Mutex::new(Rank::SpaceQueue, Groups::default());
        let [is_on, is_simple, has_limits] = [(); 3].map(|()| AtomicBool::new(false));
        Arc::new(Self { is_on, is_simple, has_limits, groups })
    }

    /// Whether anything is counted.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Whether extents count for the subvolume that allocated them, no matter which reach them.
    #[inline]
    pub(crate) fn is_simple(&self) -> bool {
        self.is_simple.load(Ordering::Relaxed)
    }

    /// Whether anything is limited.
    #[inline]
    pub(crate) fn has_limits(&self) -> bool {
        self.has_limits.load(Ordering::Relaxed)
    }

    /// Locks the groups.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Groups> {
        self.groups.lock()
    }

    /// Changes the groups, and updates the flags that are read without the lock.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut Groups) -> R) -> R {
        let mut groups = self.groups.lock();
        let answer = change(&mut groups);
        self.is_on.store(groups.is_on(), Ordering::Relaxed);
        self.is_simple.store(groups.is_simple(), Ordering::Relaxed);
        self.has_limits.store(groups.is_on() && groups.has_limits(), Ordering::Relaxed);
        answer
    }
}
