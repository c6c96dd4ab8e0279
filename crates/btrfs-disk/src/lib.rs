//! The btrfs on-disk format as types, and their verification.
//!
//! - [`key`], [`ids`]: keys and identifiers
//! - [`node`]: tree blocks, read in place
//! - [`items`]: the items in leaves, one file per item type
//! - [`superblock`]: the superblock, which refers to the root and chunk trees
//! - [`verify`]: checks of every block, before its items are used and before it is written
//! - [`error`]: [`Corrupt`], the only error of this crate
//!
//! No function allocates on a read path, does I/O or keeps state. Callers: every crate that reads or writes btrfs.

// Disk data is untrusted: code that reads it must check every length and index (STYLE 19 and 30).
#![deny(clippy::indexing_slicing)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

pub mod convert;
mod disk_superblock;
pub mod error;
pub mod flags;
pub mod hash;
pub mod ids;
pub mod items;
pub mod key;
pub mod node;
mod on_disk;
mod qgroup;
pub mod superblock;
mod uuid;
pub mod verify;

pub use error::{At, Corrupt, Detail};
pub use ids::{DevId, Generation, InodeNo, Logical, TreeId};
pub use key::{DiskKey, Key};
pub use qgroup::{NotAQgroup, QgroupId};
pub use uuid::Uuid;
