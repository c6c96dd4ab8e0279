//! Defines the operations that a model and a volume both know. `property/generate` draws them, `apply` and
//! `property/drive` do them.

use std::path::PathBuf;
use vfs::SnapshotMode;
use vfs::file_system::{AllocateFlags, NodeKind, RenameFlags, Time as Timestamp, XattrMode};

/// One change. Paths are relative to the top level; data is given by a seed so that a printed operation is short.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant's sentence speaks of its fields")]
pub enum Operation {
    /// Makes an empty regular file; fails when the name is taken.
    Create { path: PathBuf },
    /// Makes a directory.
    CreateDir { path: PathBuf },
    /// Makes a symbolic link.
    Symlink { target: PathBuf, path: PathBuf },
    /// Makes a special file.
    Node { path: PathBuf, kind: NodeKind, rdev: u32 },
    /// Gives a file one more name.
    Link { original: PathBuf, path: PathBuf },
    /// Renames.
    Rename { from: PathBuf, to: PathBuf, flags: RenameFlags },
    /// Removes a name that is no directory.
    Remove { path: PathBuf },
    /// Removes an empty directory.
    RemoveDir { path: PathBuf },
    /// Removes a directory and all below.
    RemoveAll { path: PathBuf },
    /// Writes `len` bytes made from `seed`.
    Write { path: PathBuf, offset: u64, len: u64, seed: u64 },
    /// Cuts or extends.
    SetLen { path: PathBuf, len: u64 },
    /// Preallocates, punches or zeroes.
    Allocate { path: PathBuf, mode: AllocateFlags, offset: u64, len: u64 },
    /// Shares a range of another file.
    Reflink { source: PathBuf, source_offset: u64, path: PathBuf, offset: u64, len: u64 },
    /// Lays out its contents anew, compressed if an algorithm is named.
    Defragment { path: PathBuf, compression: Option<&'static str> },
    /// Sets permission bits.
    SetMode { path: PathBuf, mode: u32 },
    /// Sets owner and group.
    SetOwner { path: PathBuf, uid: u32, gid: u32 },
    /// Sets the time of change.
    SetTime { path: PathBuf, mtime: Timestamp },
    /// Sets an attribute to `len` bytes made from `seed`.
    SetXattr { path: PathBuf, name: String, len: usize, seed: u64, mode: XattrMode },
    /// Removes an attribute.
    RemoveXattr { path: PathBuf, name: String },
    /// Makes a subvolume.
    CreateSubvolume { path: PathBuf },
    /// Makes a snapshot.
    Snapshot { source: PathBuf, path: PathBuf, mode: SnapshotMode },
    /// Deletes a subvolume.
    DeleteSubvolume { path: PathBuf },
}

impl Operation {
    /// The paths it speaks of.
    #[must_use]
    pub fn paths(&self) -> Vec<&PathBuf> {
        match self {
            Self::Link { original: other, path }
            | Self::Rename { from: other, to: path, .. }
            | Self::Reflink { source: other, path, .. }
            | Self::Snapshot { source: other, path, .. } => vec![other, path],
            Self::Create { path }
            | Self::CreateDir { path }
            | Self::Symlink { path, .. }
            | Self::Node { path, .. }
            | Self::Remove { path }
            | Self::RemoveDir { path }
            | Self::RemoveAll { path }
            | Self::Write { path, .. }
            | Self::SetLen { path, .. }
            | Self::Allocate { path, .. }
            | Self::Defragment { path, .. }
            | Self::SetMode { path, .. }
            | Self::SetOwner { path, .. }
            | Self::SetTime { path, .. }
            | Self::SetXattr { path, .. }
            | Self::RemoveXattr { path, .. }
            | Self::CreateSubvolume { path }
            | Self::DeleteSubvolume { path } => vec![path],
        }
    }
}
