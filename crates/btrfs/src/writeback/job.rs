//! One file in a flush: what was taken of it, and what becomes of that.

use std::sync::Arc;

use btrfs_disk::Logical;
use btrfs_disk::convert::{to_u64, to_usize};
use btrfs_store::DataExtent;
use vfs::{PageCache, Run};

use super::plan::{self, Request, Step};
use super::{encode, in_place, missing, need_for, pending};
use crate::error::Result;
use crate::extents::{FileExtent, Kind, NewExtent};
use crate::inode::{Compression, Core, Flight, Inode, InodeFlags, Receipt, keeps_plain};
use crate::locks::MutexGuard;

/// One file whose dirty data is being written.
pub(super) struct Job<'a> {
    pub(super) inode: &'a Arc<Inode>,
    /// The inode's `editing` lock, unless the caller holds it.
    _editing: Option<MutexGuard<'a, ()>>,
    pub(super) flight: Arc<Flight>,
    pub(super) receipt: Receipt,
    /// Size of the file when its data was taken.
    pub(super) size: u64,
    pub(super) flags: InodeFlags,
    /// How the data is compressed, if at all: as was asked for these data, or as the file is; that is known once it is
    /// planned.
    pub(super) compression: Option<Compression>,
    /// The whole file, compressed, where it becomes small enough for its item.
    small: Option<Vec<u8>>,
    /// The file may be stored in its item, if it is small enough.
    pub(super) may_inline: bool,
    pub(super) steps: Vec<Step>,
    pub(super) made: Made,
}

/// What writing the data has made, for the transaction that makes it part of the file.
#[derive(Default)]
pub(super) struct Made {
    /// What finishing inserts, in file order.
    pub(super) items: Vec<NewExtent>,
    /// Bytes of an inline extent among `items`.
    pub(super) inline: Vec<u8>,
    /// Checksums of adjacent sectors on disk.
    pub(super) csums: Vec<(Logical, Vec<u8>)>,
    /// Space allocated by this job.
    pub(super) fresh: Vec<DataExtent>,
}

impl<'a> Job<'a> {
    /// Takes what is dirty; `None` (and the lock is released) when nothing is. A size that is ahead
    /// of the items is dirty too: the data it came with may be gone, cut off or punched out.
    pub(super) fn take(core: &Core, inode: &'a Arc<Inode>, editing: Option<MutexGuard<'a, ()>>) -> Option<Self> {
        let mut layers = inode.data.inner.write();
        let is_size_written = {
            let state = inode.state();
            state.disk_size >= state.size
        };
        if layers.is_empty() && is_size_written {
            core.data.unlist(inode);
            layers.receipt = Receipt::default();
            return None;
        }
        let flight = Arc::new(Flight { pages: layers.dirty.take(), pending: std::mem::take(&mut layers.pending) });
        layers.flight = Some(Arc::clone(&flight));
        inode.data.note_moved();
        let receipt = std::mem::take(&mut layers.receipt);
        let compression = layers.compression.take();
        let (size, flags) = {
            let state = inode.state();
            (state.size, state.flags)
        };
        drop(layers);
        Some(Self {
            inode,
            _editing: editing,
            flight,
            receipt,
            size,
            flags,
            compression,
            small: None,
            may_inline: true,
            steps: Vec::new(),
            made: Made::default(),
        })
    }

    pub(super) fn dirty_bytes(&self) -> u64 {
        let pages = self.flight.pages.as_ref();
        pages.map_or(0, |pages| to_u64(pages.page_count()) * pages.page_bytes())
    }

    pub(super) fn has_csums(&self) -> bool {
        !self.flags.contains(InodeFlags::NODATASUM)
    }

    /// Decides what becomes of each run, and asks for space that nobody promised: only after a
    /// failed flush, or where data that was to be overwritten in place has become shared.
    pub(super) fn plan(&mut self, core: &Core) -> Result<()> {
        let runs: Vec<Run> = self.flight.pages.iter().flat_map(PageCache::runs).collect();
        let sizes = core.store.sizes();
        let keeps_space = self.flags.intersects(InodeFlags::NODATACOW | InodeFlags::PREALLOC);
        let may_inline = self.may_inline && !keeps_space && self.flight.pending.is_empty();
        self.compression = match self.compression.filter(|_| !keeps_plain(self.flags)) {
            None => core.compression(self.inode, self.flags)?,
            asked => asked,
        };
        let mut max_inline = match may_inline {
            true => plan::max_inline(core.settings.max_inline, sizes.node, sizes.sector),
            false => 0,
        };
        if self.encode_small(max_inline, sizes.sector) {
            max_inline = self.size;
        }
        let request = Request { size: self.size, max_inline, sector: u64::from(sizes.sector) };
        let reusable = in_place::find(core, self.inode, self.flags, &runs)?;
        self.steps = plan::plan(request, &runs, &reusable);
        let pending = &self.flight.pending;
        let runs = self.steps.len() + pending.len();
        let mut wanted = need_for(to_u64(runs), self.dirty_bytes() + pending::total_bytes(pending));
        wanted.data = pending::total_bytes(pending);
        for step in &self.steps {
            if let Step::Allocate(run) = step {
                wanted.data = wanted.data.saturating_add(run.len);
            }
        }
        if let Some(missing) = missing(wanted, self.receipt.total()) {
            self.receipt.add(missing, core.store.reserve(missing)?);
        }
        Ok(())
    }
}

impl Job<'_> {
    pub(super) fn set_inline(&mut self, pages: &PageCache, len: u64) {
        let page = pages.page(0).unwrap_or_default();
        let plain = page.get(..to_usize(len)).unwrap_or(page);
        let len = to_u64(plain.len());
        let (compression, bytes) = match (self.compression, self.small.take()) {
            (Some(compression), Some(small)) => (compression.kind.to_raw(), small),
            _ => (0, plain.to_vec()),
        };
        self.made.inline = bytes;
        let extent = FileExtent { compression, disk_len: 0, ..FileExtent::whole(0, Kind::Inline, Logical(0), len) };
        self.made.items.push(NewExtent { extent, is_fresh: false });
    }

    pub(super) fn add_in_place(&mut self, run: Run, old: &FileExtent) {
        if old.kind == Kind::Prealloc {
            let extent = FileExtent { kind: Kind::Regular, ..old.part(run.start..run.end()) };
            self.made.items.push(NewExtent { extent, is_fresh: false });
        }
    }

    /// Space for up to `len` bytes on disk.
    pub(super) fn allocate(&mut self, core: &Core, len: u64, hint: Option<Logical>) -> Result<DataExtent> {
        let extent = self.receipt.alloc(&core.store, len, hint)?;
        self.made.fresh.push(extent);
        debug_assert!(0 < extent.len && extent.len <= len, "no more than was asked for");
        Ok(DataExtent { len: extent.len.min(len), ..extent })
    }

    /// Notes an extent that has space of its own.
    pub(super) fn add_fresh(&mut self, extent: FileExtent) {
        self.made.items.push(NewExtent { extent, is_fresh: true });
    }

    /// Compresses a file of one sector, if it is to be compressed; true when its item has room for it then.
    fn encode_small(&mut self, max_inline: u64, sector: u32) -> bool {
        let (Some(compression), Some(pages)) = (self.compression, self.flight.pages.as_ref()) else {
            return false;
        };
        let is_small = (1..=u64::from(sector)).contains(&self.size) && pages.page_count() == 1;
        let whole = pages.page(0).and_then(|page| page.get(..to_usize(self.size)));
        let Some(plain) = whole.filter(|_| is_small && max_inline > 0) else {
            return false;
        };
        self.small = encode::small(plain, compression, max_inline, sector);
        self.small.is_some()
    }

    pub(super) fn add_csums(&mut self, core: &Core, at: u64, csums: &[u8]) {
        let (sector, csum) = (u64::from(core.store.sizes().sector), core.store.sizes().csum);
        debug_assert!(at.is_multiple_of(sector), "checksums are of whole sectors");
        debug_assert!(csums.len().is_multiple_of(csum.max(1)), "a checksum is whole");
        match self.made.csums.last_mut() {
            Some((start, list)) if start.0 + to_u64(list.len() / csum.max(1)) * sector == at => {
                list.extend_from_slice(csums);
            }
            _ => self.made.csums.push((Logical(at), csums.to_vec())),
        }
    }
}
