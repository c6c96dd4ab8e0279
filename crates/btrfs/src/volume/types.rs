//! Defines the types of reports on a volume. `info` and `map` return them to the commands `info`, `map` and `mkfs`.

use std::ffi::OsString;

use btrfs_disk::Generation;
use btrfs_disk::flags::BlockGroupFlags;

/// A volume as a whole.
#[derive(Debug, Clone)]
pub struct VolumeInfo {
    /// Label; empty when there is none.
    pub label: OsString,
    /// UUID of the file system.
    pub uuid: [u8; 16],
    /// Last committed transaction.
    pub generation: Generation,
    /// Bytes of a tree block.
    pub node_bytes: u32,
    /// Bytes of a data block.
    pub sector_bytes: u32,
    /// Name of the checksum algorithm.
    pub csum: &'static str,
    /// Bytes of all devices.
    pub total_bytes: u64,
    /// Bytes in use, each copy counted.
    pub used_bytes: u64,
    /// Names of the features the image uses.
    pub features: Vec<String>,
    /// Devices.
    pub devices: Vec<DeviceInfo>,
    /// Use of space by kind and profile.
    pub space: btrfs_store::SpaceReport,
}

/// A range of logical addresses, and where it is on the devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkInfo {
    /// First byte, as trees name it.
    pub logical: u64,
    /// Bytes.
    pub bytes: u64,
    /// Use and profile.
    pub flags: BlockGroupFlags,
    /// Numbers of the devices, and the first byte there.
    pub stripes: Vec<(u64, u64)>,
}

/// One device of a volume.
#[derive(Debug, Clone)]
pub struct DeviceInfo {
    /// Number of the device within the file system.
    pub id: u64,
    /// Path or name it was opened by.
    pub name: String,
    /// Its size.
    pub total_bytes: u64,
    /// Bytes of it that belong to chunks.
    pub allocated_bytes: u64,
    /// True when the device is absent.
    pub is_missing: bool,
}
