//! Replaces, drops and adds file extent items and their references in a transaction, by the plans of `edit`. Called by
//! `writeback::completion`, `file` (truncation, preallocation, exchange), `dir::removal` and `log::replay`.

use std::ops::Range;

use btrfs_disk::convert::usize_from;
use btrfs_disk::items::{FileExtent as DiskExtent, OnDisk};
use btrfs_disk::key::item_type::EXTENT_DATA;
use btrfs_disk::{Detail, InodeNo, Key};
use btrfs_store::{RefChange, Reservation, Tree, Txn};

use super::edit::{self, EditPlan, NewExtent, RefEdit};
use super::{ExtentMap, FileExtent, Kind, SCAN_ITEMS_MAX, Stretch};
use crate::error::{Result, corrupt_inode};
use crate::notes::Notes;

/// New items further apart than this are edited separately, so that the items between them
/// need not be read.
const WINDOW_GAP_BYTES: u64 = 1 << 20;
/// New items edited after one search of the tree.
const WINDOW_ITEMS_MAX: usize = 1024;

/// Items dropped per reserved item: adjacent ones share their blocks, as do their references.
pub(crate) const DROPS_PER_ITEM: u32 = 8;

/// Items that [`drop_items`] may drop in a handle with `reservation`, up to `wanted`: on a full volume the reservation
/// may be smaller than was asked for.
pub(crate) fn drops_for(reservation: &Reservation, wanted: u32) -> usize {
    let affordable = reservation.items_left().saturating_mul(DROPS_PER_ITEM.into());
    let items = u32::try_from(affordable).unwrap_or(u32::MAX).min(wanted);
    usize_from(items.max(DROPS_PER_ITEM))
}

/// The file whose items are edited, and the transaction.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) txn: &'a Txn,
    pub(crate) tree: &'a Tree,
    pub(crate) notes: &'a Notes,
    pub(crate) ino: InodeNo,
    pub(crate) sector: u32,
}

/// The change of the inode's `nbytes` by an edit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BytesDelta {
    pub(crate) dropped: u64,
    pub(crate) added: u64,
}

impl BytesDelta {
    pub(crate) fn add(&mut self, other: Self) {
        self.dropped += other.dropped;
        self.added += other.added;
    }

    /// The new value of `nbytes`. A value that would be negative was wrong before.
    pub(crate) fn apply_to(self, nbytes: u64) -> u64 {
        nbytes.saturating_add(self.added).saturating_sub(self.dropped)
    }
}

/// Replaces the file's contents in the ranges of `new` (ascending, disjoint). `inline` is the data of an inline extent
/// among them.
///
/// # Errors
/// Corrupt when an overlapping item is invalid; those of editing the tree.
pub(crate) fn replace(target: Target<'_>, new: &[NewExtent], inline: &[u8]) -> Result<BytesDelta> {
    let mut delta = BytesDelta::default();
    let mut rest = new;
    while let Some(first) = rest.first() {
        let window = window(rest);
        let last_end = window.last().map_or(0, |new| new.extent.end_in_sectors(target.sector));
        let map = target.load(first.extent.start..last_end, SCAN_ITEMS_MAX)?;
        let known_end = map.known().end;
        let fit = window.partition_point(|new| new.extent.end() <= known_end);
        let (now, _) = window.split_at(fit);
        // The first new range has more items than a map holds: the known ones are dropped first.
        let cuts = match fit {
            0 => std::iter::once(first.extent.start..known_end).collect(),
            _ => cuts(now, target.sector),
        };
        delta.add(target.edit(map.items(), &cuts, now, inline)?);
        rest = rest.get(fit..).unwrap_or_default();
    }
    Ok(delta)
}

/// Replaces the file's contents in `range` (whole sectors) by `new` (ascending, disjoint, within it): the rest of the
/// range has no item afterwards. `existing` are all items that overlap the range.
///
/// # Errors
/// As [`replace`].
pub(crate) fn replace_range(
    target: Target<'_>,
    existing: &[FileExtent],
    range: Range<u64>,
    new: &[NewExtent],
) -> Result<BytesDelta> {
    target.edit(existing, std::slice::from_ref(&range), new, &[])
}

/// Removes the file's items in `range`, which is aligned. Stops after about `item_budget` items; returns where it
/// began: everything from there to the end of the range is removed. Works from the end, so that a file can shrink with
/// it.
///
/// # Errors
/// As [`replace`].
pub(crate) fn drop_items(target: Target<'_>, range: Range<u64>, item_budget: usize) -> Result<DropStep> {
    let mut items = Vec::new();
    let last_end = range.end.next_multiple_of(u64::from(target.sector));
    let mut end = last_end;
    while items.len() < item_budget && end > range.start {
        match target.last_before(end)? {
            Some(item) if item.end_in_sectors(target.sector) > range.start => {
                end = item.start.max(range.start);
                items.push(item);
            }
            _ => end = range.start,
        }
    }
    items.reverse();
    let cut = end..last_end;
    let delta = match items.is_empty() {
        true => BytesDelta::default(),
        false => target.edit(&items, std::slice::from_ref(&cut), &[], &[])?,
    };
    Ok(DropStep { dropped_from: end, is_done: end <= range.start, delta })
}

/// The result of one step of [`drop_items`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct DropStep {
    /// Nothing is left from here to the end of the range.
    pub(crate) dropped_from: u64,
    /// Nothing is left in the range.
    pub(crate) is_done: bool,
    pub(crate) delta: BytesDelta,
}

/// Inserts hole items wherever `range` has no item, for file systems that want them.
///
/// # Errors
/// As [`replace`].
pub(crate) fn fill_gaps(target: Target<'_>, range: Range<u64>) -> Result<()> {
    let mut at = range.start;
    while at < range.end {
        let map = target.load(at..range.end, SCAN_ITEMS_MAX)?;
        let known_end = map.known().end.min(range.end);
        let mut holes = Vec::new();
        while at < known_end {
            let (stretch, end) = map.at(at, target.sector);
            let end = end.min(range.end);
            if stretch == Stretch::Gap {
                let extent = FileExtent::hole(at..end, target.txn.generation());
                holes.push(NewExtent { extent, is_fresh: false });
            }
            at = end;
        }
        let plan = EditPlan { inserts: holes.iter().map(|hole| hole.extent).collect(), ..EditPlan::default() };
        target.note_range(range.clone());
        target.apply(&plan, &[])?;
    }
    Ok(())
}

/// The longest prefix of `new` that one search of the tree serves.
fn window(new: &[NewExtent]) -> &[NewExtent] {
    let near = |pair: &&[NewExtent]| match pair {
        [left, right] => right.extent.start.saturating_sub(left.extent.end()) <= WINDOW_GAP_BYTES,
        _ => false,
    };
    let count = 1 + new.windows(2).take(WINDOW_ITEMS_MAX - 1).take_while(near).count();
    new.get(..count).unwrap_or(new)
}

/// The ranges of the items in whole sectors, adjacent ones joined.
fn cuts(new: &[NewExtent], sector: u32) -> Vec<Range<u64>> {
    let mut cuts: Vec<Range<u64>> = Vec::new();
    for new in new {
        let (start, end) = (new.extent.start, new.extent.end_in_sectors(sector));
        match cuts.last_mut() {
            Some(last) if last.end >= start => last.end = end,
            _ => cuts.push(start..end),
        }
    }
    cuts
}

impl Target<'_> {
    fn load(&self, range: Range<u64>, limit: usize) -> Result<ExtentMap> {
        ExtentMap::load(self.tree, self.ino, range, limit, self.sector)
    }

    /// Notes a change of the file's contents.
    fn note_range(&self, range: Range<u64>) {
        self.notes.change(self.txn, self.tree.id(), self.ino, |note| note.add_range(range));
    }

    fn key(&self, start: u64) -> Key {
        Key::new(self.ino.0, EXTENT_DATA, start)
    }

    /// The last item that starts before `end`.
    fn last_before(&self, end: u64) -> Result<Option<FileExtent>> {
        let Some(last) = end.checked_sub(1) else {
            return Ok(None);
        };
        let map = self.load(last..end, 1)?;
        if let Some(item) = map.items().first() {
            return Ok(Some(*item));
        }
        match self.tree.at_or_before(&self.key(last))? {
            Some((key, _)) if (key.objectid, key.item_type) == (self.ino.0, EXTENT_DATA) => {
                let end = key.offset.saturating_add(1);
                Ok(self.load(key.offset..end, 1)?.items().first().copied())
            }
            _ => Ok(None),
        }
    }

    fn edit(
        &self,
        existing: &[FileExtent],
        cuts: &[Range<u64>],
        new: &[NewExtent],
        inline: &[u8],
    ) -> Result<BytesDelta> {
        let plan = edit::plan(existing, cuts, new).map_err(|edit::InlineCut| {
            corrupt_inode(
                self.tree.id(),
                self.ino,
                "inline extent",
                Detail::AtMost(u64::from(self.sector)),
                Detail::Text("an inline extent longer than a sector"),
            )
        })?;
        for cut in cuts {
            self.note_range(cut.clone());
        }
        self.apply(&plan, inline)?;
        Ok(BytesDelta { dropped: plan.dropped_bytes, added: plan.added_bytes })
    }

    fn apply(&self, plan: &EditPlan, inline: &[u8]) -> Result<()> {
        let (txn, tree) = (self.txn, self.tree);
        for (first, last, count) in &plan.removes {
            if *count == 1 {
                txn.remove(tree, &self.key(*first))?;
            } else {
                txn.remove_range(tree, &self.key(*first), &self.key(*last), |_, _| {})?;
            }
        }
        for item in &plan.rewrites {
            self.rewrite(item)?;
        }
        for (old, item) in &plan.moves {
            txn.set_key(tree, &self.key(*old), &self.key(item.start))?;
            self.rewrite(item)?;
        }
        self.insert(&plan.inserts, inline)?;
        for edit in &plan.refs {
            self.change_refs(edit)?;
        }
        Ok(())
    }

    fn rewrite(&self, item: &FileExtent) -> Result<()> {
        let encoded = item.encode();
        let mut fits = false;
        let found = self.txn.update(self.tree, &self.key(item.start), |bytes| {
            fits = bytes.len() == encoded.bytes().len();
            if fits {
                bytes.copy_from_slice(encoded.bytes());
            }
        })?;
        if found && fits {
            return Ok(());
        }
        let found = if found { "an item of another size" } else { "none" };
        Err(corrupt_inode(
            self.tree.id(),
            self.ino,
            "file extent item",
            Detail::Text("the item as read before"),
            Detail::Text(found),
        ))
    }

    fn insert(&self, items: &[FileExtent], inline: &[u8]) -> Result<()> {
        if let [FileExtent { kind: Kind::Inline, start, len, compression, .. }] = items {
            let bytes = DiskExtent::build_inline(self.txn.generation(), *compression, *len, inline);
            return Ok(self.txn.insert(self.tree, &self.key(*start), &bytes)?);
        }
        let encoded: Vec<_> = items.iter().map(|item| (self.key(item.start), item.encode())).collect();
        let batch: Vec<(Key, &[u8])> = encoded.iter().map(|(key, item)| (*key, item.bytes())).collect();
        match batch.is_empty() {
            true => Ok(()),
            false => Ok(self.txn.insert_batch(self.tree, &batch)?),
        }
    }

    fn change_refs(&self, edit: &RefEdit) -> Result<()> {
        let (at, len, root) = (edit.disk, edit.disk_len, self.tree.id());
        let (inode, offset) = (self.ino, edit.ref_offset);
        for _ in 0..edit.delta {
            self.txn.ref_change(RefChange::AddData {
                at,
                len,
                root,
                inode,
                offset,
                parent: None,
                new: edit.is_fresh,
            })?;
        }
        for _ in edit.delta..0 {
            self.txn.ref_change(RefChange::DropData { at, len, root, inode, offset, parent: None })?;
        }
        Ok(())
    }
}
