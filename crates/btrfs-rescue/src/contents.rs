//! Reads the contents of a file: the extent behind each byte, and the ranges that are lost. Called by `tree_view`.

use std::ops::Range;

use btrfs_disk::Key;
use btrfs_disk::convert::{to_u64, to_usize};
use btrfs_disk::items::{FILE_EXTENT_PREALLOC, FileExtent};
use btrfs_disk::key::item_type;

use crate::data::{self, Kept, Packed, Sector};
use crate::inode::{File, Inode};
use crate::losses::Losses;
use crate::state::State;

/// Limit on extents kept per file.
const EXTENTS_MAX: usize = 4 << 20;
/// Bytes per read.
const READ_BYTES: u64 = 4 << 20;

/// Source of a range of a file.
#[derive(Clone, Debug)]
enum Source {
    Zeros,
    Lost,
    Inline(Vec<u8>),
    Plain { at: u64 },
    Packed { extent: Packed, offset: u64 },
}

#[derive(Clone, Debug)]
struct Piece {
    start: u64,
    end: u64,
    source: Source,
}

/// Extents of a file, by offset. Bytes outside all pieces read as zeros.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    pieces: Vec<Piece>,
    has_sums: bool,
}

impl Layout {
    /// Reads the extents of a file and notes missing ranges.
    pub(crate) fn read(state: &State, file: File, inode: &Inode, losses: &Losses) -> Self {
        let (tree, ino) = file;
        let mut layout = Self { pieces: Vec::new(), has_sums: inode.has_sums };
        let (mut end, mut bytes, mut gaps) = (0, 0_u64, Vec::new());
        let leaves = state.tree(tree);
        let key = |offset| Key::new(ino, item_type::EXTENT_DATA, offset);
        let mut is_older = false;
        leaves.items(&state.blocks, key(0), key(u64::MAX), &mut |key, data| {
            is_older |= leaves.is_filled(key, key);
            let start = key.offset;
            let Some((len, counted, source)) = parsed(state, data) else {
                losses.note(file, |loss| loss.lacks_extents = true);
                return true;
            };
            bytes = bytes.saturating_add(counted);
            if start > end {
                gaps.push(end..start);
            }
            let stop = start.saturating_add(len).min(inode.size);
            if let Some(last) = layout.pieces.last_mut() {
                last.end = last.end.min(start);
            }
            if start < stop {
                if matches!(source, Source::Lost) {
                    losses.lose(file, start..stop);
                }
                layout.pieces.push(Piece { start, end: stop, source });
            }
            end = start.saturating_add(len).max(end);
            layout.pieces.len() < EXTENTS_MAX
        });
        if end < inode.size {
            gaps.push(end..inode.size);
        }
        // If the extents have all bytes that the inode counts, gaps between them are holes.
        let is_complete = inode.nbytes == Some(bytes);
        if !is_complete && inode.kind.is_file() {
            for gap in gaps.into_iter().filter(|gap| gap.start < inode.size) {
                if leaves.may_lack(key(gap.start), key(gap.end.saturating_sub(1))) {
                    layout.lose(file, gap.start..gap.end.min(inode.size), losses);
                }
            }
            if inode.nbytes.is_some_and(|expected| expected > bytes) && leaves.is_damaged() {
                losses.note(file, |loss| loss.lacks_extents = true);
            }
        }
        if inode.is_made_up {
            losses.note(file, |loss| loss.has_lost_inode = true);
        }
        if is_older || leaves.is_filled(Key::new(ino, item_type::INODE_ITEM, 0), key(0)) {
            losses.note(file, |loss| loss.may_be_older = true);
        }
        layout.pieces.sort_by_key(|piece| piece.start);
        layout
    }

    fn lose(&mut self, file: File, range: Range<u64>, losses: &Losses) {
        losses.lose(file, range.clone());
        self.pieces.push(Piece { start: range.start, end: range.end, source: Source::Lost });
    }

    /// The pieces that end after an offset.
    fn from(&self, offset: u64) -> &[Piece] {
        let start = self.pieces.partition_point(|piece| piece.end <= offset);
        self.pieces.get(start..).unwrap_or_default()
    }

    /// The first data byte at or after `offset`; `None` if only holes follow.
    pub(crate) fn data_from(&self, offset: u64) -> Option<u64> {
        let mut pieces = self.from(offset).iter();
        pieces.find(|piece| piece.is_data()).map(|piece| piece.start.max(offset))
    }

    /// The first hole at or after `offset`, if it begins before the end of the file; else the end of the data.
    pub(crate) fn hole_from(&self, offset: u64) -> u64 {
        let mut at = offset;
        for piece in self.from(offset) {
            if piece.start > at || !piece.is_data() {
                break;
            }
            at = piece.end;
        }
        at
    }

    /// Fills a buffer from an offset and notes lost ranges.
    pub(crate) fn fill(&self, at: (&State, &Kept, &Losses), file: File, offset: u64, buf: &mut [u8]) {
        buf.fill(0);
        let end = offset.saturating_add(to_u64(buf.len()));
        for piece in self.from(offset) {
            let (from, to) = (piece.start.max(offset), piece.end.min(end));
            if piece.start >= end {
                break;
            }
            if from >= to {
                continue;
            }
            let part = buf.get_mut(to_usize(from - offset)..to_usize(to - offset)).unwrap_or_default();
            self.part(at, file, piece, from, part);
        }
    }

    fn part(
        &self,
        (state, kept, losses): (&State, &Kept, &Losses),
        file: File,
        piece: &Piece,
        from: u64,
        part: &mut [u8],
    ) {
        let skip = from - piece.start;
        match &piece.source {
            Source::Zeros | Source::Lost => {}
            Source::Inline(bytes) => copy(bytes, skip, part),
            Source::Plain { at } => self.plain((state, losses), file, (at.saturating_add(skip), from), part),
            Source::Packed { extent, offset } => {
                let (bytes, sector) = data::expand(state, kept, extent, self.has_sums);
                match bytes {
                    Some(bytes) => copy(&bytes, offset.saturating_add(skip), part),
                    None => losses.lose(file, from..from + to_u64(part.len())),
                }
                if sector == Sector::Unverified && self.has_sums {
                    losses.note(file, |loss| loss.add_unverified(to_u64(part.len())));
                }
            }
        }
    }

    fn plain(&self, (state, losses): (&State, &Losses), file: File, (at, from): (u64, u64), part: &mut [u8]) {
        let sector = u64::from(state.blocks.media.format.sectorsize).max(512);
        let (mut at, mut from, mut rest) = (at, from, part);
        let mut buffer = Vec::new();
        while !rest.is_empty() {
            let skip = at % sector;
            let len = to_u64(rest.len()).min(READ_BYTES);
            let whole = (skip + len).next_multiple_of(sector);
            buffer.clear();
            buffer.resize(to_usize(whole), 0);
            let sectors = data::read(state, at - skip, &mut buffer, self.has_sums);
            for (index, found) in (0..).zip(&sectors) {
                let start = (index * sector).max(skip);
                let end = ((index + 1) * sector).min(skip + len);
                let range = (from + (start - skip))..(from + (end.max(start) - skip));
                match found {
                    Sector::Lost => losses.lose(file, range),
                    Sector::Unverified if self.has_sums => {
                        losses.note(file, |loss| loss.add_unverified(range.end - range.start));
                    }
                    _ => {}
                }
            }
            let (now, then) = rest.split_at_mut(to_usize(len));
            copy(&buffer, skip, now);
            (at, from, rest) = (at.saturating_add(len), from + len, then);
        }
    }
}

impl Piece {
    fn is_data(&self) -> bool {
        !matches!(self.source, Source::Zeros | Source::Lost)
    }
}

/// Copies the available bytes; the rest stays zero.
fn copy(bytes: &[u8], skip: u64, to: &mut [u8]) {
    let bytes = bytes.get(to_usize(skip)..).unwrap_or_default();
    let len = bytes.len().min(to.len());
    if let (Some(to), Some(bytes)) = (to.get_mut(..len), bytes.get(..len)) {
        to.copy_from_slice(bytes);
    }
}

/// Bytes in the file, bytes that the inode counts for them, and their source.
fn parsed(state: &State, data: &[u8]) -> Option<(u64, u64, Source)> {
    let extent = FileExtent::parse(data).ok()?;
    let (len, head) = (extent.file_len(), extent.head());
    if head.encryption != 0 || head.other_encoding.get() != 0 {
        return Some((len, len, Source::Lost));
    }
    Some(match extent {
        FileExtent::Inline { head, data } => {
            let bytes = data::expand_inline(state, head.compression, data, len);
            (len, len, bytes.map_or(Source::Lost, Source::Inline))
        }
        FileExtent::Extent(item) if item.is_hole() => (len, 0, Source::Zeros),
        FileExtent::Extent(item) if item.head.extent_type == FILE_EXTENT_PREALLOC => (len, len, Source::Zeros),
        FileExtent::Extent(item) => {
            let (at, offset) = (item.disk_bytenr.get(), item.offset.get());
            let source = if item.head.compression == 0 {
                Source::Plain { at: at.saturating_add(offset) }
            } else {
                let extent = Packed {
                    at,
                    disk_len: item.disk_num_bytes.get(),
                    ram_len: item.head.ram_bytes.get(),
                    compression: item.head.compression,
                    generation: item.head.generation.get(),
                };
                Source::Packed { extent, offset }
            };
            (len, len, source)
        }
    })
}
