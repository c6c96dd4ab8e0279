//! Reserves space: an operation fails with `NoSpace` here, before it changes anything, and nowhere later. `Store`
//! reserves for each operation; `txn` and `relocate` pay from the reservations.
//!
//! Everything that will allocate reserves first, before it holds any lock, so that running
//! out is an error at the edge and never in the middle. Per account one number decides:
//!
//! ```text
//! available = free bytes in loaded groups - reserved - delayed - global
//! ```
//!
//! An allocation paid from a reservation lowers `free` and `reserved` alike and leaves
//! `available` as it is. `delayed` is the charge for extent references that are queued
//! until commit; `global` is the reserve for the commit itself and for removals on a full volume. A payment that
//! exceeds its reservation comes out of `global`, and then out of `available`, which may become negative until a commit
//! has settled the charges.

#![expect(clippy::indexing_slicing, reason = "accounts are numbered here, below the number of accounts")]

use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, SeqCst},
};

use super::account::{Account, Shortage, Urgency, signed, take_from, unsigned};
use super::global_reserve::{GLOBAL_BLOCKS_FLOOR, global_size};
use super::wait_queue::{Place, WaitQueue};
use crate::error::SpaceKind;
use crate::locks::{Mutex, Rank};
use crate::quota::Charge;

/// Tree blocks that changing one item may copy or add: its leaf, a split, and a share of the
/// path above, which an operation copies once however many items it changes.
const BLOCKS_PER_ITEM: u64 = 3;

/// Tree blocks with which a removal begins on a full volume: the part of the smallest global reserve that it may use.
/// They hold the paths to a name and its inode in a tree of that size.
const REMOVAL_BLOCKS_MIN: u64 = GLOBAL_BLOCKS_FLOOR / 2;

/// Tree blocks of a kind that must be available before a chunk of any kind is added, for the items of that chunk.
pub(super) const GROWTH_BLOCKS: u64 = 32;

/// The bytes of one reservation, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// Bytes of file data.
    pub data: u64,
    /// Bytes of tree blocks.
    pub metadata: u64,
    /// Bytes of chunk tree blocks.
    pub system: u64,
}

/// The source of the bytes of an allocation.
#[derive(Clone, Copy, Debug)]
pub enum Payer<'a> {
    /// A reservation; the global reserve pays for any excess.
    Reservation(&'a Reservation),
    /// The commit: first the charges of the queued references, then the global reserve.
    Commit,
}

/// The accounts of a store.
#[derive(Debug)]
pub struct Accounts {
    pub(super) node_size: u64,
    mixed: bool,
    pub(super) accounts: [Account; 3],
    /// A removal uses the global reserve.
    is_removing: AtomicBool,
    /// Removals that wait for the global reserve, or for space.
    pub(super) queue: WaitQueue,
}

impl Accounts {
    pub(crate) fn new(node_size: u64, mixed: bool) -> Self {
        let accounts = std::array::from_fn(|_| Account::new());
        Self { node_size, mixed, accounts, is_removing: AtomicBool::new(false), queue: WaitQueue::new() }
    }

    /// Position of the account that serves `kind`: with mixed groups, data and metadata
    /// are one.
    pub(crate) const fn index(&self, kind: SpaceKind) -> usize {
        match kind {
            SpaceKind::Data if self.mixed => 1,
            SpaceKind::Data => 0,
            SpaceKind::Metadata => 1,
            SpaceKind::System => 2,
        }
    }

    pub(super) fn of(&self, kind: SpaceKind) -> &Account {
        &self.accounts[self.index(kind)]
    }

    /// Bytes of tree blocks to reserve for changing `items` items.
    #[must_use]
    pub const fn bytes_for_items(&self, items: u64) -> u64 {
        items.saturating_mul(self.node_size).saturating_mul(BLOCKS_PER_ITEM)
    }

    /// Least bytes of tree blocks with which a removal on a full volume begins.
    #[must_use]
    pub const fn removal_bytes_min(&self) -> u64 {
        REMOVAL_BLOCKS_MIN.saturating_mul(self.node_size)
    }

    /// Reserves, or returns the step that would help. Never blocks; takes a lock only where removals wait for space.
    ///
    /// # Errors
    /// [`Shortage`]: nothing is reserved then.
    pub fn reserve(self: &Arc<Self>, need: Need, urgency: Urgency) -> Result<Reservation, Shortage> {
        self.reserve_from(need, urgency, false)
    }

    /// As [`Self::reserve`], for the removal that has `place`.
    ///
    /// # Errors
    /// As [`Self::reserve`].
    pub fn reserve_at(self: &Arc<Self>, need: Need, place: &Place<'_>) -> Result<Reservation, Shortage> {
        self.reserve_from(need, Urgency::Removal, place.is_first())
    }

    /// A place at the end of the queue of removals.
    pub fn join_queue(&self) -> Place<'_> {
        self.queue.join()
    }

    fn reserve_from(self: &Arc<Self>, need: Need, urgency: Urgency, is_first: bool) -> Result<Reservation, Shortage> {
        let reservation = Reservation::none(self);
        for (kind, bytes) in
            [(SpaceKind::System, need.system), (SpaceKind::Metadata, need.metadata), (SpaceKind::Data, need.data)]
        {
            if let Err(shortage) = self.extend(&reservation, kind, bytes, urgency, is_first) {
                // The partial reservation is returned. That must not wake the first in the queue, which made it.
                reservation.set_quiet(is_first);
                return Err(shortage);
            }
        }
        Ok(reservation)
    }

    /// Adds `bytes` to a reservation.
    ///
    /// # Errors
    /// [`Shortage`]: the reservation is as before then.
    fn extend(
        &self,
        reservation: &Reservation,
        kind: SpaceKind,
        bytes: u64,
        urgency: Urgency,
        is_first: bool,
    ) -> Result<(), Shortage> {
        let account = self.of(kind);
        let urgent = matches!(urgency, Urgency::Removal | Urgency::Commit) && kind != SpaceKind::Data;
        let mut granted = bytes == 0 || account.try_take(bytes);
        if !granted && urgent {
            if urgency == Urgency::Removal && !reservation.begin_removal(is_first) {
                // The removal that uses the global reserve may be the caller's own, begun with another reservation.
                // Waiting for it would not end, so other sources of space come first.
                return Err(match account.shortage(kind, bytes, urgency) {
                    Shortage::Chunk(kind) => self.before_chunk(kind),
                    Shortage::Load(kind) => Shortage::Load(kind),
                    _ => Shortage::Wait,
                });
            }
            granted = account.take_global_reserve(bytes, urgency);
        }
        if !granted {
            return Err(match account.shortage(kind, bytes, urgency) {
                Shortage::Chunk(kind) => self.before_chunk(kind),
                shortage => shortage,
            });
        }
        reservation.put(kind, bytes);
        Ok(())
    }

    /// A chunk costs blocks of the chunk tree and of other trees, which must be available.
    fn before_chunk(&self, kind: SpaceKind) -> Shortage {
        let wanted = signed(GROWTH_BLOCKS * self.node_size);
        for other in [SpaceKind::System, SpaceKind::Metadata] {
            let account = self.of(other);
            let reserve = signed(account.global.load(Relaxed));
            if account.available.load(Relaxed).saturating_add(reserve) >= wanted {
                continue;
            }
            if account.unloaded.load(Acquire) > 0 {
                return Shortage::Load(other);
            }
            if other == SpaceKind::System && kind != other && !account.is_full.load(Acquire) {
                return Shortage::Chunk(other);
            }
        }
        Shortage::Chunk(kind)
    }

    /// Charges an allocation of `bytes`.
    pub(crate) fn pay(&self, kind: SpaceKind, bytes: u64, payer: Payer<'_>) {
        let account = self.of(kind);
        let mut owed = bytes;
        match payer {
            Payer::Reservation(reservation) => owed -= reservation.spend(kind, owed),
            Payer::Commit => owed -= take_from(&account.delayed, owed),
        }
        if kind != SpaceKind::Data {
            owed -= take_from(&account.global, owed);
        }
        account.debit(owed);
    }

    /// Credits bytes freed in a loaded group.
    pub(crate) fn freed(&self, kind: SpaceKind, bytes: u64) {
        self.of(kind).credit(bytes);
        self.queue.notify();
    }

    pub(crate) fn pinned(&self, kind: SpaceKind, bytes: u64) {
        self.of(kind).pinned.add_bytes(bytes);
    }

    pub(crate) fn unpinned(&self, kind: SpaceKind, bytes: u64) {
        self.of(kind).pinned.sub_bytes(bytes);
    }

    /// Sets the size of the global reserve, from the bytes used by the trees that every commit changes: extent,
    /// checksum, root, free-space and block-group tree.
    pub fn resize_global(&self, tree_bytes: u64) {
        let account = self.of(SpaceKind::Metadata);
        let size = global_size(tree_bytes, account.total.load(Relaxed), self.node_size);
        account.global_size.store(size, SeqCst);
        let mut surplus = 0;
        let _ = account.global.fetch_update(SeqCst, Relaxed, |have| {
            surplus = have.saturating_sub(size);
            (surplus > 0).then_some(have - surplus)
        });
        account.credit(surplus);
    }

    /// The global reserve in bytes: (present, intended size).
    #[must_use]
    pub fn global(&self) -> (u64, u64) {
        let account = self.of(SpaceKind::Metadata);
        (account.global.load(Relaxed), account.global_size.load(Relaxed))
    }

    /// Bytes that could be reserved at once, without loading, growing or committing.
    #[must_use]
    pub fn available(&self, kind: SpaceKind) -> u64 {
        unsigned(self.of(kind).available.load(Relaxed))
    }

    /// Bytes promised and not yet allocated. Where space runs out while these are many,
    /// writing dirty data back helps.
    #[must_use]
    pub fn reserved(&self, kind: SpaceKind) -> u64 {
        self.of(kind).reserved.load(Relaxed)
    }

    /// True when more bytes of tree blocks are reserved than are left, loaded or not.
    #[must_use]
    pub fn is_promised_much(&self) -> bool {
        let account = self.of(SpaceKind::Metadata);
        let left = unsigned(account.available.load(Relaxed));
        account.reserved.load(Relaxed) > left.saturating_add(account.unloaded.load(Relaxed))
    }

    /// Bytes charged for queued extent references.
    #[must_use]
    pub fn delayed(&self) -> u64 {
        self.of(SpaceKind::Metadata).delayed.load(Relaxed)
    }

    /// Bytes that the running commit or the next one frees.
    #[must_use]
    pub fn pinned_bytes(&self, kind: SpaceKind) -> u64 {
        unsigned(self.of(kind).pinned.exact())
    }
}

/// Bytes promised to one operation. Allocations take from it; dropping it returns the rest.
#[derive(Debug)]
#[must_use = "dropping a reservation returns it"]
pub struct Reservation {
    accounts: Arc<Accounts>,
    data: AtomicU64,
    metadata: AtomicU64,
    system: AtomicU64,
    /// It has the right to use the global reserve for a removal.
    removes: AtomicBool,
    /// Dropping it does not wake waiting removals.
    is_quiet: AtomicBool,
    /// Its charges to quotas of subvolumes.
    charges: Mutex<Vec<Charge>>,
}

impl Reservation {
    /// Nothing yet.
    pub(super) fn none(accounts: &Arc<Accounts>) -> Self {
        Self {
            accounts: Arc::clone(accounts),
            data: AtomicU64::new(0),
            metadata: AtomicU64::new(0),
            system: AtomicU64::new(0),
            removes: AtomicBool::new(false),
            is_quiet: AtomicBool::new(false),
            charges: Mutex::new(Rank::SpaceQueue, Vec::new()),
        }
    }

    /// Keeps a charge of quotas until the reservation is dropped.
    pub(crate) fn keep(&self, charge: Charge) {
        self.charges.lock().push(charge);
    }

    /// Whether dropping it leaves waiting removals asleep.
    fn set_quiet(&self, is_quiet: bool) {
        self.is_quiet.store(is_quiet, Relaxed);
    }

    /// Claims the global reserve until this is dropped; false while another has it or an earlier one waits for it.
    fn begin_removal(&self, is_first: bool) -> bool {
        if self.removes.load(Relaxed) {
            return true;
        }
        let may_begin = is_first || self.accounts.queue.is_empty();
        let begins = may_begin && !self.accounts.is_removing.swap(true, SeqCst);
        self.removes.fetch_or(begins, Relaxed);
        begins
    }

    /// Bytes left.
    #[must_use]
    pub fn left(&self, kind: SpaceKind) -> u64 {
        self.part(kind).load(Relaxed)
    }

    /// Items for which the rest of the metadata bytes is enough, as [`Accounts::bytes_for_items`] counts.
    #[must_use]
    pub fn items_left(&self) -> u64 {
        self.left(SpaceKind::Metadata) / self.accounts.bytes_for_items(1).max(1)
    }

    /// Takes everything out of `other`.
    pub fn absorb(&self, other: &Self) {
        for kind in [SpaceKind::Data, SpaceKind::Metadata, SpaceKind::System] {
            self.part(kind).fetch_add(other.part(kind).swap(0, Relaxed), Relaxed);
        }
        let charges = std::mem::take(&mut *other.charges.lock());
        if !charges.is_empty() {
            self.charges.lock().extend(charges);
        }
    }

    /// Splits off up to the given bytes of each kind.
    pub fn split(&self, part: Need) -> Self {
        let taken = Self::none(&self.accounts);
        for (kind, bytes) in
            [(SpaceKind::Data, part.data), (SpaceKind::Metadata, part.metadata), (SpaceKind::System, part.system)]
        {
            taken.part(kind).store(take_from(self.part(kind), bytes), Relaxed);
        }
        taken
    }

    /// Returns up to `bytes` before the rest.
    pub fn release(&self, kind: SpaceKind, bytes: u64) {
        self.accounts.of(kind).credit(self.spend(kind, bytes));
    }

    /// Adds bytes that belong to no account.
    pub(super) fn put(&self, kind: SpaceKind, bytes: u64) {
        self.accounts.of(kind).reserved.fetch_add(bytes, Relaxed);
        self.part(kind).fetch_add(bytes, Relaxed);
    }

    /// Takes up to `bytes` out; returns how many.
    pub(super) fn spend(&self, kind: SpaceKind, bytes: u64) -> u64 {
        let spent = take_from(self.part(kind), bytes);
        self.accounts.of(kind).reserved.fetch_sub(spent, Relaxed);
        spent
    }

    const fn part(&self, kind: SpaceKind) -> &AtomicU64 {
        match kind {
            SpaceKind::Data => &self.data,
            SpaceKind::Metadata => &self.metadata,
            SpaceKind::System => &self.system,
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        for kind in [SpaceKind::Data, SpaceKind::Metadata, SpaceKind::System] {
            let left = self.left(kind);
            if left > 0 {
                self.release(kind, left);
            }
        }
        if self.removes.load(Relaxed) {
            self.accounts.is_removing.store(false, SeqCst);
        }
        if !self.is_quiet.load(Relaxed) {
            self.accounts.queue.notify();
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::space) const NODE: u64 = 16384;
    pub(in crate::space) const MIB: u64 = 1 << 20;

    pub(in crate::space) fn accounts(mixed: bool, data: u64, metadata: u64) -> Arc<Accounts> {
        let accounts = Arc::new(Accounts::new(NODE, mixed));
        for (kind, bytes) in [(SpaceKind::Data, data), (SpaceKind::Metadata, metadata)] {
            accounts.group_added(kind, bytes, bytes);
            accounts.group_loaded(kind, bytes, bytes);
            accounts.set_full(kind, true);
        }
        accounts.set_full(SpaceKind::System, true);
        accounts
    }

    pub(in crate::space) fn metadata(bytes: u64) -> Need {
        Need { metadata: bytes, ..Need::default() }
    }

    #[test]
    fn a_dropped_reservation_returns_its_rest() {
        let accounts = accounts(false, MIB, MIB);
        let r = accounts.reserve(metadata(10 * NODE), Urgency::Normal).unwrap();
        accounts.pay(SpaceKind::Metadata, NODE, Payer::Reservation(&r));
        assert_eq!(accounts.available(SpaceKind::Metadata), MIB - 10 * NODE);
        let half = r.split(metadata(4 * NODE));
        assert_eq!((half.left(SpaceKind::Metadata), r.left(SpaceKind::Metadata)), (4 * NODE, 5 * NODE));
        drop((r, half));
        assert_eq!(accounts.available(SpaceKind::Metadata), MIB - NODE);
        assert_eq!(accounts.reserved(SpaceKind::Metadata), 0);
    }

    #[test]
    fn a_need_is_all_or_nothing() {
        let accounts = accounts(false, MIB, MIB);
        let need = Need { data: 2 * MIB, metadata: NODE, system: 0 };
        assert!(matches!(accounts.reserve(need, Urgency::Normal), Err(Shortage::NoSpace(_))));
        assert_eq!(accounts.available(SpaceKind::Metadata), MIB);
        assert_eq!(accounts.reserved(SpaceKind::Metadata), 0);
    }

    #[test]
    fn mixed_groups_serve_both_kinds_from_one_account() {
        let accounts = accounts(true, MIB, 0);
        let r = accounts.reserve(Need { data: MIB / 2, metadata: MIB / 2, system: 0 }, Urgency::Normal).unwrap();
        assert!(accounts.reserve(metadata(1), Urgency::Normal).is_err());
        drop(r);
        assert_eq!(accounts.available(SpaceKind::Data), MIB);
    }

    #[test]
    fn shortages_name_what_helps() {
        let accounts = accounts(false, MIB, MIB);
        let r = accounts.reserve(metadata(MIB), Urgency::Normal).unwrap();
        accounts.pay(SpaceKind::Metadata, MIB, Payer::Reservation(&r));
        let ask = || accounts.reserve(metadata(NODE), Urgency::Normal);
        assert!(matches!(ask(), Err(Shortage::NoSpace(_))));
        accounts.set_full(SpaceKind::Metadata, false);
        assert!(matches!(ask(), Err(Shortage::Chunk(SpaceKind::Metadata))));
        accounts.pinned(SpaceKind::Metadata, NODE);
        assert!(matches!(ask(), Err(Shortage::Chunk(_))), "a small gain is no reason to commit");
        accounts.pinned(SpaceKind::Metadata, MIB / 2);
        assert!(matches!(ask(), Err(Shortage::Commit)));
        accounts.freed_unloaded(SpaceKind::Metadata, NODE);
        assert!(matches!(ask(), Err(Shortage::Load(_))));
        accounts.group_loaded(SpaceKind::Metadata, NODE, NODE);
        assert!(ask().is_ok());
    }

    #[test]
    fn what_is_queued_to_be_freed_is_worth_a_commit() {
        let accounts = accounts(false, MIB, MIB);
        let r = accounts.reserve(Need { data: MIB, ..Need::default() }, Urgency::Normal).unwrap();
        accounts.pay(SpaceKind::Data, MIB, Payer::Reservation(&r));
        let ask = || accounts.reserve(Need { data: NODE, ..Need::default() }, Urgency::Normal);
        assert!(matches!(ask(), Err(Shortage::NoSpace(_))));
        accounts.expect_freed(SpaceKind::Data, NODE);
        assert!(matches!(ask(), Err(Shortage::Commit)));
        accounts.uncharge_all();
        assert!(matches!(ask(), Err(Shortage::NoSpace(_))), "it was not freed after all");
    }

    #[test]
    fn a_chunk_is_asked_for_when_its_items_have_room() {
        let accounts = accounts(false, 0, MIB);
        accounts.set_full(SpaceKind::Data, false);
        accounts.set_full(SpaceKind::System, false);
        let ask = || accounts.reserve(Need { data: 1, ..Need::default() }, Urgency::Normal);
        accounts.group_added(SpaceKind::System, MIB, MIB);
        assert!(matches!(ask(), Err(Shortage::Load(SpaceKind::System))));
        accounts.group_loaded(SpaceKind::System, MIB, 31 * NODE);
        assert!(matches!(ask(), Err(Shortage::Chunk(SpaceKind::System))));
        accounts.freed(SpaceKind::System, NODE);
        assert!(matches!(ask(), Err(Shortage::Chunk(SpaceKind::Data))));
    }

    #[test]
    fn a_full_volume_can_still_remove_and_commit() {
        let accounts = accounts(false, MIB, 64 * MIB);
        accounts.resize_global(0);
        assert_eq!(accounts.global(), (352 * NODE, 352 * NODE));
        let rest = accounts.available(SpaceKind::Metadata);
        assert_eq!(rest, 64 * MIB - 352 * NODE);
        let everything = accounts.reserve(metadata(rest), Urgency::Normal).unwrap();
        assert!(accounts.reserve(metadata(NODE), Urgency::Normal).is_err());
        let unlink = accounts.reserve(metadata(100 * NODE), Urgency::Removal).unwrap();
        assert!(accounts.reserve(metadata(100 * NODE), Urgency::Removal).is_err());
        let commit = accounts.reserve(metadata(100 * NODE), Urgency::Commit).unwrap();
        drop((unlink, commit));
        assert_eq!(accounts.global().0, 352 * NODE, "returned bytes go there first");
        assert_eq!(accounts.available(SpaceKind::Metadata), 0);
        drop(everything);
        assert_eq!(accounts.available(SpaceKind::Metadata), rest);
    }

    #[test]
    fn threads_never_reserve_more_than_there_is() {
        let accounts = accounts(false, 0, 4 * MIB);
        accounts.resize_global(0);
        let start = accounts.available(SpaceKind::Metadata);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for i in 0..5000u64 {
                        if let Ok(r) = accounts.reserve(metadata(i % 90 * NODE), Urgency::Normal) {
                            let taken = r.left(SpaceKind::Metadata) / 2;
                            accounts.pay(SpaceKind::Metadata, taken, Payer::Reservation(&r));
                            drop(r);
                            accounts.freed(SpaceKind::Metadata, taken);
                        }
                    }
                });
            }
        });
        assert_eq!(accounts.available(SpaceKind::Metadata), start);
        assert_eq!(accounts.reserved(SpaceKind::Metadata), 0);
    }
}
