//! Writes files that get their names when they are finished, so that a failure or a kill leaves none that looks whole.
//! `get --tar` writes archives so, and `delivery` images.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use rustix::fs::{AtFlags, CWD};
use spinney::transfer::is_emulated;
use tempfile::{NamedTempFile, TempPath};

use super::failure::{Failure, Status, is_broken_pipe};
use super::kernel::path_of;

/// A file that has no name yet. Emulators of system calls know files by their names only, and without `/proc`, which
/// Linux alone has, a file without a name has no path: in these cases it has a temporary one.
#[derive(Debug)]
pub(crate) struct Unnamed {
    file: File,
    temporary: Option<TempPath>,
}

impl Unnamed {
    /// A file in the directory of `path`.
    ///
    /// # Errors
    /// Those of the host.
    pub(crate) fn beside(path: &Path) -> Result<Self> {
        let dir = dir_of(path);
        let shown = || dir.display().to_string();
        if !is_emulated() && cfg!(target_os = "linux") {
            let file = tempfile::tempfile_in(&dir).with_context(shown)?;
            if path_of(&file).exists() {
                return Ok(Self { file, temporary: None });
            }
        }
        let (file, path) = NamedTempFile::new_in(&dir).with_context(shown)?.into_parts();
        Ok(Self { file, temporary: Some(path) })
    }

    /// A path that leads to the file as long as this lives.
    pub(crate) fn path(&self) -> PathBuf {
        self.temporary.as_ref().map_or_else(|| path_of(&self.file), |path| path.to_path_buf())
    }

    /// The file.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Makes the file durable and gives it its name. One that is to be replaced keeps the name until the new one has
    /// it.
    ///
    /// # Errors
    /// Those of the host; `AlreadyExists` for a name that is taken and not to be replaced.
    pub(crate) fn name(&self, path: &Path, replaces: bool) -> Result<()> {
        let named = || path.display().to_string();
        self.file.sync_all().with_context(named)?;
        // A directory of our own, in which nobody else can have taken a name.
        let between = tempfile::tempdir_in(dir_of(path)).with_context(named)?;
        let new = between.path().join("new");
        let linked = rustix::fs::linkat(CWD, self.path(), CWD, &new, AtFlags::SYMLINK_FOLLOW);
        match linked.map_err(std::io::Error::from) {
            // Where the file system has no files without names, this one has lost its own for good.
            Err(error) if error.kind() == ErrorKind::NotFound => self.copy(&new).with_context(named)?,
            linked => linked.with_context(named)?,
        }
        if replaces {
            return std::fs::rename(&new, path).with_context(named);
        }
        std::fs::hard_link(&new, path).with_context(named)
    }

    fn copy(&self, to: &Path) -> Result<()> {
        let mut out = File::create_new(to)?;
        std::io::copy(&mut File::open(self.path())?, &mut out)?;
        Ok(out.sync_all()?)
    }
}

/// Makes it a failure that the reader of the standard output closed it: of an image or archive a part is of no use.
///
/// # Errors
/// Those of `written`.
pub(crate) fn whole(written: Result<()>) -> Result<()> {
    match written {
        Err(error) if is_broken_pipe(&error) => {
            Err(Failure::new(Status::Io, "-: the reader closed the pipe before the end").into())
        }
        written => written,
    }
}

fn dir_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir.to_owned(),
        _ => PathBuf::from("."),
    }
}
