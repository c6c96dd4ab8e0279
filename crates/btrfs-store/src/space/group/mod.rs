//! Keeps one block group: its free space, its pinned space, and the changes since its items were last written. Called
//! by allocation, pinning and relocation.
//!
//! Free space is loaded when it is first needed; until then the group keeps what became free and what is held. A fixed
//! group, which lies on missing devices, gives nothing even when it is loaded. `emptying` closes and retires.
//!
//! Failure: `Corrupt` where free space contradicts the group's item, or a run is freed twice.

mod emptying;

use std::collections::BTreeMap;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

use btrfs_disk::flags::BlockGroupFlags;
use btrfs_disk::{At, Corrupt, Detail, Logical};

use super::changes::{Change, GroupChanges, Place, What, bytes_of, coalesced, net};
use super::free_map::{Cursor, FreeMap, Run, Want};
use crate::error::{Result, SpaceKind};
use crate::locks::{Mutex, MutexGuard, Rank};
use btrfs_pool::Occupancy;

/// Runs that are shown before others may allocate again: a discard takes some microseconds.
const RUNS_SHOWN: usize = 64;

/// The properties of a block group before its free space is loaded.
#[derive(Clone, Debug)]
pub struct GroupInfo {
    /// First logical byte.
    pub start: Logical,
    /// Bytes.
    pub len: u64,
    /// Use and profile.
    pub flags: BlockGroupFlags,
    /// Bytes taken by extents, according to its item.
    pub used: u64,
    /// Ranges never allocated: copies of the superblock lie there.
    pub excluded: Vec<Run>,
    /// Nothing may be allocated from it.
    pub read_only: bool,
    /// It can be emptied, and is not written otherwise: its profile is only read.
    pub is_only_left: bool,
}

/// A block group.
#[derive(Debug)]
pub struct BlockGroup {
    start: u64,
    len: u64,
    flags: BlockGroupFlags,
    excluded: Box<[Run]>,
    excluded_bytes: u64,
    read_only: bool,
    is_only_left: bool,
    /// It is being emptied: nothing is allocated from it, and bytes freed in it are not available. Changes under the
    /// lock of the state.
    is_closed: AtomicBool,
    /// A device failed that had its only copy, when nothing was in it: it stays closed.
    is_abandoned: AtomicBool,
    /// Bytes that are allocated, in use or pinned. Threads that allocate add to it before they look whether the group
    /// is abandoned, and the thread that abandons it looks at it afterwards, so no lock is needed.
    taken_bytes: AtomicU64,
    /// No free run is longer; 0 until loaded. A hint outside the lock.
    len_bound: AtomicU64,
    /// Something in the state waits for the commit. A hint outside the lock.
    is_touched: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    space: Space,
    used: u64,
    /// The item on disk differs from `used`.
    is_item_stale: bool,
    data_cursor: Cursor,
    block_cursor: Cursor,
    /// Freed on disk in the running transaction.
    pinned: Vec<Run>,
    /// Bytes of these, plus those of the transaction that is being written, plus those held for views.
    pinned_bytes: u64,
    /// Of these, bytes freed by a durable transaction and held for views of an earlier state.
    held_bytes: u64,
    /// Changes that the free-space tree does not know yet, in the order they were made.
    changes: Vec<Change>,
    /// Some of the free space may still occupy the device that backs the image.
    may_take_room: bool,
}

/// ```text
/// Unloaded --install--> Loaded
/// ```
#[derive(Debug)]
enum Space {
    /// The free space has not been read.
    Unloaded {
        /// Every pinned range of the group, by start, until it is unpinned: the thread that loads
        /// must not take it for free.
        held: BTreeMap<u64, u64>,
        /// Bytes that the account of unloaded space holds for this group.
        counted: u64,
    },
    Loaded(FreeMap),
}

/// The contents of a group's item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupUse {
    /// The group.
    pub(crate) group: Run,
    /// Use and profile.
    pub(crate) flags: BlockGroupFlags,
    /// Bytes taken by extents.
    pub(crate) used: u64,
}

/// The group's state when space was freed in it, which decides the account that gets the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Given {
    /// Loaded: the bytes are available.
    Loaded,
    /// Not loaded: the bytes are available after loading.
    Unloaded,
    /// Closed: nothing is allocated from the group.
    Closed,
}

/// Free bytes of a group, and whether it is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Free {
    Loaded(u64),
    Unloaded(u64),
}

/// Bytes of a group by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupBytes {
    /// In the group, superblock copies excluded.
    pub total: u64,
    /// Taken by extents of the extent tree.
    pub used: u64,
    /// Allocated, and not in the extent tree yet.
    pub allocated: u64,
    /// Freed by a transaction that is not durable yet.
    pub pinned: u64,
}

impl Occupancy for BlockGroup {
    fn close_if_empty(&self) -> bool {
        let was_abandoned = self.is_abandoned.swap(true, SeqCst);
        let is_empty = self.taken_bytes.load(SeqCst) == 0;
        if !is_empty && !was_abandoned {
            self.is_abandoned.store(false, SeqCst);
        }
        is_empty
    }
}

impl BlockGroup {
    pub(crate) fn new(info: GroupInfo) -> Self {
        let excluded_bytes = info.excluded.iter().map(|run| run.len).sum();
        let total = info.len.saturating_sub(excluded_bytes);
        Self {
            start: info.start.0,
            len: info.len,
            flags: info.flags,
            excluded_bytes,
            excluded: info.excluded.into_boxed_slice(),
            read_only: info.read_only,
            is_only_left: info.is_only_left,
            is_closed: AtomicBool::new(info.is_only_left),
            is_abandoned: AtomicBool::new(false),
            taken_bytes: AtomicU64::new(info.used),
            len_bound: AtomicU64::new(0),
            is_touched: AtomicBool::new(false),
            state: Mutex::new(
                Rank::Group,
                State {
                    space: Space::Unloaded { held: BTreeMap::new(), counted: total.saturating_sub(info.used) },
                    used: info.used,
                    is_item_stale: false,
                    data_cursor: Cursor::default(),
                    block_cursor: Cursor::default(),
                    pinned: Vec::new(),
                    pinned_bytes: 0,
                    held_bytes: 0,
                    changes: Vec::new(),
                    may_take_room: true,
                },
            ),
        }
    }

    /// The range of the group.
    #[must_use]
    pub const fn range(&self) -> Run {
        Run { start: self.start, len: self.len }
    }

    /// Use and profile.
    #[must_use]
    pub const fn flags(&self) -> BlockGroupFlags {
        self.flags
    }

    /// Nothing may be allocated from it.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.is_fixed() || self.is_closed()
    }

    /// Nothing can ever be written to it while the volume is open: it lies on devices that are missing.
    #[must_use]
    pub fn is_fixed(&self) -> bool {
        self.read_only || self.is_abandoned()
    }

    /// It was closed when a device failed.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.is_abandoned.load(SeqCst)
    }

    /// It can be emptied, and is not written otherwise.
    #[must_use]
    pub const fn is_only_left(&self) -> bool {
        self.is_only_left
    }

    /// It is being emptied, or can only be emptied.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Relaxed)
    }

    /// The kind it counts for; mixed groups count for metadata.
    #[must_use]
    pub fn kind(&self) -> SpaceKind {
        if self.flags.contains(BlockGroupFlags::SYSTEM) {
            SpaceKind::System
        } else if self.flags.contains(BlockGroupFlags::METADATA) {
            SpaceKind::Metadata
        } else {
            SpaceKind::Data
        }
    }

    /// Bytes that can be allocated once the group is loaded; `None` when it is.
    pub(crate) fn unloaded_bytes(&self) -> Option<u64> {
        match self.state.lock().space {
            Space::Unloaded { counted, .. } => Some(counted),
            Space::Loaded(_) => None,
        }
    }

    pub(crate) const fn total(&self) -> u64 {
        self.len.saturating_sub(self.excluded_bytes)
    }

    pub(crate) fn is_loaded(&self) -> bool {
        self.unloaded_bytes().is_none()
    }

    /// False when no run can have `len` bytes.
    pub(crate) fn may_have(&self, len: u64) -> bool {
        self.len_bound.load(Relaxed) > len
    }

    /// Bytes by state.
    #[must_use]
    pub fn bytes(&self) -> GroupBytes {
        let state = self.state.lock();
        let (used, pinned) = (state.used, state.pinned_bytes);
        let allocated = match &state.space {
            Space::Loaded(map) => self.total().saturating_sub(map.bytes() + used + pinned),
            Space::Unloaded { .. } => 0,
        };
        GroupBytes { total: self.total(), used, allocated, pinned }
    }

    /// Gives the group its free space, as read from disk. Returns (bytes that were counted as unloaded, bytes that can
    /// be allocated now); `None` when it was loaded already.
    ///
    /// # Errors
    /// The free space contradicts the group's item.
    pub(crate) fn install(&self, mut map: FreeMap) -> Result<Option<(u64, u64)>, Corrupt> {
        let mut state = self.state.lock();
        let Space::Unloaded { held, counted } = &state.space else {
            return Ok(None);
        };
        // The running transaction may have applied changes that are not in the tree yet.
        let (allocated, freed) = net(state.changes.clone());
        for run in freed {
            map.insert(run).map_err(|_| freed_twice(run))?;
        }
        for run in allocated {
            if map.subtract(run) < run.len {
                return Err(allocated_twice(run));
            }
        }
        let expected = self.len.saturating_sub(state.used);
        if map.bytes() != expected {
            let at = At::Data(Logical(self.start));
            let (expected, found) = (Detail::Number(expected), Detail::Number(map.bytes()));
            return Err(Corrupt::new("free space of the block group", expected, found).at(at));
        }
        for run in &self.excluded {
            map.subtract(*run);
        }
        for (&start, &len) in held {
            map.subtract(Run { start, len });
        }
        let (counted, free) = (*counted, map.bytes());
        self.len_bound.store(map.len_bound(), Relaxed);
        state.space = Space::Loaded(map);
        Ok(Some((counted, free)))
    }

    /// Takes a run, or says that there is none. Does not wait when `wait` is false and
    /// another thread is allocating here.
    pub(crate) fn take(&self, kind: SpaceKind, want: &Want, wait: bool) -> Option<Run> {
        let mut state = self.lock(wait)?;
        let (map, cursor) = state.map_and_cursor(kind)?;
        self.while_claimed(|| {
            let taken = map.take(cursor, want);
            self.len_bound.store(map.len_bound(), Relaxed);
            taken
        })
    }

    /// Takes a run, unless nothing may be allocated here.
    fn while_claimed(&self, take: impl FnOnce() -> Option<Run>) -> Option<Run> {
        // One byte for a run that is not known yet.
        self.taken_bytes.fetch_add(1, SeqCst);
        let taken = if self.is_fixed() { None } else { take() };
        self.taken_bytes.fetch_add(taken.map_or(0, |run| run.len), SeqCst);
        self.taken_bytes.fetch_sub(1, SeqCst);
        taken
    }

    /// Takes exactly this range if it is free.
    pub(crate) fn take_at(&self, kind: SpaceKind, range: Run, window: u64) -> bool {
        let mut state = self.state.lock();
        let Some((map, cursor)) = state.map_and_cursor(kind) else {
            return false;
        };
        let taken = self.while_claimed(|| {
            let is_taken = map.take_at(cursor, range, window);
            self.len_bound.store(map.len_bound(), Relaxed);
            is_taken.then_some(range)
        });
        taken.is_some()
    }

    /// Gives up the window behind `kept` bytes from `at` on.
    pub(crate) fn end_window(&self, at: u64, kept: u64) {
        self.state.lock().data_cursor.end_window(at, kept);
    }

    fn lock(&self, wait: bool) -> Option<MutexGuard<'_, State>> {
        if wait { Some(self.state.lock()) } else { self.state.try_lock() }
    }

    /// Frees runs. Returns the group's state.
    ///
    /// # Errors
    /// A run was free already: something was freed twice.
    pub(crate) fn give(&self, runs: &[Run]) -> Result<Given, Corrupt> {
        self.give_locked(&mut self.state.lock(), runs)
    }

    /// Like [`Self::give`], for runs that were pinned.
    ///
    /// # Errors
    /// As [`Self::give`].
    pub(crate) fn unpin(&self, runs: &[Run]) -> Result<Given, Corrupt> {
        self.unpin_locked(&mut self.state.lock(), runs)
    }

    fn unpin_locked(&self, state: &mut State, runs: &[Run]) -> Result<Given, Corrupt> {
        let bytes = bytes_of(runs);
        debug_assert!(bytes <= state.pinned_bytes, "what is unpinned was pinned");
        state.pinned_bytes = state.pinned_bytes.saturating_sub(bytes);
        self.give_locked(state, runs)
    }

    /// Keeps `bytes` pinned bytes so until [`Self::release`].
    pub(crate) fn hold(&self, bytes: u64) {
        self.state.lock().held_bytes += bytes;
    }

    /// Like [`Self::unpin`], for runs that were held.
    ///
    /// # Errors
    /// As [`Self::give`].
    pub(crate) fn release(&self, runs: &[Run]) -> Result<Given, Corrupt> {
        let mut state = self.state.lock();
        let bytes = bytes_of(runs);
        debug_assert!(bytes <= state.held_bytes, "more is released than is held");
        state.held_bytes = state.held_bytes.saturating_sub(bytes);
        self.unpin_locked(&mut state, runs)
    }

    fn give_locked(&self, state: &mut State, runs: &[Run]) -> Result<Given, Corrupt> {
        debug_assert!(runs.iter().all(|run| self.contains(*run)), "runs become free in the group that they lie in");
        // More than was taken only where something is freed twice, which is found below.
        let less = |taken: u64| Some(taken.saturating_sub(bytes_of(runs)));
        let _ = self.taken_bytes.fetch_update(SeqCst, SeqCst, less);
        state.may_take_room = true;
        match &mut state.space {
            Space::Unloaded { held, counted } => {
                for run in runs {
                    held.remove(&run.start);
                    *counted = counted.saturating_add(run.len);
                }
                Ok(if self.is_read_only() { Given::Closed } else { Given::Unloaded })
            }
            Space::Loaded(map) => {
                for run in coalesced(runs) {
                    map.insert(run).map_err(|_| freed_twice(run))?;
                }
                self.len_bound.store(map.len_bound(), Relaxed);
                Ok(if self.is_read_only() { Given::Closed } else { Given::Loaded })
            }
        }
    }

    /// Calls `discard` with all free runs, unless they were discarded before; nothing of them is allocated meanwhile.
    /// Returns the bytes of the runs for which it returned true.
    pub(crate) fn discard_free(&self, mut discard: impl FnMut(Run) -> bool) -> u64 {
        let mut state = self.state.lock();
        let Space::Loaded(map) = &state.space else { return 0 };
        if !state.may_take_room {
            return 0;
        }
        let given_back = map.iter().filter(|run| discard(*run)).map(|run| run.len).sum();
        state.may_take_room = false;
        given_back
    }

    /// Shows some of the free runs that end behind `from`; none of them is allocated meanwhile. Returns where to
    /// continue, unless those were the last.
    ///
    /// # Errors
    /// The first of `show`, which is then not called again.
    pub(crate) fn for_some_free(&self, from: u64, mut show: impl FnMut(Run) -> Result<()>) -> Result<Option<u64>> {
        let state = self.state.lock();
        let Space::Loaded(map) = &state.space else { return Ok(None) };
        let mut end = None;
        for run in map.iter_behind(from).take(RUNS_SHOWN) {
            show(run)?;
            end = Some(run.end());
        }
        Ok(end)
    }

    /// Pins a run until the running transaction is durable.
    pub(crate) fn pin(&self, run: Run) {
        debug_assert!(self.contains(run), "{run:?} lies in another group");
        let mut state = self.state.lock();
        state.pinned.push(run);
        state.pinned_bytes = state.pinned_bytes.saturating_add(run.len);
        if let Space::Unloaded { held, .. } = &mut state.space {
            held.insert(run.start, run.len);
        }
        self.is_touched.store(true, Relaxed);
    }

    fn contains(&self, run: Run) -> bool {
        self.start <= run.start && run.end() <= self.start.saturating_add(self.len)
    }

    pub(crate) fn take_pinned(&self) -> Vec<Run> {
        std::mem::take(&mut self.state.lock().pinned)
    }

    /// Notes that the extent tree got an extent here.
    ///
    /// # Errors
    /// The group would have more used than it has bytes.
    pub(crate) fn note_allocated(&self, run: Run, keep: bool) -> Result<(), Corrupt> {
        let mut state = self.state.lock();
        let used = state.used.checked_add(run.len).filter(|used| *used <= self.len);
        self.note(&mut state, used, Change { run, what: What::Allocated }, keep)
    }

    /// Notes that the extent tree lost an extent here.
    ///
    /// # Errors
    /// The group would have less than nothing used.
    pub(crate) fn note_freed(&self, run: Run, keep: bool) -> Result<(), Corrupt> {
        let mut state = self.state.lock();
        let used = state.used.checked_sub(run.len);
        self.note(&mut state, used, Change { run, what: What::Freed }, keep)
    }

    fn note(&self, state: &mut State, used: Option<u64>, change: Change, keep: bool) -> Result<(), Corrupt> {
        let Some(used) = used else {
            let at = At::Data(Logical(change.run.start));
            let (expected, found) = (Detail::Range(0, self.len), Detail::Number(change.run.len));
            return Err(Corrupt::new("use of the block group", expected, found).at(at));
        };
        debug_assert!(self.contains(change.run), "an extent is counted in the group that it lies in");
        state.used = used;
        state.is_item_stale = true;
        if keep {
            state.changes.push(change);
        }
        self.is_touched.store(true, Relaxed);
        Ok(())
    }

    /// True when [`Self::take_changes`], [`Self::take_use`] or [`Self::take_pinned`] may
    /// have something.
    pub(crate) fn is_touched(&self) -> bool {
        self.is_touched.load(Relaxed)
    }

    pub(crate) fn has_changes(&self) -> bool {
        let state = self.state.lock();
        !state.changes.is_empty() || state.is_item_stale
    }

    /// The changes for the free-space tree since the last call.
    pub(crate) fn take_changes(&self) -> Option<GroupChanges> {
        let changes = std::mem::take(&mut self.state.lock().changes);
        if changes.is_empty() {
            return None;
        }
        let (allocated, freed) = net(changes);
        (!allocated.is_empty() || !freed.is_empty()).then(|| GroupChanges { group: self.range(), allocated, freed })
    }

    /// The contents of the item, when they changed since the last call.
    pub(crate) fn take_use(&self) -> Option<GroupUse> {
        let mut state = self.state.lock();
        std::mem::take(&mut state.is_item_stale).then(|| GroupUse {
            group: self.range(),
            flags: self.flags,
            used: state.used,
        })
    }

    /// The running transaction ends here: hints are reset to later changes.
    pub(crate) fn settle(&self) {
        let state = self.state.lock();
        let quiet = state.pinned.is_empty() && state.changes.is_empty() && !state.is_item_stale;
        self.is_touched.store(!quiet, Relaxed);
    }
}

impl State {
    /// True when nothing lies in the group, in this transaction and the last durable one, and its items are up to date.
    fn is_quiet(&self) -> bool {
        self.used == 0 && self.pinned_bytes == 0 && self.is_written()
    }

    /// True when the trees have all changes of the group.
    fn is_written(&self) -> bool {
        self.pinned.is_empty() && self.changes.is_empty() && !self.is_item_stale
    }

    fn map_and_cursor(&mut self, kind: SpaceKind) -> Option<(&mut FreeMap, &mut Cursor)> {
        let Space::Loaded(map) = &mut self.space else {
            return None;
        };
        let cursor = match kind {
            SpaceKind::Data => &mut self.data_cursor,
            SpaceKind::Metadata | SpaceKind::System => &mut self.block_cursor,
        };
        Some((map, cursor))
    }
}

#[cold]
fn freed_twice(run: Run) -> Corrupt {
    Corrupt::new("use of the range being freed", Detail::Text("allocated"), Detail::Text("free already"))
        .at(At::Data(Logical(run.start)))
}

#[cold]
fn allocated_twice(run: Run) -> Corrupt {
    Corrupt::new("use of the range being allocated", Detail::Text("free"), Detail::Text("allocated already"))
        .at(At::Data(Logical(run.start)))
}

#[cfg(test)]
mod tests;
