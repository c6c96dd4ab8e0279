//! One name of the source becomes one name of the volume.

use std::ffi::{CStr, CString, OsStr};
use std::ops::Range;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use rustix::fs::Stat;
use vfs::file_system::{NodeKind, SetAttr, WholeNode, XattrMode};
use vfs::{Errno, FileOptions, Times};

use super::source::{self, Name, SourceDir, Xattrs};
use super::{Existing, Import, data};
use crate::emulation;
use crate::trust::{SET_GROUP, SET_ID, SET_USER};

/// Files up to this size are made together with others.
const BATCH_FILE_BYTES_MAX: u64 = 64 << 10;
/// Contents that are enough to make what waits.
const BATCH_BYTES: usize = 384 << 10;

/// A directory whose names are still to be copied.
pub(super) struct SubDir {
    /// Path relative to the source.
    pub(super) path: PathBuf,
    /// Path in the volume.
    pub(super) target: PathBuf,
    /// Times it gets when its names were made.
    pub(super) times: Times,
}

/// Makes `target` from a name of `dir`, or has it wait in the batch. Returns a directory whose names are to be copied
/// next.
pub(super) fn one(
    import: &Import<'_>,
    buffer: &mut [u8],
    (dir, name): (&SourceDir, &Name),
    target: PathBuf,
    batch: Option<&mut Batch>,
) -> Result<Option<SubDir>> {
    import.progress.add_name();
    if name.is_file {
        let fd = dir.open_file(&name.bytes)?;
        let stat = rustix::fs::fstat(&fd)?;
        // It may have been replaced since the directory was read.
        if NodeKind::from_mode(stat.st_mode) == Some(NodeKind::File) {
            match batch.filter(|batch| batch.may_take(import, &stat)) {
                Some(batch) => batch.take(name, &fd, &stat)?,
                None => regular(import, buffer, &fd, &stat, &target)?,
            }
            return Ok(None);
        }
    }
    let handle = dir.handle(&name.bytes)?;
    let stat = rustix::fs::fstat(&handle)?;
    if is_skipped(import, &stat) {
        return Ok(None);
    }
    match source::kind(&stat)? {
        NodeKind::File => {
            let fd = dir.open_file(&name.bytes)?;
            let stat = rustix::fs::fstat(&fd)?;
            anyhow::ensure!(source::kind(&stat)? == NodeKind::File, "it was replaced while it was copied");
            regular(import, buffer, &fd, &stat, &target).map(|()| None)
        }
        NodeKind::Directory => directory(import, (dir, name), (&handle, &stat), target),
        _ => special(import, (&handle, &stat), &target).map(|()| None),
    }
}

/// Gives the metadata of a directory of the source to one that exists in the volume.
pub(super) fn existing_directory(import: &Import<'_>, dir: &SourceDir, target: &Path) -> Result<Times> {
    let stat = rustix::fs::fstat(&dir.fd)?;
    let xattrs = source::xattrs(dir.fd.as_fd())?;
    merge(import, target, &stat, &xattrs)?;
    Ok(times(import, &stat))
}

fn is_skipped(import: &Import<'_>, stat: &Stat) -> bool {
    let kind = NodeKind::from_mode(stat.st_mode);
    let is_device = matches!(kind, Some(NodeKind::CharDevice | NodeKind::BlockDevice));
    import.options.skip == Some((stat.st_dev, stat.st_ino)) || (is_device && !import.options.makes_devices)
}

/// A small file that waits to be made with others.
struct Waiting {
    name: CString,
    stat: Stat,
    xattrs: Xattrs,
    /// Where its contents are among those of all.
    contents: Range<usize>,
}

/// Small files of one directory that are made together, where that takes less time.
pub(super) struct Batch {
    files: Vec<Waiting>,
    contents: Vec<u8>,
    files_max: usize,
}

impl Batch {
    pub(super) fn new(import: &Import<'_>) -> Self {
        Self { files: Vec::new(), contents: Vec::new(), files_max: import.volume.at_once() }
    }

    /// Whether a file is small, and has no other name that may be linked to it meanwhile.
    fn may_take(&self, import: &Import<'_>, stat: &Stat) -> bool {
        let is_small = data::size(stat) <= BATCH_FILE_BYTES_MAX && !data::may_have_holes(stat);
        self.files_max > 1 && is_small && stat.st_nlink < 2 && !is_skipped(import, stat)
    }

    fn take(&mut self, name: &Name, fd: &OwnedFd, stat: &Stat) -> Result<()> {
        let xattrs = source::xattrs(fd.as_fd())?;
        let size = data::size(stat);
        let start = self.contents.len();
        self.contents.resize(start.saturating_add(usize::try_from(size)?), 0);
        let room = self.contents.get_mut(start..).unwrap_or_default();
        let end = start.saturating_add(data::read_whole(fd.as_fd(), size, room)?.len());
        self.contents.truncate(end);
        self.files.push(Waiting { name: name.bytes.clone(), stat: *stat, xattrs, contents: start..end });
        Ok(())
    }

    pub(super) fn is_full(&self) -> bool {
        self.files.len() >= self.files_max || self.contents.len() >= BATCH_BYTES
    }

    /// Creates the waiting files in the directory `target`. `about` adds the name of the file to a failure.
    pub(super) fn make(
        &mut self,
        import: &Import<'_>,
        target: &Path,
        about: &dyn Fn(&CStr, anyhow::Error) -> anyhow::Error,
    ) -> Result<()> {
        let files = std::mem::take(&mut self.files);
        let contents = std::mem::take(&mut self.contents);
        let Some(first) = files.first() else { return Ok(()) };
        let of = |file: &Waiting| contents.get(file.contents.clone()).unwrap_or_default();
        let pairs: Vec<Pairs<'_>> = files.iter().map(|file| pairs(import, &file.xattrs)).collect();
        let whole = files.iter().zip(&pairs).map(|(file, pairs)| {
            whole(import, &file.stat, pairs, (&[], of(file))).map(|node| (file.name.to_bytes(), node))
        });
        let about_first = |error: anyhow::Error| about(&first.name, error);
        let nodes = whole.collect::<Result<Vec<_>>>().map_err(about_first)?;
        let made = import.volume.create_nodes(target, &nodes).map_err(|error| about_first(error.into()))?;
        for (file, made) in files.iter().zip(made) {
            let path = target.join(OsStr::from_bytes(file.name.to_bytes()));
            let done = match made {
                // What is there already decides what becomes of it.
                Err(error) if error.errno() == Errno::EEXIST => {
                    make(import, &path, &file.stat, &file.xattrs, (&[], of(file)))
                }
                made => made.map(drop).map_err(Into::into),
            };
            if import.note(done.map_err(|error| about(&file.name, error)))?.is_none() {
                continue;
            }
            import.progress.add_bytes(u64::try_from(file.contents.len()).unwrap_or(0));
        }
        Ok(())
    }
}

fn regular(import: &Import<'_>, buffer: &mut [u8], fd: &OwnedFd, stat: &Stat, target: &Path) -> Result<()> {
    if is_skipped(import, stat) {
        return Ok(());
    }
    let size = data::size(stat);
    let is_streamed = size > u64::try_from(data::PIECE_BYTES)? || data::may_have_holes(stat);
    let make = || {
        let xattrs = source::xattrs(fd.as_fd())?;
        let contents = if is_streamed || size == 0 { &[] } else { data::read_whole(fd.as_fd(), size, buffer)? };
        make(import, target, stat, &xattrs, (&[], contents))?;
        import.progress.add_bytes(u64::try_from(contents.len())?);
        Ok(is_streamed)
    };
    let link = |first: &Path| hard_link(import, first, target).map(|()| false);
    if !import.links.make_or_link(stat, target, make, link)? {
        return Ok(());
    }
    let file = FileOptions::new().read(true).write(true).open(import.volume, target)?;
    let filled = data::stream(fd.as_fd(), stat, &file, buffer, import.progress);
    drop(file);
    if filled.is_err() && !import.options.keeps_partial {
        // The caller gets the first failure. If this removal fails too, the part stays.
        let _ = import.volume.remove_file(target);
    }
    filled?;
    // Writing has changed the times.
    Ok(import.volume.set_times(target, &times(import, stat))?)
}

fn directory(
    import: &Import<'_>,
    (dir, name): (&SourceDir, &Name),
    (handle, stat): (&OwnedFd, &Stat),
    target: PathBuf,
) -> Result<Option<SubDir>> {
    let xattrs = source::xattrs_of(handle)?;
    make(import, &target, stat, &xattrs, (&[], &[]))?;
    if import.options.one_file_system && stat.st_dev != import.device {
        return Ok(None);
    }
    let path = dir.path.join(name.as_path());
    Ok(Some(SubDir { path, target, times: times(import, stat) }))
}

fn special(import: &Import<'_>, (handle, stat): (&OwnedFd, &Stat), target: &Path) -> Result<()> {
    let make = || {
        let is_link = source::kind(stat)?.is_symlink();
        // Under an emulator this call would return those of the link's target.
        let has_none = is_link && emulation::is_there();
        let xattrs = if has_none { Xattrs::new() } else { source::xattrs_of(handle)? };
        let link = if is_link { source::read_link(handle)? } else { c"".to_owned() };
        make(import, target, stat, &xattrs, (link.to_bytes(), &[]))
    };
    let link = |first: &Path| hard_link(import, first, target);
    import.links.make_or_link(stat, target, make, link)
}

/// Names and values of attributes.
type Pairs<'a> = Vec<(&'a [u8], &'a [u8])>;

/// Those attributes that are to come along.
fn pairs<'a>(import: &Import<'_>, xattrs: &'a Xattrs) -> Pairs<'a> {
    kept(import, xattrs).map(|(name, value)| (name.as_slice(), value.as_slice())).collect()
}

/// The inode; `texts` are the target of a symbolic link and the contents of a file.
fn whole<'a>(
    import: &Import<'_>,
    stat: &Stat,
    xattrs: &'a Pairs<'a>,
    texts: (&'a [u8], &'a [u8]),
) -> Result<WholeNode<'a>> {
    let kind = source::kind(stat)?;
    let (uid, gid) = import.options.owner.unwrap_or((stat.st_uid, stat.st_gid));
    let is_device = matches!(kind, NodeKind::CharDevice | NodeKind::BlockDevice);
    let Times { atime, mtime, ctime, btime } = times(import, stat);
    Ok(WholeNode {
        kind,
        permissions: permissions(import, stat),
        uid,
        gid,
        atime,
        mtime,
        ctime,
        btime,
        rdev: if is_device { u32::try_from(stat.st_rdev)? } else { 0 },
        target: texts.0,
        xattrs,
        data: texts.1,
    })
}

/// Makes the inode of [`whole`].
fn make(import: &Import<'_>, target: &Path, stat: &Stat, xattrs: &Xattrs, texts: (&[u8], &[u8])) -> Result<()> {
    let kind = source::kind(stat)?;
    let pairs = pairs(import, xattrs);
    let node = whole(import, stat, &pairs, texts)?;
    let made = import.volume.create_node(target, &node);
    match made {
        Err(error) if error.errno() == Errno::EEXIST => {
            let existing = import.volume.symlink_metadata(target)?;
            if existing.is_dir() && kind.is_dir() {
                return merge(import, target, stat, xattrs);
            }
            if existing.is_dir() || import.options.existing == Existing::Fail {
                return Err(error.into());
            }
            import.volume.remove_file(target)?;
            import.volume.create_node(target, &node)?;
            Ok(())
        }
        made => Ok(made.map(drop)?),
    }
}

fn hard_link(import: &Import<'_>, first: &Path, target: &Path) -> Result<()> {
    let linked = import.volume.hard_link(first, target);
    match linked {
        Err(error) if error.errno() == Errno::EEXIST && import.options.existing == Existing::Replace => {
            import.volume.remove_file(target)?;
            Ok(import.volume.hard_link(first, target)?)
        }
        linked => Ok(linked?),
    }
}

/// Gives the metadata of a directory of the source to one that exists.
fn merge(import: &Import<'_>, target: &Path, stat: &Stat, xattrs: &Xattrs) -> Result<()> {
    let (uid, gid) = import.options.owner.unwrap_or((stat.st_uid, stat.st_gid));
    let changes = SetAttr {
        permissions: Some(permissions(import, stat)),
        uid: Some(uid),
        gid: Some(gid),
        ..SetAttr::from(times(import, stat))
    };
    import.volume.set_attributes(target, &changes)?;
    for (name, value) in kept(import, xattrs) {
        import.volume.set_xattr(target, name, value, XattrMode::Either)?;
    }
    Ok(())
}

/// The permissions of a copy. A user's copy of what others own does not run as the user.
fn permissions(import: &Import<'_>, stat: &Stat) -> u32 {
    let (uid, gid) = import.options.owner.unwrap_or((stat.st_uid, stat.st_gid));
    let mut permissions = stat.st_mode & 0o7777;
    if !import.options.keeps_privileged && uid != stat.st_uid {
        permissions &= !SET_USER;
    }
    if !import.options.keeps_privileged && gid != stat.st_gid {
        permissions &= !SET_GROUP;
    }
    if !import.options.keeps_setid && NodeKind::from_mode(stat.st_mode) != Some(NodeKind::Directory) {
        permissions &= !SET_ID;
    }
    permissions
}

/// The attributes that are to come along.
fn kept<'a>(import: &Import<'_>, xattrs: &'a Xattrs) -> impl Iterator<Item = &'a (Vec<u8>, Vec<u8>)> {
    let keeps_all = import.options.keeps_privileged;
    let is_privileged = |name: &[u8]| name.starts_with(b"security.") || name.starts_with(b"trusted.");
    let keeps_setid = import.options.keeps_setid;
    let is_kept = move |name: &[u8]| {
        (keeps_all || !is_privileged(name)) && (keeps_setid || name != vfs::privileges::CAPABILITY_NAME)
    };
    xattrs.iter().filter(move |(name, _)| is_kept(name))
}

fn times(import: &Import<'_>, stat: &Stat) -> Times {
    let [atime, mtime, ctime] = source::times(stat);
    Times { atime: Some(atime), mtime: Some(mtime), ctime: import.options.keeps_ctime.then_some(ctime), btime: None }
}
