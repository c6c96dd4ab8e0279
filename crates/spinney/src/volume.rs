//! [`Volume`]: an open volume of any format, which `open` and `make` give to programs and commands.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use formats::{Engine, Format, Info};
use vfs::{FileSystem, Result};

/// An open volume, used by paths as `std::fs` uses the host's files: it derefs to [`vfs::Volume`]. Clones share it, and
/// all methods may be called from many threads at once. Operations that only one format has are reached by its type:
/// [`Volume::btrfs`], [`Volume::f2fs`].
#[derive(Clone)]
pub struct Volume {
    files: vfs::Volume,
    engine: Arc<dyn Engine>,
    format: &'static dyn Format,
}

impl Volume {
    pub(crate) fn new(format: &'static dyn Format, engine: Arc<dyn Engine>) -> Self {
        Self { files: engine.volume(), engine, format }
    }

    /// Its format.
    #[must_use]
    pub fn format(&self) -> &'static dyn Format {
        self.format
    }

    /// The same volume with the operations of btrfs (subvolumes, snapshots, send, balance, ...); `None` if it is of
    /// another format.
    #[must_use]
    pub fn btrfs(&self) -> Option<&crate::btrfs::Volume> {
        self.engine.own().downcast_ref()
    }

    /// The same volume with the operations of f2fs; `None` if it is of another format.
    #[must_use]
    pub fn f2fs(&self) -> Option<&Arc<crate::f2fs::F2fs>> {
        self.engine.own().downcast_ref()
    }

    /// The facts that every format has of a volume.
    ///
    /// # Errors
    /// Damage, I/O.
    pub fn info(&self) -> Result<Info> {
        self.engine.info()
    }

    /// The file system to hand to a server, for instance that of [`crate::fuse`]; it has the `atime`, `commit_interval`
    /// and mount options that the volume was opened with. This handle stays usable meanwhile.
    ///
    /// # Errors
    /// `EIO` for damaged metadata or a failed read.
    pub fn serve(&self) -> Result<Arc<dyn FileSystem>> {
        self.engine.serve()
    }

    /// Makes everything durable and closes this handle. The volume itself is closed with its last handle and its last
    /// open [`crate::File`].
    ///
    /// # Errors
    /// As [`vfs::Volume::sync`].
    pub fn close(self) -> Result<()> {
        self.files.sync()
    }
}

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Volume").field("format", &self.format.name()).finish_non_exhaustive()
    }
}

impl Deref for Volume {
    type Target = vfs::Volume;

    fn deref(&self) -> &vfs::Volume {
        &self.files
    }
}

impl AsRef<vfs::Volume> for Volume {
    fn as_ref(&self) -> &vfs::Volume {
        &self.files
    }
}
