//! Counts the bytes that block groups add to the accounts and remove from them, and records for which kinds no further
//! chunk could be allocated. Called by `space/mod.rs` and `retire` for groups that come, go or are loaded; by
//! `store/growth`, `chunk` and `report` for the record of kinds.
//!
//! [`super::reserve`] uses the accounts; [`super::retire`] decides which group is removed.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use super::account::{take_from, unsigned};
use super::group::Free;
use super::reserve::{Accounts, GROWTH_BLOCKS};
use crate::error::SpaceKind;

/// The share of metadata bytes that must stay available when a metadata group is removed, so that new blocks do not
/// need another chunk, for which there may be no space by then.
const HEADROOM_SHARE: u64 = 8;

impl Accounts {
    /// Records whether the last attempt to allocate a chunk of this kind failed. While it is set, a shortage of space
    /// does not lead to another attempt.
    pub fn set_full(&self, kind: SpaceKind, full: bool) {
        self.of(kind).is_full.store(full, Release);
    }

    /// True when the last attempt to allocate a chunk of some kind failed.
    pub(crate) fn is_any_full(&self) -> bool {
        self.accounts.iter().any(|account| account.is_full.load(Acquire))
    }

    /// Allows another attempt to allocate chunks of every kind.
    pub(crate) fn set_none_full(&self) {
        for account in &self.accounts {
            account.is_full.store(false, Release);
        }
    }

    /// True when the last attempt to allocate a chunk of this kind failed.
    #[must_use]
    pub fn is_full(&self, kind: SpaceKind) -> bool {
        self.of(kind).is_full.load(Acquire)
    }

    pub(crate) fn group_added(&self, kind: SpaceKind, total: u64, free: u64) {
        let account = self.of(kind);
        account.total.fetch_add(total, Relaxed);
        account.unloaded.fetch_add(free, SeqCst);
    }

    /// Removes a group's bytes from the accounts. Returns false and changes nothing if its `free` bytes are reserved,
    /// or if too few unreserved bytes for tree blocks would be left.
    pub(crate) fn give_up(&self, kind: SpaceKind, total: u64, free: Free) -> bool {
        let account = self.of(kind);
        let left = account.total.load(Relaxed).saturating_sub(total);
        let headroom = match kind {
            SpaceKind::Data => 0,
            SpaceKind::Metadata | SpaceKind::System => {
                (left / HEADROOM_SHARE).max(account.global_size.load(Relaxed)).max(GROWTH_BLOCKS * self.node_size)
            }
        };
        let granted = match free {
            Free::Loaded(bytes) => account.try_take_above(bytes, headroom),
            Free::Unloaded(bytes) => {
                let is_spare = unsigned(account.available.load(Relaxed)) >= headroom;
                is_spare && take_from(&account.unloaded, bytes) == bytes
            }
        };
        if granted {
            account.total.fetch_sub(total, Relaxed);
        }
        granted
    }

    /// Adds the bytes of a group that was closed and is open again, `free` of them free.
    pub(crate) fn group_reopened(&self, kind: SpaceKind, total: u64, free: u64) {
        let account = self.of(kind);
        account.total.fetch_add(total, Relaxed);
        account.credit(free);
        self.queue.notify();
    }

    /// Credits a group whose free space was loaded: of the `counted` unloaded bytes, `free` can be allocated now.
    pub(crate) fn group_loaded(&self, kind: SpaceKind, counted: u64, free: u64) {
        let account = self.of(kind);
        take_from(&account.unloaded, counted);
        account.credit(free);
        self.queue.notify();
    }

    /// Counts bytes freed in a group that is not loaded.
    pub(crate) fn freed_unloaded(&self, kind: SpaceKind, bytes: u64) {
        self.of(kind).unloaded.fetch_add(bytes, SeqCst);
    }
}
