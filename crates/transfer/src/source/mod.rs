//! Defines `Source`, a tree that is copied from; `host` and `volume` implement it, `walk` reads it.
//!
//! A source has directories that are opened by paths, names in them, and nodes behind the names. A node is looked at
//! first, and completed (attributes, target of a link, small contents) when the transfer has decided to copy it.
//! Failure: the errors of the host or the volume, with the path where one is known.

#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod host;
mod volume;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use vfs::Metadata;
use vfs::file_system::{KnownNode, NodeKind, Xattrs};

use crate::contents::Contents;
use crate::error::{Error, Result};

#[cfg(not(target_os = "linux"))]
pub use elsewhere::HostSource;
#[cfg(target_os = "linux")]
pub use host::HostSource;
#[cfg(target_os = "linux")]
pub(crate) use host::host_metadata;
pub use volume::{VolumeFile, VolumeSource};

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// The name.
    pub name: OsString,
    /// The kind of file that the directory says it is of; it may have changed since.
    pub kind: Option<NodeKind>,
}

/// A node of a source, and its contents.
#[derive(Debug)]
pub struct Found<C> {
    /// Attributes, and what is known already of the rest. The identity is in `attr.home`.
    pub node: KnownNode,
    /// Contents of a file that are not in `node`.
    pub contents: C,
}

/// A tree to copy from. Paths are relative to its root. All methods are called from several threads.
pub trait Source: Sync {
    /// An open directory.
    type Dir: Send + Sync;
    /// Contents of an open file.
    type Contents: Contents;

    /// A directory, whose symbolic link is followed, with its attributes. The empty path is the root, which may be a
    /// file in a volume.
    ///
    /// # Errors
    /// Those of the host or the volume; all methods have them.
    fn top(&self, path: &Path) -> Result<KnownNode>;

    /// Opens a directory.
    ///
    /// # Errors
    /// See [`Source::top`].
    fn open_dir(&self, path: &Path) -> Result<Self::Dir>;

    /// The names in a directory. `failed` decides about each one that cannot be read.
    ///
    /// # Errors
    /// See [`Source::top`]; those of `failed`.
    fn names(&self, dir: &Self::Dir, failed: &mut dyn FnMut(Error) -> Result<()>) -> Result<Vec<Name>>;

    /// Metadata of a name, for an estimate.
    ///
    /// # Errors
    /// See [`Source::top`].
    fn stat(&self, dir: &Self::Dir, name: &Name) -> Result<Metadata>;

    /// Looks at several names; the results are in their order.
    fn look(&self, dir: &Self::Dir, names: &[Name]) -> Vec<Result<Found<Self::Contents>>>;

    /// Looks at one name.
    ///
    /// # Errors
    /// See [`Source::top`].
    fn look_at_one(&self, dir: &Self::Dir, name: &Name) -> Result<Found<Self::Contents>> {
        let looked = self.look(dir, std::slice::from_ref(name)).pop();
        looked.unwrap_or_else(|| Err(std::io::Error::from(std::io::ErrorKind::NotFound).into()))
    }

    /// Reads what is missing of a node: attributes, the target of a link, contents that are small and have no holes.
    ///
    /// # Errors
    /// See [`Source::top`].
    fn complete(&self, found: &mut Found<Self::Contents>) -> Result<()>;

    /// Extended attributes of a directory.
    ///
    /// # Errors
    /// See [`Source::top`].
    fn xattrs(&self, path: &Path) -> Result<Xattrs>;

    /// How many names [`Source::look`] takes at best.
    fn at_once(&self) -> usize {
        1
    }

    /// Bytes of contents that are read at once.
    fn piece_bytes(&self) -> usize;

    /// True if a directory has one name only, so that one below itself is damage.
    fn is_tree(&self) -> bool;

    /// A path for messages; `None` where the errors themselves name it.
    fn display(&self, path: &Path) -> Option<PathBuf>;
}
