//! How a chunk's bytes are spread over its stripes: pure functions, one file a profile.
//!
//! A profile answers three questions about a chunk of which it knows no more than its
//! shape: which stripe holds a byte of a mirror, how far it goes on there without a break,
//! and which byte of the chunk lies at a byte of a stripe. They know nothing of addresses and
//! devices, do no I/O, and work for any number of stripes; `plan` makes parts of devices of
//! their answers.
//!
//! Invariants: every byte of a mirror has one place, and different bytes or mirrors have
//! different places.
//!
//! How it fails: it does not. Profiles that are not known here are refused by name when a
//! chunk is made ([`Profile::from_flags`]), and so are numbers of stripes that do not fit the
//! profile. Mirrors beyond the last wrap around.
//!
//! Who calls it: `chunk` and `plan`.

mod dup;
mod raid0;
mod raid1;
mod raid10;
mod single;

use std::fmt;

use btrfs_disk::flags::BlockGroupFlags;
use btrfs_disk::{Corrupt, Detail};

use crate::error::{Error, Result};

/// How a chunk is spread over its stripes.
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
}

impl Profile {
    /// The profile these flags name.
    ///
    /// # Errors
    /// `Unsupported` for RAID5 and RAID6, `Corrupt` for several profiles at once or
    /// unknown bits.
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
        ];
        if let Some((_, found)) = known.into_iter().find(|(bit, _)| *bit == profile) {
            return Ok(found);
        }
        match profile {
            BlockGroupFlags::RAID5 => Err(Error::unsupported("RAID5 chunks")),
            BlockGroupFlags::RAID6 => Err(Error::unsupported("RAID6 chunks")),
            BlockGroupFlags::REMAPPED => Err(Error::unsupported("remapped chunks")),
            _ => {
                let expected = Detail::Text("at most one known profile");
                Err(Corrupt::new("chunk profile", expected, Detail::Hex(flags.bits())).into())
            }
        }
    }

    /// The bit that names it on disk; none for single.
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
        }
    }

    /// How many times each byte is stored.
    #[must_use]
    pub fn mirror_count(self) -> u32 {
        match self {
            Self::Single | Self::Raid0 => 1,
            Self::Dup | Self::Raid1 | Self::Raid10 => 2,
            Self::Raid1c3 => 3,
            Self::Raid1c4 => 4,
        }
    }

    /// The number of stripes, where the profile fixes it.
    pub(super) fn exact_stripe_count(self) -> Option<u64> {
        match self {
            Self::Single => Some(1),
            Self::Dup | Self::Raid1 => Some(2),
            Self::Raid1c3 => Some(3),
            Self::Raid1c4 => Some(4),
            Self::Raid0 | Self::Raid10 => None,
        }
    }

    /// Bytes each stripe takes on its device.
    pub(super) fn stripe_bytes(self, shape: Shape) -> u64 {
        match self {
            Self::Raid0 => raid0::stripe_bytes(shape),
            Self::Raid10 => raid10::stripe_bytes(shape),
            _ => shape.len,
        }
    }

    /// Where the byte at `offset` of the chunk is stored, in the copy `mirror`.
    pub(super) fn locate(self, shape: Shape, offset: u64, mirror: u32) -> Place {
        let mirror = mirror % self.mirror_count();
        match self {
            Self::Single => single::locate(shape, offset),
            Self::Dup => dup::locate(shape, offset, mirror),
            Self::Raid0 => raid0::locate(shape, offset),
            Self::Raid1 | Self::Raid1c3 | Self::Raid1c4 => raid1::locate(shape, offset, mirror),
            Self::Raid10 => raid10::locate(shape, offset, mirror),
        }
    }

    /// The offset in the chunk of the byte at `offset` of its stripe `stripe_index`.
    pub(super) fn offset_in_chunk(self, shape: Shape, stripe_index: u64, offset: u64) -> u64 {
        match self {
            Self::Raid0 => raid0::offset_in_chunk(shape, stripe_index, offset),
            Self::Raid10 => raid10::offset_in_chunk(shape, stripe_index, offset),
            _ => offset,
        }
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
        })
    }
}

/// What a profile needs to know of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Logical bytes.
    pub(super) len: u64,
    /// Stripes, a number that the profile allows.
    pub(super) stripe_count: u64,
}

/// A place in a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Which stripe of the chunk.
    pub(super) stripe_index: u64,
    /// First byte in it.
    pub(super) offset: u64,
    /// Bytes that follow in the same stripe and are consecutive in the chunk too.
    pub(super) run: u64,
}
