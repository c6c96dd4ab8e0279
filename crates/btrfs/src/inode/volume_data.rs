//! Holds the file data state of a volume, which `file` and `writeback` use: the list of dirty inodes, the budget of
//! dirty data, and a cache of decompressed extents.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use blockdev::Device;
use btrfs_disk::{Generation, Logical};
use vfs::Budget;

use super::Inode;
use super::flush_schedule::Rounds;
use super::sync_rate::SyncRate;
use crate::locks::{Mutex, Rank, ReadGuard, RwLock, WriteGuard};

/// Decompressed extents kept per volume, of at most 128 KiB each.
const DECOMPRESSED_MAX: usize = 32;

/// A whole extent, uncompressed: where it is on disk, the transaction that wrote it, its bytes.
type Decompressed = (Logical, Generation, Arc<[u8]>);

/// The data side of a volume.
#[derive(Debug)]
pub(crate) struct VolumeData {
    pub(crate) budget: Arc<Budget>,
    /// Inodes with dirty data, in the order they became dirty.
    dirty: Mutex<BTreeMap<u64, Arc<Inode>>>,
    dirty_count: AtomicUsize,
    last_listed: AtomicU64,
    /// Shared by threads that overwrite data in place; a snapshot takes it exclusively.
    pub(crate) in_place: RwLock<()>,
    /// See [`Self::stay`].
    moving: RwLock<()>,
    /// Held while space is allocated for the data of one flush.
    pub(crate) laying_out: Mutex<()>,
    /// The rounds of the flusher thread.
    pub(crate) rounds: Rounds,
    pub(crate) syncs: SyncRate,
    /// The latest decompressed extents, newest last.
    decompressed: Mutex<VecDeque<Decompressed>>,
    /// Block groups are being moved on behalf of a command, or devices changed.
    is_reshaped: Arc<AtomicBool>,
    /// Devices that missed commits, and are to be brought up to date.
    stale: Mutex<Vec<Arc<dyn Device>>>,
}

/// Keeps other commands from moving block groups, or changing devices, until it is dropped.
#[derive(Debug)]
#[must_use = "others may begin when it is dropped"]
pub(crate) struct Reshaping(Arc<AtomicBool>);

impl Drop for Reshaping {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl VolumeData {
    pub(crate) fn new(dirty_bytes: usize) -> Self {
        Self {
            budget: Arc::new(Budget::new(dirty_bytes)),
            dirty: Mutex::new(Rank::Lists, BTreeMap::new()),
            dirty_count: AtomicUsize::new(0),
            last_listed: AtomicU64::new(0),
            in_place: RwLock::new(Rank::InPlace, ()),
            moving: RwLock::new(Rank::Moving, ()),
            laying_out: Mutex::new(Rank::LayingOut, ()),
            rounds: Rounds::default(),
            syncs: SyncRate::default(),
            decompressed: Mutex::new(Rank::Lists, VecDeque::new()),
            is_reshaped: Arc::default(),
            stale: Mutex::new(Rank::Lists, Vec::new()),
        }
    }

    /// Keeps devices for [`Self::take_stale`].
    pub(crate) fn keep_stale(&self, devices: Vec<Arc<dyn Device>>) {
        *self.stale.lock() = devices;
    }

    /// A device that missed commits, if one is left.
    pub(crate) fn take_stale(&self) -> Option<Arc<dyn Device>> {
        self.stale.lock().pop()
    }

    /// How many devices missed commits.
    pub(crate) fn stale_count(&self) -> usize {
        self.stale.lock().len()
    }

    /// Begins to move block groups, or to change the devices; `None` while another command does.
    pub(crate) fn begin_reshaping(&self) -> Option<Reshaping> {
        let was_free = !self.is_reshaped.swap(true, Ordering::AcqRel);
        was_free.then(|| Reshaping(Arc::clone(&self.is_reshaped)))
    }

    /// Data on disk stays where it is until the guard is dropped: taken before an inode's `editing` lock.
    pub(crate) fn stay(&self) -> ReadGuard<'_, ()> {
        self.moving.read()
    }

    /// Waits until no `editing` lock is held, and admits none until the guard is dropped: later look-ups find data at
    /// its new place.
    pub(crate) fn move_data(&self) -> WriteGuard<'_, ()> {
        self.moving.write()
    }

    /// Forgets decompressed extents: other data may get their addresses.
    pub(crate) fn forget_decompressed(&self) {
        self.decompressed.lock().clear();
    }

    /// Notes that the inode is dirty. Called under its `inner` lock.
    pub(crate) fn list(&self, inode: &Arc<Inode>) {
        if inode.data.listed.load(Ordering::Relaxed) == 0 {
            let place = self.last_listed.fetch_add(1, Ordering::Relaxed) + 1;
            self.dirty.lock().insert(place, Arc::clone(inode));
            self.dirty_count.fetch_add(1, Ordering::Relaxed);
            inode.data.listed.store(place, Ordering::Release);
        }
    }

    /// Notes that the inode is clean. Called under its `inner` lock.
    pub(crate) fn unlist(&self, inode: &Inode) {
        let place = inode.data.listed.swap(0, Ordering::AcqRel);
        if place != 0 {
            // The last reference to the inode may go with this one: not under the lock.
            let listed = self.dirty.lock().remove(&place);
            self.dirty_count.fetch_sub(1, Ordering::Relaxed);
            drop(listed);
        }
    }

    /// How many inodes are dirty.
    pub(crate) fn dirty_file_count(&self) -> usize {
        self.dirty_count.load(Ordering::Relaxed)
    }

    /// The oldest dirty inodes, at most `limit`.
    pub(crate) fn dirty_inodes(&self, limit: usize) -> Vec<Arc<Inode>> {
        self.dirty.lock().values().take(limit).cloned().collect()
    }

    /// The oldest dirty inodes behind `place`, at most `limit`, and the place of the last one.
    pub(crate) fn dirty_after(&self, place: u64, limit: usize) -> (Vec<Arc<Inode>>, u64) {
        let dirty = self.dirty.lock();
        let mut last = place;
        let inodes = dirty
            .range(place.saturating_add(1)..)
            .take(limit)
            .map(|(place, inode)| {
                last = *place;
                Arc::clone(inode)
            })
            .collect();
        (inodes, last)
    }

    /// The place that the next inode to become dirty gets, or a later one.
    pub(crate) fn next_place(&self) -> u64 {
        self.last_listed.load(Ordering::Relaxed).saturating_add(1)
    }

    pub(crate) fn decompressed(&self, at: Logical, generation: Generation) -> Option<Arc<[u8]>> {
        let kept = self.decompressed.lock();
        let found = kept.iter().rev().find(|(a, g, _)| (*a, *g) == (at, generation))?;
        Some(Arc::clone(&found.2))
    }

    pub(crate) fn keep_decompressed(&self, at: Logical, generation: Generation, bytes: Arc<[u8]>) {
        let mut kept = self.decompressed.lock();
        if kept.len() >= DECOMPRESSED_MAX {
            kept.pop_front();
        }
        kept.push_back((at, generation, bytes));
    }
}
