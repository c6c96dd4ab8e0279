//! Empties block groups, step by step: see [`crate::relocate`]. The balance of the crate `btrfs` calls it.

use std::sync::Arc;

use btrfs_disk::flags::BlockGroupFlags;
use btrfs_disk::{At, Corrupt, Detail, DevId, Logical};

use super::{DataExtent, Hint, Need, Store};
use crate::error::SpaceKind;
use crate::extent::{ExtentKind, each_extent};
use crate::relocate::{Closure, Cost, DataMove, Emptying, copy_extents, goes_with, leftovers, rewrite};
use crate::space::{self, BlockGroup, Extent, Reservation, Run, Urgency};
use crate::tree::Scan;
use crate::{Error, Result};
use btrfs_pool::Stripe;

/// Chunks that are added for one group to be closed.
const CHUNKS_PER_GROUP_MAX: usize = 4;

/// Data extents that are copied before they are moved in one transaction.
const COPIED_EXTENTS_MAX: usize = 1024;

/// Tree blocks that the first step reserves beside those it was asked for: the blocks above them.
const WAYS_BLOCKS: u64 = 64;

/// Fewest tree blocks worth a step.
const STEP_BLOCKS_MIN: usize = 4;

/// Changes of references that the first transaction that drops trees of the kernel reserves for.
const DROPPED_HEADS: u64 = 4096;

/// Attempts at one step, each with a reservation as large as the one before would have needed.
const ATTEMPTS_MAX: usize = 8;

/// The properties of a block group, for filters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupState {
    /// First logical byte.
    pub start: Logical,
    /// Bytes.
    pub len: u64,
    /// Use and profile.
    pub flags: BlockGroupFlags,
    /// Bytes taken by extents.
    pub used: u64,
    /// Where it lies on devices.
    pub stripes: Vec<Stripe>,
    /// Bytes at each of these places.
    pub stripe_bytes: u64,
    /// Nothing can be moved from it: it lies on devices that are missing.
    pub is_fixed: bool,
    /// A seed has it.
    pub is_on_seed: bool,
}

/// Data extents that were copied and are still to be moved. To be given to [`Store::move_step`] until it is empty, or
/// to [`Store::forget_copies`].
#[derive(Debug, Default)]
#[must_use = "the copies take space"]
pub struct Copied(Vec<DataMove>);

impl Copied {
    /// True when nothing is left to be moved.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The result of one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Bytes of data.
    pub data_bytes: u64,
    /// Bytes of rewritten tree blocks, including those that only lead to others.
    pub block_bytes: u64,
    /// No extent of the extent tree is left in the group.
    pub is_all: bool,
}

impl Store {
    /// Every block group, by address.
    #[must_use]
    pub fn groups(&self) -> Vec<GroupState> {
        let chunks = self.0.pool().chunks();
        let state = |group: Arc<BlockGroup>| {
            let range = group.range();
            let chunk = chunks.get(Logical(range.start))?;
            Some(GroupState {
                start: Logical(range.start),
                len: range.len,
                flags: group.flags(),
                used: group.bytes().used,
                stripes: chunk.stripes().to_vec(),
                stripe_bytes: chunk.stripe_bytes(),
                is_fixed: group.is_fixed(),
                is_on_seed: self.0.pool().is_on_seed(&chunk),
            })
        };
        self.0.space.all_groups().into_iter().filter_map(state).collect()
    }

    /// The block groups of this volume's own devices that can be emptied, by address.
    #[must_use]
    pub fn movable_groups(&self) -> Vec<GroupState> {
        let mut groups = self.groups();
        groups.retain(|group| !group.is_fixed && !group.is_on_seed);
        groups
    }

    /// Sets the flags of new block groups of a kind: `None` for the present ones.
    pub fn set_target(&self, kind: SpaceKind, flags: Option<BlockGroupFlags>) {
        self.0.space.set_target(kind, flags);
    }

    /// Allocates chunks below this byte of a device only; `None` for anywhere.
    pub fn set_ceiling(&self, device: DevId, bytes: Option<u64>) {
        self.0.space.set_ceiling(device, bytes.unwrap_or(u64::MAX));
    }

    /// Limits new chunks to this many bytes, a multiple of 64 KiB; `None` for the limit of their kind.
    pub fn set_chunk_bytes_max(&self, bytes: Option<u64>) {
        self.0.space.set_chunk_bytes_max(bytes.unwrap_or(u64::MAX));
    }

    /// Closes the block group at `start` for allocation and for overwrites in place: [`Self::is_data_shared`] is true
    /// for its extents from now on. Not to be called with an open handle.
    ///
    /// # Errors
    /// [`Error::NoSpace`] where there is not enough room without it; `Unsupported` for a file system without a
    /// free-space tree; `Corrupt` where there is no such group.
    pub fn close_group(&self, start: Logical) -> Result<Emptying> {
        let engine = &self.0;
        engine.health.check()?;
        if engine.options.read_only {
            return Err(Error::ReadOnly);
        }
        engine.log.unreplayed.check()?;
        if engine.core.free_space.is_none() {
            return Err(Error::unsupported("relocation without a free-space tree"));
        }
        let group = engine.space.group_of(Extent { at: start, len: 1 })?;
        if group.range().start != start.0 {
            let (expected, found) = (Detail::Number(group.range().start), Detail::Number(start.0));
            return Err(Corrupt::new("start of the block group", expected, found).at(At::Data(start)).into());
        }
        // Without its free space nothing is allocated from it, whatever happens below.
        let attempts = if group.is_fixed() { 0 } else { CHUNKS_PER_GROUP_MAX };
        for _ in 0..attempts {
            {
                let _serial = engine.gate.serialize();
                engine.load_group(&group)?;
            }
            if group.is_only_left() {
                return Ok(Emptying::new(group));
            }
            if engine.space.close_group(&group) {
                return Ok(Emptying::new(group));
            }
            if !self.add_room(group.kind())? {
                // A commit may free enough pinned bytes.
                self.commit()?;
                if engine.space.close_group(&group) {
                    return Ok(Emptying::new(group));
                }
                break;
            }
        }
        let (needed, available) = (group.bytes().used, engine.space.accounts().available(group.kind()));
        Err(Error::NoSpace { kind: group.kind(), needed, available })
    }

    /// Adds a chunk of a kind; false where there is no room for one.
    fn add_room(&self, kind: SpaceKind) -> Result<bool> {
        let _room = self.reserve_for_chunks()?;
        let _one = self.0.space.lock_growth();
        self.add_chunk(kind)
    }

    /// Ends an emptying: the rest of the group stays there.
    pub fn reopen_group(&self, emptying: Emptying) {
        self.0.space.reopen_group(&emptying.group);
    }

    /// Copies the next data extents of the group, about `bytes_max` bytes, and at least one.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; [`Error::NoGoodCopy`] for data that does not match its checksums; `Device`.
    pub fn copy_step(&self, emptying: &Emptying, bytes_max: u64) -> Result<Copied> {
        let (found, bytes) = self.next_data(emptying, bytes_max)?;
        if found.is_empty() {
            return Ok(Copied::default());
        }
        let need = Need { items: 0, data: bytes };
        let copied = self.copy(&self.reserve(need)?, &found);
        match copied {
            // The free space may be in pieces that are too small.
            Err(Error::NoSpace { .. }) if self.add_room(SpaceKind::Data)? => self.copy(&self.reserve(need)?, &found),
            copied => copied,
        }
    }

    fn copy(&self, reservation: &Reservation, found: &[(Logical, u64)]) -> Result<Copied> {
        let mut copied = Copied::default();
        let mut copy = || {
            for &(from, len) in found {
                let extent = self.alloc_data(reservation, len, len, Hint::default())?;
                copied.0.push(DataMove { from, to: extent.at, len: extent.len });
                if extent.len < len {
                    // An extent is moved as a whole.
                    return Err(Error::NoSpace { kind: SpaceKind::Data, needed: len, available: extent.len });
                }
            }
            self.0.health.check()?;
            copy_extents(&self.0, &copied.0)
        };
        match copy() {
            Ok(()) => Ok(copied),
            Err(error) => {
                self.forget_copies(copied);
                Err(error)
            }
        }
    }

    fn next_data(&self, emptying: &Emptying, bytes_max: u64) -> Result<(Vec<(Logical, u64)>, u64)> {
        let (mut found, mut bytes) = (Vec::new(), 0u64);
        each_extent(&self.0.core.extent, rest_of(emptying), |at, kind| {
            let ExtentKind::Data { len } = kind else { return Ok(Scan::Continue) };
            let is_enough = bytes.saturating_add(len) > bytes_max || found.len() >= COPIED_EXTENTS_MAX;
            if is_enough && !found.is_empty() {
                return Ok(Scan::Stop);
            }
            bytes = bytes.saturating_add(len);
            found.push((at, len));
            Ok(Scan::Continue)
        })?;
        Ok((found, bytes))
    }

    /// Frees copies that will not be used.
    pub fn forget_copies(&self, copied: Copied) {
        for moved in copied.0 {
            self.free_unused(DataExtent { at: moved.to, len: moved.len });
        }
    }

    /// Moves copied data, and about `blocks_max` tree blocks, in a transaction of its own. `settle` is called when the
    /// new places are in the trees, and returns when no reader uses the old ones any more. Not to be called with an
    /// open handle, nor while another thread may add references to data that it looked up before.
    ///
    /// # Errors
    /// [`Error::NoSpace`], and nothing is changed; `Corrupt` for references and trees that contradict each other; as
    /// [`Self::commit`].
    pub fn move_step(
        &self,
        emptying: &mut Emptying,
        copied: &mut Copied,
        blocks_max: usize,
        settle: &mut dyn FnMut(),
    ) -> Result<Moved> {
        let engine = &self.0;
        let mut budget = blocks_max.max(STEP_BLOCKS_MIN);
        let mut cost = Cost { blocks: u64::try_from(budget).unwrap_or(WAYS_BLOCKS) + WAYS_BLOCKS, ..Cost::default() };
        cost.heads = cost.blocks * 4;
        // Blocks of the chunk tree are rare, and so is room for them.
        cost = cost.at_least(Cost { system_blocks: 0, ..emptying.last_cost.with_some_more() });
        for _ in 0..ATTEMPTS_MAX {
            let reservation = match self.reserve_bytes(self.bytes_of(cost), Urgency::Normal) {
                Err(Error::NoSpace { .. }) if budget > STEP_BLOCKS_MIN => {
                    budget = (budget / 4).max(STEP_BLOCKS_MIN);
                    cost = Cost { blocks: cost.blocks / 4 + 8, heads: cost.heads / 4 + 8, ..cost };
                    continue;
                }
                reserved => reserved?,
            };
            let txn = engine.begin_exclusive(reservation)?;
            let (closure, next) = self.gather(emptying, copied, budget)?;
            closure.check()?;
            let taken = crate::relocate::cost(&closure);
            let need = self.bytes_of(taken);
            let promised = &txn.reservation;
            if need.metadata > promised.left(SpaceKind::Metadata) || need.system > promised.left(SpaceKind::System) {
                drop(txn);
                // Other operations run before the next attempt.
                cost = taken.with_some_more();
                continue;
            }
            if !closure.is_empty() {
                txn.require_commit();
                rewrite(&txn, &closure).inspect_err(|error| engine.health.poison(error))?;
            }
            let data_bytes = closure.data.values().map(|data| data.moved.len).sum();
            let block_bytes = taken.blocks.saturating_add(taken.system_blocks).saturating_mul(engine.nodesize());
            let end = next.unwrap_or(emptying.range().end());
            // Data that was being written into the group may have arrived before all of these: it is copied first then.
            let is_stuck = closure.is_empty() && next.is_some();
            let done = copied.0.partition_point(|moved| is_stuck || moved.from.0 < end);
            let rest = copied.0.split_off(done);
            let mut unused = std::mem::replace(&mut copied.0, rest);
            // The references to the others are gone.
            unused.retain(|moved| !closure.data.contains_key(&moved.from));
            settle();
            drop(txn);
            self.forget_copies(Copied(unused));
            emptying.from = end;
            emptying.last_cost = taken;
            return Ok(Moved { data_bytes, block_bytes, is_all: next.is_none() });
        }
        Err(Error::NoSpace { kind: SpaceKind::Metadata, needed: self.bytes_of(cost).metadata, available: 0 })
    }

    /// The part that is moved next: copied data, and blocks up to the budget; and the first extent that is left.
    fn gather(&self, emptying: &Emptying, copied: &Copied, budget: usize) -> Result<(Closure<'_>, Option<u64>)> {
        let engine = &self.0;
        let mut closure = Closure::new(engine);
        let mut next = None;
        each_extent(&engine.core.extent, rest_of(emptying), |at, kind| {
            let is_full = closure.blocks.len() >= budget;
            match kind {
                _ if is_full => {}
                ExtentKind::Tree { level } => {
                    closure.add_block(at, level)?;
                    return Ok(Scan::Continue);
                }
                ExtentKind::Data { len } => {
                    // They were copied in the order of their addresses.
                    let place = copied.0.binary_search_by_key(&at, |moved| moved.from).ok();
                    let moved = place.and_then(|place| copied.0.get(place)).filter(|moved| moved.len == len);
                    if let Some(moved) = moved {
                        closure.add_data(*moved)?;
                        return Ok(Scan::Continue);
                    }
                }
            }
            next = Some(at.0);
            Ok(Scan::Stop)
        })?;
        Ok((closure, next))
    }

    fn bytes_of(&self, cost: Cost) -> space::Need {
        let accounts = self.0.space.accounts();
        let nodesize = self.0.nodesize();
        let blocks = cost.blocks.saturating_mul(nodesize);
        let metadata = blocks
            .saturating_add(accounts.bytes_for_heads(cost.heads))
            .saturating_add(accounts.bytes_for_items(cost.items));
        space::Need { data: 0, metadata, system: cost.system_blocks.saturating_mul(nodesize) }
    }

    /// Begins again at the start of the group: data that was being written into it when it was closed may have arrived.
    pub fn restart(&self, emptying: &mut Emptying) {
        emptying.from = emptying.range().start;
    }

    /// Drops the trees that an interrupted relocation of the kernel left; returns how many. Not to be called with an
    /// open handle.
    ///
    /// # Errors
    /// [`Error::NoSpace`], and the rest stays; `Corrupt` where references are missing; as [`Self::commit`].
    pub fn drop_relocation_trees(&self) -> Result<u64> {
        let engine = &self.0;
        let mut heads = DROPPED_HEADS;
        let mut count = 0;
        while !leftovers(engine)?.is_empty() {
            let reservation = self.reserve_bytes(self.bytes_of(Cost { heads, ..Cost::default() }), Urgency::Normal)?;
            let txn = engine.begin_exclusive(reservation)?;
            txn.require_commit();
            let mut is_first = true;
            for (key, item) in leftovers(engine)? {
                let goes = goes_with(engine, &item)?;
                // The additional item is that of the tree.
                let taken = u64::try_from(goes.changes.len()).unwrap_or(u64::MAX);
                let need = self.bytes_of(Cost { heads: taken, items: 1, ..Cost::default() });
                if need.metadata > txn.reservation.left(SpaceKind::Metadata) {
                    heads = if is_first { taken.saturating_mul(2).saturating_add(DROPPED_HEADS) } else { heads };
                    break;
                }
                is_first = false;
                txn.remove(&engine.trees.root_tree, &key)?;
                goes.changes.into_iter().try_for_each(|change| txn.ref_change(change))?;
                goes.freed.into_iter().for_each(|at| engine.trees.forest().forget(at));
                count += 1;
            }
        }
        if count > 0 {
            self.commit()?;
        }
        Ok(count)
    }

    /// Removes an empty group, when its emptiness is durable; false where anything is left. The next commit makes the
    /// removal durable. Not to be called with an open handle.
    ///
    /// # Errors
    /// [`Error::NoSpace`] where it is the last of its kind and there is no room for another; as [`Self::commit`].
    pub fn retire_group(&self, emptying: &Emptying) -> Result<bool> {
        self.commit()?;
        let group = &emptying.group;
        let has_other = || {
            let groups = self.0.space.all_groups();
            groups.iter().any(|other| other.kind() == group.kind() && !other.is_read_only())
        };
        if !has_other() && !self.add_room(group.kind())? {
            return Err(Error::NoSpace { kind: group.kind(), needed: 1, available: 0 });
        }
        let _room = self.reserve_for_chunks()?;
        let _one = self.0.space.lock_growth();
        let Some(place) = group.retire_closed() else { return Ok(false) };
        self.erase_group(group, place)?;
        Ok(true)
    }
}

fn rest_of(emptying: &Emptying) -> Run {
    let range = emptying.range();
    Run { start: emptying.from, len: range.end().saturating_sub(emptying.from) }
}
