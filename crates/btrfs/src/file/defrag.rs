//! Defragments files: extents that lie apart become one, and uncompressed ones can become compressed.
//!
//! Contents to move become dirty unchanged, window by window, and are written back like any dirty data: new space, new
//! items, and the old extents dropped in the same transaction. So a crash leaves each window in its old or its new
//! layout, and concurrent writes to the file win. Called by `vfs_impl/data` and by the defragmentation ioctl.

use std::ops::Range;
use std::sync::Arc;

use btrfs_disk::convert::{to_u64, to_usize, usize_from};

use super::read::{look_up, read_at};
use super::write::{Held, dirty_of, missing_space, reserve_missing};
use crate::error::Result;
use crate::extents::{FileExtent, Kind, Stretch};
use crate::inode::{Change, Compression, Core, Inode, InodeFlags, keeps_plain, position, slice_mut};
use crate::writeback;

/// Bytes that are moved at a time.
const WINDOW_BYTES: u64 = 32 << 20;
/// Bytes moved at a time with compression: memory holds them plain and compressed.
const COMPRESSED_WINDOW_BYTES: u64 = 8 << 20;
/// Attempts at a window that others change meanwhile.
const TRIES_MAX: u32 = 4;

/// How contents are to be laid out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    /// Compresses extents not compressed so, where that makes them smaller. Without this, compressed extents stay.
    pub(crate) compression: Option<Compression>,
    /// Extents from this length on stay where they are, in bytes; at most [`WINDOW_BYTES`] count.
    pub(crate) extent_bytes: u64,
}

/// Lays out a range of a file anew, in whole sectors; returns how many bytes were moved. Files that are overwritten in
/// place stay as they are: their writers may rely on not needing more space.
///
/// # Errors
/// `ReadOnly`, `NotPermitted` (immutable), `NoSpace`; damage and I/O. Windows before the failure are done, the others
/// are unchanged.
pub(crate) fn defragment(core: &Core, inode: &Arc<Inode>, range: Range<u64>, layout: Layout) -> Result<u64> {
    inode.check_writable()?;
    inode.check_permits(Change::Other)?;
    let flags = inode.state().flags;
    if flags.contains(InodeFlags::NODATACOW) {
        return Ok(0);
    }
    let layout = Layout {
        compression: layout.compression.filter(|_| !keeps_plain(flags)),
        extent_bytes: layout.extent_bytes.min(WINDOW_BYTES),
    };
    // Pages are whole sectors: an unaligned start would shift their contents.
    let sector = u64::from(core.store.sizes().sector);
    let start = range.start - range.start % sector;
    let range = start..range.end.checked_next_multiple_of(sector).unwrap_or(u64::MAX);
    writeback::flush_inode(core, inode)?;
    let moved = move_windows(core, inode, range, layout);
    // If others truncated the pages to be flushed, no flush has taken the setting.
    inode.data.inner.write().compression = None;
    moved
}

fn move_windows(core: &Core, inode: &Arc<Inode>, range: Range<u64>, layout: Layout) -> Result<u64> {
    let mut moved = 0_u64;
    let mut at = range.start;
    while let Some(window) = next_window(core, inode, at..range.end, layout)? {
        at = window.end;
        if make_dirty(core, inode, window.clone(), layout.compression)? {
            writeback::flush_inode(core, inode)?;
            moved = moved.saturating_add(window.end.saturating_sub(window.start));
        }
        writeback::relieve(core, inode)?;
    }
    Ok(moved)
}

/// Adjacent extents of a file that may move, and whether that is worth it.
struct Group {
    range: Range<u64>,
    last: FileExtent,
    pays: bool,
}

/// The first part of `range` that is worth moving, in whole extents as far as a window has room for them.
fn next_window(core: &Core, inode: &Inode, range: Range<u64>, layout: Layout) -> Result<Option<Range<u64>>> {
    let size = inode.state().size;
    let end = range.end.min(size.next_multiple_of(u64::from(core.store.sizes().sector)));
    let bytes_max = if layout.compression.is_some() { COMPRESSED_WINDOW_BYTES } else { WINDOW_BYTES };
    let mut group: Option<Group> = None;
    let mut at = range.start;
    while at < end {
        let (stretch, next) = {
            let _layers = inode.data.inner.read();
            look_up(core, inode, at..end)?
        };
        let next = next.min(end).max(at.saturating_add(1));
        let movable = match stretch {
            Stretch::Item(item) if may_move(&item, layout) => Some(item),
            _ => None,
        };
        match (&mut group, movable) {
            (Some(found), Some(item)) if next.saturating_sub(found.range.start) <= bytes_max => {
                found.pays |= found.last.disk_at(found.last.end()) != item.disk_at(item.start);
                found.range.end = next;
                found.last = item;
            }
            (Some(found), _) if found.pays => break,
            (_, Some(item)) => {
                let next = next.min(at.saturating_add(bytes_max));
                group = Some(Group { range: at..next, last: item, pays: layout.compression.is_some() });
                at = next;
                continue;
            }
            (_, None) => group = None,
        }
        at = next;
    }
    Ok(group.filter(|found| found.pays).map(|found| found.range))
}

fn may_move(item: &FileExtent, layout: Layout) -> bool {
    if item.kind != Kind::Regular || item.is_hole() {
        return false;
    }
    match layout.compression {
        Some(wanted) => item.compression != wanted.kind.to_raw(),
        None => !item.is_compressed() && item.len < layout.extent_bytes,
    }
}

/// Makes the pages of `range` dirty, unchanged; false where others change them all the time.
fn make_dirty(core: &Core, inode: &Arc<Inode>, range: Range<u64>, compression: Option<Compression>) -> Result<bool> {
    let page_bytes = u64::from(core.store.sizes().sector);
    let mut buffer = vec![0; to_usize(range.end.saturating_sub(range.start))];
    debug_assert!(range.start.is_multiple_of(page_bytes), "pages are made of whole sectors: {range:?}");
    for _ in 0..TRIES_MAX {
        let version = inode.data.version_now();
        let known = read_at(core, inode, range.start, &mut buffer)?;
        let end = range.start.saturating_add(to_u64(known)).next_multiple_of(page_bytes);
        slice_mut(&mut buffer, range.start, range.start.saturating_add(to_u64(known))..end).fill(0);
        loop {
            let mut layers = inode.data.inner.write();
            if inode.data.version() != version || known == 0 {
                break;
            }
            if let Some(missing) = missing_space(core, &layers, range.start..end) {
                drop(layers);
                reserve_missing(core, inode, missing, false, Held::Nothing)?;
                continue;
            }
            for start in (range.start..end).step_by(usize_from(core.store.sizes().sector)) {
                let dirty = dirty_of(core, &mut layers);
                let from = position(start, range.start);
                let page = buffer.get(from..from + to_usize(page_bytes));
                if let (None, Some(page)) = (dirty.page(start), page) {
                    dirty.put(start, page.into());
                }
            }
            layers.compression = compression;
            core.data.list(inode);
            return Ok(true);
        }
    }
    Ok(false)
}
