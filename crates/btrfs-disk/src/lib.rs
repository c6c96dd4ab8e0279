//! The btrfs on-disk format as types, and their verification.
//!
//! - [`key`], [`ids`]: what things are called and how they are ordered
//! - [`node`]: tree blocks, read in place
//! - [`items`]: what the leaves hold, one file an item
//! - [`superblock`]: where everything starts
//! - [`verify`]: what a block must be before anyone looks at its items, and before it is written
//! - [`error`]: [`Corrupt`], the only way in which this crate fails
//!
//! Nothing here allocates on a read path, does I/O or keeps state.

// What reads the disk decides with every length and index whether it can be right (STYLE 19 and 30).
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
