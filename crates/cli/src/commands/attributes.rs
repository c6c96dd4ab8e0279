//! Formats the metadata of a file for JSON reports, the same in each of them. `ls`, `stat` and the reports of
//! subvolumes call it.

use serde::Serialize;
use spinney::vfs::Metadata;
use spinney::vfs::file_system::{NodeKind, Time};

use super::human;

/// A time: seconds since 1970-01-01 UTC, and nanoseconds.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct JsonTime {
    sec: i64,
    nsec: u32,
}

/// Metadata of a file in the reports of `ls -l`, `tree` and `stat`.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct JsonMetadata {
    /// `file`, `directory`, `symlink`, `char_device`, `block_device`, `fifo` or `socket`.
    kind: &'static str,
    /// Number of the subvolume's tree.
    tree: u64,
    /// Inode number.
    ino: u64,
    /// Permission bits in octal.
    mode: String,
    uid: u32,
    gid: u32,
    nlink: u32,
    /// Bytes.
    size: u64,
    /// Bytes allocated.
    allocated: u64,
    atime: JsonTime,
    mtime: JsonTime,
    ctime: JsonTime,
    btime: JsonTime,
    /// Major and minor number of a device node.
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<(u32, u32)>,
    generation: u64,
}

impl From<Time> for JsonTime {
    fn from(time: Time) -> Self {
        Self { sec: time.sec, nsec: time.nsec }
    }
}

impl From<&Metadata> for JsonMetadata {
    fn from(metadata: &Metadata) -> Self {
        Self {
            kind: human::kind_name(metadata.kind),
            tree: metadata.home.subvolume,
            ino: metadata.home.ino,
            mode: format!("{:04o}", metadata.permissions),
            uid: metadata.uid,
            gid: metadata.gid,
            nlink: metadata.nlink,
            size: metadata.size,
            allocated: metadata.blocks.saturating_mul(512),
            atime: metadata.atime.into(),
            mtime: metadata.mtime.into(),
            ctime: metadata.ctime.into(),
            btime: metadata.btime.into(),
            device: device(metadata),
            generation: metadata.home.generation,
        }
    }
}

/// Major and minor number, of a device node only.
pub(crate) fn device(metadata: &Metadata) -> Option<(u32, u32)> {
    let is_device = matches!(metadata.kind, NodeKind::CharDevice | NodeKind::BlockDevice);
    is_device.then(|| human::device_numbers(u64::from(metadata.rdev)))
}
