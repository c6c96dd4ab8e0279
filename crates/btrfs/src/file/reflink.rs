//! Clones ranges: files share extents afterwards. Called by `vfs_impl/data` and `copy`.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use btrfs_disk::convert::to_usize;
use vfs::file_system::DEDUPE_BYTES_MAX;

use super::disk::inline_bytes;
use super::exchange::{self, Exchange, Old};
use super::read::read_items;
use super::truncate::{covered, sector};
use super::write::{Held, bring_tail, is_tail_needed, reserve, write_back};
use crate::error::{CallerError, Result};
use crate::extents::{ExtentMap, FILE_BYTES_MAX, FileExtent, Kind, NewExtent};
use crate::inode::{Change, Core, Inode, InodeFlags};
use crate::writeback;

/// Items that one transaction clones.
const STEP_ITEMS: usize = 64;

/// Bytes of each file that are compared at a time.
const COMPARED_BYTES: u64 = 1 << 20;

/// A range of one file that becomes the contents of another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CloneRange {
    /// First byte in the source.
    pub(crate) source: u64,
    /// First byte in the destination.
    pub(crate) destination: u64,
    /// Bytes; 0 for all up to the end of the source.
    pub(crate) len: u64,
}

/// Makes a range of `destination` share the extents of a range of `source`. Both are of one volume;
/// they may be one file when the ranges don't overlap. The destination's old extents are dropped in the transaction
/// that inserts the new ones, part by part.
///
/// # Errors
/// `InvalidArgument` for offsets that are not aligned, a length that is neither aligned nor up to
/// the end of the source, ranges that overlap or leave the source, or files of which only one has
/// checksums; `TooLarge`, `ReadOnly`, `NoSpace`; damage and I/O. Parts before the failure are done,
/// the others are as they were.
pub(crate) fn reflink(core: &Core, source: &Arc<Inode>, destination: &Arc<Inode>, range: CloneRange) -> Result<()> {
    reflink_parts(core, source, destination, range).1
}

/// As [`reflink`]; also returns how many bytes are done, from the start of the range.
pub(super) fn reflink_parts(
    core: &Core,
    source: &Arc<Inode>,
    destination: &Arc<Inode>,
    range: CloneRange,
) -> (u64, Result<()>) {
    let mut done = 0;
    let mut run = || {
        destination.check_writable()?;
        destination.check_permits(Change::Other)?;
        writeback::flush_inode(core, source)?;
        let range = checked(core, source, destination, range)?;
        if range.len == 0 {
            return Ok(());
        }
        let inline = {
            let (first, second) = in_order(source, destination);
            let _stay = core.data.stay();
            let _editing = first.data.editing.lock();
            let _editing_too = second.map(|inode| inode.data.editing.lock());
            // The source may have become shorter before the locks were taken.
            let range = checked(core, source, destination, range)?;
            settle(core, source, destination, range)?;
            share(core, source, destination, (range, Old::Replaced), &mut done)?
        };
        // Only the first sector of a file can be inline: it is copied.
        if let Some(bytes) = inline {
            done = 0;
            write_back(core, destination, range.destination, &bytes)?;
            done = range.len;
        }
        Ok(())
    };
    let result = run();
    (done, result)
}

/// As [`reflink`], where both have the same bytes on disk: the destination keeps its contents, and shares the extents.
/// Returns whether that was so and could be done (inline data cannot be shared). Concurrent writes are not lost.
///
/// # Errors
/// As [`reflink`]; `InvalidArgument` where the range is not within the destination, or longer than
/// [`DEDUPE_BYTES_MAX`].
pub(crate) fn share_same(
    core: &Core,
    source: &Arc<Inode>,
    destination: &Arc<Inode>,
    range: CloneRange,
) -> Result<bool> {
    // Sharing does not change contents, so it is allowed in a read-only subvolume, as by the kernel.
    if core.store.is_read_only() {
        return Err(CallerError::ReadOnly.into());
    }
    destination.check_permits(Change::Other)?;
    writeback::flush_inode(core, source)?;
    let (first, second) = in_order(source, destination);
    let _stay = core.data.stay();
    let _editing = first.data.editing.lock();
    let _editing_too = second.map(|inode| inode.data.editing.lock());
    let range = checked(core, source, destination, range)?;
    let size = destination.state().size;
    if range.len > DEDUPE_BYTES_MAX || range.destination.saturating_add(range.len) > size {
        return Err(CallerError::InvalidArgument.into());
    }
    writeback::flush_held(core, source)?;
    writeback::flush_held(core, destination)?;
    if is_inline(core, source)? || is_inline(core, destination)? || !is_same_on_disk(core, source, destination, range)?
    {
        return Ok(false);
    }
    let mut done = 0;
    let inline = share(core, source, destination, (range, Old::Same), &mut done)?;
    debug_assert!(inline.is_none(), "no item of the source holds bytes");
    Ok(true)
}

/// True when the file is stored in its item.
fn is_inline(core: &Core, inode: &Inode) -> Result<bool> {
    let (_, items) = items_of(core, inode, 0..u64::from(sector(core)))?;
    Ok(items.first().is_some_and(|item| item.kind == Kind::Inline))
}

/// Compares the contents on disk: dirty data in memory does not become shared.
fn is_same_on_disk(core: &Core, source: &Inode, destination: &Inode, range: CloneRange) -> Result<bool> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let mut done = 0;
    while done < range.len {
        let len = (range.len - done).min(COMPARED_BYTES);
        for (inode, start, bytes) in [(source, range.source, &mut ours), (destination, range.destination, &mut theirs)]
        {
            bytes.resize(to_usize(len), 0);
            read_items(core, inode, start.saturating_add(done), bytes)?;
        }
        if ours != theirs {
            return Ok(false);
        }
        done += len;
    }
    Ok(true)
}

fn checked(core: &Core, source: &Arc<Inode>, destination: &Arc<Inode>, range: CloneRange) -> Result<CloneRange> {
    let invalid = || CallerError::InvalidArgument.into();
    let unit = u64::from(sector(core));
    let (size, flags) = {
        let state = source.state();
        (state.size, state.flags)
    };
    let len = if range.len == 0 { size.saturating_sub(range.source) } else { range.len };
    let source_end = range.source.checked_add(len).ok_or_else(invalid)?;
    let end = range.destination.checked_add(len).filter(|end| *end <= FILE_BYTES_MAX);
    let end = end.ok_or(CallerError::TooLarge)?;
    let (destination_size, destination_flags) = {
        let state = destination.state();
        (state.size, state.flags)
    };
    let is_aligned = range.source.is_multiple_of(unit) && range.destination.is_multiple_of(unit);
    let is_len_valid = len.is_multiple_of(unit) || (source_end == size && end >= destination_size);
    let overlaps = Arc::ptr_eq(source, destination)
        && range.source < end.next_multiple_of(unit)
        && range.destination < source_end.checked_next_multiple_of(unit).unwrap_or(u64::MAX);
    let differs = (flags ^ destination_flags).contains(InodeFlags::NODATASUM);
    if source_end > size || !is_aligned || !is_len_valid || overlaps || differs {
        return Err(invalid());
    }
    Ok(CloneRange { len, ..range })
}

/// The order in which the `editing` locks of several inodes are taken; an inode occurs once.
fn in_order<'a>(a: &'a Arc<Inode>, b: &'a Arc<Inode>) -> (&'a Arc<Inode>, Option<&'a Arc<Inode>>) {
    match (a.tree_id(), a.ino()).cmp(&(b.tree_id(), b.ino())) {
        Ordering::Less => (a, Some(b)),
        Ordering::Equal => (a, None),
        Ordering::Greater => (b, Some(a)),
    }
}

/// Flushes both files, so that items have the whole ranges, but for concurrent writes to the destination.
fn settle(core: &Core, source: &Arc<Inode>, destination: &Arc<Inode>, range: CloneRange) -> Result<()> {
    let start = range.destination;
    let is_tail_needed = is_tail_needed(core, destination, &destination.data.inner.read(), start);
    if is_tail_needed {
        bring_tail(core, destination, Held::Editing)?;
    }
    writeback::flush_held(core, source)?;
    match is_tail_needed {
        true => writeback::flush_without_inline(core, destination),
        false => writeback::flush_held(core, destination),
    }
}

/// Replaces the destination's items, part by part, and counts finished bytes in `done`; returns inline data, which the
/// caller has to write.
fn share(
    core: &Core,
    source: &Arc<Inode>,
    destination: &Arc<Inode>,
    (range, old): (CloneRange, Old),
    done: &mut u64,
) -> Result<Option<Vec<u8>>> {
    let unit = u64::from(sector(core));
    let end = covered(core, range.source + range.len);
    let mut inline = None;
    let mut at = range.source;
    while at < end {
        let to = at - range.source + range.destination;
        let room = exchange::first_part(core, destination, to..to + (end - at))?;
        let part = at..at + (room.end - room.start);
        let (known, items) = items_of(core, source, part.clone())?;
        if let Some(item) = items.iter().find(|item| item.kind == Kind::Inline) {
            let mut bytes = inline_bytes(core, &source.root.tree, source.ino(), item)?;
            bytes.resize(crate::inode::position(range.len.min(unit), 0), 0);
            inline = Some(bytes);
            at += unit;
            continue;
        }
        let part = part.start..known.end.clamp(at + unit, part.end);
        insert(core, destination, &items, part.clone(), (range, old))?;
        at = part.end;
        *done = (at - range.source).min(range.len);
    }
    Ok(inline)
}

/// The items of a step, from the start of `range` on, and how far they reach.
fn items_of(core: &Core, source: &Inode, range: Range<u64>) -> Result<(Range<u64>, Vec<FileExtent>)> {
    let _layers = source.data.inner.read();
    let (tree, ino) = (&source.root.tree, source.ino());
    let map = ExtentMap::load(tree, ino, range, STEP_ITEMS, sector(core))?;
    Ok((map.known(), map.items().to_vec()))
}

/// The item that makes the destination share the part of `item` within `known`.
fn clone_of(item: &FileExtent, known: Range<u64>, range: CloneRange) -> Option<NewExtent> {
    let part = item.start.max(known.start)..item.end().min(known.end);
    if part.is_empty() {
        return None;
    }
    let start = part.start - range.source + range.destination;
    let extent = FileExtent { start, ..item.part(part) };
    Some(NewExtent { extent, is_fresh: false })
}

/// Replaces the destination's contents in the place of `part` of the source, whose items are `items`.
fn insert(
    core: &Core,
    inode: &Arc<Inode>,
    items: &[FileExtent],
    part: Range<u64>,
    (range, old): (CloneRange, Old),
) -> Result<()> {
    let with_space = items.iter().filter(|item| !item.is_hole());
    let shared: Vec<NewExtent> = with_space.filter_map(|item| clone_of(item, part.clone(), range)).collect();
    let has_prealloc = shared.iter().any(|new| new.extent.kind == Kind::Prealloc);
    let in_destination = |at: u64| at - range.source + range.destination;
    let what = Exchange {
        range: in_destination(part.start)..in_destination(part.end),
        items: &shared,
        size: in_destination(part.end.min(range.source + range.len)),
        flags: match has_prealloc {
            true => InodeFlags::PREALLOC,
            false => InodeFlags::empty(),
        },
        old,
    };
    let need = exchange::need_to_exchange(shared.len());
    let reservation = reserve(core, need, Held::Editing)?;
    let txn = core.store.begin(reservation)?;
    exchange::exchange(core, inode, txn, &what)
}
