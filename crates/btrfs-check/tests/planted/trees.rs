//! Tree blocks.

use std::sync::Arc;

use blockdev::Device;
use btrfs_check::Code;
use btrfs_disk::key::item_type::{DIR_ITEM, EXTENT_DATA, INODE_ITEM, INODE_REF};
use btrfs_disk::node::{HEADER_SIZE, ITEM_SIZE, KEY_PTR_SIZE, LeafView, NodeView};
use btrfs_disk::verify::seal;
use btrfs_disk::{Key, TreeId};

use super::plant::{Damaged, Faulty, Plant, Planted, add_u64, plant, set_u64};

const GENERATION_AT: usize = 80;
const OWNER_AT: usize = 88;
const LEVEL_AT: usize = 100;

/// Changes the header of a leaf.
fn head(image: &Planted, tree: TreeId, change: impl FnOnce(&mut [u8])) -> Damaged {
    image.change_block(image.leaf(tree)?, change)
}

/// Inverts a byte in the middle of a leaf, in all copies.
fn rotten(image: &Planted, tree: TreeId) -> Damaged {
    let places: Vec<u64> = image.editor.places(image.leaf(tree)?).ok()?.iter().map(|at| at + 1000).collect();
    image.rot(&places)
}

/// Inverts a byte of one copy.
fn one_copy(image: &Planted, tree: TreeId, copy: usize) -> Damaged {
    let places = image.editor.places(image.leaf(tree)?).ok()?;
    if places.len() < 2 { None } else { image.rot(&[places[copy] + 1000]) }
}

/// Changes a pointer of a node of level 1, by its slot.
fn pointer(image: &Planted, tree: TreeId, slot: usize, change: impl FnOnce(&mut [u8], &Planted)) -> Damaged {
    let node = *image.blocks(tree, 1).first()?;
    let count = NodeView::new(&image.editor.block(node).ok()?).nritems();
    if count <= slot {
        return None;
    }
    let at = HEADER_SIZE + slot * KEY_PTR_SIZE;
    image.change_block(node, |block| change(&mut block[at..at + KEY_PTR_SIZE], image))
}

fn write_key(bytes: &mut [u8], key: Key) {
    set_u64(bytes, 0, key.objectid);
    bytes[8] = key.item_type;
    set_u64(bytes, 9, key.offset);
}

fn any(_: &Key, _: &[u8]) -> bool {
    true
}

pub(crate) const PLANTS: &[Plant] = &[
    plant(Code::BlockRead, "of files", |image| {
        let bad = image.editor.places(image.leaf(TreeId::FS)?).ok()?;
        let device: Arc<dyn Device> = Arc::new(Faulty { below: image.device.clone(), bad });
        Some(device)
    }),
    plant(Code::BlockRead, "of extents", |image| {
        let bad = image.editor.places(image.leaf(TreeId::EXTENT)?).ok()?;
        let device: Arc<dyn Device> = Arc::new(Faulty { below: image.device.clone(), bad });
        Some(device)
    }),
    plant(Code::BlockUnmapped, "of files", |image| {
        pointer(image, TreeId::FS, 1, |pointer, _| set_u64(pointer, 17, 1 << 45))
    }),
    plant(Code::BlockUnmapped, "of extents", |image| {
        pointer(image, TreeId::EXTENT, 1, |pointer, _| set_u64(pointer, 17, 1 << 45))
    }),
    plant(Code::BlockChecksum, "of files", |image| rotten(image, TreeId::FS)),
    plant(Code::BlockChecksum, "of extents", |image| rotten(image, TreeId::EXTENT)),
    plant(Code::BlockChecksum, "of checksums", |image| rotten(image, TreeId::CSUM)),
    plant(Code::BlockChecksum, "of devices", |image| rotten(image, TreeId::DEV)),
    plant(Code::BlockChecksum, "of UUIDs", |image| rotten(image, TreeId::UUID)),
    plant(Code::BlockAddress, "of files", |image| head(image, TreeId::FS, |block| add_u64(block, 48, 4096))),
    plant(Code::BlockAddress, "of checksums", |image| head(image, TreeId::CSUM, |block| add_u64(block, 48, 4096))),
    plant(Code::BlockUuid, "of files", |image| head(image, TreeId::FS, |block| block[32] ^= 1)),
    plant(Code::BlockUuid, "of free space", |image| head(image, TreeId::FREE_SPACE, |block| block[40] ^= 1)),
    plant(Code::BlockGeneration, "older than said", |image| {
        head(image, TreeId::FS, |block| add_u64(block, GENERATION_AT, u64::MAX))
    }),
    plant(Code::BlockGeneration, "from the future", |image| {
        head(image, TreeId::CSUM, |block| add_u64(block, GENERATION_AT, 1000))
    }),
    plant(Code::BlockLevel, "of files", |image| head(image, TreeId::FS, |block| block[LEVEL_AT] = 1)),
    plant(Code::BlockLevel, "above all", |image| head(image, TreeId::DEV, |block| block[LEVEL_AT] = 9)),
    plant(Code::BlockOwner, "of files", |image| head(image, TreeId::FS, |block| set_u64(block, OWNER_AT, 7))),
    plant(Code::BlockOwner, "of checksums", |image| head(image, TreeId::CSUM, |block| set_u64(block, OWNER_AT, 5))),
    plant(Code::BlockFirstKey, "of files", |image| pointer(image, TreeId::FS, 1, |pointer, _| add_u64(pointer, 9, 1))),
    plant(Code::BlockFirstKey, "of extents", |image| {
        pointer(image, TreeId::EXTENT, 1, |pointer, _| add_u64(pointer, 9, 1))
    }),
    plant(Code::BlockLastKey, "of files", |image| {
        let node = *image.blocks(TreeId::FS, 1).first()?;
        let child = NodeView::new(&image.editor.block(node).ok()?).ptr(0).0;
        let leaf = image.editor.block(child).ok()?;
        let last = LeafView::new(&leaf).iter().last()?.0;
        pointer(image, TreeId::FS, 1, |pointer, _| write_key(pointer, last))
    }),
    plant(Code::BlockKeys, "two equal ones", |image| {
        head(image, TreeId::FS, |block| {
            let (first, second) = (HEADER_SIZE, HEADER_SIZE + ITEM_SIZE);
            block.copy_within(first..first + 17, second);
        })
    }),
    plant(Code::BlockKeys, "of a node", |image| {
        pointer(image, TreeId::FS, 1, |pointer, _| write_key(pointer, Key::MIN))
    }),
    plant(Code::BlockItem, "a mode", |image| image.change((TreeId::FS, INODE_ITEM), any, |item| item[52..56].fill(0))),
    plant(Code::BlockItem, "a length of a name", |image| {
        image.change((TreeId::FS, INODE_REF), any, |item| item[8] = 200)
    }),
    plant(Code::BlockItem, "a hash", |image| {
        image.change((TreeId::FS, DIR_ITEM), any, |item| {
            let last = item.len() - 1;
            item[last] ^= 1;
        })
    }),
    plant(Code::BlockItem, "a compression", |image| image.change((TreeId::FS, EXTENT_DATA), any, |item| item[16] = 77)),
    plant(Code::BlockItem, "an item outside its leaf", |image| {
        head(image, TreeId::FS, |block| block[HEADER_SIZE + 17] ^= 0xff)
    }),
    plant(Code::BlockMirror, "the first copy", |image| one_copy(image, TreeId::FS, 0)),
    plant(Code::BlockMirror, "the second copy", |image| one_copy(image, TreeId::EXTENT, 1)),
    plant(Code::BlockMirror, "an unreadable copy", |image| {
        let places = image.editor.places(image.leaf(TreeId::ROOT)?).ok()?;
        let bad = vec![*places.get(1)?];
        let device: Arc<dyn Device> = Arc::new(Faulty { below: image.device.clone(), bad });
        Some(device)
    }),
    plant(Code::BlockMirrorsDiffer, "the flags of the second copy", |image| {
        let leaf = image.leaf(TreeId::FS)?;
        let places = image.editor.places(leaf).ok()?;
        let mut block = image.editor.block(leaf).ok()?;
        block[64] ^= 1;
        seal(&mut block, image.editor.format().csum_type);
        image.device.write_at(*places.get(1)?, &[&block]).ok()?;
        image.done()
    }),
];
