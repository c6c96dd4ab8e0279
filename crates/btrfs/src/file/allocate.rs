//! Carries out `fallocate`: reserves space on disk, punches holes, writes zeros. Called by `vfs_impl::data`.

use std::ops::Range;
use std::sync::Arc;

use btrfs_store::{DataExtent, Hint, Need, Reservation};

use super::exchange::{self, Exchange, Old};
use super::read::look_up;
use super::truncate::{Layers, covered, drop_range, grow, note_edit, sector};
use super::write::{Held, bring_tail, is_tail_needed, reserve, reserve_for, write_back};
use crate::error::{CallerError, Result};
use crate::extents::{FILE_BYTES_MAX, FileExtent, Kind, NewExtent, Stretch, Target, replace};
use crate::inode::{Change, Core, Inode, InodeFlags, Receipt};
use crate::writeback::{self, EXTENT_BYTES_MAX, need_for};

/// The effect of `allocate` on a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AllocateMode {
    /// Reserves space; the file grows when the range ends behind its end.
    Allocate,
    /// Reserves space; the size stays.
    KeepSize,
    /// Makes a hole; the size stays.
    PunchHole,
    /// Makes the range zeros that have space on disk; the file grows as with `Allocate`.
    ZeroRange,
    /// Makes the range zeros that have space on disk; the size stays.
    ZeroKeepSize,
}

/// Reserves space for a range of a file, or makes it a hole or zeros.
///
/// # Errors
/// `InvalidArgument` for an empty range, `TooLarge`, `ReadOnly`, `NotPermitted`, `NoSpace`; damage
/// and I/O.
pub(crate) fn allocate(core: &Core, inode: &Arc<Inode>, mode: AllocateMode, offset: u64, len: u64) -> Result<()> {
    inode.check_writable()?;
    inode.check_permits(match mode {
        AllocateMode::Allocate | AllocateMode::KeepSize => Change::Append,
        AllocateMode::PunchHole | AllocateMode::ZeroRange | AllocateMode::ZeroKeepSize => Change::Other,
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
            zero(core, inode, offset..end)?;
            grow_to(core, inode, end)
        }
        AllocateMode::ZeroKeepSize => zero(core, inode, offset..end),
    }
}

fn grow_to(core: &Core, inode: &Arc<Inode>, size: u64) -> Result<()> {
    let _stay = core.data.stay();
    let _editing = inode.data.editing.lock();
    if size > inode.state().size { grow(core, inode, size) } else { Ok(()) }
}

/// Puts preallocated extents wherever the sectors of `range` have no space on disk.
fn reserve_space(core: &Core, inode: &Arc<Inode>, range: Range<u64>) -> Result<()> {
    let sectors = range.start - range.start % u64::from(sector(core))..covered(core, range.end);
    let _stay = core.data.stay();
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
    receipt.add(need, reserve_for(core, inode, need, Held::Editing)?);
    let extent = receipt.alloc(&core.store, need.data, Hint::default())?;
    let result = insert_prealloc(core, inode, range.start, extent, receipt);
    if result.is_err() {
        core.store.free_unused(extent);
    }
    result.map(|()| extent.len)
}

fn insert_prealloc(core: &Core, inode: &Inode, start: u64, extent: DataExtent, receipt: Receipt) -> Result<()> {
    let txn = receipt.begin(&core.store)?;
    let _layers = inode.data.inner.write();
    let target =
        Target { txn: &txn, tree: &inode.root.tree, notes: &inode.root.notes, ino: inode.ino(), sector: sector(core) };
    let item =
        FileExtent { generation: txn.generation(), ..FileExtent::whole(start, Kind::Prealloc, extent.at, extent.len) };
    let delta = replace(target, &[NewExtent { extent: item, is_fresh: true }], &[])?;
    note_edit(core, inode, target, delta, |_| {});
    Ok(())
}

/// Makes `range` read as zeros: whole sectors become holes, parts of sectors are overwritten.
fn clear(core: &Core, inode: &Arc<Inode>, range: Range<u64>) -> Result<()> {
    let whole = whole_sectors(core, inode, &range);
    drop(room_for_ends(core)?);
    zero_ends(core, inode, range, &whole)?;
    if whole.is_empty() {
        return Ok(());
    }
    let _stay = core.data.stay();
    let _editing = inode.data.editing.lock();
    writeback::flush_held(core, inode)?;
    let now = core.now();
    drop_range(core, inode, whole, Layers::Forget, &|state, _| {
        (state.mtime, state.ctime) = (now, now);
    })
}

/// Makes `range` zeros that have space on disk: whole sectors get preallocated extents, parts of sectors are
/// overwritten. Room for all of it is reserved before anything changes, and the parts come last: where a full volume
/// refuses the rest after all, the file is unchanged, which its readers may have cached.
fn zero(core: &Core, inode: &Arc<Inode>, range: Range<u64>) -> Result<()> {
    let whole = whole_sectors(core, inode, &range);
    let mut room = Receipt::default();
    let need = Need { items: 1, data: bytes_to_preallocate(core, inode, whole.clone())? };
    room.add(need, reserve(core, need, Held::Nothing)?);
    drop(room_for_ends(core)?);
    for end in [range.start..whole.start, whole.end..range.end] {
        if !end.is_empty() {
            reserve_space(core, inode, end)?;
        }
    }
    zero_whole(core, inode, &whole, &mut room)?;
    zero_ends(core, inode, range, &whole)
}

/// Replaces the contents of the sectors of `whole` by preallocated extents.
fn zero_whole(core: &Core, inode: &Arc<Inode>, whole: &Range<u64>, room: &mut Receipt) -> Result<()> {
    let _stay = core.data.stay();
    let _editing = inode.data.editing.lock();
    // An inline extent cannot stand beside others: with this flag the flush does not make one.
    inode.change_in_memory(|state| state.flags |= InodeFlags::PREALLOC);
    if is_tail_needed(core, inode, &inode.data.inner.read(), whole.start) {
        bring_tail(core, inode, Held::Editing)?;
    }
    writeback::flush_held(core, inode)?;
    let mut at = whole.start;
    while at < whole.end {
        let part = next_to_preallocate(core, inode, at..whole.end)?;
        at = match part.is_empty() {
            true => part.end,
            false => part.start + zero_sectors(core, inode, part, room)?,
        };
    }
    Ok(())
}

/// Replaces the start of `part` by one preallocated extent, from the rest of `room`; returns its length.
fn zero_sectors(core: &Core, inode: &Arc<Inode>, part: Range<u64>, room: &mut Receipt) -> Result<u64> {
    let need = exchange::need_to_exchange(1);
    let txn = core.store.begin(reserve(core, need, Held::Editing)?)?;
    let wanted = part.end - part.start;
    let extent = match room.alloc(&core.store, wanted, Hint::default()) {
        // A write by another thread replaced a preallocated extent.
        Err(crate::Error::NoSpace(_)) => {
            drop(txn);
            let more = Need { items: 1, data: wanted };
            room.add(more, reserve(core, more, Held::Editing)?);
            return Ok(0);
        }
        extent => extent?,
    };
    let len = extent.len.min(wanted);
    let item =
        FileExtent { generation: txn.generation(), ..FileExtent::whole(part.start, Kind::Prealloc, extent.at, len) };
    let what = Exchange {
        range: part.start..part.start + len,
        items: &[NewExtent { extent: item, is_fresh: true }],
        size: 0,
        flags: InodeFlags::PREALLOC,
        old: Old::Replaced,
    };
    exchange::exchange(core, inode, txn, &what)?;
    Ok(len)
}

/// The first part of `range` without preallocated space, as long as one transaction can replace; an empty range at the
/// end of the preallocated part.
fn next_to_preallocate(core: &Core, inode: &Inode, range: Range<u64>) -> Result<Range<u64>> {
    let range = exchange::first_part(core, inode, range)?;
    let mut at = range.start;
    while at < range.end {
        let (stretch, end) = {
            let _layers = inode.data.inner.read();
            look_up(core, inode, at..range.end)?
        };
        if is_preallocated(&stretch) {
            return Ok(match at == range.start {
                true => end.min(range.end)..end.min(range.end),
                false => range.start..at,
            });
        }
        at = end.min(range.end);
    }
    Ok(range.start..range.end.min(range.start + EXTENT_BYTES_MAX))
}

/// Bytes of `range`, whole sectors, that do not have preallocated space, or that are dirty.
fn bytes_to_preallocate(core: &Core, inode: &Inode, range: Range<u64>) -> Result<u64> {
    let mut bytes = 0;
    let mut at = range.start;
    while at < range.end {
        let layers = inode.data.inner.read();
        let (stretch, end) = look_up(core, inode, at..range.end)?;
        let end = end.min(range.end);
        if !is_preallocated(&stretch) || !layers.is_empty() {
            bytes += end - at;
        }
        at = end;
    }
    Ok(bytes)
}

fn is_preallocated(stretch: &Stretch) -> bool {
    matches!(stretch, Stretch::Item(item) if item.kind == Kind::Prealloc)
}

/// The whole sectors of `range`. The end of the file counts as a whole sector, whose rest is zeros anyway.
fn whole_sectors(core: &Core, inode: &Inode, range: &Range<u64>) -> Range<u64> {
    let unit = u64::from(sector(core));
    let whole = range.start.next_multiple_of(unit)..range.end - range.end % unit;
    if whole.start > whole.end {
        return range.end..range.end;
    }
    let size = inode.state().size;
    match (whole.end..=range.end).contains(&size) {
        true => whole.start..covered(core, size).max(whole.start),
        false => whole,
    }
}

/// A reservation for the two sectors that a range may cover in part, made before anything changes.
fn room_for_ends(core: &Core) -> Result<Reservation> {
    reserve(core, need_for(2, 2 * u64::from(sector(core))), Held::Nothing)
}

/// Overwrites with zeros the parts of `range` in sectors that are not `whole`.
fn zero_ends(core: &Core, inode: &Arc<Inode>, range: Range<u64>, whole: &Range<u64>) -> Result<()> {
    zero_part(core, inode, range.start..whole.start)?;
    zero_part(core, inode, whole.end..range.end)
}

/// Overwrites a part of one sector with zeros, as far as the file reaches.
fn zero_part(core: &Core, inode: &Arc<Inode>, range: Range<u64>) -> Result<()> {
    let end = range.end.min(inode.state().size);
    if range.start >= end {
        return Ok(());
    }
    let is_zero = {
        let layers = inode.data.inner.read();
        let (stretch, _) = look_up(core, inode, range.start..end)?;
        layers.is_empty() && (is_without_space(&stretch) || is_preallocated(&stretch))
    };
    if is_zero {
        return Ok(());
    }
    let zeros = vec![0; crate::inode::position(end, range.start)];
    write_back(core, inode, range.start, &zeros)
}
