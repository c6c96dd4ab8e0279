//! Manages the free space of the logical address space: which operations get it, and how it is recorded on disk.
//!
//! The address space is cut into block groups, one per chunk, each for data, metadata or
//! the chunk tree (or, mixed, for the first two). A group's free runs are kept in memory
//! from the first allocation there; the free-space tree and the
//! block group items are brought up to date by the commit, from the list of changes that
//! each group keeps.
//!
//! ```text
//! free --alloc--> allocated --note_allocated--> in the extent tree
//!   ^                |                                |
//!   |<---free_now----'                          note_freed, pin
//!   |                                                 v
//!   '<----unpin, when the superblock is durable--- pinned
//! ```
//!
//! Invariants:
//! - Nothing is allocated without a reservation: an operation gets [`Error::NoSpace`] when it reserves (`reserve`),
//!   because an `account` has too little left, before it takes any lock, and not in its middle.
//! - Space that the last durable superblock can reach is never allocated: freed extents stay pinned until the next
//!   superblock is durable.
//! - Copies of the superblock that lie inside a group are never allocated, though the
//!   free-space tree lists them as free, as the kernel does.
//! - No lock of this module is held while a tree is touched: changes are taken out, the
//!   lock is released, and then the trees are edited, which may cause further changes. The
//!   commit repeats that until there are none.
//!
//! Failure: free space on disk that contradicts itself or the use that is recorded for its
//! group is `Corrupt`; so is a range that is freed twice.
//!
//! Callers: `extent` notes changes of the extent tree here; `txn` allocates tree blocks and drives the commit; `store`
//! reserves space, and adds chunks when a reservation needs them.

mod account;
mod changes;
mod charges;
mod chunk;
mod counters;
mod free_map;
mod free_space_form;
mod free_space_tree;
mod global_reserve;
mod group;
mod group_bytes;
mod groups;
mod load;
mod provision;
mod report;
mod reserve;
mod retire;
mod wait_queue;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use btrfs_disk::flags::BlockGroupFlags;
use btrfs_disk::{At, Corrupt, Detail, Logical};

use crate::error::{Error, Result, SpaceKind};
use crate::locks::{Mutex, MutexGuard, Rank};
use free_map::Want;
use group::Given;
use groups::{ACCOUNT_COUNT, Groups};

pub use account::{Shortage, Urgency};
pub(crate) use changes::Place as ChunkPlace;
use changes::bytes_of;
pub(crate) use chunk::device_runs;
pub use chunk::{ChunkPlan, ChunkTrees, DeviceSpace};
pub use counters::{ShardedCounter, compare_sum};
pub use free_map::Run;
pub use group::{BlockGroup, GroupBytes, GroupInfo};
pub use load::{LoadFrom, group_infos, load_group};
pub use report::{ProfileSpace, SpaceReport};
pub use reserve::{Accounts, Need, Payer, Reservation};
pub(crate) use retire::Spare;
pub use wait_queue::Place;

/// Tree blocks in a run that is preferred for the next allocations of tree blocks.
const BLOCKS_PER_CLUSTER: u64 = 64;

/// Where no run holds data as a whole, it is cut into pieces of at least this many bytes, if there are such runs.
const PIECE_BYTES_MIN: u64 = 64 << 10;

/// The parameters of a store's space.
#[derive(Clone, Copy, Debug)]
pub struct SpaceConfig {
    /// Bytes of a tree block.
    pub node_size: u64,
    /// Bytes of a sector.
    pub sector_size: u64,
    /// Data and metadata share block groups (`MIXED_GROUPS`).
    pub mixed: bool,
    /// The free-space tree is to be kept.
    pub free_space_tree: bool,
}

/// An allocated range of logical addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    /// First byte.
    pub at: Logical,
    /// Bytes.
    pub len: u64,
}

impl Extent {
    const fn run(self) -> Run {
        Run { start: self.at.0, len: self.len }
    }
}

/// The parameters of an allocation.
#[derive(Clone, Copy, Debug)]
pub struct AllocRequest {
    /// The kind of space.
    pub kind: SpaceKind,
    /// Bytes wanted; a multiple of the sector size, and of the node size for tree blocks.
    pub len: u64,
    /// Where no run has `len` bytes, the allocation takes fewer, down to this many; where all free runs are smaller
    /// still, it takes one of those.
    pub min_len: u64,
    /// Preferred place.
    pub hint: Option<Logical>,
    /// Bytes after it that are left to the same writer, while others find room elsewhere.
    pub window: u64,
}

/// Extents freed by a transaction, on their way to become free.
#[derive(Debug, Default)]
#[must_use = "pinned extents that are dropped stay unusable until the next open"]
pub struct Pinned(Vec<(Arc<BlockGroup>, Vec<Run>)>);

impl Pinned {
    /// Total bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.iter().flat_map(|(_, runs)| runs).map(|run| run.len).sum()
    }

    /// How many extents.
    pub(crate) fn count(&self) -> usize {
        self.0.iter().map(|(_, runs)| runs.len()).sum()
    }

    /// Takes the extents for whose first byte `goes` returns true.
    pub(crate) fn split_off(&mut self, mut goes: impl FnMut(Logical) -> bool) -> Self {
        let mut taken = Vec::new();
        for (group, runs) in &mut self.0 {
            let (gone, kept): (Vec<Run>, Vec<Run>) = runs.iter().partition(|run| goes(Logical(run.start)));
            *runs = kept;
            if !gone.is_empty() {
                taken.push((Arc::clone(group), gone));
            }
        }
        Self(taken)
    }

    /// The pinned runs; adjacent extents are one run.
    pub(crate) fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        self.0.iter().flat_map(|(_, runs)| changes::coalesced(runs))
    }

    /// Every pinned extent.
    pub fn extents(&self) -> impl Iterator<Item = Extent> + '_ {
        self.0.iter().flat_map(|(_, runs)| runs).map(|run| Extent { at: Logical(run.start), len: run.len })
    }
}

/// The space of a store.
#[derive(Debug)]
pub struct Space {
    config: SpaceConfig,
    accounts: Arc<Accounts>,
    groups: Groups,
    devices: Mutex<Vec<DeviceSpace>>,
    growing: Mutex<()>,
    /// The flags of new groups, while those of a kind are converted. By account.
    targets: Mutex<[Option<BlockGroupFlags>; ACCOUNT_COUNT]>,
    /// Most bytes of a new chunk, beside the limits of its kind.
    chunk_bytes_max: AtomicU64,
    /// As `chunk_bytes_max`, for as long as the volume is open.
    chunk_bytes_limit: AtomicU64,
    /// Bytes in chunks for data when there was last no room to add a chunk in advance (see `provision`).
    denied_ahead: AtomicU64,
    /// The free space of a group could not be loaded in advance (see `provision`).
    is_load_denied: AtomicBool,
}

impl Space {
    /// A space without groups and devices.
    #[must_use]
    pub fn new(config: SpaceConfig) -> Self {
        Self {
            config,
            accounts: Arc::new(Accounts::new(config.node_size, config.mixed)),
            groups: Groups::new(),
            devices: Mutex::new(Rank::Counters, Vec::new()),
            growing: Mutex::new(Rank::ChunkAlloc, ()),
            targets: Mutex::new(Rank::Counters, [None; ACCOUNT_COUNT]),
            chunk_bytes_max: AtomicU64::new(u64::MAX),
            chunk_bytes_limit: AtomicU64::new(u64::MAX),
            denied_ahead: AtomicU64::new(0),
            is_load_denied: AtomicBool::new(false),
        }
    }

    /// The sizes and features given at the start.
    #[must_use]
    pub const fn config(&self) -> &SpaceConfig {
        &self.config
    }

    /// Held by the thread that allocates a chunk.
    pub(crate) fn lock_growth(&self) -> MutexGuard<'_, ()> {
        self.growing.lock()
    }

    /// The accounts: reservations, charges, the global reserve.
    #[must_use]
    pub const fn accounts(&self) -> &Arc<Accounts> {
        &self.accounts
    }

    /// Reserves space, or returns the step that would help.
    ///
    /// # Errors
    /// [`Shortage`]; nothing is reserved then.
    pub fn reserve(&self, need: Need, urgency: Urgency) -> Result<Reservation, Shortage> {
        self.accounts.reserve(need, urgency)
    }

    /// Adds a block group found on disk. Its free space is loaded later ([`load_group`]).
    ///
    /// # Errors
    /// `Corrupt` when it overlaps another one or claims more use than it has bytes.
    pub fn add_group(&self, info: GroupInfo) -> Result<Arc<BlockGroup>> {
        let at = At::Data(info.start);
        if info.len == 0 || info.start.0.checked_add(info.len).is_none() || info.used > info.len {
            let (expected, found) = (Detail::AtMost(info.len), Detail::Number(info.used));
            return Err(Corrupt::new("use of the block group", expected, found).at(at).into());
        }
        let group = Arc::new(BlockGroup::new(info));
        self.groups.add(Arc::clone(&group)).map_err(|other| {
            let expected = Detail::Text("no other group there");
            Corrupt::new("block group", expected, Detail::Number(other.range().start)).at(at)
        })?;
        if !group.is_read_only() {
            self.accounts.group_added(group.kind(), group.total(), group.unloaded_bytes().unwrap_or(0));
        }
        Ok(group)
    }

    /// Adds the group of a chunk that was just allocated: all of it is free.
    ///
    /// # Errors
    /// As [`Self::add_group`].
    pub fn add_new_group(&self, info: GroupInfo) -> Result<Arc<BlockGroup>> {
        let mut map = free_map::FreeMap::default();
        let run = Run { start: info.start.0, len: info.len };
        let group = self.add_group(GroupInfo { used: 0, ..info })?;
        map.insert(run).map_err(|_| Corrupt::new("block group", Detail::AtLeast(1), Detail::Number(0)))?;
        self.install(&group, map)?;
        Ok(group)
    }

    pub(crate) fn install(&self, group: &Arc<BlockGroup>, map: free_map::FreeMap) -> Result<()> {
        if let Some((counted, free)) = group.install(map)?
            && !group.is_fixed()
            && !group.is_only_left()
        {
            let kind = group.kind();
            // Open first: a thread that can reserve the bytes must be able to allocate them.
            self.groups.open(self.accounts.index(kind), group);
            self.accounts.group_loaded(kind, counted, free);
        }
        Ok(())
    }

    /// The group that contains all of an extent.
    ///
    /// # Errors
    /// `Corrupt` when there is none: extents end with their group.
    pub fn group_of(&self, extent: Extent) -> Result<Arc<BlockGroup>> {
        self.groups.find(extent.run()).ok_or_else(|| {
            let (expected, found) = (Detail::Text("inside one block group"), Detail::Number(extent.len));
            Corrupt::new("place of the extent", expected, found).at(At::Data(extent.at)).into()
        })
    }

    /// Every group, by address.
    #[must_use]
    pub fn all_groups(&self) -> Vec<Arc<BlockGroup>> {
        self.groups.all()
    }

    /// The group of this kind to load next, as [`Shortage::Load`] asks for: the emptiest.
    #[must_use]
    pub fn unloaded_group(&self, kind: SpaceKind) -> Option<Arc<BlockGroup>> {
        let account = self.accounts.index(kind);
        let groups = self.groups.all().into_iter().rev();
        groups
            .filter(|group| self.accounts.index(group.kind()) == account && !group.is_read_only())
            .filter_map(|group| group.unloaded_bytes().map(|bytes| (bytes, group)))
            .filter(|(bytes, _)| *bytes > 0)
            .max_by_key(|(bytes, _)| *bytes)
            .map(|(_, group)| group)
    }

    /// Allocates in memory. The disk does not record it before `extent` adds the extent to its tree.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when there is no free run at all, which a caller that reserved
    /// does not meet.
    pub fn alloc(&self, request: &AllocRequest, payer: Payer<'_>) -> Result<Extent> {
        let run = self.find_run(request).ok_or_else(|| Error::NoSpace {
            kind: request.kind,
            needed: request.len,
            available: self.accounts.available(request.kind),
        })?;
        self.accounts.pay(request.kind, run.len, payer);
        Ok(Extent { at: Logical(run.start), len: run.len })
    }

    /// Takes exactly this extent, without a reservation, out of a group that is loaded. False when it is not free as a
    /// whole.
    ///
    /// # Errors
    /// `Corrupt` when it is in no group.
    pub fn take_exactly(&self, extent: Extent) -> Result<bool> {
        let group = self.group_of(extent)?;
        let is_free = group.take_at(group.kind(), extent.run(), 0);
        if is_free {
            self.accounts.pay(group.kind(), extent.len, Payer::Commit);
        }
        Ok(is_free)
    }

    fn find_run(&self, request: &AllocRequest) -> Option<Run> {
        let &AllocRequest { kind, len, min_len, hint, window } = request;
        let account = self.accounts.index(kind);
        let (align, cluster) = match kind {
            SpaceKind::Data => (self.config.sector_size, 0),
            SpaceKind::Metadata | SpaceKind::System => {
                (self.config.node_size, self.config.node_size * BLOCKS_PER_CLUSTER)
            }
        };
        if let Some(Logical(start)) = hint.filter(|hint| hint.0.is_multiple_of(align)) {
            let range = Run { start, len };
            if start.checked_add(len).is_some() && self.groups.take_at(account, kind, range, window) {
                return Some(range);
            }
        }
        let want = |min_len, align, cluster| Want { len, min_len, align, cluster, window, room: 0 };
        let take = |want: Want| self.groups.take(account, kind, &want);
        // A growing file begins where it has room, or its next part would be elsewhere.
        let rooms = std::iter::successors(Some(window), |room| Some(room / 2));
        let mut rooms = rooms.take_while(|room| *room >= PIECE_BYTES_MIN);
        let sector = self.config.sector_size;
        // Tree blocks come whole; only file systems made by old tools have room for them
        // at places that are no multiple of their size, and then only those may be left.
        let last_len = if kind == SpaceKind::Data { sector } else { len };
        // Else in as few pieces as possible, anywhere.
        let halves = std::iter::successors(Some(len / 2), |part| Some(part / 2));
        let mut halves = halves.take_while(|part| kind == SpaceKind::Data && *part >= PIECE_BYTES_MIN);
        rooms
            .find_map(|room| take(Want { room, ..want(len, align, cluster) }))
            .or_else(|| take(want(len, align, cluster)))
            .or_else(|| halves.find_map(|part| take(want(part, align, 0))))
            .or_else(|| take(want(min_len, align, 0)))
            .or_else(|| take(want(last_len, sector, 0)))
            .or_else(|| self.groups.take_alone(account, kind, &want(last_len, sector, 0)))
    }

    /// Leaves only `kept` more bytes after `at` to the writer that continues there.
    pub(crate) fn end_window(&self, at: Logical, kept: u64) {
        if let Some(group) = at.0.checked_sub(1).and_then(|start| self.groups.find(Run { start, len: 1 })) {
            group.end_window(at.0, kept);
        }
    }

    /// Returns an extent that no committed state ever referred to.
    ///
    /// # Errors
    /// `Corrupt` when it is free already.
    pub fn free_now(&self, extent: Extent) -> Result<()> {
        let group = self.group_of(extent)?;
        let given = group.give(&[extent.run()])?;
        self.given(&group, extent.len, given);
        Ok(())
    }

    /// Keeps an extent, freed on disk by the running transaction, out of use until that
    /// transaction is durable.
    ///
    /// # Errors
    /// `Corrupt` when it is in no group.
    pub fn pin(&self, extent: Extent) -> Result<()> {
        let group = self.group_of(extent)?;
        group.pin(extent.run());
        self.accounts.pinned(group.kind(), extent.len);
        Ok(())
    }

    /// Ends the running transaction's accounting of space, and returns the extents that were pinned in it.
    pub fn take_pinned(&self) -> Pinned {
        let mut pinned = Vec::new();
        for group in self.touched_groups() {
            let mut runs = group.take_pinned();
            group.settle();
            if !runs.is_empty() {
                runs.sort_unstable();
                pinned.push((group, runs));
            }
        }
        Pinned(pinned)
    }

    /// Makes pinned extents free; to be called when the superblock of their transaction is
    /// durable.
    ///
    /// # Errors
    /// `Corrupt` when one of them was free already.
    pub fn unpin(&self, pinned: Pinned) -> Result<()> {
        if self.accounts.is_any_full() {
            // New copies then gather in the first groups, so that the last ones become empty.
            self.groups.start_over();
        }
        self.give_all(pinned, |group, runs| {
            let given = group.unpin(runs)?;
            self.given(group, bytes_of(runs), given);
            self.accounts.unpinned(group.kind(), bytes_of(runs));
            Ok(())
        })
    }

    fn give_all(&self, pinned: Pinned, give: impl Fn(&BlockGroup, &[Run]) -> Result<()>) -> Result<()> {
        for (group, runs) in pinned.0 {
            give(&group, &runs)?;
            if group.is_empty() {
                // Its device ranges may become a chunk of another kind.
                self.accounts.set_none_full();
            }
        }
        Ok(())
    }

    /// Pinned extents stay out of use, and no commit frees them, until [`Self::release`].
    pub(crate) fn hold(&self, held: &Pinned) {
        for (group, runs) in &held.0 {
            group.hold(bytes_of(runs));
            self.accounts.unpinned(group.kind(), bytes_of(runs));
        }
    }

    /// Frees extents that were held.
    ///
    /// # Errors
    /// As [`Self::unpin`].
    pub(crate) fn release(&self, held: Pinned) -> Result<()> {
        self.give_all(held, |group, runs| {
            let given = group.release(runs)?;
            self.given(group, bytes_of(runs), given);
            Ok(())
        })
    }

    /// The next allocations begin at the first group with room.
    pub(crate) fn start_over(&self) {
        self.groups.start_over();
    }

    /// Credits bytes that were freed in a group.
    fn given(&self, group: &BlockGroup, bytes: u64, given: Given) {
        match given {
            Given::Closed => {}
            Given::Loaded => self.accounts.freed(group.kind(), bytes),
            Given::Unloaded => self.accounts.freed_unloaded(group.kind(), bytes),
        }
    }

    /// Notes a new extent in the extent tree.
    ///
    /// # Errors
    /// `Corrupt` when its group cannot have room for it.
    pub fn note_allocated(&self, extent: Extent) -> Result<()> {
        Ok(self.group_of(extent)?.note_allocated(extent.run(), self.config.free_space_tree)?)
    }

    /// Notes that the extent tree lost an extent. The caller also pins it, or frees it at once.
    ///
    /// # Errors
    /// `Corrupt` when its group has fewer bytes in use.
    pub fn note_freed(&self, extent: Extent) -> Result<()> {
        Ok(self.group_of(extent)?.note_freed(extent.run(), self.config.free_space_tree)?)
    }

    /// True while [`Self::write_free_space`] or [`Self::write_group_items`] have something
    /// to do.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.touched_groups().iter().any(|group| group.has_changes())
    }

    fn touched_groups(&self) -> Vec<Arc<BlockGroup>> {
        let mut groups = self.groups.all();
        groups.retain(|group| group.is_touched());
        groups
    }
}

#[cfg(test)]
pub(crate) mod test_random {
    /// Numbers for model tests (splitmix64): the same for the same seed.
    pub(crate) struct Random(u64);

    impl Random {
        pub(crate) fn new(seed: u64) -> Self {
            Self(seed)
        }

        pub(crate) fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut x = self.0;
            x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            x ^ (x >> 31)
        }

        /// Below `bound`; 0 for a bound of 0.
        pub(crate) fn below(&mut self, bound: u64) -> u64 {
            self.next().checked_rem(bound).unwrap_or(0)
        }
    }
}

#[cfg(test)]
mod tests;
