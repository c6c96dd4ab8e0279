//! Offers the store to the file system: [`Store`], the interface that it is written against.
//!
//! It is opened or made on devices, and then gives handles on its running transaction, trees, and space: reservations
//! before anything is changed, which load, grow, shrink and commit where that helps. `growth` adds and removes chunks,
//! and sets the size of the volume.
//!
//! Failure: one that would leave a transaction half changed ends all writing ([`Error::Poisoned`]); the last commit
//! stays. Caller: the crate `btrfs`, which knows no block group.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use blockdev::Device;
use btrfs_disk::flags::{CompatRo, Incompat};
use btrfs_disk::items::RootItem;
use btrfs_disk::{Generation, Logical, TreeId};
use codec::checksum::ChecksumType;

use crate::error::SpaceKind;
use crate::extent::{CsumRange, DataHolder, ExtentKind, is_held_only_by, lookup};
use crate::options::StoreOptions;
use crate::space::{self, AllocRequest, Extent, Payer, Place, Reservation, Shortage, SpaceReport, Urgency};
use crate::tree::Tree;
use crate::txn::{DropProgress, Engine, Trim, Txn, drop_tree_step};
use crate::{Env, Error, Result, bootstrap, make};
use btrfs_pool::{BlockCheck, Chunk, DataRun, FsSuper};

mod commits;
mod compaction;
mod contention;
mod devices;
mod growth;
mod members;
mod parity;
mod quotas;
mod relocation;
mod scrub;
mod sharing;
pub mod view;

pub use devices::DeviceState;
pub use quotas::{QuotaChange, QuotaKind};
pub use relocation::{Copied, GroupState, Moved};
pub use scrub::{BadSuperblock, BadUnit, Fate, Rebuild, RebuildStep, Scrub, ScrubStep, Still};

/// Groups that one reservation loads for the room that the next commit may lack.
const LOADS_PER_RESERVE_MAX: usize = 16;

/// Commits by which one reservation tries to get room.
const COMMITS_PER_RESERVE_MAX: usize = 8;

/// How long a removal on a full volume waits for its turn and for running operations to return their reservations.
const TURN_MAX: Duration = Duration::from_secs(3);

/// How long a removal that is first in the queue waits when even the global reserve is used up.
const SPACE_MAX: Duration = Duration::from_millis(150);

/// Blocks that a step of dropping a tree visits at least: with fewer than two it makes no progress.
const DROP_BLOCKS_MIN: u32 = 4;

/// The most that an operation may need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// Items inserted, changed or removed.
    pub items: u32,
    /// Bytes of data.
    pub data: u64,
}

/// Sizes fixed when the file system was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Bytes of a tree block.
    pub node: u32,
    /// Bytes of a data sector.
    pub sector: u32,
    /// Bytes of a checksum.
    pub csum: usize,
}

/// A run of allocated data space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataExtent {
    /// First byte.
    pub at: Logical,
    /// Bytes.
    pub len: u64,
}

/// Preferred place of data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hint {
    /// Exactly this address, if it is free.
    pub at: Option<Logical>,
    /// Bytes after the data that are kept for the same writer's next data; others allocate elsewhere.
    pub window: u64,
}

/// The expected checksums of data to read.
#[derive(Clone, Copy, Debug)]
pub enum Expect<'a> {
    /// One checksum per sector, one after the other.
    Csums(&'a [u8]),
    /// Nothing is known of the data (`NODATASUM`).
    Unchecked,
}

/// A removal that waits for space on a full volume.
struct Waiting<'a> {
    place: Place<'a>,
    /// When it gives up. Real time, not the time of `Env`: a simulated clock may stand still.
    turn_by: Instant,
    /// Deadline for returned space, set when it is first in the queue.
    space_by: Option<Instant>,
    /// This is the last try.
    is_last: bool,
}

impl<'a> Waiting<'a> {
    fn begin(place: Place<'a>) -> Self {
        Self { place, turn_by: Instant::now() + TURN_MAX, space_by: None, is_last: false }
    }

    /// Waits until another try is worth making; false when there was none in time, or the last one was made.
    fn wait(&mut self, shortage: &Shortage) -> bool {
        if self.is_last {
            return false;
        }
        let mut deadline = self.turn_by;
        if matches!(shortage, Shortage::NoSpace(_)) && self.place.is_first() {
            deadline = deadline.min(*self.space_by.get_or_insert_with(|| Instant::now() + SPACE_MAX));
        }
        self.is_last = !self.place.wait(deadline);
        true
    }
}

/// An open store. Clones share it.
#[derive(Clone, Debug)]
pub struct Store(pub(crate) Arc<Engine>);

impl Store {
    /// Opens the file system on `devices`, of which several are only read.
    ///
    /// # Errors
    /// `Unsupported` for features this build lacks, by name; `Members` for devices that cannot be used together;
    /// `Corrupt`, `Device`.
    pub fn open(devices: Vec<Arc<dyn Device>>, options: &StoreOptions) -> Result<Self> {
        let store = Self(Arc::new(bootstrap::open(&devices, options)?));
        if let Some(wanted) = options.leaves_parity.as_ref().filter(|_| !options.read_only) {
            store.leave_parity(wanted)?;
        }
        Ok(store)
    }

    /// Makes a file system without subvolumes on `devices`, in memory until the first
    /// commit. The caller makes the trees of the file layer: the top-level subvolume (5),
    /// the UUID tree (9), the tree of relocated data (-9), and the root tree's directory.
    ///
    /// # Errors
    /// `Unsupported` for options that do not fit each other, `NoSpace` for a device that is
    /// too small, `Device`.
    pub fn make(devices: Vec<Arc<dyn Device>>, make: &make::MakeOptions, options: &StoreOptions) -> Result<Self> {
        Ok(Self(Arc::new(make::make(devices, make, options)?)))
    }

    /// Sizes of tree blocks, sectors and checksums, in bytes.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        let format = &self.0.reader.format;
        Sizes { node: format.nodesize, sector: format.sectorsize, csum: format.csum_type.len() }
    }

    /// Type of every checksum.
    #[must_use]
    pub fn csum_type(&self) -> ChecksumType {
        self.0.reader.format.csum_type
    }

    /// True when running operations have reserved more bytes of tree blocks than are left. They use far less in the
    /// end: a caller that can fulfil its reservations and return the rest should, before the file system grows for
    /// nothing.
    #[must_use]
    pub fn is_promised_much(&self) -> bool {
        self.0.space.accounts().is_promised_much()
    }

    /// A copy of the superblock as the next commit would start from it.
    #[must_use]
    pub fn superblock(&self) -> FsSuper {
        self.0.superblock.lock().clone()
    }

    /// The chunks, in the order of their logical addresses.
    #[must_use]
    pub fn chunks(&self) -> Vec<Arc<Chunk>> {
        self.0.pool().chunks().all()
    }

    /// True when the bytes lie in one chunk: neither an extent nor a write may cross into another.
    #[must_use]
    pub fn is_in_one_chunk(&self, at: Logical, len: u64) -> bool {
        self.0.pool().chunks().get(at).is_some_and(|chunk| chunk.contains(at, len))
    }

    /// Reads the tree block at `at` from the first mirror that `check` accepts; repairs the others when the store is
    /// writable.
    ///
    /// # Errors
    /// [`Error::NoGoodCopy`]; `Corrupt` when no chunk holds the block.
    pub fn read_block(&self, at: Logical, check: &BlockCheck<'_>) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.0.pool().node_bytes()];
        self.0.pool().read(at, &mut bytes, btrfs_pool::Expect::Block(check))?;
        Ok(bytes)
    }

    /// A tree.
    ///
    /// # Errors
    /// [`Error::NoSuchTree`]; those of reading its root item.
    pub fn tree(&self, id: TreeId) -> Result<Arc<Tree>> {
        self.0.trees.tree(id)
    }

    /// Clock and randomness.
    #[must_use]
    pub fn env(&self) -> &Env {
        &self.0.options.env
    }

    /// True when nothing may be written.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.0.options.read_only
    }

    /// True when all these incompat feature bits are set.
    #[must_use]
    pub fn has_incompat(&self, bits: u64) -> bool {
        self.0.superblock.lock().fields().incompat().contains(Incompat::from_bits_retain(bits))
    }

    /// True when all these compat_ro feature bits are set.
    #[must_use]
    pub fn has_compat_ro(&self, bits: u64) -> bool {
        self.0.superblock.lock().fields().compat_ro().contains(CompatRo::from_bits_retain(bits))
    }

    /// Why writing stopped, if it did.
    #[must_use]
    pub fn poisoned(&self) -> Option<Error> {
        self.0.health.reason().map(|reason| Error::Poisoned { reason })
    }

    /// The running transaction's number.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.0.gate.running()
    }

    /// Reserves room for an operation, before any of it is done. Loads free space,
    /// allocates chunks and commits where that helps. Not to be called with an open handle.
    ///
    /// # Errors
    /// [`Error::NoSpace`]: nothing helps.
    pub fn reserve(&self, need: Need) -> Result<Reservation> {
        self.reserve_as(need, Urgency::Normal)
    }

    /// Like [`Self::reserve`] for callers with reservations that they can fulfil and return: fails, rather than grow
    /// the file system, while those would be enough.
    ///
    /// # Errors
    /// As [`Self::reserve`].
    pub fn reserve_patiently(&self, need: Need) -> Result<Reservation> {
        self.reserve_as(need, Urgency::Patient)
    }

    /// Like [`Self::reserve`] for operations that free space in the end: they may use the global reserve. A full volume
    /// reserves for fewer items than asked for, and the operation goes in smaller steps ([`Reservation::items_left`]):
    /// the global reserve of a small volume is far less than long operations ask for.
    ///
    /// # Errors
    /// As [`Self::reserve`].
    pub fn reserve_urgent(&self, need: Need) -> Result<Reservation> {
        self.reserve_as(need, Urgency::Removal)
    }

    fn reserve_as(&self, need: Need, urgency: Urgency) -> Result<Reservation> {
        let metadata = self.0.space.accounts().bytes_for_items(need.items.into());
        self.reserve_bytes(space::Need { data: need.data, metadata, system: 0 }, urgency)
    }

    fn reserve_bytes(&self, mut need: space::Need, urgency: Urgency) -> Result<Reservation> {
        let engine = &self.0;
        engine.health.check()?;
        if engine.options.read_only {
            return Err(Error::ReadOnly);
        }
        // A log is replayed in a single commit, however large.
        let may_commit = !engine.log.unreplayed.is_waiting();
        if may_commit && self.needs_commit()? {
            engine.commit()?;
        } else if may_commit && engine.is_drain_due() {
            engine.drain()?;
        }
        let least = match urgency {
            Urgency::Removal => engine.space.accounts().removal_bytes_min().min(need.metadata),
            Urgency::Patient | Urgency::Normal | Urgency::Commit => need.metadata,
        };
        let mut commits = 0;
        let mut waiting: Option<Waiting<'_>> = None;
        while commits < COMMITS_PER_RESERVE_MAX {
            let tried = match &waiting {
                Some(waiting) => engine.space.accounts().reserve_at(need, &waiting.place),
                None => engine.space.reserve(need, urgency),
            };
            match tried {
                Ok(reservation) if need.data == 0 || !may_commit => return Ok(reservation),
                Ok(reservation) => return self.grow_ahead().map(|()| reservation),
                Err(Shortage::Load(kind)) => self.load_group(kind)?,
                Err(Shortage::Chunk(kind)) => self.grow(kind, need, urgency)?,
                Err(Shortage::NoSpace(_)) if engine.give_up_view()? => {}
                Err(Shortage::NoSpace(_)) if need.metadata > least => {
                    need.metadata = (need.metadata / 2).max(least);
                }
                Err(Shortage::Commit) if !may_commit => break,
                Err(Shortage::Commit) => {
                    commits += 1;
                    engine.commit()?;
                }
                Err(Shortage::NoSpace(error)) if urgency != Urgency::Removal => return Err(error),
                Err(shortage @ (Shortage::Wait | Shortage::NoSpace(_))) => {
                    let Some(waiting) = &mut waiting else {
                        waiting = Some(Waiting::begin(engine.space.accounts().join_queue()));
                        // Running operations used part of the global reserve: a commit refills it.
                        if matches!(shortage, Shortage::NoSpace(_)) && may_commit {
                            engine.commit()?;
                        }
                        continue;
                    };
                    match (waiting.wait(&shortage), shortage) {
                        (true, _) => {}
                        (false, Shortage::NoSpace(error)) => return Err(error),
                        (false, _) => break,
                    }
                }
            }
        }
        Err(Error::NoSpace { kind: SpaceKind::Metadata, needed: need.metadata, available: 0 })
    }

    /// True when a commit is due. First loads groups for the room that it may lack.
    fn needs_commit(&self) -> Result<bool> {
        let engine = &self.0;
        if engine.is_crowded() {
            return Ok(true);
        }
        for _ in 0..LOADS_PER_RESERVE_MAX {
            if !engine.is_commit_short() {
                return Ok(false);
            }
            if !engine.space.accounts().has_unloaded_metadata() {
                return Ok(true);
            }
            self.load_group(SpaceKind::Metadata)?;
        }
        Ok(engine.is_commit_short())
    }

    fn load_group(&self, kind: SpaceKind) -> Result<()> {
        let engine = &self.0;
        // With the gate held no commit changes the trees.
        let _serial = engine.gate.serialize();
        let Some(group) = engine.space.unloaded_group(kind) else { return Ok(()) };
        engine.load_group(&group)
    }

    /// Joins the running transaction.
    ///
    /// # Errors
    /// [`Error::Poisoned`] after a failed write.
    pub fn begin(&self, reservation: Reservation) -> Result<Txn> {
        self.0.health.check()?;
        let generation = self.0.gate.enter();
        Ok(Txn::new(Arc::clone(&self.0), generation, reservation, false))
    }

    /// A handle for a change that can be made later: never blocks, and `None` where there is no room or a commit is
    /// running.
    #[must_use]
    pub fn try_begin(&self, need: Need) -> Option<Txn> {
        let engine = &self.0;
        if engine.options.read_only || engine.health.check().is_err() || engine.is_commit_due() {
            return None;
        }
        let metadata = engine.space.accounts().bytes_for_items(need.items.into());
        let need = space::Need { data: need.data, metadata, system: 0 };
        let reservation = engine.space.reserve(need, Urgency::Normal).ok()?;
        let generation = engine.gate.try_enter()?;
        Some(Txn::new(Arc::clone(&self.0), generation, reservation, false))
    }

    /// Ends the transaction, and returns the first handle of the next one; no other handle is given out while it lives.
    /// Snapshots are taken here. After [`Self::make_way`] other operations wait only briefly. The next commit or
    /// [`Self::write_settled`] writes the ended transaction, so that others need not wait for that.
    ///
    /// # Errors
    /// As [`Self::reserve`] and [`Self::commit`].
    pub fn begin_exclusive(&self, need: Need) -> Result<Txn> {
        let reservation = self.reserve(need)?;
        self.0.begin_exclusive(reservation)
    }

    /// How full the file system is.
    #[must_use]
    pub fn space(&self) -> SpaceReport {
        SpaceReport { held: self.0.views.held_bytes(), ..self.0.space.report() }
    }

    /// Allocates up to `len` bytes for data, at least `min_len` unless the free space is in
    /// smaller pieces. Nothing on the device knows of it until a reference is added.
    ///
    /// # Errors
    /// [`Error::NoSpace`], not met with a reservation for the bytes.
    pub fn alloc_data(&self, reservation: &Reservation, len: u64, min_len: u64, hint: Hint) -> Result<DataExtent> {
        let request = AllocRequest { kind: SpaceKind::Data, len, min_len, hint: hint.at, window: hint.window };
        let extent = self.0.space.alloc(&request, Payer::Reservation(reservation))?;
        self.0.check_unused_by_data(extent)?;
        Ok(DataExtent { at: extent.at, len: extent.len })
    }

    /// Leaves only `kept` more bytes to the writer that was to continue at `at`, in the window of a [`Hint`].
    pub fn end_window(&self, at: Logical, kept: u64) {
        self.0.space.end_window(at, kept);
    }

    /// Returns space that nothing refers to.
    pub fn free_unused(&self, extent: DataExtent) {
        let freed = self.0.space.free_now(Extent { at: extent.at, len: extent.len });
        if let Err(error) = freed {
            self.0.health.poison(&error);
        }
    }

    /// Sends discards for free space, so that a sparse image returns it to the host, and a disk can reuse it: of the
    /// logical addresses in `range`, and of unallocated ranges of devices, all runs of at least `bytes_min`. `watch`
    /// receives the bytes visited so far, and their total. Returns the discarded bytes, each once however many copies
    /// there are.
    ///
    /// # Errors
    /// `ReadOnly`; `Corrupt` for free space that contradicts itself; those of the devices.
    pub fn trim(&self, range: Range<u64>, bytes_min: u64, watch: &mut dyn FnMut(u64, u64)) -> Result<u64> {
        self.0.trim(&Trim { range, bytes_min }, watch)
    }

    /// As [`Self::free_unused`], after a write failed because the host was full: the part that was written is returned
    /// to the host, so that the next commit has some room.
    pub fn give_back_unused(&self, extent: DataExtent) {
        // Before the space can be allocated again. If the discard fails, there is as little room as before.
        let _ = self.0.pool().discard(extent.at, extent.len);
        self.free_unused(extent);
    }

    /// Writes runs of data to all their mirrors, as many at a time as the devices take.
    ///
    /// # Errors
    /// The device's; the store is poisoned then, unless the host of the image was full ([`Error::is_device_full`]).
    /// Nothing may refer to the runs in that case; their contents are undefined.
    pub fn write_data(&self, runs: &[DataRun<'_>]) -> Result<()> {
        self.0.health.check()?;
        let written = self.0.with_room(|| Ok(self.0.pool().write(runs)?));
        written.inspect_err(|error| self.0.health.poison_unless_full(error))
    }

    /// Runs of data that are worth being handed to [`Store::write_data`] together.
    #[must_use]
    pub fn queue_depth(&self) -> usize {
        self.0.pool().queue_depth()
    }

    /// Reads data from the first mirror with the expected checksums, and repairs the others when the store is writable.
    ///
    /// # Errors
    /// [`Error::NoGoodCopy`].
    pub fn read_data(&self, at: Logical, buf: &mut [u8], expect: Expect<'_>) -> Result<()> {
        let expect = match expect {
            Expect::Csums(csums) => btrfs_pool::Expect::Csums(csums),
            Expect::Unchecked => btrfs_pool::Expect::Unchecked,
        };
        Ok(self.0.pool().read(at, buf, expect)?)
    }

    /// Hints that data will be read soon: a device with a cache may fetch it meanwhile.
    pub fn will_read_data(&self, at: Logical, len: u64) {
        self.0.pool().will_read(at, len);
    }

    /// The checksums of a range of data.
    ///
    /// # Errors
    /// Those of reading the checksum tree.
    pub fn data_csums(&self, at: Logical, len: u64) -> Result<CsumRange> {
        self.0.csum_tree().lookup(at, len)
    }

    /// Whether any sector of a range has a checksum; stops at the first.
    ///
    /// # Errors
    /// Those of reading the checksum tree.
    pub fn has_any_csum(&self, at: Logical, len: u64) -> Result<bool> {
        self.0.csum_tree().any(at, len)
    }

    /// Threads that work for the store at the same time.
    #[must_use]
    pub fn worker_count(&self) -> usize {
        self.0.pool().workers().thread_count()
    }

    /// Runs `job` on every item, several at a time on the store's worker threads, while the caller runs `here`; returns
    /// the answers in order, and the caller's. `job` takes no locks.
    pub fn work_on_beside<T: Send, R: Send, B>(
        &self,
        items: Vec<T>,
        job: impl Fn(T) -> R + Sync,
        here: impl FnOnce() -> B,
    ) -> (Vec<R>, B) {
        self.0.pool().workers().map_beside(items, job, here)
    }

    /// Runs `job` on a worker thread of the store while the caller runs `here`. `job` takes no locks.
    pub fn work_beside<A: Send, B>(&self, job: impl FnOnce() -> A + Send, here: impl FnOnce() -> B) -> (A, B) {
        self.0.pool().workers().beside(job, here)
    }
}

/// Trees and references.
impl Store {
    /// Whether the data extent has any reference but this one: another file extent item, one whose removal is not
    /// durable, a snapshot that shares the leaf, or a copy that is being made to move it. Not to be called with an open
    /// handle.
    ///
    /// # Errors
    /// Those of reading the extent tree.
    pub fn is_data_shared(&self, at: Logical, len: u64, holder: &DataHolder) -> Result<bool> {
        self.while_running(|| self.is_data_shared_now(at, len, holder))
    }

    /// A commit takes changes out of the queue before they are in the tree; while a handle is open, none can.
    fn while_running<R>(&self, look: impl FnOnce() -> Result<R>) -> Result<R> {
        let gate = &self.0.gate;
        gate.enter();
        let answer = look();
        gate.leave();
        answer
    }

    fn is_data_shared_now(&self, at: Logical, len: u64, holder: &DataHolder) -> Result<bool> {
        let engine = &self.0;
        // An extent that is being moved has a copy, and a write in place would make the copy stale. One of a seed is
        // shared with all sprouts.
        if engine.space.group_of(Extent { at, len })?.is_read_only() {
            return Ok(true);
        }
        let kind = ExtentKind::Data { len };
        let info = lookup(&engine.core.extent, &engine.pending.refs, at, kind, &engine.extent_sizes())?;
        let last_snapshot = engine.trees.tree(holder.root)?.last_snapshot();
        if info.generation.is_some_and(|generation| generation <= last_snapshot) {
            return Ok(true);
        }
        Ok(!is_held_only_by(&engine.core.extent, &engine.pending.refs, at, holder)?)
    }

    /// A tree's root item, as the next commit would write it apart from the root's address.
    ///
    /// # Errors
    /// [`Error::NoSuchTree`].
    pub fn root_item(&self, id: TreeId) -> Result<RootItem> {
        self.0.trees.item(id)
    }

    /// Removes up to `block_budget` blocks of a subvolume that was deleted (no name, no
    /// open file). To be called again until done; between calls the rest is a valid tree.
    ///
    /// # Errors
    /// As [`Self::reserve_urgent`] and every edit; `Unsupported` for a deletion that was
    /// begun elsewhere.
    pub fn drop_tree_step(&self, id: TreeId, block_budget: u32) -> Result<DropProgress> {
        let need = Need { items: block_budget.saturating_add(8), data: 0 };
        let reservation = self.reserve_urgent(need)?;
        // On a volume with little room, in smaller steps.
        let affordable = u32::try_from(reservation.items_left()).unwrap_or(u32::MAX);
        let budget = affordable.min(block_budget).max(DROP_BLOCKS_MIN);
        drop_tree_step(&self.begin(reservation)?, id, budget)
    }
}
