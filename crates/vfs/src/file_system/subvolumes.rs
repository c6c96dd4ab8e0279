//! Defines the trait for subvolumes, which only some formats have. An engine with them
//! implements it; `Volume`, receiving and the server of the mount's socket (`remote`) call it.

use serde::{Deserialize, Serialize};

use super::{Answer, Caller, Entry, NodeId};

/// Whether a snapshot can be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SnapshotMode {
    /// It can.
    ReadWrite,
    /// It cannot, until a caller makes it writable.
    ReadOnly,
}

/// Trees of files within one volume, each of which can be copied as a whole in constant time. A file system that has
/// them answers [`FileSystem::subvolumes`](super::FileSystem::subvolumes).
pub trait Subvolumes {
    /// Makes an empty subvolume with the name `name` in the directory `parent`. Its root belongs to the caller.
    ///
    /// # Errors
    /// As [`FileSystem::create`](super::FileSystem::create).
    fn create(&self, caller: &Caller, parent: NodeId, name: &[u8]) -> Answer<()>;

    /// Makes a snapshot of the subvolume whose root is `source`, with everything that was written to it before the
    /// call. Subvolumes inside of it are empty directories in the snapshot.
    ///
    /// # Errors
    /// `EINVAL` if `source` is no subvolume's root, and as [`Subvolumes::create`].
    fn snapshot(&self, source: NodeId, parent: NodeId, name: &[u8], mode: SnapshotMode) -> Answer<()>;

    /// Deletes the subvolume of this name with everything in it. Files of it that are open stay until they are closed.
    ///
    /// # Errors
    /// `EINVAL` when it is no subvolume, `EBUSY` when it is the default subvolume or the root of this file system,
    /// `ENOTEMPTY` when it contains other subvolumes, `EROFS`.
    fn delete(&self, parent: NodeId, name: &[u8]) -> Answer<()>;

    /// As [`Subvolumes::delete`], but only if the name still leads to the subvolume whose root is `root`: another one
    /// may have taken the name since the caller looked.
    ///
    /// # Errors
    /// As [`Subvolumes::delete`]; `ENOENT` if the name leads to another subvolume.
    fn delete_root(&self, parent: NodeId, name: &[u8], root: NodeId) -> Answer<()>;

    /// Whether the subvolume whose root is `root` is writable or read-only.
    ///
    /// # Errors
    /// `EINVAL` if `root` is no subvolume's root.
    fn mode(&self, root: NodeId) -> Answer<SnapshotMode>;

    /// Makes a subvolume read-only, or writable again.
    ///
    /// # Errors
    /// As [`Subvolumes::mode`]; `EROFS` for the volume.
    fn set_mode(&self, root: NodeId, mode: SnapshotMode) -> Answer<()>;

    /// Clears the received UUID of a subvolume.
    ///
    /// # Errors
    /// As [`Subvolumes::set_mode`].
    fn forget_received(&self, root: NodeId) -> Answer<()>;

    /// Chooses the subvolume that is opened when none is named.
    ///
    /// # Errors
    /// As [`Subvolumes::set_mode`].
    fn set_default(&self, root: NodeId) -> Answer<()>;

    /// The root of the subvolume with this number, even outside of the root of the file system. It counts as one
    /// reference.
    ///
    /// # Errors
    /// `ENOENT` if there is no such subvolume.
    fn root(&self, number: u64) -> Answer<Entry>;
}
