//! Commits: the transaction's changes settle into the trees, and are written to the devices. Called by `Store`
//! (`store/commits`); relocation and quotas begin exclusive handles with it.
//!
//! A settled transaction does not change any more, and nothing on the device leads to its blocks before its superblock
//! is there. So where the device has no room for it (a sparse image on a full host) it waits in memory, and the next
//! commit writes it first: the caller gets an error, and nothing else is lost. Later changes join the next transaction
//! meanwhile, which can be committed, or have a log, only when the one before is durable. It waits, too, while an
//! exclusive handle has the next transaction, since all other handles wait for the end of that one.

use std::sync::Arc;

use btrfs_disk::superblock::RootBackup;
use btrfs_disk::{Generation, TreeId};
use btrfs_pool::FsSuper;

use crate::ablation::{Mutation, mutated};
use crate::extent::{Apply, Counted, SpaceSink};
use crate::space::{Extent, Reservation};
use crate::tree::{Edit, EditItem, RootPtr};
use crate::{Error, Result};
use btrfs_disk::{At, Corrupt, Detail, Logical};

use super::engine::Engine;
use super::gate::Serial;
use super::handle::Txn;
use super::host::{FundingSource, TxnHost};
use super::settled_txn::SettledTxn;
use super::staging::Staged;

/// Rounds after which settling is considered broken. Each round after the first can only
/// be caused by blocks copied in the one before, which become fewer fast.
const ROUNDS_MAX: usize = 64;

/// Rounds after which freed blocks stay pinned until the commit is durable. Where the item of a free run needs the very
/// block that the run consists of, allocating that block removes the item, which frees the block, which brings the item
/// back.
const ROUNDS_FREEING: usize = 8;

/// The handles that the gate admits when a transaction has settled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    AllHandles,
    OneHandle,
}

impl Engine {
    /// Commits; everything changed before the call is durable after it.
    pub(crate) fn commit(&self) -> Result<Generation> {
        let wanted = self.gate.running();
        let serial = self.make_way()?;
        self.health.check()?;
        if self.gate.durable() < wanted {
            self.commit_then(&serial, Next::AllHandles)?;
        }
        Ok(self.gate.durable())
    }

    /// Shortens the critical section of a commit or [`Self::begin_exclusive`], and bars the next commit. Handles wait
    /// while a commit applies queued changes; here these are applied in parts between which handles run. Changes queued
    /// meanwhile are left, or this could continue without end.
    pub(crate) fn make_way(&self) -> Result<Serial<'_>> {
        self.health.check()?;
        self.log.unreplayed.check()?;
        let mut parts = self.drains_due();
        while parts > 0 && self.is_drain_due() && self.drain()? {
            parts -= 1;
        }
        Ok(self.gate.serialize())
    }

    /// Settles the transaction, and starts the next one with a handle that is alone in it: no block belongs to the new
    /// generation yet. The settled one is written by the next commit, or [`Self::write_settled`].
    pub(crate) fn begin_exclusive(self: &Arc<Self>, reservation: Reservation) -> Result<Txn> {
        self.health.check()?;
        self.log.unreplayed.check()?;
        let serial = self.gate.serialize();
        let generation = self.commit_then(&serial, Next::OneHandle)?;
        Ok(Txn::new(Arc::clone(self), generation, reservation, true))
    }

    fn commit_then(&self, serial: &Serial<'_>, next: Next) -> Result<Generation> {
        self.finish_earlier(serial)?;
        let generation = self.gate.close(serial);
        let mut on_device = self.log.lock_superblock();
        let settled = if self.is_clean() { Ok(None) } else { self.settle(generation).map(Some) };
        let settled = settled.inspect_err(|error| {
            self.health.poison(error);
            self.gate.open(serial, false);
        })?;
        let advance = settled.is_some();
        let running = match next {
            Next::AllHandles => self.gate.open(serial, advance),
            Next::OneHandle => self.gate.open_exclusive(serial, advance),
        };
        self.reader.set_running(running);
        match (settled, next) {
            (Some(settled), Next::AllHandles) => self.finish(serial, settled, &mut on_device)?,
            (Some(settled), Next::OneHandle) => self.pending.unwritten.keep(settled),
            (None, _) => {}
        }
        Ok(running)
    }

    /// Writes the transaction that settled before an exclusive handle, unless another thread has begun to.
    pub(crate) fn write_settled(&self) -> Result<()> {
        if self.pending.unwritten.is_none() {
            return Ok(());
        }
        let serial = self.gate.serialize();
        self.health.check()?;
        self.finish_earlier(&serial)
    }

    /// Writes the transaction that settled before an exclusive handle, or that an earlier commit found no room for.
    fn finish_earlier(&self, serial: &Serial<'_>) -> Result<()> {
        let Some(settled) = self.pending.unwritten.take() else { return Ok(()) };
        self.finish(serial, settled, &mut self.log.lock_superblock())
    }

    /// True when a commit would have nothing to write.
    fn is_clean(&self) -> bool {
        let has_quotas_to_write = self.quota.is_on() && self.quota.lock().is_dirty();
        self.pending.is_empty() && !self.trees.is_any_changed() && self.log.is_empty() && !has_quotas_to_write
    }

    fn finish(&self, serial: &Serial<'_>, settled: SettledTxn, on_device: &mut FsSuper) -> Result<()> {
        if self.options.discard && mutated(Mutation::DiscardedEarly) {
            self.discard_pinned(&settled.pinned);
        }
        if let Err(error) = self.with_room(|| self.write_out(&settled, on_device)) {
            self.health.poison_unless_full(&error);
            if error.is_device_full() {
                self.pending.unwritten.keep(settled);
            }
            return Err(error);
        }
        *on_device = settled.superblock;
        self.gate.set_durable(serial, settled.generation);
        self.pending.refs.note_durable();
        let free = self.hold_back(settled.generation, settled.pinned)?;
        if self.options.discard {
            self.discard_pinned(&free);
        }
        self.space.unpin(free).inspect_err(|error| self.health.poison(error))
    }

    /// Runs `write`, and once more where the host of the image was full, if a discard of free space returned some of it
    /// to the host first.
    pub(crate) fn with_room<R>(&self, write: impl Fn() -> Result<R>) -> Result<R> {
        match write() {
            Err(error) if error.is_device_full() && self.discard_free() > 0 => write(),
            answer => answer,
        }
    }

    fn settle(&self, generation: Generation) -> Result<SettledTxn> {
        let host = |keeps_freed| TxnHost { engine: self, generation, funding: FundingSource::Commit, keeps_freed };
        let log = self.log.end(self.trees.forest(), &self.space, |at| self.views.note_taken(at))?;
        self.apply_deferred(&Edit::new(&host(false)))?;
        let quotas = self.quotas_before();
        let mut rounds = 0;
        if let Some(before) = &quotas {
            self.settle_round(&host(false), log.had_log)?;
            self.quotas_after(before, &Edit::new(&host(false)))?;
        }
        while self.settle_round(&host(rounds >= ROUNDS_FREEING), log.had_log)? {
            rounds += 1;
            if rounds > ROUNDS_MAX {
                return Err(Error::bug(format!("{rounds} rounds did not write everything into the trees"), "commit"));
            }
        }
        self.pending.refs.note_settled();
        let accounts = self.space.accounts();
        accounts.uncharge_all();
        accounts.resize_global(self.commit_tree_bytes());
        let superblock = self.next_superblock(generation)?;
        Ok(SettledTxn {
            generation,
            blocks: self.pending.dirty.take_sorted(),
            superblock,
            before: log.superblock,
            pinned: self.space.take_pinned(),
        })
    }

    /// One round; false when there was nothing left to do.
    fn settle_round(&self, host: &TxnHost<'_>, had_log: bool) -> Result<bool> {
        let edit = Edit::new(host);
        let heads = self.pending.refs.take_all_sorted();
        let mut has_changed = !heads.is_empty();
        let apply = Apply {
            edit,
            tree: &self.core.extent,
            csums: self.csum_tree(),
            space: &Sink { engine: self, keeps_freed: had_log || host.keeps_freed },
            sizes: self.extent_sizes(),
            names_owners: self.quota.is_simple(),
        };
        apply.run(&heads)?;
        has_changed |= self.trees.write_root_items(&edit)?;
        if let Some(tree) = &self.core.free_space {
            has_changed |= self.space.write_free_space(&edit, tree)? > 0;
        }
        has_changed |= self.space.write_group_items(&edit, &self.core.block_group)? > 0;
        Ok(has_changed)
    }

    fn apply_deferred(&self, edit: &Edit<'_>) -> Result<()> {
        for ((id, key), change) in self.pending.staged.take_sorted() {
            let Some(tree) = self.trees.try_tree(id)? else { continue };
            edit.edit(&tree, &key, |old| {
                Ok(match &change {
                    Staged::Replace(bytes) if old.is_some() => EditItem::Put(bytes.clone()),
                    Staged::Replace(_) => {
                        debug_assert!(false, "a staged item is in its tree: {id} {key}");
                        EditItem::Keep
                    }
                    Staged::Insert(bytes) => EditItem::Put(bytes.clone()),
                })
            })?;
        }
        Ok(())
    }

    fn next_superblock(&self, generation: Generation) -> Result<FsSuper> {
        let root = self.trees.root_tree.root_ptr();
        let chunk_root = self.trees.chunk_tree.root_ptr();
        let groups = self.space.all_groups();
        let bytes_used = groups.iter().try_fold(0u64, |sum, group| sum.checked_add(group.bytes().used));
        let bytes_used = bytes_used.ok_or_else(|| {
            let at = At::Tree(self.core.block_group.id());
            let expected = Detail::Text("less than 2^64 in all");
            Corrupt::new("used bytes of the block groups", expected, Detail::Text("more")).at(at)
        })?;
        let backup = self.backup(root, chunk_root, generation, bytes_used)?;
        let mut superblock = self.superblock.lock();
        let fields = superblock.fields_mut();
        debug_assert!(fields.generation.get() < generation.0, "a commit is newer than what it replaces");
        debug_assert!(root.generation == generation, "the root tree was written by this commit");
        if fields.uuid_tree_generation == fields.generation {
            fields.uuid_tree_generation = generation.0.into();
        }
        fields.generation = generation.0.into();
        fields.root = root.at.0.into();
        fields.root_level = root.level;
        fields.chunk_root = chunk_root.at.0.into();
        fields.chunk_root_level = chunk_root.level;
        fields.chunk_root_generation = chunk_root.generation.0.into();
        fields.bytes_used = bytes_used.into();
        fields.log_root = 0.into();
        fields.log_root_level = 0;
        // Makes the kernel's caches of free space stale. Without caches the field is 0 or the maximum, and stays so;
        // with caches `btrfs check` would believe them after either of those.
        if !matches!(fields.cache_generation.get(), 0 | u64::MAX) {
            fields.cache_generation = generation.0.saturating_sub(1).into();
        }
        let new = RootBackup { total_bytes: fields.total_bytes, num_devices: fields.num_devices, ..backup };
        if let Some(oldest) = fields.super_roots.iter_mut().min_by_key(|backup| backup.tree_root_gen.get()) {
            *oldest = new;
        }
        Ok(superblock.clone())
    }

    /// The roots of this commit, for the superblock's list of the last four.
    fn backup(&self, root: RootPtr, chunk: RootPtr, generation: Generation, bytes_used: u64) -> Result<RootBackup> {
        let fs = self.trees.try_tree(TreeId::FS)?.map(|tree| tree.root_ptr());
        let (extent, dev, csum) = (self.core.extent.root_ptr(), self.core.dev.root_ptr(), self.core.csum.root_ptr());
        let fs = fs.unwrap_or(RootPtr { at: Logical(0), level: 0, generation });
        Ok(RootBackup {
            tree_root: root.at.0.into(),
            tree_root_gen: root.generation.0.into(),
            tree_root_level: root.level,
            chunk_root: chunk.at.0.into(),
            chunk_root_gen: chunk.generation.0.into(),
            chunk_root_level: chunk.level,
            extent_root: extent.at.0.into(),
            extent_root_gen: extent.generation.0.into(),
            extent_root_level: extent.level,
            fs_root: fs.at.0.into(),
            fs_root_gen: fs.generation.0.into(),
            fs_root_level: fs.level,
            dev_root: dev.at.0.into(),
            dev_root_gen: dev.generation.0.into(),
            dev_root_level: dev.level,
            csum_root: csum.at.0.into(),
            csum_root_gen: csum.generation.0.into(),
            csum_root_level: csum.level,
            total_bytes: 0.into(),
            bytes_used: bytes_used.into(),
            num_devices: 0.into(),
            unused_64: Default::default(),
            unused_8: Default::default(),
        })
    }
}

/// Passes changes of extents on to the space module, and to simple quotas.
pub(super) struct Sink<'a> {
    pub(super) engine: &'a Engine,
    /// Blocks that this transaction allocated and freed must not be reused before its commit: the superblock on the
    /// device leads to a log, which may lead to them; or the transaction continues, with readers that have looked its
    /// data up; or the commit would not converge (see [`ROUNDS_FREEING`]).
    pub(super) keeps_freed: bool,
}

impl SpaceSink for Sink<'_> {
    fn allocated(&self, at: Logical, len: u64) -> Result<()> {
        self.engine.views.note_taken(at);
        self.engine.space.note_allocated(Extent { at, len })
    }

    fn freed(&self, at: Logical, len: u64) -> Result<()> {
        self.engine.space.note_freed(Extent { at, len })?;
        self.engine.space.pin(Extent { at, len })
    }

    fn counted(&self, extent: &Counted, is_gone: bool) -> Result<()> {
        self.engine.count_simply(extent, is_gone)
    }

    fn never_used(&self, at: Logical, len: u64) -> Result<()> {
        if self.keeps_freed {
            self.engine.views.note_taken(at);
            return self.engine.space.pin(Extent { at, len });
        }
        self.engine.space.free_now(Extent { at, len })
    }
}
