//! How a chunk's bytes are spread over its stripes: pure functions, one file a profile.
//!
//! A profile answers three questions about a chunk whose shape was checked when it was
//! made: which stripe holds a byte of a mirror, how far it goes on there without a break,
//! and which logical byte lies at a byte of a stripe. [`plan`] turns a logical range into
//! parts of devices with the first two, [`logical_at`] is the third. They know nothing of
//! devices beyond their number, do no I/O, and work for any number of stripes.
//!
//! Invariants: the parts of one mirror cover the range once, in logical order; parts of
//! different mirrors never share a byte of a device (chunk_map refuses overlapping stripes).
//!
//! How it fails: it does not. Profiles that are not known here are refused by name when a
//! chunk is made ([`Profile::from_flags`]). Mirrors beyond the last wrap around, and ranges
//! are cut at the end of the chunk; callers check both, so neither happens.
//!
//! Who calls it: read, write and the map from devices to logical addresses.

mod dup;
mod raid0;
mod raid1;
mod raid10;
mod single;

use std::fmt;

use btrfs_disk::convert::to_usize;
use btrfs_disk::flags::BlockGroupFlags;
use btrfs_disk::{Corrupt, Detail, DevId, Logical};

use super::chunk::Chunk;
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

    /// Bytes each stripe of `chunk` takes on its device.
    pub(super) fn stripe_bytes(self, chunk: &Chunk) -> u64 {
        match self {
            Self::Raid0 => raid0::stripe_bytes(chunk),
            Self::Raid10 => raid10::stripe_bytes(chunk),
            _ => chunk.len_bytes(),
        }
    }

    /// Where the byte at `offset` of `chunk` is stored, in the copy `mirror`.
    fn locate(self, chunk: &Chunk, offset: u64, mirror: u32) -> Place {
        let mirror = mirror % self.mirror_count();
        match self {
            Self::Single => single::locate(chunk, offset),
            Self::Dup => dup::locate(chunk, offset, mirror),
            Self::Raid0 => raid0::locate(chunk, offset),
            Self::Raid1 | Self::Raid1c3 | Self::Raid1c4 => raid1::locate(chunk, offset, mirror),
            Self::Raid10 => raid10::locate(chunk, offset, mirror),
        }
    }

    /// The offset in `chunk` of the byte at `offset` of its stripe `stripe_index`.
    fn offset_in_chunk(self, chunk: &Chunk, stripe_index: u64, offset: u64) -> u64 {
        match self {
            Self::Raid0 => raid0::offset_in_chunk(chunk, stripe_index, offset),
            Self::Raid10 => raid10::offset_in_chunk(chunk, stripe_index, offset),
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

/// What a plan is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Read one copy, by its number from 0.
    Read(u32),
    /// Write every copy.
    Write,
}

/// A run of one device that holds a run of a logical range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which copy it is, from 0.
    pub mirror: u32,
    /// The device.
    pub device: DevId,
    /// First byte on the device.
    pub device_offset: u64,
    /// First byte in the planned range, counted from the range's start.
    pub range_offset: u64,
    /// Bytes.
    pub len: u64,
}

/// A place in a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    /// Which stripe of the chunk.
    stripe_index: u64,
    /// First byte in it.
    offset: u64,
    /// Bytes that follow in the same stripe and are consecutive in the chunk too.
    run: u64,
}

/// The parts of devices that hold `len` bytes at `at`, mirror after mirror.
#[must_use]
pub fn plan(chunk: &Chunk, at: Logical, len: u64, purpose: Purpose) -> Vec<Part> {
    let mut parts = Vec::new();
    let mirrors = match purpose {
        Purpose::Read(mirror) => mirror..mirror.saturating_add(1),
        Purpose::Write => 0..chunk.profile().mirror_count(),
    };
    let start = at.0.saturating_sub(chunk.start().0);
    let len = len.min(chunk.len_bytes().saturating_sub(start));
    for mirror in mirrors {
        let mut done = 0;
        while done < len {
            let place = chunk.profile().locate(chunk, start + done, mirror);
            let stripe = &chunk.stripes()[to_usize(place.stripe_index)];
            let run = place.run.min(len - done);
            parts.push(Part {
                mirror,
                device: stripe.device,
                device_offset: stripe.offset + place.offset,
                range_offset: done,
                len: run,
            });
            done += run;
        }
    }
    parts
}

/// The logical addresses whose copies lie at `offset` of a device, for every stripe of the
/// chunk that passes the filter; ascending, each once.
#[must_use]
pub fn logical_at(chunk: &Chunk, offset: u64, is_wanted: impl Fn(DevId) -> bool) -> Vec<Logical> {
    let mut found: Vec<_> = (0..)
        .zip(chunk.stripes())
        .filter(|(_, stripe)| is_wanted(stripe.device))
        .filter_map(|(index, stripe)| {
            let in_stripe = offset.checked_sub(stripe.offset)?;
            if in_stripe >= chunk.stripe_bytes() {
                return None;
            }
            let in_chunk = chunk.profile().offset_in_chunk(chunk, index, in_stripe);
            (in_chunk < chunk.len_bytes()).then(|| Logical(chunk.start().0 + in_chunk))
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests;
