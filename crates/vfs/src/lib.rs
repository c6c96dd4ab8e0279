//! Defines the common part of all file systems, independent of the format on disk.
//!
//! The trait [`FileSystem`] is the interface between servers (`fuse`, `remote`) and engines, which implement it;
//! programs use any implementation by paths, through [`Volume`] and [`File`], which are like `std::fs`.
//! Rules common to all formats are pure functions: access control lists, privileges that a write clears, changes of
//! access times. The page cache holds file bytes that are newer than the disk, and a [`Budget`] counts them. This crate
//! starts no I/O and depends on no format; the file system that owns the cache decides when and where pages are
//! written.

pub mod acl;
pub mod append_only;
pub mod atime;
pub mod changes;
mod errno;
mod error;
pub mod file_system;
mod number;
pub mod page_cache;
pub mod privileges;
mod volume;

pub use acl::Acl;
pub use atime::{AtimeMode, should_update_atime};
pub use error::{Blame, DevicePlace, Error, Result, Shortage};
pub use file_system::{
    Controls, Errno, FileSystem, Layout, Maintenance, NodeId, Size, SnapshotMode, Subvolumes, Trim, resolve,
};
pub use page_cache::{Budget, PageCache, Piece, Run};
pub use volume::{DirEntry, File, FileOptions, Metadata, ReadDir, Times, Volume};
