//! `fallocate`: space reserved on disk, holes, zeros.

use std::ops::Range;
use std::sync::Arc;

use btrfs_store::DataExtent;

use super::read::look_up;
use super::truncate::{covered, discard_pages, drop_range, grow, note_edit, sector};
use super::write::{Held, bring_tail, is_tail_needed, reserve, write_back};
use crate::error::{CallerError, Result};
use crate::extents::{FILE_BYTES_MAX, FileExtent, Kind, NewExtent, Stretch, Target, replace};
use crate::inode::{Change, Core, Inode, InodeFlags, Receipt};
use crate::writeback::{self, EXTENT_BYTES_MAX, need_for};

/// What `allocate` does with a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllocateMode {
    /// Reserves space; the file grows when the range ends behind its end.
    Allocate,
    /// Reserves space; the size stays.
    KeepSize,
    /// Makes a hole; the size stays.
    PunchHole,
    /// Makes the range zeros that have space on disk; the file grows as with `Allocate`.
    ZeroRange,
}

/// Reserves space for a range of a file, or makes it a hole or zeros.
///
/// # Errors
/// `InvalidArgument` for an empty range, `TooLarge`, `ReadOnly`, `NotPermitted`, `NoSpace`; damage
/// and I/O.
pub(crate) fn allocate(
    core: &Core,
    inode: &Arc<Inode>,
    mode: AllocateMode,
    offset: u64,
    len: u64,
) -> Result<()> {
    inode.check_writable()?;
    inode.check_permits(match mode {
        AllocateMode::Allocate | AllocateMode::KeepSize => Change::Append,
        AllocateMode::PunchHole | AllocateMode::ZeroRange => Change::Other,
    })?;
    if len == 0 {
        return Err(CallerError::InvalidArgument.into());
    }
    let end = offset.checked_add(len).filter(|end| *end <= FILE_BYTES_MAX);
    let end = end.ok_or(CallerError::TooLarge)?;
    match mode {
        AllocateMode::Allocate => {
            reserve_space(core, inode, offset..end)?;
            grow_to(core, inode, end)
        }
        AllocateMode::KeepSize => reserve_space(core, inode, offset..end),
        AllocateMode::PunchHole => clear(core, inode, offset..end),
        AllocateMode::ZeroRange => {
            clear(core, inode, offset..end)?;
            reserve_space(core, inode, offset..end)?;
            grow_to(core, inode, end)
        }
    }
}

fn grow_to(core: &Core, inode: &Arc<Inode>, size: u64) -> Result<()> {
    let _editing = inode.data.editing.lock();
    if size > inode.state().size {
        grow(core, inode, size)
    } else {
        Ok(())
    }
}

/// Puts preallocated extents wherever the sectors of `range` have no space on disk.
fn reserve_space(core: &Core, inode: &Arc<Inode>, range: Range<u64>) -> Result<()> {
    let sectors = range.start - range.start % u64::from(sector(core))..covered(core, range.end);
    let _editing = inode.data.editing.lock();
    // An inline extent cannot stand beside others: with this flag the flush does not make one.
    inode.change_in_memory(|state| state.flags |= InodeFlags::PREALLOC);
    if is_tail_needed(core, inode, &inode.data.inner.read(), sectors.end) {
        bring_tail(core, inode, Held::Editing)?;
    }
    writeback::flush_held(core, inode)?;
    let mut at = sectors.start;
    while at < sectors.end {
        let (stretch, end) = {
            let _layers = inode.data.inner.read();
            look_up(core, inode, at..sectors.end)?
        };
        let end = end.min(sectors.end);
        if is_without_space(&stretch) {
            let part = at..end.min(at + EXTENT_BYTES_MAX);
            at = part.start + preallocate(core, inode, part)?;
        } else {
            at = end;
        }
    }
    Ok(())
}

fn is_without_space(stretch: &Stretch) -> bool {
    match stretch {
        Stretch::Gap => true,
        Stretch::Item(item) => item.is_hole(),
    }
}

/// Gives the start of `range`, a hole, one preallocated extent; returns its length.
fn preallocate(core: &Core, inode: &Inode, range: Range<u64>) -> Result<u64> {
    let need = need_for(1, range.end - range.start);
    let mut receipt = Receipt::default();
    receipt.add(need, reserve(core, need, Held::Editing)?);
    let extent = receipt.alloc(&core.store, need.data, None)?;
    let result = insert_prealloc(core, inode, range.start, extent, receipt);
    if result.is_err() {
        core.store.free_unused(extent);
    }
    result.map(|()| extent.len)
}

fn insert_prealloc(
    core: &Core,
    inode: &Inode,
    start: u64,
    extent: DataExtent,
    receipt: Receipt,
) -> Result<()> {
    let txn = receipt.begin(&core.store)?;
    let _layers = inode.data.inner.write();
    let target = Target {
        txn: &txn,
        tree: &inode.root.tree,
        ino: inode.ino(),
        sector: sector(core),
    };
    let item = FileExtent {
        generation: txn.generation(),
        ..FileExtent::whole(start, Kind::Prealloc, extent.at, extent.len)
    };
    let delta = replace(
        target,
        &[NewExtent {
            extent: item,
            is_fresh: true,
        }],
        &[],
    )?;
    note_edit(core, inode, target, delta, |_| {});
    Ok(())
}

/// Makes `range` read as zeros: whole sectors become holes, parts of sectors are overwritten.
fn clear(core: &Core, inode: &Arc<Inode>, range: Range<u64>) -> Result<()> {
    let unit = u64::from(sector(core));
    let whole = range.start.next_multiple_of(unit)..range.end - range.end % unit;
    if whole.start > whole.end {
        return zero_part(core, inode, range);
    }
    zero_part(core, inode, range.start..whole.start)?;
    zero_part(core, inode, whole.end..range.end)?;
    // The end of the file counts as a whole sector, whose rest is zeros anyway.
    let size = inode.state().size;
    let end = if (whole.end..=range.end).contains(&size) {
        covered(core, size)
    } else {
        whole.end
    };
    if whole.start >= end {
        return Ok(());
    }
    let _editing = inode.data.editing.lock();
    loop {
        writeback::flush_held(core, inode)?;
        let mut layers = inode.data.inner.write();
        // Large writes may have added extents since the flush.
        if layers.pending.is_empty() {
            discard_pages(&mut layers, whole.start..end);
            break;
        }
    }
    let now = core.now();
    drop_range(core, inode, whole.start..end, &|state, _| {
        (state.mtime, state.ctime) = (now, now);
    })
}

/// Overwrites a part of one sector with zeros, as far as the file reaches.
fn zero_part(core: &Core, inode: &Arc<Inode>, range: Range<u64>) -> Result<()> {
    let end = range.end.min(inode.state().size);
    if range.start >= end {
        return Ok(());
    }
    let is_hole = {
        let layers = inode.data.inner.read();
        layers.is_empty() && is_without_space(&look_up(core, inode, range.start..end)?.0)
    };
    if is_hole {
        return Ok(());
    }
    let zeros = vec![0; crate::inode::position(end, range.start)];
    write_back(core, inode, range.start, &zeros)
}
