//! The walk: directories are read, and their names made by whichever thread is free.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};
use rustix::fs::{AtFlags, FileType as HostType, Mode, OFlags};
use rustix::io::Errno;
use vfs::file_system::{KnownNode, NodeKind};
use vfs::{FileOptions, Metadata, Volume};

use super::resume::{self, Found};
use super::{Export, ExportOptions, Losses, MadeDir, contents, host, metadata};
use crate::interrupt::is_interruption;
use crate::progress::Progress;
use crate::work::{self, Queue};

/// Names that one thread makes before another may take over.
const RUN_NAMES: usize = 128;
/// Files of at most so many bytes are read in one step with all that is known about them.
const WHOLE_BYTES_MAX: usize = 1 << 20;
/// The same where several are asked for at once.
const AHEAD_BYTES_MAX: usize = 256 << 10;
/// What is being made is for its maker alone.
const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);

enum Job {
    Dir { image: PathBuf, host: PathBuf },
    Run(Arc<OpenDir>, Range<usize>),
}

/// A directory whose names are being made.
struct OpenDir {
    fd: OwnedFd,
    image: PathBuf,
    host: PathBuf,
    names: Vec<OsString>,
}

/// Copies the names inside the directory `image` of the volume into the directory `target` of the
/// host, which is made if need be and gets the metadata of `image`.
///
/// # Errors
/// The first failure that ends the copy; the others are noted.
pub(crate) fn export_contents(
    volume: &Volume,
    image: &Path,
    target: &Path,
    options: &ExportOptions,
    (progress, losses): (&Progress, &Losses),
) -> Result<()> {
    let metadata = volume.metadata(image)?;
    match std::fs::create_dir(target) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(host::at(target, error));
        }
        Err(_) if options.continues => enter_top(target)?,
        _ => {}
    }
    let export = new_export(volume, target, options, progress, losses)?;
    let dir = MadeDir { host: PathBuf::new(), image: image.to_owned(), metadata };
    run(&export, dir)
}

/// Copies the file or directory `image` of the volume to the name `target` of the host.
///
/// # Errors
/// The first failure that ends the copy; the others are noted.
pub(crate) fn export_one(
    volume: &Volume,
    image: &Path,
    target: &Path,
    options: &ExportOptions,
    (progress, losses): (&Progress, &Losses),
) -> Result<()> {
    let name = target.file_name().context("the target has no name")?;
    let parent = target.parent().unwrap_or(Path::new("."));
    let export = new_export(volume, parent, options, progress, losses)?;
    let dir = export.root.open_dir(Path::new(""))?;
    let mut buffer = contents::new_buffer();
    let made = one(&export, &mut buffer, (&dir, name), image.to_owned(), PathBuf::from(name), None);
    match export.note(made.with_context(|| target.display().to_string()))?.flatten() {
        Some(dir) => run(&export, dir),
        None => Ok(()),
    }
}

/// As [`resume::enter`], for the directory that the caller named.
fn enter_top(target: &Path) -> Result<()> {
    let Some(name) = target.file_name() else { return Ok(()) };
    // Where it is a link, the user's own, what it leads to has to be open already.
    if std::fs::symlink_metadata(target)?.is_dir() {
        let parent = host::Root::open(target.parent().unwrap_or(Path::new("")))?;
        resume::enter((&parent.open_dir(Path::new(""))?, name))?;
    }
    Ok(())
}

fn new_export<'a>(
    volume: &'a Volume,
    target: &Path,
    options: &'a ExportOptions,
    progress: &'a Progress,
    losses: &'a Losses,
) -> Result<Export<'a>> {
    let root = host::Root::open(target)?;
    let (links, dirs) = (Mutex::default(), Mutex::default());
    Ok(Export { volume, root, options, progress, losses, links, dirs })
}

fn run(export: &Export<'_>, first: MadeDir) -> Result<()> {
    let job = Job::Dir { image: first.image.clone(), host: first.host.clone() };
    lock(&export.dirs).push(first);
    let thread_count = export.options.thread_count;
    let walked = work::run(thread_count, job, contents::new_buffer, |buffer, job, queue| match job {
        Job::Dir { image, host } => {
            let started = start_dir(export, image, host, queue);
            export.note(started).map(drop)
        }
        Job::Run(open, range) => do_run(export, buffer, &open, range, queue),
    });
    // Nobody could look into what was made, were it left as it is now.
    let finished = finish_dirs(export);
    walked.and(finished)
}

impl Export<'_> {
    /// Notes a failure, unless it ends the export.
    fn note<T>(&self, result: Result<T>) -> Result<Option<T>> {
        let failures = &self.losses.failures;
        failures.note(result, self.options.fails_fast)
    }
}

fn start_dir(export: &Export<'_>, image: PathBuf, host: PathBuf, queue: &Queue<Job>) -> Result<()> {
    export.options.interrupt.check()?;
    let fd = export.root.open_dir(&host)?;
    let mut names = Vec::new();
    let named = |error: anyhow::Error| error.context(image.display().to_string());
    for entry in export.volume.read_dir(&image)? {
        // After a failure of the image there are no more names; those before are good.
        let checked = entry.map_err(anyhow::Error::from).and_then(|entry| {
            host::check_name(entry.name_bytes())?;
            Ok(entry.file_name().to_owned())
        });
        names.extend(export.note(checked.map_err(named))?);
    }
    let count = names.len();
    let open = Arc::new(OpenDir { fd, image, host, names });
    queue.add((0..count.div_ceil(RUN_NAMES)).map(|index| {
        let start = index * RUN_NAMES;
        Job::Run(Arc::clone(&open), start..count.min(start + RUN_NAMES))
    }));
    Ok(())
}

fn do_run(
    export: &Export<'_>,
    buffer: &mut [u8],
    open: &OpenDir,
    range: Range<usize>,
    queue: &Queue<Job>,
) -> Result<()> {
    let mut found = Vec::new();
    let names = open.names.get(range).unwrap_or_default();
    let at_once = export.volume.at_once();
    let mut ahead = VecDeque::new();
    for (index, name) in names.iter().enumerate() {
        if at_once > 1 && ahead.is_empty() {
            let next = names.iter().skip(index).take(at_once);
            let paths: Vec<PathBuf> = next.map(|name| open.image.join(name)).collect();
            ahead.extend(export.volume.read_nodes(&paths, AHEAD_BYTES_MAX));
        }
        let (image, host) = (open.image.join(name), open.host.join(name));
        let path = export.root.display(&host);
        let made = one(export, buffer, (&open.fd, name), image, host, ahead.pop_front());
        match export.note(made.with_context(|| path.display().to_string())) {
            Ok(made) => found.extend(made.flatten()),
            Err(error) => {
                // Directories that were made get their metadata at the end all the same.
                lock(&export.dirs).append(&mut found);
                return Err(error);
            }
        }
    }
    if !found.is_empty() {
        let jobs = found.iter().map(|dir| Job::Dir { image: dir.image.clone(), host: dir.host.clone() });
        queue.add(jobs);
        lock(&export.dirs).append(&mut found);
    }
    Ok(())
}

/// Makes one name on the host. Returns a directory whose names are to be made next.
fn one(
    export: &Export<'_>,
    buffer: &mut [u8],
    (dir, name): (&OwnedFd, &OsStr),
    image: PathBuf,
    host: PathBuf,
    known: Option<vfs::Result<KnownNode>>,
) -> Result<Option<MadeDir>> {
    export.options.interrupt.check()?;
    host::check_name(name.as_bytes())?;
    let known = known.unwrap_or_else(|| export.volume.read_node(&image, WHOLE_BYTES_MAX))?;
    let metadata = known.attr;
    if metadata.is_dir() {
        let is_new = host::make_dir(dir, name)?;
        if !is_new && export.options.continues {
            resume::enter((dir, name))?;
        }
        export.progress.add_name();
        return Ok(Some(MadeDir { host, image, metadata }));
    }
    let place = (dir, name);
    make_or_link(export, buffer, place, (image, host), &known)?;
    export.progress.add_name();
    Ok(None)
}

fn make_or_link(
    export: &Export<'_>,
    buffer: &mut [u8],
    place: (&OwnedFd, &OsStr),
    (image, host): (PathBuf, PathBuf),
    known: &KnownNode,
) -> Result<()> {
    let metadata = &known.attr;
    if metadata.nlink < 2 {
        return make(export, buffer, place, &image, known).map(drop);
    }
    // Held until the file is there, so that no second thread links to what is not.
    let mut links = lock(&export.links);
    let id = (metadata.home.subvolume, metadata.home.ino);
    if let Some(first) = links.get(&id) {
        link(export, place, first, (&image, metadata))?;
    } else if make(export, buffer, place, &image, known)? {
        links.insert(id, host);
    }
    Ok(())
}

/// Makes what is not a directory; false where the host does not permit it.
fn make(
    export: &Export<'_>,
    buffer: &mut [u8],
    place: (&OwnedFd, &OsStr),
    image: &Path,
    known: &KnownNode,
) -> Result<bool> {
    let metadata = &known.attr;
    let is_device = matches!(metadata.kind, NodeKind::CharDevice | NodeKind::BlockDevice);
    if is_device && !export.options.makes_devices {
        export.losses.withheld_nodes.fetch_add(1, Ordering::Relaxed);
        return Ok(false);
    }
    let found = match export.options.continues {
        true => resume::look(export, place, image, metadata)?,
        false => Found::Nothing,
    };
    if found == Found::Whole {
        export.losses.found.fetch_add(1, Ordering::Relaxed);
        return Ok(true);
    }
    // Device nodes are not replaced: this one gets what it lacks.
    if found == Found::Begun && is_device {
        return metadata::apply_name(export, place, image, known).map(|()| true);
    }
    let replaces = export.options.replaces || found == Found::Begun;
    if metadata.is_file() {
        return make_file(export, buffer, place, (image, known), replaces).map(|()| true);
    }
    make_special(export, place, (image, known), replaces)
}

fn make_file(
    export: &Export<'_>,
    buffer: &mut [u8],
    (dir, name): (&OwnedFd, &OsStr),
    (image, known): (&Path, &KnownNode),
    replaces: bool,
) -> Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || rustix::fs::openat(dir, name, flags, PRIVATE);
    let fd = host::make_new(dir, name, replaces, open)?;
    let filled = fill(export, buffer, &fd, image, known);
    let made = filled.and_then(|()| metadata::apply_open(export, &fd, image, (&known.attr, known.xattrs.as_ref())));
    if made.as_ref().is_err_and(|error| !export.options.keeps_partial || is_interruption(error)) {
        host::take_away((dir, name), &fd);
    }
    made
}

fn make_special(
    export: &Export<'_>,
    (dir, name): (&OwnedFd, &OsStr),
    (image, known): (&Path, &KnownNode),
    replaces: bool,
) -> Result<bool> {
    let metadata = &known.attr;
    let node = match metadata.kind {
        NodeKind::File | NodeKind::Directory => return Ok(true),
        NodeKind::Symlink => None,
        NodeKind::Fifo => Some(HostType::Fifo),
        NodeKind::Socket => Some(HostType::Socket),
        NodeKind::CharDevice => Some(HostType::CharacterDevice),
        NodeKind::BlockDevice => Some(HostType::BlockDevice),
    };
    let made = match node {
        None => {
            let target = match &known.target {
                Some(target) => PathBuf::from(OsStr::from_bytes(target)),
                None => export.volume.read_link(image)?,
            };
            host::make_new(dir, name, replaces, || rustix::fs::symlinkat(&target, dir, name))
        }
        Some(kind) => host::make_new(dir, name, replaces, || {
            rustix::fs::mknodat(dir, name, kind, PRIVATE, u64::from(metadata.rdev))
        }),
    };
    if made == Err(Errno::PERM) && node.is_some() {
        export.losses.nodes.fetch_add(1, Ordering::Relaxed);
        return Ok(false);
    }
    made?;
    metadata::apply_name(export, (dir, name), image, known)?;
    Ok(true)
}

fn fill(export: &Export<'_>, buffer: &mut [u8], fd: &OwnedFd, image: &Path, known: &KnownNode) -> Result<()> {
    let metadata = &known.attr;
    if metadata.size == 0 {
        return Ok(());
    }
    if let Some(data) = &known.data {
        return put(export, fd, 0, data).map(drop);
    }
    let file = FileOptions::new().read(true).open(export.volume, image)?;
    let mut end = 0;
    contents::copy_sparse((&file, image), metadata.size, buffer, |at, part| {
        end = put(export, fd, at, part)?;
        Ok(())
    })?;
    if end < metadata.size {
        rustix::fs::ftruncate(fd, metadata.size)?;
    }
    Ok(())
}

/// Writes a piece; returns where it ends.
fn put(export: &Export<'_>, fd: &OwnedFd, mut at: u64, mut part: &[u8]) -> Result<u64> {
    while !part.is_empty() {
        export.options.interrupt.check()?;
        match rustix::io::pwrite(fd, part, at) {
            Err(Errno::INTR) => {}
            count => {
                let count = count?;
                part = part.get(count..).unwrap_or_default();
                let count = u64::try_from(count)?;
                export.progress.add_bytes(count);
                at += count;
            }
        }
    }
    Ok(at)
}

fn link(
    export: &Export<'_>,
    (dir, name): (&OwnedFd, &OsStr),
    first: &Path,
    (image, metadata): (&Path, &Metadata),
) -> Result<()> {
    let parent = export.root.open_dir(first.parent().unwrap_or(Path::new("")))?;
    let first = first.file_name().unwrap_or_default();
    let mut replaces = export.options.replaces;
    if export.options.continues {
        if resume::is_linked((dir, name), (&parent, first))? {
            export.losses.found.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        // The interrupted copy may have begun with another of the names.
        let found = resume::look(export, (dir, name), image, metadata)?;
        replaces |= matches!(found, Found::Whole | Found::Begun);
    }
    host::make_new(dir, name, replaces, || rustix::fs::linkat(&parent, first, dir, name, AtFlags::empty()))?;
    Ok(())
}

/// Gives the directories their metadata, children before parents: a parent may then become
/// unsearchable, and keeps its times.
fn finish_dirs(export: &Export<'_>) -> Result<()> {
    let mut dirs = std::mem::take(&mut *lock(&export.dirs));
    dirs.sort_unstable_by(|a, b| b.host.cmp(&a.host));
    let mut failure = Ok(());
    for dir in dirs {
        let applied = export.root.open_dir(&dir.host).and_then(|fd| {
            metadata::apply_open(export, &fd, &dir.image, (&dir.metadata, None))
                .with_context(|| export.root.display(&dir.host).display().to_string())
        });
        failure = failure.and(export.note(applied).map(drop));
    }
    failure
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
