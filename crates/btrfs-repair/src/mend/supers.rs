//! Repairs the superblock: its devices and system chunks come from the chunk tree. Called by `round`.

use btrfs_disk::TreeId;
use btrfs_disk::flags::BlockGroupFlags;
use btrfs_disk::items::{ChunkItem, DevItem, OnDisk as _};
use btrfs_disk::key::item_type;
use btrfs_disk::superblock::{DiskSuperblock, SYSTEM_CHUNK_ARRAY_SIZE};

use crate::image::Image;
use crate::survey::{Survey, items};

/// Makes the superblock agree with the chunk tree, where that can be read.
pub(crate) fn mend(image: &Image, survey: &Survey, fields: &mut DiskSuperblock) {
    if survey.has_lost(TreeId::CHUNK) || image.bad_chunks > 0 {
        return;
    }
    let mut devices: Vec<DevItem> = Vec::new();
    let mut array: Vec<u8> = Vec::new();
    items(image, (fields.chunk_root.get(), fields.chunk_root_level), |key, data| match key.item_type {
        item_type::DEV_ITEM => devices.extend(DevItem::parse(data).ok()),
        item_type::CHUNK_ITEM => {
            let is_system =
                ChunkItem::parse(data).is_ok_and(|item| item.chunk.flags().contains(BlockGroupFlags::SYSTEM));
            if is_system {
                let key = btrfs_disk::DiskKey::from(*key);
                array.extend_from_slice(zerocopy::IntoBytes::as_bytes(&key));
                array.extend_from_slice(data);
            }
        }
        _ => {}
    });
    if !array.is_empty() && array.len() <= SYSTEM_CHUNK_ARRAY_SIZE {
        fields.sys_chunk_array_size = btrfs_disk::convert::u32_len(array.len()).into();
        array.resize(SYSTEM_CHUNK_ARRAY_SIZE, 0);
        if let Ok(array) = array.try_into() {
            fields.sys_chunk_array = array;
        }
    }
    let own =
        devices.iter().find(|device| device.devid == fields.dev_item.devid && device.uuid == fields.dev_item.uuid);
    if let Some(own) = own {
        fields.dev_item = *own;
    }
    if !devices.is_empty() {
        let total = devices.iter().fold(0u64, |sum, device| sum.saturating_add(device.total_bytes.get()));
        fields.total_bytes = total.into();
        fields.num_devices = btrfs_disk::convert::to_u64(devices.len()).into();
    }
}

/// Makes the backup root of the last commit match the superblock.
pub(crate) fn backup(survey: &Survey, fields: &mut DiskSuperblock) {
    let generation = fields.generation;
    let copy = *fields;
    let Some(backup) = fields.super_roots.iter_mut().find(|backup| backup.tree_root_gen == generation) else { return };
    backup.tree_root = copy.root;
    backup.tree_root_level = copy.root_level;
    backup.chunk_root = copy.chunk_root;
    backup.chunk_root_gen = copy.chunk_root_generation;
    backup.chunk_root_level = copy.chunk_root_level;
    backup.total_bytes = copy.total_bytes;
    backup.bytes_used = copy.bytes_used;
    backup.num_devices = copy.num_devices;
    for root in &survey.roots {
        let item = &root.item;
        let slot = match TreeId(root.key.objectid) {
            TreeId::EXTENT => (&mut backup.extent_root, &mut backup.extent_root_gen, &mut backup.extent_root_level),
            TreeId::FS => (&mut backup.fs_root, &mut backup.fs_root_gen, &mut backup.fs_root_level),
            TreeId::DEV => (&mut backup.dev_root, &mut backup.dev_root_gen, &mut backup.dev_root_level),
            TreeId::CSUM => (&mut backup.csum_root, &mut backup.csum_root_gen, &mut backup.csum_root_level),
            _ => continue,
        };
        (*slot.0, *slot.1, *slot.2) = (item.bytenr, item.generation, item.level);
    }
}
