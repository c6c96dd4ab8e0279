//! What block groups bring to the accounts and take away, and whether more of them can be had.
//!
//! Who reserves is told of it in [`super::reserve`]; that a group goes is decided in [`super::retire`].

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use super::account::{take_from, unsigned};
use super::group::Free;
use super::reserve::{Accounts, GROWTH_BLOCKS};
use crate::error::SpaceKind;

/// The part of all that tree blocks have which must stay available when a group of theirs goes: the next ones should
/// not need a chunk that others may have taken meanwhile.
const HEADROOM_SHARE: u64 = 8;

impl Accounts {
    /// Remembers whether another chunk of this kind can be had, so that shortages are
    /// answered accordingly.
    pub fn set_full(&self, kind: SpaceKind, full: bool) {
        self.of(kind).is_full.store(full, Release);
    }

    /// True when no chunk of some kind could be had at the last attempt.
    pub(crate) fn is_any_full(&self) -> bool {
        self.accounts.iter().any(|account| account.is_full.load(Acquire))
    }

    /// A chunk of any kind may be had again.
    pub(crate) fn set_none_full(&self) {
        for account in &self.accounts {
            account.is_full.store(false, Release);
        }
    }

    /// True when no chunk of this kind could be had at the last attempt.
    #[must_use]
    pub fn is_full(&self, kind: SpaceKind) -> bool {
        self.of(kind).is_full.load(Acquire)
    }

    pub(crate) fn group_added(&self, kind: SpaceKind, total: u64, free: u64) {
        let account = self.of(kind);
        account.total.fetch_add(total, Relaxed);
        account.unloaded.fetch_add(free, SeqCst);
    }

    /// A group goes in which nothing lies. False, and nothing changes, where what is `free` in it is promised, or tree
    /// blocks would have too little left that nobody was promised.
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

    /// A group that had been given up is back, with so many bytes free.
    pub(crate) fn group_reopened(&self, kind: SpaceKind, total: u64, free: u64) {
        let account = self.of(kind);
        account.total.fetch_add(total, Relaxed);
        account.credit(free);
        self.line.tell();
    }

    /// A group's free space was loaded: of the `counted` bytes said to be free, `free` can
    /// be allocated now.
    pub(crate) fn group_loaded(&self, kind: SpaceKind, counted: u64, free: u64) {
        let account = self.of(kind);
        take_from(&account.unloaded, counted);
        account.credit(free);
        self.line.tell();
    }

    /// Bytes became free in a group that is not loaded.
    pub(crate) fn freed_unloaded(&self, kind: SpaceKind, bytes: u64) {
        self.of(kind).unloaded.fetch_add(bytes, SeqCst);
    }
}
