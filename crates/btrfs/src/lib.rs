//! Files, directories and subvolumes on the store.

pub mod dir;
mod error;
mod extents;
mod file;
pub mod inode;
mod locks;
mod log;
mod notes;
pub mod subvol;
mod vfs_impl;
mod volume;
mod writeback;

pub use btrfs_disk::{Generation, InodeNo, TreeId};
#[cfg(feature = "ablation")]
pub use btrfs_store::ablation;
pub use btrfs_store::{Env, MakeOptions, SpaceReport};
pub use dir::{DirEntry, NewNode, NodeKind, RenameFlags, XattrMode};
pub use error::{CallerError, Error, Result};
pub use inode::{FileType, InodeFlags, Metadata, SetAttr, Times, Timestamp};
pub use subvol::{SnapshotMode, SubvolumeInfo};
pub use vfs::file_system::VolumeStatus;
pub use vfs_impl::{AtimeMode, BtrfsFs, FsOptions};
pub use volume::{
    AllocateMode, DeviceInfo, ExtentInfo, ExtentKind, File, FileOptions, ReadDir, Volume, VolumeInfo, VolumeOptions,
};
