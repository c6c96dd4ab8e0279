//! Accounts for one kind of space: bytes available, reserved, in the global reserve and about to be freed; and the step
//! that may help when they are not enough. Called by `reserve`, `charges` and `group_bytes`.

use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU64,
    Ordering::{Acquire, Relaxed, SeqCst},
};

use crossbeam_utils::CachePadded;

use host::statistics::Class;

use super::counters::{ShardedCounter, compare_sum};
use crate::error::{Error, SpaceKind};

/// Batch of the counters of pinned bytes: they change in bulk and are read near the end of
/// the space only.
const PINNED_BATCH: u32 = 64 << 20;

/// The names of the counters in lock statistics: pinned bytes, and bytes that queued references will free.
static PINNED: Class = Class::new("pinned bytes");
static EXPECTED: Class = Class::new("expected bytes");

/// When a commit would return at least this part of an account, it is preferred to
/// allocating another chunk.
const COMMIT_SHARE: i64 = 4;

/// Whether the global reserve may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// No; and fail rather than grow, as long as the reservations of others would suffice: operations use far less
    /// of a reservation than they asked for.
    Patient,
    /// No.
    Normal,
    /// Half of it, one operation at a time: a removal frees space in the end, and may need more than could be reserved
    /// for it.
    Removal,
    /// All of it: a chunk is being added, or the commit itself allocates.
    Commit,
}

/// The cause of a failed reservation, and the step before the next try.
#[derive(Clone, Debug)]
pub enum Shortage {
    /// Load the free space of another block group of this kind.
    Load(SpaceKind),
    /// Allocate a chunk of this kind.
    Chunk(SpaceKind),
    /// Commit: that returns enough pinned or charged bytes.
    Commit,
    /// Another removal uses the global reserve, or waits for it: wait in the queue ([`super::Place`]).
    Wait,
    /// Nothing helps ([`Error::NoSpace`]).
    NoSpace(Error),
}

/// The account of one kind of space.
#[derive(Debug)]
pub(super) struct Account {
    /// See the head of `reserve`.
    pub(super) available: CachePadded<AtomicI64>,
    pub(super) reserved: CachePadded<AtomicU64>,
    pub(super) delayed: CachePadded<AtomicU64>,
    /// The present and the intended size of the global reserve, bytes.
    pub(super) global: AtomicU64,
    pub(super) global_size: AtomicU64,
    /// Bytes in writable groups.
    pub(super) total: AtomicU64,
    /// Bytes free in groups whose free space is not loaded.
    pub(super) unloaded: AtomicU64,
    /// No device has room for another chunk.
    pub(super) is_full: AtomicBool,
    /// Bytes freed on disk by a transaction that is not durable yet.
    pub(super) pinned: ShardedCounter,
    /// Bytes that queued reference changes will free.
    pub(super) expected: ShardedCounter,
}

impl Account {
    pub(super) fn new() -> Self {
        Self {
            available: CachePadded::default(),
            reserved: CachePadded::default(),
            delayed: CachePadded::default(),
            global: AtomicU64::new(0),
            global_size: AtomicU64::new(0),
            total: AtomicU64::new(0),
            unloaded: AtomicU64::new(0),
            is_full: AtomicBool::new(false),
            pinned: ShardedCounter::new(&PINNED, PINNED_BATCH),
            expected: ShardedCounter::new(&EXPECTED, PINNED_BATCH),
        }
    }

    pub(super) fn try_take(&self, bytes: u64) -> bool {
        self.try_take_above(bytes, 0)
    }

    /// Takes `bytes` of the available ones where `floor` more are available.
    pub(super) fn try_take_above(&self, bytes: u64, floor: u64) -> bool {
        let (wanted, floor) = (signed(bytes), signed(floor));
        let enough = wanted.saturating_add(floor);
        self.available.fetch_update(SeqCst, Relaxed, |have| (have >= enough).then_some(have - wanted)).is_ok()
    }

    /// Takes up to `bytes` of the available ones; returns how many.
    pub(super) fn take_up_to(&self, bytes: u64) -> u64 {
        let mut taken = 0;
        let _ = self.available.fetch_update(SeqCst, Relaxed, |have| {
            taken = unsigned(have).min(bytes);
            (taken > 0).then_some(have - signed(taken))
        });
        taken
    }

    pub(super) fn credit(&self, bytes: u64) {
        self.available.fetch_add(signed(bytes), SeqCst);
        self.refill_global();
    }

    pub(super) fn debit(&self, bytes: u64) {
        self.available.fetch_sub(signed(bytes), SeqCst);
    }

    fn refill_global(&self) {
        let missing = self.global_size.load(Relaxed).saturating_sub(self.global.load(Relaxed));
        if missing > 0 {
            self.global.fetch_add(self.take_up_to(missing), SeqCst);
        }
    }

    /// True when a commit would return at least `wanted` bytes: pinned ones, those that queued references will free,
    /// and the reservations charged for them.
    fn commit_returns(&self, wanted: i64) -> bool {
        let delayed = signed(self.delayed.load(Relaxed));
        compare_sum(&[&self.pinned, &self.expected], wanted.saturating_sub(delayed)).is_ge()
    }

    /// The step that would help to reserve `needed` bytes more.
    pub(super) fn shortage(&self, kind: SpaceKind, needed: u64, urgency: Urgency) -> Shortage {
        let available = self.available.load(Relaxed);
        if self.unloaded.load(Acquire) > 0 {
            return Shortage::Load(kind);
        }
        let lacking = signed(needed).saturating_sub(available);
        let much = signed(self.total.load(Relaxed)) / COMMIT_SHARE;
        if self.commit_returns(lacking.max(much)) {
            return Shortage::Commit;
        }
        let promised = signed(self.reserved.load(Relaxed));
        let can_wait = urgency == Urgency::Patient && kind != SpaceKind::Data && promised >= lacking;
        if !self.is_full.load(Acquire) && !can_wait {
            return Shortage::Chunk(kind);
        }
        if self.commit_returns(lacking) {
            return Shortage::Commit;
        }
        Shortage::NoSpace(Error::NoSpace { kind, needed, available: unsigned(available) })
    }

    /// Reserves from free space first, then from the global reserve as far as `urgency` permits.
    pub(super) fn take_global_reserve(&self, bytes: u64, urgency: Urgency) -> bool {
        let available = self.take_up_to(bytes);
        let floor = match urgency {
            Urgency::Removal => self.global_size.load(Relaxed) / 2,
            Urgency::Patient | Urgency::Normal | Urgency::Commit => 0,
        };
        let rest = bytes - available;
        let granted = self
            .global
            .fetch_update(SeqCst, Relaxed, |have| have.checked_sub(rest).filter(|left| *left >= floor))
            .is_ok();
        if !granted {
            self.available.fetch_add(signed(available), SeqCst);
        }
        granted
    }
}

/// Takes up to `bytes` out of a sum; returns how many.
pub(super) fn take_from(total: &AtomicU64, bytes: u64) -> u64 {
    let mut taken = 0;
    let _ = total.fetch_update(SeqCst, Relaxed, |have| {
        taken = have.min(bytes);
        (taken > 0).then_some(have - taken)
    });
    taken
}

pub(super) fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

pub(super) fn unsigned(bytes: i64) -> u64 {
    u64::try_from(bytes).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A full account of `total` bytes, with nothing available.
    fn full(total: u64) -> Account {
        let account = Account::new();
        account.total.store(total, Relaxed);
        account.is_full.store(true, SeqCst);
        account
    }

    fn shortage(account: &Account, needed: u64) -> Shortage {
        account.shortage(SpaceKind::Metadata, needed, Urgency::Normal)
    }

    #[test]
    fn a_commit_is_asked_for_when_what_shards_hold_back_is_just_enough() {
        let account = full(1024 * MIB);
        // Less than a batch: the totals are still 0.
        account.pinned.add_bytes(3 * MIB);
        account.expected.add_bytes(2 * MIB);
        account.delayed.store(MIB, SeqCst);
        assert_eq!((account.pinned.approximate(), account.expected.approximate()), (0, 0));
        assert!(matches!(shortage(&account, 6 * MIB), Shortage::Commit));
        assert!(matches!(shortage(&account, 6 * MIB + 1), Shortage::NoSpace(_)));
        account.expected.sub_bytes(2 * MIB);
        assert!(matches!(shortage(&account, 4 * MIB), Shortage::Commit));
        assert!(matches!(shortage(&account, 4 * MIB + 1), Shortage::NoSpace(_)));
    }

    #[test]
    fn what_was_unpinned_by_another_thread_returns_no_more() {
        let account = full(1024 * MIB);
        account.pinned.add_bytes(100 * MIB);
        std::thread::scope(|scope| scope.spawn(|| account.pinned.sub_bytes(60 * MIB)).join().expect("it ends"));
        // The total has the addition, the other shard holds the subtraction back.
        assert!(matches!(shortage(&account, 40 * MIB), Shortage::Commit));
        assert!(matches!(shortage(&account, 41 * MIB), Shortage::NoSpace(_)));
    }

    #[test]
    fn far_from_the_limit_and_near_it_the_answer_is_the_same() {
        let account = full(64 * 1024 * MIB);
        account.pinned.add_bytes(8 * 1024 * MIB);
        account.pinned.add_bytes(MIB);
        for (needed, helps) in [(MIB, true), (8192 * MIB, true), (8193 * MIB, true), (8194 * MIB, false)] {
            assert_eq!(matches!(shortage(&account, needed), Shortage::Commit), helps, "{needed}");
        }
        assert!(matches!(shortage(&account, 20_000 * MIB), Shortage::NoSpace(_)));
        // While a chunk can be allocated, a commit that returns less than a quarter of the account is not preferred.
        account.is_full.store(false, SeqCst);
        assert!(matches!(shortage(&account, MIB), Shortage::Chunk(_)));
        account.pinned.add_bytes(8191 * MIB);
        assert!(matches!(shortage(&account, MIB), Shortage::Commit));
    }
}
