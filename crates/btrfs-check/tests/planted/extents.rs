//! Extents, free space, checksums, data, and the log.

use std::sync::Arc;

use blockdev::Device;
use btrfs_check::Code;
use btrfs_disk::flags::ExtentFlags;
use btrfs_disk::items::{ExtentItem, ExtentView, InlineRef};
use btrfs_disk::key::item_type::{
    CHUNK_ITEM, EXTENT_CSUM, EXTENT_DATA, EXTENT_DATA_REF, EXTENT_ITEM, FREE_SPACE_EXTENT, FREE_SPACE_INFO,
    METADATA_ITEM, ROOT_ITEM,
};
use btrfs_disk::key::objectid;
use btrfs_disk::node::LeafView;
use btrfs_disk::{Generation, InodeNo, Key, Logical, TreeId};

use super::files::is_compressed;
use super::plant::{Damaged, Faulty, Plant, Planted, add_u64, get_u64, plant, set_u32, set_u64};

const EXTENT: (TreeId, u8) = (TreeId::EXTENT, EXTENT_ITEM);
const BLOCK: (TreeId, u8) = (TreeId::EXTENT, METADATA_ITEM);
const FREE: (TreeId, u8) = (TreeId::FREE_SPACE, FREE_SPACE_EXTENT);
const INFO: (TreeId, u8) = (TreeId::FREE_SPACE, FREE_SPACE_INFO);
const SUMS: (TreeId, u8) = (TreeId::CSUM, EXTENT_CSUM);
const FILE: (TreeId, u8) = (TreeId::FS, EXTENT_DATA);

fn any(_: &Key, _: &[u8]) -> bool {
    true
}

/// Data with one reference, which stands in the item.
fn is_single(_: &Key, item: &[u8]) -> bool {
    item.len() == 53 && item[24] == EXTENT_DATA_REF && get_u64(item, 0) == 1 && get_u64(item, 16) & 1 == 1
}

fn is_data(_: &Key, item: &[u8]) -> bool {
    get_u64(item, 16) & 1 == 1
}

fn is_long(key: &Key, item: &[u8]) -> bool {
    is_data(key, item) && key.offset >= 16384
}

/// A file extent that has data, not in its item.
fn is_regular(_: &Key, item: &[u8]) -> bool {
    item[20] == 1 && get_u64(item, 21) != 0
}

/// An extent item of data that nothing uses.
fn unused(image: &Planted, at: u64, len: u64) -> Damaged {
    let item = ExtentItem::new(1, Generation(1), ExtentFlags::DATA);
    let one = InlineRef::Data { root: TreeId::FS, inode: InodeNo(257), offset: 0, count: 1 };
    let data = ExtentView::build(&item, None, &[one]);
    image.put(TreeId::EXTENT, Key::new(at, EXTENT_ITEM, len), &data)
}

/// The end of a chunk for data, or for metadata.
fn chunk_end(image: &Planted, bit: u64) -> Option<u64> {
    let is_it = |_: &Key, item: &[u8]| get_u64(item, 24) & bit != 0;
    let (key, item) = image.first(TreeId::CHUNK, CHUNK_ITEM, is_it)?;
    Some(key.offset + get_u64(&item, 0))
}

/// Places of the copies of the first data that has checksums.
fn data_places(image: &Planted) -> Option<Vec<u64>> {
    let (key, _) = image.first(TreeId::CSUM, EXTENT_CSUM, any)?;
    image.editor.places(Logical(key.offset)).ok()
}

fn log_leaf(image: &Planted) -> Option<Logical> {
    let log =
        image.editor.blocks().ok()?.into_iter().filter(|block| block.tree == TreeId::TREE_LOG && block.level == 0);
    log.max_by_key(|block| block.at).map(|block| block.at)
}

pub(crate) const PLANTS: &[Plant] = &[
    plant(Code::ExtentMissing, "of a tree block", |image| image.remove(BLOCK, any)),
    plant(Code::ExtentMissing, "of data", |image| image.remove(EXTENT, is_single)),
    plant(Code::ExtentUnreferenced, "data", |image| unused(image, chunk_end(image, 1)? - 65536, 4096)),
    plant(Code::ExtentUnreferenced, "a file lets go", |image| {
        let is_lone = image
            .items(TreeId::EXTENT)
            .into_iter()
            .filter(|(key, item)| key.item_type == EXTENT_ITEM && is_single(key, item));
        let lone: Vec<u64> = is_lone.map(|(key, _)| key.objectid).collect();
        image.change(
            FILE,
            |key, item| is_regular(key, item) && lone.contains(&get_u64(item, 21)),
            |item| {
                set_u64(item, 21, 0);
                set_u64(item, 29, 0);
            },
        )
    }),
    plant(Code::ExtentRefMissing, "of another tree", |image| image.change(BLOCK, any, |item| add_u64(item, 25, 1))),
    plant(Code::ExtentRefMissing, "of another inode", |image| {
        image.change(EXTENT, is_single, |item| add_u64(item, 33, 1))
    }),
    plant(Code::ExtentRefExtra, "of another tree", |image| image.change(BLOCK, any, |item| add_u64(item, 25, 1))),
    plant(Code::ExtentRefExtra, "of another offset", |image| {
        image.change(EXTENT, is_single, |item| add_u64(item, 41, 4096))
    }),
    plant(Code::ExtentRefCount, "twice", |image| {
        image.change(EXTENT, is_single, |item| {
            set_u64(item, 0, 2);
            set_u32(item, 49, 2);
        })
    }),
    plant(Code::ExtentRefTotal, "of data", |image| image.change(EXTENT, is_single, |item| add_u64(item, 0, 1))),
    plant(Code::ExtentRefTotal, "of a tree block", |image| image.change(BLOCK, any, |item| add_u64(item, 0, 1))),
    plant(Code::ExtentOverlap, "inside another", |image| {
        let (key, _) = image.first(TreeId::EXTENT, EXTENT_ITEM, is_long)?;
        unused(image, key.objectid + 4096, 4096)
    }),
    plant(Code::ExtentKind, "data for a tree block", |image| image.change(BLOCK, any, |item| item[16] = 1)),
    plant(Code::ExtentKind, "a tree block for data", |image| image.change(EXTENT, is_single, |item| item[16] = 2)),
    plant(Code::ExtentLength, "a file believes in more", |image| {
        image.change(FILE, is_regular, |item| add_u64(item, 29, 4096))
    }),
    plant(Code::ExtentLength, "the item says less", |image| {
        let (key, item) = image.taken(TreeId::EXTENT, EXTENT_ITEM, is_long)?;
        image.put(TreeId::EXTENT, Key { offset: key.offset - 4096, ..key }, &item)
    }),
    plant(Code::ExtentLevel, "one more", |image| {
        let (key, item) = image.taken(TreeId::EXTENT, METADATA_ITEM, any)?;
        image.put(TreeId::EXTENT, Key { offset: key.offset + 1, ..key }, &item)
    }),
    plant(Code::ExtentGeneration, "older", |image| image.change(BLOCK, any, |item| add_u64(item, 8, u64::MAX))),
    plant(Code::ExtentOutside, "in no chunk", |image| unused(image, 1 << 40, 4096)),
    plant(Code::ExtentOutside, "across the end of a chunk", |image| unused(image, chunk_end(image, 1)? - 4096, 8192)),
    plant(Code::ExtentGroupKind, "data among metadata", |image| {
        if chunk_end(image, 1) == chunk_end(image, 4) {
            None
        } else {
            unused(image, chunk_end(image, 4)? - 65536, 4096)
        }
    }),
    plant(Code::ExtentOwner, "a subvolume that does not refer to it", |image| {
        image.change_block(image.leaf(TreeId::FS)?, |block| set_u64(block, 88, 999))
    }),
    plant(Code::FreeSpaceGroup, "gone", |image| image.remove(INFO, any)),
    plant(Code::FreeSpaceCount, "one more", |image| image.change(INFO, any, |item| item[0] ^= 1)),
    plant(Code::FreeSpaceMissing, "a range is gone", |image| image.remove(FREE, any)),
    plant(Code::FreeSpaceMissing, "a range is shorter", |image| {
        let (key, item) = image.taken(TreeId::FREE_SPACE, FREE_SPACE_EXTENT, |key, _| key.offset > 4096)?;
        image.put(TreeId::FREE_SPACE, Key { offset: key.offset - 4096, ..key }, &item)
    }),
    plant(Code::FreeSpaceUsed, "an extent", |image| {
        let (key, _) = image.first(TreeId::EXTENT, EXTENT_ITEM, is_data)?;
        image.put(TreeId::FREE_SPACE, Key::new(key.objectid, FREE_SPACE_EXTENT, key.offset), &[])
    }),
    plant(Code::FreeSpaceForm, "bitmaps that are none", |image| image.change(INFO, any, |item| item[4] ^= 1)),
    plant(Code::CsumMissing, "an item is gone", |image| {
        if image.items(TreeId::CSUM).len() > 1 { image.remove(SUMS, any) } else { None }
    }),
    plant(Code::CsumMissing, "a sector less", |image| {
        let (key, item) = image.first(TreeId::CSUM, EXTENT_CSUM, any)?;
        let len = image.editor.format().csum_type.len();
        image.put(TreeId::CSUM, key, item.get(..item.len() - len)?)
    }),
    plant(Code::CsumOrphan, "in free space", |image| {
        let key = Key::new(objectid::EXTENT_CSUM, EXTENT_CSUM, chunk_end(image, 1)? - 65536);
        image.put(TreeId::CSUM, key, &vec![7; image.editor.format().csum_type.len()])
    }),
    plant(Code::CsumOverlap, "the second sector", |image| {
        let len = image.editor.format().csum_type.len();
        let (key, _) = image.first(TreeId::CSUM, EXTENT_CSUM, |_, item| item.len() >= 2 * len)?;
        image.put(TreeId::CSUM, Key { offset: key.offset + 4096, ..key }, &vec![7; len])
    }),
    plant(Code::DataChecksum, "rot in all copies", |image| image.rot(&data_places(image)?)),
    plant(Code::DataMirror, "rot in the second copy", |image| image.rot(data_places(image)?.get(1..2)?)),
    plant(Code::DataRead, "unreadable", |image| {
        let device: Arc<dyn Device> = Arc::new(Faulty { below: image.device.clone(), bad: data_places(image)? });
        Some(device)
    }),
    plant(Code::DataStream, "as of another compression", |image| {
        image.change((TreeId::FS, EXTENT_DATA), is_compressed, |item| item[16] = 3)
    }),
    plant(Code::ExtentStripe, "in the middle of two", |image| {
        let (key, _) = image.items(TreeId::EXTENT).into_iter().rfind(|(key, _)| key.item_type == METADATA_ITEM)?;
        let node = u64::from(image.editor.format().nodesize);
        let stripe = (key.objectid + (2 << 20)).next_multiple_of(64 << 10);
        let item = ExtentItem::new(1, Generation(1), ExtentFlags::TREE_BLOCK);
        let data = ExtentView::build(&item, None, &[InlineRef::TreeBlock { root: TreeId::FS }]);
        image.put(TreeId::EXTENT, Key::new(stripe - node.min(8192) / 2, METADATA_ITEM, 0), &data)
    }),
    plant(Code::LogBlock, "rot", |image| {
        let places: Vec<u64> = image.editor.places(log_leaf(image)?).ok()?.iter().map(|at| at + 500).collect();
        image.rot(&places)
    }),
    plant(Code::LogBlock, "another generation", |image| {
        image.change_block(log_leaf(image)?, |block| add_u64(block, 80, u64::MAX))
    }),
    plant(Code::LogRoot, "an unknown subvolume", |image| {
        let (root, _) = image.editor.root(TreeId::TREE_LOG).ok().filter(|(root, _)| root.0 != 0)?;
        let block = image.editor.block(root).ok()?;
        let leaf = LeafView::new(&block);
        let last = leaf.nritems().checked_sub(1)?;
        let at = btrfs_disk::node::HEADER_SIZE + last * btrfs_disk::node::ITEM_SIZE;
        if leaf.key(last).item_type != ROOT_ITEM {
            return None;
        }
        image.change_block(root, |block| set_u64(block, at + 9, 7777))
    }),
    plant(Code::LogCsum, "for other data", |image| {
        let blocks = image.editor.blocks().ok()?.into_iter();
        let mut leaves = blocks.filter(|block| block.tree == TreeId::TREE_LOG && block.level == 0);
        let (at, last) = leaves.find_map(|leaf| {
            let block = image.editor.block(leaf.at).ok()?;
            let view = LeafView::new(&block);
            let last = view.nritems().checked_sub(1).filter(|last| view.key(*last).item_type == EXTENT_CSUM)?;
            Some((leaf.at, last))
        })?;
        let key = btrfs_disk::node::HEADER_SIZE + last * btrfs_disk::node::ITEM_SIZE;
        image.change_block(at, |block| add_u64(block, key + 9, 1 << 40))
    }),
    plant(Code::LogOverlap, "an extent item", |image| {
        let block = log_leaf(image)?;
        let item = ExtentItem::new(1, Generation(1), ExtentFlags::TREE_BLOCK);
        let data = ExtentView::build(&item, None, &[InlineRef::TreeBlock { root: TreeId::FS }]);
        image.put(TreeId::EXTENT, Key::new(block.0, METADATA_ITEM, 0), &data)
    }),
];
