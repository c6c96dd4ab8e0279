//! Opens files by path, with options as those of `std::fs::OpenOptions`. Programs and `Volume` use it.

use std::path::Path;

use super::file::{Access, FILE_PERMISSIONS, File};
use super::node_ref::Held;
use super::{Volume, gone};
use crate::error::Result;
use crate::file_system::{Errno, Follow, NewNode, NodeKind};

/// Most attempts to open, or else create, a file whose name other programs replace by a symbolic link and back: each
/// fails because there is one by then.
const OPEN_ATTEMPTS_MAX: u32 = 1000;

/// How to open a file; mirrors `std::fs::OpenOptions`.
#[derive(Debug, Clone)]
pub struct FileOptions {
    access: Access,
    truncate: bool,
    create: bool,
    create_new: bool,
    mode: u32,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl FileOptions {
    /// No access, until it is asked for.
    #[must_use]
    pub fn new() -> Self {
        Self { access: Access::default(), truncate: false, create: false, create_new: false, mode: FILE_PERMISSIONS }
    }

    /// For reading.
    #[must_use]
    pub fn read(mut self, read: bool) -> Self {
        self.access.read = read;
        self
    }

    /// For writing.
    #[must_use]
    pub fn write(mut self, write: bool) -> Self {
        self.access.write = write;
        self
    }

    /// For writing at the end, wherever that is by then.
    #[must_use]
    pub fn append(mut self, append: bool) -> Self {
        self.access.append = append;
        self
    }

    /// Empties the file.
    #[must_use]
    pub fn truncate(mut self, truncate: bool) -> Self {
        self.truncate = truncate;
        self
    }

    /// Creates the file if there is none.
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Creates the file, and fails if there is something of that name.
    #[must_use]
    pub fn create_new(mut self, create_new: bool) -> Self {
        self.create_new = create_new;
        self
    }

    /// Permission bits of a file that is created.
    #[must_use]
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// Opens the file at `path`. Symbolic links are followed, except when the file is to be new.
    ///
    /// # Errors
    /// `ENOENT`; `EEXIST` if it is to be new; `EISDIR` for writing; `EOPNOTSUPP` for a node that is neither file nor
    /// directory; `EINVAL` for contradicting options; `EPERM` for writing to an immutable file, and other than for
    /// appending to an append-only one; `EROFS`, `ENOSPC`.
    pub fn open(&self, volume: &Volume, path: impl AsRef<Path>) -> Result<File> {
        let path = path.as_ref();
        let file = self.open_or_create(volume, path).map_err(|error| error.during("open").at(path))?;
        if self.truncate && file.metadata()?.size > 0 {
            file.set_len(0).map_err(|error| error.during("open").at(path))?;
        }
        Ok(file)
    }

    fn open_or_create(&self, volume: &Volume, path: &Path) -> Result<File> {
        let writes = self.access.writes();
        let creates = self.create || self.create_new;
        if !writes && (!self.access.read || creates || self.truncate) {
            return Err(Errno::EINVAL.into());
        }
        for _ in 0..OPEN_ATTEMPTS_MAX {
            let follow = if self.create_new { Follow::AllButLast } else { Follow::Last };
            match volume.find(path, follow) {
                Err(error) if creates && error.is_not_found() => {}
                found => return self.open_found(volume, found?),
            }
            match self.create_file(volume, path) {
                // Another program was faster; and a symbolic link has to be followed.
                Err(error) if !self.create_new && error.errno() == Errno::EEXIST => {}
                result => return result,
            }
        }
        Err(Errno::ESTALE.into())
    }

    fn open_found(&self, volume: &Volume, found: Held<'_>) -> Result<File> {
        let refusal = match found.attr().kind {
            _ if self.create_new => Some(Errno::EEXIST),
            NodeKind::File => None,
            NodeKind::Directory if self.access.writes() => Some(Errno::EISDIR),
            NodeKind::Directory => None,
            _ => Some(Errno::EOPNOTSUPP),
        };
        if let Some(errno) = refusal {
            return Err(errno.into());
        }
        let handle = volume.fs.open(&volume.caller, found.node(), self.access.flags())?;
        Ok(File::new(volume, found.keep(), handle, self.access))
    }

    fn create_file(&self, volume: &Volume, path: &Path) -> Result<File> {
        let (dir, name) = volume.find_parent(path)?;
        let new = NewNode { permissions: self.mode, ..NewNode::default() };
        let entry = volume.fs.create(&volume.caller, dir.node(), name, &new).map_err(gone)?;
        let made = Held::new(&*volume.fs, entry);
        let handle = volume.fs.open(&volume.caller, made.node(), self.access.flags())?;
        Ok(File::new(volume, made.keep(), handle, self.access))
    }
}

impl File {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// As [`FileOptions::open`].
    pub fn open(volume: &Volume, path: impl AsRef<Path>) -> Result<Self> {
        FileOptions::new().read(true).open(volume, path)
    }

    /// Opens a file for writing; it is created or emptied.
    ///
    /// # Errors
    /// As [`FileOptions::open`].
    pub fn create(volume: &Volume, path: impl AsRef<Path>) -> Result<Self> {
        FileOptions::new().write(true).create(true).truncate(true).open(volume, path)
    }
}
