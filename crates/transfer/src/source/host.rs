//! Implements a source over a directory of the host. `put` and `mkfs` of the program copy from it.
//!
//! Symbolic links are copied, never followed, except the path of the source itself. Names come in the order of their
//! bytes.

use std::ffi::{CStr, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use rustix::buffer::spare_capacity;
use rustix::fs::{AtFlags, Dir, Mode, OFlags, Stat};
use rustix::io::Errno;
use vfs::Metadata;
use vfs::file_system::{Home, KnownNode, NodeFlags, NodeKind, Time, Xattrs};

use super::{Found, Name, Source};
use crate::emulation;
use crate::error::{Error, Result};
use crate::root_dirs::{OpenDirs, path_of};
use crate::rules::{is_device, joined};

/// Files up to this size without holes are read whole and made with their contents in one call. Larger ones are copied
/// in pieces of this size.
const PIECE_BYTES: usize = 1 << 20;

/// Room for the names of all attributes of most files; more is asked for when it is not enough.
const XATTR_NAMES_BYTES: usize = 1024;
/// The most that Linux stores as one attribute or as a list of names (`XATTR_SIZE_MAX`).
const XATTR_BYTES_MAX: usize = 64 << 10;

/// A directory of the host.
#[derive(Debug)]
pub struct HostSource {
    fd: OwnedFd,
    path: PathBuf,
    kept: OpenDirs,
}

/// An open directory of the host.
#[derive(Debug)]
pub struct HostDir {
    fd: OwnedFd,
    /// Path for messages.
    path: PathBuf,
}

impl HostSource {
    /// Opens a directory; `path` itself may be a symbolic link.
    ///
    /// # Errors
    /// Those of the host; [`crate::Cause::Emulator`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        emulation::check()?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(rustix::fs::CWD, path, flags, Mode::empty());
        let fd = fd.map_err(|errno| Error::from(errno).about(path))?;
        Ok(Self { fd, path: path.to_owned(), kept: OpenDirs::default() })
    }

    fn shown(&self, path: &Path) -> PathBuf {
        joined(&self.path, path)
    }
}

impl HostDir {
    /// A handle of a name, which refers to the same file whatever is done to the name later; a symbolic link is not
    /// followed. Nothing can be read through it.
    fn handle(&self, name: &OsStr) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.fd, name, flags, Mode::empty())?)
    }

    /// Opens a regular file for reading, without touching its access time where that is allowed.
    fn open_file(&self, name: &OsStr) -> io::Result<OwnedFd> {
        // Without NONBLOCK, opening a pipe that took the file's place would block.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let open = |flags| rustix::fs::openat(&self.fd, name, flags, Mode::empty());
        match open(flags | OFlags::NOATIME) {
            Err(Errno::PERM) => Ok(open(flags)?),
            answer => Ok(answer?),
        }
    }

    fn look_at(&self, Name { name, kind }: &Name) -> Result<Found<OwnedFd>> {
        if *kind == Some(NodeKind::File) {
            let fd = self.open_file(name)?;
            let attr = host_metadata(&rustix::fs::fstat(&fd)?)?;
            // It may have been replaced since the directory was read.
            if attr.is_file() {
                return Ok(found(attr, fd));
            }
        }
        let handle = self.handle(name)?;
        let attr = host_metadata(&rustix::fs::fstat(&handle)?)?;
        if !attr.is_file() {
            return Ok(found(attr, handle));
        }
        let fd = self.open_file(name)?;
        let attr = host_metadata(&rustix::fs::fstat(&fd)?)?;
        match attr.is_file() {
            true => Ok(found(attr, fd)),
            false => Err(io::Error::other("it was replaced while it was copied").into()),
        }
    }
}

fn found(attr: Metadata, contents: OwnedFd) -> Found<OwnedFd> {
    Found { node: KnownNode { attr, target: None, xattrs: None, data: None }, contents }
}

impl Source for HostSource {
    type Dir = HostDir;
    type Contents = OwnedFd;

    fn top(&self, path: &Path) -> Result<KnownNode> {
        let dir = self.open_dir(path)?;
        let attr = host_metadata(&rustix::fs::fstat(&dir.fd)?)?;
        Ok(KnownNode { attr, target: None, xattrs: Some(xattrs(dir.fd.as_fd())?), data: None })
    }

    fn open_dir(&self, path: &Path) -> Result<HostDir> {
        let fd = self.kept.open(self.fd.as_fd(), path);
        let fd = fd.map_err(|errno| Error::from(errno).about(self.shown(path)))?;
        Ok(HostDir { fd, path: self.shown(path) })
    }

    fn names(&self, dir: &HostDir, _failed: &mut dyn FnMut(Error) -> Result<()>) -> Result<Vec<Name>> {
        let read = || {
            let mut names = Vec::new();
            for entry in Dir::read_from(&dir.fd)? {
                let entry = entry?;
                let name = entry.file_name();
                if name != c"." && name != c".." {
                    let kind = NodeKind::from_mode(entry.file_type().as_raw_mode());
                    names.push(Name { name: OsString::from_vec(name.to_bytes().to_vec()), kind });
                }
            }
            Ok(names)
        };
        let mut names = read().map_err(|error: io::Error| Error::from(error).about(&dir.path))?;
        names.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(names)
    }

    fn stat(&self, dir: &HostDir, name: &Name) -> Result<Metadata> {
        host_metadata(&rustix::fs::statat(&dir.fd, &name.name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    fn look(&self, dir: &HostDir, names: &[Name]) -> Vec<Result<Found<OwnedFd>>> {
        names.iter().map(|name| dir.look_at(name)).collect()
    }

    fn complete(&self, Found { node, contents }: &mut Found<OwnedFd>) -> Result<()> {
        if node.attr.is_file() {
            node.xattrs = Some(xattrs(contents.as_fd())?);
            let size = usize::try_from(node.attr.size).ok().filter(|size| *size <= PIECE_BYTES);
            if let Some(size) = size.filter(|_| !may_have_holes(&node.attr)) {
                node.data = Some(read_whole(contents.as_fd(), size)?);
            }
            return Ok(());
        }
        let is_link = node.attr.is_symlink();
        // Under an emulator this call would return the attributes of the link's target.
        let has_none = is_link && emulation::is_there();
        node.xattrs = Some(if has_none { Xattrs::new() } else { xattrs_of(contents)? });
        if is_link {
            node.target = Some(rustix::fs::readlinkat(contents, c"", Vec::new())?.into_bytes());
        }
        Ok(())
    }

    fn xattrs(&self, path: &Path) -> Result<Xattrs> {
        Ok(xattrs(self.open_dir(path)?.fd.as_fd())?)
    }

    fn piece_bytes(&self) -> usize {
        PIECE_BYTES
    }

    /// A bind mount shows a directory again below itself.
    fn is_tree(&self) -> bool {
        false
    }

    fn display(&self, path: &Path) -> Option<PathBuf> {
        Some(self.shown(path))
    }
}

/// True when the file has fewer blocks than its size needs: it has holes, or its file system stores it compressed.
fn may_have_holes(found: &Metadata) -> bool {
    found.blocks.saturating_mul(512) < found.size
}

/// Reads a small file whole: as much as is there now, but not more than its size was.
fn read_whole(fd: BorrowedFd<'_>, size: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(size);
    while bytes.len() < size {
        match rustix::io::read(fd, spare_capacity(&mut bytes)) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    // The allocator may have given more room than was asked for, and the file may have grown.
    bytes.truncate(size);
    Ok(bytes)
}

/// Attributes of a file that cannot, or should not, be opened.
fn xattrs_of(handle: &OwnedFd) -> io::Result<Xattrs> {
    // There are no such calls for handles; the path leads to the very file, also to a symbolic link.
    let path = path_of(handle);
    let list = |buffer: &mut [u8]| rustix::fs::listxattr(&path, buffer);
    let get = |name: &CStr, buffer: &mut [u8]| rustix::fs::getxattr(&path, name, buffer);
    collect_xattrs(list, get).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => io::Error::other("extended attributes cannot be read where /proc is not mounted"),
        _ => error,
    })
}

/// Attributes of an open file.
fn xattrs(fd: BorrowedFd<'_>) -> io::Result<Xattrs> {
    let list = |buffer: &mut [u8]| rustix::fs::flistxattr(fd, buffer);
    let get = |name: &CStr, buffer: &mut [u8]| rustix::fs::fgetxattr(fd, name, buffer);
    collect_xattrs(list, get)
}

fn collect_xattrs(
    list: impl Fn(&mut [u8]) -> rustix::io::Result<usize>,
    get: impl Fn(&CStr, &mut [u8]) -> rustix::io::Result<usize>,
) -> io::Result<Xattrs> {
    let mut small = [0; XATTR_NAMES_BYTES];
    let mut large = Vec::new();
    let names = match list(&mut small) {
        Ok(0) | Err(Errno::NOTSUP) => return Ok(Vec::new()),
        Ok(count) => small.get(..count),
        Err(Errno::RANGE) => {
            large.resize(XATTR_BYTES_MAX, 0);
            let count = list(&mut large)?;
            large.get(..count)
        }
        Err(errno) => return Err(errno.into()),
    };
    let mut value = vec![0; XATTR_BYTES_MAX];
    let mut found = Vec::new();
    for name in names.unwrap_or_default().split_inclusive(|byte| *byte == 0) {
        let Ok(name) = CStr::from_bytes_with_nul(name) else {
            continue;
        };
        match get(name, &mut value) {
            Ok(count) => {
                let value = value.get(..count).unwrap_or_default().to_vec();
                found.push((name.to_bytes().to_vec(), value));
            }
            // Removed since it was listed, or not for us to read.
            Err(Errno::NODATA | Errno::PERM | Errno::ACCESS) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Metadata as volumes have it; the identity is the device and the inode number.
pub(crate) fn host_metadata(stat: &Stat) -> Result<Metadata> {
    let kind = NodeKind::from_mode(stat.st_mode);
    let kind = kind.ok_or_else(|| io::Error::other(format!("mode {:o}: an unknown kind of file", stat.st_mode)))?;
    let rdev = u32::try_from(if is_device(kind) { stat.st_rdev } else { 0 });
    let rdev = rdev.map_err(|_| io::Error::other(format!("device number {:#x}: more than 32 bits", stat.st_rdev)))?;
    let ctime = time(stat.st_ctime, stat.st_ctime_nsec);
    Ok(Metadata {
        ino: stat.st_ino,
        kind,
        permissions: stat.st_mode & 0o7777,
        nlink: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev,
        size: u64::try_from(stat.st_size).unwrap_or_default(),
        blocks: u64::try_from(stat.st_blocks).unwrap_or_default(),
        block_bytes: u32::try_from(stat.st_blksize).unwrap_or_default(),
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime,
        btime: ctime,
        flags: NodeFlags::empty(),
        home: Home { subvolume: stat.st_dev, ino: stat.st_ino, generation: 0 },
    })
}

/// The type of nanoseconds depends on the backend of `rustix`.
fn time(sec: i64, nsec: impl TryInto<u32>) -> Time {
    Time::new(sec, nsec.try_into().unwrap_or_default())
}
