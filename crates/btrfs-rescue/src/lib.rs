//! Reads a damaged btrfs file system as far as possible, without writing to it.
//!
//! ```text
//! devices --supers--> format --chunks--> Blocks (tree blocks by address; the scan, once something is missing)
//!                                          '--> State (root tree) --> Leaves of trees --> TreeView (vfs::FileSystem)
//! ```
//!
//! [`Rescue`] accepts any superblock or none, rebuilds the chunk map, and uses the root tree of the superblock, or the
//! newest or an older one from the scan. Lost tree blocks are replaced by older unreferenced leaves. The result is a
//! read-only [`vfs::Volume`] in which lost bytes read as zeros, with a list of losses ([`View::losses`]).
//!
//! Invariants:
//! - it never writes to a device;
//! - a tree block is used only if its checksum matches; block views are safe on any bytes, a tree visits each block
//!   once, and a directory has one parent;
//! - data is returned only if its checksum matches, or if it has none and is counted as unverified;
//! - every list that an image could make long has a named limit.
//!
//! How it fails: losses go to reports. [`Error`] is for devices that do not belong together or have no trace of a file
//! system, for unsupported features, and for a requested root that does not exist.
//!
//! Callers: the `spinney` library, the command line through it, and trials.

mod blocks;
mod chunks;
mod contents;
mod data;
mod error;
mod inode;
mod leaves;
mod listing;
mod locks;
mod losses;
mod orphans;
mod rescue;
mod roots;
mod scan;
mod state;
mod supers;
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
