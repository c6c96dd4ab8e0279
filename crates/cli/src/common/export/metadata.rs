//! Owner, attributes, mode and times of what was made on the host, in this order: a change of the
//! owner takes away set-user bits and capabilities, and everything changes the times.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::Ordering;

use anyhow::Result;
use rustix::fs::{AtFlags, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use spinney::{Metadata, Timestamp};

use super::Export;

/// For an open file or directory.
pub(super) fn apply_open(
    export: &Export<'_>,
    fd: &OwnedFd,
    image: &Path,
    metadata: &Metadata,
) -> Result<()> {
    let (uid, gid) = owner(metadata);
    let has_owner = settle_owner(export, rustix::fs::fchown(fd, uid, gid))?;
    each_xattr(export, image, |name, value| {
        rustix::fs::fsetxattr(fd, name, value, XattrFlags::empty())
    })?;
    rustix::fs::fchmod(fd, mode(metadata, has_owner))?;
    Ok(rustix::fs::futimens(fd, &times(metadata))?)
}

/// For what cannot be opened: symbolic links and special files.
pub(super) fn apply_name(
    export: &Export<'_>,
    (dir, name): (&OwnedFd, &OsStr),
    image: &Path,
    metadata: &Metadata,
) -> Result<()> {
    let (uid, gid) = owner(metadata);
    let changed = rustix::fs::chownat(dir, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW);
    let has_owner = settle_owner(export, changed)?;
    // There is no call that takes a directory and a name.
    let fd = std::os::fd::AsRawFd::as_raw_fd(dir);
    let path = Path::new("/proc/self/fd").join(fd.to_string()).join(name);
    each_xattr(export, image, |name, value| {
        rustix::fs::lsetxattr(&path, name, value, XattrFlags::empty())
    })?;
    if !metadata.is_symlink() {
        rustix::fs::chmodat(dir, name, mode(metadata, has_owner), AtFlags::empty())?;
    }
    Ok(rustix::fs::utimensat(
        dir,
        name,
        &times(metadata),
        AtFlags::SYMLINK_NOFOLLOW,
    )?)
}

fn owner(metadata: &Metadata) -> (Option<Uid>, Option<Gid>) {
    // The largest number means "leave it", to the system as to us.
    let uid = (metadata.uid != u32::MAX).then(|| Uid::from_raw(metadata.uid));
    (
        uid,
        (metadata.gid != u32::MAX).then(|| Gid::from_raw(metadata.gid)),
    )
}

fn settle_owner(export: &Export<'_>, changed: rustix::io::Result<()>) -> Result<bool> {
    match changed {
        Ok(()) => Ok(true),
        Err(Errno::PERM | Errno::INVAL | Errno::NOTSUP) => {
            export.losses.owners.fetch_add(1, Ordering::Relaxed);
            Ok(false)
        }
        Err(errno) => Err(errno.into()),
    }
}

fn each_xattr(
    export: &Export<'_>,
    image: &Path,
    set: impl Fn(&OsStr, &[u8]) -> rustix::io::Result<()>,
) -> Result<()> {
    for name in export.volume.list_xattrs(image)? {
        let Some(value) = export.volume.get_xattr(image, name.as_bytes())? else {
            continue;
        };
        match set(&name, &value) {
            Ok(()) => {}
            Err(
                Errno::PERM
                | Errno::ACCESS
                | Errno::NOTSUP
                | Errno::INVAL
                | Errno::TOOBIG
                | Errno::RANGE
                | Errno::NOENT,
            ) => {
                export.losses.xattrs.fetch_add(1, Ordering::Relaxed);
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

fn mode(metadata: &Metadata, has_owner: bool) -> Mode {
    let bits = metadata.permissions();
    let is_safe = has_owner || metadata.is_dir();
    Mode::from_raw_mode(if is_safe { bits } else { bits & !0o6000 })
}

fn times(metadata: &Metadata) -> Timestamps {
    let time = |time: Timestamp| Timespec {
        tv_sec: time.sec,
        tv_nsec: i64::from(time.nsec),
    };
    Timestamps {
        last_access: time(metadata.atime),
        last_modification: time(metadata.mtime),
    }
}
