//! Charges queued changes of extent references, for which the commit copies blocks, to metadata space, and says when
//! that commit is due. `txn/host` and `txn/handle` charge; the commit and `txn/drain` return charges.
//!
//! A queued change is charged to `delayed` of metadata when it is queued, and the charge is returned when the change
//! has been applied: by the commit, or before it by a drain, which uses a reservation of its own where there is plenty
//! of space.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

use btrfs_disk::convert::to_u64;

use super::account::{take_from, unsigned};
use super::reserve::{Accounts, Reservation};
use crate::error::SpaceKind;

/// Queued extent references that are charged one tree block together: neighbours share leaves, and the global reserve
/// covers scattered ones.
const HEADS_PER_BLOCK: u64 = 16;

/// Tree blocks that the commit may copy for one queued extent reference: a leaf of the extent
/// tree, one of the checksum tree, and one of the free-space tree.
const BLOCKS_PER_HEAD: u64 = 3;

/// Tree blocks that every commit may copy beside those; a larger file system adds one for this many of its tree blocks,
/// since the copies change references of their own.
const COMMIT_BLOCKS: u64 = 32;
const TREE_BLOCKS_PER_BLOCK: u64 = 128;

/// Queued references below which a commit is not worth its while.
const HEADS_MIN: u64 = 64;

/// Bytes by which a queued reference may make the trees larger: an item or a part of one, in a leaf that is split.
const GROWTH_PER_HEAD: u64 = 256;

/// Metadata has plenty where this part of it, and this many bytes, are without a reservation: a drain before the commit
/// need not save space then.
const PLENTY_SHARE: u64 = 4;
const PLENTY_BYTES_MIN: u64 = if cfg!(debug_assertions) { 8 << 20 } else { 64 << 20 };

impl Accounts {
    /// Charges for `heads` queued extent references, out of the reservation of the handle
    /// that queued them as far as that goes.
    pub fn charge_heads(&self, heads: u64, from: Option<&Reservation>) {
        let bytes = self.bytes_for_heads(heads);
        let account = self.of(SpaceKind::Metadata);
        let paid = from.map_or(0, |reservation| reservation.spend(SpaceKind::Metadata, bytes));
        account.debit(bytes - paid);
        account.delayed.fetch_add(bytes, Relaxed);
    }

    /// Takes back the charge of references that cancelled each other.
    pub fn uncharge_heads(&self, heads: u64) {
        let account = self.of(SpaceKind::Metadata);
        account.credit(take_from(&account.delayed, self.bytes_for_heads(heads)));
    }

    /// Returns every charge, and forgets the bytes expected to be freed. To be called when the queue has been written
    /// and before another change can be queued.
    pub fn uncharge_all(&self) {
        let account = self.of(SpaceKind::Metadata);
        account.credit(account.delayed.swap(0, SeqCst));
        for account in &self.accounts {
            account.expected.add(-account.expected.exact());
        }
        self.queue.notify();
    }

    /// True when there may soon be no room to commit `heads` queued references: their charge supposes that neighbours
    /// share leaves. If they were scattered all over the trees that every commit changes (of `tree_bytes` bytes,
    /// computed where it matters), more would be copied than there is room for. A commit cannot add a chunk.
    #[must_use]
    pub fn is_commit_due(&self, heads: u64, tree_bytes: impl FnOnce() -> u64) -> bool {
        if heads < HEADS_MIN {
            return false;
        }
        let account = self.of(SpaceKind::Metadata);
        let at_hand = unsigned(account.available.load(Relaxed))
            .saturating_add(account.global.load(Relaxed))
            .saturating_add(self.bytes_for_heads(heads));
        let all_blocks = account.total.load(Relaxed) / self.node_size;
        let scattered = heads * BLOCKS_PER_HEAD + COMMIT_BLOCKS + all_blocks / TREE_BLOCKS_PER_BLOCK;
        let scattered = scattered.saturating_mul(self.node_size);
        at_hand < scattered && at_hand < tree_bytes().saturating_add(heads.saturating_mul(GROWTH_PER_HEAD))
    }

    /// True where groups for metadata have free space that is not loaded.
    pub(crate) fn has_unloaded_metadata(&self) -> bool {
        self.of(SpaceKind::Metadata).unloaded.load(Acquire) > 0
    }

    /// A reservation for applying `heads` queued references now ([`Self::take_charges`] adds their charges), where
    /// metadata has far more than any transaction uses: nothing has to be saved then, and no operation waits for the
    /// bytes that the commit frees.
    pub(crate) fn reserve_for_drain(
        self: &Arc<Self>,
        heads: usize,
        tree_bytes: impl FnOnce() -> u64,
    ) -> Option<Reservation> {
        let account = self.of(SpaceKind::Metadata);
        let floor = (account.total.load(Relaxed) / PLENTY_SHARE).max(PLENTY_BYTES_MIN);
        if account.is_full.load(Acquire) || unsigned(account.available.load(Relaxed)) < floor {
            return None;
        }
        let blocks = to_u64(heads) * BLOCKS_PER_HEAD + COMMIT_BLOCKS;
        let bytes = blocks.saturating_mul(self.node_size).min(tree_bytes().saturating_mul(2));
        if !account.try_take_above(bytes, floor) {
            return None;
        }
        let reservation = Reservation::none(self);
        reservation.put(SpaceKind::Metadata, bytes);
        Some(reservation)
    }

    /// Moves charges beyond those of `heads` queued references, which stay in the queue, to `reservation`. To be called
    /// while no change can be queued.
    pub(crate) fn take_charges(&self, heads: u64, reservation: &Reservation) {
        let delayed = &self.of(SpaceKind::Metadata).delayed;
        let taken = take_from(delayed, delayed.load(Relaxed).saturating_sub(self.bytes_for_heads(heads)));
        reservation.put(SpaceKind::Metadata, taken);
    }

    pub(crate) fn bytes_for_heads(&self, heads: u64) -> u64 {
        heads.saturating_mul(self.node_size / HEADS_PER_BLOCK)
    }

    /// A queued reference change may free `bytes` at the commit. An estimate that is too
    /// high costs a commit when space runs out; one that is too low, an early `NoSpace`.
    pub fn expect_freed(&self, kind: SpaceKind, bytes: u64) {
        self.of(kind).expected.add_bytes(bytes);
    }

    /// Takes back [`Self::expect_freed`]: the extent has as many references as before.
    pub(crate) fn expect_kept(&self, kind: SpaceKind, bytes: u64) {
        self.of(kind).expected.sub_bytes(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::super::account::Urgency;
    use super::super::reserve::Payer;
    use super::super::reserve::tests::{MIB, NODE, accounts, metadata};
    use super::*;

    /// A drain took the charges of staged items along, and forgot that the log's blocks would be freed.
    #[test]
    fn a_drain_takes_only_what_was_charged_for_what_it_applies() {
        let accounts = accounts(false, MIB, 512 * MIB);
        let none = || u64::MAX;
        assert!(accounts.reserve_for_drain(64, none).is_none(), "no chunk can be had any more");
        accounts.set_full(SpaceKind::Metadata, false);
        accounts.charge_heads(5 * HEADS_PER_BLOCK, None);
        let available = accounts.available(SpaceKind::Metadata);
        let room = accounts.reserve_for_drain(64, none).unwrap();
        let promised = room.left(SpaceKind::Metadata);
        accounts.take_charges(2 * HEADS_PER_BLOCK, &room);
        assert_eq!(room.left(SpaceKind::Metadata), promised + 3 * NODE);
        assert_eq!(accounts.delayed(), 2 * NODE);
        accounts.pay(SpaceKind::Metadata, NODE, Payer::Reservation(&room));
        drop(room);
        assert_eq!(accounts.available(SpaceKind::Metadata), available + 2 * NODE);
        assert_eq!(accounts.reserved(SpaceKind::Metadata), 0);
        let most = accounts.reserve(metadata(accounts.available(SpaceKind::Metadata) - 120 * MIB), Urgency::Normal);
        assert!(accounts.reserve_for_drain(64, none).is_none(), "less than a quarter is left: {most:?}");
    }

    #[test]
    fn charges_for_heads_move_from_the_reservation_and_back() {
        let accounts = accounts(false, 0, MIB);
        let r = accounts.reserve(metadata(3 * NODE), Urgency::Normal).unwrap();
        accounts.charge_heads(4 * HEADS_PER_BLOCK, Some(&r));
        assert_eq!((r.left(SpaceKind::Metadata), accounts.delayed()), (0, 4 * NODE));
        assert_eq!(accounts.available(SpaceKind::Metadata), MIB - 4 * NODE);
        accounts.uncharge_heads(2 * HEADS_PER_BLOCK);
        accounts.pay(SpaceKind::Metadata, NODE, Payer::Commit);
        accounts.uncharge_all();
        assert_eq!(accounts.available(SpaceKind::Metadata), MIB - NODE);
    }

    #[test]
    fn a_commit_is_due_before_it_could_need_more_than_there_is() {
        let accounts = accounts(false, 0, 32 * MIB);
        accounts.resize_global(0);
        let (free, kept) = (accounts.available(SpaceKind::Metadata), accounts.global().0);
        let everything = accounts.reserve(metadata(free), Urgency::Normal).unwrap();
        let blocks = kept / NODE;
        let fits = kept + accounts.bytes_for_heads(1000) - 1000 * GROWTH_PER_HEAD;
        assert!(!accounts.is_commit_due(1000, || fits), "all that can be copied fits, as large as it may become");
        assert!(accounts.is_commit_due(1000, || fits + 1));
        assert!(accounts.is_commit_due(1000, || 2 * kept));
        assert!(accounts.is_commit_due(blocks / 2, || 2 * kept));
        assert!(!accounts.is_commit_due(HEADS_MIN - 1, || 2 * kept));
        // The state after opening: no chunk has been tried.
        accounts.set_full(SpaceKind::Metadata, false);
        assert!(accounts.is_commit_due(blocks / 2, || 2 * kept));
        accounts.set_full(SpaceKind::Metadata, true);
        drop(everything);
        assert!(!accounts.is_commit_due(blocks / 2, || 2 * kept));
    }
}
