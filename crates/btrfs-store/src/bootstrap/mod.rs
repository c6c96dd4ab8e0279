//! Opens a store: from a superblock to a running engine.
//!
//! The superblock leads to the chunk tree, which names the devices and the chunks; these to all other trees, and to the
//! space that is left. [`lagging`] looks at members that are one commit behind.
//!
//! Invariant: nothing is written before the trees that a writer needs were found. Failure: the error of the first block
//! that cannot be read, or of the devices if some are missing; a read-only opening may go back to an earlier commit.
//! Callers: `Store::open`, views (`store/view`) and `make`.

mod lagging;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use blockdev::Device;
use btrfs_disk::flags::{BlockGroupFlags, CompatRo, Incompat};
use btrfs_disk::items::{ChunkItem, DevItem, OnDisk as _};
use btrfs_disk::key::item_type::{CHUNK_ITEM, DEV_ITEM};
use btrfs_disk::key::objectid;
use btrfs_disk::superblock::{DiskSuperblock, SUPERBLOCK_OFFSET, Superblock};
use btrfs_disk::verify::Format;
use btrfs_disk::{At, Corrupt, Detail, DevId, Generation, Key, Logical, TreeId};

use crate::locks::{Mutex, Rank};
use crate::options::StoreOptions;
use crate::quota::Quota;
use crate::space::{DeviceSpace, Space, SpaceConfig, group_infos};
use crate::tree::{Forest, RootPtr, Scan, Tree, TreeKind};
use crate::txn::{BlockReader, Buffers, CoreTrees, Engine, Gate, Health, Log, Pending, Trees, Views};
use crate::{Error, Result};
use btrfs_pool::{Chunk, FsSuper, Intent, MemberError, Members, Opening, Pool, Profile, Workers};

/// Opens the file system on `devices`.
pub(crate) fn open(devices: &[Arc<dyn Device>], options: &StoreOptions) -> Result<Engine> {
    match open_state(devices, options, options.generation) {
        Err(error @ (Error::Corrupt(_) | Error::NoGoodCopy { .. }))
            if options.uses_backup_roots && options.generation.is_none() =>
        {
            open_earlier(devices, options).ok_or(error)
        }
        opened => opened,
    }
}

/// The newest backup root that can be opened.
fn open_earlier(devices: &[Arc<dyn Device>], options: &StoreOptions) -> Option<Engine> {
    let members = Members::read(devices, Intent::ReadOnly, None, options.mode).ok()?;
    let mut earlier = generations(members.counting()?.1).into_iter().skip(1);
    earlier.find_map(|generation| open_state(devices, options, Some(generation)).ok())
}

fn open_state(devices: &[Arc<dyn Device>], options: &StoreOptions, generation: Option<Generation>) -> Result<Engine> {
    let access = if options.read_only { Intent::ReadOnly } else { Intent::ReadWrite };
    let workers = Arc::new(Workers::new(options.worker_count));
    let how = Opening {
        access,
        mode: options.mode,
        copy: options.superblock,
        too_short: options.too_short,
        leaves_parity: options.leaves_parity.is_some(),
    };
    let (pool, mut superblock) = Pool::open(devices, &how, workers)?;
    if let Some(wanted) = generation {
        use_generation(&mut superblock, wanted, options)?;
    }
    start(pool, superblock, options)
}

/// Starts an engine on a pool that knows its system chunks.
pub(crate) fn start(pool: Pool, superblock: FsSuper, options: &StoreOptions) -> Result<Engine> {
    start_with(pool, superblock, options, Listed::All)
}

/// The devices that the chunk tree lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    /// All of the pool.
    All,
    /// All but the one of a sprout that is being made.
    Seeds,
}

/// As [`start`].
pub(crate) fn start_with(
    pool: Pool,
    mut superblock: FsSuper,
    options: &StoreOptions,
    listed: Listed,
) -> Result<Engine> {
    let access = if pool.is_writable() { Intent::ReadWrite } else { Intent::ReadOnly };
    let parts = Parts::new(Arc::new(pool), &superblock, options)?;
    if listed == Listed::All {
        parts.settle_members(&mut superblock)?;
    }
    parts.add_chunks()?;
    let trees = Trees::new(Arc::clone(&parts.forest), parts.root_tree(&superblock), Arc::clone(&parts.chunk_tree));
    if listed == Listed::All {
        lagging::check(&parts, &trees, &superblock)?;
    }
    let core = core_trees(&trees, superblock.fields())?;
    let space = space(&parts, &core, superblock.fields(), options)?;
    if access == Intent::ReadWrite && !parts.pool.lagging().is_empty() {
        // Later commits must not find members that are further apart.
        parts.pool.write_superblock(&superblock)?;
    }
    let is_mirror = superblock.fields().bytenr.get() != SUPERBLOCK_OFFSET;
    if is_mirror && access == Intent::ReadWrite && options.superblock.is_none() {
        // A power cut tore the primary. The kernel looks at no other copy, and there may be nothing to commit here.
        parts.pool.write_primary_superblock(&superblock)?;
    }
    superblock.fields_mut().cache_generation = cache_generation(&trees, &core, superblock.fields())?.into();
    let engine = parts.engine(trees, core, space, superblock, options);
    if access == Intent::ReadWrite {
        engine.load_quotas()?;
    }
    let accounts_for = engine.commit_tree_bytes();
    engine.space.accounts().resize_global(accounts_for);
    Ok(engine)
}

/// The transaction for which caches of free space in files (`space_cache=v1`) are said to be valid:
/// 0 where there are none or a free-space tree is used instead, and never 0 or the maximum where
/// there are some, since either says nothing about them.
fn cache_generation(trees: &Trees, core: &CoreTrees, fields: &DiskSuperblock) -> Result<u64> {
    if core.free_space.is_some() {
        return Ok(0);
    }
    let stored = fields.cache_generation.get();
    if !matches!(stored, 0 | u64::MAX) {
        return Ok(stored);
    }
    let first = trees.root_tree.at_or_after(&Key::new(objectid::FREE_SPACE, 0, 0))?;
    let has_caches = first.is_some_and(|(key, _)| key.objectid == objectid::FREE_SPACE);
    Ok(if has_caches { 1 } else { stored })
}

/// Turns to an earlier state. Blocks of it that were overwritten since are noticed when they are read: a block's header
/// has the generation that wrote it.
pub(crate) fn use_generation(superblock: &mut Superblock, wanted: Generation, options: &StoreOptions) -> Result<()> {
    if !options.read_only {
        return Err(Error::unsupported("writing to an earlier state of a file system"));
    }
    if superblock.generation() == wanted {
        return Ok(());
    }
    let known = generations(superblock);
    let fields = superblock.fields_mut();
    let mut backups = fields.super_roots.iter().filter(|backup| backup.tree_root.get() != 0);
    let Some(backup) = backups.find(|backup| backup.tree_root_gen.get() == wanted.0).copied() else {
        let known: Vec<String> = known.iter().map(ToString::to_string).collect();
        let known = known.join(", ");
        return Err(Error::unsupported(format!("generation {wanted}: the superblock lists {known}")));
    };
    fields.root = backup.tree_root;
    fields.generation = backup.tree_root_gen;
    fields.root_level = backup.tree_root_level;
    fields.chunk_root = backup.chunk_root;
    fields.chunk_root_generation = backup.chunk_root_gen;
    fields.chunk_root_level = backup.chunk_root_level;
    fields.bytes_used = backup.bytes_used;
    // The log holds syncs made after the last commit.
    fields.log_root = 0.into();
    fields.log_root_level = 0;
    Ok(())
}

/// The states that a superblock leads to, the newest first.
pub(crate) fn generations(superblock: &Superblock) -> Vec<Generation> {
    let backups = superblock.fields().super_roots.iter().filter(|backup| backup.tree_root.get() != 0);
    let last = superblock.generation();
    let mut known: Vec<Generation> = backups.map(|backup| Generation(backup.tree_root_gen.get())).collect();
    known.retain(|generation| *generation < last);
    known.push(last);
    known.sort_unstable();
    known.dedup();
    known.reverse();
    known
}

/// The parts of an engine that exist before any tree but the chunk tree is read.
pub(crate) struct Parts {
    pub(crate) pool: Arc<Pool>,
    reader: Arc<BlockReader>,
    pub(crate) forest: Arc<Forest>,
    pub(crate) chunk_tree: Arc<Tree>,
}

impl Parts {
    pub(crate) fn new(pool: Arc<Pool>, superblock: &Superblock, options: &StoreOptions) -> Result<Self> {
        let fields = superblock.fields();
        let format = Format::of(fields).ok_or_else(|| Error::unsupported("this checksum type"))?;
        let format = format.with_seeds(&pool.seed_fsids());
        let running = Generation(superblock.generation().0.saturating_add(1));
        let reader = Arc::new(BlockReader::new(Arc::clone(&pool), format, running));
        let chunk_root = root_ptr(superblock.chunk_root());
        let uuid = match chunk_root.at.0 {
            0 => fresh_uuid(options),
            _ => chunk_tree_uuid(&reader, &chunk_root).map_err(|error| blame(error, &pool, superblock))?,
        };
        let forest = Forest::new(
            Arc::<BlockReader>::clone(&reader),
            pool.node_bytes(),
            options.cache_bytes,
            format.fsid.0,
            uuid,
        );
        let chunk_tree = Arc::new(Tree::new(Arc::clone(&forest), TreeId::CHUNK, TreeKind::Single, chunk_root));
        Ok(Self { pool, reader, forest, chunk_tree })
    }

    /// Finds out which devices there are, unless the superblock says that the one that was given is all.
    fn settle_members(&self, superblock: &mut FsSuper) -> Result<()> {
        let count = superblock.fields().num_devices.get();
        if count == 1 && self.pool.devices().iter().count() == 1 {
            return Ok(());
        }
        let mut items = Vec::new();
        let (first, last) = (dev_item_key(0), dev_item_key(u64::MAX));
        let read = self.chunk_tree.scan(&first, &last, |key, bytes| {
            items.push(*DevItem::parse(bytes).map_err(|error| error.at(At::Key(TreeId::CHUNK, *key)))?);
            Ok(Scan::Continue)
        });
        read.map_err(|error| blame(error, &self.pool, superblock))?;
        self.pool.settle_members(superblock, &items)?;
        // Seeds have superblocks of their own.
        let own = superblock.fields().dev_item.fsid;
        for item in items.into_iter().filter(|item| item.fsid == own) {
            let id = DevId(item.devid.get());
            match superblock.has(id) {
                // The member's own superblock may be a commit behind.
                true => superblock.change_item(id, |known| *known = item),
                false => superblock.add_item(item),
            }
        }
        Ok(())
    }

    fn add_chunks(&self) -> Result<()> {
        self.chunk_tree.scan(&Key::MIN, &Key::MAX, |key, bytes| {
            if key.item_type == CHUNK_ITEM {
                let item = ChunkItem::parse(bytes).map_err(|error| error.at(At::Key(TreeId::CHUNK, *key)))?;
                self.pool.add_chunk(Chunk::from_item(Logical(key.offset), &item)?)?;
            }
            Ok(Scan::Continue)
        })
    }

    /// The error of writing to the chunk at this address.
    fn loss_of(&self, at: Logical) -> Option<MemberError> {
        self.pool.loss_of(&*self.pool.chunks().lookup(at, 1).ok()?)
    }

    fn is_on_seed(&self, at: Logical) -> bool {
        self.pool.chunks().get(at).is_some_and(|chunk| self.pool.is_on_seed(&chunk))
    }

    pub(crate) fn root_tree(&self, superblock: &Superblock) -> Arc<Tree> {
        let root = root_ptr(superblock.root());
        Arc::new(Tree::new(Arc::clone(&self.forest), TreeId::ROOT, TreeKind::Single, root))
    }

    pub(crate) fn engine(
        self,
        trees: Trees,
        core: CoreTrees,
        space: Space,
        superblock: FsSuper,
        options: &StoreOptions,
    ) -> Engine {
        let durable = superblock.generation();
        Engine {
            reader: self.reader,
            trees,
            core,
            space,
            pending: Pending::none(),
            gate: Gate::new(durable),
            log: Log::new(superblock.clone()),
            buffers: Buffers::none(),
            views: Views::none(),
            superblock: Mutex::new(Rank::Superblock, superblock),
            health: Health::default(),
            quota: Quota::off(),
            options: options.clone(),
            mirrors_follow: AtomicBool::new(false),
            noted_losses: AtomicU64::new(0),
        }
    }
}

/// A chunk tree that cannot be read may lie on devices that are missing: they are the reason then.
fn blame(error: Error, pool: &Pool, superblock: &Superblock) -> Error {
    let missing = pool.missing(superblock.fields().num_devices.get());
    missing.map_or(error, |missing| Error::Members(Box::new(missing)))
}

fn dev_item_key(device: u64) -> Key {
    Key::new(objectid::DEV_ITEMS, DEV_ITEM, device)
}

fn fresh_uuid(options: &StoreOptions) -> [u8; 16] {
    options.env.uuid()
}

/// The UUID of the chunk tree stands in the header of every block.
fn chunk_tree_uuid(reader: &BlockReader, root: &RootPtr) -> Result<[u8; 16]> {
    use crate::tree::{BlockSource, layout};
    Ok(layout::chunk_tree_uuid(&reader.read_block(&root.expect(Some(TreeId::CHUNK)))?))
}

fn root_ptr((at, generation, level): (Logical, Generation, u8)) -> RootPtr {
    RootPtr { at, level, generation }
}

fn core_trees(trees: &Trees, fields: &DiskSuperblock) -> Result<CoreTrees> {
    let compat_ro = fields.compat_ro();
    let extent = trees.tree(TreeId::EXTENT)?;
    let has_valid_free_space = compat_ro.contains(CompatRo::FREE_SPACE_TREE | CompatRo::FREE_SPACE_TREE_VALID);
    let free_space = if has_valid_free_space { Some(trees.tree(TreeId::FREE_SPACE)?) } else { None };
    let block_group = if compat_ro.contains(CompatRo::BLOCK_GROUP_TREE) {
        trees.tree(TreeId::BLOCK_GROUP)?
    } else {
        Arc::clone(&extent)
    };
    let (csum, dev) = (trees.tree(TreeId::CSUM)?, trees.tree(TreeId::DEV)?);
    Ok(CoreTrees { extent, csum, dev, free_space, block_group })
}

/// Where data and metadata share block groups, all of them are shared but those of the chunk tree,
/// and a block is a sector. A feature bit that says so although they are not would put data among
/// tree blocks.
fn check_mixed(fields: &DiskSuperblock, chunks: &[Arc<Chunk>]) -> Result<()> {
    let (node, sector) = (fields.nodesize.get(), fields.sectorsize.get());
    if node != sector {
        let (expected, found) = (Detail::Number(sector.into()), Detail::Number(node.into()));
        let at = At::Superblock(SUPERBLOCK_OFFSET);
        return Err(Corrupt::new("node size with mixed block groups", expected, found).at(at).into());
    }
    let is_shared = |chunk: &Chunk| {
        let kind = chunk.flags() & BlockGroupFlags::TYPE_MASK;
        kind == BlockGroupFlags::MIXED || kind == BlockGroupFlags::SYSTEM
    };
    match chunks.iter().find(|chunk| !is_shared(chunk)) {
        None => Ok(()),
        Some(chunk) => {
            let expected = Detail::Text("data and metadata, as the feature mixed_groups is on");
            let found = Detail::Hex(chunk.flags().bits());
            Err(Corrupt::new("chunk type", expected, found).at(At::Block(chunk.start())).into())
        }
    }
}

pub(crate) fn space_config(fields: &DiskSuperblock) -> SpaceConfig {
    SpaceConfig {
        node_size: fields.nodesize.get().into(),
        sector_size: fields.sectorsize.get().into(),
        mixed: fields.incompat().contains(Incompat::MIXED_GROUPS),
        free_space_tree: fields.compat_ro().contains(CompatRo::FREE_SPACE_TREE | CompatRo::FREE_SPACE_TREE_VALID),
    }
}

fn has_parity(flags: BlockGroupFlags) -> bool {
    flags.intersects(BlockGroupFlags::RAID5 | BlockGroupFlags::RAID6)
}

fn losses_max(flags: BlockGroupFlags) -> usize {
    Profile::from_flags(flags).map_or(0, Profile::losses_max)
}

fn space(parts: &Parts, core: &CoreTrees, fields: &DiskSuperblock, options: &StoreOptions) -> Result<Space> {
    let space = Space::new(space_config(fields));
    let chunks = parts.pool.chunks().all();
    if !options.read_only && fields.incompat().contains(Incompat::MIXED_GROUPS) {
        check_mixed(fields, &chunks)?;
    }
    let infos = group_infos(&core.block_group, &chunks)?;
    let kind = |flags: BlockGroupFlags| (flags & BlockGroupFlags::TYPE_MASK).bits();
    let mut most_losses: BTreeMap<u64, usize> = BTreeMap::new();
    for info in infos.iter().filter(|info| !has_parity(info.flags) && !parts.is_on_seed(info.start)) {
        let most = most_losses.entry(kind(info.flags)).or_default();
        *most = losses_max(info.flags).max(*most);
    }
    for mut info in infos {
        if !options.read_only
            && let Some(loss) = parts.loss_of(info.start)
        {
            if info.used > 0 {
                return Err(Error::Members(Box::new(loss)));
            }
            // Nothing is lost of an empty group, and nothing may be written to it.
            info.read_only = true;
        }
        // Groups of a seed and groups with parity are not written, but they can be emptied. Empty ones with fewer
        // copies than others of their kind, which old programs left, would have data that a lost device takes along.
        let most = most_losses.get(&kind(info.flags)).copied().unwrap_or(0);
        let is_weak = info.used == 0 && losses_max(info.flags) < most;
        let is_only_left = has_parity(info.flags) || parts.is_on_seed(info.start) || is_weak;
        info.is_only_left = !options.read_only && is_only_left;
        let start = info.start;
        parts.pool.chunks().set_occupancy(start, space.add_group(info)?);
    }
    for device in parts.pool.devices().iter() {
        let loaded = DeviceSpace::load(&core.dev, device.id(), device.uuid(), device.total_bytes())?;
        let is_seed = device.seed_fsid().is_some();
        space.add_device(loaded.missing(device.is_missing()).of_seed(is_seed));
    }
    Ok(space)
}
