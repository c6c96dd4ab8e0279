//! Adds and removes the back references of inodes, the copy of a name beside the inode: `INODE_REF`, or `INODE_EXTREF`
//! where that is full. Called by `link`, `rename` and `unlink`, and by log replay.

use std::sync::Arc;

use btrfs_disk::flags::Incompat;
use btrfs_disk::hash::extref_hash;
use btrfs_disk::items::splice;
use btrfs_disk::items::{InodeExtref, InodeExtrefEntry, InodeRef, InodeRefEntry};
use btrfs_disk::key::item_type;
use btrfs_disk::{At, Corrupt, Detail, InodeNo, Key};
use btrfs_store::{EditItem, Txn};

use super::entry::item_bytes_max;
use crate::error::{CallerError, Error, Result};
use crate::inode::{Core, Inode, ROOT_DIR_INO, Root};

/// The back references of all inodes.
#[derive(Debug)]
pub(crate) struct BackRefs {
    core: Arc<Core>,
}

impl BackRefs {
    pub(super) fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    /// Adds a back reference for `name` in `dir` to `child`. Fails with `TooManyLinks` before anything has changed.
    pub(crate) fn add(&self, txn: &Txn, child: &Inode, dir: InodeNo, name: &[u8], index: u64) -> Result<()> {
        child.note(txn, |note| {
            (note.names.has_got, note.names.has_new) = (true, true);
        });
        let bytes = InodeRefEntry { index, name }.build();
        let item_bytes_max = item_bytes_max(self.core.store.sizes().node);
        let key = Key::new(child.ino().0, item_type::INODE_REF, dir.0);
        let mut is_full = false;
        txn.edit(&child.root.tree, &key, |old| {
            let old = old.unwrap_or_default();
            is_full = old.len() + bytes.len() > item_bytes_max;
            Ok(if is_full { EditItem::Keep } else { EditItem::Put([old, &bytes].concat()) })
        })?;
        if !is_full {
            return Ok(());
        }
        if !self.core.store.has_incompat(Incompat::EXTENDED_IREF.bits()) {
            return Err(CallerError::TooManyLinks.into());
        }
        let bytes = InodeExtrefEntry { parent: dir, index, name }.build();
        let key = extref_key(child, dir, name);
        txn.edit(&child.root.tree, &key, |old| {
            let old = old.unwrap_or_default();
            is_full = old.len() + bytes.len() > item_bytes_max;
            Ok(if is_full { EditItem::Keep } else { EditItem::Put([old, &bytes].concat()) })
        })?;
        if is_full { Err(CallerError::TooManyLinks.into()) } else { Ok(()) }
    }

    /// Refuses a further name for which [`BackRefs::add`] would have no room.
    pub(crate) fn check_room(&self, child: &Inode, dir: InodeNo, name: &[u8]) -> Result<()> {
        let tree = &child.root.tree;
        let item_bytes_max = item_bytes_max(self.core.store.sizes().node);
        let len = |key: &Key| tree.get_with(key, <[u8]>::len).map(Option::unwrap_or_default);
        let in_ref = len(&Key::new(child.ino().0, item_type::INODE_REF, dir.0))?;
        if in_ref + size_of::<InodeRef>() + name.len() <= item_bytes_max {
            return Ok(());
        }
        let has_extref = self.core.store.has_incompat(Incompat::EXTENDED_IREF.bits());
        let in_extref = len(&extref_key(child, dir, name))?;
        if !has_extref || in_extref + size_of::<InodeExtref>() + name.len() > item_bytes_max {
            return Err(CallerError::TooManyLinks.into());
        }
        Ok(())
    }

    /// Removes the back reference for `name` in `dir` from `child`; returns the position of the name.
    pub(crate) fn remove(&self, txn: &Txn, child: &Inode, dir: InodeNo, name: &[u8]) -> Result<u64> {
        let mut index = None;
        let key = Key::new(child.ino().0, item_type::INODE_REF, dir.0);
        txn.edit_existing(&child.root.tree, &key, |old| {
            let found = InodeRefEntry::find(old, name)?;
            index = found.as_ref().map(|(entry, _)| entry.index);
            Ok(found.map_or(EditItem::Keep, |(_, range)| cut(old, range)))
        })?;
        if index.is_none() {
            let key = extref_key(child, dir, name);
            txn.edit_existing(&child.root.tree, &key, |old| {
                let found = InodeExtrefEntry::find(old, dir, name)?;
                index = found.as_ref().map(|(entry, _)| entry.index);
                Ok(found.map_or(EditItem::Keep, |(_, range)| cut(old, range)))
            })?;
        }
        let index = index.ok_or_else(|| missing_ref(&child.root, key))?;
        child.note(txn, |note| {
            note.names.has_new = true;
            note.names.lost.push((dir.0, index));
        });
        Ok(index)
    }

    /// The directory that holds a directory, from its back reference; `None` for the root
    /// directory of a subvolume.
    pub(crate) fn parent_dir(&self, dir: &Inode) -> Result<Option<InodeNo>> {
        self.parent_of(&dir.root, dir.ino())
    }

    /// The same for a directory that is not in memory.
    pub(super) fn parent_of(&self, root: &Root, dir: InodeNo) -> Result<Option<InodeNo>> {
        if dir == ROOT_DIR_INO {
            return Ok(None);
        }
        let last = Key::new(dir.0, item_type::INODE_REF, u64::MAX);
        let found = root.tree.at_or_before_with(&last, |key, _| *key)?;
        match found {
            Some(key) if key.objectid == dir.0 && key.item_type == item_type::INODE_REF => {
                Ok(Some(InodeNo(key.offset)))
            }
            _ => Err(missing_ref(root, last)),
        }
    }
}

fn extref_key(child: &Inode, dir: InodeNo, name: &[u8]) -> Key {
    Key::new(child.ino().0, item_type::INODE_EXTREF, extref_hash(dir.0, name))
}

fn cut(old: &[u8], range: std::ops::Range<usize>) -> EditItem {
    if range == (0..old.len()) { EditItem::Remove } else { EditItem::Put(splice(old, &range, &[])) }
}

#[cold]
fn missing_ref(root: &Root, key: Key) -> Error {
    let (expected, found) = (Detail::Text("a reference for the name"), Detail::Text("none"));
    Corrupt::new("inode", expected, found).at(At::Key(root.id, key)).into()
}
