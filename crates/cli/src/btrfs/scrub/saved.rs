//! How far a scrub came, in a file of the user who scrubs: `$XDG_STATE_HOME/spinney/scrub.UUID`.
//!
//! Invariants
//! * The file is replaced as a whole: it is written under another name, synced and renamed.
//! * A lock on `scrub.UUID.lock` says that the program which scrubs is there: it goes with that program, however that
//!   ends. A file that says `running` and has no such lock tells of a scrub that was interrupted.
//! * What is read counts only where the file belongs to the user or root, nobody else may write it, it is small, of
//!   this version and of this file system.
//!
//! Failure: without a place for the file (no home directory) nothing is kept, which is said once; a file that makes no
//! sense is refused by name. Callers: the commands of `scrub`.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::status::{ScrubStatus, State};
use commands::failure::{Failure, Status};
use commands::image::is_own;
use commands::output::warn;

/// Version of the file.
const VERSION: u32 = 1;
/// Longest file that is read, in bytes.
const BYTES_MAX: u64 = 64 << 10;

#[derive(Serialize, Deserialize)]
struct Contents {
    version: u32,
    scrub: ScrubStatus,
}

/// Where the state of a file system's scrub is kept.
#[derive(Debug)]
pub(super) struct Saved {
    path: PathBuf,
    uuid: String,
    /// Held while this program scrubs.
    claim: Option<File>,
}

impl Saved {
    /// The place for a file system; none where the user has no directory for such files.
    pub(super) fn of(uuid: &str) -> Option<Self> {
        let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let base = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
        let path = base.join("spinney").join(format!("scrub.{uuid}"));
        Some(Self { path, uuid: uuid.to_owned(), claim: None })
    }

    /// The same, for who scrubs: there is one at a time.
    ///
    /// # Errors
    /// `Busy` where another program of this user scrubs it.
    pub(super) fn claim(uuid: &str) -> Result<Option<Self>> {
        let Some(saved) = Self::of(uuid) else {
            warn("how far the scrub comes is not kept: neither XDG_STATE_HOME nor HOME is set");
            return Ok(None);
        };
        match saved.lock() {
            Ok(Some(lock)) => Ok(Some(Self { claim: Some(lock), ..saved })),
            Ok(None) => Err(Failure::new(Status::Busy, "it is being scrubbed: `scrub status` tells how far").into()),
            Err(error) => {
                warn(&format!("how far the scrub comes is not kept: {error:#}"));
                Ok(None)
            }
        }
    }

    fn make_folder(&self) -> Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.with_context(|| folder.display().to_string())
    }

    /// The lock; none where another program has it.
    fn lock(&self) -> Result<Option<File>> {
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

    /// What was kept; none where there is nothing.
    ///
    /// # Errors
    /// `Corrupt` for a file that makes no sense; the host's.
    pub(super) fn load(&self) -> Result<Option<ScrubStatus>> {
        let Some(mut scrub) = self.read()? else { return Ok(None) };
        let is_there = self.claim.is_none() && self.lock().is_ok_and(|lock| lock.is_none());
        if scrub.state == State::Running && !is_there {
            scrub.state = State::Interrupted;
        }
        Ok(Some(scrub))
    }

    fn read(&self) -> Result<Option<ScrubStatus>> {
        let name = self.path.display().to_string();
        let mut options = OpenOptions::new();
        options.read(true).custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
        let file = match options.open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).context(name),
        };
        let found = file.metadata().context(name.clone())?;
        let no_sense = |why: &str| {
            Failure::new(Status::Corrupt, format!("{name}: {why}; remove it to forget how far the scrub came"))
        };
        ensure!(found.is_file() && is_own(&found), no_sense("somebody else may write it"));
        let mut text = Vec::new();
        file.take(BYTES_MAX).read_to_end(&mut text).context(name.clone())?;
        let contents: Contents = serde_json::from_slice(&text).map_err(|_| no_sense("not what a scrub keeps there"))?;
        ensure!(contents.version == VERSION, no_sense("of another version"));
        ensure!(contents.scrub.uuid == self.uuid, no_sense("of another file system"));
        Ok(Some(contents.scrub))
    }

    /// Keeps how far it is.
    ///
    /// # Errors
    /// The host's.
    pub(super) fn save(&self, scrub: &ScrubStatus) -> Result<()> {
        let text = serde_json::to_vec(&Contents { version: VERSION, scrub: scrub.clone() })?;
        self.make_folder()?;
        let new = self.path.with_extension(format!("{}.{}", self.uuid, std::process::id()));
        let write = || -> std::io::Result<()> {
            // What a program left there that was killed.
            let _ = fs::remove_file(&new);
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
            file.write_all(&text)?;
            file.sync_data()?;
            fs::rename(&new, &self.path)
        };
        write().with_context(|| self.path.display().to_string())
    }

    /// Forgets it.
    ///
    /// # Errors
    /// `Busy` while a program scrubs; the host's.
    pub(super) fn forget(&self) -> Result<()> {
        if self.path.exists() && self.claim.is_none() && self.lock()?.is_none() {
            return Err(Failure::new(Status::Busy, "it is being scrubbed: stop that program first").into());
        }
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| self.path.display().to_string())
            }
            _ => Ok(()),
        }
    }
}
