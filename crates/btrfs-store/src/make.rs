//! Makes a new file system, by the same transactions that later change it.
//!
//! The parts that a transaction needs are made first, but empty: a pool with three chunks (two if data and metadata
//! share one), their space, and trees without blocks. The first transaction then makes the root blocks and the items
//! that describe the chunks, and its commit is the first state on the device. Called by `Store::make`.

#![expect(clippy::indexing_slicing, reason = "the label and the first system chunk were made, and measured, here")]

use std::sync::Arc;

use blockdev::Device;
use btrfs_disk::convert::{to_u64, u32_len, usize_from};
use btrfs_disk::flags::{BlockGroupFlags, CompatRo, Incompat};
use btrfs_disk::items::{DevItem, OnDisk, RootItem};
use btrfs_disk::key::{item_type, objectid};
use btrfs_disk::superblock::{DiskSuperblock, LABEL_SIZE, Superblock};
use btrfs_disk::{DevId, Key, TreeId, Uuid};
use codec::checksum::ChecksumType;
use zerocopy::FromZeros;

use crate::bootstrap::{self, Listed, Parts, space_config};
use crate::error::SpaceKind;
use crate::options::StoreOptions;
use crate::space::{ChunkPlan, DeviceSpace, Space};
use crate::tree::{Edit, RootPtr, Tree};
use crate::txn::{CoreTrees, Engine, FundingSource, Trees, TxnHost};
use crate::{Error, Result};
use btrfs_pool::{FsSuper, Layout, Pool, PoolDevice, Workers};

/// Bytes of the smallest device on which a file system can be made.
pub const DEVICE_BYTES_MIN: u64 = 16 << 20;

/// The properties of a new file system.
#[derive(Clone, Debug)]
pub struct MakeOptions {
    /// Label, at most 255 bytes without NUL.
    pub label: Vec<u8>,
    /// UUID of the file system; random when absent.
    pub fsid: Option<Uuid>,
    /// UUID of the first device; random when absent, as those of the others always are.
    pub device_uuid: Option<Uuid>,
    /// Bytes of a tree block: a power of two, 4 to 64 KiB.
    pub nodesize: u32,
    /// Checksum of blocks and sectors.
    pub csum: ChecksumType,
    /// Profile bits for data (none: single).
    pub data_profile: BlockGroupFlags,
    /// Profile bits for tree blocks.
    pub metadata_profile: BlockGroupFlags,
    /// Data and tree blocks share block groups.
    pub mixed: bool,
    /// Features that other programs must know.
    pub incompat: Incompat,
    /// Features that other programs must know to write to the file system.
    pub compat_ro: CompatRo,
    /// Bytes to use of each device; all when absent.
    pub size: Option<u64>,
    /// Bytes of the longest chunk until the volume is closed, a multiple of 1 MiB: small ones leave little room at the
    /// end of what is then written.
    pub chunk_bytes_max: Option<u64>,
}

/// The defaults of `mkfs.btrfs` 6.19.
impl Default for MakeOptions {
    fn default() -> Self {
        Self {
            label: Vec::new(),
            fsid: None,
            device_uuid: None,
            nodesize: 16 << 10,
            csum: ChecksumType::Crc32c,
            data_profile: BlockGroupFlags::empty(),
            metadata_profile: BlockGroupFlags::DUP,
            mixed: false,
            incompat: Incompat::MIXED_BACKREF
                | Incompat::BIG_METADATA
                | Incompat::EXTENDED_IREF
                | Incompat::SKINNY_METADATA
                | Incompat::NO_HOLES,
            compat_ro: CompatRo::FREE_SPACE_TREE | CompatRo::FREE_SPACE_TREE_VALID | CompatRo::BLOCK_GROUP_TREE,
            size: None,
            chunk_bytes_max: None,
        }
    }
}

const SECTOR_SIZE: u32 = 4096;

/// Root blocks that every file system has.
const ROOT_BLOCKS_MIN: u64 = 6;

/// First chunks are multiples of this, bytes.
const CHUNK_ROUND: u64 = 1 << 20;

/// Makes the file system in memory; its first commit writes it.
pub(crate) fn make(devices: Vec<Arc<dyn Device>>, make: &MakeOptions, options: &StoreOptions) -> Result<Engine> {
    check(make)?;
    let sizes = devices.iter().map(|device| size_of(&**device, make)).collect::<Result<Vec<u64>>>()?;
    let mut fields = superblock(make, options, &sizes)?;
    let items: Vec<DevItem> = device_items(&fields, options, &sizes).collect();
    let total = fields.total_bytes.get();
    let space = Space::new(space_config(&fields));
    for item in &items {
        space.add_device(DeviceSpace::new(DevId(item.devid.get()), item.uuid, item.total_bytes.get()));
    }
    // A superblock without a system chunk is invalid.
    if let Some(bytes) = make.chunk_bytes_max {
        space.limit_chunks(bytes.max(CHUNK_ROUND));
    }
    let system = plan(&space, make, BlockGroupFlags::SYSTEM | make.metadata_profile, total)?;
    let array = system.array_entry();
    fields.sys_chunk_array[..array.len()].copy_from_slice(&array);
    fields.sys_chunk_array_size = u32_len(array.len()).into();
    let superblock = FsSuper::new(Superblock::new(fields)?, items.iter().copied());
    let layout =
        Layout { node_bytes: usize_from(make.nodesize), sector_bytes: usize_from(SECTOR_SIZE), csum_type: make.csum };
    let workers = Arc::new(Workers::new(options.worker_count));
    let pooled = items
        .iter()
        .zip(devices)
        .map(|(item, device)| PoolDevice::new(DevId(item.devid.get()), item.uuid, device, item.total_bytes.get()));
    let pool = Pool::create(pooled.collect(), layout, workers);
    let engine = engine(pool, space, superblock, options)?;
    let plans = add_chunks(&engine, make, system)?;
    write_trees(&engine, &plans)?;
    Ok(engine)
}

/// Bytes that the file system uses of a device.
fn size_of(device: &dyn Device, make: &MakeOptions) -> Result<u64> {
    let available = device.size_bytes();
    let total = make.size.unwrap_or(available) / u64::from(SECTOR_SIZE) * u64::from(SECTOR_SIZE);
    if total < DEVICE_BYTES_MIN || total > available {
        return Err(Error::NoSpace { kind: SpaceKind::System, needed: DEVICE_BYTES_MIN.max(total), available });
    }
    Ok(total)
}

fn check(make: &MakeOptions) -> Result<()> {
    let is_node_size = make.nodesize.is_power_of_two() && (4 << 10..=64 << 10).contains(&make.nodesize);
    let says = |what| Err(Error::unsupported(what));
    if !is_node_size {
        return says("a node size that is not a power of two from 4 KiB to 64 KiB");
    }
    if make.mixed && make.nodesize != SECTOR_SIZE {
        return says("mixed block groups with a node size other than the sector size");
    }
    if make.mixed && make.data_profile != make.metadata_profile {
        return says("mixed block groups with different profiles for data and metadata");
    }
    if make.compat_ro.contains(CompatRo::BLOCK_GROUP_TREE)
        && !(make.compat_ro.contains(CompatRo::FREE_SPACE_TREE) && make.incompat.contains(Incompat::NO_HOLES))
    {
        return says("a block group tree without free space tree and no-holes");
    }
    if make.label.len() >= LABEL_SIZE || make.label.contains(&0) {
        return says("a label of more than 255 bytes or with a NUL");
    }
    Ok(())
}

/// An engine on the trees of a seed, with a new device that the trees do not list.
pub(crate) fn sprout(seeds: &[Arc<dyn Device>], new: Arc<dyn Device>, options: &StoreOptions) -> Result<Engine> {
    let total_bytes = new.size_bytes() - new.size_bytes() % u64::from(SECTOR_SIZE);
    if total_bytes < DEVICE_BYTES_MIN {
        return Err(Error::NoSpace { kind: SpaceKind::System, needed: DEVICE_BYTES_MIN, available: total_bytes });
    }
    // The pool numbers it.
    let item = device_item(Uuid(options.env.uuid()), 0, Uuid(options.env.uuid()), total_bytes);
    let workers = Arc::new(Workers::new(options.worker_count));
    let (pool, superblock) = Pool::sprout(seeds, (new, item), workers)?;
    bootstrap::start_with(pool, superblock, options, Listed::Seeds)
}

/// The superblock as it is on the first device.
fn superblock(make: &MakeOptions, options: &StoreOptions, sizes: &[u64]) -> Result<DiskSuperblock> {
    let env = &options.env;
    let fsid = make.fsid.unwrap_or_else(|| Uuid(env.uuid()));
    let first = sizes.first().copied().ok_or_else(|| Error::unsupported("a file system on no device"))?;
    let total = sizes.iter().try_fold(0u64, |sum, size| sum.checked_add(*size));
    let mut fields = DiskSuperblock::new_zeroed();
    fields.fsid = fsid;
    fields.flags = 1.into();
    // As large as the kernel's own bound on the size of a file system.
    let is_small = |total: &u64| i64::try_from(*total).is_ok();
    let too_large = || Error::unsupported("a file system of 8 EiB or more");
    fields.total_bytes = total.filter(is_small).ok_or_else(too_large)?.into();
    // The first commit sets the real number; until then a valid superblock must claim at least the root blocks.
    fields.bytes_used = (u64::from(make.nodesize) * ROOT_BLOCKS_MIN).into();
    fields.root_dir_objectid = TreeId::ROOT_DIR.0.into();
    fields.num_devices = to_u64(sizes.len()).into();
    fields.sectorsize = SECTOR_SIZE.into();
    fields.nodesize = make.nodesize.into();
    fields.leafsize = make.nodesize.into();
    fields.stripesize = SECTOR_SIZE.into();
    fields.compat_ro_flags = make.compat_ro.bits().into();
    let mut incompat = make.incompat;
    incompat.set(Incompat::MIXED_GROUPS, make.mixed);
    let profiles = make.data_profile | make.metadata_profile;
    incompat.set(Incompat::RAID1C34, profiles.intersects(BlockGroupFlags::RAID1C3 | BlockGroupFlags::RAID1C4));
    fields.incompat_flags = incompat.bits().into();
    fields.csum_type = make.csum.to_raw().into();
    fields.label[..make.label.len()].copy_from_slice(&make.label);
    fields.dev_item = device_item(fsid, 1, make.device_uuid.unwrap_or_else(|| Uuid(env.uuid())), first);
    Ok(fields)
}

/// The items of all devices, which are numbered from 1 on.
fn device_items<'a>(
    fields: &'a DiskSuperblock,
    options: &'a StoreOptions,
    sizes: &'a [u64],
) -> impl Iterator<Item = DevItem> + 'a {
    let further = (2u64..).zip(sizes.iter().skip(1));
    let further = further.map(|(id, size)| device_item(fields.fsid, id, Uuid(options.env.uuid()), *size));
    std::iter::once(fields.dev_item).chain(further)
}

/// The item of a device without chunks.
pub(crate) fn device_item(fsid: Uuid, id: u64, uuid: Uuid, total_bytes: u64) -> DevItem {
    let mut device = DevItem::new_zeroed();
    device.devid = id.into();
    device.total_bytes = total_bytes.into();
    device.io_align = SECTOR_SIZE.into();
    device.io_width = SECTOR_SIZE.into();
    device.sector_size = SECTOR_SIZE.into();
    device.uuid = uuid;
    device.fsid = fsid;
    device
}

/// An engine whose trees have no blocks yet.
fn engine(pool: Pool, space: Space, superblock: FsSuper, options: &StoreOptions) -> Result<Engine> {
    let parts = Parts::new(Arc::new(pool), &superblock, options)?;
    let trees = Trees::new(Arc::clone(&parts.forest), parts.root_tree(&superblock), Arc::clone(&parts.chunk_tree));
    let open = |id: TreeId| {
        let mut item = RootItem::new_zeroed();
        item.refs = 1.into();
        Arc::clone(&trees.adopt(id, 0, item).tree)
    };
    let compat_ro = superblock.fields().compat_ro();
    let extent = open(TreeId::EXTENT);
    let has_groups = compat_ro.contains(CompatRo::BLOCK_GROUP_TREE);
    let block_group = if has_groups { open(TreeId::BLOCK_GROUP) } else { Arc::clone(&extent) };
    let has_free_space = compat_ro.contains(CompatRo::FREE_SPACE_TREE);
    let free_space = has_free_space.then(|| open(TreeId::FREE_SPACE));
    let core = CoreTrees { csum: open(TreeId::CSUM), dev: open(TreeId::DEV), free_space, block_group, extent };
    Ok(parts.engine(trees, core, space, superblock, options))
}

/// Longest first chunk of a kind: small, because more are added when they are needed.
fn first_chunk_max(flags: BlockGroupFlags, total: u64) -> u64 {
    let share = (total / 16).max(1 << 20) / CHUNK_ROUND * CHUNK_ROUND;
    if flags.contains(BlockGroupFlags::SYSTEM) {
        share.min(8 << 20)
    } else if flags.contains(BlockGroupFlags::METADATA) {
        share.min(256 << 20)
    } else {
        // As `mkfs.btrfs`: it stays when a volume is emptied, and tree blocks may need the room of the device.
        share.min(8 << 20)
    }
}

fn plan(space: &Space, make: &MakeOptions, flags: BlockGroupFlags, total: u64) -> Result<ChunkPlan> {
    let longest = make.chunk_bytes_max.unwrap_or(u64::MAX).max(CHUNK_ROUND);
    space.plan_chunk_up_to(flags, first_chunk_max(flags, total).min(longest))?.ok_or(Error::NoSpace {
        kind: SpaceKind::System,
        needed: DEVICE_BYTES_MIN,
        available: total,
    })
}

/// Makes the system chunk known, then the first of each other kind.
fn add_chunks(engine: &Engine, make: &MakeOptions, system: ChunkPlan) -> Result<Vec<ChunkPlan>> {
    let total = engine.pool().devices().iter().map(PoolDevice::total_bytes).sum();
    let others: &[_] = if make.mixed {
        &[BlockGroupFlags::MIXED | make.metadata_profile]
    } else {
        &[BlockGroupFlags::METADATA | make.metadata_profile, BlockGroupFlags::DATA | make.data_profile]
    };
    engine.adopt_chunk(&system)?;
    let mut plans = vec![system];
    for flags in others {
        let next = plan(&engine.space, make, *flags, total)?;
        engine.adopt_chunk(&next)?;
        plans.push(next);
    }
    Ok(plans)
}

/// Makes the root blocks, and writes the items of the chunks and the device.
fn write_trees(engine: &Engine, plans: &[ChunkPlan]) -> Result<()> {
    let generation = engine.gate.enter();
    let host = TxnHost { engine, generation, funding: FundingSource::Commit, keeps_freed: false };
    let edit = Edit::new(&host);
    let written = make_roots(engine, &host).and_then(|()| write_items(engine, &edit, plans));
    engine.gate.leave();
    written
}

fn make_roots(engine: &Engine, host: &TxnHost<'_>) -> Result<()> {
    let core = &engine.core;
    let mut trees: Vec<&Arc<Tree>> =
        vec![&engine.trees.root_tree, &engine.trees.chunk_tree, &core.extent, &core.dev, &core.csum];
    trees.extend(&core.free_space);
    if core.block_group.id() == TreeId::BLOCK_GROUP {
        trees.push(&core.block_group);
    }
    for tree in trees {
        let root: RootPtr = Tree::create_root(host, engine.trees.forest(), tree.id(), None)?;
        tree.set_root(root);
    }
    Ok(())
}

fn write_items(engine: &Engine, edit: &Edit<'_>, plans: &[ChunkPlan]) -> Result<()> {
    let devices = engine.superblock.lock().items().to_vec();
    for device in devices {
        let key = Key::new(objectid::DEV_ITEMS, item_type::DEV_ITEM, device.devid.get());
        edit.insert(&engine.trees.chunk_tree, &key, device.bytes())?;
    }
    for plan in plans {
        engine.space.write_chunk(edit, &engine.chunk_trees(), plan)?;
    }
    Ok(())
}
