//! Reads one file extent item as a value, cuts it, and writes it back as an item. Used by reads, writeback, the log and
//! send.

use std::ops::Range;

use btrfs_disk::convert::to_u64;
use btrfs_disk::items::{FILE_EXTENT_INLINE_START, FileExtent as DiskExtent, FileExtentItem, NewFileExtent};
use btrfs_disk::{Corrupt, Detail, Generation, Logical};

/// Largest size of a file in bytes (`LLONG_MAX`).
pub(crate) const FILE_BYTES_MAX: u64 = u64::MAX >> 1;
/// Most bytes that a compressed extent may hold, compressed or not: the kernel writes no larger ones, and a reader has
/// to allocate the size in the item.
pub(crate) const COMPRESSED_BYTES_MAX: u64 = 128 << 10;

/// `BTRFS_FILE_EXTENT_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The data stands in the item.
    Inline,
    /// Data on disk, or a hole when there is no disk extent.
    Regular,
    /// Space on disk that reads as zeros.
    Prealloc,
}

/// A file extent item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileExtent {
    /// Offset in the file: the key's offset.
    pub(crate) start: u64,
    /// File bytes covered. Of an inline extent: the bytes it holds, uncompressed.
    pub(crate) len: u64,
    pub(crate) kind: Kind,
    /// 0 for a hole and an inline extent.
    pub(crate) disk: Logical,
    /// Size of the whole extent on disk.
    pub(crate) disk_len: u64,
    /// Where this item's bytes begin within the (uncompressed) extent.
    pub(crate) offset: u64,
    /// Size of the whole extent when uncompressed.
    pub(crate) ram_bytes: u64,
    /// `BTRFS_COMPRESS_*`; 0 for none.
    pub(crate) compression: u8,
    /// Transaction that wrote the data.
    pub(crate) generation: Generation,
}

impl FileExtent {
    /// A hole as an item.
    pub(crate) fn hole(range: Range<u64>, generation: Generation) -> Self {
        let len = range.end.saturating_sub(range.start);
        Self {
            start: range.start,
            len,
            kind: Kind::Regular,
            disk: Logical(0),
            disk_len: 0,
            offset: 0,
            ram_bytes: len,
            compression: 0,
            generation,
        }
    }

    /// A whole uncompressed extent, just allocated.
    pub(crate) fn whole(start: u64, kind: Kind, disk: Logical, len: u64) -> Self {
        Self {
            start,
            len,
            kind,
            disk,
            disk_len: len,
            offset: 0,
            ram_bytes: len,
            compression: 0,
            generation: Generation(0),
        }
    }

    /// A whole compressed extent, just allocated: `disk_len` bytes on disk hold `len` of the file.
    pub(crate) fn compressed(start: u64, disk: Logical, disk_len: u64, len: u64, compression: u8) -> Self {
        Self { disk_len, compression, ..Self::whole(start, Kind::Regular, disk, len) }
    }

    /// Offset of the first byte after the item's bytes.
    pub(crate) fn end(&self) -> u64 {
        self.start.saturating_add(self.len)
    }

    pub(crate) fn is_hole(&self) -> bool {
        self.kind != Kind::Inline && self.disk.0 == 0
    }

    pub(crate) fn is_compressed(&self) -> bool {
        self.compression != 0
    }

    /// Reads as zeros without touching the disk.
    pub(crate) fn is_zeros(&self) -> bool {
        self.is_hole() || self.kind == Kind::Prealloc
    }

    /// Bytes that count in the inode's `nbytes`.
    pub(crate) fn counted_bytes(&self) -> u64 {
        if self.is_hole() { 0 } else { self.len }
    }

    /// The offset of a data reference, beside tree and inode.
    pub(crate) fn ref_offset(&self) -> u64 {
        self.start.wrapping_sub(self.offset)
    }

    /// Where the byte at `file_offset` stands on disk, for an uncompressed extent.
    pub(crate) fn disk_at(&self, file_offset: u64) -> Logical {
        let within = self.offset.saturating_add(file_offset.saturating_sub(self.start));
        Logical(self.disk.0.saturating_add(within))
    }

    /// The part of this extent that covers `range`, which must lie inside it.
    pub(crate) fn part(&self, range: Range<u64>) -> Self {
        let skipped = range.start.saturating_sub(self.start);
        let offset = if self.is_hole() { 0 } else { self.offset.saturating_add(skipped) };
        let len = range.end.saturating_sub(range.start);
        let ram_bytes = if self.is_hole() { len } else { self.ram_bytes };
        Self { start: range.start, len, offset, ram_bytes, ..*self }
    }

    /// Offset after the last sector that the item covers: an inline extent covers its first
    /// sector whatever its length.
    pub(crate) fn end_in_sectors(&self, sector: u32) -> u64 {
        let end = self.end();
        end.checked_next_multiple_of(u64::from(sector)).unwrap_or(end)
    }

    /// The value of the item at file offset `start`.
    ///
    /// # Errors
    /// [`Corrupt`] when a field is out of range.
    pub(crate) fn decode(start: u64, bytes: &[u8], sector: u32) -> Result<Self, Corrupt> {
        let disk = DiskExtent::parse(bytes)?;
        let head = disk.head();
        let extent = match disk {
            DiskExtent::Inline { .. } => Self {
                len: head.ram_bytes.get(),
                compression: head.compression,
                generation: Generation(head.generation.get()),
                ..Self::whole(start, Kind::Inline, Logical(0), 0)
            },
            DiskExtent::Extent(item) => Self {
                start,
                len: item.num_bytes.get(),
                kind: if item.is_prealloc() { Kind::Prealloc } else { Kind::Regular },
                disk: Logical(item.disk_bytenr.get()),
                disk_len: item.disk_num_bytes.get(),
                offset: item.offset.get(),
                ram_bytes: head.ram_bytes.get(),
                compression: head.compression,
                generation: Generation(head.generation.get()),
            },
        };
        if extent.kind == Kind::Inline {
            extent.check_inline(bytes)?
        } else {
            extent.check(sector)?
        };
        Ok(extent)
    }

    fn check_inline(&self, bytes: &[u8]) -> Result<(), Corrupt> {
        let stored = to_u64(bytes.len().saturating_sub(FILE_EXTENT_INLINE_START));
        if self.start != 0 {
            let found = Detail::Number(self.start);
            return Err(Corrupt::new("inline extent start", Detail::Number(0), found));
        }
        if !self.is_compressed() && self.len != stored {
            let expected = Detail::Number(stored);
            return Err(Corrupt::new("inline extent length", expected, Detail::Number(self.len)));
        }
        at_most("inline extent length", COMPRESSED_BYTES_MAX, self.len)
    }

    fn check(&self, sector: u32) -> Result<(), Corrupt> {
        for (what, value) in [
            ("file extent start", self.start),
            ("file extent length", self.len),
            ("file extent address", self.disk.0),
            ("file extent size on disk", self.disk_len),
            ("file extent offset", self.offset),
        ] {
            if !value.is_multiple_of(u64::from(sector)) {
                let expected = Detail::MultipleOf(u64::from(sector));
                return Err(Corrupt::new(what, expected, Detail::Number(value)));
            }
        }
        if self.len == 0 {
            return Err(Corrupt::new("file extent length", Detail::AtLeast(1), Detail::Number(0)));
        }
        let end = self.start.saturating_add(self.len);
        // The last sector may reach beyond the largest size, which is not aligned.
        at_most("file extent end", FILE_BYTES_MAX + 1, end)?;
        if self.is_hole() {
            return Ok(());
        }
        let used = self.offset.saturating_add(self.len);
        if self.is_compressed() {
            at_most("compressed extent size", COMPRESSED_BYTES_MAX, self.disk_len)?;
            at_most("uncompressed extent size", COMPRESSED_BYTES_MAX, self.ram_bytes)?;
            return at_most("end of file extent within its disk extent", self.ram_bytes, used);
        }
        let limit = u64::MAX - self.disk.0;
        at_most("file extent size on disk", limit, self.disk_len)?;
        at_most("end of file extent within its disk extent", self.disk_len, used)
    }

    /// The fields of the item; the data of an inline extent is added by `writeback`.
    pub(crate) fn encode(&self) -> FileExtentItem {
        let extent = NewFileExtent {
            generation: self.generation,
            compression: self.compression,
            disk: self.disk,
            disk_len: self.disk_len,
            ram_len: self.ram_bytes,
            offset: self.offset,
            len: self.len,
        };
        match self.kind {
            Kind::Prealloc => FileExtentItem::prealloc(&extent),
            Kind::Regular | Kind::Inline => FileExtentItem::regular(&extent),
        }
    }
}

fn at_most(what: &'static str, limit: u64, found: u64) -> Result<(), Corrupt> {
    if found > limit {
        return Err(Corrupt::new(what, Detail::AtMost(limit), Detail::Number(found)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use btrfs_disk::items::OnDisk;

    use super::*;

    const SECTOR: u32 = 4096;

    fn decoded(extent: &FileExtent) -> Result<FileExtent, Corrupt> {
        FileExtent::decode(extent.start, extent.encode().bytes(), SECTOR)
    }

    #[test]
    fn items_round_trip() {
        let whole = FileExtent::whole(8192, Kind::Regular, Logical(1 << 20), 16384);
        let hole = FileExtent::hole(4096..8192, Generation(7));
        let prealloc = FileExtent { kind: Kind::Prealloc, ..whole };
        for extent in [whole, hole, prealloc, whole.part(12288..16384)] {
            assert_eq!(decoded(&extent), Ok(extent));
        }
        let bytes = DiskExtent::build_inline(Generation(3), 0, 0, b"hello");
        let inline = FileExtent::decode(0, &bytes, SECTOR).unwrap();
        assert_eq!((inline.kind, inline.len, inline.end_in_sectors(SECTOR)), (Kind::Inline, 5, 4096));
    }

    #[test]
    fn items_that_lie_are_refused() {
        let good = FileExtent::whole(8192, Kind::Regular, Logical(1 << 20), 16384);
        let compressed = FileExtent { compression: 3, ram_bytes: 1 << 17, ..good };
        assert!(decoded(&compressed).is_ok());
        for bad in [
            FileExtent { start: 100, ..good },
            FileExtent { len: 0, ..good },
            FileExtent { len: 1 << 40, ..good },
            FileExtent { offset: 4096, ..good },
            FileExtent { start: 1 << 63, ..good },
            FileExtent { disk: Logical(u64::MAX - 4095), ..good },
            FileExtent { ram_bytes: 1 << 40, ..compressed },
            FileExtent { disk_len: 1 << 20, ..compressed },
            FileExtent { ram_bytes: 4096, ..compressed },
        ] {
            assert!(decoded(&bad).is_err(), "{bad:?}");
        }
        let bytes = DiskExtent::build_inline(Generation(3), 0, 0, b"hello");
        assert!(FileExtent::decode(4096, &bytes, SECTOR).is_err());
        assert!(FileExtent::decode(0, &bytes[..24], SECTOR).is_err());
    }
}
