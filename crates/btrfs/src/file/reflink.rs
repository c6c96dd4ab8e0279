//! Clones: two files, or two places of one, that share extents.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use super::disk::inline_bytes;
use super::truncate::{covered, discard_pages, drop_range, fill_holes, note_edit, sector};
use super::write::{Held, bring_tail, is_tail_needed, reserve, write_back};
use crate::error::{CallerError, Result};
use crate::extents::{
    ExtentMap, FILE_BYTES_MAX, FileExtent, Kind, NewExtent, SCAN_ITEMS_MAX, Target, replace,
};
use crate::inode::{Change, Core, Inode, InodeFlags};
use crate::writeback::{self, need_for};

/// Items that one transaction clones.
const STEP_ITEMS: usize = 64;

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
/// they may be one file when the ranges don't overlap.
///
/// # Errors
/// `InvalidArgument` for offsets that are not aligned, a length that is neither aligned nor up to
/// the end of the source, ranges that overlap or leave the source, or files of which only one has
/// checksums; `TooLarge`, `ReadOnly`, `NoSpace`; damage and I/O.
pub(crate) fn reflink(
    core: &Core,
    source: &Arc<Inode>,
    destination: &Arc<Inode>,
    range: CloneRange,
) -> Result<()> {
    destination.check_writable()?;
    destination.check_permits(Change::Other)?;
    writeback::flush_inode(core, source)?;
    let range = checked(core, source, destination, range)?;
    if range.len == 0 {
        return Ok(());
    }
    let inline = {
        let (first, second) = in_order(source, destination);
        let _editing = first.data.editing.lock();
        let _editing_too = second.map(|inode| inode.data.editing.lock());
        settle(core, source, destination, range)?;
        let inline = share(core, source, destination, range)?;
        if inline.is_none() {
            // The old size would say that the first sector may be inline, and growing would make
            // that sector dirty with the old contents.
            let end = range.destination + range.len;
            destination.change_in_memory(|state| state.size = state.size.max(end));
        }
        inline
    };
    // Only the first sector of a file can be inline: it is copied.
    if let Some(bytes) = inline {
        write_back(core, destination, range.destination, &bytes)?;
    }
    let end = range.destination + range.len;
    let _editing = destination.data.editing.lock();
    if end > destination.state().disk_size {
        super::truncate::grow(core, destination, end)?;
    }
    Ok(())
}

fn checked(
    core: &Core,
    source: &Arc<Inode>,
    destination: &Arc<Inode>,
    range: CloneRange,
) -> Result<CloneRange> {
    let invalid = || CallerError::InvalidArgument.into();
    let unit = u64::from(sector(core));
    let (size, flags) = {
        let state = source.state();
        (state.size, state.flags)
    };
    let len = if range.len == 0 {
        size.saturating_sub(range.source)
    } else {
        range.len
    };
    let source_end = range.source.checked_add(len).ok_or_else(invalid)?;
    let end = range
        .destination
        .checked_add(len)
        .filter(|end| *end <= FILE_BYTES_MAX);
    let end = end.ok_or(CallerError::TooLarge)?;
    let (destination_size, destination_flags) = {
        let state = destination.state();
        (state.size, state.flags)
    };
    let is_aligned = range.source.is_multiple_of(unit) && range.destination.is_multiple_of(unit);
    let is_len_valid = len.is_multiple_of(unit) || (source_end == size && end >= destination_size);
    let overlaps = Arc::ptr_eq(source, destination)
        && range.source < end.next_multiple_of(unit)
        && range.destination < source_end.next_multiple_of(unit);
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

/// Brings both files to a state in which items say everything about the ranges.
fn settle(
    core: &Core,
    source: &Arc<Inode>,
    destination: &Arc<Inode>,
    range: CloneRange,
) -> Result<()> {
    if is_tail_needed(
        core,
        destination,
        &destination.data.inner.read(),
        range.destination,
    ) {
        bring_tail(core, destination, Held::Editing)?;
        let start = range.destination;
        destination.change_in_memory(|state| state.size = state.size.max(start));
    }
    writeback::flush_held(core, source)?;
    loop {
        writeback::flush_held(core, destination)?;
        let mut layers = destination.data.inner.write();
        if layers.pending.is_empty() {
            let end = covered(core, range.destination + range.len);
            discard_pages(&mut layers, range.destination..end);
            return Ok(());
        }
    }
}

/// Replaces the destination's items; returns inline data, which the caller has to write.
fn share(
    core: &Core,
    source: &Arc<Inode>,
    destination: &Arc<Inode>,
    range: CloneRange,
) -> Result<Option<Vec<u8>>> {
    let end = covered(core, range.source + range.len);
    let target_end = covered(core, range.destination + range.len);
    let mut inline = None;
    drop_range(core, destination, range.destination..target_end, &|_, _| {})?;
    let mut at = range.source;
    while at < end {
        let map = {
            let _layers = source.data.inner.read();
            ExtentMap::load(
                &source.root.tree,
                source.ino(),
                at..end,
                STEP_ITEMS,
                sector(core),
            )?
        };
        let known_end = map.known().end.min(end).max(at + u64::from(sector(core)));
        let mut shared = Vec::new();
        for item in map.items() {
            if item.kind == Kind::Inline {
                let mut bytes = inline_bytes(core, source, item)?;
                bytes.truncate(crate::inode::position(range.len, 0));
                inline = Some(bytes);
            } else if !item.is_hole() {
                shared.extend(clone_of(item, at..known_end, range));
            }
        }
        let offset = at - range.source;
        let part = range.destination + offset..range.destination + offset + (known_end - at);
        insert(core, destination, &mut shared, part)?;
        at = known_end;
    }
    Ok(inline)
}

/// The item that makes the destination share the part of `item` within `known`.
fn clone_of(item: &FileExtent, known: Range<u64>, range: CloneRange) -> Option<NewExtent> {
    let part = item.start.max(known.start)..item.end().min(known.end);
    if part.is_empty() {
        return None;
    }
    let start = part.start - range.source + range.destination;
    let extent = FileExtent {
        start,
        ..item.part(part)
    };
    Some(NewExtent {
        extent,
        is_fresh: false,
    })
}

/// Inserts the shared items of one step; `part` is what of the destination is done with it.
fn insert(
    core: &Core,
    inode: &Arc<Inode>,
    shared: &mut [NewExtent],
    part: Range<u64>,
) -> Result<()> {
    debug_assert!(
        shared.len() <= SCAN_ITEMS_MAX,
        "steps are smaller than maps"
    );
    let count = btrfs_disk::convert::to_u64(shared.len());
    let reservation = reserve(core, need_for(count + 1, 0), Held::Editing)?;
    let txn = core.store.begin(reservation)?;
    let layers = inode.data.inner.write();
    let target = Target {
        txn: &txn,
        tree: &inode.root.tree,
        ino: inode.ino(),
        sector: sector(core),
    };
    let delta = replace(target, shared, &[])?;
    let disk_size = inode.state().disk_size;
    fill_holes(
        core,
        target,
        part.start..part.end.min(covered(core, disk_size)),
    )?;
    let has_prealloc = shared.iter().any(|new| new.extent.kind == Kind::Prealloc);
    note_edit(core, inode, target, delta, |state| {
        state.flags.set(
            InodeFlags::PREALLOC,
            has_prealloc || state.flags.contains(InodeFlags::PREALLOC),
        );
    });
    inode.data.settle(layers);
    drop(txn);
    Ok(())
}
