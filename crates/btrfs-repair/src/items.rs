//! Decides which items of a damaged block a repair trusts, and which it may drop. Called by `edit`, `round` and `mend`.

use std::borrow::Cow;

use btrfs_disk::convert::to_u64;
use btrfs_disk::flags::InodeFlags;
use btrfs_disk::items::{FileExtent, FileExtentHead, FileExtentItem, FileKind, InodeItem, OnDisk as _, RootItem, mode};
use btrfs_disk::key::item_type;
use btrfs_disk::verify::{self, Expect};
use btrfs_disk::{Key, Logical, TreeId};

use crate::image::Image;

/// The data of an item that the verifier accepts, or would accept but for a field that follows from other items, or
/// that does not matter. `None` for an invalid item.
pub(crate) fn believed<'a>(image: &Image, tree: TreeId, key: &Key, data: &'a [u8]) -> Option<Cow<'a, [u8]>> {
    let media = &image.media;
    let expect = Expect::at(&media.format, Logical(0), media.generation_max);
    let is_valid = |data: &[u8]| verify::item(key, data, tree, &expect).is_ok();
    if is_valid(data) {
        return Some(Cow::Borrowed(data));
    }
    let newest = media.generation_max.0;
    let (judged, kept) = match key.item_type {
        item_type::EXTENT_DATA => extent(data).map(|data| (data.clone(), data))?,
        item_type::INODE_ITEM if tree.is_subvolume() => inode(data, newest)?,
        item_type::ROOT_ITEM => root(data, newest).map(|data| (data.clone(), data))?,
        _ => return None,
    };
    is_valid(&judged).then_some(Cow::Owned(kept))
}

/// A file extent that exceeds its data is cut to the data; an inline one gets the length of its data.
fn extent(data: &[u8]) -> Option<Vec<u8>> {
    match FileExtent::parse(data).ok()? {
        FileExtent::Inline { head, data: inline } if head.compression == 0 => {
            let head = FileExtentHead { ram_bytes: to_u64(inline.len()).into(), ..*head };
            Some([head.bytes(), inline].concat())
        }
        FileExtent::Extent(item) if !item.is_hole() && item.head.compression == 0 => {
            let left = item.disk_num_bytes.get().checked_sub(item.offset.get())?;
            let num_bytes = left.min(item.num_bytes.get());
            Some(FileExtentItem { num_bytes: num_bytes.into(), ..*item }.bytes().to_vec())
        }
        _ => None,
    }
}

/// An inode from the future, with unknown flags, or without a type keeps all other fields. The type is left out of the
/// result, as directory entries have it; the second value, with any type, is for the verifier.
fn inode(data: &[u8], newest: u64) -> Option<(Vec<u8>, Vec<u8>)> {
    let item = InodeItem::parse(data).ok()?;
    let known = InodeItem {
        generation: item.generation.get().min(newest).into(),
        transid: item.transid.get().min(newest).into(),
        flags: (item.inode_flags() & InodeFlags::NAMED).bits().into(),
        ..*item
    };
    if item.kind().is_some() && item.mode.get() & !(mode::S_IFMT | mode::PERMISSIONS) == 0 {
        return Some((known.bytes().to_vec(), known.bytes().to_vec()));
    }
    let permissions = item.mode.get() & mode::PERMISSIONS;
    let judged = InodeItem { mode: (FileKind::File.mode_bits() | permissions).into(), ..known };
    let kept = InodeItem { mode: permissions.into(), ..known };
    Some((judged.bytes().to_vec(), kept.bytes().to_vec()))
}

/// A root item from the future: its block is rewritten, and the item gets its generation.
fn root(data: &[u8], newest: u64) -> Option<Vec<u8>> {
    let item = RootItem::read(data).ok()?;
    let generation = item.generation.get().min(newest).into();
    let generation_v2 = item.generation_v2.get().min(newest).into();
    let known = RootItem { generation, generation_v2, ..item };
    (data.len() == known.bytes().len()).then(|| known.bytes().to_vec())
}

/// Whether an invalid item may be dropped: it can be rebuilt from others, or is a small loss.
pub(crate) fn may_drop(tree: TreeId, key: &Key) -> bool {
    let of_inode = [
        item_type::INODE_ITEM,
        item_type::INODE_REF,
        item_type::INODE_EXTREF,
        item_type::XATTR_ITEM,
        item_type::DIR_ITEM,
        item_type::DIR_INDEX,
        item_type::ORPHAN_ITEM,
    ];
    // The tree that balances use, which is empty between them, is made anew where its root is lost.
    let is_remade = tree == TreeId::ROOT && TreeId(key.objectid) == TreeId::DATA_RELOC;
    is_remade || tree.is_subvolume() && of_inode.contains(&key.item_type)
}
