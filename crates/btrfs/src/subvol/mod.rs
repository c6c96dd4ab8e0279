//! Subvolumes and snapshots.
mod types;
pub use types::{SnapshotMode, SubvolumeInfo};
