//! Replays names in directories: removes those missing in the log, adds others, and moves conflicting ones away. Called
//! by the replay for each directory.

use btrfs_disk::convert::to_u64;
use btrfs_disk::hash::name_hash;
use btrfs_disk::items::DirEntry;
use btrfs_disk::key::item_type;
use btrfs_disk::{At, Corrupt, Detail, InodeNo, Key};
use btrfs_store::Txn;

use super::Replay;
use super::log_tree::copy_items;
use crate::dir::{Found, NewName, Stored};
use crate::error::Result;
use crate::inode::{DirState, Inode};

/// Items that adding or removing a name changes: two entries, a reference, two inodes.
const NAME_ITEMS: usize = 6;
/// Names looked at with one search.
const NAMES_PER_BATCH: usize = 256;

/// Which names of a directory to remove.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Removed {
    /// Those in the log's ranges that the log does not have.
    NotInLog,
    /// All.
    All,
}

/// Whether the name is added with a back reference.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum BackRef {
    /// It is added too.
    Added,
    /// The caller copies it from the log's item.
    Logged,
}

/// A name of a directory.
struct Name {
    name: Vec<u8>,
    stored: Stored,
}

impl Replay<'_> {
    /// Removes names of a directory; nothing when there is no such directory yet.
    pub(super) fn remove_names(&mut self, dir: InodeNo, removed: Removed) -> Result<()> {
        let Some(dir) = self.find(dir)? else {
            return Ok(());
        };
        let ranges = match removed {
            Removed::All => vec![0..=u64::MAX],
            Removed::NotInLog => self.log.ranges(dir.ino())?,
        };
        for range in ranges {
            let last = Key::new(dir.ino().0, item_type::DIR_INDEX, *range.end());
            let mut next = Some(Key::new(dir.ino().0, item_type::DIR_INDEX, *range.start()));
            while let Some(from) = next.filter(|from| *from <= last) {
                let batch = copy_items(&self.root.tree, &from, &last, NAMES_PER_BATCH)?;
                next = batch.last().and_then(|(key, _)| key.next());
                for (key, bytes) in &batch {
                    let name = Name::parse(bytes).map_err(|wrong| wrong.at(self.at(key)))?;
                    let stays =
                        removed == Removed::NotInLog && self.log.has_position(dir.ino(), key.offset, &name.name)?;
                    if !stays {
                        self.unlink_in_own_step(&dir, &name)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Replays one name of a directory in the log.
    pub(super) fn position(&mut self, key: &Key, bytes: &[u8]) -> Result<()> {
        let (dir, index) = (self.inode_of(InodeNo(key.objectid))?, key.offset);
        let new = Name::parse(bytes).map_err(|wrong| wrong.at(self.at(key)))?;
        let ino = InodeNo(new.stored.location.objectid);
        // Names of subvolumes are changed by commits only.
        if new.stored.location.item_type != item_type::INODE_ITEM {
            return Ok(());
        }
        let target = self.find(ino)?;
        let has_name = match self.by_name(&dir, &new.name)? {
            Some(old) => self.is_same_or_unlink(&dir, &old, &new, target.is_some())?,
            None => false,
        };
        let has_index = match self.by_index(&dir, index, &new.name)? {
            Some(old) => self.is_same_or_unlink(&dir, &old, &new, target.is_some())?,
            None => false,
        };
        if has_name && has_index {
            return Ok(());
        }
        // With its back reference the name is added in the next pass.
        let comes_later =
            self.log.has_ref(ino, dir.ino(), &new.name)? || self.log.has_extref(ino, dir.ino(), &new.name)?;
        // A name stays at its present position.
        let is_taken = comes_later || self.by_name(&dir, &new.name)?.is_some();
        let Some(target) = target.filter(|_| !is_taken) else {
            return Ok(());
        };
        self.change(NAME_ITEMS, |txn| self.link(txn, &dir, &target, &new.name, index, BackRef::Added))?;
        if !target.kind().is_dir() {
            self.touched.insert(ino);
        }
        Ok(())
    }

    /// Whether `old` leads where `new` does. If not it is removed, unless the inode of `new` is missing.
    fn is_same_or_unlink(&mut self, dir: &Inode, old: &Name, new: &Name, exists: bool) -> Result<bool> {
        if old.stored.location == new.stored.location && old.stored.kind == new.stored.kind {
            return Ok(true);
        }
        if exists {
            self.unlink_in_own_step(dir, old)?;
        }
        Ok(false)
    }

    fn unlink_in_own_step(&mut self, dir: &Inode, name: &Name) -> Result<()> {
        let ino = self.change(NAME_ITEMS, |txn| self.unlink(txn, dir, &name.name, &name.stored))?;
        self.touched.insert(ino);
        Ok(())
    }

    /// Removes a name of any inode; returns the inode, whose links have to be counted.
    fn unlink(&self, txn: &Txn, dir: &Inode, name: &[u8], stored: &Stored) -> Result<InodeNo> {
        if stored.location.item_type != item_type::INODE_ITEM {
            let (expected, found) = (Detail::Text("an inode"), stored.location.into());
            let wrong = Corrupt::new("name that the log removes", expected, found);
            return Err(wrong.at(At::Inode(self.root.id, dir.ino())).into());
        }
        let inode = self.inode_of(InodeNo(stored.location.objectid))?;
        self.take(txn, dir, name, &inode)?;
        Ok(inode.ino())
    }

    /// Removes a name of `inode`, with the reference. The times of the directory stay: the log has them in the
    /// directory's inode.
    pub(super) fn take(&self, txn: &Txn, dir: &Inode, name: &[u8], inode: &Inode) -> Result<()> {
        let index = self.namespace.back_refs.remove(txn, inode, dir.ino(), name)?;
        self.namespace.remove_name(txn, dir, name, index)?;
        dir.change(txn, |state| {
            state.set_sizes(state.disk_size.saturating_sub(2 * to_u64(name.len())));
        });
        let now = self.namespace.core.now();
        inode.change(txn, |state| state.ctime = now);
        Ok(())
    }

    /// Removes the entry with this name in `dir`, and the one at this position.
    pub(super) fn clear_way(&self, txn: &Txn, dir: &Inode, name: &[u8], index: u64) -> Result<Vec<InodeNo>> {
        let mut unlinked = Vec::new();
        if let Some(old) = self.by_index(dir, index, name)? {
            unlinked.push(self.unlink(txn, dir, &old.name, &old.stored)?);
        }
        if let Some(old) = self.by_name(dir, name)? {
            unlinked.push(self.unlink(txn, dir, &old.name, &old.stored)?);
        }
        Ok(unlinked)
    }

    /// True when the directory has this name at this position, and it leads to the inode.
    pub(super) fn is_linked(&self, dir: &Inode, ino: InodeNo, name: &[u8], index: u64) -> Result<bool> {
        let leads = |name: Option<Name>| name.is_some_and(|name| name.leads_to(ino));
        Ok(leads(self.by_index(dir, index, name)?) && leads(self.by_name(dir, name)?))
    }

    /// Adds a name. The times of the directory are those in the log.
    pub(super) fn link(
        &self,
        txn: &Txn,
        dir: &Inode,
        inode: &Inode,
        name: &[u8],
        index: u64,
        back_ref: BackRef,
    ) -> Result<()> {
        let kind = inode.kind();
        let location = Key::new(inode.ino().0, item_type::INODE_ITEM, 0);
        let found = Found { tree: self.root.id, ino: inode.ino(), kind };
        let new = NewName { name, stored: Stored { location, kind }, found };
        // No other thread uses the volume yet. Positions in a log are not the last ones of their directory, whose state
        // is not updated.
        let mut names = DirState { next_index: Some(index) };
        if back_ref == BackRef::Added {
            self.namespace.back_refs.add(txn, inode, dir.ino(), name, index)?;
        }
        self.namespace.add_name(txn, dir, &mut names, &new)?;
        dir.change(txn, |state| {
            state.set_sizes(state.disk_size.saturating_add(2 * to_u64(name.len())));
        });
        Ok(())
    }

    fn by_name(&self, dir: &Inode, name: &[u8]) -> Result<Option<Name>> {
        let key = Key::new(dir.ino().0, item_type::DIR_ITEM, name_hash(name));
        self.look_up(&key, name)
    }

    fn by_index(&self, dir: &Inode, index: u64, name: &[u8]) -> Result<Option<Name>> {
        let key = Key::new(dir.ino().0, item_type::DIR_INDEX, index);
        self.look_up(&key, name)
    }

    fn look_up(&self, key: &Key, name: &[u8]) -> Result<Option<Name>> {
        let found = self.root.tree.get_with(key, |bytes| {
            let Some((entry, _)) = DirEntry::find(bytes, name)? else {
                return Ok(None);
            };
            Ok(Some(Name { name: name.to_vec(), stored: Stored::of(&entry)? }))
        })?;
        let found = found.transpose().map_err(|wrong: Corrupt| wrong.at(self.at(key)))?;
        Ok(found.flatten())
    }

    fn at(&self, key: &Key) -> At {
        At::Key(self.root.id, *key)
    }
}

impl Name {
    fn parse(bytes: &[u8]) -> Result<Self, Corrupt> {
        let (entry, _) = DirEntry::parse_prefix(bytes)?;
        Ok(Self { name: entry.name.to_vec(), stored: Stored::of(&entry)? })
    }

    fn leads_to(&self, ino: InodeNo) -> bool {
        let location = &self.stored.location;
        location.item_type == item_type::INODE_ITEM && location.objectid == ino.0
    }
}
