//! Defines DIR_LOG_INDEX: in a log tree, the range of a directory's positions that the log describes in full. Key:
//! (directory, DIR_LOG_INDEX, first position). Written by `log::record` of `btrfs`, read by `log::replay`.

use std::fmt;

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::OnDisk;

/// The item: the end of the range; its key holds the directory and the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DirLogItem {
    /// Last position of the range.
    pub end: U64,
}
const _: () = assert!(size_of::<DirLogItem>() == 8);

impl OnDisk for DirLogItem {
    const NAME: &'static str = "directory log item size";
}

impl fmt::Display for DirLogItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "directory log end {}", self.end)
    }
}
