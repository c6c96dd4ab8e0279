//! Recognises files left by an interrupted copy, for a copy that continues it. Called by `sink/host`.
//!
//! A copy creates each file private (mode 0600), writes contents, owner and attributes, then sets the times, and the
//! mode last. So a file is complete if its size and modification time are those of the image and it has its mode; a
//! file that is still private is incomplete. The contents of complete files are not compared. Those of incomplete files
//! are, since a private file may be the caller's own. All other files are left untouched.

use rustix::fs::{AtFlags, Mode, OFlags, SeekFrom, Stat};
use rustix::io::Errno;
use vfs::file_system::NodeKind;

use super::metadata::nanos;
use super::root::Place;
use crate::contents::Contents;
use crate::error::Result;
use crate::root_dirs::path_of;
use crate::sink::Item;

/// Bytes of an incomplete file that are compared at a time.
const COMPARED_BYTES: usize = 128 << 10;

/// The kind of an existing file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    /// The complete copy of the item.
    Whole,
    /// An incomplete copy of the item, left by an earlier copy of this caller.
    Begun,
    /// Something else.
    Other,
}

/// Examines the file, if any, that has the name under which `item` is to be created.
pub(super) fn look(place: Place<'_>, item: &Item<'_>) -> Result<Found> {
    let Some(found) = stat(place)? else { return Ok(Found::Nothing) };
    if !is_same_thing(place, item, &found)? {
        return Ok(Found::Other);
    }
    let meant = &item.node.attr;
    let size = u64::try_from(found.st_size).unwrap_or_default();
    let is_private = found.st_mode & 0o7777 == 0o600;
    let is_meant_private = meant.permissions & 0o6777 == 0o600;
    let mode_is_done = meant.is_symlink() || !is_private || is_meant_private;
    let has_size = !meant.is_file() || size == meant.size;
    let has_time = (found.st_mtime, signed(found.st_mtime_nsec)) == (meant.mtime.sec, nanos(meant.mtime));
    if mode_is_done && has_size && has_time {
        return Ok(Found::Whole);
    }
    let owners = [rustix::process::geteuid().as_raw(), meant.uid];
    let is_ours = owners.contains(&found.st_uid) && found.st_nlink == 1;
    let is_piece = (is_private || meant.is_symlink()) && (!meant.is_file() || size <= meant.size);
    if !is_ours || !is_piece || (meant.is_file() && !has_same_contents(place, item, &found)?) {
        return Ok(Found::Other);
    }
    Ok(Found::Begun)
}

fn stat(Place { dir, name }: Place<'_>) -> Result<Option<Stat>> {
    match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(None),
        found => Ok(Some(found?)),
    }
}

/// True where a file has the contents of `item`, as far as it goes, or zeros, which a power cut may leave.
fn has_same_contents(Place { dir, name }: Place<'_>, item: &Item<'_>, found: &Stat) -> Result<bool> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(dir, name, flags, Mode::empty())?;
    let opened = rustix::fs::fstat(&fd)?;
    if (opened.st_dev, opened.st_ino) != (found.st_dev, found.st_ino) {
        return Ok(false);
    }
    let (mut ours, mut meant) = (vec![0; COMPARED_BYTES], vec![0; COMPARED_BYTES]);
    let mut at = 0;
    loop {
        at = match rustix::fs::seek(&fd, SeekFrom::Data(at)) {
            Err(Errno::NXIO) => return Ok(true),
            // This file system does not report holes: treat everything as data.
            Err(Errno::INVAL | Errno::NOTSUP) => at,
            start => start?,
        };
        let count = fd.read_at(&mut ours, at)?;
        if count == 0 {
            return Ok(true);
        }
        meant.fill(0);
        let count = count.min(item.contents.read_at(&mut meant, at)?);
        let is_same = |(ours, meant): (&u8, &u8)| *ours == 0 || ours == meant;
        if count == 0 || !ours.iter().take(count).zip(&meant).all(is_same) {
            return Ok(false);
        }
        at = at.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
    }
}

/// True for the same kind of file, with the same target or device number.
fn is_same_thing(Place { dir, name }: Place<'_>, item: &Item<'_>, found: &Stat) -> Result<bool> {
    let meant = &item.node.attr;
    if NodeKind::from_mode(found.st_mode) != Some(meant.kind) {
        return Ok(false);
    }
    Ok(match meant.kind {
        NodeKind::Symlink => {
            let target = rustix::fs::readlinkat(dir, name, Vec::new())?;
            item.node.target.as_deref() == Some(target.as_bytes())
        }
        NodeKind::CharDevice | NodeKind::BlockDevice => found.st_rdev == u64::from(meant.rdev),
        _ => true,
    })
}

/// True if both names are links to the same file.
pub(super) fn is_linked(place: Place<'_>, other: Place<'_>) -> Result<bool> {
    let (Some(found), Some(other)) = (stat(place)?, stat(other)?) else { return Ok(false) };
    Ok((found.st_dev, found.st_ino) == (other.st_dev, other.st_ino))
}

/// Gives the caller access to a directory of his own whose final mode denies it; the end of the copy restores the mode.
pub(super) fn enter(Place { dir, name }: Place<'_>) -> Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let handle = rustix::fs::openat(dir, name, flags, Mode::empty())?;
    let found = rustix::fs::fstat(&handle)?;
    let is_own = found.st_uid == rustix::process::geteuid().as_raw();
    if is_own && found.st_mode & 0o700 != 0o700 {
        rustix::fs::chmod(path_of(&handle), Mode::RWXU)?;
    }
    Ok(())
}

/// Nanoseconds as a signed number. Their type depends on the backend of `rustix`.
fn signed(nsec: impl TryInto<i64>) -> i64 {
    nsec.try_into().unwrap_or(-1)
}
