//! Owner, attributes, times and mode of what was made on the host, in this order: a change of the
//! owner takes away set-user bits and capabilities, writing changes the times, and by the mode, which is
//! given last, a copy that continues this one knows what is whole.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::Ordering;

use anyhow::Result;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use vfs::Metadata;
use vfs::file_system::{KnownNode, NodeKind, Time, Xattrs};

use super::Export;
use crate::beneath::{path_of, set_mode, set_owner};
use crate::emulation;
use crate::trust::SET_ID;

/// For an open file or directory.
pub(super) fn apply_open(
    export: &Export<'_>,
    fd: &OwnedFd,
    image: &Path,
    (metadata, xattrs): (&Metadata, Option<&Xattrs>),
) -> Result<()> {
    let has_owner = give_owner(export, metadata, |uid, gid| set_owner(fd, uid, gid))?;
    let withheld = each_xattr(export, image, (metadata, xattrs), |name, value| {
        rustix::fs::fsetxattr(fd, name, value, XattrFlags::empty())
    })?;
    rustix::fs::futimens(fd, &times(metadata))?;
    Ok(set_mode(fd, mode(export, metadata, has_owner, withheld))?)
}

/// For what cannot be opened: symbolic links and special files.
pub(super) fn apply_name(
    export: &Export<'_>,
    (dir, name): (&OwnedFd, &OsStr),
    image: &Path,
    known: &KnownNode,
) -> Result<()> {
    let metadata = &known.attr;
    let handle = handle_of_made((dir, name), metadata)?;
    // An emulator resolves the path of a handle itself, and would follow a symbolic link to its target.
    let by_name = emulation::is_there();
    let has_owner = give_owner(export, metadata, |uid, gid| match by_name {
        true => rustix::fs::chownat(dir, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW),
        false => rustix::fs::chownat(&handle, "", uid, gid, AtFlags::EMPTY_PATH),
    })?;
    // What a handle refers to has no other name that leads to it alone; a link there is not followed further.
    let path = path_of(&handle);
    let withheld = each_xattr(export, image, (metadata, known.xattrs.as_ref()), |name, value| {
        rustix::fs::setxattr(&path, name, value, XattrFlags::empty())
    })?;
    match by_name {
        true => rustix::fs::utimensat(dir, name, &times(metadata), AtFlags::SYMLINK_NOFOLLOW)?,
        false => rustix::fs::utimensat(rustix::fs::CWD, &path, &times(metadata), AtFlags::empty())?,
    }
    if !metadata.is_symlink() {
        let mode = mode(export, metadata, has_owner, withheld);
        rustix::fs::chmod(&path, mode)?;
    }
    Ok(())
}

/// A handle of what was just made under a name.
///
/// # Errors
/// `ESTALE` where something else is there by now.
fn handle_of_made((dir, name): (&OwnedFd, &OsStr), metadata: &Metadata) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = rustix::fs::openat(dir, name, flags, Mode::empty())?;
    let found = rustix::fs::fstat(&handle)?;
    let is_ours = found.st_uid == rustix::process::geteuid().as_raw() && found.st_nlink == 1;
    let is_kind = NodeKind::from_mode(found.st_mode) == Some(metadata.kind);
    let is_device = matches!(metadata.kind, NodeKind::CharDevice | NodeKind::BlockDevice);
    if is_ours && is_kind && (!is_device || found.st_rdev == u64::from(metadata.rdev)) {
        Ok(handle)
    } else {
        Err(Errno::STALE.into())
    }
}

/// Calls `change` with the owner that the image says, if it is to be given; true when the file has it.
fn give_owner(
    export: &Export<'_>,
    metadata: &Metadata,
    change: impl FnOnce(Option<Uid>, Option<Gid>) -> rustix::io::Result<()>,
) -> Result<bool> {
    if !export.options.keeps_owners {
        return Ok(false);
    }
    let (uid, gid) = owner(metadata);
    settle_owner(export, change(uid, gid))
}

fn owner(metadata: &Metadata) -> (Option<Uid>, Option<Gid>) {
    // The largest number means "leave it", to the system as to us.
    let uid = (metadata.uid != u32::MAX).then(|| Uid::from_raw(metadata.uid));
    (uid, (metadata.gid != u32::MAX).then(|| Gid::from_raw(metadata.gid)))
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

/// Sets the attributes that the image says; true when a capability was withheld.
fn each_xattr(
    export: &Export<'_>,
    image: &Path,
    (metadata, known): (&Metadata, Option<&Xattrs>),
    set: impl Fn(&OsStr, &[u8]) -> rustix::io::Result<()>,
) -> Result<bool> {
    let mut withheld = false;
    let xattrs = match known {
        Some(known) => Cow::Borrowed(known),
        None => Cow::Owned(read_xattrs(export, image)?),
    };
    for (name, value) in &*xattrs {
        if !export.options.keeps_setid && !metadata.is_dir() && name == vfs::privileges::CAPABILITY_NAME {
            withheld = true;
            continue;
        }
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
            ) => {
                export.losses.xattrs.fetch_add(1, Ordering::Relaxed);
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(withheld)
}

/// The attributes, asked for one by one.
fn read_xattrs(export: &Export<'_>, image: &Path) -> Result<Xattrs> {
    let mut xattrs = Xattrs::new();
    for name in export.volume.list_xattrs(image)? {
        if let Some(value) = export.volume.get_xattr(image, name.as_bytes())? {
            xattrs.push((name.into_encoded_bytes(), value));
        }
    }
    Ok(xattrs)
}

/// The mode that the file gets. Counts it where something with which it would act for others was `withheld`.
fn mode(export: &Export<'_>, metadata: &Metadata, has_owner: bool, withheld: bool) -> Mode {
    let bits = metadata.permissions;
    if metadata.is_dir() {
        return Mode::from_raw_mode(bits);
    }
    let is_cleared = bits & SET_ID != 0 && !export.options.keeps_setid;
    if withheld || is_cleared {
        export.losses.withheld_setid.fetch_add(1, Ordering::Relaxed);
    }
    let is_safe = has_owner && export.options.keeps_setid;
    Mode::from_raw_mode(if is_safe { bits } else { bits & !SET_ID })
}

/// The nanoseconds that the host is given: an image may say anything, the host takes no more than a second.
pub(super) fn nanos(time: Time) -> i64 {
    const NSEC_MAX: u32 = 999_999_999;
    time.nsec.min(NSEC_MAX).into()
}

fn times(metadata: &Metadata) -> Timestamps {
    let time = |time: Time| Timespec { tv_sec: time.sec, tv_nsec: nanos(time) };
    Timestamps { last_access: time(metadata.atime), last_modification: time(metadata.mtime) }
}
