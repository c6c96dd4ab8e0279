//! Decides when to prepare space for data before it runs out: loading free space of groups, and adding chunks. The free
//! space of the last percent of a chunk is in small pieces, and files put there would be, too. Called by
//! `store/growth`.

use std::sync::atomic::Ordering::Relaxed;

use super::account::{Account, signed};
use super::{Space, SpaceKind};

/// Another chunk is wanted when less than this part of the data chunks is left.
const LEFT_SHARE: u64 = 6;
/// Below this size of all data chunks none is added ahead: small volumes keep unallocated space for any use.
const BYTES_MIN: u64 = 64 << 20;
/// At most this part of metadata may be in use: where it is more, unallocated space is left to metadata.
const METADATA_SHARE: u64 = 4;

/// Bytes for data that are free at least in groups whose free space is loaded, as long as there are others.
const LOADED_BYTES_MIN: u64 = 512 << 20;

impl Space {
    /// True when the free space of another group for data should be loaded although there is room.
    pub(crate) fn wants_data_loaded(&self) -> bool {
        let account = self.accounts().of(SpaceKind::Data);
        let is_short = account.available.load(Relaxed) < signed(LOADED_BYTES_MIN);
        is_short && account.unloaded.load(Relaxed) > 0 && !self.is_load_denied.load(Relaxed)
    }

    /// Loads no more groups ahead: loading failed, and the operation that needs the space will report that.
    pub(crate) fn deny_data_loaded(&self) {
        self.is_load_denied.store(true, Relaxed);
    }

    /// True when a chunk for data should be added although there is room.
    pub(crate) fn wants_data_ahead(&self) -> bool {
        let account = self.accounts().of(SpaceKind::Data);
        let total = account.total.load(Relaxed);
        let is_short = total >= BYTES_MIN && left(account) < total / LEFT_SHARE && !account.is_full.load(Relaxed);
        is_short && self.denied_ahead.load(Relaxed) != total && !self.is_metadata_used()
    }

    /// There was no room for a chunk ahead: not to be tried until something has changed.
    pub(crate) fn deny_data_ahead(&self) {
        self.denied_ahead.store(self.accounts().of(SpaceKind::Data).total.load(Relaxed), Relaxed);
    }

    fn is_metadata_used(&self) -> bool {
        let account = self.accounts().of(SpaceKind::Metadata);
        let total = account.total.load(Relaxed);
        left(account).saturating_add(account.global.load(Relaxed)) < total - total / METADATA_SHARE
    }
}

/// Bytes without a reservation.
fn left(account: &Account) -> u64 {
    u64::try_from(account.available.load(Relaxed)).unwrap_or(0).saturating_add(account.unloaded.load(Relaxed))
}
