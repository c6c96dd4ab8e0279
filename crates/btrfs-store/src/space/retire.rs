//! Retires empty block groups: their device ranges can become chunks of any kind or, at the end of the device, be
//! returned to the host.
//!
//! Nothing in the last commit lies in such a group, so its ranges may be reused at once; a crash brings back the chunk,
//! which is as empty as it was. Groups of the chunk tree stay: the superblock lists their chunks. Called by
//! `store/growth` and relocation.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use btrfs_disk::flags::BlockGroupFlags;
use btrfs_disk::key::item_type;
use btrfs_disk::{DevId, Key, Logical};

use super::Space;
use super::changes::Place;
use super::chunk::{ChunkTrees, DeviceSpace, change_device, device_runs, group_key};
use super::free_map::Run;
use super::free_space_tree;
use super::group::{BlockGroup, Free};
use crate::error::{Error, Result, SpaceKind};
use crate::tree::{Edit, Tree};
use btrfs_pool::Chunk;

/// Which empty groups may be removed. The last of each profile stays: it records the profile for the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spare {
    /// All of other kinds: this kind is short of space. Its own empty groups serve it as they are.
    For(SpaceKind),
    /// All: the volume is to be small.
    All,
    /// All but one of each profile, into which the next files go; that one of tree blocks as well, where others are in
    /// use.
    ButOne,
}

/// Groups with the same flags.
#[derive(Clone, Copy, Debug, Default)]
struct Alike {
    count: usize,
    empty: usize,
}

impl Space {
    /// The groups that may be removed, the last one first, so that the used part of the volume stays together.
    fn spare_groups(&self, which: Spare) -> Vec<Arc<BlockGroup>> {
        let mut groups = self.groups.all();
        let mut alike: BTreeMap<u64, Alike> = BTreeMap::new();
        for group in &groups {
            let same = alike.entry(group.flags().bits()).or_default();
            same.count += 1;
            same.empty += usize::from(group.is_empty());
        }
        groups.retain(|group| {
            let same = alike.get(&group.flags().bits()).copied().unwrap_or_default();
            let kind = group.kind();
            let is_wanted = match which {
                Spare::For(short) => self.accounts.index(kind) != self.accounts.index(short),
                Spare::All => true,
                // Enough space stays for new tree blocks anyway (`give_up`).
                Spare::ButOne => same.empty > 1 || (kind == SpaceKind::Metadata && same.empty < same.count),
            };
            is_wanted && same.count > 1 && kind != SpaceKind::System && group.is_empty()
        });
        groups.reverse();
        groups
    }

    /// Whether [`Self::retire_group`] may find one.
    pub(crate) fn has_spare_group(&self, which: Spare) -> bool {
        !self.spare_groups(which).is_empty()
    }

    /// Closes an empty group permanently: nothing is allocated from it any more. The caller, which holds the growth
    /// lock, then erases it or poisons the store. `None` if no group may be removed.
    pub(crate) fn retire_group(&self, which: Spare) -> Option<Arc<BlockGroup>> {
        let give_up =
            |group: &Arc<BlockGroup>| group.retire(|free| self.accounts.give_up(group.kind(), group.total(), free));
        self.spare_groups(which).into_iter().find(give_up)
    }

    /// Closes a group whose free space is loaded for allocation, so that it can be emptied; false where its free bytes
    /// are reserved.
    pub(crate) fn close_group(&self, group: &BlockGroup) -> bool {
        let (kind, total) = (group.kind(), group.total());
        let give_up = |free| self.accounts.give_up(kind, total, Free::Loaded(free));
        self.groups.close(self.accounts.index(kind), group, give_up)
    }

    /// Takes the bytes of an abandoned group out of the accounts; false where they are reserved.
    pub(crate) fn close_abandoned(&self, group: &BlockGroup) -> bool {
        group.close_abandoned(|free| self.accounts.give_up(group.kind(), group.total(), free))
    }

    /// Takes back [`Self::close_group`].
    pub(crate) fn reopen_group(&self, group: &Arc<BlockGroup>) {
        if group.is_only_left() {
            return;
        }
        let (kind, free) = (group.kind(), group.reopen());
        // Open first: a thread that can reserve the bytes must be able to allocate them.
        self.groups.open(self.accounts.index(kind), group);
        self.accounts.group_reopened(kind, group.total(), free);
    }

    /// Sets the flags of new groups of a kind, until the next call.
    pub(crate) fn set_target(&self, kind: SpaceKind, flags: Option<BlockGroupFlags>) {
        if let Some(target) = self.targets.lock().get_mut(self.accounts.index(kind)) {
            *target = flags;
        }
    }

    /// Limits all new chunks until the volume is closed.
    pub(crate) fn limit_chunks(&self, bytes: u64) {
        self.chunk_bytes_limit.store(bytes, Relaxed);
    }

    /// Limits new chunks to this many bytes, beside the limits of their kind.
    pub(crate) fn set_chunk_bytes_max(&self, bytes: u64) {
        self.chunk_bytes_max.store(bytes, Relaxed);
    }

    /// New chunks end before this byte of the device.
    pub(crate) fn set_ceiling(&self, id: DevId, ceiling: u64) {
        if let Some(device) = self.devices.lock().iter_mut().find(|device| device.id() == id) {
            device.set_ceiling(ceiling);
        }
        self.accounts.set_none_full();
    }

    /// Sets whether a device is missing: new chunks do without it as far as they can.
    pub(crate) fn set_missing(&self, id: DevId, is_missing: bool) {
        if let Some(device) = self.devices.lock().iter_mut().find(|device| device.id() == id) {
            device.set_missing(is_missing);
        }
        self.accounts.set_none_full();
    }

    /// Removes the items of a chunk whose group was retired; its device ranges become `place`. The caller then has the
    /// pool and the superblock forget it, and calls [`Self::forget_group`].
    ///
    /// # Errors
    /// [`Error::NotFound`] for an item that is missing, and whatever editing a tree fails with; the transaction cannot
    /// continue then.
    pub(crate) fn erase_chunk(
        &self,
        edit: &Edit<'_>,
        trees: &ChunkTrees<'_>,
        chunk: &Chunk,
        place: Place,
    ) -> Result<()> {
        for (id, run) in device_runs(chunk) {
            remove(edit, trees.device, &Key::new(id.0, item_type::DEV_EXTENT, run.start))?;
            let is_given =
                self.devices.lock().iter_mut().find(|device| device.id() == id).map(|device| device.give(run, place));
            if is_given != Some(true) {
                return Err(Error::bug(format!("{run:?} of device {} is in no chunk", id.0), "chunk"));
            }
            self.write_device_use(edit, trees.chunk, id)?;
        }
        remove(edit, trees.chunk, &chunk.key())?;
        let group = Run { start: chunk.start().0, len: chunk.len_bytes() };
        remove(edit, trees.block_group, &group_key(group))?;
        trees.free_space.map_or(Ok(()), |tree| free_space_tree::remove_group(edit, tree, group))
    }

    /// Forgets a device that no chunk has a part of.
    pub(crate) fn remove_device(&self, id: DevId) {
        self.devices.lock().retain(|device| device.id() != id);
    }

    /// The byte after the last range of a device that a chunk has.
    pub(crate) fn used_end(&self, id: DevId) -> Option<u64> {
        self.devices.lock().iter().find(|device| device.id() == id).map(DeviceSpace::used_end)
    }

    /// Records that the file system uses `total_bytes` of a device. The caller updates the pool and the superblock.
    ///
    /// # Errors
    /// [`Error::NoSpace`] where chunks lie beyond; whatever editing a tree fails with, after which the transaction
    /// cannot continue.
    pub(crate) fn resize_device(&self, edit: &Edit<'_>, tree: &Tree, id: DevId, total_bytes: u64) -> Result<()> {
        let resized =
            self.devices.lock().iter_mut().find(|device| device.id() == id).map(|device| device.resize(total_bytes));
        resized.unwrap_or_else(|| Err(Error::bug(format!("no device {}", id.0), "resize")))?;
        change_device(edit, tree, id, |item| item.total_bytes = total_bytes.into())?;
        self.accounts.set_none_full();
        Ok(())
    }

    /// Forgets the group of an erased chunk; devices have room again.
    pub(crate) fn forget_group(&self, at: Logical) {
        self.groups.remove(at.0);
        self.accounts.set_none_full();
    }
}

fn remove(edit: &Edit<'_>, tree: &Tree, key: &Key) -> Result<()> {
    if edit.remove(tree, key)? { Ok(()) } else { Err(Error::NotFound { tree: tree.id(), key: *key }) }
}
