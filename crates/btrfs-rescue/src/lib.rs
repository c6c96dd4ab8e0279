//! Reads what is left of a damaged btrfs file system, without writing to it.
//!
//! ```text
//! devices --supers--> format --chunks--> Blocks (tree blocks by address; the scan, once something is missing)
//!                                          '--> State (root tree) --> Leaves of trees --> TreeView (vfs::FileSystem)
//! ```
//!
//! [`Rescue`] takes any superblock, or none; a chunk map made of what is left of it; the root tree that the superblock
//! names, or the newest or an older one that the scan found. Where blocks of a tree are lost, older leaves that nothing
//! leads to stand in for them. The result is a read-only [`vfs::Volume`] in which lost bytes read as zeros, with a list
//! of what was lost ([`View::losses`]).
//!
//! Invariants:
//! - nothing is written to a device;
//! - tree blocks are believed when their checksum is right, and no further: views of blocks are safe on any bytes, a
//!   tree block is visited once in a tree, a directory has one place;
//! - data is given out only when its checksum is right, or when there is none, and then it is counted as unverified;
//! - every list that an image could make long has a limit with a name.
//!
//! How it fails: what is lost is told in reports. [`Error`] is left for devices without a trace of a file system.
//!
//! Callers: the command line.

mod blocks;
mod chunks;
mod contents;
mod data;
mod error;
mod inode;
mod leaves;
mod listing;
mod losses;
mod orphans;
mod rescue;
mod roots;
mod scan;
mod state;
mod supers;
mod sync;
mod tree_view;
mod undelete;
mod watch;

pub use error::Error;
pub use losses::Loss;
pub use rescue::{LostFile, Missing, Older, Rescue, Undeleted, View};
pub use roots::{Root, Source};
pub use scan::RECORDS_MAX;
pub use undelete::Deleted;
pub use watch::Watch;
