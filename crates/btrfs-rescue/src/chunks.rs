//! Rebuilds the chunk map: from the chunk tree, from its old leaves, and from device extents.
//!
//! A device extent names the chunk it belongs to, so chunks whose stripes are full copies (single, DUP, RAID1) can be
//! rebuilt from device extents alone. Tree blocks need no chunk: the scan knows their physical places. `rescue` calls
//! [`load`] once. A damaged source adds notes; it is not an error.

use std::collections::BTreeMap;

use btrfs_check::Disk;
use btrfs_disk::flags::BlockGroupFlags;
use btrfs_disk::items::{BlockGroupItem, ChunkItem, DevExtent, OnDisk as _};
use btrfs_disk::key::item_type;
use btrfs_disk::node::LeafView;
use btrfs_disk::superblock::DiskSuperblock;
use btrfs_disk::{DevId, Key, Logical, TreeId, Uuid};
use btrfs_pool::plan::plan;
use btrfs_pool::{Chunk, Purpose, Stripe};

use crate::blocks::{At, Blocks};
use crate::leaves::{Leaves, Spec};

/// Limit on chunks; a file system of 16 TiB has about as many.
const CHUNKS_MAX: usize = 1 << 20;

/// Fills the chunk map, and notes the sources used besides the chunk tree.
pub(crate) fn load(blocks: &mut Blocks, fields: Option<&DiskSuperblock>, notes: &mut Vec<String>) {
    let mut is_whole = false;
    if let Some(fields) = fields {
        let at = At { logical: fields.chunk_root.get(), generation: fields.chunk_root_generation.get() };
        let spec = Spec { root: Some((at, fields.chunk_root_level)), is_strict: true, ..Spec::default() };
        let leaves = Leaves::read(blocks, &spec);
        let chunks = chunks_of(blocks, &leaves);
        add(blocks, chunks);
        is_whole = !leaves.is_damaged();
    }
    if is_whole {
        return;
    }
    let chunks = scanned(blocks);
    let from_items = add(blocks, chunks);
    number_devices(blocks, notes);
    let from_extents = add_from_extents(blocks);
    notes.push(format!(
        "the chunk tree is damaged: {from_items} more chunks are known from its remaining and older leaves, \
         {from_extents} from the allocations of devices"
    ));
}

fn chunks_of(blocks: &Blocks, leaves: &Leaves) -> Vec<Chunk> {
    let mut chunks = Vec::new();
    leaves.items(blocks, Key::MIN, Key::MAX, &mut |key, data| {
        chunks.extend(parsed(key, data));
        chunks.len() < CHUNKS_MAX
    });
    chunks
}

fn parsed(key: Key, data: &[u8]) -> Option<Chunk> {
    if key.item_type != item_type::CHUNK_ITEM {
        return None;
    }
    Chunk::from_item(Logical(key.offset), &ChunkItem::parse(data).ok()?).ok()
}

/// The chunks in all leaves of the chunk tree that the scan found, the newest first.
fn scanned(blocks: &Blocks) -> Vec<Chunk> {
    let mut chunks = Vec::new();
    each_leaf(blocks, TreeId::CHUNK, &mut |leaf| {
        chunks.extend(leaf.iter().filter_map(|(key, data)| parsed(key, data)));
        chunks.len() < CHUNKS_MAX
    });
    chunks
}

/// Calls `take` with each scanned leaf of a tree, newest first, until it returns false.
fn each_leaf(blocks: &Blocks, tree: TreeId, take: &mut dyn FnMut(LeafView<'_>) -> bool) {
    for found in blocks.table().of(tree.0, 0) {
        let at = At { logical: found.logical, generation: found.generation };
        if let Some(block) = blocks.read(at, 0)
            && !take(LeafView::new(&block))
        {
            return;
        }
    }
}

/// Adds the chunks that do not overlap known ones. Returns the number added.
fn add(blocks: &mut Blocks, chunks: Vec<Chunk>) -> usize {
    let before = blocks.media.chunks.len();
    for chunk in chunks {
        // Newer chunks come first, so an overlapping chunk is older and is dropped.
        let _ = blocks.media.add_chunk(chunk);
    }
    blocks.media.chunks.len().saturating_sub(before)
}

/// Gives devices without a superblock the device ids under which chunks map the tree blocks found on them.
fn number_devices(blocks: &mut Blocks, notes: &mut Vec<String>) {
    let is_unknown = |disk: &Disk| disk.uuid.is_nil();
    if blocks.media.disks.len() < 2 || !blocks.media.disks.iter().any(is_unknown) {
        return;
    }
    let mut votes: BTreeMap<(u16, u64), u64> = BTreeMap::new();
    for found in blocks.table().all() {
        let Some(chunk) = blocks.media.chunk(found.logical, 1) else { continue };
        for mirror in 0..chunk.profile().mirror_count() {
            for part in plan(chunk, Logical(found.logical), 1, Purpose::Read(mirror)) {
                if part.device_offset == found.physical {
                    *votes.entry((found.device, part.device.0)).or_default() += 1;
                }
            }
        }
    }
    let mut votes: Vec<(u64, u16, u64)> = votes.into_iter().map(|((disk, id), count)| (count, disk, id)).collect();
    votes.sort_unstable_by(|a, b| b.cmp(a));
    let disks = &mut blocks.media.disks;
    let mut taken: Vec<u64> = disks.iter().filter(|disk| !is_unknown(disk)).map(|disk| disk.id.0).collect();
    let mut numbered: Vec<u16> = Vec::new();
    for (_, index, id) in votes {
        let Some(disk) = disks.get_mut(usize::from(index)) else { continue };
        if is_unknown(disk) && !numbered.contains(&index) && !taken.contains(&id) {
            disk.id = DevId(id);
            numbered.push(index);
            taken.push(id);
            notes.push(format!("{} is device {id}, as its tree blocks say", disk.device.name()));
        }
    }
    for index in 0..disks.len() {
        let free = (1..).find(|id| !taken.contains(id)).unwrap_or(1);
        let is_numbered = numbered.iter().any(|known| usize::from(*known) == index);
        if let Some(disk) = disks.get_mut(index)
            && is_unknown(disk)
            && !is_numbered
        {
            disk.id = DevId(free);
            taken.push(free);
        }
    }
}

/// Device id, start and length of a device extent.
type Run = (u64, u64, u64);

fn add_from_extents(blocks: &mut Blocks) -> usize {
    let mut taken: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    for chunk in blocks.media.chunks.values() {
        for stripe in chunk.stripes() {
            taken.insert((stripe.device.0, stripe.offset), chunk.stripe_bytes());
        }
    }
    let mut runs: BTreeMap<u64, Vec<Run>> = BTreeMap::new();
    each_leaf(blocks, TreeId::DEV, &mut |leaf| {
        for (key, data) in leaf.iter().filter(|(key, _)| key.item_type == item_type::DEV_EXTENT) {
            let Ok(extent) = DevExtent::parse(data) else { continue };
            let (device, start, len) = (key.objectid, key.offset, extent.length.get());
            if is_free(&taken, device, start, len) {
                taken.insert((device, start), len);
                runs.entry(extent.chunk_offset.get()).or_default().push((device, start, len));
            }
        }
        taken.len() < CHUNKS_MAX
    });
    let flags = group_flags(blocks);
    let chunks = runs.into_iter().filter_map(|(start, runs)| from_runs(start, &runs, flags.get(&start).copied()));
    let chunks = chunks.collect();
    add(blocks, chunks)
}

fn is_free(taken: &BTreeMap<(u64, u64), u64>, device: u64, start: u64, len: u64) -> bool {
    let Some(end) = start.checked_add(len).filter(|end| *end > start) else { return false };
    let before = taken.range((device, 0)..(device, end)).next_back();
    before.is_none_or(|((_, from), len)| from.saturating_add(*len) <= start)
}

/// Block group flags by chunk address.
fn group_flags(blocks: &Blocks) -> BTreeMap<u64, BlockGroupFlags> {
    let mut flags = BTreeMap::new();
    for tree in [TreeId::BLOCK_GROUP, TreeId::EXTENT] {
        each_leaf(blocks, tree, &mut |leaf| {
            for (key, data) in leaf.iter().filter(|(key, _)| key.item_type == item_type::BLOCK_GROUP_ITEM) {
                if let Ok(group) = BlockGroupItem::parse(data) {
                    flags.entry(key.objectid).or_insert(group.group_flags());
                }
            }
            flags.len() < CHUNKS_MAX
        });
    }
    flags
}

/// Builds a chunk whose stripes are full copies; `None` for striped profiles, whose stripe order is unknown.
fn from_runs(start: u64, runs: &[Run], flags: Option<BlockGroupFlags>) -> Option<Chunk> {
    let (_, _, len) = *runs.first()?;
    let of_one_device = runs.iter().all(|run| Some(run.0) == runs.first().map(|run| run.0));
    let flags = flags.unwrap_or(match runs.len() {
        1 => BlockGroupFlags::DATA,
        2 if of_one_device => BlockGroupFlags::DATA | BlockGroupFlags::DUP,
        _ => return None,
    });
    let is_striped = flags
        .intersects(BlockGroupFlags::RAID0 | BlockGroupFlags::RAID10 | BlockGroupFlags::RAID5 | BlockGroupFlags::RAID6);
    if is_striped {
        return None;
    }
    let copies = flags.intersects(
        BlockGroupFlags::DUP | BlockGroupFlags::RAID1 | BlockGroupFlags::RAID1C3 | BlockGroupFlags::RAID1C4,
    );
    let same = runs.iter().filter(|run| run.2 == len);
    let stripe = |run: &Run| Stripe { device: DevId(run.0), offset: run.1, device_uuid: Uuid::NIL };
    let stripes: Vec<Stripe> = same.map(stripe).collect();
    Chunk::new(Logical(start), len, flags, stripes.clone()).ok().or_else(|| {
        // If copies are missing, one known copy serves as the whole chunk.
        let use_bits = flags & (BlockGroupFlags::DATA | BlockGroupFlags::METADATA | BlockGroupFlags::SYSTEM);
        let first = stripes.into_iter().take(1).collect();
        if copies { Chunk::new(Logical(start), len, use_bits, first).ok() } else { None }
    })
}
