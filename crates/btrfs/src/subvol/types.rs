//! Defines the values that subvolume operations take and return. Used by `volume` and `vfs_impl`.

use std::ffi::OsString;

use btrfs_disk::{Generation, InodeNo, TreeId};

use crate::inode::Timestamp;

pub(crate) use vfs::SnapshotMode;

/// A subvolume or snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubvolumeInfo {
    /// Its number.
    pub id: TreeId,
    /// The subvolume that contains it; `None` for the top level.
    pub parent: Option<TreeId>,
    /// Inode number of the containing directory, within the parent.
    pub dir: Option<InodeNo>,
    /// Path from the top-level subvolume, without a leading slash.
    pub path: OsString,
    /// Its UUID.
    pub uuid: [u8; 16],
    /// UUID of the subvolume it is a snapshot of, or zeros.
    pub parent_uuid: [u8; 16],
    /// UUID at the sender, or zeros.
    pub received_uuid: [u8; 16],
    /// Last transaction that changed it.
    pub generation: Generation,
    /// Transaction that created it.
    pub created: Generation,
    /// Transaction of the last change to one of its files.
    pub changed: Generation,
    /// Transaction of the last change at the sender, or 0.
    pub sent: Generation,
    /// Transaction that recorded the UUID at the sender (`received_uuid`), or 0.
    pub received: Generation,
    /// When it was created.
    pub otime: Timestamp,
    /// When it was sent, or zero if that is unknown.
    pub stime: Timestamp,
    /// When it was received, or zero.
    pub rtime: Timestamp,
    /// True when nothing in it can be changed.
    pub read_only: bool,
}

/// The identity of a received subvolume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// UUID at the sender.
    pub uuid: [u8; 16],
    /// Transaction of its last change there.
    pub sent: Generation,
}
