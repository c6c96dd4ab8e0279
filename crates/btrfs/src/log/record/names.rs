//! Records names in the log: after a replay an inode has the names it has now, and no other. Called by `inode` for each
//! inode that is logged.
//!
//! A replay starts from the last commit, so the names of an inode in the log must agree with those of all other inodes
//! in the commit. A thread that puts the names of an inode into the log therefore puts there as well
//!
//! ```text
//! its directories     if they are new, with their own names
//! names it lost       in the directory that had them, a range of one position without a name: the
//!                     replay removes the commit's name there. If another inode has that name now (a
//!                     rename over it), that inode is put there as well
//! former owners       of a new name that another inode had in this transaction: that inode's
//!                     names, if it lives on; if it is gone, nothing of it stays in the log
//! ```
//!
//! and so on for each of those. An inode whose names changed after they were logged keeps its older state in the log,
//! as if the change had not happened yet: until one of these rules, or an fsync, reaches it. The kernel edits the log
//! with each unlink and rename instead, and commits where that is not enough, but it writes the same items, and replays
//! these alike.
//!
//! Committed instead: a directory of the last commit that got another name (directories below it may have moved above
//! it), names lost in a directory that is gone itself, names of subvolumes.
//!
//! Names must not change meanwhile (`Namespace::stop_changes`).

use std::sync::Arc;

use btrfs_disk::hash::name_hash;
use btrfs_disk::items::{DirLogItem, OnDisk};
use btrfs_disk::key::item_type::{DIR_INDEX, DIR_ITEM, DIR_LOG_INDEX, INODE_EXTREF, INODE_REF, XATTR_ITEM};
use btrfs_disk::{InodeNo, Key};
use btrfs_store::ablation::{Mutation, mutated};

use super::recorder::{Base, Recorder, Result, Stop};
use crate::inode::Inode;
use crate::notes::{Note, Removed};

impl Recorder<'_> {
    /// Puts all inodes into the log that the names of this inode need; the caller adds the names.
    pub(super) fn place(&mut self, inode: &Inode, base: &Base, note: &Note) -> Result<()> {
        let is_new = self.is_new(inode);
        if !is_new && !note.names.has_got && note.names.lost.is_empty() {
            return Ok(());
        }
        if inode.kind().is_dir() && !is_new {
            return Err(Stop::NeedsCommit);
        }
        if !self.visited.insert(inode.ino()) {
            return Ok(());
        }
        self.deeper(|recorder| {
            for (parent, name) in &base.names {
                recorder.clear_way_to(*parent, name)?;
            }
            for (dir, index) in note.names.lost.iter().filter(|_| !mutated(Mutation::LostNamesKept)) {
                let dir = InodeNo(*dir);
                recorder.forget_position(dir, *index)?;
                recorder.put_heirs(dir, inode.ino())?;
            }
            Ok(())
        })
    }

    /// Makes the directory of a name exist after a replay, and the name free.
    fn clear_way_to(&mut self, parent: InodeNo, name: &[u8]) -> Result<()> {
        if !mutated(Mutation::NoAncestors) {
            self.put_existing(parent)?;
        }
        let hash = name_hash(name);
        let others = |note: &Note| note.entries.removed.of_hash(hash).to_vec();
        let others = self.noted(parent, others).unwrap_or_default();
        for removed in others {
            self.settle(parent, removed)?;
        }
        Ok(())
    }

    /// Makes a name that a directory lost disappear in a replay, and puts the inode that had it into the log.
    pub(super) fn settle(&mut self, dir: InodeNo, removed: Removed) -> Result<()> {
        self.forget_position(dir, removed.index)?;
        let target = removed.target.ok_or(Stop::NeedsCommit)?;
        let note = self.note_of(InodeNo(target));
        if note.is_gone {
            return self.drop_gone(InodeNo(target), &note);
        }
        if mutated(Mutation::FormerOwnerForgotten) {
            return Ok(());
        }
        // An inode that lost a name and has another from the last commit keeps that.
        if !note.names.has_got && !note.is_in_log() {
            return Ok(());
        }
        let inode = self.names.core.inode(self.tree, InodeNo(target))?;
        if self.is_new(&inode) && !note.is_in_log() {
            return Ok(());
        }
        self.put_with_names(&inode)
    }

    /// Removes an inode that is gone from the log, with the names that it had.
    fn drop_gone(&mut self, ino: InodeNo, note: &Note) -> Result<()> {
        if !self.visited.insert(ino) {
            return Ok(());
        }
        self.deeper(|recorder| recorder.drop_gone_now(ino, note))
    }

    fn drop_gone_now(&mut self, ino: InodeNo, note: &Note) -> Result<()> {
        if note.is_in_log() && !mutated(Mutation::GoneInodesKept) {
            self.plan.remove(Key::new(ino.0, 0, 0), Key::new(ino.0, u8::MAX, u64::MAX));
            self.names
                .core
                .notes
                .change(self.txn, self.tree, ino, |note| (note.is_logged, note.is_known) = (false, false));
        }
        // All of its names are removed with it: with one of them left, its older contents would be there.
        for (dir, index) in &note.names.lost {
            let dir = InodeNo(*dir);
            // Names in a directory that is gone disappear with it.
            if !self.note_of(dir).is_gone {
                self.forget_position(dir, *index)?;
            }
            self.put_heirs(dir, ino)?;
        }
        for removed in note.entries.removed.iter() {
            let target = InodeNo(removed.target.ok_or(Stop::NeedsCommit)?);
            let child = self.note_of(target);
            match child.is_gone {
                true => self.drop_gone(target, &child)?,
                false => self.put_existing(target)?,
            }
        }
        Ok(())
    }

    /// Puts the inodes that took over names of `loser` in a directory into the log, so that these names exist after a
    /// replay.
    fn put_heirs(&mut self, dir: InodeNo, loser: InodeNo) -> Result<()> {
        let hashes = |note: &Note| note.entries.removed.hashes_of(loser.0).to_vec();
        let hashes = self.noted(dir, hashes).unwrap_or_default();
        let root = self.names.core.root(self.tree)?;
        for hash in hashes {
            let Some(bytes) = root.tree.get(&Key::new(dir.0, DIR_ITEM, hash))? else { continue };
            self.put_targets(&bytes)?;
        }
        Ok(())
    }

    /// Makes a position of a directory free after a replay.
    fn forget_position(&mut self, dir: InodeNo, index: u64) -> Result<()> {
        let note = self.note_of(dir);
        // A position used in this transaction is in no commit.
        let is_fresh = note.entries.first_added.is_some_and(|first| index >= first);
        if is_fresh && !note.is_logged {
            return Ok(());
        }
        if note.is_gone {
            return Err(Stop::NeedsCommit);
        }
        let key = |item_type| Key::new(dir.0, item_type, index);
        self.plan.remove(key(DIR_INDEX), key(DIR_INDEX));
        if is_fresh {
            // The range of all new positions includes it.
            return Ok(());
        }
        let inode = self.names.core.inode(self.tree, dir)?;
        if !note.is_in_log() {
            self.put_with_names(&inode)?;
        }
        if mutated(Mutation::NoDirRanges) {
            return Ok(());
        }
        self.plan.put(key(DIR_LOG_INDEX), DirLogItem { end: index.into() }.bytes().to_vec());
        Ok(())
    }

    /// Puts an inode into the log, if the commit does not have it, or not its names.
    pub(super) fn put_existing(&mut self, ino: InodeNo) -> Result<()> {
        let note = self.note_of(ino);
        let inode = self.names.core.inode(self.tree, ino)?;
        if !self.is_new(&inode) && !note.names.has_got {
            return Ok(());
        }
        self.put_with_names(&inode)
    }

    /// Puts the names of an inode into the log: an inode item of generation 0 and size 0 marks for a replay that the
    /// rest was not synced. A symbolic link is put there whole.
    fn put_with_names(&mut self, inode: &Arc<Inode>) -> Result<()> {
        let note = self.note_of(inode.ino());
        if self.visited.contains(&inode.ino()) || (note.is_in_log() && !note.names.has_new) {
            return Ok(());
        }
        if note.is_synced_unnamed {
            // Its contents were synced, and have to appear with its first name.
            return Err(Stop::NeedsCommit);
        }
        if !note.is_in_log() && note.has_new_items && !self.is_new(inode) {
            // A replay takes the attributes that come with the names, and leaves the mode as committed: an access list
            // would not match the permission bits.
            return Err(Stop::NeedsCommit);
        }
        let mut base = self.base(inode)?;
        self.place(inode, &base, &note)?;
        if note.is_in_log() && mutated(Mutation::NoNewName) {
            return Ok(());
        } else if note.is_in_log() {
            self.put_names(inode, &base);
        } else if inode.kind().is_symlink() {
            let contents = self.contents(inode, &note)?;
            self.put_base(inode, base, &note);
            self.put_contents(contents);
            self.note_logged(inode, inode.change_count());
            return Ok(());
        } else {
            if let Some((_, bytes)) = base.items.first_mut() {
                let mut item = inode.state().to_item();
                (item.generation, item.size, item.nbytes) = (0.into(), 0.into(), 0.into());
                *bytes = item.bytes().to_vec();
            }
            self.put_base(inode, base, &note);
        }
        inode.note(self.txn, Note::set_named);
        Ok(())
    }

    /// Puts the names alone: the log has the rest of the inode in the state of its last sync.
    fn put_names(&mut self, inode: &Inode, base: &Base) {
        let is_name = |key: &Key| matches!(key.item_type, INODE_REF | INODE_EXTREF);
        let items = base.items.iter().filter(|(key, _)| is_name(key)).cloned().collect();
        let key = |item_type, offset| Key::new(inode.ino().0, item_type, offset);
        self.plan.replace(key(INODE_REF, 0), key(INODE_EXTREF, u64::MAX), items);
    }

    /// Names and attributes change rarely: where the log has them, the inode item alone is written.
    pub(super) fn put_base(&mut self, inode: &Inode, mut base: Base, note: &Note) {
        if note.is_logged && !note.has_new_items {
            if note.names.has_new && !mutated(Mutation::NoNewName) {
                self.put_names(inode, &base);
            }
            if !base.items.is_empty() {
                let (key, bytes) = base.items.swap_remove(0);
                self.plan.put(key, bytes);
            }
            return;
        }
        let last = Key::new(inode.ino().0, XATTR_ITEM, u64::MAX);
        self.plan.replace(inode.key(), last, base.items);
    }
}
