//! Takes the dirty data of one file for a flush, and plans its writes. A flush makes one [`Job`] for each file.

use std::sync::Arc;

use btrfs_disk::Logical;
use btrfs_disk::convert::{to_u64, to_usize};
use btrfs_store::{DataExtent, Hint};
use vfs::{PageCache, Run};

use super::outgoing_data::Outgoing;
use super::plan::{self, Request, Step};
use super::{GROWTH_WINDOW_BYTES, encode, missing, need_for, overwrite, pending_extents};
use crate::error::Result;
use crate::inode::{Core, Flight, Inode, InodeFlags, Pending, Receipt, keeps_plain};
use crate::locks::MutexGuard;

/// One file whose dirty data is being written.
pub(super) struct Job<'a> {
    pub(super) inode: &'a Arc<Inode>,
    /// The inode's `editing` lock, unless the caller holds it.
    _editing: Option<MutexGuard<'a, ()>>,
    pub(super) flight: Arc<Flight>,
    /// Size of the file when its data was taken.
    pub(super) size: u64,
    pub(super) flags: InodeFlags,
    /// Its compression: that requested for these data, or the file's, which is determined when it is planned.
    pub(super) out: Outgoing,
    /// The file may be stored in its item, if it is small enough.
    pub(super) may_inline: bool,
    pub(super) steps: Vec<Step>,
}

impl<'a> Job<'a> {
    /// Takes the dirty data; `None` (and the lock is released) when there is none. A size that is ahead of the items is
    /// dirty too: its data may have been cut off or punched out.
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
        let (pages, mut pending) = (layers.dirty.take(), std::mem::take(&mut layers.pending));
        let unused = split_off_end(core, pages.as_ref(), &mut pending);
        let flight = Arc::new(Flight { pages, pending });
        layers.flight = Some(Arc::clone(&flight));
        inode.data.note_moved();
        let receipt = std::mem::take(&mut layers.receipt);
        let compression = layers.compression.take();
        let (size, flags) = {
            let state = inode.state();
            (state.size, state.flags)
        };
        if unused.is_empty() {
            drop(layers);
        } else {
            inode.data.settle(layers);
            unused.into_iter().for_each(|extent| core.store.free_unused(extent));
        }
        Some(Self {
            inode,
            _editing: editing,
            flight,
            size,
            flags,
            out: Outgoing {
                receipt,
                wants_csums: !flags.contains(InodeFlags::NODATASUM),
                compression,
                ..Outgoing::default()
            },
            may_inline: true,
            steps: Vec::new(),
        })
    }

    pub(super) fn dirty_bytes(&self) -> u64 {
        let pages = self.flight.pages.as_ref();
        pages.map_or(0, |pages| to_u64(pages.page_count()) * pages.page_bytes())
    }

    /// The preferred place of its bytes on disk, if they extend a growing file: behind its last extent. With a window
    /// for more, while the file is open.
    pub(super) fn own_place(&self) -> Option<Hint> {
        let mut runs = self.flight.pages.iter().flat_map(PageCache::runs);
        let (first, is_only) = (runs.next()?, runs.next().is_none());
        let data = &self.inode.data;
        let at = match self.flight.pending.last() {
            Some(last) => pending_extents::hint(&self.flight.pending).filter(|_| last.end() == first.start),
            None => data.grows_at().filter(|_| is_only && first.end() >= self.size),
        };
        let is_growing = data.grows_at().is_some() && self.inode.is_open();
        let window = if is_growing { GROWTH_WINDOW_BYTES } else { 0 };
        at.map(|at| Hint { at: Some(at), window })
    }

    /// Notes the place behind its data, for the next data of a growing file.
    pub(super) fn note_growth(&self) {
        let data = &self.inode.data;
        if data.grows_at().is_some() && self.flight.pages.is_some() {
            let last = self.out.made.fresh.last().map(|last| Logical(last.at.0.saturating_add(last.len)));
            data.set_grows_at(last.filter(|_| self.inode.is_open()));
        }
    }

    /// Plans each run, and reserves missing space: only after a failed flush, or where data that was to be overwritten
    /// in place has become shared.
    pub(super) fn plan(&mut self, core: &Core) -> Result<()> {
        let runs: Vec<Run> = self.flight.pages.iter().flat_map(PageCache::runs).collect();
        let sizes = core.store.sizes();
        let keeps_space = self.flags.intersects(InodeFlags::NODATACOW | InodeFlags::PREALLOC);
        let may_inline = self.may_inline && !keeps_space && self.flight.pending.is_empty();
        self.out.compression = match self.out.compression.filter(|_| !keeps_plain(self.flags)) {
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
        let reusable = overwrite::find(core, self.inode, self.flags, &runs)?;
        self.steps = plan::plan(request, &runs, &reusable);
        let pending = &self.flight.pending;
        let runs = self.steps.len() + pending.len();
        let mut wanted = need_for(to_u64(runs), self.dirty_bytes() + pending_extents::total_bytes(pending));
        wanted.data = pending_extents::total_bytes(pending);
        for step in &self.steps {
            if let Step::Allocate(run) = step {
                wanted.data = wanted.data.saturating_add(run.len);
            }
        }
        if let Some(missing) = missing(wanted, self.out.receipt.total()) {
            self.out.receipt.add(missing, core.store.reserve(missing)?);
        }
        Ok(())
    }
}

/// Splits off the last sector on disk, if the file went on in the middle of it: all of it is in `pages` now, and can be
/// rewritten at its old place together with the following bytes, once no reader is left there.
fn split_off_end(core: &Core, pages: Option<&PageCache>, pending: &mut Vec<Pending>) -> Vec<DataExtent> {
    let sizes = core.store.sizes();
    let sector = u64::from(sizes.sector);
    let Some(end) = pending.last().map(Pending::end) else { return Vec::new() };
    let last = end.saturating_sub(sector);
    let goes_on = |pages: &&PageCache| pages.page(last).is_some() && pages.page(end).is_some();
    match pages.filter(goes_on) {
        Some(_) => pending_extents::cut(pending, last..end, (sizes.sector, sizes.csum)),
        None => Vec::new(),
    }
}

impl Job<'_> {
    /// Compresses a file of one sector, if it is to be compressed; true when it fits its item then.
    fn encode_small(&mut self, max_inline: u64, sector: u32) -> bool {
        let (Some(compression), Some(pages)) = (self.out.compression, self.flight.pages.as_ref()) else {
            return false;
        };
        let is_small = (1..=u64::from(sector)).contains(&self.size) && pages.page_count() == 1;
        let whole = pages.page(0).and_then(|page| page.get(..to_usize(self.size)));
        let Some(plain) = whole.filter(|_| is_small && max_inline > 0) else {
            return false;
        };
        self.out.small = encode::small(plain, compression, max_inline, sector);
        self.out.small.is_some()
    }
}
