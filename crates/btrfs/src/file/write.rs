//! Writes bytes of files: small writes into pages, large ones straight to disk. Called by `vfs_impl/data`, and by other
//! modules here for the bytes they change.

#![expect(
    clippy::indexing_slicing,
    reason = "ranges are cut to the page, or the data, that they are taken from; a panic is our own bug"
)]

use std::ops::Range;
use std::sync::Arc;

use btrfs_disk::Logical;
use btrfs_disk::convert::{to_u64, to_usize, usize_from};
use btrfs_store::{DataExtent, Hint, Need, Reservation};
use vfs::PageCache;

use super::page_preparation::PreparedPages;
use super::read::read_layers;
use crate::error::{CallerError, Error, Result};
use crate::extents::FILE_BYTES_MAX;
use crate::inode::{Change, Core, DataLayers, Inode, InodeFlags, Pending, Receipt, position};
use crate::writeback::{self, DirectWrite, need_for, pending_extents};

/// Aligned writes of at least this length go straight to disk.
const DIRECT_BYTES_MIN: u64 = 64 << 10;
/// Bytes that one direct write takes at a time.
const DIRECT_BYTES_MAX: u64 = 16 << 20;
/// With up to this many dirty bytes at the end of a file, a large write behind them goes to pages, too.
const COLLECTED_BYTES_MAX: u64 = 8 << 20;
/// A write of at least this many bytes has probably not been split by the caller.
const WHOLE_BYTES_MIN: u64 = 1 << 20;
/// Bytes that are copied into pages under one lock.
const CACHED_BYTES_MAX: u64 = 256 << 10;
/// From this many dirty pages on, larger pieces of space are reserved than one write needs.
const AHEAD_PAGES_MIN: usize = 16;
/// The larger piece, in bytes and in runs.
const AHEAD: (u64, u64) = (1 << 20, 64);

/// Writes `buf` at `offset`, and returns how much of it: all, unless the rest failed. The file grows where that is
/// needed.
///
/// # Errors
/// `ReadOnly`, `NotPermitted` (immutable, or append-only and not at the end), `TooLarge`,
/// `NoSpace`; damage and I/O errors of reads and flushes before the write. Either nothing was written, or all of it was
/// and the flush after it failed.
pub(crate) fn write_some(core: &Core, inode: &Arc<Inode>, offset: u64, buf: &[u8]) -> Result<usize> {
    inode.check_permits(Change::WriteAt(offset))?;
    match write_until(core, inode, offset, buf) {
        (count, Err(_)) if (1..buf.len()).contains(&count) => Ok(count),
        (count, result) => result.map(|()| count),
    }
}

/// As [`write_some`], for a caller that needs all of it written.
///
/// # Errors
/// As [`write_some`]. Bytes before the failure may have been written.
pub(crate) fn write_at(core: &Core, inode: &Arc<Inode>, offset: u64, buf: &[u8]) -> Result<()> {
    inode.check_permits(Change::WriteAt(offset))?;
    write_back(core, inode, offset, buf)
}

/// As [`write_at`], for bytes that were admitted before: the present flags of the file do not matter.
///
/// # Errors
/// As [`write_at`], without `NotPermitted`.
pub(crate) fn write_back(core: &Core, inode: &Arc<Inode>, offset: u64, buf: &[u8]) -> Result<()> {
    write_until(core, inode, offset, buf).1
}

/// Writes until an error; returns how many bytes were written before, and the error.
fn write_until(core: &Core, inode: &Arc<Inode>, offset: u64, buf: &[u8]) -> (usize, Result<()>) {
    let end = offset.checked_add(to_u64(buf.len())).filter(|end| *end <= FILE_BYTES_MAX);
    let permitted = inode.check_writable().and_then(|()| end.map(drop).ok_or(CallerError::TooLarge.into()));
    if permitted.is_err() {
        return (0, permitted);
    }
    // Data that a full host did not take waits in memory: no more is accepted before that is written.
    if core.data.budget.is_exceeded()
        && let Err(error) = core.with_room(|| writeback::relieve(core, inode))
    {
        return (0, Err(error));
    }
    let mut done = 0;
    while done < buf.len() {
        match write_next(core, inode, offset + to_u64(done), &buf[done..]) {
            Ok(count) => done += count,
            Err(error) => return (done, Err(error)),
        }
    }
    (done, core.with_room(|| writeback::relieve(core, inode)))
}

/// Writes the first part of `rest`, straight to disk or into pages; returns its length.
fn write_next(core: &Core, inode: &Arc<Inode>, at: u64, rest: &[u8]) -> Result<usize> {
    let direct = direct_len(core, inode, at, to_u64(rest.len()))?;
    let len = match direct {
        0 => cached_len(core, inode, at, to_u64(rest.len())),
        len => len,
    };
    let (now, _) = rest.split_at(to_usize(len));
    match direct {
        0 => write_cached(core, inode, at, now)?,
        _ => core.with_room(|| write_direct(core, inode, at, now))?,
    }
    Ok(now.len())
}

/// How much of a write at `at` goes straight to disk, possibly 0. Only the end of the file may be a partial sector; it
/// is padded.
///
/// # Errors
/// Those of the flush that has to come first.
fn direct_len(core: &Core, inode: &Arc<Inode>, at: u64, len: u64) -> Result<u64> {
    let sector = u64::from(core.store.sizes().sector);
    let (flags, size) = {
        let state = inode.state();
        (state.flags, state.size)
    };
    // Nothing but preallocated extents is beyond the end.
    let may_be_in_place = flags.contains(InodeFlags::PREALLOC) || (flags.contains(InodeFlags::NODATACOW) && at < size);
    // Compressible data is collected first: one extent takes more than a single write has.
    if may_be_in_place || core.may_compress(flags) || !at.is_multiple_of(sector) || len < DIRECT_BYTES_MIN {
        return Ok(0);
    }
    match waiting_before(inode, at, size) {
        // After a small write more may follow, and other files may be written beside it.
        0 if at == size && at < COLLECTED_BYTES_MAX && len < WHOLE_BYTES_MIN => return Ok(0),
        0 => {}
        // Flushed together, they become one extent.
        waiting if waiting < COLLECTED_BYTES_MAX => return Ok(0),
        _ => writeback::flush_inode(core, inode)?,
    }
    Ok(match len {
        len if len > DIRECT_BYTES_MAX => DIRECT_BYTES_MAX,
        len if at.saturating_add(len) >= size => len,
        len => len - len % sector,
    })
}

/// Dirty bytes of a file of `size`, if all of them are in front of its end, and the end is at `at`.
fn waiting_before(inode: &Inode, at: u64, size: u64) -> u64 {
    if at == 0 || at != size {
        return 0;
    }
    let layers = inode.data.inner.read();
    let dirty = layers.dirty.as_ref().filter(|dirty| dirty.page(at.saturating_sub(dirty.page_bytes())).is_some());
    dirty.map_or(0, |dirty| to_u64(dirty.page_count()) * dirty.page_bytes())
}

/// How much of a write at `at` goes into pages: up to where the rest can go straight to disk. A file that grows by
/// parts of sectors is collected, or each of its writes would leave a sector elsewhere on disk.
fn cached_len(core: &Core, inode: &Inode, at: u64, len: u64) -> u64 {
    let sector = u64::from(core.store.sizes().sector);
    let to_boundary = at.next_multiple_of(sector) - at;
    match to_boundary {
        1.. if len.saturating_sub(to_boundary) >= DIRECT_BYTES_MIN && at < inode.state().size => to_boundary,
        _ => len.min(CACHED_BYTES_MAX),
    }
}

/// The locks that a caller holds while it reserves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    Nothing,
    /// The `editing` lock of one or two inodes: other threads may be waiting for it.
    Editing,
}

/// Reserves; where there is no room, flushes dirty data (whose reservations are larger than its needs) and tries again.
///
/// # Errors
/// `NoSpace`, and those of flushing.
pub(super) fn reserve(core: &Core, need: Need, held: Held) -> Result<Reservation> {
    match core.store.reserve_patiently(need).map_err(Error::from) {
        Err(Error::NoSpace(_)) => {
            flush(core, held)?;
            Ok(core.store.reserve(need)?)
        }
        other => other,
    }
}

/// As [`reserve`], for data of `inode`: its subvolume's quotas are charged, until the reservation is dropped.
///
/// # Errors
/// As [`reserve`]; `QuotaExceeded`.
pub(super) fn reserve_for(core: &Core, inode: &Inode, need: Need, held: Held) -> Result<Reservation> {
    let reservation = reserve(core, need, held)?;
    let charge = || core.store.charge_quota(inode.tree_id(), need.data, &reservation);
    core.within_quotas(charge, || flush(core, held))?;
    Ok(reservation)
}

fn flush(core: &Core, held: Held) -> Result<()> {
    match held {
        Held::Nothing => writeback::flush_all(core),
        Held::Editing => writeback::flush_idle(core),
    }
}

fn write_direct(core: &Core, inode: &Arc<Inode>, at: u64, data: &[u8]) -> Result<()> {
    let sector = u64::from(core.store.sizes().sector);
    let end = at + to_u64(data.len());
    let padded_end = end.next_multiple_of(sector);
    let need = direct_need(&inode.data.inner.read(), padded_end - at);
    let mut receipt = Receipt::default();
    receipt.add(need, reserve_for(core, inode, need, Held::Nothing)?);
    let wants_csums = !inode.state().flags.contains(InodeFlags::NODATASUM);
    let hint = hint_for(inode, at);
    let request = DirectWrite { at, data, wants_csums, hint };
    let mut written = writeback::write_direct(core, request, &mut receipt)?;
    inode.data.set_grows_at(pending_extents::hint(&written));
    let result = add_pending(core, inode, at..end, &mut written, receipt);
    if let Err(error) = &result {
        for extent in written {
            let extent = DataExtent { at: extent.at, len: extent.len };
            writeback::give_up(core, extent, error);
        }
    }
    let overlapped = result?;
    if let Some(tail) = overlapped {
        return write_cached(core, inode, tail, &data[position(tail, at)..]);
    }
    if pending_extents::is_full(&inode.data.inner.read().pending) {
        writeback::flush_inode(core, inode)?;
    }
    Ok(())
}

/// The place for a large write: after the last one, with room for the next where the file grows.
fn hint_for(inode: &Inode, at: u64) -> Hint {
    let last = pending_extents::hint(&inode.data.inner.read().pending);
    match at >= inode.state().size {
        true => Hint { at: last.or_else(|| inode.data.grows_at()), window: writeback::GROWTH_WINDOW_BYTES },
        false => Hint { at: last, window: 0 },
    }
}

/// Adds extents written to disk to the file's pending ones. Returns where the caller has to write on through pages, if
/// the file has grown over the padding meanwhile.
fn add_pending(
    core: &Core,
    inode: &Arc<Inode>,
    range: Range<u64>,
    written: &mut Vec<Pending>,
    receipt: Receipt,
) -> Result<Option<u64>> {
    let sector = u64::from(core.store.sizes().sector);
    let padded_end = range.end.next_multiple_of(sector);
    let mut layers = loop {
        let layers = inode.data.inner.write();
        if is_tail_needed(core, inode, &layers, range.start) {
            drop(layers);
            bring_tail(core, inode, Held::Nothing)?;
            continue;
        }
        let pages = layers.flight.as_ref().and_then(|flight| flight.pages.as_ref());
        let in_flight = pages.is_some_and(|p| p.pages(range.start..padded_end).next().is_some());
        if !in_flight && pending_extents::is_free(&layers.pending, range.start, padded_end) {
            break layers;
        }
        drop(layers);
        writeback::flush_inode(core, inode)?;
    };
    let grown = padded_end > range.end && inode.state().size > range.end;
    let end = if grown { padded_end - sector } else { range.end };
    if grown && let Some(last) = written.last_mut() {
        last.len = last.len.saturating_sub(sector);
        last.csums.truncate(last.csums.len().saturating_sub(core.store.sizes().csum));
        let unused = Logical(last.at.0.saturating_add(last.len));
        core.store.free_unused(DataExtent { at: unused, len: sector });
        written.retain(|pending| pending.len > 0);
    }
    if let Some(dirty) = &mut layers.dirty {
        dirty.discard(range.start..end);
    }
    inode.data.note_moved();
    for extent in written.drain(..) {
        let may_be_one = |at, len| writeback::is_in_one_group(core, at, len);
        pending_extents::push(&mut layers.pending, extent, may_be_one);
    }
    layers.receipt.merge(receipt);
    note_written(core, inode, end);
    Ok(grown.then_some(end))
}

/// Updates size and times after a write up to `end`. Called under the inode's `inner` lock.
fn note_written(core: &Core, inode: &Arc<Inode>, end: u64) {
    let now = core.now();
    inode.change_in_memory(|state| {
        state.size = state.size.max(end);
        if !state.keeps_times {
            (state.mtime, state.ctime) = (now, now);
        }
    });
    core.data.list(inode);
}

fn write_cached(core: &Core, inode: &Arc<Inode>, at: u64, data: &[u8]) -> Result<()> {
    let end = at + to_u64(data.len());
    let mut prepared = PreparedPages::of(core, at, data);
    loop {
        let mut layers = inode.data.inner.write();
        if is_tail_needed(core, inode, &layers, at) {
            drop(layers);
            bring_tail(core, inode, Held::Nothing)?;
            continue;
        }
        if let Some(page_start) = prepared.missing_page(core, inode, &layers, at..end) {
            drop(layers);
            prepared.read(core, inode, page_start)?;
            continue;
        }
        let Some(missing) = missing_space(core, &layers, at..end) else {
            copy_in(core, inode, &mut layers, at, data, &mut prepared)?;
            note_written(core, inode, end);
            return Ok(());
        };
        let is_busy = layers.dirty.as_ref().is_some_and(|d| d.page_count() >= AHEAD_PAGES_MIN);
        drop(layers);
        match reserve_missing(core, inode, missing, is_busy, Held::Nothing) {
            Err(error) if is_short(&error) => promise_items(core, inode, missing, at..end, error)?,
            other => other?,
        }
    }
}

/// Adds `missing` to the file's reservation, and more where it is being written to a lot.
pub(super) fn reserve_missing(core: &Core, inode: &Inode, missing: Need, is_busy: bool, held: Held) -> Result<()> {
    if is_busy {
        let more = need_for(AHEAD.1, AHEAD.0);
        let need = Need { items: missing.items.saturating_add(more.items), data: missing.data + more.data };
        if let Ok(reservation) = core.store.reserve_patiently(need)
            && core.store.try_charge_quota(inode.tree_id(), need.data, &reservation)
        {
            inode.data.inner.write().receipt.add(need, reservation);
            return Ok(());
        }
    }
    let reservation = reserve_for(core, inode, missing, held)?;
    inode.data.inner.write().receipt.add(missing, reservation);
    Ok(())
}

/// True when the volume, or a quota, has no room.
fn is_short(error: &Error) -> bool {
    matches!(error, Error::NoSpace(_)) || error.caller_error() == Some(CallerError::QuotaExceeded)
}

/// On a full volume: preallocated space, and space that is overwritten in place, need no reservation of data.
fn promise_items(core: &Core, inode: &Inode, missing: Need, range: Range<u64>, short: Error) -> Result<()> {
    let sector = u64::from(core.store.sizes().sector);
    let sectors = range.start - range.start % sector..range.end.next_multiple_of(sector);
    if !writeback::may_write_in_place(core, inode, sectors)? {
        return Err(short);
    }
    let items = Need { data: 0, ..missing };
    let reservation = reserve(core, items, Held::Nothing)?;
    inode.data.inner.write().receipt.add(missing, reservation);
    Ok(())
}

/// The space to reserve before the pages of `range` may become dirty.
pub(super) fn missing_space(core: &Core, layers: &DataLayers, range: Range<u64>) -> Option<Need> {
    let sector = u64::from(core.store.sizes().sector);
    let first = range.start - range.start % sector;
    let touched = range.end.next_multiple_of(sector) - first;
    let (mut runs, mut held, mut new) = (1, 0, touched);
    if let Some(dirty) = &layers.dirty {
        let present = to_u64(dirty.pages(first..range.end).count()) * sector;
        new = touched.saturating_sub(present);
        runs += to_u64(dirty.run_count());
        held = to_u64(dirty.page_count()) * sector;
    }
    if new == 0 {
        return None;
    }
    let pending_bytes = pending_extents::total_bytes(&layers.pending);
    runs += to_u64(layers.pending.len());
    writeback::missing(need_for(runs, held + new + pending_bytes), layers.receipt.total())
}

/// The space to reserve for `len` more bytes on disk: all the data, and the items that the present reservation does not
/// cover.
fn direct_need(layers: &DataLayers, len: u64) -> Need {
    let dirty_runs = layers.dirty.as_ref().map_or(0, PageCache::run_count);
    let runs = to_u64(layers.pending.len() + dirty_runs + 1);
    let wanted = need_for(runs, pending_extents::total_bytes(&layers.pending) + len);
    let items = wanted.items.saturating_sub(layers.receipt.total().items);
    Need { items, data: len }
}

fn copy_in(
    core: &Core,
    inode: &Inode,
    layers: &mut DataLayers,
    at: u64,
    data: &[u8],
    prepared: &mut PreparedPages,
) -> Result<()> {
    let sector = u64::from(core.store.sizes().sector);
    let end = at + to_u64(data.len());
    let mut page_start = at - at % sector;
    while page_start < end {
        let from = at.max(page_start);
        let to = end.min(page_start + sector);
        let bytes = &data[position(from, at)..position(to, at)];
        if to - from == sector {
            let page = prepared.take_whole().unwrap_or_else(|| bytes.into());
            dirty_of(core, layers).put(page_start, page);
        } else {
            match prepared.take(inode, layers, page_start) {
                Some(page) => dirty_of(core, layers).put(page_start, page),
                None => bring_page(core, inode, layers, page_start)?,
            }
            if let Some(page) = dirty_of(core, layers).page_mut(page_start) {
                page[position(from, page_start)..position(to, page_start)].copy_from_slice(bytes);
            }
        }
        page_start += sector;
    }
    Ok(())
}

/// Makes the page at `page_start` dirty, unchanged; bytes beyond the end of the file are zeros.
///
/// # Errors
/// Those of reading it.
pub(super) fn bring_page(core: &Core, inode: &Inode, layers: &mut DataLayers, page_start: u64) -> Result<()> {
    if layers.dirty.as_ref().is_some_and(|dirty| dirty.page(page_start).is_some()) {
        return Ok(());
    }
    let sector = usize_from(core.store.sizes().sector);
    let mut page = vec![0; sector].into_boxed_slice();
    let inside = to_usize(inode.state().size.saturating_sub(page_start)).min(sector);
    read_layers(core, inode, layers, page_start, &mut page[..inside])?;
    dirty_of(core, layers).put(page_start, page);
    Ok(())
}

pub(super) fn dirty_of<'a>(core: &Core, layers: &'a mut DataLayers) -> &'a mut PageCache {
    layers.dirty.get_or_insert_with(|| PageCache::new(core.store.sizes().sector, Arc::clone(&core.data.budget)))
}

/// True when a file that is to get bytes from `start` on may have an inline extent, which has to
/// become dirty first: it can't stand beside other extents.
pub(super) fn is_tail_needed(core: &Core, inode: &Inode, layers: &DataLayers, start: u64) -> bool {
    let sector = u64::from(core.store.sizes().sector);
    start >= sector
        && (1..sector).contains(&inode.state().size)
        && layers.dirty.as_ref().is_none_or(|dirty| dirty.page(0).is_none())
}

/// Makes the first page dirty, with the space for it.
///
/// # Errors
/// `NoSpace`, and those of reading it.
pub(super) fn bring_tail(core: &Core, inode: &Arc<Inode>, held: Held) -> Result<()> {
    let sector = u64::from(core.store.sizes().sector);
    loop {
        let mut layers = inode.data.inner.write();
        match missing_space(core, &layers, 0..sector) {
            None => {
                bring_page(core, inode, &mut layers, 0)?;
                core.data.list(inode);
                return Ok(());
            }
            Some(missing) => {
                drop(layers);
                reserve_missing(core, inode, missing, false, held)?;
            }
        }
    }
}
