//! Lists the extents of a file, and which of them are shared. Called by `vfs_impl::xattr`, whose text
//! `open_volume::sharing` formats.

use std::sync::Arc;

use btrfs_disk::Key;
use btrfs_disk::key::item_type::EXTENT_DATA;

use super::read::look_up;
use crate::error::Result;
use crate::extents::{FILE_BYTES_MAX, FileExtent, Kind, Stretch};
use crate::inode::{Core, Inode};
use crate::writeback;

/// A part of a file with an extent on disk: no hole, and not inline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedExtent {
    /// First byte in the file.
    pub offset: u64,
    /// Bytes of the file.
    pub len: u64,
    /// Address of the first byte within the volume; of the first compressed one, if it is compressed.
    pub logical: u64,
    /// Another file, another place of this one, or another subvolume refers to the same extent.
    pub is_shared: bool,
}

/// The extents from `offset` on, at most `count` of them, and where the next ones begin. Dirty data is written first.
/// An extent is shared where the kernel's FIEMAP says so: when more than one reference leads to it, or to a tree block
/// on the way to its item.
///
/// # Errors
/// Those of flushing; damage and I/O.
pub(crate) fn shared_extents(
    core: &Core,
    inode: &Arc<Inode>,
    offset: u64,
    count: usize,
) -> Result<(Vec<SharedExtent>, Option<u64>)> {
    writeback::flush_inode(core, inode)?;
    let (items, next) = items_from(core, inode, offset, count)?;
    // Not under the lock of the file's data: a thread that waits for that may have a handle, which a commit waits for,
    // which the store's answers wait for.
    let (store, tree) = (&core.store, &inode.root.tree);
    let mut list = Vec::with_capacity(items.len());
    // Whether the leaf of the last item is shared, and where the next leaf begins.
    let mut leaf = (false, Some(Key::MIN));
    for item in items {
        let key = Key::new(inode.ino().0, EXTENT_DATA, item.start);
        if leaf.1.is_some_and(|upper| key >= upper) {
            leaf = store.is_leaf_shared(tree, &key)?;
        }
        let first = if item.is_compressed() { item.disk } else { item.disk_at(item.start) };
        let is_shared = leaf.0 || store.data_holder_count(item.disk)? > 1;
        list.push(SharedExtent { offset: item.start, len: item.len, logical: first.0, is_shared });
    }
    Ok((list, next))
}

/// The items from `offset` on that have space on disk, at most `count`, and where the next ones begin.
fn items_from(core: &Core, inode: &Inode, offset: u64, count: usize) -> Result<(Vec<FileExtent>, Option<u64>)> {
    let _layers = inode.data.inner.read();
    let mut items = Vec::new();
    let mut at = offset;
    while at < FILE_BYTES_MAX {
        if items.len() >= count {
            return Ok((items, Some(at)));
        }
        let (stretch, next) = look_up(core, inode, at..FILE_BYTES_MAX)?;
        at = next.max(at + 1);
        if let Stretch::Item(item) = stretch
            && !item.is_hole()
            && item.kind != Kind::Inline
        {
            items.push(item);
        }
    }
    Ok((items, None))
}
