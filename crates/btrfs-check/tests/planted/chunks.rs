//! Superblocks, chunks, device extents, block groups.

use btrfs_check::Code;
use btrfs_disk::flags::SuperFlags;
use btrfs_disk::key::item_type::{BLOCK_GROUP_ITEM, CHUNK_ITEM, DEV_EXTENT, DEV_ITEM};
use btrfs_disk::superblock::SUPERBLOCK_OFFSET;
use btrfs_disk::{Key, TreeId};

use super::plant::{Plant, add_u64, get_u64, plant, set_u64};

const MIRROR: u64 = 64 << 20;
const CHUNK: (TreeId, u8) = (TreeId::CHUNK, CHUNK_ITEM);
const DEVICE: (TreeId, u8) = (TreeId::CHUNK, DEV_ITEM);
const EXTENT: (TreeId, u8) = (TreeId::DEV, DEV_EXTENT);
/// Data is bit 0 of a chunk's type, which stands here in its item.
const TYPE_AT: usize = 24;
const STRIPE_AT: usize = 48;

fn is_data(_: &Key, item: &[u8]) -> bool {
    get_u64(item, TYPE_AT) & 1 == 1
}

fn any(_: &Key, _: &[u8]) -> bool {
    true
}

pub(crate) const PLANTS: &[Plant] = &[
    plant(Code::SuperCopy, "rot in a mirror", |image| image.rot(&[MIRROR + 100])),
    plant(Code::SuperCopy, "rot in the first copy", |image| image.rot(&[SUPERBLOCK_OFFSET + 100])),
    plant(Code::SuperMirror, "used bytes", |image| {
        image.editor.change_superblock_at(MIRROR, |fields| fields.bytes_used += 4096).ok()?;
        image.done()
    }),
    plant(Code::SuperMirror, "generation", |image| {
        image.editor.change_superblock_at(MIRROR, |fields| fields.generation -= 1).ok()?;
        image.done()
    }),
    plant(Code::SuperMirror, "a backup root", |image| {
        image.editor.change_superblock_at(MIRROR, |fields| fields.super_roots[0].csum_root += 4096).ok()?;
        image.done()
    }),
    plant(Code::SuperFlags, "to a block-group tree", |image| {
        image.editor.change_superblock(|fields| fields.flags |= SuperFlags::CHANGING_BG_TREE.bits()).ok()?;
        image.done()
    }),
    plant(Code::SuperFlags, "an unknown one", |image| {
        image.editor.change_superblock(|fields| fields.flags |= 1 << 50).ok()?;
        image.done()
    }),
    plant(Code::SuperBackup, "root tree", |image| {
        image
            .editor
            .change_superblock(|fields| {
                let generation = fields.generation;
                let newest = fields.super_roots.iter_mut().filter(|backup| backup.tree_root_gen == generation);
                newest.for_each(|backup| backup.tree_root += 4096);
            })
            .ok()?;
        let fields = image.editor.superblock().ok()?;
        fields.super_roots.iter().find(|backup| backup.tree_root_gen == fields.generation)?;
        image.done()
    }),
    plant(Code::SuperDevice, "used bytes", |image| {
        image.editor.change_superblock(|fields| fields.dev_item.bytes_used -= 4096).ok()?;
        image.done()
    }),
    plant(Code::SuperDevice, "size in the chunk tree", |image| {
        image.change(DEVICE, any, |item| add_u64(item, 8, 0u64.wrapping_sub(1 << 20)))
    }),
    plant(Code::SuperDeviceCount, "one more", |image| {
        image.editor.change_superblock(|fields| fields.num_devices += 1).ok()?;
        image.done()
    }),
    plant(Code::SuperTotalBytes, "less", |image| {
        image.editor.change_superblock(|fields| fields.total_bytes -= 1 << 20).ok()?;
        image.done()
    }),
    plant(Code::SuperSystemChunks, "length", |image| {
        image.editor.change_superblock(|fields| add_u64(&mut fields.sys_chunk_array, 17, 1 << 20)).ok()?;
        image.done()
    }),
    plant(Code::DeviceMissing, "a second device item", |image| {
        let (key, mut item) = image.first(TreeId::CHUNK, DEV_ITEM, any)?;
        set_u64(&mut item, 0, 2);
        image.put(TreeId::CHUNK, Key { offset: 2, ..key }, &item)
    }),
    plant(Code::DeviceSmall, "the superblock believes in more", |image| {
        image.editor.change_superblock(|fields| fields.dev_item.total_bytes += 1 << 30).ok()?;
        image.done()
    }),
    plant(Code::ChunkInvalid, "an unknown profile", |image| {
        image.change(CHUNK, is_data, |item| item[TYPE_AT] |= 1 << 7)
    }),
    plant(Code::ChunkInvalid, "two profiles", |image| {
        image.change(CHUNK, is_data, |item| item[TYPE_AT] |= 1 << 3 | 1 << 4)
    }),
    plant(Code::ChunkOverlap, "the same once more", |image| {
        let (key, item) = image.first(TreeId::CHUNK, CHUNK_ITEM, is_data)?;
        image.put(TreeId::CHUNK, Key { offset: key.offset + (64 << 10), ..key }, &item)
    }),
    plant(Code::ChunkDevice, "an unknown device", |image| {
        image.change(CHUNK, is_data, |item| set_u64(item, STRIPE_AT, 9))
    }),
    plant(Code::ChunkDevice, "beyond its end", |image| {
        image.change(CHUNK, is_data, |item| set_u64(item, STRIPE_AT + 8, 1 << 40))
    }),
    plant(Code::ChunkDevice, "a device's UUID", |image| image.change(CHUNK, is_data, |item| item[STRIPE_AT + 16] ^= 1)),
    plant(Code::ChunkNoDevExtent, "a device extent is gone", |image| image.remove(EXTENT, any)),
    plant(Code::ChunkNoDevExtent, "another chunk's", |image| image.change(EXTENT, any, |item| add_u64(item, 16, 4096))),
    plant(Code::ChunkNoGroup, "a block group is gone", |image| {
        image.remove((image.group_tree(), BLOCK_GROUP_ITEM), any)
    }),
    plant(Code::DevExtentNoChunk, "one more", |image| {
        let (key, item) = image.first(TreeId::DEV, DEV_EXTENT, any)?;
        image.put(TreeId::DEV, Key { offset: 80 << 20, ..key }, &item)
    }),
    plant(Code::DevExtentNoChunk, "of another chunk", |image| {
        image.change(EXTENT, any, |item| set_u64(item, 16, 1 << 40))
    }),
    plant(Code::DevExtentLength, "longer", |image| image.change(EXTENT, any, |item| add_u64(item, 24, 64 << 10))),
    plant(Code::DevExtentLength, "shorter", |image| {
        image.change(EXTENT, any, |item| add_u64(item, 24, 0u64.wrapping_sub(64 << 10)))
    }),
    plant(Code::DevExtentOverlap, "inside another", |image| {
        let (key, item) = image.first(TreeId::DEV, DEV_EXTENT, any)?;
        image.put(TreeId::DEV, Key { offset: key.offset + (64 << 10), ..key }, &item)
    }),
    plant(Code::GroupNoChunk, "far away", |image| {
        let (key, item) = image.first(image.group_tree(), BLOCK_GROUP_ITEM, any)?;
        image.put(image.group_tree(), Key { objectid: 1 << 40, ..key }, &item)
    }),
    plant(Code::GroupLength, "longer", |image| {
        let tree = image.group_tree();
        let (key, item) = image.taken(tree, BLOCK_GROUP_ITEM, any)?;
        image.put(tree, Key { offset: key.offset + (64 << 10), ..key }, &item)
    }),
    plant(Code::GroupFlags, "another use", |image| {
        image.change(
            (image.group_tree(), BLOCK_GROUP_ITEM),
            |_, item| get_u64(item, 16) & 1 == 1,
            |item| item[16] ^= 1 | 4,
        )
    }),
    plant(Code::GroupFlags, "another profile", |image| {
        image.change((image.group_tree(), BLOCK_GROUP_ITEM), any, |item| item[16] ^= 1 << 5)
    }),
    plant(Code::DeviceUsed, "more", |image| image.change(DEVICE, any, |item| add_u64(item, 16, 4096))),
    plant(Code::GroupUsed, "more", |image| {
        image.change((image.group_tree(), BLOCK_GROUP_ITEM), any, |item| add_u64(item, 0, 4096))
    }),
    plant(Code::GroupUsed, "less", |image| {
        let tree = (image.group_tree(), BLOCK_GROUP_ITEM);
        image.change(tree, |_, item| get_u64(item, 0) > 8192, |item| add_u64(item, 0, 0u64.wrapping_sub(4096)))
    }),
    plant(Code::SuperUsed, "more", |image| {
        image.editor.change_superblock(|fields| fields.bytes_used += 4096).ok()?;
        image.done()
    }),
];
