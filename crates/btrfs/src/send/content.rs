//! Sends contents of files: decides which bytes differ, and by which commands they are sent. Called by `stream` for
//! each file.
//!
//! The extents of both trees are compared where items differ: bytes in the same place of the same extent, and zeros in
//! both, are not sent. Data that became a hole, or preallocated space, is sent as zeros, as the kernel does: version 1
//! has no command for holes.

use std::ops::Range;

use btrfs_disk::convert::{to_u64, to_usize, usize_from};
use btrfs_disk::items::{FileKind, link_target};
use btrfs_disk::key::item_type::EXTENT_DATA;
use btrfs_disk::{At, Corrupt, Detail, Generation, InodeNo, Key, Logical};
use btrfs_stream::{Command, Compression, EncodedWrite};
use codec::CompressionType;
use codec::compress::Form;

use super::changes::Changed;
use super::sender::{Result, Sender};
use super::view::{Facts, View};
use crate::error::{Error, Result as VolumeResult, corrupt_inode};
use crate::extents::{ExtentMap, FileExtent, Kind, Stretch, read_inline};
use crate::file::{Csums, expand, inline_bytes, read_from_disk};

/// Items of a file that are read at a time.
const MAP_ITEMS: usize = 512;
/// Bytes that are read at a time.
const READ_BYTES: usize = 1 << 20;
/// Longest target of a symbolic link: a path without the NUL behind it.
const PATH_SIZE_MAX: usize = 4095;

/// A file with contents to send.
pub(super) struct Target<'a> {
    pub(super) ino: u64,
    pub(super) path: &'a [u8],
    pub(super) size: u64,
    pub(super) has_csums: bool,
    /// Its size at the receiver, so far.
    pub(super) size_there: u64,
}

impl Target<'_> {
    fn csums(&self) -> Csums<'static> {
        if self.has_csums { Csums::Tree } else { Csums::None }
    }
}

/// The items that were read of a file.
#[derive(Default)]
struct Maps {
    old: ExtentMap,
    new: ExtentMap,
}

/// A part of a file that differs.
enum Piece {
    Same,
    Zeros,
    Data(FileExtent),
}

impl Sender<'_> {
    /// Sends the differences of a regular file; returns whether anything was sent.
    pub(super) fn send_contents(
        &mut self,
        changed: &Changed,
        path: &[u8],
        (old, new): (Option<&Facts>, &Facts),
    ) -> Result<bool> {
        if new.kind != FileKind::File {
            return Ok(false);
        }
        let size_there = old.map_or(0, |old| old.size);
        let (ino, size) = (changed.ino, new.size);
        let mut target = Target { ino, path, size, has_csums: new.has_csums, size_there };
        let whole = 0..size;
        let ranges = match old {
            Some(old) => with_end(&changed.ranges, old.size, size, self.core.store.sizes().sector),
            None => vec![whole],
        };
        for range in &ranges {
            self.send_range(&mut target, range.start..range.end.min(size), old)?;
        }
        let is_written = !ranges.is_empty() && size > 0;
        if target.size_there == size {
            return Ok(is_written);
        }
        self.put(&Command::Truncate { path, size })?;
        Ok(true)
    }

    fn send_range(&mut self, target: &mut Target<'_>, range: Range<u64>, old: Option<&Facts>) -> Result<()> {
        let mut maps = Maps::default();
        let mut at = range.start;
        while at < range.end {
            let (piece, end) = self.look(&mut maps, target.ino, at..range.end, old)?;
            if end <= at {
                return Err(no_progress(&self.pair.new, target.ino, at).into());
            }
            match piece {
                Piece::Same => {}
                Piece::Zeros => self.send_zeros(target, at..end)?,
                Piece::Data(item) => self.send_data(target, at..end, &item)?,
            }
            at = end;
        }
        Ok(())
    }

    /// The kind of the piece at the start of a range, and its end.
    fn look(&self, maps: &mut Maps, ino: u64, range: Range<u64>, old: Option<&Facts>) -> VolumeResult<(Piece, u64)> {
        let sector = self.core.store.sizes().sector;
        let at = range.start;
        let (new, end) = stretch(&mut maps.new, &self.pair.new, ino, range.clone(), sector)?;
        // Behind an end inside a sector, the rest of that first: whole sectors can be cloned.
        let mut piece_end = end.min(range.end).min(next_sector(at, sector));
        let old_view = self.pair.old.as_ref().filter(|_| old.is_some_and(|old| at < old.size));
        let before = match old_view {
            Some(view) => {
                let (before, end) = stretch(&mut maps.old, view, ino, range, sector)?;
                // Bytes of an extent beyond the end of a file read as zeros.
                piece_end = piece_end.min(end).min(old.map_or(u64::MAX, |old| old.size));
                before
            }
            None => Stretch::Gap,
        };
        let piece = match (before, new) {
            (before, new) if is_zeros(&new) => {
                if is_zeros(&before) {
                    Piece::Same
                } else {
                    Piece::Zeros
                }
            }
            (Stretch::Item(before), Stretch::Item(new)) if is_same_data(&before, &new, at) => Piece::Same,
            (_, Stretch::Item(new)) => Piece::Data(new),
            (_, Stretch::Gap) => Piece::Same,
        };
        Ok((piece, piece_end))
    }

    fn send_zeros(&mut self, target: &mut Target<'_>, range: Range<u64>) -> Result<()> {
        if self.options.no_data {
            return self.send_extent_update(target, range);
        }
        let zeros = vec![0; self.contents.write_bytes().min(to_usize(range.end - range.start))];
        let mut at = range.start;
        while at < range.end {
            let len = to_usize(range.end - at).min(zeros.len());
            let data = zeros.get(..len).unwrap_or_default();
            self.put(&Command::Write { path: target.path, offset: at, data })?;
            at = at.saturating_add(to_u64(len));
        }
        target.size_there = target.size_there.max(range.end);
        Ok(())
    }

    fn send_extent_update(&mut self, target: &Target<'_>, range: Range<u64>) -> Result<()> {
        let (offset, size) = (range.start, range.end - range.start);
        self.put(&Command::UpdateExtent { path: target.path, offset, size })
    }

    fn send_data(&mut self, target: &mut Target<'_>, range: Range<u64>, item: &FileExtent) -> Result<()> {
        if self.options.no_data {
            return self.send_extent_update(target, range);
        }
        let mut at = range.start;
        while at < range.end {
            let found = match item.kind {
                Kind::Regular => self.find_clone(target, at..range.end, item)?,
                Kind::Inline | Kind::Prealloc => None,
            };
            match found {
                Some(found) => {
                    let len = found.len;
                    let end = at.saturating_add(len);
                    // A part of a sector can be cloned only to the end of a file.
                    if !end.is_multiple_of(u64::from(self.core.store.sizes().sector)) && target.size_there > end {
                        self.put(&Command::Truncate { path: target.path, size: at })?;
                        target.size_there = at;
                    }
                    self.put(&Command::Clone(found.command(target.path, at)))?;
                    at = end;
                    target.size_there = target.size_there.max(at);
                }
                None => {
                    self.send_written(target, at..range.end, item)?;
                    at = range.end;
                }
            }
        }
        target.size_there = target.size_there.max(range.end);
        Ok(())
    }

    fn send_written(&mut self, target: &Target<'_>, range: Range<u64>, item: &FileExtent) -> Result<()> {
        if item.is_compressed() && self.options.compressed_data && self.send_encoded(target, &range, item)? {
            return Ok(());
        }
        if item.kind == Kind::Inline {
            let bytes = inline_bytes(self.core, &self.pair.new.tree, InodeNo(target.ino), item)?;
            return self.send_bytes(target.path, &range, item.start, &bytes);
        }
        if item.is_compressed() {
            self.decompress(target, item)?;
            let Some(kept) = self.contents.decompressed.take() else { return Ok(()) };
            let first = item.start.wrapping_sub(item.offset);
            let sent = self.send_bytes(target.path, &range, first, &kept.2);
            self.contents.decompressed = Some(kept);
            return sent;
        }
        let mut buffer = std::mem::take(&mut self.contents.buffer);
        // A whole number of commands.
        let step = READ_BYTES - READ_BYTES % self.contents.write_bytes();
        buffer.resize(step, 0);
        let mut at = range.start;
        while at < range.end {
            let len = to_usize(range.end - at).min(step);
            let Some(bytes) = buffer.get_mut(..len) else { break };
            read_from_disk(self.core, item.disk_at(at), bytes, target.csums())?;
            let end = at.saturating_add(to_u64(len));
            self.send_bytes(target.path, &(at..end), at, bytes)?;
            at = end;
        }
        self.contents.buffer = buffer;
        Ok(())
    }

    /// Writes a range of a file: `bytes` are those from `first` on, followed by zeros.
    fn send_bytes(&mut self, path: &[u8], range: &Range<u64>, first: u64, bytes: &[u8]) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            let len = to_usize(range.end - at).min(self.contents.write_bytes());
            let from = to_usize(at.wrapping_sub(first));
            match bytes.get(from..from.saturating_add(len)) {
                Some(data) => self.put(&Command::Write { path, offset: at, data })?,
                None => {
                    let mut data = bytes.get(from..).unwrap_or_default().to_vec();
                    data.resize(len, 0);
                    self.put(&Command::Write { path, offset: at, data: &data })?;
                }
            }
            at = at.saturating_add(to_u64(len));
        }
        Ok(())
    }

    /// Sends a compressed extent undecoded, where that is shorter than its bytes in the range.
    fn send_encoded(&mut self, target: &Target<'_>, range: &Range<u64>, item: &FileExtent) -> Result<bool> {
        let sector_size = self.core.store.sizes().sector;
        let compression = match CompressionType::from_raw(item.compression) {
            Some(CompressionType::Zlib) => Compression::Zlib,
            Some(CompressionType::Zstd) => Compression::Zstd,
            Some(CompressionType::Lzo) => Compression::Lzo { sector_size },
            None => return Ok(false),
        };
        let len = range.end - range.start;
        let unencoded_len = if item.kind == Kind::Inline { item.len } else { item.ram_bytes };
        let unencoded_offset = item.offset.saturating_add(range.start - item.start);
        // A part of a sector can be written so only at the present end of the file.
        let is_aligned = range.start.is_multiple_of(u64::from(sector_size));
        let is_whole = is_aligned && (len.is_multiple_of(u64::from(sector_size)) || target.size_there <= range.end);
        if len > unencoded_len.saturating_sub(unencoded_offset) || !is_whole {
            return Ok(false);
        }
        let data = match item.kind {
            Kind::Inline => read_inline(&self.pair.new.tree, InodeNo(target.ino), item)?,
            _ if item.disk_len <= len => self.stored(target, item)?,
            _ => return Ok(false),
        };
        if to_u64(data.len()) > len {
            return Ok(false);
        }
        self.put(&Command::EncodedWrite(EncodedWrite {
            path: target.path,
            offset: range.start,
            unencoded_file_len: len,
            unencoded_len,
            unencoded_offset,
            compression,
            data: &data,
        }))?;
        Ok(true)
    }

    /// The bytes of an extent as they are on disk.
    fn stored(&self, target: &Target<'_>, item: &FileExtent) -> VolumeResult<Vec<u8>> {
        let mut stored = vec![0; to_usize(item.disk_len)];
        read_from_disk(self.core, item.disk, &mut stored, target.csums())?;
        Ok(stored)
    }

    /// Decompresses the extent of `item`, unless it is the last one.
    fn decompress(&mut self, target: &Target<'_>, item: &FileExtent) -> VolumeResult<()> {
        let is_last = |kept: &(Logical, Generation, Vec<u8>)| (kept.0, kept.1) == (item.disk, item.generation);
        if self.contents.decompressed.as_ref().is_some_and(is_last) {
            return Ok(());
        }
        let stored = self.stored(target, item)?;
        let form = Form::regular(usize_from(self.core.store.sizes().sector));
        let bytes = expand((self.pair.new.id, InodeNo(target.ino)), item, &stored, form, item.ram_bytes)?;
        self.contents.decompressed = Some((item.disk, item.generation, bytes));
        Ok(())
    }

    /// The target of a symbolic link: the stored bytes up to the inode's size or the first NUL.
    pub(super) fn target(&self, ino: u64, facts: &Facts) -> VolumeResult<Vec<u8>> {
        let view = &self.pair.new;
        let key = Key::new(ino, EXTENT_DATA, 0);
        let sector = self.core.store.sizes().sector;
        let item = view.tree.get_with(&key, |bytes| FileExtent::decode(0, bytes, sector))?.transpose()?;
        let stored = match item {
            Some(item) if item.kind == Kind::Inline => inline_bytes(self.core, &view.tree, InodeNo(ino), &item)?,
            // btrfs-convert leaves a long target in its ext4 block, as a regular extent.
            Some(item) if item.kind == Kind::Regular && !item.is_zeros() && !item.is_compressed() => {
                let csums = if facts.has_csums { Csums::Tree } else { Csums::None };
                let mut bytes = vec![0; to_usize(facts.size.min(item.len)).min(PATH_SIZE_MAX)];
                read_from_disk(self.core, item.disk_at(0), &mut bytes, csums)?;
                bytes
            }
            _ => Vec::new(),
        };
        let target = link_target(&stored, facts.size);
        if target.is_empty() {
            let (expected, found) = (Detail::Text("a target"), Detail::Text("none"));
            return Err(corrupt_inode(view.id, InodeNo(ino), "symbolic link", expected, found));
        }
        Ok(target.to_vec())
    }
}

/// The end of the sector that `at` is inside of; `u64::MAX` where it is at the start of one.
fn next_sector(at: u64, sector: u32) -> u64 {
    let unit = u64::from(sector);
    if at.is_multiple_of(unit) { u64::MAX } else { at.saturating_add(unit - at % unit) }
}

/// The ranges in which items differ, and the rest of the sector in which a file ended that is longer now: a receiver
/// has zeros there, regardless of the shared extent.
fn with_end(ranges: &[Range<u64>], old_size: u64, size: u64, sector: u32) -> Vec<Range<u64>> {
    let end = next_sector(old_size, sector).min(size);
    let mut ranges = ranges.to_vec();
    if old_size < end && !old_size.is_multiple_of(u64::from(sector)) {
        let index = ranges.partition_point(|range| range.end <= old_size);
        match ranges.get_mut(index) {
            Some(next) if next.start <= old_size => next.end = next.end.max(end),
            Some(next) if next.start <= end => next.start = old_size,
            _ => ranges.insert(index, old_size..end),
        }
    }
    ranges
}

fn stretch(map: &mut ExtentMap, view: &View, ino: u64, range: Range<u64>, sector: u32) -> VolumeResult<(Stretch, u64)> {
    let at = range.start;
    if !map.knows(at) {
        *map = ExtentMap::load(&view.tree, InodeNo(ino), range, MAP_ITEMS, sector)?;
    }
    Ok(map.at(at, sector))
}

fn is_zeros(stretch: &Stretch) -> bool {
    match stretch {
        Stretch::Gap => true,
        Stretch::Item(item) => item.is_zeros(),
    }
}

/// True where the byte at `at` is the same byte of the same extent.
pub(super) fn is_same_data(one: &FileExtent, other: &FileExtent, at: u64) -> bool {
    one.kind == Kind::Regular
        && other.kind == Kind::Regular
        && one.disk == other.disk
        && one.compression == other.compression
        && one.offset.wrapping_add(at.wrapping_sub(one.start))
            == other.offset.wrapping_add(at.wrapping_sub(other.start))
}

#[cold]
fn no_progress(view: &View, ino: u64, at: u64) -> Error {
    let (expected, found) = (Detail::AtLeast(at.saturating_add(1)), Detail::Number(at));
    Corrupt::new("end of a file extent", expected, found).at(At::Inode(view.id, InodeNo(ino))).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_the_last_sector_is_looked_at_when_a_file_grows() {
        let ends = |ranges: &[(u64, u64)], old, new| {
            let ranges: Vec<Range<u64>> = ranges.iter().map(|(start, end)| *start..*end).collect();
            let found = with_end(&ranges, old, new, 4096).into_iter().map(|range| (range.start, range.end));
            found.collect::<Vec<_>>()
        };
        assert_eq!(ends(&[], 5001, 8000), [(5001, 8000)]);
        assert_eq!(ends(&[], 5001, 100_000), [(5001, 8192)]);
        assert_eq!(ends(&[], 8192, 100_000), []);
        assert_eq!(ends(&[], 5001, 5000), []);
        assert_eq!(ends(&[(0, 4096), (12288, 16384)], 5001, 100_000), [(0, 4096), (5001, 8192), (12288, 16384)]);
        assert_eq!(ends(&[(0, 4096), (8192, 16384)], 5001, 100_000), [(0, 4096), (5001, 16384)]);
        assert_eq!(ends(&[(4096, 8192)], 5001, 100_000), [(4096, 8192)]);
    }
}
