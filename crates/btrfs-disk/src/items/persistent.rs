//! Defines PERSISTENT_ITEM, the error counters of a device. Key: (0, PERSISTENT_ITEM, device number). `scrub::stats` of
//! `btrfs` reads and writes it.

use std::fmt;

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::OnDisk;

/// Errors of a device since they were last reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DevStatsItem {
    /// Failed writes.
    pub write_errors: U64,
    /// Failed reads.
    pub read_errors: U64,
    /// Failed flushes.
    pub flush_errors: U64,
    /// Blocks and sectors with a wrong checksum or content.
    pub corruption_errors: U64,
    /// Tree blocks of another generation than expected.
    pub generation_errors: U64,
}
const _: () = assert!(size_of::<DevStatsItem>() == 40);

impl OnDisk for DevStatsItem {
    const NAME: &'static str = "device statistics size";
}

impl fmt::Display for DevStatsItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "device statistics write_errors {} read_errors {} flush_errors {} corruption_errors {} \
             generation_errors {}",
            self.write_errors, self.read_errors, self.flush_errors, self.corruption_errors, self.generation_errors
        )
    }
}
