//! What every file system has in common, whatever its format on disk.
//!
//! The trait [`FileSystem`] is the border between servers and formats. The passive page cache
//! holds file bytes which are newer than the disk, and the budget that bounds them. Nothing here
//! starts I/O, knows a format or calls up; the file system above decides when pages are written
//! and what an address on disk is.

pub mod file_system;
pub mod page_cache;

pub use file_system::{Errno, FileSystem, NodeId};
pub use page_cache::{Budget, PageCache, Piece, Run};
