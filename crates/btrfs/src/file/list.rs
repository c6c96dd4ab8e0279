//! Where a file has data: `SEEK_DATA`, `SEEK_HOLE`, and the list of its extents.

use std::sync::Arc;

use btrfs_disk::Logical;

use super::read::look_up;
use crate::error::{CallerError, Result};
use crate::extents::{FileExtent, Kind, Stretch};
use crate::inode::{Core, Inode};
use crate::writeback;

/// Extents that are listed at most: a file with more is listed in parts by its caller.
pub(crate) const EXTENTS_LISTED_MAX: usize = 1 << 20;

/// How an extent keeps its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExtentKind {
    /// Inside a tree block.
    Inline,
    /// On disk.
    Data,
    /// Reserved on disk; reads as zeros.
    Preallocated,
}

/// One extent of a file. Holes are not listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtentInfo {
    /// First byte in the file.
    pub offset: u64,
    /// Bytes of the file.
    pub len: u64,
    /// How it keeps them.
    pub kind: ExtentKind,
    /// Address of the first byte (of the first compressed byte, if it is compressed); `None` for
    /// inline data.
    pub logical: Option<Logical>,
    /// Bytes of the whole extent on disk; 0 for inline data.
    pub disk_len: u64,
    /// Compression type as the format numbers it; 0 for none.
    pub compression: u8,
}

impl From<FileExtent> for ExtentInfo {
    fn from(item: FileExtent) -> Self {
        let kind = match item.kind {
            Kind::Inline => ExtentKind::Inline,
            Kind::Regular => ExtentKind::Data,
            Kind::Prealloc => ExtentKind::Preallocated,
        };
        let first = if item.is_compressed() { item.disk } else { item.disk_at(item.start) };
        Self {
            offset: item.start,
            len: item.len,
            kind,
            logical: (item.kind != Kind::Inline).then_some(first),
            disk_len: item.disk_len,
            compression: item.compression,
        }
    }
}

/// The extents from `offset` on, at most [`EXTENTS_LISTED_MAX`], in file order; dirty data is
/// written first.
///
/// # Errors
/// What writing fails with; damage and I/O.
pub(crate) fn extents(core: &Core, inode: &Arc<Inode>, offset: u64) -> Result<Vec<ExtentInfo>> {
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
            list.push(item.into());
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
/// `NoSuchOffset` when `offset` is behind the end; as [`extents`].
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
