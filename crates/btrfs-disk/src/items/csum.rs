//! Computes the layout of EXTENT_CSUM, the packed checksums of data, one a sector. Used by `verify`, check, rescue and
//! repair.
//!
//! Key: ([`EXTENT_CSUM`](crate::key::objectid::EXTENT_CSUM), EXTENT_CSUM, address of the first
//! sector). Items cover no sector twice; a sector without a checksum lies in no item.

use crate::Logical;
use crate::convert::{to_u64, to_usize, usize_from};
use crate::node;

/// Sizes that turn bytes of checksums into bytes of data and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CsumGeometry {
    /// Bytes of a sector; at least 1.
    pub sectorsize: u32,
    /// Bytes of a checksum; at least 1.
    pub csum_len: u32,
}

impl CsumGeometry {
    /// Checksums in an item of this size.
    #[must_use]
    pub fn count(self, item_size: usize) -> u64 {
        to_u64(item_size).checked_div(u64::from(self.csum_len)).unwrap_or(0)
    }

    /// Bytes of data that an item of this size covers. Cannot overflow: an item is smaller than
    /// 64 KiB, a sector at most that.
    #[must_use]
    pub fn covered_bytes(self, item_size: usize) -> u64 {
        self.count(item_size).saturating_mul(u64::from(self.sectorsize))
    }

    /// Address of the first byte behind an item's data.
    #[must_use]
    pub fn end(self, start: Logical, item_size: usize) -> Logical {
        Logical(start.0.saturating_add(self.covered_bytes(item_size)))
    }

    /// Bytes of the checksums of `data_bytes` of data; a started sector counts.
    #[must_use]
    pub fn item_size(self, data_bytes: u64) -> u64 {
        data_bytes.div_ceil(u64::from(self.sectorsize.max(1))).saturating_mul(u64::from(self.csum_len))
    }

    /// Where in an item that starts at `start` the checksum of the sector at `at` lies; `None`
    /// before the item and in the middle of a sector.
    #[must_use]
    pub fn position(self, start: Logical, at: Logical) -> Option<usize> {
        let distance = at.0.checked_sub(start.0)?;
        let sector = u64::from(self.sectorsize.max(1));
        if !distance.is_multiple_of(sector) {
            return None;
        }
        distance.checked_div(sector)?.checked_mul(u64::from(self.csum_len)).map(to_usize)
    }

    /// Most checksums that the kernel puts into one item.
    #[must_use]
    pub fn items_max(self, nodesize: u32) -> u32 {
        /// The kernel's page on most machines.
        const PAGE_SIZE: u32 = 4096;
        let room = node::leaf_data_size(nodesize).saturating_sub(2 * 25);
        room.checked_div(self.csum_len).unwrap_or(room).saturating_sub(1).min(PAGE_SIZE)
    }

    /// Most bytes that the kernel puts into one item.
    #[must_use]
    pub fn item_size_max(self, nodesize: u32) -> usize {
        usize_from(self.items_max(nodesize).saturating_mul(self.csum_len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sectors_and_checksums_convert() {
        let crc = CsumGeometry { sectorsize: 4096, csum_len: 4 };
        assert_eq!(crc.covered_bytes(12), 3 * 4096);
        assert_eq!(crc.end(Logical(8192), 8), Logical(16384));
        assert_eq!(crc.item_size(4097), 8);
        assert_eq!(crc.position(Logical(8192), Logical(16384)), Some(8));
        assert_eq!(crc.position(Logical(8192), Logical(4096)), None);
        assert_eq!(crc.position(Logical(8192), Logical(8193)), None);
        assert_eq!(crc.items_max(16384), 4057);
        assert_eq!(CsumGeometry { csum_len: 32, ..crc }.items_max(4096), 122);
    }
}
