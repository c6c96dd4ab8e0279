//! Implements `Place` of `dedupe` for a mount, whose files others may use and change meanwhile: it reads files through
//! the kernel, and asks the server to share ranges.

use std::cell::RefCell;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result};
use rustix::fs::{OFlags, StatVfs, StatVfsMountFlags};
use rustix::io::Errno;

use super::{Match, Outcome, Place};
use crate::commands::failure::Failure;
use crate::commands::failures::Failures;
use crate::commands::files::{Files, FilesArgs};
use crate::commands::kernel;

pub(super) struct Mounted {
    files: Files,
}

pub(super) struct HostFile {
    path: PathBuf,
    file: File,
    data: RefCell<Data>,
}

/// Known ranges of a file's data.
struct Data {
    runs: Vec<Range<u64>>,
    /// Offset from which on nothing is known; `None` if all is known.
    rest: Option<u64>,
}

impl Mounted {
    /// The files below `dir` that the arguments name, with paths from there. Directories that cannot be read are
    /// recorded and skipped.
    pub(super) fn find(dir: &Path, args: &FilesArgs, failures: &Failures) -> Result<Self> {
        let device = fs::metadata(dir).with_context(|| dir.display().to_string())?.dev();
        let place = rustix::fs::statvfs(dir).with_context(|| dir.display().to_string())?;
        // The kernel passes the ioctl on even where it would refuse to write.
        if is_read_only(&place) {
            return Err(Failure::refused(format!("{}: mounted for reading only", dir.display())).into());
        }
        let mut files = Files::default();
        let mut seen = std::collections::HashSet::new();
        for path in args.paths() {
            let names = path.components().filter(|part| matches!(part, Component::Normal(_)));
            if path.components().any(|part| part == Component::ParentDir) {
                return Err(Failure::refused(format!("{}: names are given without ..", path.display())).into());
            }
            let start = names.fold(dir.to_owned(), |path, name| path.join(name));
            let found = fs::symlink_metadata(&start).with_context(|| start.display().to_string())?;
            args.check_kind(path, found.is_file(), found.is_dir())?;
            let mut rest = vec![(start, found)];
            while let Some((path, found)) = rest.pop() {
                // Skips files of another mount, and further names of a listed file.
                if found.dev() != device || (found.nlink() > 1 && found.is_file() && !seen.insert(found.ino())) {
                    continue;
                }
                if found.is_file() {
                    files.add(path, found.size());
                } else if found.is_dir() {
                    rest.extend(failures.note(below(&path, failures), false)?.unwrap_or_default());
                }
            }
        }
        Ok(Self { files })
    }
}

/// The contents of a directory, without entries that disappear meanwhile; those that cannot be read are recorded.
fn below(dir: &Path, failures: &Failures) -> Result<Vec<(PathBuf, fs::Metadata)>> {
    let mut found = Vec::new();
    let mut look = |path: PathBuf| match fs::symlink_metadata(&path) {
        Ok(metadata) => {
            found.push((path, metadata));
            Ok(())
        }
        Err(error) if is_passed_over(&error) => Ok(()),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    };
    let paths =
        fs::read_dir(dir).and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>());
    match paths {
        Err(error) if is_passed_over(&error) => {}
        Err(error) => return Err(error).with_context(|| dir.display().to_string()),
        Ok(paths) => paths.into_iter().try_for_each(|path| failures.note(look(path), false).map(drop))?,
    }
    Ok(found)
}

/// True if this mount is read-only for the caller, even if its server could write.
fn is_read_only(place: &StatVfs) -> bool {
    place.f_flag.contains(StatVfsMountFlags::RDONLY)
}

fn is_passed_over(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotFound || is(error, Errno::LOOP)
}

fn is(error: &io::Error, wanted: Errno) -> bool {
    error.raw_os_error() == Some(wanted.raw_os_error())
}

/// The reason why the server refused to share.
fn refusal(path: &Path, error: io::Error) -> anyhow::Error {
    if is(&error, Errno::NOTTY) {
        let text = "its server cannot share equal ranges: it is of another version";
        return Failure::refused(format!("{}: {text}", path.display())).into();
    }
    anyhow::Error::new(error).context(path.display().to_string())
}

impl Place for Mounted {
    type File = HostFile;

    fn files(&self) -> &Files {
        &self.files
    }

    fn open(&self, path: &Path) -> Result<Option<HostFile>> {
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let open = |flags: OFlags| OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path);
        // Without changing the access time, which only the owner may request.
        let opened = open(flags | kernel::NO_ATIME).or_else(|_| open(flags));
        match opened {
            Ok(file) if file.metadata().is_ok_and(|found| found.is_file()) => {
                // Data in the kernel's cache has no extents yet.
                file.sync_data().with_context(|| path.display().to_string())?;
                let data = RefCell::new(Data { runs: Vec::new(), rest: Some(0) });
                Ok(Some(HostFile { path: path.to_owned(), file, data }))
            }
            Ok(_) => Ok(None),
            Err(error) if is_passed_over(&error) => Ok(None),
            Err(error) => Err(error).with_context(|| path.display().to_string()),
        }
    }

    fn next_data(&self, file: &HostFile, offset: u64) -> Result<Option<Range<u64>>> {
        let mut known = file.data.borrow_mut();
        loop {
            known.runs.retain(|run| run.end > offset);
            match (known.runs.first(), known.rest) {
                (Some(run), _) => return Ok(Some(run.start.max(offset)..run.end)),
                (None, None) => return Ok(None),
                (None, Some(from)) => {
                    let more = kernel::data_runs(file.file.as_fd(), from.max(offset));
                    (known.runs, known.rest) = more.map_err(|error| refusal(&file.path, error))?;
                }
            }
        }
    }

    fn read(&self, file: &HostFile, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let mut done = 0;
        while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match file.file.read_at(rest, offset.saturating_add(u64::try_from(done)?)) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).with_context(|| file.path.display().to_string()),
            }
        }
        Ok(done)
    }

    fn share(&self, source: &HostFile, target: &HostFile, found: &Match) -> Result<Outcome> {
        // Another mount may begin on the way to the file.
        let place = rustix::fs::fstatvfs(&target.file).with_context(|| target.path.display().to_string())?;
        if is_read_only(&place) {
            return Ok(Outcome::Refused);
        }
        let (from, to) = ((source.file.as_fd(), found.source_offset), (target.file.as_fd(), found.offset));
        match kernel::share_same(from, to, found.len) {
            Ok(true) => Ok(Outcome::Shared),
            Ok(false) => Ok(Outcome::Nothing),
            Err(error) if is(&error, Errno::NOSPC) || is(&error, Errno::IO) || is(&error, Errno::ROFS) => {
                Err(error).with_context(|| target.path.display().to_string())
            }
            Err(error) if is(&error, Errno::NOTTY) => Err(refusal(&target.path, error)),
            // For instance a file of another user, or one that was truncated meanwhile.
            Err(_) => Ok(Outcome::Refused),
        }
    }

    fn close(self) -> Result<()> {
        Ok(())
    }
}
