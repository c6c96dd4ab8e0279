//! One inode enters the log.

use std::ops::Range;
use std::sync::Arc;

use btrfs_disk::hash::name_hash;
use btrfs_disk::items::{DirEntry as DiskEntry, DirLogItem, InodeExtrefEntry, InodeRefEntry, OnDisk};
use btrfs_disk::key::item_type::{
    DIR_INDEX, DIR_LOG_INDEX, EXTENT_DATA, INODE_EXTREF, INODE_ITEM, INODE_REF, XATTR_ITEM,
};
use btrfs_disk::{InodeNo, Key};
use btrfs_store::{LogEdit, Note, Scan, Txn};

use super::extents::{Source, Stretch, join};
use super::{ITEMS_MAX, Recorded};
use crate::dir::Namespace;
use crate::error::Result;
use crate::extents::FILE_BYTES_MAX;
use crate::inode::{FileType, Inode, InodeFlags};

/// Directories above a new inode that are new as well: more, and a commit is cheaper.
const DEPTH_MAX: usize = 128;

type Items = Vec<(Key, Vec<u8>)>;

/// Copies inodes into the log of the running transaction.
#[derive(Clone, Copy)]
pub(super) struct Recorder<'a> {
    pub(super) names: &'a Namespace,
    pub(super) txn: &'a Txn,
}

/// What an inode has beside its contents and entries.
struct Base {
    items: Items,
    /// Its names: directory and name.
    names: Vec<(InodeNo, Vec<u8>)>,
}

impl Recorder<'_> {
    /// Puts an inode into the log, with what has to exist for its names.
    pub(super) fn record(&self, inode: &Arc<Inode>) -> Result<Recorded> {
        let note = self.note(inode);
        if note.lost_name || note.has_moved {
            return Ok(Recorded::NeedsCommit);
        }
        let is_changed = self.is_new(inode) || inode.is_staged_in(self.txn.generation());
        if !is_changed && !has_news(&note) {
            // The commit before may still be on its way.
            let is_durable = self.names.core.store.durable().0 + 1 == self.txn.generation().0;
            return Ok(if is_durable { Recorded::Nothing } else { Recorded::NeedsCommit });
        }
        let Some(base) = self.base(inode)? else {
            return Ok(Recorded::NeedsCommit);
        };
        let has_new_names = self.is_new(inode) || note.has_new_name;
        if has_new_names && !self.record_ancestors(inode, &base, 0)? {
            return Ok(Recorded::NeedsCommit);
        }
        let is_recorded = match inode.kind() {
            FileType::Directory => self.record_dir(inode, &base, &note)?,
            _ => self.record_file(inode, &base, &note)?,
        };
        Ok(if is_recorded { Recorded::New } else { Recorded::NeedsCommit })
    }

    fn record_file(&self, inode: &Inode, base: &Base, note: &Note) -> Result<bool> {
        let Some(stretches) = self.stretches(inode, note)? else {
            return Ok(false);
        };
        let csums = self.csums(inode, &stretches)?;
        let log = self.txn.log(inode.tree_id())?;
        put_base(&log, inode, base, note)?;
        for stretch in &stretches {
            let key = |offset| Key::new(inode.ino().0, EXTENT_DATA, offset);
            let items: Vec<(Key, &[u8])> = stretch
                .items
                .iter()
                .map(|item| (key(item.extent.start), &*item.bytes))
                .collect();
            let (first, last) = (key(stretch.range.start), key(stretch.range.end.saturating_sub(1)));
            log.replace(&first, &last, &items)?;
        }
        for (at, bytes) in &csums {
            log.put_csums(*at, bytes)?;
        }
        drop(log);
        self.note_logged(inode);
        Ok(true)
    }

    /// The stretches of the contents that changed; `None` when there are too many items.
    fn stretches(&self, inode: &Inode, note: &Note) -> Result<Option<Vec<Stretch>>> {
        let sector = self.names.core.store.sizes().sector;
        let is_whole = self.is_new(inode) && !note.is_logged;
        let everything = 0..FILE_BYTES_MAX;
        let ranges = if is_whole { vec![everything] } else { join(note.ranges.clone()) };
        if ranges.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let disk_size = inode.state().disk_size;
        let log = self.txn.log(inode.tree_id())?;
        let source = Source {
            tree: &inode.root.tree,
            log: log.tree(),
            ino: inode.ino(),
            sector,
            holes_below: if self.is_new(inode) { 0 } else { disk_size.next_multiple_of(sector.into()) },
        };
        let mut stretches: Vec<Stretch> = Vec::new();
        let mut count = 0;
        for range in ranges {
            // A stretch that was widened may have this one in it.
            if stretches.last().is_some_and(|last| last.range.end >= range.end) {
                continue;
            }
            let from = stretches.last().map_or(0, |last| last.range.end);
            let Some(stretch) = source.stretch(range.start.max(from)..range.end)? else {
                return Ok(None);
            };
            count += stretch.items.len();
            stretches.push(stretch);
        }
        Ok((count <= ITEMS_MAX).then_some(stretches))
    }

    /// Checksums of the data that this transaction wrote.
    fn csums(&self, inode: &Inode, stretches: &[Stretch]) -> Result<Vec<(btrfs_disk::Logical, Vec<u8>)>> {
        let store = &self.names.core.store;
        let mut csums = Vec::new();
        if inode.state().flags.contains(InodeFlags::NODATASUM) {
            return Ok(csums);
        }
        let sector = u64::from(store.sizes().sector);
        let items = stretches.iter().flat_map(|stretch| &stretch.items);
        for item in items.filter(|item| item.extent.generation == self.txn.generation()) {
            let Some((at, len)) = item.data() else { continue };
            for (index, bytes) in store.data_csums(at, len)?.runs() {
                let offset = btrfs_disk::convert::to_u64(index) * sector;
                csums.push((btrfs_disk::Logical(at.0 + offset), bytes.to_vec()));
            }
        }
        Ok(csums)
    }

    fn record_dir(&self, inode: &Inode, base: &Base, note: &Note) -> Result<bool> {
        let from = match (note.removed.is_empty(), note.first_added) {
            _ if self.is_new(inode) => Some(0),
            (false, _) => Some(0),
            (true, first) => first,
        };
        let Some(entries) = from.map_or(Ok(Some(Vec::new())), |from| self.entries(inode, from))? else {
            return Ok(false);
        };
        for (key, bytes) in &entries {
            let is_added = note.first_added.is_some_and(|first| key.offset >= first);
            if is_added && !self.record_entry(inode, bytes)? {
                return Ok(false);
            }
        }
        let ino = inode.ino().0;
        let end = DirLogItem { end: u64::MAX.into() };
        let log = self.txn.log(inode.tree_id())?;
        put_base(&log, inode, base, note)?;
        if let Some(from) = from {
            let mut items = vec![(Key::new(ino, DIR_LOG_INDEX, from), end.bytes())];
            items.extend(entries.iter().map(|(key, bytes)| (*key, &**bytes)));
            let last = Key::new(ino, DIR_INDEX, u64::MAX);
            log.replace(&Key::new(ino, DIR_LOG_INDEX, 0), &last, &items)?;
        }
        drop(log);
        self.note_logged(inode);
        Ok(true)
    }

    fn entries(&self, dir: &Inode, from: u64) -> Result<Option<Items>> {
        let key = |offset| Key::new(dir.ino().0, DIR_INDEX, offset);
        collect(dir, &key(from)..&key(u64::MAX))
    }

    /// What a new entry leads to exists after a replay. False when a log cannot say so.
    fn record_entry(&self, dir: &Inode, bytes: &[u8]) -> Result<bool> {
        for entry in DiskEntry::iter(bytes) {
            let location = entry?.location();
            if location.item_type != INODE_ITEM {
                return Ok(false);
            }
            if !self.record_existence(dir, InodeNo(location.objectid), 0)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The directories of an inode's names exist after a replay, and nothing else has those
    /// names. False when a log cannot say so.
    fn record_ancestors(&self, inode: &Inode, base: &Base, depth: usize) -> Result<bool> {
        if depth > DEPTH_MAX {
            return Ok(false);
        }
        for (parent, name) in &base.names {
            let hash = name_hash(name);
            let was_taken = |note: &Note| note.removed.contains(&hash);
            if self.txn.noted(inode.tree_id(), parent.0, was_taken) == Some(true) {
                return Ok(false);
            }
            if !self.record_existence(inode, *parent, depth + 1)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Says in the log that an inode of the subvolume of `near` exists, if it is new.
    fn record_existence(&self, near: &Inode, ino: InodeNo, depth: usize) -> Result<bool> {
        let inode = self.names.core.inode(near.tree_id(), ino)?;
        let note = self.note(&inode);
        if !self.is_new(&inode) && !note.has_new_name {
            return Ok(true);
        }
        if note.lost_name || (note.is_logged && note.has_new_items) {
            return Ok(false);
        }
        if note.is_logged || (note.is_known && !note.has_new_items) {
            return Ok(true);
        }
        let Some(mut base) = self.base(&inode)? else {
            return Ok(false);
        };
        if !self.record_ancestors(&inode, &base, depth)? {
            return Ok(false);
        }
        if inode.kind().is_symlink() {
            return self.record_file(&inode, &base, &note);
        }
        if let Some((_, bytes)) = base.items.first_mut() {
            // Generation 0 tells a replay that nothing else of it was asked for.
            let mut item = inode.state().to_item();
            (item.generation, item.size, item.nbytes) = (0.into(), 0.into(), 0.into());
            *bytes = item.bytes().to_vec();
        }
        let log = self.txn.log(inode.tree_id())?;
        put_base(&log, &inode, &base, &Note::default())?;
        drop(log);
        self.txn.note(inode.tree_id(), inode.ino().0, |note| {
            (note.is_known, note.has_new_items) = (true, false);
        });
        Ok(true)
    }

    /// The inode item as it is now, names and attributes; `None` when there are too many.
    fn base(&self, inode: &Inode) -> Result<Option<Base>> {
        let ino = inode.ino().0;
        let item = inode.state().to_item();
        let mut items: Items = vec![(inode.key(), item.bytes().to_vec())];
        let range = &Key::new(ino, INODE_REF, 0)..&Key::new(ino, XATTR_ITEM, u64::MAX);
        match collect(inode, range)? {
            Some(more) => items.extend(more),
            None => return Ok(None),
        }
        let mut names = Vec::new();
        for (key, bytes) in &items {
            match key.item_type {
                INODE_REF => {
                    for entry in InodeRefEntry::iter(bytes) {
                        names.push((InodeNo(key.offset), entry?.name.to_vec()));
                    }
                }
                INODE_EXTREF => {
                    for entry in InodeExtrefEntry::iter(bytes) {
                        let entry = entry?;
                        names.push((entry.parent, entry.name.to_vec()));
                    }
                }
                _ => {}
            }
        }
        Ok(Some(Base { items, names }))
    }

    fn is_new(&self, inode: &Inode) -> bool {
        inode.state().generation == self.txn.generation()
    }

    fn note(&self, inode: &Inode) -> Note {
        let noted = self.txn.noted(inode.tree_id(), inode.ino().0, Note::clone);
        noted.unwrap_or_default()
    }

    fn note_logged(&self, inode: &Inode) {
        self.txn.note(inode.tree_id(), inode.ino().0, |note| {
            (note.is_logged, note.has_new_items) = (true, false);
            note.ranges.clear();
        });
    }
}

fn has_news(note: &Note) -> bool {
    note.has_new_items || !note.ranges.is_empty() || !note.removed.is_empty() || note.first_added.is_some()
}

/// Names and attributes change rarely: where the log has them, the inode item alone is written.
fn put_base(log: &LogEdit<'_>, inode: &Inode, base: &Base, note: &Note) -> Result<()> {
    if note.is_logged && !note.has_new_items {
        if let Some((key, bytes)) = base.items.first() {
            log.put(key, bytes)?;
        }
        return Ok(());
    }
    let items: Vec<(Key, &[u8])> = base.items.iter().map(|(key, bytes)| (*key, &**bytes)).collect();
    let last = Key::new(inode.ino().0, XATTR_ITEM, u64::MAX);
    Ok(log.replace(&inode.key(), &last, &items)?)
}

/// The items of a range; `None` when there are too many.
fn collect(inode: &Inode, range: Range<&Key>) -> Result<Option<Items>> {
    let mut items = Items::new();
    inode.root.tree.scan(range.start, range.end, |key, bytes| {
        items.push((*key, bytes.to_vec()));
        Ok(if items.len() > ITEMS_MAX { Scan::Stop } else { Scan::Continue })
    })?;
    Ok(Some(items).filter(|items| items.len() <= ITEMS_MAX))
}
