//! Reads bytes of files, each from the newest layer that has it. Called by `vfs_impl/data` and by partial overwrites.

use std::ops::Range;

use btrfs_disk::Logical;
use btrfs_disk::convert::{to_u64, to_usize};
use vfs::{PageCache, Piece};

use super::disk::{self, Csums};
use super::verity;
use crate::error::Result;
use crate::extents::{ExtentMap, FILE_BYTES_MAX, FileExtent, Kind, SCAN_ITEMS_MAX, Stretch};
use crate::inode::{Core, DataLayers, Inode, Pending, slice_mut};
use crate::writeback;

/// Items read for a look-up somewhere in a file.
const MAP_ITEMS_RANDOM: usize = 48;
/// File bytes looked at for items beyond those asked for, by a reader that continues where the last look-up ended.
const MAP_AHEAD_BYTES: u64 = 1 << 30;

/// Extents that are prefetched at a time: 4 MiB of compressed ones.
const ANNOUNCED_MAX: usize = 32;

/// Size up to which a read is probably one of several concurrent ones, as the kernel sends them: each has its own
/// thread then, and sharing its work with others costs more than it saves.
const ALONE_BYTES_MAX: usize = 1 << 20;

/// The place of some of a file's bytes.
enum Source {
    /// In an extent of the tree.
    Item(FileExtent),
    /// In a pending extent that is not in the tree yet; its checksums, if it has any.
    Pending(Logical, Option<Vec<u8>>),
}

impl Source {
    fn item(&self) -> Option<FileExtent> {
        match self {
            Self::Item(item) => Some(*item),
            Self::Pending(..) => None,
        }
    }
}

/// Bytes of a file to be fetched, ascending.
type Sources = Vec<(Range<u64>, Source)>;

/// Reads from `offset`; returns how many bytes there were, fewer than `buf` has only at the end.
///
/// # Errors
/// Damage (a checksum that no copy matches, items that lie, contents that fs-verity does not protect), I/O.
pub(crate) fn read_at(core: &Core, inode: &Inode, offset: u64, buf: &mut [u8]) -> Result<usize> {
    match verity::is_protected(inode) {
        true => verity::read(inode, offset, buf, &mut |offset, buf| read_plain(core, inode, offset, buf)),
        false => read_plain(core, inode, offset, buf),
    }
}

fn read_plain(core: &Core, inode: &Inode, offset: u64, buf: &mut [u8]) -> Result<usize> {
    let layers = inode.data.inner.read();
    let left = inode.state().size.saturating_sub(offset);
    let len = buf.len().min(to_usize(left));
    let (buf, _) = buf.split_at_mut(len);
    let sources = look_for(core, inode, &layers, offset, buf)?;
    let next = inode.data.stream.note(&(offset..offset.saturating_add(to_u64(len))));
    let coming: Vec<_> = next.into_iter().flat_map(|range| places_of(core, inode, range)).collect();
    let _pin = inode.data.readers.pin();
    drop(layers);
    // Without the lock: a device whose queue is full may block.
    coming.into_iter().for_each(|(at, len)| core.store.will_read_data(at, len));
    fetch(core, inode, sources, offset, buf)?;
    Ok(len)
}

/// The places on disk of the bytes of `range`, as far as they are easily found: a few extents. Called under the inode's
/// `inner` lock. Failures are left to the read of these bytes.
fn places_of(core: &Core, inode: &Inode, range: Range<u64>) -> Vec<(Logical, u64)> {
    let sector = core.store.sizes().sector;
    let range = range.start..range.end.min(inode.state().size);
    let known = {
        let map = inode.data.map.lock();
        map.knows(range.start).then(|| items_of(&map, &range, sector))
    };
    let load = || ExtentMap::load(&inode.root.tree, inode.ino(), range.clone(), ANNOUNCED_MAX, sector);
    let items = match known {
        Some(items) => items,
        None if range.is_empty() => return Vec::new(),
        None => load().map_or_else(|_| Vec::new(), |map| items_of(&map, &range, sector)),
    };
    let on_disk = items.into_iter().filter(|(_, item)| item.kind == Kind::Regular && !item.is_hole());
    let place = |(part, item): (Range<u64>, FileExtent)| match item.is_compressed() {
        true => (item.disk, item.disk_len),
        false => (item.disk_at(part.start), part.end - part.start),
    };
    on_disk.map(place).collect()
}

/// The first items of a range in a map, each with its part of the range.
fn items_of(map: &ExtentMap, range: &Range<u64>, sector: u32) -> Vec<(Range<u64>, FileExtent)> {
    let mut items = Vec::new();
    let mut at = range.start;
    while at < range.end && map.knows(at) && items.len() < ANNOUNCED_MAX {
        let (stretch, end) = map.at(at, sector);
        if let Stretch::Item(item) = stretch {
            items.push((at..end.min(range.end), item));
        }
        at = end;
    }
    items
}

/// Fills `buf` with the file's bytes from `offset` on, whatever the file's size.
///
/// # Errors
/// As [`read_at`].
pub(super) fn read_layers(core: &Core, inode: &Inode, layers: &DataLayers, offset: u64, buf: &mut [u8]) -> Result<()> {
    let sources = look_for(core, inode, layers, offset, buf)?;
    fetch(core, inode, sources, offset, buf)
}

/// Fills `buf` with the tree's contents from `offset` on, without newer data in memory. The caller keeps items from
/// changing (it holds the `editing` lock).
///
/// # Errors
/// As [`read_at`].
pub(super) fn read_items(core: &Core, inode: &Inode, offset: u64, buf: &mut [u8]) -> Result<()> {
    let mut sources = Vec::new();
    let range = offset..offset.saturating_add(to_u64(buf.len()));
    let layers = inode.data.inner.read();
    look_in_tree(core, inode, range, (offset, buf), &mut sources)?;
    drop(layers);
    fetch(core, inode, sources, offset, buf)
}

/// Copies bytes that are in memory, and finds the places of the rest: a caller that fetches those without `layers`
/// takes a pin first.
fn look_for(core: &Core, inode: &Inode, layers: &DataLayers, offset: u64, buf: &mut [u8]) -> Result<Sources> {
    let all = offset..offset.saturating_add(to_u64(buf.len()));
    let mut sources = Vec::new();
    if layers.is_empty() {
        look_in_tree(core, inode, all, (offset, buf), &mut sources)?;
        return Ok(sources);
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
            gaps = look_in_pending(core, pending, gaps, &mut sources);
        }
    }
    for gap in gaps {
        look_in_tree(core, inode, gap, (offset, &mut *buf), &mut sources)?;
    }
    Ok(sources)
}

/// Reads the bytes found on disk.
fn fetch(core: &Core, inode: &Inode, sources: Sources, base: u64, buf: &mut [u8]) -> Result<()> {
    let sources = join_neighbours(core, sources);
    let decompressor =
        if buf.len() <= ALONE_BYTES_MAX { disk::Decompressor::Reader } else { disk::Decompressor::Workers };
    let items: Vec<Option<FileExtent>> = match sources.len() {
        ..=1 => Vec::new(),
        _ => sources.iter().map(|(_, source)| source.item()).collect(),
    };
    for (index, (range, source)) in sources.into_iter().enumerate() {
        if index.is_multiple_of(disk::TOGETHER_MAX) {
            let next: Vec<FileExtent> = items.iter().skip(index).take(disk::TOGETHER_MAX).flatten().copied().collect();
            disk::decompress_together(core, inode, &next, decompressor)?;
        }
        let part = slice_mut(buf, base, range.clone());
        match source {
            Source::Item(item) => disk::read_item(core, inode, &item, range, part)?,
            Source::Pending(at, csums) => {
                let sector = u64::from(core.store.sizes().sector);
                let first = Logical(at.0 - at.0 % sector);
                let csums = csums.as_deref();
                let known = csums.map_or(Csums::None, |list| Csums::Known(first, list));
                disk::read(core, at, part, known)?;
            }
        }
    }
    Ok(())
}

/// Joins sources that are adjacent in the file and on disk: they are read with one request.
fn join_neighbours(core: &Core, sources: Sources) -> Sources {
    if sources.len() < 2 {
        return sources;
    }
    let mut joined: Sources = Vec::with_capacity(sources.len());
    for (range, source) in sources {
        if let Some((before, Source::Item(first))) = joined.last_mut()
            && let Source::Item(item) = &source
            && before.end == range.start
            && !first.is_compressed()
            && !item.is_compressed()
            && first.disk_at(range.start) == item.disk_at(range.start)
            && writeback::is_in_one_group(core, first.disk_at(before.start), range.end - before.start)
        {
            before.end = range.end;
            continue;
        }
        joined.push((range, source));
    }
    joined
}

/// Copies the parts of `gaps` that have pages; returns the rest.
fn copy_pages(pages: &PageCache, gaps: Vec<Range<u64>>, base: u64, buf: &mut [u8]) -> Vec<Range<u64>> {
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

/// Notes the parts of `gaps` that the extent has; returns the rest.
fn look_in_pending(core: &Core, pending: &Pending, gaps: Vec<Range<u64>>, sources: &mut Sources) -> Vec<Range<u64>> {
    let sizes = core.store.sizes();
    let sector = u64::from(sizes.sector);
    let mut left = Vec::with_capacity(gaps.len() + 1);
    for gap in gaps {
        let both = gap.start.max(pending.start)..gap.end.min(pending.end());
        if both.is_empty() {
            left.push(gap);
            continue;
        }
        let within = |offset: u64| to_usize((offset - pending.start) / sector) * sizes.csum;
        let csums = pending.csums.get(within(both.start)..within(both.end.next_multiple_of(sector)));
        let csums = match pending.csums.is_empty() {
            true => None,
            false => Some(csums.unwrap_or_default().to_vec()),
        };
        let at = Logical(pending.at.0.saturating_add(both.start - pending.start));
        sources.push((both.clone(), Source::Pending(at, csums)));
        left.extend([gap.start..both.start, both.end..gap.end].into_iter().filter(|g| !g.is_empty()));
    }
    left
}

/// Notes the places of `range` according to the tree's items; inline data and zeros are filled in.
fn look_in_tree(
    core: &Core,
    inode: &Inode,
    range: Range<u64>,
    (base, buf): (u64, &mut [u8]),
    sources: &mut Sources,
) -> Result<()> {
    let mut at = range.start;
    while at < range.end {
        let (stretch, end) = look_up(core, inode, at..range.end)?;
        let part = at..end.min(range.end);
        at = part.end;
        match stretch {
            Stretch::Gap => slice_mut(buf, base, part).fill(0),
            // Inline bytes may be removed with the item.
            Stretch::Item(item) if item.is_zeros() || item.kind == Kind::Inline => {
                let bytes = slice_mut(buf, base, part.clone());
                disk::read_item(core, inode, &item, part, bytes)?;
            }
            Stretch::Item(item) => sources.push((part, Source::Item(item))),
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
        let end = range.start.saturating_add(ahead).min(FILE_BYTES_MAX).max(range.end);
        *map = ExtentMap::load(&inode.root.tree, inode.ino(), range.start..end, limit, sector)?;
    }
    Ok(map.at(range.start, sector))
}
