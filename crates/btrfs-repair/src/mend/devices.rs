//! Repairs the device tree and the device items from the chunks. Called by `round`.

use std::collections::BTreeMap;

use btrfs_disk::items::{DevExtent, DevItem, OnDisk as _};
use btrfs_disk::key::{item_type, objectid};
use btrfs_disk::{Key, TreeId};

use super::Mending;

/// Makes device extents and used bytes of devices match the chunks.
pub(crate) fn mend(mending: &mut Mending<'_>) {
    let image = mending.image;
    let mut wanted: BTreeMap<Key, Vec<u8>> = BTreeMap::new();
    let mut used: BTreeMap<u64, u64> = BTreeMap::new();
    for chunk in image.media.chunks.values() {
        let len = chunk.stripe_bytes();
        for stripe in chunk.stripes() {
            let item = DevExtent {
                chunk_tree: TreeId::CHUNK.0.into(),
                chunk_objectid: objectid::FIRST_CHUNK_TREE.into(),
                chunk_offset: chunk.start().0.into(),
                length: len.into(),
                chunk_tree_uuid: image.chunk_tree_uuid,
            };
            let key = Key::new(stripe.device.0, item_type::DEV_EXTENT, stripe.offset);
            wanted.insert(key, item.bytes().to_vec());
            let sum = used.entry(stripe.device.0).or_default();
            *sum = sum.saturating_add(len);
        }
    }
    device_items(mending, &used);
    if mending.is_broken(TreeId::DEV) {
        let mut items: BTreeMap<Key, Vec<u8>> = BTreeMap::new();
        mending.each(TreeId::DEV, |key, data| {
            // Other items of the tree are only statistics of devices.
            if key.item_type == item_type::PERSISTENT_ITEM && key.objectid == 0 {
                items.insert(*key, data.to_vec());
            }
        });
        items.extend(wanted);
        mending.fresh.insert(TreeId::DEV, items.into_iter().collect());
        return;
    }
    let mut gone: Vec<Key> = Vec::new();
    mending.each(TreeId::DEV, |key, data| {
        if key.item_type != item_type::DEV_EXTENT {
            return;
        }
        let same = |wanted: &Vec<u8>| match (DevExtent::parse(wanted), DevExtent::parse(data)) {
            (Ok(a), Ok(b)) => (a.chunk_offset, a.length) == (b.chunk_offset, b.length),
            _ => false,
        };
        match wanted.get(key) {
            Some(item) if same(item) => drop(wanted.remove(key)),
            Some(_) => {}
            None => gone.push(*key),
        }
    });
    for key in gone {
        mending.change(TreeId::DEV, key, None);
    }
    for (key, item) in wanted {
        mending.change(TreeId::DEV, key, Some(item));
    }
}

fn device_items(mending: &mut Mending<'_>, used: &BTreeMap<u64, u64>) {
    let mut changes: Vec<(Key, Option<Vec<u8>>)> = Vec::new();
    let disks = &mending.image.media.disks;
    mending.each(TreeId::CHUNK, |key, data| {
        if key.item_type != item_type::DEV_ITEM {
            return;
        }
        let Ok(item) = DevItem::parse(data) else { return };
        let id = item.devid.get();
        let disk = disks.iter().find(|disk| disk.id.0 == id);
        // The device is missing, and no chunk lies on it.
        if disk.is_none() && !used.contains_key(&id) {
            changes.push((*key, None));
            return;
        }
        // A truncated device: the plan was refused if a chunk lies beyond its end.
        let has_bytes = disk.map_or(u64::MAX, |disk| disk.device.size_bytes());
        let sector = u64::from(item.sector_size.get()).max(1);
        let total_bytes = item.total_bytes.get().min(has_bytes - has_bytes % sector);
        let bytes_used = used.get(&id).copied().unwrap_or(item.bytes_used.get());
        if (item.total_bytes.get(), item.bytes_used.get()) != (total_bytes, bytes_used) {
            let item = DevItem { total_bytes: total_bytes.into(), bytes_used: bytes_used.into(), ..*item };
            changes.push((*key, Some(item.bytes().to_vec())));
        }
    });
    for (key, data) in changes {
        mending.change(TreeId::CHUNK, key, data);
    }
}
