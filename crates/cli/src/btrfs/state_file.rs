//! Keeps state of a command for a file system between runs, in a file of the user: `$XDG_STATE_HOME/spinney/KIND.UUID`.
//!
//! Invariants
//! * The file is replaced as a whole: it is written under another name, synced and renamed.
//! * The contents are trusted only if the file belongs to the user or root, is not writable by others, and is small.
//!
//! Failure: without a home directory there is no file; malformed contents are refused with the path. Callers:
//! `scrub/progress_file`, and `check/marks`.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::commands::failure::{Failure, Status};
use crate::commands::image::is_own;

/// A state file.
#[derive(Debug)]
pub(super) struct Kept {
    path: PathBuf,
    uuid: String,
    /// Names the information that is lost without the file, for messages.
    about: &'static str,
}

impl Kept {
    /// The state file of a file system; `None` if the user has no directory for such files.
    pub(super) fn of(kind: &str, uuid: &str, about: &'static str) -> Option<Self> {
        let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let base = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
        let path = base.join("spinney").join(format!("{kind}.{uuid}"));
        Some(Self { path, uuid: uuid.to_owned(), about })
    }

    pub(super) fn uuid(&self) -> &str {
        &self.uuid
    }

    pub(super) fn exists(&self) -> bool {
        self.path.exists()
    }

    fn make_folder(&self) -> Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.with_context(|| folder.display().to_string())
    }

    /// A lock that is released when this process ends; `None` if another process holds it.
    ///
    /// # Errors
    /// The host's.
    pub(super) fn lock(&self) -> Result<Option<File>> {
        self.make_folder()?;
        let path = self.path.with_extension(format!("{}.lock", self.uuid));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        let file = options.open(&path).context(path.display().to_string())?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(std::io::Error::from(error)).context(path.display().to_string()),
        }
    }

    /// The refusal of malformed contents.
    pub(super) fn no_sense(&self, why: &str) -> Failure {
        let (name, about) = (self.path.display(), self.about);
        Failure::new(Status::Corrupt, format!("{name}: {why}; remove it to forget {about}"))
    }

    /// The stored contents; `None` if there is no file.
    ///
    /// # Errors
    /// `Corrupt` for malformed contents; the host's.
    pub(super) fn read<T: DeserializeOwned>(&self, bytes_max: u64) -> Result<Option<T>> {
        let name = || self.path.display().to_string();
        let mut options = OpenOptions::new();
        options.read(true).custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
        let file = match options.open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(name),
        };
        let found = file.metadata().with_context(name)?;
        ensure!(
            found.is_file() && is_own(&found),
            self.no_sense("it belongs to another user, or others may write to it")
        );
        let mut text = Vec::new();
        file.take(bytes_max).read_to_end(&mut text).with_context(name)?;
        let contents = serde_json::from_slice(&text);
        Ok(Some(contents.map_err(|_| self.no_sense("it does not have the form that Spinney writes"))?))
    }

    /// Replaces the file.
    ///
    /// # Errors
    /// The host's.
    pub(super) fn write<T: Serialize>(&self, contents: &T) -> Result<()> {
        let text = serde_json::to_vec(contents)?;
        self.make_folder()?;
        let new = self.path.with_extension(format!("{}.{}", self.uuid, std::process::id()));
        let write = || -> std::io::Result<()> {
            // A killed process may have left it.
            let _ = fs::remove_file(&new);
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
            file.write_all(&text)?;
            file.sync_data()?;
            fs::rename(&new, &self.path)
        };
        write().with_context(|| self.path.display().to_string())
    }

    /// Removes the file.
    ///
    /// # Errors
    /// The host's.
    pub(super) fn remove(&self) -> Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| self.path.display().to_string())
            }
            _ => Ok(()),
        }
    }
}
