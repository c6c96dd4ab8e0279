//! Defines the items of the free-space tree, and the header of the older free space cache. `btrfs-store` reads and
//! writes them (`space`); check and repair compare them with the extents.
//!
//! Each block group has (start, FREE_SPACE_INFO, length). After it comes either one (start, FREE_SPACE_EXTENT, length)
//! without data per free range, or bitmaps (start, FREE_SPACE_BITMAP, length) with a set bit per free sector.

use std::fmt;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::OnDisk;
use crate::convert::{to_u64, to_usize};
use crate::flags::FreeSpaceFlags;
use crate::key::DiskKey;

/// Bytes of a full bitmap item. The last of a block group may be shorter.
pub const FREE_SPACE_BITMAP_SIZE: usize = 256;

/// Sectors of a full bitmap item.
pub const FREE_SPACE_BITMAP_BITS: u64 = 2048;

/// How a block group's free space is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct FreeSpaceInfo {
    /// Free ranges, also where they are kept as bitmaps.
    pub extent_count: U32,
    /// [`FreeSpaceFlags`].
    pub flags: U32,
}
const _: () = assert!(size_of::<FreeSpaceInfo>() == 8);

impl FreeSpaceInfo {
    /// An item from its parts. Flags have 32 bits on disk.
    #[must_use]
    pub fn new(extent_count: u32, flags: FreeSpaceFlags) -> Self {
        let bits = u32::try_from(flags.bits() & u64::from(u32::MAX)).unwrap_or(0);
        Self { extent_count: U32::new(extent_count), flags: U32::new(bits) }
    }

    /// The flags as a set.
    #[must_use]
    pub fn info_flags(&self) -> FreeSpaceFlags {
        FreeSpaceFlags::from_bits_retain(u64::from(self.flags.get()))
    }

    /// True where the ranges are kept as bitmaps.
    #[must_use]
    pub fn uses_bitmaps(&self) -> bool {
        self.info_flags().contains(FreeSpaceFlags::USING_BITMAPS)
    }
}

impl OnDisk for FreeSpaceInfo {
    const NAME: &'static str = "free space info size";
}

impl fmt::Display for FreeSpaceInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "free space info extents {} flags {}", self.extent_count, self.info_flags())
    }
}

/// Bytes of the bitmap of `len` bytes of address space.
#[must_use]
pub fn bitmap_size(len: u64, sectorsize: u32) -> usize {
    to_usize(len.checked_div(u64::from(sectorsize)).unwrap_or(len).div_ceil(8))
}

/// Whether sector number `index` is free; false past the end.
#[must_use]
pub fn bitmap_get(bitmap: &[u8], index: u64) -> bool {
    bitmap.get(to_usize(index / 8)).is_some_and(|byte| byte >> (index % 8) & 1 == 1)
}

/// Marks sector number `index` as free or used; nothing happens past the end.
pub fn bitmap_set(bitmap: &mut [u8], index: u64, is_free: bool) {
    if let Some(byte) = bitmap.get_mut(to_usize(index / 8)) {
        let bit = 1u8 << (index % 8);
        *byte = if is_free { *byte | bit } else { *byte & !bit };
    }
}

/// The free ranges of a bitmap: first sector and number of sectors, in order.
pub fn bitmap_runs(bitmap: &[u8]) -> impl Iterator<Item = (u64, u64)> + use<'_> {
    let bits = to_u64(bitmap.len()).saturating_mul(8);
    let mut next = 0;
    std::iter::from_fn(move || {
        let start = next_bit(bitmap, next, bits, true);
        if start == bits {
            return None;
        }
        next = next_bit(bitmap, start, bits, false);
        Some((start, next.saturating_sub(start)))
    })
}

/// First bit from `from` on that is `wanted`, or `bits`. Bytes without such a bit are skipped.
fn next_bit(bitmap: &[u8], from: u64, bits: u64, wanted: bool) -> u64 {
    let useless = if wanted { 0 } else { u8::MAX };
    let mut at = from;
    while at < bits {
        if at.is_multiple_of(8) && bitmap.get(to_usize(at / 8)) == Some(&useless) {
            at = at.saturating_add(8);
        } else if bitmap_get(bitmap, at) == wanted {
            return at;
        } else {
            at = at.saturating_add(1);
        }
    }
    bits
}

/// Names the file in the root tree that holds a block group's free space cache (the form before
/// the free-space tree). Key: ([`FREE_SPACE`](crate::key::objectid::FREE_SPACE), 0, start).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct FreeSpaceHeader {
    /// Key of the inode.
    pub location: DiskKey,
    /// Transaction that wrote the cache.
    pub generation: U64,
    /// Entries.
    pub num_entries: U64,
    /// Bitmaps.
    pub num_bitmaps: U64,
}
const _: () = assert!(size_of::<FreeSpaceHeader>() == 41);

impl OnDisk for FreeSpaceHeader {
    const NAME: &'static str = "free space cache header size";
}

impl fmt::Display for FreeSpaceHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "free space cache location {} generation {} entries {} bitmaps {}",
            self.location, self.generation, self.num_entries, self.num_bitmaps
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bitmaps_give_their_runs() {
        let mut bitmap = [0; 4];
        for sector in [0, 1, 7, 8, 9, 31] {
            bitmap_set(&mut bitmap, sector, true);
        }
        bitmap_set(&mut bitmap, 1, false);
        bitmap_set(&mut bitmap, 99, true);
        let runs: Vec<_> = bitmap_runs(&bitmap).collect();
        assert_eq!(runs, [(0, 1), (7, 3), (31, 1)]);
        assert!(bitmap_get(&bitmap, 31) && !bitmap_get(&bitmap, 32));
        assert_eq!(bitmap_runs(&[0xff; 3]).collect::<Vec<_>>(), [(0, 24)]);
        assert_eq!(bitmap_size(8 << 20, 4096), 256);
        assert_eq!(bitmap_size(9 * 4096, 4096), 2);
    }
}
