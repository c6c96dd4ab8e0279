//! Decides the targets of a copy or a move from the last argument: an existing directory, or a new name. `cp`, `put`,
//! `get`, `mv` and `ln` call it.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use spinney::vfs::{Errno, Volume};

use super::failure::Failure;

/// The destination of files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dest<'a> {
    path: &'a Path,
    is_directory: bool,
}

impl<'a> Dest<'a> {
    /// The destination of `count` files is `path`, which is a directory or not.
    ///
    /// # Errors
    /// Several files need a directory.
    pub(crate) fn new(path: &'a Path, is_directory: bool, count: usize) -> Result<Self> {
        if count > 1 && !is_directory {
            let path = path.display();
            let text = format!("{path}: not a directory, and there are several files");
            return Err(Failure::refused(text).into());
        }
        Ok(Self { path, is_directory })
    }

    /// The destination of `count` files is `path` of `volume`; a link to a directory counts as one.
    ///
    /// # Errors
    /// As [`Dest::new`]; those of reading the path.
    pub(crate) fn find(volume: &Volume, path: &'a Path, count: usize) -> Result<Self> {
        let is_directory = match volume.metadata(path) {
            Ok(found) => found.is_dir(),
            Err(error) if error.errno() == Errno::ENOENT => false,
            Err(error) => return Err(error.into()),
        };
        Self::new(path, is_directory, count)
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.is_directory
    }

    /// Path of the copy of `source`.
    ///
    /// # Errors
    /// A source without a name, such as `..`; a name that ends in a slash for a source that is not a directory.
    pub(crate) fn target(&self, source: &Path, is_source_directory: bool) -> Result<PathBuf> {
        if self.is_directory {
            let name = source.file_name();
            let name = name.ok_or_else(|| Failure::refused("a path without a name"));
            return Ok(self.path.join(name.context(source.display().to_string())?));
        }
        if self.path.as_os_str().as_bytes().ends_with(b"/") && !is_source_directory {
            let text = format!("{}: not a directory", self.path.display());
            return Err(Failure::refused(text).into());
        }
        Ok(self.path.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_into_directories() {
        let into = Dest::new(Path::new("/d"), true, 2).unwrap();
        assert_eq!(into.target(Path::new("a/b"), false).unwrap(), Path::new("/d/b"));
        assert!(into.target(Path::new(".."), true).is_err());
        assert!(Dest::new(Path::new("/d"), false, 2).is_err());
        let name = Dest::new(Path::new("/new/"), false, 1).unwrap();
        assert!(name.target(Path::new("file"), false).is_err());
        assert_eq!(name.target(Path::new("dir"), true).unwrap(), Path::new("/new/"));
    }
}
