//! What `file` and `writeback` keep in memory per inode.
//!
//! It is declared here because [`super::Inode`] owns it, and imports go down only. The layers of
//! a file's contents, newest first; a reader takes each byte from the first that has it:
//!
//! ```text
//! dirty      pages written and not yet on disk
//! flight     what a running flush took: pages on their way to disk, and older pending extents
//! pending    extents written to disk by large writes, not yet in the tree
//! tree       EXTENT_DATA items
//! ```
//!
//! Pages in `flight` are newer than `pending`: a large write that meets them waits for the flush.
//!
//! Locks, in this order: `editing` is held by whoever changes the file's items (flush, truncate,
//! preallocation, clone), for as long as that takes; `inner` is held shared during a read with all
//! its I/O, so that nothing a reader looks at is freed meanwhile, and exclusively while layers or
//! items change. Space is reserved before `inner` is taken; a transaction begins under it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use btrfs_disk::Logical;
use btrfs_disk::convert::{to_u64, to_usize};
use btrfs_store::{DataExtent, Need, Reservation, Store, Txn};
use parking_lot::{Mutex, RwLock};
use vfs::PageCache;

use crate::error::{Error, Result};
use crate::extents::ExtentMap;

/// Shorter extents are taken only where free space is too fragmented for this many bytes.
const EXTENT_BYTES_WANTED: u64 = 1 << 20;

/// The data side of one inode.
#[derive(Debug, Default)]
pub(crate) struct DataState {
    pub(crate) editing: Mutex<()>,
    pub(crate) inner: RwLock<DataLayers>,
    /// Items read lately. Only looked at under `inner`, and cleared when items change.
    pub(crate) map: Mutex<ExtentMap>,
    /// Place in the list of dirty inodes; 0 for none.
    pub(super) listed: AtomicU64,
}

/// What is newer than the tree.
#[derive(Debug, Default)]
pub(crate) struct DataLayers {
    pub(crate) dirty: Option<PageCache>,
    pub(crate) flight: Option<Arc<Flight>>,
    pub(crate) pending: Vec<Pending>,
    /// Space for everything in `dirty` and `pending`.
    pub(crate) receipt: Receipt,
}

/// What a flush took.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    pub(crate) pages: Option<PageCache>,
    pub(crate) pending: Vec<Pending>,
}

/// An extent on disk that no tree knows yet.
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

    /// The items changed: what was read of them is forgotten.
    pub(crate) fn forget_map(&self) {
        *self.map.lock() = ExtentMap::default();
    }
}

impl DataLayers {
    /// True when every byte of the file is in the tree.
    pub(crate) fn is_empty(&self) -> bool {
        self.flight.is_none()
            && self.pending.is_empty()
            && self.dirty.as_ref().is_none_or(PageCache::is_empty)
    }
}

/// Space that was promised to a file's dirty data.
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

    /// Takes over what `other` was promised.
    pub(crate) fn merge(&mut self, other: Self) {
        if let Some(reservation) = other.reservation {
            self.add(other.total, reservation);
        }
    }

    /// What was promised altogether, used parts included.
    pub(crate) fn total(&self) -> Need {
        self.total
    }

    /// Takes up to `len` bytes of the data space that was promised.
    ///
    /// # Errors
    /// `NoSpace` when nothing was promised; what the store's allocation fails with.
    pub(crate) fn alloc(
        &self,
        store: &Store,
        len: u64,
        hint: Option<Logical>,
    ) -> Result<DataExtent> {
        let reservation = self.reservation.as_ref().ok_or(Error::NoSpace)?;
        Ok(store.alloc_data(reservation, len, len.min(EXTENT_BYTES_WANTED), hint)?)
    }

    /// Begins a transaction with what was promised.
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
    &mut buf[to_usize(from)..to_usize(to)]
}
