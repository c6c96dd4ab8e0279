//! Holds the data of one inode in memory, which `file` and `writeback` use.
//!
//! It is declared here because [`super::Inode`] owns it, and imports go down only. The layers of
//! a file's contents, newest first; a reader takes each byte from the first that has it:
//!
//! ```text
//! dirty      pages written and not yet on disk
//! flight     taken by a running flush: pages on their way to disk, and older pending extents
//! pending    extents written to disk by large writes, not yet in the tree
//! tree       EXTENT_DATA items
//! ```
//!
//! Pages in `flight` are newer than `pending`: a large write that meets them waits for the flush.
//!
//! Locks, in this order: `editing` is held by the thread that changes the file's items (flush, truncate, preallocation,
//! clone), for as long as that takes; a transaction begins under it; `inner` is held shared while a reader looks its
//! bytes up, and exclusively while layers or items change. A thread with `inner` does not wait for space or for a
//! transaction, and reads no file data, except a page that it changes in part, if other threads keep changing the file
//! (see `page_preparation`). Extents that a reader looked up stay in place while it reads: see `readers`.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use btrfs_disk::convert::{to_u64, to_usize};
use btrfs_disk::{InodeNo, Logical};
use btrfs_store::{DataExtent, Hint, Need, Reservation, Store, Tree, Txn};
use vfs::PageCache;

use super::compression::Compression;
use super::item::{SECTOR, SECTOR_BYTES};
use super::readers::Readers;
use super::stream::Stream;
use crate::error::{Error, Result};
use crate::extents::{ExtentMap, Stretch};
use crate::locks::{Mutex, Rank, RwLock, WriteGuard};

/// Shorter extents are taken only where free space is too fragmented for this many bytes.
const EXTENT_BYTES_WANTED: u64 = 1 << 20;
/// Tree searches that `stat` of a dirty file may cost, and items that each of them reads.
const LOOKUPS_MAX: u32 = 64;
const LOOKUP_ITEMS: usize = 256;

/// The data side of one inode.
#[derive(Debug)]
pub(crate) struct DataState {
    pub(crate) editing: Mutex<()>,
    pub(crate) inner: RwLock<DataLayers>,
    /// Items read lately. Only looked at under `inner`, and cleared when items change.
    pub(crate) map: Mutex<ExtentMap>,
    /// The access pattern, from which read-ahead follows.
    pub(crate) stream: Stream,
    /// Running reads from disk.
    pub(crate) readers: Readers,
    /// Counts changes of the bytes of pages that are not dirty. It changes only while `inner` is held exclusively.
    version: AtomicU64,
    /// Place in the list of dirty inodes; 0 for none.
    pub(super) listed: AtomicU64,
    /// The file had contents before it was emptied: its new data is written when it is closed.
    replaced: AtomicBool,
    /// Preferred place of the next data at its end; 0 for anywhere.
    grows_at: AtomicU64,
}

impl Default for DataState {
    fn default() -> Self {
        Self {
            editing: Mutex::new(Rank::Editing, ()),
            inner: RwLock::new(Rank::Layers, DataLayers::default()),
            map: Mutex::new(Rank::ExtentMap, ExtentMap::default()),
            stream: Stream::default(),
            readers: Readers::default(),
            version: AtomicU64::new(0),
            listed: AtomicU64::new(0),
            replaced: AtomicBool::new(false),
            grows_at: AtomicU64::new(0),
        }
    }
}

/// The layers above the tree.
#[derive(Debug, Default)]
pub(crate) struct DataLayers {
    pub(crate) dirty: Option<PageCache>,
    pub(crate) flight: Option<Arc<Flight>>,
    pub(crate) pending: Vec<Pending>,
    /// Space for everything in `dirty` and `pending`.
    pub(crate) receipt: Receipt,
    /// How the next flush compresses dirty data, regardless of flags and options.
    pub(crate) compression: Option<Compression>,
}

/// The layers taken by a flush.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    pub(crate) pages: Option<PageCache>,
    pub(crate) pending: Vec<Pending>,
}

/// An extent on disk that is in no tree yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pending {
    /// Offset in the file.
    pub(crate) start: u64,
    /// Bytes.
    pub(crate) len: u64,
    /// Where they are.
    pub(crate) at: Logical,
    /// Checksums, one per sector; empty for a file without.
    pub(crate) csums: Vec<u8>,
}

impl Pending {
    pub(crate) fn end(&self) -> u64 {
        self.start.saturating_add(self.len)
    }
}

impl DataState {
    /// True when nothing is kept in memory that is not in the trees.
    pub(crate) fn is_clean(&self) -> bool {
        self.listed.load(Ordering::Acquire) == 0
    }

    /// Notes that a file with contents was emptied.
    pub(crate) fn note_replaced(&self) {
        self.replaced.store(true, Ordering::Relaxed);
    }

    /// Whether the file was emptied since the last call.
    pub(crate) fn take_replaced(&self) -> bool {
        // Most files that are closed were not emptied: those do not write to a shared cache line.
        self.replaced.load(Ordering::Relaxed) && self.replaced.swap(false, Ordering::Relaxed)
    }

    /// Where the file grows on disk.
    pub(crate) fn grows_at(&self) -> Option<Logical> {
        Some(self.grows_at.load(Ordering::Relaxed)).filter(|at| *at > 0).map(Logical)
    }

    pub(crate) fn set_grows_at(&self, at: Option<Logical>) {
        self.grows_at.store(at.map_or(0, |at| at.0), Ordering::Relaxed);
    }

    /// Ends the growth of the file, for now: returns its place, and how many bytes are still to be written there.
    pub(crate) fn end_growth(&self) -> Option<(Logical, u64)> {
        let at = self.grows_at()?;
        let waiting = self.dirty_bytes();
        self.set_grows_at(Some(at).filter(|_| waiting > 0));
        Some((at, waiting))
    }

    /// Bytes of the dirty pages.
    pub(crate) fn dirty_bytes(&self) -> u64 {
        let bytes_of = |dirty: &PageCache| to_u64(dirty.page_count()) * dirty.page_bytes();
        self.inner.read().dirty.as_ref().map_or(0, bytes_of)
    }

    /// Forgets the cached items, after a change of them.
    pub(crate) fn forget_map(&self) {
        *self.map.lock() = ExtentMap::default();
        self.note_moved();
    }

    /// Notes that bytes changed, or moved from one layer to another. The caller holds `inner` exclusively.
    pub(crate) fn note_moved(&self) {
        self.version.fetch_add(1, Ordering::Relaxed);
    }

    /// The version of the data: while it stays the same, bytes read of a page that is not dirty are still valid. Called
    /// under the `inner` lock.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    /// As [`Self::version`], for a caller without the lock.
    pub(crate) fn version_now(&self) -> u64 {
        let _layers = self.inner.read();
        self.version()
    }

    /// Bytes that are in memory only and in no item: `stat` counts them beside `nbytes`. An estimate for a file of very
    /// many dirty runs.
    pub(super) fn unwritten_bytes(&self, tree: &Tree, ino: InodeNo, disk_size: u64) -> u64 {
        if self.is_clean() {
            return 0;
        }
        let layers = self.inner.read();
        // Items end here: dirty data behind it is new.
        let items_end = disk_size.next_multiple_of(SECTOR_BYTES);
        if let (Some(dirty), None, true) = (&layers.dirty, &layers.flight, layers.pending.is_empty())
            && dirty.start().is_some_and(|start| start >= items_end)
        {
            return to_u64(dirty.page_count()).saturating_mul(dirty.page_bytes());
        }
        let mut new = 0;
        let mut map = ExtentMap::default();
        let mut looked = 0;
        for range in layers.ranges() {
            let behind = range.start.max(items_end)..range.end;
            new += behind.end.saturating_sub(behind.start);
            let mut at = range.start;
            while at < range.end.min(items_end) && looked < LOOKUPS_MAX {
                if !map.knows(at) {
                    looked += 1;
                    let wanted = at..range.end.min(items_end);
                    // Damage is reported when the file is read; a count can do without.
                    map = match ExtentMap::load(tree, ino, wanted, LOOKUP_ITEMS, SECTOR) {
                        Ok(map) => map,
                        Err(_) => return new,
                    };
                }
                let (stretch, end) = map.at(at, SECTOR);
                let end = end.min(range.end).min(items_end).max(at + 1);
                if matches!(stretch, Stretch::Gap) || matches!(stretch, Stretch::Item(i) if i.is_hole()) {
                    new += end - at;
                }
                at = end;
            }
        }
        new
    }

    /// Unlocks, and waits for readers that looked up extents before: then space that the file gave up can be reused.
    /// Called with the `editing` lock held.
    pub(crate) fn settle(&self, layers: WriteGuard<'_, DataLayers>) {
        let former = self.readers.turn();
        drop(layers);
        self.readers.wait(former);
    }
}

impl DataLayers {
    /// True when every byte of the file is in the tree.
    pub(crate) fn is_empty(&self) -> bool {
        self.flight.is_none() && self.pending.is_empty() && self.dirty.as_ref().is_none_or(PageCache::is_empty)
    }

    /// The file bytes that are in any layer, in file order, each once.
    fn ranges(&self) -> Vec<Range<u64>> {
        let flight = self.flight.as_deref();
        let in_flight = flight.and_then(|flight| flight.pages.as_ref());
        let pages = self.dirty.iter().chain(in_flight);
        let pending = self.pending.iter().chain(flight.into_iter().flat_map(|flight| &flight.pending));
        let runs = pages.flat_map(PageCache::runs);
        let mut ranges: Vec<Range<u64>> = runs.map(|run| run.start..run.end()).collect();
        ranges.extend(pending.map(|extent| extent.start..extent.end()));
        ranges.sort_unstable_by_key(|range| range.start);
        ranges.dedup_by(|next, last| {
            let joins = next.start <= last.end;
            if joins {
                last.end = last.end.max(next.end);
            }
            joins
        });
        ranges
    }
}

/// The reservation of a file's dirty data.
#[derive(Debug, Default)]
pub(crate) struct Receipt {
    reservation: Option<Reservation>,
    total: Need,
}

impl Receipt {
    pub(crate) fn add(&mut self, need: Need, reservation: Reservation) {
        match &mut self.reservation {
            Some(held) => held.absorb(&reservation),
            None => self.reservation = Some(reservation),
        }
        self.total.data = self.total.data.saturating_add(need.data);
        self.total.items = self.total.items.saturating_add(need.items);
    }

    /// Takes over the reservation of `other`.
    pub(crate) fn merge(&mut self, other: Self) {
        if let Some(reservation) = other.reservation {
            self.add(other.total, reservation);
        }
    }

    /// The whole reservation, used parts included.
    pub(crate) fn total(&self) -> Need {
        self.total
    }

    /// Takes up to `len` bytes of the reserved data space.
    ///
    /// # Errors
    /// `NoSpace` without a reservation; those of the store's allocation.
    pub(crate) fn alloc(&self, store: &Store, len: u64, hint: Hint) -> Result<DataExtent> {
        let reservation = self.reservation.as_ref().ok_or(Error::NoSpace(None))?;
        Ok(store.alloc_data(reservation, len, len.min(EXTENT_BYTES_WANTED), hint)?)
    }

    /// Begins a transaction with the reservation.
    ///
    /// # Errors
    /// As `Store::begin`.
    pub(crate) fn begin(self, store: &Store) -> Result<Txn> {
        let reservation = match self.reservation {
            Some(reservation) => reservation,
            None => store.reserve(Need::default())?,
        };
        Ok(store.begin(reservation)?)
    }
}

/// A file offset as a position in a buffer that starts at `base`.
pub(crate) fn position(offset: u64, base: u64) -> usize {
    to_usize(offset.saturating_sub(base))
}

/// The bytes of `range` in a buffer that starts at file offset `base`.
pub(crate) fn slice_mut(buf: &mut [u8], base: u64, range: std::ops::Range<u64>) -> &mut [u8] {
    let len = to_u64(buf.len());
    let from = range.start.saturating_sub(base).min(len);
    let to = range.end.saturating_sub(base).clamp(from, len);
    buf.get_mut(to_usize(from)..to_usize(to)).unwrap_or_default()
}
