//! Queues the running transaction's reference changes, merged by extent ("delayed refs"). `txn/host` pushes them; the
//! commit and drains apply them.
//!
//! The extent tree describes its own blocks, so changing it at once for each change would
//! recurse, and most changes are undone before the commit: a block copied twice in one transaction was freed once.
//! Changes wait here and the commit applies the rest, in order of address.

#![expect(clippy::indexing_slicing, reason = "shards are numbered here, below the number of shards")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use btrfs_disk::convert::to_usize;
use btrfs_disk::error::{At, Detail};
use btrfs_disk::{Corrupt, Generation, Logical, TreeId};
use crossbeam_utils::CachePadded;

use super::ref_change::{ExtentKind, Parts, RefChange, RefKey};
use crate::hash::NumberMap;
use crate::locks::{Mutex, Rank};

/// Entries at which the transaction should be committed, so that the queue's memory stays
/// bounded: about 32 MiB.
pub const QUEUE_ENTRIES_MAX: usize = 256 * 1024;

/// Memory of one entry, its place in the map included.
const ENTRY_BYTES: usize = 128;

/// Independent parts of the queue. Far more than cores, so that two threads seldom meet.
const SHARD_COUNT: usize = 64;

/// The changes to one extent since the last commit.
#[derive(Clone, Debug)]
pub struct Head {
    /// Tree block or data.
    pub kind: ExtentKind,
    /// The extent tree has no item for it yet.
    pub is_new: bool,
    /// `FULL_BACKREF` is to be set.
    pub full_backref: bool,
    /// The generation for the new item, where it is not that of the running transaction.
    pub generation: Option<Generation>,
    /// The tree that allocated it, where it is new.
    pub owner: Option<TreeId>,
    deltas: Deltas,
    /// Their sum: an extent may have many.
    net: i64,
}

#[derive(Clone, Debug)]
enum Deltas {
    None,
    One(RefKey, i64),
    // Never holds a zero.
    Many(BTreeMap<RefKey, i64>),
}

impl Head {
    fn new(kind: ExtentKind) -> Self {
        Self { kind, is_new: false, full_backref: false, generation: None, owner: None, deltas: Deltas::None, net: 0 }
    }

    /// A head made by hand, for tests and tools that apply changes without a queue.
    #[must_use]
    pub fn with_deltas(kind: ExtentKind, is_new: bool, deltas: &[(RefKey, i64)]) -> Self {
        let mut head = Self { is_new, ..Self::new(kind) };
        for (key, count) in deltas {
            head.add(*key, *count);
        }
        head
    }

    /// Returns how many entries came (or went).
    fn add(&mut self, key: RefKey, count: i64) -> isize {
        self.net = self.net.saturating_add(count);
        self.deltas.add(key, count)
    }

    /// Net change of each reference, ascending; never zero.
    pub fn deltas(&self) -> impl Iterator<Item = (RefKey, i64)> + '_ {
        let (one, many) = match &self.deltas {
            Deltas::None => (None, None),
            Deltas::One(key, count) => (Some((*key, *count)), None),
            Deltas::Many(map) => (None, Some(map.iter().map(|(key, count)| (*key, *count)))),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    /// Net change of the number of references.
    #[must_use]
    pub const fn net(&self) -> i64 {
        self.net
    }

    /// True when the commit will find fewer references than the last one, or, of an extent that is new, none: its space
    /// may come free.
    pub(crate) fn is_losing(&self) -> bool {
        self.net < i64::from(self.is_new)
    }

    /// The owner of the only change, where that tree is not a subvolume: no other tree shares blocks of such a tree.
    pub(super) fn only_tree_of_the_store(&self) -> Option<TreeId> {
        match self.deltas {
            Deltas::One(RefKey::TreeRef { owner }, _) if !owner.is_subvolume() => Some(owner),
            _ => None,
        }
    }

    /// True when the references are the same as before the transaction.
    #[must_use]
    pub fn is_balanced(&self) -> bool {
        matches!(self.deltas, Deltas::None)
    }

    /// True when an item that is there has to be changed.
    pub(crate) fn changes_item(&self) -> bool {
        !self.is_new && (!self.is_balanced() || self.full_backref)
    }
}

impl Deltas {
    /// Returns how many entries of a map came (or went).
    fn add(&mut self, key: RefKey, count: i64) -> isize {
        match self {
            _ if count == 0 => 0,
            Self::None => {
                *self = Self::One(key, count);
                0
            }
            Self::One(present, old) if *present == key => {
                *old = old.saturating_add(count);
                if *old == 0 {
                    *self = Self::None;
                }
                0
            }
            Self::One(present, old) => {
                *self = Self::Many(BTreeMap::from([(*present, *old), (key, count)]));
                2
            }
            Self::Many(map) => {
                let before = map.len();
                let sum = map.entry(key).or_insert(0);
                *sum = sum.saturating_add(count);
                if *sum == 0 {
                    map.remove(&key);
                }
                let change = map.len().wrapping_sub(before).cast_signed();
                if map.is_empty() {
                    *self = Self::None;
                }
                change
            }
        }
    }

    fn extra_entries(&self) -> usize {
        match self {
            Self::Many(map) => map.len(),
            Self::None | Self::One(..) => 0,
        }
    }
}

/// The result of pushing a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the space of a cancelled block is to be freed"]
pub enum Pushed {
    /// It waits for the commit.
    Queued,
    /// It waits for the commit, and with it the extent has fewer references than the last commit left, so it may become
    /// free. Reported once for an extent that loses many references.
    Losing,
    /// It waits for the commit, and makes up for the references that the extent had lost.
    Regained,
    /// It was the last reference to a tree block made in this transaction: no trace is left,
    /// and since no committed state knows the block, its space is free at once.
    Cancelled,
}

/// The queued changes to one extent, to be added to the record in the extent tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delta {
    /// Change of the number of references.
    pub net: i64,
    /// The extent tree has no item for it yet.
    pub is_new: bool,
    /// `FULL_BACKREF` is to be set.
    pub full_backref: bool,
}

/// Queued changes of references, by extent. Any number of threads push at once.
pub struct RefQueue {
    shards: Box<[CachePadded<Mutex<Shard>>]>,
    entries: AtomicUsize,
    /// The shard at which the next partial drain begins.
    next_shard: AtomicUsize,
}

type ByAddress<T> = NumberMap<u64, T>;

#[derive(Default)]
struct Shard {
    heads: ByAddress<Head>,
    /// Data extents that lost a reference in the running transaction, even one that they gained in it: a log tree may
    /// still refer to them.
    withdrawn: ByAddress<Withdrawn>,
    /// The same for the transaction that has settled and is not durable yet.
    committing: ByAddress<Withdrawn>,
}

/// The holders that gave up references to a data extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Withdrawn {
    By(RefKey),
    BySeveral,
}

impl Default for RefQueue {
    fn default() -> Self {
        Self::new()
    }
}

impl RefQueue {
    /// An empty queue.
    #[must_use]
    pub fn new() -> Self {
        let shard = || CachePadded::new(Mutex::new(Rank::RefQueue, Shard::default()));
        let shards = std::iter::repeat_with(shard).take(SHARD_COUNT).collect();
        Self { shards, entries: AtomicUsize::new(0), next_shard: AtomicUsize::new(0) }
    }

    /// Merges a change into the queued changes of its extent.
    ///
    /// # Errors
    /// [`Corrupt`] when trees disagree about the extent: its length, its level, or whether it is
    /// data at all.
    pub fn push(&self, change: RefChange) -> Result<Pushed, Corrupt> {
        let parts = change.parts();
        let mut shard = self.shard(parts.at).lock();
        let mut grown = 0;
        let is_drop = parts.delta.is_some_and(|(_, count)| count < 0);
        if let (true, ExtentKind::Data { .. }, Some((key, _))) = (is_drop, parts.kind, parts.delta) {
            note_withdrawn(&mut shard.withdrawn, parts.at, key);
        }
        let head = shard.heads.entry(parts.at.0).or_insert_with(|| {
            grown = 1;
            Head::new(parts.kind)
        });
        check_same_kind(head.kind, &parts)?;
        let was_losing = head.is_losing();
        head.is_new |= parts.is_new;
        head.full_backref |= parts.full_backref;
        head.generation = parts.generation.or(head.generation);
        // A moved extent keeps its recorded owner, or has none.
        let is_moved = parts.generation.is_some();
        head.owner = if is_moved { parts.owner } else { parts.owner.or(head.owner) };
        if let Some((key, count)) = parts.delta {
            grown += head.add(key, count);
        }
        let is_losing = head.is_losing();
        let outcome = settle(head, is_drop);
        if outcome != Settled::Stays {
            grown -= 1;
            shard.heads.remove(&parts.at.0);
        }
        drop(shard);
        self.count(grown);
        Ok(match outcome {
            Settled::Cancelled => Pushed::Cancelled,
            Settled::Stays | Settled::Gone => match (was_losing, is_losing) {
                (false, true) => Pushed::Losing,
                (true, false) => Pushed::Regained,
                (false, false) | (true, true) => Pushed::Queued,
            },
        })
    }

    /// The queued changes to the extent that starts at `at`.
    #[must_use]
    pub fn peek(&self, at: Logical) -> Option<Delta> {
        self.with_head(at, |head| {
            head.map(|head| Delta { net: head.net(), is_new: head.is_new, full_backref: head.full_backref })
        })
    }

    /// Looks at everything that is queued for the extent that starts at `at`. `look` must not
    /// use the queue.
    pub fn with_head<R>(&self, at: Logical, look: impl FnOnce(Option<&Head>) -> R) -> R {
        look(self.shard(at).lock().heads.get(&at.0))
    }

    /// True when a holder other than `holder` gave up a reference to the data extent at `at` in a transaction that is
    /// not durable: after a crash that reference may be back.
    #[must_use]
    pub fn is_withdrawn_by_others(&self, at: Logical, holder: RefKey) -> bool {
        let shard = self.shard(at).lock();
        let by_others = |withdrawn: &Withdrawn| *withdrawn != Withdrawn::By(holder);
        [&shard.withdrawn, &shard.committing].into_iter().any(|noted| noted.get(&at.0).is_some_and(by_others))
    }

    /// The running transaction has settled: its withdrawn references count until [`Self::note_durable`].
    pub fn note_settled(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let withdrawn = std::mem::take(&mut shard.withdrawn);
            if shard.committing.is_empty() {
                shard.committing = withdrawn;
            } else {
                shard.committing.extend(withdrawn.into_keys().map(|at| (at, Withdrawn::BySeveral)));
            }
        }
    }

    /// The settled transaction is durable: its withdrawn references cannot come back.
    pub fn note_durable(&self) {
        for shard in &self.shards {
            drop(std::mem::take(&mut shard.lock().committing));
        }
    }

    /// Empties the queue, by ascending address.
    ///
    /// Lookups do not see the taken changes until they are applied: only the commit and the drain call this, while no
    /// handle is open.
    #[must_use]
    pub fn take_all_sorted(&self) -> Vec<(Logical, Head)> {
        self.take_some_sorted(usize::MAX)
    }

    /// As [`Self::take_all_sorted`], but only as many shards as have `entries_min` entries together. The changes of one
    /// extent stay together.
    #[must_use]
    pub fn take_some_sorted(&self, entries_min: usize) -> Vec<(Logical, Head)> {
        let mut heads = Vec::with_capacity(self.entry_count().min(entries_min));
        // Begin behind the shards that the last call emptied.
        let first = self.next_shard.load(Ordering::Relaxed);
        for step in 0..SHARD_COUNT {
            if heads.len() >= entries_min {
                break;
            }
            let shard = &self.shards[(first + step) % SHARD_COUNT];
            self.next_shard.store((first + step + 1) % SHARD_COUNT, Ordering::Relaxed);
            let taken = std::mem::take(&mut shard.lock().heads);
            let mut entries = taken.len();
            heads.extend(taken.into_iter().map(|(at, head)| {
                entries += head.deltas.extra_entries();
                (Logical(at), head)
            }));
            self.entries.fetch_sub(entries, Ordering::Relaxed);
        }
        heads.sort_unstable_by_key(|(at, _)| *at);
        heads
    }

    /// The number of extents with changes plus, of extents with several, the number of those: proportional to memory.
    #[must_use]
    pub fn entry_count(&self) -> usize {
        self.entries.load(Ordering::Relaxed)
    }

    /// True when nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entry_count() == 0
    }

    /// Roughly how much memory the queue takes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.entry_count().saturating_mul(ENTRY_BYTES)
    }

    /// True when the transaction should be committed for the queue's sake.
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        self.entry_count() >= QUEUE_ENTRIES_MAX
    }

    fn shard(&self, at: Logical) -> &Mutex<Shard> {
        // The top bits: the map inside the shard uses the others.
        let index = to_usize(mix(at.0) >> 58);
        &self.shards[index % SHARD_COUNT]
    }

    fn count(&self, grown: isize) {
        if grown != 0 {
            // Two's complement: adding a negative number wraps around to the difference.
            self.entries.fetch_add(grown.cast_unsigned(), Ordering::Relaxed);
        }
    }
}

impl std::fmt::Debug for RefQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RefQueue").field("entries", &self.entry_count()).finish_non_exhaustive()
    }
}

fn note_withdrawn(withdrawn: &mut ByAddress<Withdrawn>, at: Logical, by: RefKey) {
    withdrawn
        .entry(at.0)
        .and_modify(|noted| {
            if *noted != Withdrawn::By(by) {
                *noted = Withdrawn::BySeveral;
            }
        })
        .or_insert(Withdrawn::By(by));
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Settled {
    Stays,
    Gone,
    Cancelled,
}

/// Decides whether a head still has changes to apply.
fn settle(head: &Head, is_drop: bool) -> Settled {
    if !head.is_balanced() {
        return Settled::Stays;
    }
    match (head.is_new, head.kind) {
        (true, ExtentKind::Tree { .. }) if is_drop => Settled::Cancelled,
        // Its checksums may stand in the checksum tree already, which cannot be changed from
        // here: the commit removes them and then frees the space.
        (true, _) => Settled::Stays,
        (false, _) if head.full_backref => Settled::Stays,
        (false, _) => Settled::Gone,
    }
}

fn check_same_kind(known: ExtentKind, parts: &Parts) -> Result<(), Corrupt> {
    if known == parts.kind {
        return Ok(());
    }
    let (expected, found) = match (known, parts.kind) {
        (ExtentKind::Tree { level }, ExtentKind::Tree { level: other }) => {
            (Detail::Number(level.into()), Detail::Number(other.into()))
        }
        (ExtentKind::Data { len }, ExtentKind::Data { len: other }) => (Detail::Number(len), Detail::Number(other)),
        (ExtentKind::Tree { .. }, ExtentKind::Data { .. }) => (Detail::Text("a tree block"), Detail::Text("file data")),
        (ExtentKind::Data { .. }, ExtentKind::Tree { .. }) => (Detail::Text("file data"), Detail::Text("a tree block")),
    };
    Err(Corrupt::new("length, level or kind of an extent", expected, found).at(At::Data(parts.at)))
}

/// Addresses are multiples of the sector size, so their low bits are constant, and runs of neighbours must spread.
fn mix(at: u64) -> u64 {
    (at >> 12).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[cfg(test)]
mod tests {
    use super::*;
    use btrfs_disk::{InodeNo, TreeId};

    const AT: Logical = Logical(1 << 20);

    fn add_tree(owner: u64, new: bool) -> RefChange {
        RefChange::AddTree { at: AT, level: 1, owner: TreeId(owner), parent: None, new }
    }

    fn drop_tree(owner: u64) -> RefChange {
        RefChange::DropTree { at: AT, level: 1, owner: TreeId(owner), parent: None }
    }

    fn data(len: u64, add: bool, new: bool) -> RefChange {
        let (root, inode) = (TreeId(5), InodeNo(257));
        if add {
            RefChange::AddData { at: AT, len, root, inode, offset: 0, parent: None, new }
        } else {
            RefChange::DropData { at: AT, len, root, inode, offset: 0, parent: None }
        }
    }

    #[test]
    fn a_block_made_and_dropped_leaves_no_trace() {
        let queue = RefQueue::new();
        assert_eq!(queue.push(add_tree(5, true)).unwrap(), Pushed::Queued);
        assert_eq!(queue.peek(AT), Some(Delta { net: 1, is_new: true, full_backref: false }));
        assert_eq!(queue.push(drop_tree(5)).unwrap(), Pushed::Cancelled);
        assert_eq!(queue.peek(AT), None);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_new_block_with_a_second_holder_survives_the_first() {
        let queue = RefQueue::new();
        for change in [add_tree(5, true), add_tree(256, false), drop_tree(5)] {
            assert_eq!(queue.push(change).unwrap(), Pushed::Queued);
        }
        assert_eq!(queue.push(drop_tree(256)).unwrap(), Pushed::Cancelled);
        assert!(queue.is_empty());
    }

    #[test]
    fn dropping_from_the_wrong_holder_does_not_cancel() {
        let queue = RefQueue::new();
        assert_eq!(queue.push(add_tree(5, true)).unwrap(), Pushed::Queued);
        assert_eq!(queue.push(drop_tree(256)).unwrap(), Pushed::Losing);
        let heads = queue.take_all_sorted();
        assert_eq!(heads[0].1.deltas().count(), 2);
        assert!(queue.is_empty());
    }

    #[test]
    fn new_data_dropped_again_waits_for_its_checksums() {
        let queue = RefQueue::new();
        assert_eq!(queue.push(data(4096, true, true)).unwrap(), Pushed::Queued);
        assert_eq!(queue.push(data(4096, false, false)).unwrap(), Pushed::Losing);
        let heads = queue.take_all_sorted();
        assert_eq!(heads.len(), 1);
        assert!(heads[0].1.is_new && heads[0].1.is_balanced());
    }

    #[test]
    fn what_is_taken_in_parts_is_everything_once() {
        let queue = RefQueue::new();
        for block in 1..=1000u64 {
            let at = Logical(block << 14);
            let change = RefChange::AddTree { at, level: 0, owner: TreeId(5), parent: None, new: true };
            assert_eq!(queue.push(change).unwrap(), Pushed::Queued);
        }
        let mut taken = std::collections::BTreeSet::new();
        while !queue.is_empty() {
            let (before, part) = (queue.entry_count(), queue.take_some_sorted(100));
            assert!(part.len() >= 100.min(before) && part.len() < 400, "{} of {before}", part.len());
            assert!(part.is_sorted_by_key(|(at, _)| *at));
            assert_eq!(queue.entry_count(), before - part.len());
            assert!(part.into_iter().all(|(at, _)| taken.insert(at)));
        }
        assert_eq!(taken.len(), 1000);
    }

    /// Each of thousands of references to one large extent that went was counted as the whole extent coming free.
    #[test]
    fn an_extent_that_loses_many_references_is_told_of_once() {
        let queue = RefQueue::new();
        let push = |is_add| queue.push(data(1 << 30, is_add, false)).unwrap();
        // It was split in two, and both parts went.
        assert_eq!([push(true), push(false)], [Pushed::Queued, Pushed::Queued]);
        assert_eq!([push(false), push(false), push(false)], [Pushed::Losing, Pushed::Queued, Pushed::Queued]);
        assert_eq!([push(true), push(true)], [Pushed::Queued, Pushed::Queued]);
        assert_eq!([push(true), push(true), push(false)], [Pushed::Regained, Pushed::Queued, Pushed::Queued]);
        assert!(queue.is_empty());
        assert_eq!(queue.push(add_tree(5, false)).unwrap(), Pushed::Queued);
        assert_eq!(queue.push(drop_tree(256)).unwrap(), Pushed::Queued);
        assert_eq!(queue.push(drop_tree(257)).unwrap(), Pushed::Losing);
        assert_eq!(queue.take_all_sorted()[0].1.net(), -1);
    }

    #[test]
    fn old_extents_whose_changes_cancel_are_forgotten() {
        let queue = RefQueue::new();
        let _ = queue.push(data(4096, false, false)).unwrap();
        let _ = queue.push(data(4096, true, false)).unwrap();
        assert!(queue.is_empty());
        let _ = queue.push(RefChange::SetFullBackref { at: AT, level: 0 }).unwrap();
        assert_eq!(queue.entry_count(), 1);
    }

    #[test]
    fn trees_that_disagree_about_an_extent_are_told() {
        let queue = RefQueue::new();
        let _ = queue.push(data(4096, true, false)).unwrap();
        let error = queue.push(data(8192, true, false)).unwrap_err();
        assert!(error.to_string().contains("1048576"), "{error}");
        assert!(queue.push(add_tree(5, false)).is_err());
    }

    #[test]
    fn taken_heads_ascend_and_counts_return_to_zero() {
        let queue = RefQueue::new();
        for block in (0..5000u64).rev() {
            let at = Logical(block * 4096);
            for owner in [5, 256, 257].into_iter().take(1 + to_usize(block % 3)) {
                let owner = TreeId(owner);
                let change = RefChange::AddTree { at, level: 0, owner, parent: None, new: true };
                assert_eq!(queue.push(change).unwrap(), Pushed::Queued);
            }
        }
        let heads = queue.take_all_sorted();
        assert_eq!(heads.len(), 5000);
        assert!(heads.is_sorted_by_key(|(at, _)| *at));
        assert_eq!(queue.entry_count(), 0);
    }

    #[test]
    fn the_shards_share_the_load() {
        let queue = RefQueue::new();
        for block in 0..6400u64 {
            let at = Logical(block * 16384);
            let change = RefChange::AddTree { at, level: 0, owner: TreeId(5), parent: None, new: true };
            let _ = queue.push(change).unwrap();
        }
        for shard in &queue.shards {
            assert!((50..200).contains(&shard.lock().heads.len()));
        }
    }

    #[test]
    fn threads_push_at_once() {
        let queue = RefQueue::new();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let queue = &queue;
                scope.spawn(move || {
                    for block in 0..20_000u64 {
                        let at = Logical(block % 1000 * 16384);
                        let owner = TreeId(256 + thread);
                        let _ =
                            queue.push(RefChange::AddTree { at, level: 0, owner, parent: None, new: false }).unwrap();
                    }
                });
            }
        });
        let heads = queue.take_all_sorted();
        assert_eq!(heads.len(), 1000);
        assert!(heads.iter().all(|(_, head)| head.net() == 80));
        assert!(queue.is_empty());
    }
}
