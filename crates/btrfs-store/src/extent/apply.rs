//! Brings the extent tree up to date with queued reference changes. Called by the commit and by drains.

use btrfs_disk::error::{At, Detail};
use btrfs_disk::flags::ExtentFlags;
use btrfs_disk::items::InlineRef;
use btrfs_disk::key::item_type;
use btrfs_disk::{Corrupt, Generation, Key, Logical, TreeId};

use super::csum_tree::CsumTree;
use super::free_check::check_unused;
use super::item::{ExtentRecord, ExtentSizes};
use super::lookup::no_item;
use super::ref_change::{ExtentKind, RefKey};
use super::ref_queue::Head;
use crate::Result;
use crate::tree::{Edit, EditItem, Scan, Tree};

/// New items that are inserted in one go.
const BATCH_ITEMS_MAX: usize = 512;

/// How many offsets after its hash a data reference is looked for before it is added: a
/// reference that collided keeps its place when the one before it goes.
const COLLISIONS_MAX: u64 = 64;

/// Receives the changes of space that applying reference changes causes. The transaction's engine implements it.
pub trait SpaceSink {
    /// The extent tree has an item for this extent from now on.
    ///
    /// # Errors
    /// When no block group holds the extent.
    fn allocated(&self, at: Logical, len: u64) -> Result<()>;

    /// The extent tree lost its item. The last committed state still points there, so that
    /// the space must not be used before the next one is durable.
    ///
    /// # Errors
    /// When no block group holds the extent.
    fn freed(&self, at: Logical, len: u64) -> Result<()>;

    /// An extent was created by `owner` or, with `is_gone`, freed, where the extent tree records the owner; it records
    /// none for tree blocks that are freed. Simple quotas count it.
    ///
    /// # Errors
    /// When the owner cannot be determined.
    fn counted(&self, extent: &Counted, is_gone: bool) -> Result<()> {
        let _ = (extent, is_gone);
        Ok(())
    }

    /// The extent was allocated and dropped in this transaction: the extent tree never knew
    /// it, and its space is free at once.
    ///
    /// # Errors
    /// When no block group holds the extent.
    fn never_used(&self, at: Logical, len: u64) -> Result<()>;
}

/// An extent that came or went.
#[derive(Clone, Copy, Debug)]
pub struct Counted {
    /// First byte.
    pub at: Logical,
    /// Tree block or data.
    pub kind: ExtentKind,
    /// The transaction that wrote it first.
    pub generation: Generation,
    /// The tree that allocated it, where that is known.
    pub owner: Option<TreeId>,
}

/// The trees and sinks that the changes are applied to.
#[derive(Clone, Copy)]
pub struct Apply<'a> {
    /// The transaction's edits. They push further changes, to the blocks of the extent tree
    /// itself, for another round.
    pub edit: Edit<'a>,
    /// The extent tree.
    pub tree: &'a Tree,
    /// Checksums go with their data.
    pub csums: CsumTree<'a>,
    /// Notified of every extent allocated or freed.
    pub space: &'a dyn SpaceSink,
    /// Layout of the items.
    pub sizes: ExtentSizes,
    /// New data records its owner, for simple quotas.
    pub names_owners: bool,
}

impl std::fmt::Debug for Apply<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Apply").field("sizes", &self.sizes).finish_non_exhaustive()
    }
}

/// Work that waits for the end of the batch or of the round.
#[derive(Default)]
struct Pending {
    /// Items of new extents, ascending.
    inserts: Vec<(Key, Vec<u8>)>,
    /// References of new extents that get items of their own.
    spilled: Vec<(Logical, RefKey, i64)>,
    /// Data without references, ascending.
    data: Vec<FreedData>,
}

struct FreedData {
    at: Logical,
    len: u64,
    was_new: bool,
}

/// The state of an extent after its item changed, and the changes that belong to items of their own.
struct Changed {
    refs: u64,
    generation: Generation,
    owner: Option<TreeId>,
    keyed: Vec<(RefKey, i64)>,
}

/// The extent gets an item.
fn is_created(head: &Head) -> bool {
    head.is_new && !head.is_balanced()
}

impl Apply<'_> {
    /// Applies the changes that [`super::RefQueue::take_all_sorted`] returned.
    ///
    /// # Errors
    /// [`Corrupt`] for an extent without an item or a dropped reference that did not exist; a failure to read or change
    /// a tree. The trees are then changed in part, and the transaction must not be committed.
    pub fn run(&self, heads: &[(Logical, Head)]) -> Result<()> {
        let mut pending = Pending::default();
        // Few changes: the new items first. A later round of a commit holds the blocks that the extent tree itself took
        // and gave up in the round before. If those went first, a tree at the edge of a block would lose that block and
        // take another one, which again are changes, in every round.
        let comes_first = heads.len() <= BATCH_ITEMS_MAX;
        if comes_first {
            for (at, head) in heads.iter().filter(|(_, head)| is_created(head)) {
                self.create(*at, head, &mut pending)?;
            }
            self.flush(&mut pending)?;
        }
        let mut rest = heads;
        while let Some(((at, head), behind)) = rest.split_first() {
            let mut done = 1;
            if head.is_new && !is_created(head) {
                self.forget(*at, head.kind, &mut pending)?;
            } else if head.is_new {
                if !comes_first {
                    self.create(*at, head, &mut pending)?;
                }
            } else if head.changes_item() {
                done = self.change_run(rest, &mut pending)?;
            }
            rest = rest.get(done..).unwrap_or(behind);
            if pending.inserts.len() >= BATCH_ITEMS_MAX {
                self.flush(&mut pending)?;
            }
        }
        self.flush(&mut pending)?;
        self.release_data(&pending.data)
    }

    fn forget(&self, at: Logical, kind: ExtentKind, pending: &mut Pending) -> Result<()> {
        match kind {
            ExtentKind::Tree { .. } => self.space.never_used(at, self.sizes.len(kind)),
            ExtentKind::Data { len } => {
                pending.data.push(FreedData { at, len, was_new: true });
                Ok(())
            }
        }
    }

    fn create(&self, at: Logical, head: &Head, pending: &mut Pending) -> Result<()> {
        if let ExtentKind::Tree { .. } = head.kind {
            // Data was looked up before it was written.
            check_unused(self.tree, &self.sizes, at, self.sizes.len(head.kind))?;
        }
        let mut record = ExtentRecord::new(&self.sizes, head.kind, head.generation.unwrap_or(self.edit.generation()));
        if head.full_backref {
            record.flags |= ExtentFlags::FULL_BACKREF;
        }
        if let (true, ExtentKind::Data { .. }, Some(root)) = (self.names_owners, head.kind, head.owner) {
            record.inline.push(InlineRef::Owner { root });
        }
        let generation = record.generation;
        self.space.counted(&Counted { at, kind: head.kind, generation, owner: head.owner }, false)?;
        let keyed = record.change(at, head, self.sizes.item_size_limit())?;
        pending.spilled.extend(keyed.into_iter().map(|(key, count)| (at, key, count)));
        pending.inserts.push((self.sizes.key(at, head.kind), record.build()));
        self.space.allocated(at, self.sizes.len(head.kind))
    }

    fn flush(&self, pending: &mut Pending) -> Result<()> {
        let items: Vec<(Key, &[u8])> = pending.inserts.iter().map(|(key, bytes)| (*key, bytes.as_slice())).collect();
        self.edit.insert_batch(self.tree, &items)?;
        pending.inserts.clear();
        for (at, key, count) in pending.spilled.drain(..) {
            self.add_keyed(at, key, count)?;
        }
        Ok(())
    }

    /// Changes the items of the first heads, as far as they lie in one leaf, in one edit; returns how many.
    fn change_run(&self, heads: &[(Logical, Head)], pending: &mut Pending) -> Result<usize> {
        let run = heads.iter().take_while(|(_, head)| head.changes_item());
        let keys = run.clone().map(|(at, head)| self.sizes.key(*at, head.kind));
        let mut outcomes = Vec::new();
        let done = self.edit.edit_run(self.tree, keys, |index, old| {
            let Some((at, head)) = heads.get(index) else { return Ok(EditItem::Keep) };
            let (item, outcome) = self.changed(&self.sizes.key(*at, head.kind), *at, head, old)?;
            outcomes.push(outcome);
            Ok(item)
        })?;
        for ((at, head), outcome) in run.zip(outcomes).take(done) {
            self.note_changed(*at, head, outcome, pending)?;
        }
        if let (0, Some((at, head))) = (done, heads.first()) {
            self.change(*at, head, pending)?;
        }
        Ok(done.max(1))
    }

    fn change(&self, at: Logical, head: &Head, pending: &mut Pending) -> Result<()> {
        let key = self.sizes.key(at, head.kind);
        let fat_key = self.sizes.fat_key(at, head.kind);
        let mut changed = self.change_item(&key, at, head)?;
        if changed.is_none() && fat_key != key {
            changed = self.change_item(&fat_key, at, head)?;
        }
        self.note_changed(at, head, changed.ok_or_else(|| no_item(&key))?, pending)
    }

    /// Queues the work that follows from a changed item.
    fn note_changed(&self, at: Logical, head: &Head, changed: Changed, pending: &mut Pending) -> Result<()> {
        let Changed { refs, keyed, generation, owner } = changed;
        for (key, count) in keyed {
            match count {
                ..0 => self.drop_keyed(at, key, count)?,
                _ => self.add_keyed(at, key, count)?,
            }
        }
        if refs == 0 {
            let owner = owner.or_else(|| head.only_tree_of_the_store());
            self.space.counted(&Counted { at, kind: head.kind, generation, owner }, true)?;
        }
        match head.kind {
            _ if refs > 0 => Ok(()),
            ExtentKind::Tree { .. } => self.space.freed(at, self.sizes.len(head.kind)),
            ExtentKind::Data { len } => {
                pending.data.push(FreedData { at, len, was_new: false });
                Ok(())
            }
        }
    }

    /// Changes the references inside the extent item; `None` when there is no such item.
    fn change_item(&self, key: &Key, at: Logical, head: &Head) -> Result<Option<Changed>> {
        let mut changed = None;
        self.edit.edit(self.tree, key, |old| {
            let Some(old) = old else {
                return Ok(EditItem::Keep);
            };
            let (item, outcome) = self.changed(key, at, head, old)?;
            changed = Some(outcome);
            Ok(item)
        })?;
        Ok(changed)
    }

    /// The new form of an extent item, and the changes that belong to items of their own.
    fn changed(&self, key: &Key, at: Logical, head: &Head, old: &[u8]) -> Result<(EditItem, Changed)> {
        let mut record = ExtentRecord::parse(key, old)?;
        record.check_kind(key, head.kind)?;
        let keyed = record.change(at, head, self.sizes.item_size_limit())?;
        if head.full_backref {
            record.flags |= ExtentFlags::FULL_BACKREF;
        }
        let refs = record.refs;
        let item = if refs == 0 { EditItem::Remove } else { EditItem::Put(record.build()) };
        Ok((item, Changed { refs, keyed, generation: record.generation, owner: record.owner() }))
    }

    /// Counts a reference in an item of its own, which is made where there is none.
    fn add_keyed(&self, at: Logical, holder: RefKey, count: i64) -> Result<()> {
        let mut key = holder.key(at);
        let last = key.offset.saturating_add(COLLISIONS_MAX);
        if let Some(present) = self.find_keyed(at, holder, last)? {
            return self.change_keyed(&present, at, holder, count);
        }
        let bytes = holder.counted(holder.changed_count(at, 0, count)?).keyed(at).1;
        loop {
            let mut is_taken = false;
            self.edit.edit(self.tree, &key, |old| {
                is_taken = old.is_some();
                Ok(if is_taken { EditItem::Keep } else { EditItem::Put(bytes.clone()) })
            })?;
            if !is_taken {
                return Ok(());
            }
            key.offset = key.offset.checked_add(1).ok_or_else(|| {
                let free = Detail::Text("a free key from its hash on");
                Corrupt::new("data reference", free, Detail::Text("none")).at(At::Key(self.tree.id(), key))
            })?;
        }
    }

    fn drop_keyed(&self, at: Logical, holder: RefKey, count: i64) -> Result<()> {
        let present = self.find_keyed(at, holder, u64::MAX)?;
        self.change_keyed(&present.ok_or_else(|| holder.missing(at))?, at, holder, count)
    }

    /// The item of its own that counts `holder`, at most up to this offset.
    fn find_keyed(&self, at: Logical, holder: RefKey, last: u64) -> Result<Option<Key>> {
        let from = holder.key(at);
        // Only hashes collide: every other reference has one possible key.
        let is_hashed = from.item_type == item_type::EXTENT_DATA_REF;
        let to = Key { offset: if is_hashed { last } else { from.offset }, ..from };
        let mut found = None;
        self.tree.scan(&from, &to, |key, bytes| {
            let entry = InlineRef::parse_keyed(key, bytes).map_err(|error| error.at(At::Key(self.tree.id(), *key)))?;
            if RefKey::split(&entry).is_some_and(|(present, _)| present == holder) {
                found = Some(*key);
                return Ok(Scan::Stop);
            }
            Ok(Scan::Continue)
        })?;
        Ok(found)
    }

    fn change_keyed(&self, key: &Key, at: Logical, holder: RefKey, change: i64) -> Result<()> {
        self.edit.edit(self.tree, key, |old| {
            let old = old.ok_or_else(|| holder.missing(at))?;
            let entry = InlineRef::parse_keyed(key, old)?;
            let (_, count) = RefKey::split(&entry).ok_or_else(|| holder.missing(at))?;
            Ok(match holder.changed_count(at, count, change)? {
                0 => EditItem::Remove,
                count => EditItem::Put(holder.counted(count).keyed(at).1),
            })
        })
    }

    /// Removes the checksums of data that is gone, neighbours at once, then gives the space up.
    fn release_data(&self, freed: &[FreedData]) -> Result<()> {
        for run in freed.chunk_by(|a, b| a.end() == Some(b.at.0)) {
            let len = run.iter().fold(0u64, |sum, extent| sum.saturating_add(extent.len));
            if let Some(first) = run.first() {
                self.csums.delete(&self.edit, first.at, len)?;
            }
        }
        for extent in freed {
            if extent.was_new {
                self.space.never_used(extent.at, extent.len)?;
            } else {
                self.space.freed(extent.at, extent.len)?;
            }
        }
        Ok(())
    }
}

impl FreedData {
    fn end(&self) -> Option<u64> {
        self.at.0.checked_add(self.len)
    }
}
