//! Defines the f2fs on-disk format as types, and verifies them. The crates `f2fs` and `f2fs-check` read and write with
//! it.
//!
//! - [`superblock`]: positions of the areas of a volume; [`geometry`]: addresses of blocks within them
//! - [`checkpoint`]: the committed state, with [`orphan`] and [`summary`] blocks beside it
//! - [`nat`]: addresses of nodes; [`sit`]: used blocks of a segment
//! - [`node`]: blocks of nodes, and the path to a block of a file; [`inode`]: attributes of a file
//! - [`dentry`]: names; [`fold`]: case folding; [`xattr`] and [`acl`]: attributes
//! - [`compression`]: compressed clusters; [`verity`]: position of a file's Merkle tree; [`quota`]: quota files
//! - [`bits`]: bits of maps; [`kind`]: kinds of files
//! - [`error`]: [`Corrupt`], the only error of this crate
//!
//! The facts are those of the kernel's `include/linux/f2fs_fs.h` and `Documentation/filesystems/f2fs.rst`. Nothing here
//! does I/O or keeps state; allocations are bounded by the given bytes.

// Lengths and indexes on disk are untrusted (STYLE 19 and 30).
#![deny(clippy::indexing_slicing)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

pub mod acl;
pub mod bits;
pub mod checkpoint;
pub mod compression;
pub mod convert;
pub mod dentry;
mod disk_inode;
pub mod error;
pub mod flags;
pub mod fold;
pub mod geometry;
pub mod hash;
pub mod ids;
pub mod inode;
pub mod kind;
pub mod nat;
pub mod node;
mod on_disk;
pub mod orphan;
pub mod quota;
pub mod sit;
pub mod summary;
pub mod superblock;
pub mod verity;
pub mod xattr;

pub use error::{At, Corrupt, Detail};
pub use geometry::Geometry;
pub use ids::{Block, BlockAddr, Nid};
pub use on_disk::OnDisk;

/// Bytes of a block. Volumes with larger ones exist on kernels with larger pages; they are not read here.
pub const BLOCK_SIZE: usize = 4096;
/// Blocks of a segment.
pub const SEGMENT_BLOCKS: u32 = 512;
