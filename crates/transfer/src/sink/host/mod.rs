//! Implements a sink over a directory of the host. `get` and `cp` of the program copy to it, and the rescue.
//!
//! Files get their contents with holes left out, owner, mode, times and attributes. Directories are private (0700)
//! while they are filled and get their metadata at the end, children before parents: a parent may then become
//! unsearchable.
//!
//! Invariants
//! * Nothing is written outside the target: directories are opened from it with symbolic links forbidden, names that
//!   are no plain names are refused, and what is made must not exist.
//! * An existing directory is merged into; another existing file is only replaced on request, by removing its name.
//!   Existing symbolic links are never followed, nor is anything written through an existing name.
//! * A transfer that continues an interrupted one leaves what is whole and replaces what was begun (`resume`).
//! * Set-user and set-group bits are not given to a file that did not get its owner.
//! * A node that is made by its name (a link, a pipe, a device) gets its metadata through a handle, which is checked to
//!   be of the file that was made: another program may put another file in its place.
//!
//! Owners, device nodes and attributes that the host does not permit are left out, and reported as a [`Loss`].

mod metadata;
mod resume;
mod root;

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, FileType as HostType, Mode, OFlags};
use rustix::io::Errno;
use vfs::Metadata;
use vfs::file_system::{NodeKind, Xattrs};

use self::metadata::Given;
use self::resume::Found;
use self::root::{Place, Root};
use super::{Existing, HostOptions, Item, Made, Sink};
use crate::contents::copy_data;
use crate::error::{Error, Result};
use crate::observer::{Loss, Observer};
use crate::rules::{check_name, is_device};

/// Mode of a file that is being made.
const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);

/// A directory of the host. The caller sets the `umask` to 0 if modes are to be exact.
#[derive(Debug)]
pub struct HostSink {
    root: Root,
    options: HostOptions,
    /// Directories that wait for their metadata.
    dirs: Mutex<Vec<MadeDir>>,
}

/// A directory that was made, or found.
#[derive(Debug)]
struct MadeDir {
    from: PathBuf,
    to: PathBuf,
    attr: Metadata,
}

impl HostSink {
    /// Opens a directory that exists; a symbolic link at `path` is followed.
    ///
    /// # Errors
    /// Those of the host; [`crate::Cause::Emulator`].
    pub fn open(path: impl AsRef<Path>, options: HostOptions) -> Result<Self> {
        Ok(Self { root: Root::open(path.as_ref())?, options, dirs: Mutex::default() })
    }

    /// Makes the directory if there is none, and opens it.
    ///
    /// # Errors
    /// As [`HostSink::open`].
    pub fn create(path: impl AsRef<Path>, options: HostOptions) -> Result<Self> {
        let path = path.as_ref();
        match std::fs::create_dir(path) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(Error::from(error).about(path));
            }
            Err(_) if options.continues => enter_top(path)?,
            _ => {}
        }
        Self::open(path, options)
    }

    fn dirs(&self) -> MutexGuard<'_, Vec<MadeDir>> {
        self.dirs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add_dir(&self, item: &Item<'_>) {
        let (from, to) = (item.from.to_owned(), item.to.to_owned());
        self.dirs().push(MadeDir { from, to, attr: item.node.attr });
    }

    fn given<'a>(&self, item: &Item<'a>) -> Given<'a> {
        Given::of(item.node, self.options.keeps_owners, item.watch)
    }

    fn make_file(&self, place: Place<'_>, item: &Item<'_>, replaces: bool, buffer: &mut [u8]) -> Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = || rustix::fs::openat(place.dir, place.name, flags, PRIVATE);
        let fd = root::make_new(place, replaces, open)?;
        let made = fill_file(&fd, item, buffer).and_then(|()| self.given(item).to_open(&fd));
        if made.as_ref().is_err_and(|error| !self.options.keeps_partial || error.is_cancelled()) {
            root::take_away(place, &fd);
        }
        made
    }

    /// Makes a symbolic link or a special file.
    fn make_special(&self, place: Place<'_>, item: &Item<'_>, replaces: bool) -> Result<Made> {
        let Place { dir, name } = place;
        let node = match item.node.attr.kind {
            NodeKind::File | NodeKind::Directory => return Ok(Made::Whole),
            NodeKind::Symlink => None,
            NodeKind::Fifo => Some(HostType::Fifo),
            NodeKind::Socket => Some(HostType::Socket),
            NodeKind::CharDevice => Some(HostType::CharacterDevice),
            NodeKind::BlockDevice => Some(HostType::BlockDevice),
        };
        let device = u64::from(item.node.attr.rdev);
        let made = match node {
            None => {
                let target = OsStr::from_bytes(item.node.target.as_deref().unwrap_or_default());
                root::make_new(place, replaces, || rustix::fs::symlinkat(target, dir, name))
            }
            Some(kind) => root::make_new(place, replaces, || rustix::fs::mknodat(dir, name, kind, PRIVATE, device)),
        };
        if made == Err(Errno::PERM) && node.is_some() {
            item.watch.lost(Loss::Device);
            return Ok(Made::Left);
        }
        made?;
        self.given(item).to_name(place)?;
        Ok(Made::Whole)
    }
}

/// As [`resume::enter`], for the directory that the caller named.
fn enter_top(target: &Path) -> Result<()> {
    let Some(name) = target.file_name() else { return Ok(()) };
    // A link is the user's own, and its target has to be accessible already.
    if std::fs::symlink_metadata(target)?.is_dir() {
        let parent = Root::open(target.parent().unwrap_or(Path::new("")))?;
        resume::enter(Place { dir: &parent.open_dir(Path::new(""))?, name })?;
    }
    Ok(())
}

fn fill_file(fd: &OwnedFd, item: &Item<'_>, buffer: &mut [u8]) -> Result<()> {
    let size = item.node.attr.size;
    if let Some(data) = &item.node.data {
        return write_all(fd, item.watch, 0, data);
    }
    if size == 0 {
        return Ok(());
    }
    let end = copy_data(item.contents, size, buffer, |at, part| write_all(fd, item.watch, at, part))?;
    let len = item.copied_len(end)?;
    if end.at < len {
        rustix::fs::ftruncate(fd, len)?;
    }
    Ok(())
}

fn write_all(fd: &OwnedFd, watch: &dyn Observer, mut at: u64, mut part: &[u8]) -> Result<()> {
    while !part.is_empty() {
        watch.check()?;
        match rustix::io::pwrite(fd, part, at) {
            Err(Errno::INTR) => {}
            count => {
                let count = count?;
                part = part.get(count..).unwrap_or_default();
                let count = u64::try_from(count).unwrap_or(u64::MAX);
                watch.copied(count);
                at = at.saturating_add(count);
            }
        }
    }
    Ok(())
}

impl Sink for HostSink {
    type Dir = OwnedFd;

    fn begin(&self, item: &Item<'_>) -> Result<()> {
        self.add_dir(item);
        Ok(())
    }

    fn open_dir(&self, path: &Path) -> Result<OwnedFd> {
        self.root.open_dir(path)
    }

    fn make_dir(&self, dir: &OwnedFd, item: &Item<'_>) -> Result<()> {
        let place = Place { dir, name: item.name };
        check_name(place.name)?;
        let is_new = root::make_dir(place)?;
        if !is_new && self.options.continues {
            resume::enter(place)?;
        }
        self.add_dir(item);
        Ok(())
    }

    fn make(&self, dir: &OwnedFd, item: &Item<'_>, buffer: &mut [u8]) -> Result<Made> {
        let place = Place { dir, name: item.name };
        check_name(place.name)?;
        let found = if self.options.continues { resume::look(place, item)? } else { Found::Nothing };
        if found == Found::Whole {
            item.watch.found();
            return Ok(Made::Found);
        }
        // Device nodes are not replaced: this one gets its missing metadata.
        if found == Found::Begun && is_device(item.node.attr.kind) {
            return self.given(item).to_name(place).map(|()| Made::Whole);
        }
        let replaces = self.options.existing != Existing::Fail || found == Found::Begun;
        match item.node.attr.is_file() {
            true => self.make_file(place, item, replaces, buffer).map(|()| Made::Whole),
            false => self.make_special(place, item, replaces),
        }
    }

    fn link(&self, first: &Path, dir: &OwnedFd, item: &Item<'_>) -> Result<Made> {
        let place = Place { dir, name: item.name };
        check_name(place.name)?;
        let parent = self.root.open_dir(first.parent().unwrap_or(Path::new("")))?;
        let first = Place { dir: &parent, name: first.file_name().unwrap_or_default() };
        let mut replaces = self.options.existing != Existing::Fail;
        if self.options.continues {
            if resume::is_linked(place, first)? {
                item.watch.found();
                return Ok(Made::Found);
            }
            // The interrupted copy may have begun with another of the names.
            let found = resume::look(place, item)?;
            replaces |= matches!(found, Found::Whole | Found::Begun);
        }
        let link = || rustix::fs::linkat(first.dir, first.name, dir, place.name, AtFlags::empty());
        root::make_new(place, replaces, link)?;
        Ok(Made::Whole)
    }

    /// At the end: a directory without search permission would deny its children their metadata.
    fn finish_dir(&self, _path: &Path, _attr: &Metadata, _watch: &dyn Observer) -> Result<()> {
        Ok(())
    }

    fn end(&self, watch: &dyn Observer, xattrs: &dyn Fn(&Path) -> Result<Xattrs>) -> Result<()> {
        let mut dirs = std::mem::take(&mut *self.dirs());
        dirs.sort_unstable_by(|a, b| b.to.cmp(&a.to));
        let mut end = Ok(());
        for MadeDir { from, to, attr } in dirs {
            let keeps_owners = self.options.keeps_owners;
            let finished = self.root.open_dir(&to).and_then(|fd| {
                let given = Given { attr: &attr, xattrs: &xattrs(&from)?, keeps_owners, watch };
                given.to_open(&fd).map_err(|error| error.about(self.root.display(&to)))
            });
            if let Err(error) = finished {
                end = end.and(watch.failed(error));
            }
        }
        end
    }

    fn display(&self, path: &Path) -> Option<PathBuf> {
        Some(self.root.display(path))
    }
}
