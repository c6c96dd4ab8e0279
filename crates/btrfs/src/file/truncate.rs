//! Changes the size of a file, and drops ranges of it. Called by `setattr`, open with truncation, and replay.

use std::ops::Range;
use std::sync::Arc;

use btrfs_disk::flags::Incompat;
use btrfs_store::{DataExtent, Need};

use super::write::{Held, bring_page, bring_tail, dirty_of, is_tail_needed, reserve};
use crate::error::{CallerError, Result};
use crate::extents::{
    BytesDelta, DROPS_PER_ITEM, FILE_BYTES_MAX, Kind, Stretch, Target, drop_items, drops_for, fill_gaps,
};
use crate::inode::{Change, Core, DataLayers, Inode, InodeFlags, InodeState, Receipt};
use crate::locks::WriteGuard;
use crate::writeback::{self, ITEMS_PER_FILE, need_for, pending_extents};

/// Items that the first transaction of a longer operation drops: small files need only one, for which little has to be
/// reserved.
const FIRST_STEP_ITEMS: u32 = 8;
/// Items that each of the following ones drops.
const STEP_ITEMS: u32 = 256;

/// Makes the file `size` bytes long. New bytes read as zeros.
///
/// # Errors
/// `ReadOnly`, `NotPermitted`, `TooLarge`, `NoSpace`; damage and I/O. A failure while a file is being made shorter
/// leaves it between its old and its new size on disk.
pub(crate) fn set_size(core: &Core, inode: &Arc<Inode>, size: u64) -> Result<()> {
    inode.check_writable()?;
    inode.check_permits(Change::Other)?;
    if size > FILE_BYTES_MAX {
        return Err(CallerError::TooLarge.into());
    }
    let _stay = core.data.stay();
    let editing = inode.data.editing.lock();
    let (current, flags) = {
        let state = inode.state();
        (state.size, state.flags)
    };
    if size == 0 && current > 0 {
        inode.data.note_replaced();
    }
    // Cutting to the same size drops preallocated space beyond the end.
    let result = if size < current || (size == current && flags.contains(InodeFlags::PREALLOC)) {
        shrink(core, inode, size)
    } else {
        grow(core, inode, size)
    };
    drop(editing);
    result
}

/// Sets a larger size. Called with the inode's `editing` lock held.
///
/// # Errors
/// `NoSpace`; damage and I/O.
pub(super) fn grow(core: &Core, inode: &Arc<Inode>, size: u64) -> Result<()> {
    // Before the size changes.
    let reservation = reserve(core, need_for(1, 0), Held::Editing)?;
    // The first sector of a small file may be inline, which a longer file cannot be: it becomes
    // dirty, and the flush sees the new size.
    if size > inode.state().size && is_tail_needed(core, inode, &inode.data.inner.read(), size) {
        bring_tail(core, inode, Held::Editing)?;
        inode.change_in_memory(|state| state.size = state.size.max(size));
    }
    writeback::flush_held(core, inode)?;
    let txn = core.store.begin(reservation)?;
    let _layers = inode.data.inner.write();
    let disk_size = inode.state().disk_size;
    let target =
        Target { txn: &txn, tree: &inode.root.tree, notes: &inode.root.notes, ino: inode.ino(), sector: sector(core) };
    fill_holes(core, target, covered(core, disk_size)..covered(core, size))?;
    let now = core.now();
    inode.change(&txn, |state| {
        state.size = state.size.max(size);
        state.disk_size = state.disk_size.max(size);
        (state.mtime, state.ctime) = (now, now);
    });
    inode.data.forget_map();
    Ok(())
}

/// Sets a smaller size. The caller keeps writers away: bytes that they add behind the new end while old items are being
/// dropped would be mixed with old data.
fn shrink(core: &Core, inode: &Arc<Inode>, size: u64) -> Result<()> {
    let cut = covered(core, size);
    // Only a sector that is cut in two is written; the rest frees space.
    let mut receipt = Receipt::default();
    if size < cut {
        let need = need_for(1, u64::from(sector(core)));
        receipt.add(need, core.store.reserve_urgent(need)?);
    }
    {
        let mut layers = inode.data.inner.write();
        layers.receipt.merge(receipt);
        let unused = cut_layers(core, inode, &mut layers, size)?;
        let now = core.now();
        inode.change_in_memory(|state| {
            state.size = size;
            (state.mtime, state.ctime) = (now, now);
        });
        core.data.list(inode);
        inode.data.note_moved();
        inode.data.settle(layers);
        for extent in unused {
            core.store.free_unused(extent);
        }
    }
    drop_range(core, inode, cut..FILE_BYTES_MAX, Layers::Keep, &|state, from| {
        state.disk_size = state.disk_size.min(if from > cut { from } else { size });
    })
}

/// Cuts the layers in memory to `size`, and zeroes the rest of the last sector. Returns the space of extents that were
/// written and are not used any more.
fn cut_layers(core: &Core, inode: &Inode, layers: &mut DataLayers, size: u64) -> Result<Vec<DataExtent>> {
    let cut = covered(core, size);
    if size < cut && is_last_sector_data(core, inode, layers, size)? {
        let page_start = cut - u64::from(sector(core));
        bring_page(core, inode, layers, page_start)?;
        if let Some(page) = dirty_of(core, layers).page_mut(page_start) {
            let kept = crate::inode::position(size, page_start);
            page.iter_mut().skip(kept).for_each(|byte| *byte = 0);
        }
    }
    if let Some(dirty) = &mut layers.dirty {
        dirty.discard(cut..u64::MAX);
    }
    let csum_len = core.store.sizes().csum;
    let mut unused = Vec::new();
    for pending in &mut layers.pending {
        let kept = cut.saturating_sub(pending.start).min(pending.len);
        if kept < pending.len {
            let at = btrfs_disk::Logical(pending.at.0.saturating_add(kept));
            unused.push(DataExtent { at, len: pending.len - kept });
            let sectors = btrfs_disk::convert::to_usize(kept / u64::from(sector(core)));
            pending.csums.truncate(sectors * csum_len);
            pending.len = kept;
        }
    }
    layers.pending.retain(|pending| pending.len > 0);
    Ok(unused)
}

/// True when the sector of byte `size` is anything but a hole or preallocated.
fn is_last_sector_data(core: &Core, inode: &Inode, layers: &DataLayers, size: u64) -> Result<bool> {
    let is_dirty = layers.dirty.as_ref().is_some_and(|dirty| dirty.page(size).is_some());
    let is_pending = layers.pending.iter().any(|p| p.start <= size && size < p.end());
    if is_dirty || is_pending {
        return Ok(true);
    }
    let (stretch, _) = super::read::look_up(core, inode, size..size + 1)?;
    Ok(matches!(stretch, Stretch::Item(item) if item.kind == Kind::Inline || !item.is_zeros()))
}

/// The effect of [`drop_range`] on the layers of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layers {
    /// They are newer than the drop, and stay.
    Keep,
    /// They are dropped with the items.
    Forget,
}

/// Drops the items of `range` from its end, in transactions of bounded size. `note` updates the inode item after each:
/// no item is left from the given offset on. Called with the inode's `editing` lock held; holes are filled where the
/// file system wants them.
///
/// # Errors
/// `NoSpace` when even the reserve for removals is used up; damage and I/O.
pub(super) fn drop_range(
    core: &Core,
    inode: &Inode,
    range: Range<u64>,
    layers_too: Layers,
    note: &dyn Fn(&mut InodeState, u64),
) -> Result<()> {
    let mut budget = FIRST_STEP_ITEMS;
    let mut end = range.end;
    loop {
        let need = Need { items: budget / DROPS_PER_ITEM + ITEMS_PER_FILE, data: 0 };
        let reservation = core.store.reserve_urgent(need)?;
        let step_items = drops_for(&reservation, budget);
        let txn = core.store.begin(reservation)?;
        let mut layers: WriteGuard<'_, DataLayers> = inode.data.inner.write();
        let target = Target {
            txn: &txn,
            tree: &inode.root.tree,
            notes: &inode.root.notes,
            ino: inode.ino(),
            sector: sector(core),
        };
        let step = drop_items(target, range.start..end, step_items)?;
        inode.change(&txn, |state| {
            state.nbytes = step.delta.apply_to(state.nbytes);
            note(state, step.dropped_from);
        });
        let disk_size = inode.state().disk_size;
        fill_holes(core, target, step.dropped_from..end.min(covered(core, disk_size)))?;
        let unused = match layers_too {
            Layers::Keep => Vec::new(),
            Layers::Forget => forget_layers(core, &mut layers, step.dropped_from..end),
        };
        inode.data.forget_map();
        inode.data.settle(layers);
        drop(txn);
        for extent in unused {
            core.store.free_unused(extent);
        }
        if step.is_done {
            return Ok(());
        }
        end = step.dropped_from;
        budget = STEP_ITEMS;
    }
}

/// Inserts hole items where there is no item, on file systems that want them.
///
/// # Errors
/// Damage and I/O.
pub(super) fn fill_holes(core: &Core, target: Target<'_>, range: Range<u64>) -> Result<()> {
    if range.is_empty() || core.store.has_incompat(Incompat::NO_HOLES.bits()) {
        return Ok(());
    }
    fill_gaps(target, range)
}

/// Applies an edit's change to the inode's `nbytes`, and calls `change` for the rest.
pub(super) fn note_edit(
    core: &Core,
    inode: &Inode,
    target: Target<'_>,
    delta: BytesDelta,
    change: impl FnOnce(&mut InodeState),
) {
    let now = core.now();
    inode.change(target.txn, |state| {
        state.nbytes = delta.apply_to(state.nbytes);
        (state.mtime, state.ctime) = (now, now);
        change(state);
    });
    inode.data.forget_map();
}

/// The end of the last sector of a file of `size` bytes.
pub(super) fn covered(core: &Core, size: u64) -> u64 {
    size.next_multiple_of(u64::from(sector(core)))
}

pub(super) fn sector(core: &Core) -> u32 {
    core.store.sizes().sector
}

/// Drops the layers of `range`, whole sectors. Returns the space of extents that are in no item.
pub(super) fn forget_layers(core: &Core, layers: &mut DataLayers, range: Range<u64>) -> Vec<DataExtent> {
    if let Some(dirty) = &mut layers.dirty {
        dirty.discard(range.clone());
    }
    let sizes = core.store.sizes();
    pending_extents::cut(&mut layers.pending, range, (sizes.sector, sizes.csum))
}
