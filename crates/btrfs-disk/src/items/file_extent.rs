//! Parses and builds EXTENT_DATA: the extents of a file. `extents` of `btrfs` edits them; the store, check, rescue and
//! repair read them.
//!
//! Key: (inode, EXTENT_DATA, first byte in the file). The data of an inline extent follows a
//! [`FileExtentHead`] in the item; all others are a [`FileExtentItem`].

use std::fmt;

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::OnDisk;
use crate::convert::{to_u64, to_usize};
use crate::error::{Corrupt, Detail};
use crate::{Generation, Logical};

/// `extent_type` of data in the item itself.
pub const FILE_EXTENT_INLINE: u8 = 0;
/// `extent_type` of data (or a hole) elsewhere.
pub const FILE_EXTENT_REG: u8 = 1;
/// `extent_type` of space that was allocated and not written: it reads as zeros.
pub const FILE_EXTENT_PREALLOC: u8 = 2;

/// Largest number of a compression (zstd); the numbers are `codec`'s, 0 is none.
pub const COMPRESSION_MAX: u8 = 3;

/// The part that all file extents share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct FileExtentHead {
    /// Transaction that made the extent.
    pub generation: U64,
    /// Bytes of the whole extent after decompression.
    pub ram_bytes: U64,
    /// 0 none, 1 zlib, 2 LZO, 3 zstd.
    pub compression: u8,
    /// 0: there is no other yet.
    pub encryption: u8,
    /// 0: there is no other yet.
    pub other_encoding: U16,
    /// [`FILE_EXTENT_INLINE`], [`FILE_EXTENT_REG`] or [`FILE_EXTENT_PREALLOC`].
    pub extent_type: u8,
}
const _: () = assert!(size_of::<FileExtentHead>() == 21);

/// Bytes of an inline extent before its data.
pub const FILE_EXTENT_INLINE_START: usize = size_of::<FileExtentHead>();

impl OnDisk for FileExtentHead {
    const NAME: &'static str = "file extent size";
}

impl fmt::Display for FileExtentHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.extent_type {
            FILE_EXTENT_INLINE => "inline",
            FILE_EXTENT_REG => "regular",
            FILE_EXTENT_PREALLOC => "prealloc",
            _ => "unknown",
        };
        write!(
            f,
            "{kind} extent generation {} ram_bytes {} compression {}",
            self.generation, self.ram_bytes, self.compression
        )
    }
}

/// An extent with its data outside the item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct FileExtentItem {
    /// See [`FileExtentHead`].
    pub head: FileExtentHead,
    /// Logical address of the data extent; 0 for a hole.
    pub disk_bytenr: U64,
    /// Bytes of the data extent on disk, after compression; 0 for a hole.
    pub disk_num_bytes: U64,
    /// First byte within the data extent (after decompression) that belongs to the file here.
    pub offset: U64,
    /// Bytes of the file that this extent stands for.
    pub num_bytes: U64,
}
const _: () = assert!(size_of::<FileExtentItem>() == 53);

impl OnDisk for FileExtentItem {
    const NAME: &'static str = "file extent size";
}

/// The fields of a new extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewFileExtent {
    /// Running transaction.
    pub generation: Generation,
    /// Number of the compression.
    pub compression: u8,
    /// See [`FileExtentItem::disk_bytenr`].
    pub disk: Logical,
    /// See [`FileExtentItem::disk_num_bytes`].
    pub disk_len: u64,
    /// See [`FileExtentHead::ram_bytes`].
    pub ram_len: u64,
    /// See [`FileExtentItem::offset`].
    pub offset: u64,
    /// See [`FileExtentItem::num_bytes`].
    pub len: u64,
}

impl FileExtentItem {
    /// An extent of written data.
    #[must_use]
    pub fn regular(extent: &NewFileExtent) -> Self {
        Self::with_type(extent, FILE_EXTENT_REG)
    }

    /// An extent of reserved space.
    #[must_use]
    pub fn prealloc(extent: &NewFileExtent) -> Self {
        Self::with_type(extent, FILE_EXTENT_PREALLOC)
    }

    /// `len` bytes that read as zeros.
    #[must_use]
    pub fn hole(generation: Generation, len: u64) -> Self {
        let extent =
            NewFileExtent { generation, compression: 0, disk: Logical(0), disk_len: 0, ram_len: len, offset: 0, len };
        Self::with_type(&extent, FILE_EXTENT_REG)
    }

    /// The addresses that reading the extent covers, as first byte and end; they have checksums unless the inode has
    /// none. For compressed data this is the whole data extent, even if the file uses a part of it. `None` for extents
    /// that read as zeros.
    #[must_use]
    pub fn data_range(&self) -> Option<(u64, u64)> {
        if self.is_hole() || self.is_prealloc() {
            return None;
        }
        let at = self.disk_bytenr.get();
        let (start, len) = match self.head.compression {
            0 => (at.saturating_add(self.offset.get()), self.num_bytes.get()),
            _ => (at, self.disk_num_bytes.get()),
        };
        Some((start, start.saturating_add(len)))
    }

    fn with_type(extent: &NewFileExtent, extent_type: u8) -> Self {
        Self {
            head: FileExtentHead {
                generation: U64::new(extent.generation.0),
                ram_bytes: U64::new(extent.ram_len),
                compression: extent.compression,
                encryption: 0,
                other_encoding: U16::ZERO,
                extent_type,
            },
            disk_bytenr: U64::new(extent.disk.0),
            disk_num_bytes: U64::new(extent.disk_len),
            offset: U64::new(extent.offset),
            num_bytes: U64::new(extent.len),
        }
    }

    /// True where there is no data extent.
    #[must_use]
    pub fn is_hole(&self) -> bool {
        self.disk_bytenr.get() == 0
    }

    /// True for reserved space that reads as zeros.
    #[must_use]
    pub fn is_prealloc(&self) -> bool {
        self.head.extent_type == FILE_EXTENT_PREALLOC
    }
}

impl fmt::Display for FileExtentItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} disk_bytenr {} disk_num_bytes {} offset {} num_bytes {}",
            self.head, self.disk_bytenr, self.disk_num_bytes, self.offset, self.num_bytes
        )
    }
}

/// A file extent of either form, in place.
#[derive(Clone, Copy, Debug)]
pub enum FileExtent<'a> {
    /// The data is in the item.
    Inline {
        /// Fixed part.
        head: &'a FileExtentHead,
        /// The data, compressed as `head` says.
        data: &'a [u8],
    },
    /// The data is elsewhere, is a hole, or was never written.
    Extent(&'a FileExtentItem),
}

/// The target in the `stored` bytes of a symbolic link whose inode has this `size`. As in the kernel, it ends at the
/// size or at the first NUL. Some programs store a terminating NUL (`mkfs.btrfs --rootdir`, `btrfs-convert`), and some
/// of these count it in the size.
#[must_use]
pub fn link_target(stored: &[u8], size: u64) -> &[u8] {
    let end = to_usize(size).min(stored.len());
    let within = stored.get(..end).unwrap_or(stored);
    within.split(|byte| *byte == 0).next().unwrap_or(within)
}

/// The sizes that the inode of a symbolic link may have, given its extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkSizes {
    /// All stored bytes, with a terminating NUL if there is one.
    pub stored: u64,
    /// Bytes of the target.
    pub target: u64,
}

impl LinkSizes {
    /// The sizes for an inline extent with the bytes `stored`.
    #[must_use]
    pub fn of(stored: &[u8]) -> Self {
        Self { stored: to_u64(stored.len()), target: to_u64(link_target(stored, u64::MAX).len()) }
    }

    /// Whether an inode may have this size: it counts either all stored bytes or those of the target. No size is valid
    /// for an empty target, as no reader follows such a link.
    #[must_use]
    pub fn has(self, size: u64) -> bool {
        self.target > 0 && (size == self.stored || size == self.target)
    }
}

impl<'a> FileExtent<'a> {
    /// The extent that fills `bytes`.
    ///
    /// # Errors
    /// [`Corrupt`] for an unknown type or a wrong size.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Corrupt> {
        let (head, data) = FileExtentHead::parse_prefix(bytes)?;
        match head.extent_type {
            FILE_EXTENT_INLINE => Ok(Self::Inline { head, data }),
            FILE_EXTENT_REG | FILE_EXTENT_PREALLOC => FileExtentItem::parse(bytes).map(Self::Extent),
            other => Err(Corrupt::new("file extent type", Detail::Range(0, 2), Detail::Number(u64::from(other)))),
        }
    }

    /// The part that all file extents share.
    #[must_use]
    pub fn head(&self) -> &'a FileExtentHead {
        match self {
            Self::Inline { head, .. } => head,
            Self::Extent(item) => &item.head,
        }
    }

    /// Bytes of the file that this extent stands for.
    #[must_use]
    pub fn file_len(&self) -> u64 {
        match self {
            Self::Inline { head, .. } => head.ram_bytes.get(),
            Self::Extent(item) => item.num_bytes.get(),
        }
    }

    /// The bytes of an inline extent. `data` is compressed as `compression` says, `ram_len` is
    /// its length before that.
    #[must_use]
    pub fn build_inline(generation: Generation, compression: u8, ram_len: u64, data: &[u8]) -> Vec<u8> {
        let head = FileExtentHead {
            generation: U64::new(generation.0),
            ram_bytes: U64::new(if compression == 0 { to_u64(data.len()) } else { ram_len }),
            compression,
            encryption: 0,
            other_encoding: U16::ZERO,
            extent_type: FILE_EXTENT_INLINE,
        };
        [head.as_bytes(), data].concat()
    }
}

impl fmt::Display for FileExtent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline { head, data } => write!(f, "{head} data {} bytes", data.len()),
            Self::Extent(item) => item.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_ends_with_its_size_or_a_nul() {
        for (stored, size, target, is_right) in [
            (b"abc".as_slice(), 3, b"abc".as_slice(), true),
            // As mkfs.btrfs and btrfs-convert store it, without and with the NUL in the size.
            (b"abc\0", 3, b"abc", true),
            (b"abc\0", 4, b"abc", true),
            (b"abc", 2, b"ab", false),
            (b"abc\0", 2, b"ab", false),
            (b"abc", 4, b"abc", false),
            (b"abc\0", 5, b"abc", false),
            (b"abc", 0, b"", false),
            (b"\0", 0, b"", false),
            (b"\0\0", 2, b"", false),
            (b"abc", u64::MAX, b"abc", false),
        ] {
            assert_eq!(link_target(stored, size), target, "{stored:?} {size}");
            assert_eq!(LinkSizes::of(stored).has(size), is_right, "{stored:?} {size}");
        }
    }

    #[test]
    fn both_forms_round_trip() {
        let inline = FileExtent::build_inline(Generation(3), 0, 0, b"hello");
        assert!(matches!(
            FileExtent::parse(&inline).unwrap(),
            FileExtent::Inline { data: b"hello", head } if head.ram_bytes.get() == 5
        ));
        let hole = FileExtentItem::hole(Generation(3), 4096);
        assert!(hole.is_hole() && !hole.is_prealloc());
        assert_eq!(FileExtent::parse(hole.bytes()).unwrap().file_len(), 4096);
        assert!(FileExtent::parse(&hole.bytes()[..52]).is_err());
        assert!(FileExtent::parse(&inline[..20]).is_err());
    }
}
