//! Holds the parts of an open store that every transaction works on: the engine. `Store` owns one and calls it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use btrfs_disk::convert::to_u64;
use btrfs_disk::flags::{BlockGroupFlags, Incompat};
use btrfs_disk::items::{ChunkItem, DevItem};
use btrfs_disk::key::DiskKey;
use btrfs_disk::{DevId, Generation, TreeId, Uuid};

use zerocopy::IntoBytes;

use crate::extent::{CsumSizes, CsumTree, ExtentSizes, check_no_csums, check_unused};
use crate::locks::Mutex;
use crate::options::StoreOptions;
use crate::quota::{Groups, Quota};
use crate::space::{BlockGroup, ChunkPlan, ChunkTrees, Extent, LoadFrom, Space, load_group};
use crate::tree::Tree;
use crate::{Error, Result};
use btrfs_pool::{Chunk, FsSuper, Pool, PoolDevice};

use super::buffers::Buffers;
use super::gate::Gate;
use super::log_state::Log;
use super::pending_work::Pending;
use super::reader::BlockReader;
use super::trees::Trees;
use super::views::Views;

/// The trees of the store's own records.
pub(crate) struct CoreTrees {
    pub(crate) extent: Arc<Tree>,
    pub(crate) csum: Arc<Tree>,
    pub(crate) dev: Arc<Tree>,
    pub(crate) free_space: Option<Arc<Tree>>,
    /// Where the block group items are: a tree of their own, or the extent tree.
    pub(crate) block_group: Arc<Tree>,
}

/// The parts of an open store.
pub(crate) struct Engine {
    /// Leads to the devices too.
    pub(crate) reader: Arc<BlockReader>,
    pub(crate) trees: Trees,
    pub(crate) core: CoreTrees,
    pub(crate) space: Space,
    pub(crate) pending: Pending,
    pub(crate) gate: Gate,
    pub(crate) log: Log,
    pub(crate) buffers: Buffers,
    pub(crate) views: Views,
    pub(crate) superblock: Mutex<FsSuper>,
    pub(crate) health: Health,
    pub(crate) quota: Arc<Quota>,
    pub(crate) options: StoreOptions,
    /// Whether the mirrors of the superblock were written since the store was opened.
    pub(crate) mirrors_follow: AtomicBool,
    /// Failed devices ([`Pool::losses`]) that a commit has noted.
    pub(crate) noted_losses: AtomicU64,
}

impl Engine {
    /// The devices, behind the chunk map.
    pub(crate) fn pool(&self) -> &Pool {
        self.reader.pool()
    }

    /// Writes the mirrors of the superblock on the devices, unless that was done since the store was opened: a crash
    /// may have left them a commit behind, and they have to replace the primary if writing it tears it. The caller
    /// flushes, and then writes the primary.
    pub(crate) fn renew_mirrors(&self, on_device: &FsSuper) -> Result<()> {
        if self.mirrors_follow.load(Ordering::Acquire) { Ok(()) } else { self.write_mirrors(on_device) }
    }

    /// Writes the mirrors of the superblock on the devices.
    pub(crate) fn write_mirrors(&self, on_device: &FsSuper) -> Result<()> {
        self.pool().write_superblock_mirrors(on_device)?;
        self.mirrors_follow.store(true, Ordering::Release);
        Ok(())
    }

    /// The trees with items of chunks.
    pub(crate) fn chunk_trees(&self) -> ChunkTrees<'_> {
        ChunkTrees {
            chunk: &self.trees.chunk_tree,
            device: &self.core.dev,
            block_group: &self.core.block_group,
            free_space: self.core.free_space.as_deref(),
            chunk_tree_uuid: Uuid(self.trees.forest().chunk_tree_uuid),
        }
    }

    /// Loads the free space of a group, if that was not done before; no commit may change the trees meanwhile.
    pub(crate) fn load_group(&self, group: &Arc<BlockGroup>) -> Result<()> {
        let from = match &self.core.free_space {
            Some(tree) => LoadFrom::FreeSpaceTree(tree),
            None => LoadFrom::ExtentTree(&self.core.extent),
        };
        load_group(&self.space, group, from)
    }

    /// Makes earlier writes to the devices durable; a failure ends all writing.
    pub(crate) fn flush(&self) -> Result<()> {
        self.health.check()?;
        self.pool().flush().map_err(Error::from).inspect_err(|error| self.health.poison(error))
    }

    pub(crate) fn nodesize(&self) -> u64 {
        to_u64(self.pool().node_bytes())
    }

    pub(crate) fn extent_sizes(&self) -> ExtentSizes {
        ExtentSizes {
            nodesize: self.reader.format.nodesize,
            is_skinny: self.reader.format.incompat.contains(Incompat::SKINNY_METADATA),
        }
    }

    /// Fails if the extent tree has an extent in space that was just allocated, before anything is written there. If
    /// the free space was wrong once, nothing more is written.
    pub(crate) fn check_unused(&self, extent: Extent) -> Result<()> {
        let checked = check_unused(&self.core.extent, &self.extent_sizes(), extent.at, extent.len);
        checked.inspect_err(|error| self.health.poison(error))
    }

    /// As [`Self::check_unused`], for data. Without a free-space tree, free space comes from the extent tree and cannot
    /// contradict it; but data that the extent tree has lost has checksums.
    pub(crate) fn check_unused_by_data(&self, extent: Extent) -> Result<()> {
        self.check_unused(extent)?;
        if self.core.free_space.is_some() {
            return Ok(());
        }
        let checked = check_no_csums(&self.csum_tree(), extent.at, extent.len);
        checked.inspect_err(|error| self.health.poison(error))
    }

    pub(crate) fn csum_sizes(&self) -> CsumSizes {
        CsumSizes {
            nodesize: self.reader.format.nodesize,
            sectorsize: self.reader.format.sectorsize,
            csum: self.pool().csum_type().len(),
        }
    }

    pub(crate) fn csum_tree(&self) -> CsumTree<'_> {
        CsumTree::new(&self.core.csum, &self.csum_sizes())
    }

    /// Adds a chunk whose items are written: its space can be allocated.
    pub(crate) fn adopt_chunk(&self, plan: &ChunkPlan) -> Result<()> {
        let chunk = &plan.chunk;
        self.pool().add_chunk(chunk.clone())?;
        {
            let mut superblock = self.superblock.lock();
            let is_listed = superblock.system_chunks().any(|known| known.is_ok_and(|(key, _)| key == chunk.key()));
            if chunk.flags().contains(BlockGroupFlags::SYSTEM) && !is_listed {
                let mut array = superblock.fields().system_chunk_bytes().to_vec();
                array.extend_from_slice(&plan.array_entry());
                superblock.set_system_chunks(&array)?;
            }
            if chunk.flags().intersects(BlockGroupFlags::RAID1C3 | BlockGroupFlags::RAID1C4) {
                let mut incompat = superblock.fields().incompat();
                incompat.insert(Incompat::RAID1C34);
                superblock.fields_mut().incompat_flags = incompat.bits().into();
            }
        }
        self.note_device_use();
        let group = self.space.adopt_chunk(plan)?;
        self.pool().chunks().set_occupancy(chunk.start(), group);
        Ok(())
    }

    /// Forgets an empty chunk whose items are removed.
    ///
    /// # Errors
    /// `Corrupt` for a list of system chunks that cannot be read.
    pub(crate) fn forget_chunk(&self, chunk: &Chunk) -> Result<()> {
        if chunk.flags().contains(BlockGroupFlags::SYSTEM) {
            self.unlist_chunk(chunk)?;
        }
        self.space.forget_group(chunk.start());
        self.pool().chunks().remove(chunk.start());
        self.note_device_use();
        Ok(())
    }

    /// Takes a chunk out of the superblock's array of system chunks.
    fn unlist_chunk(&self, chunk: &Chunk) -> Result<()> {
        let mut superblock = self.superblock.lock();
        let mut array = Vec::new();
        for entry in superblock.system_chunks() {
            let (key, item) = entry?;
            if key != chunk.key() {
                array.extend_from_slice(DiskKey::from(key).as_bytes());
                array.extend_from_slice(&ChunkItem::build(item.chunk, item.stripes));
            }
        }
        Ok(superblock.set_system_chunks(&array)?)
    }

    /// The device with this number.
    ///
    /// # Errors
    /// `Bug` for a device that is not part of the file system.
    pub(crate) fn device(&self, id: DevId) -> Result<&PoolDevice> {
        self.pool().devices().get(id).ok_or_else(|| Error::bug(format!("no device {id}"), "the pool"))
    }

    /// How many devices have failed, if no commit has noted that yet. Until then a failed device has the generation of
    /// the others but not what they have, so nothing may be promised.
    pub(crate) fn unnoted_losses(&self) -> Option<u64> {
        let losses = self.pool().losses();
        (losses > self.noted_losses.load(Ordering::Acquire)).then_some(losses)
    }

    /// True if a sync of the log would make nothing durable: only a commit does.
    pub(crate) fn is_log_useless(&self, generation: Generation) -> bool {
        self.log.is_useless(generation) || self.unnoted_losses().is_some()
    }

    /// Sets the size of a device in the superblock.
    pub(crate) fn note_device_size(&self, id: DevId, total_bytes: u64) {
        let change = |item: &mut DevItem| item.total_bytes = total_bytes.into();
        self.change_members(|superblock| superblock.change_item(id, change));
    }

    /// Changes the members in the superblock, and with them the number of devices and their bytes.
    pub(crate) fn change_members(&self, change: impl FnOnce(&mut FsSuper)) {
        let mut superblock = self.superblock.lock();
        change(&mut superblock);
        // The numbers of a sprout are with its seeds.
        let seeds = self.pool().devices().iter().filter(|device| device.seed_fsid().is_some());
        let (seed_count, seed_bytes) =
            seeds.fold((0u64, 0u64), |(count, sum), seed| (count + 1, sum.saturating_add(seed.total_bytes())));
        let count = to_u64(superblock.items().len()) + seed_count;
        let items = superblock.items().iter();
        let sum = items.fold(seed_bytes, |sum, item| sum.saturating_add(item.total_bytes.get()));
        let fields = superblock.fields_mut();
        (fields.num_devices, fields.total_bytes) = (count.into(), sum.into());
    }

    /// Sets the bytes that chunks use of their devices in the superblocks.
    fn note_device_use(&self) {
        for device in self.pool().devices() {
            if let Some(used) = self.space.device_bytes_used(device.id()) {
                self.superblock.lock().change_item(device.id(), |item| item.bytes_used = used.into());
            }
        }
    }

    /// Loads the quota groups, if quotas are on.
    ///
    /// # Errors
    /// When they cannot be read.
    pub(crate) fn load_quotas(&self) -> Result<()> {
        let Some(tree) = self.trees.try_tree(TreeId::QUOTA)? else { return Ok(()) };
        let loaded = Groups::load(&tree, self.gate.durable())?;
        self.quota.change(|groups| *groups = loaded);
        Ok(())
    }

    /// Bytes of tree blocks that wait for the commit.
    pub(crate) fn dirty_bytes(&self) -> u64 {
        to_u64(self.pending.dirty.count()).saturating_mul(self.nodesize())
    }

    /// True when the transaction should end before more joins it: it fills the memory, or its commit
    /// may soon find no room.
    pub(crate) fn is_commit_due(&self) -> bool {
        self.is_crowded() || self.is_commit_short()
    }

    /// True when pending changes take as much memory as they may.
    pub(crate) fn is_crowded(&self) -> bool {
        self.dirty_bytes() > self.options.dirty_bytes_max
            || self.pending.refs.is_crowded()
            || self.pending.touched.is_crowded()
    }

    /// True when there may soon be no room for the commit.
    pub(crate) fn is_commit_short(&self) -> bool {
        self.space.accounts().is_commit_due(to_u64(self.pending.refs.entry_count()), || self.commit_tree_bytes())
    }

    /// Bytes of the trees that every commit changes.
    pub(crate) fn commit_tree_bytes(&self) -> u64 {
        let core = &self.core;
        let block_group = (core.block_group.id() == TreeId::BLOCK_GROUP).then_some(&core.block_group);
        let trees = [&core.extent, &core.csum, &self.trees.root_tree]
            .into_iter()
            .chain(core.free_space.as_ref())
            .chain(block_group);
        let quota = self.quota.is_on().then(|| self.trees.try_tree(TreeId::QUOTA).ok().flatten()).flatten();
        let trees = trees.chain(quota.as_ref());
        // Root items may claim any size of their trees.
        let blocks = trees.fold(0u64, |sum, tree| sum.saturating_add(tree.block_count()));
        blocks.saturating_mul(self.nodesize())
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

/// Whether writing can continue.
#[derive(Debug, Default)]
pub(crate) struct Health(OnceLock<Arc<Error>>);

impl Health {
    /// Fails when an earlier write failed.
    pub(crate) fn check(&self) -> Result<()> {
        match self.0.get() {
            Some(reason) => Err(Error::Poisoned { reason: Arc::clone(reason) }),
            None => Ok(()),
        }
    }

    /// Ends all writing; the first reason stays.
    pub(crate) fn poison(&self, reason: &Error) {
        let _ = self.0.set(Arc::new(reason.clone()));
    }

    /// As [`Self::poison`], unless only the host of the image was full, and the caller can continue.
    pub(crate) fn poison_unless_full(&self, reason: &Error) {
        if !reason.is_device_full() {
            self.poison(reason);
        }
    }

    pub(crate) fn reason(&self) -> Option<Arc<Error>> {
        self.0.get().cloned()
    }
}
