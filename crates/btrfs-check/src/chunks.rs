//! Compares chunks, device extents, block groups and devices with each other, in both directions: the chunk pass.
//! Called by `run`.

use std::collections::{BTreeMap, BTreeSet};

use btrfs_disk::flags::BlockGroupFlags;
use btrfs_disk::items::ChunkItem;
use btrfs_disk::{Key, Logical};
use btrfs_pool::Chunk;

use crate::code::Code;
use crate::collect::{Collector, Facts};
use crate::context::Context;
use crate::finding::Place;
use crate::pass::Pass;
use crate::sort::lock;

/// Loads the chunks of the chunk tree.
pub(crate) fn load(cx: &mut Context<'_>, collector: &Collector) {
    let facts = lock(&collector.facts);
    let mut system: BTreeMap<u64, Chunk> = std::mem::take(&mut cx.media.chunks);
    for (start, bytes) in &facts.chunks {
        let place = Place::logical(*start);
        let item = ChunkItem::parse(bytes).map_err(|error| error.to_string());
        let chunk = item.and_then(|item| Chunk::from_item(Logical(*start), &item).map_err(|error| error.to_string()));
        let chunk = match chunk {
            Ok(chunk) => chunk,
            Err(error) => {
                cx.findings.add(Code::ChunkInvalid, place, "a chunk", error);
                continue;
            }
        };
        if chunk.flags().contains(BlockGroupFlags::SYSTEM) && !cx.lost.has_system() {
            match system.remove(start) {
                Some(known) if known == chunk => {}
                known => {
                    let found = known.map_or_else(|| "none".to_owned(), |known| known.to_string());
                    cx.findings.add(Code::SuperSystemChunks, place.clone(), &chunk, found);
                }
            }
        }
        if let Err(other) = cx.media.add_chunk(chunk) {
            cx.findings.add(
                Code::ChunkOverlap,
                place,
                "addresses of its own",
                format!("{}..{}", other.start, other.end),
            );
        }
    }
    for (start, chunk) in system {
        if !cx.lost.has_system() {
            cx.findings.add(Code::SuperSystemChunks, Place::logical(start), "none", &chunk);
        }
        // Readable blocks are found through it.
        drop(cx.media.add_chunk(chunk));
    }
}

/// Reports the number of bytes to read.
pub(crate) fn announce(cx: &Context<'_>, collector: &Collector) {
    let facts = lock(&collector.facts);
    let groups = facts.groups.iter().filter(|(_, (_, item))| {
        let is_metadata = item.group_flags().intersects(BlockGroupFlags::METADATA | BlockGroupFlags::SYSTEM);
        is_metadata || cx.wants(Pass::Data)
    });
    let bytes = groups.map(|(at, (_, item))| item.used.get().saturating_mul(u64::from(cx.media.copies(*at).max(1))));
    cx.watch.set_total(bytes.fold(0, u64::saturating_add));
}

/// Compares all of them.
pub(crate) fn compare(cx: &Context<'_>, facts: &Facts) {
    if cx.lost.has_system() {
        cx.note("chunks: device extents and block groups were not compared, as tree blocks are lost");
        return;
    }
    devices(cx, facts);
    stripes(cx, facts);
    if !cx.lost.has_extents() {
        groups(cx, facts);
    }
}

fn devices(cx: &Context<'_>, facts: &Facts) {
    let findings = &cx.findings;
    let count = btrfs_disk::convert::to_u64(facts.dev_items.len());
    if cx.fields.num_devices.get() != count {
        findings.add(Code::SuperDeviceCount, Place::default(), count, cx.fields.num_devices);
    }
    let total = facts.dev_items.iter().fold(0u64, |sum, item| sum.saturating_add(item.total_bytes.get()));
    if cx.fields.total_bytes.get() != total {
        findings.add(Code::SuperTotalBytes, Place::default(), total, cx.fields.total_bytes);
    }
    let mut used: BTreeMap<u64, u64> = BTreeMap::new();
    for (key, extent) in &facts.dev_extents {
        let sum = used.entry(key.objectid).or_default();
        *sum = sum.saturating_add(extent.length.get());
    }
    for item in &facts.dev_items {
        let id = item.devid.get();
        let sum = used.get(&id).copied().unwrap_or(0);
        if item.bytes_used.get() != sum {
            findings.add(Code::DeviceUsed, Place::device(id, 0), sum, item.bytes_used);
        }
        let Some(disk) = cx.media.disks.iter().find(|disk| disk.id.0 == id) else {
            findings.add(Code::DeviceMissing, Place::device(id, 0), format!("device {id}, {}", item.uuid), "none");
            continue;
        };
        if disk.uuid != item.uuid {
            findings.add_what(Code::SuperDevice, "UUID", Place::device(id, 0), item.uuid, disk.uuid);
        }
        if disk.total_bytes != item.total_bytes.get() {
            findings.add_what(Code::SuperDevice, "size", Place::device(id, 0), item.total_bytes, disk.total_bytes);
        }
        let own = &cx.fields.dev_item;
        if own.devid == item.devid && own.bytes_used != item.bytes_used {
            findings.add_what(Code::SuperDevice, "used bytes", Place::device(id, 0), item.bytes_used, own.bytes_used);
        }
    }
    for disk in &cx.media.disks {
        if !facts.dev_items.iter().any(|item| item.devid.get() == disk.id.0) {
            let place = Place::device(disk.id.0, 0);
            findings.add_what(Code::SuperDevice, "device", place, "a device of the chunk tree", disk.id);
        }
    }
}

fn stripes(cx: &Context<'_>, facts: &Facts) {
    let mut extents: BTreeMap<(u64, u64), (u64, u64)> = BTreeMap::new();
    for (key, extent) in &facts.dev_extents {
        extents.insert((key.objectid, key.offset), (extent.length.get(), extent.chunk_offset.get()));
    }
    let mut last: Option<(u64, u64)> = None;
    for ((device, at), (len, _)) in &extents {
        if let Some((_, end)) = last.filter(|(same, end)| same == device && end > at) {
            let expected = format!("an extent from {end} on");
            cx.findings.add(Code::DevExtentOverlap, Place::device(*device, *at), expected, at);
        }
        last = Some((*device, at.saturating_add(*len)));
    }
    let mut claimed: BTreeSet<(u64, u64)> = BTreeSet::new();
    for chunk in cx.media.chunks.values() {
        let (start, bytes) = (chunk.start().0, chunk.stripe_bytes());
        for stripe in chunk.stripes() {
            let (device, at) = (stripe.device.0, stripe.offset);
            let place = Place::device(device, at).at(start);
            on_device(cx, facts, chunk, (device, at), &place);
            match extents.get(&(device, at)) {
                Some((len, of)) if *of == start => {
                    claimed.insert((device, at));
                    if *len != bytes {
                        cx.findings.add(Code::DevExtentLength, place, bytes, len);
                    }
                }
                other => {
                    let expected = format!("a device extent of {bytes} bytes for the chunk at {start}");
                    let found = other.map_or_else(|| "none".to_owned(), |(_, of)| format!("one of the chunk at {of}"));
                    cx.findings.add(Code::ChunkNoDevExtent, place, expected, found);
                }
            }
        }
    }
    for ((device, at), (len, of)) in &extents {
        if !claimed.contains(&(*device, *at)) {
            let found = format!("{len} bytes for a chunk at {of}");
            cx.findings.add(Code::DevExtentNoChunk, Place::device(*device, *at), "a chunk with this stripe", found);
        }
    }
}

/// A stripe lies on an existing device, and inside of it.
fn on_device(cx: &Context<'_>, facts: &Facts, chunk: &Chunk, (device, at): (u64, u64), place: &Place) {
    let Some(item) = facts.dev_items.iter().find(|item| item.devid.get() == device) else {
        cx.findings.add(Code::ChunkDevice, place.clone(), "a device of this file system", device);
        return;
    };
    let uuid = chunk.stripes().iter().find(|stripe| stripe.device.0 == device && stripe.offset == at);
    if let Some(stripe) = uuid
        && stripe.device_uuid != item.uuid
    {
        cx.findings.add_what(Code::ChunkDevice, "UUID", place.clone(), item.uuid, stripe.device_uuid);
    }
    let end = at.saturating_add(chunk.stripe_bytes());
    if end > item.total_bytes.get() {
        let expected = format!("an end up to {}", item.total_bytes);
        cx.findings.add_what(Code::ChunkDevice, "end", place.clone(), expected, end);
    }
}

fn groups(cx: &Context<'_>, facts: &Facts) {
    for (start, (len, item)) in &facts.groups {
        let place = Place::logical(*start).key(Key::new(*start, btrfs_disk::key::item_type::BLOCK_GROUP_ITEM, *len));
        let Some(chunk) = cx.media.chunks.get(start) else {
            cx.findings.add(Code::GroupNoChunk, place, "a chunk", "none");
            continue;
        };
        if chunk.len_bytes() != *len {
            cx.findings.add(Code::GroupLength, place.clone(), chunk.len_bytes(), len);
        }
        if chunk.flags() != item.group_flags() {
            cx.findings.add(Code::GroupFlags, place, chunk.flags(), item.group_flags());
        }
    }
    for (start, chunk) in &cx.media.chunks {
        if !facts.groups.contains_key(start) {
            let expected = format!("a block group of {} bytes", chunk.len_bytes());
            cx.findings.add(Code::ChunkNoGroup, Place::logical(*start), expected, "none");
        }
    }
}
