//! Records one inode, and those that it takes along, in the log. Called by `record` for each fsync.

use std::sync::Arc;

use btrfs_disk::items::{DirEntry as DiskEntry, DirLogItem, FileKind, OnDisk};
use btrfs_disk::key::item_type::{DIR_INDEX, DIR_LOG_INDEX, INODE_ITEM};
use btrfs_disk::{InodeNo, Key};
use btrfs_store::ablation::{Mutation, mutated};
use vfs::file_system::SyncWhat;

use super::contents::Contents;
use super::plan::Items;
use super::recorder::{Base, Recorder, Result, Stop, collect};
use super::{ITEMS_MAX, Recorded};
use crate::inode::{FileType, Inode};
use crate::notes::Note;

impl Recorder<'_> {
    /// Puts an inode into the log, with the inodes that its names need.
    pub(super) fn record(mut self, inode: &Arc<Inode>, what: SyncWhat) -> Result<Recorded> {
        let change_count = inode.change_count();
        let note = self.note_of(inode.ino());
        if !self.has_news(inode, &note, what) {
            return Ok(Recorded::Nothing);
        }
        let contents = match inode.kind() {
            FileType::Directory => Contents::default(),
            _ => self.contents(inode, &note)?,
        };
        // Where the log has the names already, those of other inodes are not needed.
        let has_names = note.is_logged && !note.names.has_new && !note.has_new_items;
        let _unchanging = (!has_names || inode.kind().is_dir()).then(|| self.names.stop_changes());
        if has_names {
            self.put_base(inode, Base::item_only(inode), &note);
        } else {
            // The note includes all changes of the state that is read next.
            let note = self.note_of(inode.ino());
            let base = self.base(inode)?;
            self.place(inode, &base, &note)?;
            self.put_base(inode, base, &note);
        }
        self.visited.insert(inode.ino());
        if inode.kind().is_dir() {
            self.put_entries(inode)?;
        }
        self.put_contents(contents);
        if self.plan.item_count() > ITEMS_MAX {
            return Err(Stop::NeedsCommit);
        }
        self.plan.apply(&self.txn.log(self.tree)?)?;
        self.note_logged(inode, change_count);
        Ok(Recorded::New)
    }

    /// True when the inode has a change that neither the commit nor the log has.
    fn has_news(&self, inode: &Inode, note: &Note, what: SyncWhat) -> bool {
        if !note.is_logged && self.is_new(inode) {
            return true;
        }
        let has_new_data = note.has_new_size || !note.ranges.is_empty();
        if what == SyncWhat::Data && inode.kind().is_file() {
            // Times and owners are not needed to read the data. A name is: a file that was committed before it had one
            return match (mutated(Mutation::SizeForgotten), mutated(Mutation::ExtentsForgotten)) {
                (false, false) => has_new_data || note.names.has_new,
                (true, _) => !note.ranges.is_empty(),
                (_, true) => note.has_new_size,
            };
        }
        let is_changed = match note.is_logged {
            _ if mutated(Mutation::AttributesForgotten) => false,
            true => note.logged_count != inode.change_count(),
            false => inode.is_staged_in(self.txn.generation()),
        };
        let has_new_entries = note.entries.first_unlogged.is_some() || !note.entries.unlogged_removed.is_empty();
        is_changed || has_new_data || note.has_new_items || note.names.has_new || has_new_entries
    }

    /// The entries that a directory got and lost since it was logged last. From the first position that it used in this
    /// transaction on, the log has all of its entries.
    fn put_entries(&mut self, dir: &Inode) -> Result<()> {
        let note = self.note_of(dir.ino());
        let is_whole = self.is_new(dir) && !note.is_logged;
        let from = if is_whole { Some(0) } else { note.entries.first_unlogged };
        if let Some(from) = from {
            let entries = self.entries(dir, from)?;
            for (_, bytes) in entries.iter().filter(|_| !mutated(Mutation::NoTargets)) {
                self.put_whole_targets(bytes)?;
            }
            self.put_range(dir, if is_whole { Some(0) } else { note.entries.first_added });
            self.plan.replace(index_key(dir, from), index_key(dir, u64::MAX), entries);
        }
        for hash in note.entries.unlogged_removed.iter() {
            for one in note.entries.removed.of_hash(*hash) {
                self.settle(dir.ino(), *one)?;
            }
        }
        Ok(())
    }

    fn put_range(&mut self, dir: &Inode, from: Option<u64>) {
        if let Some(from) = from.filter(|_| !mutated(Mutation::NoDirRanges)) {
            let end = DirLogItem { end: u64::MAX.into() };
            self.plan.put(Key::new(dir.ino().0, DIR_LOG_INDEX, from), end.bytes().to_vec());
        }
    }

    fn entries(&self, dir: &Inode, from: u64) -> Result<Items> {
        collect(dir, &(index_key(dir, from)..index_key(dir, u64::MAX)))
    }

    /// As [`Self::put_targets`]; a new directory that is not in the log yet is logged with all its entries, as by the
    /// kernel.
    fn put_whole_targets(&mut self, bytes: &[u8]) -> Result<()> {
        for entry in DiskEntry::iter(bytes) {
            let entry = entry?;
            let location = entry.location();
            let ino = InodeNo(location.objectid);
            match (location.item_type, entry.kind()) {
                (INODE_ITEM, Some(FileKind::Directory)) if !mutated(Mutation::NoEntriesBelow) => {
                    self.put_directory(ino)?;
                }
                (INODE_ITEM, _) => self.put_existing(ino)?,
                _ => return Err(Stop::NeedsCommit),
            }
        }
        Ok(())
    }

    /// Logs a new directory with its entries, and new directories below it likewise. A directory that is already logged
    /// with its entries stays as it is, and a committed one needs no log.
    fn put_directory(&mut self, ino: InodeNo) -> Result<()> {
        let note = self.note_of(ino);
        let dir = self.names.core.inode(self.tree, ino)?;
        if !self.is_new(&dir) || note.is_logged || note.is_synced_unnamed {
            return self.put_existing(ino);
        }
        self.deeper(|recorder| {
            let change_count = dir.change_count();
            let base = recorder.base(&dir)?;
            recorder.place(&dir, &base, &note)?;
            recorder.put_base(&dir, base, &note);
            recorder.put_entries(&dir)?;
            recorder.note_logged(&dir, change_count);
            Ok(())
        })
    }

    /// Puts the inodes that a new entry leads to into the log.
    pub(super) fn put_targets(&mut self, bytes: &[u8]) -> Result<()> {
        for entry in DiskEntry::iter(bytes) {
            let location = entry?.location();
            if location.item_type != INODE_ITEM {
                return Err(Stop::NeedsCommit);
            }
            self.put_existing(InodeNo(location.objectid))?;
        }
        Ok(())
    }
}

fn index_key(dir: &Inode, index: u64) -> Key {
    Key::new(dir.ino().0, DIR_INDEX, index)
}
