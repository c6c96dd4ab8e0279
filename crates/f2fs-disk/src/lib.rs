//! The f2fs on-disk format as types, and their verification.
//!
//! - [`superblock`]: where the areas of a volume lie; [`geometry`]: addresses of blocks within them
//! - [`checkpoint`]: the state that counts, with [`orphan`] and [`summary`] blocks beside it
//! - [`nat`]: where nodes are; [`sit`]: which blocks of a segment are in use
//! - [`node`]: blocks of nodes, and which of them leads to a block of a file; [`inode`]: what a file is
//! - [`dentry`]: names; [`fold`]: those that ignore case; [`xattr`] and [`acl`]: attributes
//! - [`compression`]: compressed clusters; [`verity`]: where a file's Merkle tree is; [`quota`]: quota files
//! - [`bits`]: bits of maps; [`kind`]: kinds of files
//! - [`error`]: [`Corrupt`], the only way in which this crate fails
//!
//! The facts are those of the kernel's `include/linux/f2fs_fs.h` and `Documentation/filesystems/f2fs.rst`. Nothing here
//! does I/O or keeps state; what allocates is bounded by the bytes it is given.

// What reads the disk decides with every length and index whether it can be right (STYLE 19 and 30).
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
