//! Lists data and holes of a file: `SEEK_DATA`, `SEEK_HOLE`, and the list of its extents. Called by `vfs_impl::data`.

use std::sync::Arc;

use vfs::file_system::{Extent, ExtentKind};

use super::read::look_up;
use crate::error::{CallerError, Result};
use crate::extents::{FileExtent, Kind, Stretch};
use crate::inode::{Core, Inode};
use crate::writeback;

/// Extents that are listed at most: a file with more is listed in parts by its caller.
pub(crate) const EXTENTS_LISTED_MAX: usize = 1 << 20;

/// The public view of an item.
fn shown(item: &FileExtent) -> Extent {
    let first = if item.is_compressed() { item.disk } else { item.disk_at(item.start) };
    Extent {
        offset: item.start,
        len: item.len,
        kind: match item.kind {
            Kind::Inline => ExtentKind::Inline,
            Kind::Regular => ExtentKind::Data,
            Kind::Prealloc => ExtentKind::Preallocated,
        },
        logical: (item.kind != Kind::Inline).then_some(first.0),
        disk_len: item.disk_len,
        compression: match item.compression {
            0 => None,
            1 => Some("zlib"),
            2 => Some("lzo"),
            3 => Some("zstd"),
            _ => Some("unknown"),
        },
    }
}

/// The extents from `offset` on, at most [`EXTENTS_LISTED_MAX`], in file order; dirty data is
/// written first.
///
/// # Errors
/// Those of flushing; damage and I/O.
pub(crate) fn extents(core: &Core, inode: &Arc<Inode>, offset: u64) -> Result<Vec<Extent>> {
    writeback::flush_inode(core, inode)?;
    let _layers = inode.data.inner.read();
    let end = u64::MAX >> 1;
    let mut list = Vec::new();
    let mut at = offset;
    while at < end && list.len() < EXTENTS_LISTED_MAX {
        let (stretch, next) = look_up(core, inode, at..end)?;
        if let Stretch::Item(item) = stretch
            && !item.is_hole()
        {
            list.push(shown(&item));
        }
        at = next.max(at + 1);
    }
    Ok(list)
}

/// The first byte of data at or behind `offset`. Preallocated space counts as a hole.
///
/// # Errors
/// `NoSuchOffset` when there is none; as [`extents`].
pub(crate) fn seek_data(core: &Core, inode: &Arc<Inode>, offset: u64) -> Result<u64> {
    let size = seek(core, inode, offset, true)?;
    size.ok_or_else(|| CallerError::NoSuchOffset.into())
}

/// The first byte of a hole at or behind `offset`; the end of the file counts as one.
///
/// # Errors
/// `NoSuchOffset` when `offset` is beyond the end; as [`extents`].
pub(crate) fn seek_hole(core: &Core, inode: &Arc<Inode>, offset: u64) -> Result<u64> {
    let hole = seek(core, inode, offset, false)?;
    Ok(hole.unwrap_or_else(|| inode.state().size))
}

fn seek(core: &Core, inode: &Arc<Inode>, offset: u64, wants_data: bool) -> Result<Option<u64>> {
    writeback::flush_inode(core, inode)?;
    let _layers = inode.data.inner.read();
    let size = inode.state().size;
    if offset >= size {
        return Err(CallerError::NoSuchOffset.into());
    }
    let mut at = offset;
    while at < size {
        let (stretch, next) = look_up(core, inode, at..size)?;
        let is_data = matches!(stretch, Stretch::Item(item) if !item.is_zeros());
        if is_data == wants_data {
            return Ok(Some(at));
        }
        at = next.max(at + 1);
    }
    Ok(None)
}
