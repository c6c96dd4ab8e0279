//! Sets owner, attributes, times and mode of a new host file, in this order: chown(2) clears set-user bits and
//! capabilities, writing changes the times, and the mode comes last because a resumed copy takes a file with its final
//! mode as complete (`resume`). Called by `sink/host`.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::{AtFlags, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use vfs::Metadata;
use vfs::file_system::{KnownNode, NodeKind, Time, Xattrs};

use super::root::Place;
use crate::emulation;
use crate::error::Result;
use crate::observer::{Loss, Observer};
use crate::root_dirs::{path_of, set_mode, set_owner};
use crate::rules::{SET_ID, is_device};

/// The metadata of a file, and the observer, which is told of metadata that the host refuses.
#[derive(Clone, Copy)]
pub(super) struct Given<'a> {
    pub(super) attr: &'a Metadata,
    pub(super) xattrs: &'a Xattrs,
    /// Files get the owner that the source says.
    pub(super) keeps_owners: bool,
    pub(super) watch: &'a dyn Observer,
}

static NO_XATTRS: Xattrs = Xattrs::new();

impl<'a> Given<'a> {
    pub(super) fn of(node: &'a KnownNode, keeps_owners: bool, watch: &'a dyn Observer) -> Self {
        Self { attr: &node.attr, xattrs: node.xattrs.as_ref().unwrap_or(&NO_XATTRS), keeps_owners, watch }
    }

    /// Sets the metadata of an open file or directory.
    pub(super) fn to_open(self, fd: &OwnedFd) -> Result<()> {
        let has_owner = self.owner(|uid, gid| set_owner(fd, uid, gid))?;
        self.each_xattr(|name, value| rustix::fs::fsetxattr(fd, name, value, XattrFlags::empty()))?;
        rustix::fs::futimens(fd, &times(self.attr))?;
        Ok(set_mode(fd, mode(self.attr, has_owner))?)
    }

    /// Sets metadata by name, for files that cannot be opened: symbolic links and special files.
    pub(super) fn to_name(self, place: Place<'_>) -> Result<()> {
        let Place { dir, name } = place;
        let handle = handle_of_made(place, self.attr)?;
        // An emulator resolves the path of a handle itself, and would follow a symbolic link to its target.
        let by_name = emulation::is_there();
        let has_owner = self.owner(|uid, gid| match by_name {
            true => rustix::fs::chownat(dir, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW),
            false => rustix::fs::chownat(&handle, "", uid, gid, AtFlags::EMPTY_PATH),
        })?;
        // A handle leads to one file, whatever names it has; the path of the handle is not followed further.
        let path = path_of(&handle);
        self.each_xattr(|name, value| rustix::fs::setxattr(&path, name, value, XattrFlags::empty()))?;
        match by_name {
            true => rustix::fs::utimensat(dir, name, &times(self.attr), AtFlags::SYMLINK_NOFOLLOW)?,
            false => rustix::fs::utimensat(rustix::fs::CWD, &path, &times(self.attr), AtFlags::empty())?,
        }
        if !self.attr.is_symlink() {
            rustix::fs::chmod(&path, mode(self.attr, has_owner))?;
        }
        Ok(())
    }

    /// Calls `change` with the owner, if it is to be given; true when the file has it.
    fn owner(self, change: impl FnOnce(Option<Uid>, Option<Gid>) -> rustix::io::Result<()>) -> Result<bool> {
        if !self.keeps_owners {
            return Ok(false);
        }
        // The largest number means "leave it", to the system as to us.
        let uid = (self.attr.uid != u32::MAX).then(|| Uid::from_raw(self.attr.uid));
        let gid = (self.attr.gid != u32::MAX).then(|| Gid::from_raw(self.attr.gid));
        match change(uid, gid) {
            Ok(()) => Ok(true),
            Err(Errno::PERM | Errno::INVAL | Errno::NOTSUP) => {
                self.watch.lost(Loss::Owner);
                Ok(false)
            }
            Err(errno) => Err(errno.into()),
        }
    }

    fn each_xattr(self, set: impl Fn(&OsStr, &[u8]) -> rustix::io::Result<()>) -> Result<()> {
        for (name, value) in self.xattrs {
            match set(OsStr::from_bytes(name), value) {
                Ok(()) => {}
                Err(
                    Errno::PERM
                    | Errno::ACCESS
                    | Errno::NOTSUP
                    | Errno::INVAL
                    | Errno::TOOBIG
                    | Errno::RANGE
                    | Errno::NOENT,
                ) => self.watch.lost(Loss::Attribute),
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }
}

/// A handle of the file that was just made under a name.
///
/// # Errors
/// `ESTALE` where something else is there by now.
fn handle_of_made(Place { dir, name }: Place<'_>, metadata: &Metadata) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = rustix::fs::openat(dir, name, flags, Mode::empty())?;
    let found = rustix::fs::fstat(&handle)?;
    let is_ours = found.st_uid == rustix::process::geteuid().as_raw() && found.st_nlink == 1;
    let is_kind = NodeKind::from_mode(found.st_mode) == Some(metadata.kind);
    if is_ours && is_kind && (!is_device(metadata.kind) || found.st_rdev == u64::from(metadata.rdev)) {
        Ok(handle)
    } else {
        Err(Errno::STALE.into())
    }
}

/// The mode for the file. A file that did not get its owner gets no set-user and set-group bits, unless a directory.
fn mode(found: &Metadata, has_owner: bool) -> Mode {
    let bits = found.permissions;
    Mode::from_raw_mode(if found.is_dir() || has_owner { bits } else { bits & !SET_ID })
}

/// The nanoseconds of a time for the host, which refuses a second and more; an image may contain any number.
pub(super) fn nanos(time: Time) -> i64 {
    const NSEC_MAX: u32 = 999_999_999;
    time.nsec.min(NSEC_MAX).into()
}

fn times(metadata: &Metadata) -> Timestamps {
    let time = |time: Time| Timespec { tv_sec: time.sec, tv_nsec: nanos(time) };
    Timestamps { last_access: time(metadata.atime), last_modification: time(metadata.mtime) }
}
