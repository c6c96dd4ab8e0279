//! The walk: directories are opened, their names sorted and dealt out in runs.
//!
//! ```text
//! Dir --names sorted--> Run Run Run --each subdirectory--> Dir ...
//!                         \___|___/
//!                       the last one sets the directory's times
//! ```

use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result};
use vfs::{Times, Volume};

use super::create::{self, Batch, SubDir};
use super::source::{Name, Source, SourceDir};
use super::{Import, ImportOptions, data, links, named};
use crate::progress::Progress;
use crate::work::{self, Queue};

/// Names that one thread makes before another may take over. A directory's names share blocks of
/// the tree, so short runs would make the threads wait for each other.
const RUN_NAMES: usize = 256;

enum Job {
    Dir(SubDir),
    Run(Arc<OpenDir>, Range<usize>),
}

/// A directory whose names are being made.
struct OpenDir {
    dir: SourceDir,
    names: Vec<Name>,
    target: PathBuf,
    times: Times,
    /// Runs that are not finished.
    runs_left: AtomicUsize,
}

impl Name {
    /// The name as a path of one component.
    pub(super) fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(self.bytes.to_bytes()))
    }
}

/// Copies the names inside the directory `source` into the existing directory `target` of the
/// volume, which gets the metadata of `source`.
///
/// # Errors
/// The first failure of the host or the volume that is not noted.
pub fn import_contents(
    volume: &Volume,
    source: &Path,
    target: &Path,
    options: &ImportOptions,
    progress: &Progress,
) -> Result<()> {
    let import = new_import(volume, source, options, progress)?;
    let dir = import.source.open_dir(Path::new(""))?;
    let times = create::existing_directory(&import, &dir, target);
    let times = named(&import, Path::new(""), times)?;
    run(&import, SubDir { path: PathBuf::new(), target: target.to_owned(), times })
}

/// Copies the file or directory `source` to the name `target` of the volume.
///
/// # Errors
/// The first failure of the host or the volume that is not noted.
pub fn import_one(
    volume: &Volume,
    source: &Path,
    target: &Path,
    options: &ImportOptions,
    progress: &Progress,
) -> Result<()> {
    let parent = match source.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => Path::new("/"),
    };
    let name = source.file_name().context("the source has no name")?;
    let bytes = std::ffi::CString::new(name.as_bytes()).context("a name with a NUL byte")?;
    let import = new_import(volume, parent, options, progress)?;
    let dir = import.source.open_dir(Path::new(""))?;
    let name = Name { bytes, is_file: false };
    let made = create::one(&import, &mut data::new_buffer(), (&dir, &name), target.to_owned(), None);
    match named(&import, name.as_path(), made)? {
        Some(sub) => run(&import, sub),
        None => Ok(()),
    }
}

fn new_import<'a>(
    volume: &'a Volume,
    source: &Path,
    options: &'a ImportOptions,
    progress: &'a Progress,
) -> Result<Import<'a>> {
    let source = Source::open(source)?;
    let device = source.device()?;
    let links = links::Links::default();
    Ok(Import { volume, source, options, progress, links, device })
}

fn run(import: &Import<'_>, first: SubDir) -> Result<()> {
    work::run(import.options.thread_count, Job::Dir(first), data::new_buffer, |buffer, job, queue| match job {
        Job::Dir(sub) => import.note(start_dir(import, sub, queue)).map(drop),
        Job::Run(open, range) => do_run(import, buffer, &open, range, queue),
    })
}

fn start_dir(import: &Import<'_>, sub: SubDir, queue: &Queue<Job>) -> Result<()> {
    let dir = import.source.open_dir(&sub.path)?;
    let names = dir.names();
    let names = named(import, &sub.path, names.map_err(Into::into))?;
    let count = names.len();
    let run_count = count.div_ceil(RUN_NAMES);
    let runs_left = AtomicUsize::new(run_count);
    let open = OpenDir { dir, names, target: sub.target, times: sub.times, runs_left };
    if run_count == 0 {
        return finish_dir(import, &open);
    }
    let open = Arc::new(open);
    queue.add((0..run_count).map(|index| {
        let start = index * RUN_NAMES;
        Job::Run(Arc::clone(&open), start..count.min(start + RUN_NAMES))
    }));
    Ok(())
}

fn do_run(
    import: &Import<'_>,
    buffer: &mut [u8],
    open: &OpenDir,
    range: Range<usize>,
    queue: &Queue<Job>,
) -> Result<()> {
    let mut found = Vec::new();
    let mut batch = Batch::new(import);
    let about = |name: &std::ffi::CStr, error: anyhow::Error| {
        let path = open.dir.path.join(OsStr::from_bytes(name.to_bytes()));
        error.context(import.source.display(&path).display().to_string())
    };
    for name in open.names.get(range).unwrap_or_default() {
        let target = open.target.join(name.as_path());
        let made = create::one(import, buffer, (&open.dir, name), target, Some(&mut batch));
        found.extend(import.note(made.map_err(|error| about(&name.bytes, error)))?.flatten());
        if batch.is_full() {
            batch.make(import, &open.target, &about)?;
        }
    }
    batch.make(import, &open.target, &about)?;
    if !found.is_empty() {
        queue.add(found.into_iter().map(Job::Dir));
    }
    // The last one sees everything that the others did.
    if open.runs_left.fetch_sub(1, Ordering::AcqRel) == 1 {
        import.note(finish_dir(import, open))?;
    }
    Ok(())
}

fn finish_dir(import: &Import<'_>, open: &OpenDir) -> Result<()> {
    let result = import.volume.set_times(&open.target, &open.times);
    named(import, &open.dir.path, result.map_err(Into::into))
}
