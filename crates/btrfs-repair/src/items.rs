//! Which items of a damaged block are believed.

use std::borrow::Cow;

use btrfs_disk::items::{FileExtent, FileExtentItem, OnDisk as _};
use btrfs_disk::key::item_type;
use btrfs_disk::verify::{self, Expect};
use btrfs_disk::{Key, Logical, TreeId};

use crate::image::Image;

/// The data of an item that the verifier accepts, or that it would but for one number that others tell: a file extent
/// that claims more of its data than there is ends with the data. `None` for an item that makes no sense.
pub(crate) fn believed<'a>(image: &Image, tree: TreeId, key: &Key, data: &'a [u8]) -> Option<Cow<'a, [u8]>> {
    let media = &image.media;
    let expect = Expect::at(&media.format, Logical(0), media.generation_max);
    if verify::item(key, data, tree, &expect).is_ok() {
        return Some(Cow::Borrowed(data));
    }
    let Ok(FileExtent::Extent(item)) = FileExtent::parse(data) else { return None };
    if key.item_type != item_type::EXTENT_DATA || item.is_hole() || item.head.compression != 0 {
        return None;
    }
    let left = item.disk_num_bytes.get().checked_sub(item.offset.get()).filter(|left| *left < item.num_bytes.get())?;
    let cut = FileExtentItem { num_bytes: left.into(), ..*item };
    verify::item(key, cut.bytes(), tree, &expect).is_ok().then(|| Cow::Owned(cut.bytes().to_vec()))
}

/// Whether an item that makes no sense may be left out: what it says can be told from others, or is a small loss.
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
    tree.is_subvolume() && of_inode.contains(&key.item_type)
}
