//! Defines DEV_ITEM and DEV_EXTENT: a device, and the ranges of it that chunks lie on. `btrfs-store` reads and writes
//! them, `btrfs-pool` keeps the devices' items; check and repair read them.

use std::fmt;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::OnDisk;
use crate::Uuid;

/// A device. Key: ([`DEV_ITEMS`](crate::key::objectid::DEV_ITEMS), DEV_ITEM, device number), in
/// the chunk tree; each device's superblocks repeat its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DevItem {
    /// Device number.
    pub devid: U64,
    /// Size of the device, bytes.
    pub total_bytes: U64,
    /// Bytes that dev extents take.
    pub bytes_used: U64,
    /// Preferred alignment of I/O, bytes.
    pub io_align: U32,
    /// Preferred width of I/O, bytes.
    pub io_width: U32,
    /// Smallest I/O, bytes.
    pub sector_size: U32,
    /// Unused: 0.
    pub dev_type: U64,
    /// Unused by the kernel: 0.
    pub generation: U64,
    /// First byte of the partition on its disk; unused: 0.
    pub start_offset: U64,
    /// Group for allocation; unused: 0.
    pub dev_group: U32,
    /// 0 to 100; unused: 0.
    pub seek_speed: u8,
    /// 0 to 100; unused: 0.
    pub bandwidth: u8,
    /// UUID of the device.
    pub uuid: Uuid,
    /// UUID of the file system (the metadata UUID where there is one).
    pub fsid: Uuid,
}
const _: () = assert!(size_of::<DevItem>() == 98);

impl OnDisk for DevItem {
    const NAME: &'static str = "device item size";
}

impl fmt::Display for DevItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "device {} total_bytes {} bytes_used {} sector_size {} uuid {} fsid {}",
            self.devid, self.total_bytes, self.bytes_used, self.sector_size, self.uuid, self.fsid
        )
    }
}

/// A range of a device that belongs to a chunk. Key: (device number, DEV_EXTENT, first byte),
/// in the device tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DevExtent {
    /// The chunk tree (3).
    pub chunk_tree: U64,
    /// Object id of the chunk: 256.
    pub chunk_objectid: U64,
    /// First logical address of the chunk.
    pub chunk_offset: U64,
    /// Bytes on the device.
    pub length: U64,
    /// UUID of the chunk tree, as in tree block headers.
    pub chunk_tree_uuid: Uuid,
}
const _: () = assert!(size_of::<DevExtent>() == 48);

impl OnDisk for DevExtent {
    const NAME: &'static str = "device extent size";
}

impl fmt::Display for DevExtent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device extent chunk {} length {}", self.chunk_offset, self.length)
    }
}
