//! Uses a volume by paths, with methods that mirror `std::fs`: the front door of every format.
//!
//! [`Volume`] is a handle that threads share, over any [`FileSystem`]. A path is resolved to a node
//! ([`FileSystem::resolve`]), which is then used; the reference to the node is released at the end of the call. Paths
//! start at the root of the file system, with or without a leading slash.
//!
//! Invariants
//! * Every error caused by a path names the path as the caller gave it.
//! * Each reference and each opening of the file system is released, even after errors.
//! * Changes are durable after [`Volume::sync`] (or [`File::sync_all`]), not before, unless flags of the file or
//!   directory require it.
//!
//! Failure: see [`crate::Error`]. Callers: the commands of the program, users of the `spinney` library, and the tests
//! of every format.

mod attributes;
mod contents;
mod file;
mod names;
mod node_ref;
mod options;
mod read_dir;
mod remove_all;
mod subvolumes;

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use portable::{OsStrExt as _, is_exact, is_separator, volume_path, with_slashes};

use crate::error::{Error, Result};
use crate::file_system::{Attr, Caller, Errno, FileSystem, Follow, VolumeStatus};

pub use attributes::Times;
pub use file::File;
pub use options::FileOptions;
pub use read_dir::{DirEntry, ReadDir};

use node_ref::{Held, Parent};

/// Attributes, as `stat` reports them.
pub type Metadata = Attr;

/// An open file system, used by paths. Clones share it, and all methods may be called from many threads at once.
#[derive(Clone)]
pub struct Volume {
    fs: Arc<dyn FileSystem>,
    caller: Caller,
}

impl std::fmt::Debug for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Volume").field("caller", &self.caller).finish_non_exhaustive()
    }
}

impl Volume {
    /// The volume of a file system. New files belong to user and group 0.
    #[must_use]
    pub fn new(fs: Arc<dyn FileSystem>) -> Self {
        Self { fs, caller: Caller::default() }
    }

    /// The same volume; new files made through it belong to this user and group.
    #[must_use]
    pub fn owner(mut self, uid: u32, gid: u32) -> Self {
        self.caller = Caller { uid, gid, pid: 0 };
        self
    }

    /// The file system: for a server, or for operations without paths.
    #[must_use]
    pub fn file_system(&self) -> &Arc<dyn FileSystem> {
        &self.fs
    }

    /// Makes everything that was changed before the call durable.
    ///
    /// # Errors
    /// As [`FileSystem::sync_fs`].
    pub fn sync(&self) -> Result<()> {
        if self.is_read_only() {
            return Ok(());
        }
        self.fs.sync_fs()
    }

    /// Syncs and closes this handle. The file system itself is closed with the last handle and the last open
    /// [`File`].
    ///
    /// # Errors
    /// As [`Volume::sync`].
    pub fn close(self) -> Result<()> {
        self.sync()
    }

    /// True when nothing can be written.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.fs.is_read_only()
    }

    /// Space of the volume, as `df` shows it.
    ///
    /// # Errors
    /// As [`FileSystem::status`].
    pub fn status(&self) -> Result<VolumeStatus> {
        self.fs.status()
    }

    /// The node that a path leads to; the reference to it is given back when the answer is dropped.
    fn find(&self, path: &Path, follow: Follow) -> Result<Held<'_>> {
        let entry = bytes_of(path).and_then(|bytes| self.fs.resolve(&bytes, follow));
        Ok(Held::new(&*self.fs, entry.map_err(|error| error.during("lookup").at(path))?))
    }

    /// The directory that a path is in, and the name in it.
    fn find_parent<'p>(&self, path: &'p Path) -> Result<(Parent<'_>, &'p [u8])> {
        let about = |error: Error| error.during("lookup").at(path);
        if !is_exact(path.as_os_str()) {
            return Err(about(Errno::EILSEQ.into()));
        }
        let (dir, name) = split(path.as_os_str().as_bytes()).map_err(about)?;
        let parent = self.find_dir(&with_slashes(dir)).map_err(about)?;
        Ok((parent, name))
    }

    /// The directory that a path leads to.
    fn find_dir(&self, dir: &[u8]) -> Result<Parent<'_>> {
        // One name for it, however it is written: file systems may remember it.
        let len = dir.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
        let dir = if len == 0 { b"/" } else { &dir[..len] };
        let at = self.fs.node_at(dir, Follow::Last)?;
        let parent = Parent::new(&*self.fs, at);
        if at.kind.is_dir() { Ok(parent) } else { Err(Errno::ENOTDIR.into()) }
    }
}

/// By paths, a directory that was removed after it was found is one that does not exist.
fn gone(error: Error) -> Error {
    if error.errno() == Errno::ESTALE { Errno::ENOENT.into() } else { error }
}

/// The bytes of a path in a volume.
///
/// # Errors
/// `EILSEQ` on Windows for a name that is not text: the volume's has other bytes.
fn bytes_of(path: &Path) -> Result<Cow<'_, [u8]>> {
    volume_path(path).ok_or_else(|| Errno::EILSEQ.into())
}

/// The directory part of a path, with its last slash, and the name at its end.
///
/// # Errors
/// `ENOENT` for an empty path, `EINVAL` for one that ends in no name (`/`, `a/..`).
fn split(path: &[u8]) -> Result<(&[u8], &[u8])> {
    let end = path.iter().rposition(|byte| !is_separator(*byte)).map_or(0, |last| last + 1);
    let start = path[..end].iter().rposition(|byte| is_separator(*byte)).map_or(0, |at| at + 1);
    let (dir, name) = (&path[..start], &path[start..end]);
    if name.is_empty() || name == b"." || name == b".." {
        return Err(if path.is_empty() { Errno::ENOENT } else { Errno::EINVAL }.into());
    }
    Ok((dir, name))
}
