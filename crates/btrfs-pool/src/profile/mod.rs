//! Maps a chunk's bytes to its stripes, as pure functions, one file per profile.
//!
//! Given the shape of a chunk, a profile computes the stripe and offset of a byte of a mirror, the length of the
//! contiguous run there, and the byte of the chunk at an offset of a stripe. Profiles know no addresses or devices and
//! do no I/O; `plan` turns their results into device ranges.
//!
//! Invariants: every byte of a mirror has one place, and different bytes or mirrors have different places.
//!
//! Profiles cannot fail. Unknown profiles and invalid stripe counts are refused when a chunk is created
//! ([`Profile::from_flags`]). Mirror numbers wrap around.
//!
//! Callers: `chunk` and `plan`.

mod dup;
mod raid0;
mod raid1;
mod raid10;
mod raid56;
mod single;

use std::fmt;

use btrfs_disk::convert::to_u64;
use btrfs_disk::flags::BlockGroupFlags;
use btrfs_disk::{Corrupt, Detail};

use crate::error::{Error, Result};

/// A redundancy profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Profile {
    /// One copy in one piece.
    Single,
    /// Two copies, usually on the same device.
    Dup,
    /// One copy, striped.
    Raid0,
    /// Two copies on two devices.
    Raid1,
    /// Three copies on three devices.
    Raid1c3,
    /// Four copies on four devices.
    Raid1c4,
    /// Two copies, striped over pairs of devices.
    Raid10,
    /// One copy, striped, with one parity. Read, and not written.
    Raid5,
    /// One copy, striped, with two parities. Read, and not written.
    Raid6,
}

impl Profile {
    /// The profile in these flags.
    ///
    /// # Errors
    /// `Unsupported` for remapped chunks, `Corrupt` for several profiles at once or unknown bits.
    pub fn from_flags(flags: BlockGroupFlags) -> Result<Self> {
        let profile = flags.difference(BlockGroupFlags::TYPE_MASK);
        let known = [
            (BlockGroupFlags::empty(), Self::Single),
            (BlockGroupFlags::DUP, Self::Dup),
            (BlockGroupFlags::RAID0, Self::Raid0),
            (BlockGroupFlags::RAID1, Self::Raid1),
            (BlockGroupFlags::RAID1C3, Self::Raid1c3),
            (BlockGroupFlags::RAID1C4, Self::Raid1c4),
            (BlockGroupFlags::RAID10, Self::Raid10),
            (BlockGroupFlags::RAID5, Self::Raid5),
            (BlockGroupFlags::RAID6, Self::Raid6),
        ];
        if let Some((_, found)) = known.into_iter().find(|(bit, _)| *bit == profile) {
            return Ok(found);
        }
        match profile {
            BlockGroupFlags::REMAPPED => Err(Error::unsupported("remapped chunks")),
            _ => {
                let expected = Detail::Text("at most one known profile");
                Err(Corrupt::new("chunk profile", expected, Detail::Hex(flags.bits())).into())
            }
        }
    }

    /// Its bit on disk; none for single.
    #[must_use]
    pub fn flags(self) -> BlockGroupFlags {
        match self {
            Self::Single => BlockGroupFlags::empty(),
            Self::Dup => BlockGroupFlags::DUP,
            Self::Raid0 => BlockGroupFlags::RAID0,
            Self::Raid1 => BlockGroupFlags::RAID1,
            Self::Raid1c3 => BlockGroupFlags::RAID1C3,
            Self::Raid1c4 => BlockGroupFlags::RAID1C4,
            Self::Raid10 => BlockGroupFlags::RAID10,
            Self::Raid5 => BlockGroupFlags::RAID5,
            Self::Raid6 => BlockGroupFlags::RAID6,
        }
    }

    /// Number of copies of each byte, without those that parity gives.
    #[must_use]
    pub fn mirror_count(self) -> u32 {
        match self {
            Self::Single | Self::Raid0 | Self::Raid5 | Self::Raid6 => 1,
            Self::Dup | Self::Raid1 | Self::Raid10 => 2,
            Self::Raid1c3 => 3,
            Self::Raid1c4 => 4,
        }
    }

    /// Number of parities of each row.
    #[must_use]
    pub fn parity_count(self) -> u32 {
        match self {
            Self::Raid5 => 1,
            Self::Raid6 => 2,
            _ => 0,
        }
    }

    /// The least number of devices that it can be written to.
    #[must_use]
    pub fn devices_min(self) -> usize {
        match self {
            Self::Single | Self::Dup | Self::Raid0 => 1,
            Self::Raid1 | Self::Raid10 | Self::Raid5 => 2,
            Self::Raid1c3 | Self::Raid6 => 3,
            Self::Raid1c4 => 4,
        }
    }

    /// The number of devices that may be lost without losing a byte.
    #[must_use]
    pub fn losses_max(self) -> usize {
        self.devices_min() - 1
    }

    /// The number of stripes in a row, out of `count`, that have the same contents.
    pub(super) fn alike_stripes(self, count: usize) -> usize {
        match self {
            Self::Single | Self::Raid0 | Self::Raid5 | Self::Raid6 => 1,
            Self::Raid10 => 2,
            Self::Dup | Self::Raid1 | Self::Raid1c3 | Self::Raid1c4 => count,
        }
    }

    /// Bytes of data that fit into devices with so many free bytes each, apart from rounding. No device holds two
    /// copies of a byte, but with DUP: copies that the largest devices cannot hold have to lie on the others.
    #[must_use]
    pub fn fits_in(self, free: &[u64]) -> u64 {
        let mut free = free.to_vec();
        free.sort_unstable_by_key(|bytes| std::cmp::Reverse(*bytes));
        if self.parity_count() > 0 {
            return self.fits_in_rows(&free);
        }
        let copies = self.devices_min();
        let beside = |largest: usize| -> u64 {
            let others = free.iter().skip(largest).fold(0u64, |sum, bytes| sum.saturating_add(*bytes));
            others / to_u64(copies - largest)
        };
        let bytes = (0..copies).map(beside).min().unwrap_or(0);
        if self == Self::Dup { bytes / 2 } else { bytes }
    }

    /// As [`Self::fits_in`], with rows over all devices that have room, the largest first.
    fn fits_in_rows(self, free: &[u64]) -> u64 {
        let mut bytes = 0u64;
        for (width, (least, next)) in (1u64..).zip(free.iter().zip(free.iter().skip(1).chain([&0]))) {
            if width >= to_u64(self.devices_min()) {
                let columns = width - u64::from(self.parity_count());
                bytes = bytes.saturating_add((least - next).saturating_mul(columns));
            }
        }
        bytes
    }

    /// The exact number of stripes, if the profile has one.
    pub(super) fn exact_stripe_count(self) -> Option<u64> {
        match self {
            Self::Single => Some(1),
            Self::Dup | Self::Raid1 => Some(2),
            Self::Raid1c3 => Some(3),
            Self::Raid1c4 => Some(4),
            Self::Raid0 | Self::Raid10 | Self::Raid5 | Self::Raid6 => None,
        }
    }

    /// Bytes each stripe takes on its device.
    pub(super) fn stripe_bytes(self, shape: Shape) -> u64 {
        match self {
            Self::Raid0 => raid0::stripe_bytes(shape),
            Self::Raid10 => raid10::stripe_bytes(shape),
            Self::Raid5 | Self::Raid6 => raid56::stripe_bytes(shape, self.parity_count().into()),
            _ => shape.len,
        }
    }

    /// The place of the byte at `offset` of the chunk, in the copy `mirror`.
    pub(super) fn locate(self, shape: Shape, offset: u64, mirror: u32) -> Place {
        let mirror = mirror % self.mirror_count();
        match self {
            Self::Single => single::locate(shape, offset),
            Self::Dup => dup::locate(shape, offset, mirror),
            Self::Raid0 => raid0::locate(shape, offset),
            Self::Raid1 | Self::Raid1c3 | Self::Raid1c4 => raid1::locate(shape, offset, mirror),
            Self::Raid10 => raid10::locate(shape, offset, mirror),
            Self::Raid5 | Self::Raid6 => raid56::locate(shape, self.parity_count().into(), offset),
        }
    }

    /// The chunk offset of the byte at `offset` of stripe `stripe_index`; `None` for parity.
    pub(super) fn offset_in_chunk(self, shape: Shape, stripe_index: u64, offset: u64) -> Option<u64> {
        match self {
            Self::Raid0 => Some(raid0::offset_in_chunk(shape, stripe_index, offset)),
            Self::Raid10 => Some(raid10::offset_in_chunk(shape, stripe_index, offset)),
            Self::Raid5 | Self::Raid6 => {
                raid56::offset_in_chunk(shape, self.parity_count().into(), stripe_index, offset)
            }
            _ => Some(offset),
        }
    }

    /// Columns of data in a row of a profile with parity.
    pub(super) fn data_columns(self, shape: Shape) -> u64 {
        raid56::data_columns(shape, self.parity_count().into())
    }

    /// The stripe that holds a column of a row of a profile with parity: first the data, then P, then Q.
    pub(super) fn stripe_of(shape: Shape, row: u64, column: u64) -> u64 {
        raid56::stripe_of(shape, row, column)
    }

    /// The column that a stripe holds in a row of a profile with parity.
    pub(super) fn column_of(shape: Shape, row: u64, stripe_index: u64) -> u64 {
        raid56::column_of(shape, row, stripe_index)
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Single => "single",
            Self::Dup => "DUP",
            Self::Raid0 => "RAID0",
            Self::Raid1 => "RAID1",
            Self::Raid1c3 => "RAID1C3",
            Self::Raid1c4 => "RAID1C4",
            Self::Raid10 => "RAID10",
            Self::Raid5 => "RAID5",
            Self::Raid6 => "RAID6",
        })
    }
}

/// The parameters of a chunk that its profile needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Logical bytes.
    pub(super) len: u64,
    /// Number of stripes, valid for the profile.
    pub(super) stripe_count: u64,
}

/// A place in a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Index of the stripe in the chunk.
    pub(super) stripe_index: u64,
    /// Offset in the stripe.
    pub(super) offset: u64,
    /// Bytes from there that are contiguous in both the stripe and the chunk.
    pub(super) run: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_lie_on_different_devices() {
        for (profile, free, fits) in [
            (Profile::Single, &[1, 2, 4][..], 7),
            (Profile::Dup, &[8], 4),
            (Profile::Raid0, &[3, 3], 6),
            (Profile::Raid1, &[4, 4], 4),
            (Profile::Raid1, &[1, 2, 9], 3),
            (Profile::Raid1, &[5, 5, 5], 7),
            (Profile::Raid1, &[9], 0),
            (Profile::Raid10, &[4, 4, 4, 4], 8),
            (Profile::Raid1c3, &[9, 9, 2, 1], 3),
            (Profile::Raid5, &[4, 4, 4], 8),
            (Profile::Raid5, &[9, 4, 2], 6),
            (Profile::Raid6, &[4, 4, 4, 2], 6),
            (Profile::Raid6, &[9, 9], 0),
            (Profile::Raid1c4, &[3, 3, 3], 0),
        ] {
            assert_eq!(profile.fits_in(free), fits, "{profile} in {free:?}");
        }
    }
}
