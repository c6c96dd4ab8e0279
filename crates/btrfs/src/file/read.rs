//! Reading: each byte from the newest layer that has it.

use std::ops::Range;

use btrfs_disk::convert::{to_u64, to_usize};
use vfs::{PageCache, Piece};

use super::disk::{self, Csums};
use crate::error::Result;
use crate::extents::{ExtentMap, FILE_BYTES_MAX, SCAN_ITEMS_MAX, Stretch};
use crate::inode::{Core, DataLayers, Inode, Pending, slice_mut};

/// Items read for a look-up somewhere in a file.
const MAP_ITEMS_RANDOM: usize = 48;
/// File bytes looked at for items beyond those asked for, by whoever reads on where the last
/// look-up ended.
const MAP_AHEAD_BYTES: u64 = 1 << 30;

/// Reads from `offset`; returns how many bytes there were, fewer than `buf` has only at the end.
///
/// # Errors
/// Damage (a checksum that no copy matches, items that lie), I/O.
pub(crate) fn read_at(core: &Core, inode: &Inode, offset: u64, buf: &mut [u8]) -> Result<usize> {
    let layers = inode.data.inner.read();
    let left = inode.state().size.saturating_sub(offset);
    let len = buf.len().min(to_usize(left));
    read_layers(core, inode, &layers, offset, &mut buf[..len])?;
    Ok(len)
}

/// Fills `buf` with the file's bytes from `offset` on, whatever the file's size.
///
/// # Errors
/// As [`read_at`].
pub(super) fn read_layers(
    core: &Core,
    inode: &Inode,
    layers: &DataLayers,
    offset: u64,
    buf: &mut [u8],
) -> Result<()> {
    let all = offset..offset.saturating_add(to_u64(buf.len()));
    if layers.is_empty() {
        return read_tree(core, inode, all, buf);
    }
    let mut gaps = vec![all];
    let flight = layers.flight.as_deref();
    let in_flight = flight.and_then(|flight| flight.pages.as_ref());
    for pages in layers.dirty.iter().chain(in_flight) {
        gaps = copy_pages(pages, gaps, offset, buf);
    }
    for list in [Some(&layers.pending), flight.map(|flight| &flight.pending)] {
        // Later ones of a list were written later.
        for pending in list.into_iter().flatten().rev() {
            gaps = read_pending(core, inode, pending, gaps, offset, buf)?;
        }
    }
    for gap in gaps {
        let part = slice_mut(buf, offset, gap.clone());
        read_tree(core, inode, gap, part)?;
    }
    Ok(())
}

/// Copies what the pages have of `gaps`; returns what is left.
fn copy_pages(
    pages: &PageCache,
    gaps: Vec<Range<u64>>,
    base: u64,
    buf: &mut [u8],
) -> Vec<Range<u64>> {
    let mut left = Vec::with_capacity(gaps.len());
    for gap in gaps {
        pages.pieces(gap, |piece| match piece {
            Piece::Gap(gap) => left.push(gap),
            Piece::Cached { start, bytes } => {
                let range = start..start + to_u64(bytes.len());
                slice_mut(buf, base, range).copy_from_slice(bytes);
            }
        });
    }
    left
}

/// Reads what the extent has of `gaps`; returns what is left.
fn read_pending(
    core: &Core,
    inode: &Inode,
    pending: &Pending,
    gaps: Vec<Range<u64>>,
    base: u64,
    buf: &mut [u8],
) -> Result<Vec<Range<u64>>> {
    let mut left = Vec::with_capacity(gaps.len() + 1);
    let csums = match pending.csums.is_empty() {
        true => Csums::None,
        false => Csums::Known(pending.at, &pending.csums),
    };
    for gap in gaps {
        let both = gap.start.max(pending.start)..gap.end.min(pending.end());
        if both.is_empty() {
            left.push(gap);
            continue;
        }
        let at = btrfs_disk::Logical(pending.at.0.saturating_add(both.start - pending.start));
        disk::read(core, at, slice_mut(buf, base, both.clone()), csums)?;
        left.extend(
            [gap.start..both.start, both.end..gap.end]
                .into_iter()
                .filter(|g| !g.is_empty()),
        );
    }
    debug_assert!(
        inode.data.inner.is_locked(),
        "the extent must not go away meanwhile"
    );
    Ok(left)
}

/// Fills `buf` with the bytes of `range` as the tree's items have them.
fn read_tree(core: &Core, inode: &Inode, range: Range<u64>, buf: &mut [u8]) -> Result<()> {
    let mut at = range.start;
    while at < range.end {
        let (stretch, end) = look_up(core, inode, at..range.end)?;
        let part = at..end.min(range.end);
        at = part.end;
        let bytes = slice_mut(buf, range.start, part.clone());
        match stretch {
            Stretch::Gap => bytes.fill(0),
            Stretch::Item(item) => disk::read_item(core, inode, &item, part, bytes)?,
        }
    }
    Ok(())
}

/// The item (or gap) at `range.start`, and where it ends. Called under the inode's `inner` lock,
/// under which no item changes.
///
/// # Errors
/// Damage, I/O.
pub(super) fn look_up(core: &Core, inode: &Inode, range: Range<u64>) -> Result<(Stretch, u64)> {
    let sector = core.store.sizes().sector;
    let mut map = inode.data.map.lock();
    if !map.knows(range.start) {
        let is_sequential = map.known().end == range.start && !map.items().is_empty();
        let (ahead, limit) = match is_sequential {
            true => (MAP_AHEAD_BYTES, SCAN_ITEMS_MAX / 8),
            false => (0, MAP_ITEMS_RANDOM),
        };
        let end = range
            .start
            .saturating_add(ahead)
            .min(FILE_BYTES_MAX)
            .max(range.end);
        *map = ExtentMap::load(
            &inode.root.tree,
            inode.ino(),
            range.start..end,
            limit,
            sector,
        )?;
    }
    Ok(map.at(range.start, sector))
}
