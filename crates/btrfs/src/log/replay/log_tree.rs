//! Looks items up in a log tree. Called by the other modules of the replay.

use std::ops::RangeInclusive;
use std::sync::Arc;

use btrfs_disk::hash::{extref_hash, name_hash};
use btrfs_disk::items::{DirEntry, DirLogItem, InodeExtrefEntry, InodeRefEntry, OnDisk};
use btrfs_disk::key::item_type;
use btrfs_disk::{At, Corrupt, InodeNo, Key, TreeId};
use btrfs_store::{Scan, Tree};

use crate::error::Result;

/// Items that are copied out at once.
const BATCH_ITEMS: usize = 256;

/// The log of one subvolume.
pub(super) struct LogTree {
    pub(super) tree: Arc<Tree>,
}

impl LogTree {
    pub(super) fn new(tree: Arc<Tree>) -> Self {
        Self { tree }
    }

    /// Copies of the next items from `from` on; none at the end.
    pub(super) fn batch(&self, from: &Key) -> Result<Vec<(Key, Vec<u8>)>> {
        copy_items(&self.tree, from, &Key::MAX, BATCH_ITEMS)
    }

    /// Whether the inode has this attribute.
    pub(super) fn has_attribute(&self, ino: InodeNo, name: &[u8]) -> Result<bool> {
        let key = Key::new(ino.0, item_type::XATTR_ITEM, name_hash(name));
        self.look(&key, |bytes| Ok(DirEntry::find(bytes, name)?.is_some()))
    }

    /// Whether the directory has this name at this position.
    pub(super) fn has_position(&self, dir: InodeNo, index: u64, name: &[u8]) -> Result<bool> {
        let key = Key::new(dir.0, item_type::DIR_INDEX, index);
        self.look(&key, |bytes| Ok(DirEntry::find(bytes, name)?.is_some()))
    }

    /// Whether the inode has this name in the item for names in this directory.
    pub(super) fn has_ref(&self, ino: InodeNo, dir: InodeNo, name: &[u8]) -> Result<bool> {
        let key = Key::new(ino.0, item_type::INODE_REF, dir.0);
        self.look(&key, |bytes| Ok(InodeRefEntry::find(bytes, name)?.is_some()))
    }

    /// Whether the inode has this name in an `INODE_EXTREF` item.
    pub(super) fn has_extref(&self, ino: InodeNo, dir: InodeNo, name: &[u8]) -> Result<bool> {
        let key = Key::new(ino.0, item_type::INODE_EXTREF, extref_hash(dir.0, name));
        self.look(&key, |bytes| Ok(InodeExtrefEntry::find(bytes, dir, name)?.is_some()))
    }

    /// The ranges of positions for which the log has all names.
    pub(super) fn ranges(&self, dir: InodeNo) -> Result<Vec<RangeInclusive<u64>>> {
        let end = |offset| Key::new(dir.0, item_type::DIR_LOG_INDEX, offset);
        let mut ranges = Vec::new();
        self.tree.scan(&end(0), &end(u64::MAX), |key, bytes| {
            let (item, _) = DirLogItem::parse_prefix(bytes)?;
            ranges.push(key.offset..=item.end.get());
            Ok(Scan::Continue)
        })?;
        Ok(ranges)
    }

    fn look(&self, key: &Key, f: impl FnOnce(&[u8]) -> Result<bool, Corrupt>) -> Result<bool> {
        let answer = self.tree.get_with(key, f)?;
        let place = At::Key(TreeId::TREE_LOG, *key);
        Ok(answer.transpose().map_err(|corrupt| corrupt.at(place))?.unwrap_or(false))
    }
}

/// Copies of up to `limit` items of a range.
pub(super) fn copy_items(tree: &Tree, from: &Key, to: &Key, limit: usize) -> Result<Vec<(Key, Vec<u8>)>> {
    let mut items = Vec::new();
    tree.scan(from, to, |key, bytes| {
        items.push((*key, bytes.to_vec()));
        Ok(if items.len() < limit { Scan::Continue } else { Scan::Stop })
    })?;
    Ok(items)
}
