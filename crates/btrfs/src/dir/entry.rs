//! Adds and removes the two copies of a name that lie in the directory: `DIR_ITEM` and `DIR_INDEX`. Called by the
//! operations on names here (`create`, `link`, `rename`, `unlink`), by `subvol` and by log replay.

use btrfs_disk::convert::{to_u64, to_usize, usize_from};
use btrfs_disk::hash::name_hash;
use btrfs_disk::items::{DIR_INDEX_FIRST, DirEntry as DiskEntry, DirItem, splice};
use btrfs_disk::key::item_type;
use btrfs_disk::{At, Corrupt, Detail, Key};
use btrfs_store::{EditItem, Txn};

use super::lookup::Stored;
use super::{Found, Namespace};
use crate::error::{CallerError, Error, Result};
use crate::inode::{DirState, Inode, Timestamp, kind_on_disk};
use crate::notes::{Note, Removed};

/// Bytes of a leaf that are not items: its header.
const LEAF_HEADER_BYTES: usize = 101;
/// Bytes of a leaf that an item takes beside its own.
const ITEM_HEADER_BYTES: usize = 25;

/// Largest item that a leaf of `node_bytes` can hold.
pub(crate) fn item_bytes_max(node_bytes: u32) -> usize {
    usize_from(node_bytes).saturating_sub(LEAF_HEADER_BYTES + ITEM_HEADER_BYTES)
}

/// A name about to enter a directory.
#[derive(Clone, Copy)]
pub(crate) struct NewName<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) stored: Stored,
    pub(crate) found: Found,
}

impl Namespace {
    /// The position that the next name of `dir` gets: one that no name had since the last commit.
    pub(crate) fn next_index(&self, dir: &Inode, names: &mut DirState) -> Result<u64> {
        if let Some(index) = names.next_index {
            return Ok(index);
        }
        let index = self.listing_end(dir)?;
        // A position that is free in the running transaction may be taken in the committed tree, into which a log is
        // replayed.
        let removed = self.core.noted(dir, Note::removed_max);
        let index = match removed.flatten() {
            Some(removed) => index.max(removed.checked_add(1).ok_or(Error::NoSpace(None))?),
            None => index,
        };
        names.next_index = Some(index);
        Ok(index)
    }

    /// The index after the last name: new names are not placed before it.
    ///
    /// # Errors
    /// When the tree cannot be read, or no index is left.
    pub(crate) fn listing_end(&self, dir: &Inode) -> Result<u64> {
        let last = Key::new(dir.ino().0, item_type::DIR_INDEX, u64::MAX);
        match dir.root.tree.at_or_before(&last)? {
            Some((key, _)) if key.objectid == dir.ino().0 && key.item_type == item_type::DIR_INDEX => {
                Ok(key.offset.checked_add(1).ok_or(Error::NoSpace(None))?)
            }
            _ => Ok(DIR_INDEX_FIRST),
        }
    }

    /// Adds a name to `dir`, whose `names` lock the caller holds. Fails with `Exists` or `NameTooLong` (names of one
    /// hash fill a leaf) before anything has changed.
    pub(crate) fn add_name(&self, txn: &Txn, dir: &Inode, names: &mut DirState, new: &NewName<'_>) -> Result<u64> {
        let index = self.next_index(dir, names)?;
        let bytes = DiskEntry::build(new.stored.location, txn.generation(), kind_on_disk(new.stored.kind), new.name);
        let key = Key::new(dir.ino().0, item_type::DIR_ITEM, name_hash(new.name));
        match txn.insert(&dir.root.tree, &key, &bytes) {
            Err(btrfs_store::Error::Exists { .. }) => self.add_to_hash(txn, dir, &key, new, &bytes)?,
            result => result?,
        }
        let index_key = Key::new(dir.ino().0, item_type::DIR_INDEX, index);
        txn.insert(&dir.root.tree, &index_key, &bytes)?;
        names.next_index = Some(index.checked_add(1).ok_or(Error::NoSpace(None))?);
        dir.note(txn, |note| note.add_name(index));
        self.dentries.insert(dir.tree_id(), dir.ino(), new.name, new.found);
        Ok(index)
    }

    /// The item of this hash exists: the name goes behind the others in it.
    fn add_to_hash(&self, txn: &Txn, dir: &Inode, key: &Key, new: &NewName<'_>, bytes: &[u8]) -> Result<()> {
        let item_bytes_max = item_bytes_max(self.core.store.sizes().node);
        let mut refusal = None;
        txn.edit(&dir.root.tree, key, |old| {
            let old = old.unwrap_or_default();
            if DiskEntry::find(old, new.name)?.is_some() {
                refusal = Some(CallerError::Exists);
            } else if old.len() + bytes.len() > item_bytes_max {
                refusal = Some(CallerError::NameTooLong);
            } else {
                return Ok(EditItem::Put([old, bytes].concat()));
            }
            Ok(EditItem::Keep)
        })?;
        refusal.map_or(Ok(()), |what| Err(what.into()))
    }

    /// Refuses a name for which the item of its hash has no room.
    pub(crate) fn check_room(&self, dir: &Inode, name: &[u8]) -> Result<()> {
        let key = Key::new(dir.ino().0, item_type::DIR_ITEM, name_hash(name));
        let taken = dir.root.tree.get_with(&key, <[u8]>::len)?.unwrap_or(0);
        let needed = taken + size_of::<DirItem>() + name.len();
        if needed > item_bytes_max(self.core.store.sizes().node) {
            return Err(CallerError::NameTooLong.into());
        }
        Ok(())
    }

    /// Removes a name from `dir`, whose `names` lock the caller holds.
    pub(crate) fn remove_name(&self, txn: &Txn, dir: &Inode, name: &[u8], index: u64) -> Result<()> {
        let tree = &dir.root.tree;
        self.dentries.remove(dir.tree_id(), dir.ino(), name);
        let hash = name_hash(name);
        let key = Key::new(dir.ino().0, item_type::DIR_ITEM, hash);
        let mut was_there = false;
        let mut target = None;
        txn.edit(tree, &key, |old| {
            let old = old.unwrap_or_default();
            let Some((entry, range)) = DiskEntry::find(old, name)? else {
                return Ok(EditItem::Keep);
            };
            was_there = true;
            let location = entry.location();
            target = (location.item_type == item_type::INODE_ITEM).then_some(location.objectid);
            Ok(if range == (0..old.len()) { EditItem::Remove } else { EditItem::Put(splice(old, &range, &[])) })
        })?;
        dir.note(txn, |note| note.remove_name(hash, Removed { index, target }));
        let index_key = Key::new(dir.ino().0, item_type::DIR_INDEX, index);
        if !was_there {
            return Err(missing_name(dir, key));
        }
        // A damaged reference may have the index of another name, which would be removed from the listing.
        let mut is_ours = false;
        txn.edit(tree, &index_key, |old| {
            is_ours = old.is_some_and(|old| DiskEntry::parse_prefix(old).is_ok_and(|(entry, _)| entry.name == name));
            Ok(if is_ours { EditItem::Remove } else { EditItem::Keep })
        })?;
        if is_ours { Ok(()) } else { Err(missing_name(dir, index_key)) }
    }
}

#[cold]
fn missing_name(dir: &Inode, key: Key) -> Error {
    let (expected, found) = (Detail::Text("the entry of a name"), Detail::Text("none"));
    Corrupt::new("directory", expected, found).at(At::Key(dir.tree_id(), key)).into()
}

/// A directory got a name: its size and times.
pub(crate) fn grow(txn: &Txn, dir: &Inode, name: &[u8], now: Timestamp) {
    dir.change(txn, |state| {
        state.set_sizes(state.disk_size.saturating_add(2 * to_u64(name.len())));
        (state.mtime, state.ctime) = (now, now);
    });
}

/// A directory lost a name: its size and times.
pub(crate) fn shrink(txn: &Txn, dir: &Inode, name: &[u8], now: Timestamp) {
    dir.change(txn, |state| {
        state.set_sizes(state.disk_size.saturating_sub(2 * to_u64(name.len())));
        (state.mtime, state.ctime) = (now, now);
    });
}

/// The longest target of a symlink: one inline extent in a leaf, and no longer than a path may be.
pub(crate) fn symlink_bytes_max(node_bytes: u32) -> usize {
    const PATH_BYTES_MAX: u64 = 4095;
    let inline_start = btrfs_disk::items::FILE_EXTENT_INLINE_START;
    item_bytes_max(node_bytes).saturating_sub(inline_start).min(to_usize(PATH_BYTES_MAX))
}
