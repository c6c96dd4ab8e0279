//! What an interrupted copy has left under a name, for a copy that continues it.
//!
//! A file is made private (mode 0600); contents, owner and attributes come first, then the times, the mode last. So a
//! file is whole if its size and time of modification are those of the image and it has its mode, and what still is
//! private was not finished. The contents of whole files are not compared; those of pieces are, since a private file
//! may be the caller's own. Whatever is neither whole nor such a piece is not touched.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use anyhow::Result;
use rustix::fs::{AtFlags, Mode, OFlags, SeekFrom, Stat};
use rustix::io::Errno;
use vfs::file_system::NodeKind;
use vfs::{FileOptions, Metadata};

use super::Export;
use super::metadata::nanos;
use crate::beneath::path_of;

/// Bytes of a piece that are compared in one go.
const COMPARED_BYTES: usize = 128 << 10;

/// What is under a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    /// All that the image says.
    Whole,
    /// A piece of it, which an earlier copy of this caller left.
    Begun,
    /// Something else.
    Other,
}

/// Looks at a name, which is to become what `metadata` is of.
pub(super) fn look(
    export: &Export<'_>,
    (dir, name): (&OwnedFd, &OsStr),
    image: &Path,
    metadata: &Metadata,
) -> Result<Found> {
    let found = match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(Found::Nothing),
        found => found?,
    };
    if !is_same_thing(export, (dir, name), image, metadata, &found)? {
        return Ok(Found::Other);
    }
    let size = u64::try_from(found.st_size)?;
    let is_private = found.st_mode & 0o7777 == 0o600;
    let lacks_setid = export.options.keeps_setid && metadata.permissions & 0o6000 != 0;
    let is_meant_private = metadata.permissions & 0o777 == 0o600 && !lacks_setid;
    let mode_is_done = metadata.is_symlink() || !is_private || is_meant_private;
    let has_size = !metadata.is_file() || size == metadata.size;
    let time = metadata.mtime;
    let has_time = (found.st_mtime, signed(found.st_mtime_nsec)?) == (time.sec, nanos(time));
    if mode_is_done && has_size && has_time {
        return Ok(Found::Whole);
    }
    let owners = [rustix::process::geteuid().as_raw(), metadata.uid];
    let is_ours = owners.contains(&found.st_uid) && found.st_nlink == 1;
    let is_piece = (is_private || metadata.is_symlink()) && (!metadata.is_file() || size <= metadata.size);
    if !is_ours || !is_piece || (metadata.is_file() && !has_same_contents(export, (dir, name), image, &found)?) {
        return Ok(Found::Other);
    }
    Ok(Found::Begun)
}

/// True where a file has the contents that the image says, as far as it goes, or zeros, which a power cut may leave.
fn has_same_contents(export: &Export<'_>, (dir, name): (&OwnedFd, &OsStr), image: &Path, found: &Stat) -> Result<bool> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(dir, name, flags, Mode::empty())?;
    let opened = rustix::fs::fstat(&fd)?;
    if (opened.st_dev, opened.st_ino) != (found.st_dev, found.st_ino) {
        return Ok(false);
    }
    let file = FileOptions::new().read(true).open(export.volume, image)?;
    let (mut ours, mut meant) = (vec![0; COMPARED_BYTES], vec![0; COMPARED_BYTES]);
    let mut at = 0;
    loop {
        at = match rustix::fs::seek(&fd, SeekFrom::Data(at)) {
            Err(Errno::NXIO) => return Ok(true),
            // No holes to be found here: everything is data.
            Err(Errno::INVAL | Errno::NOTSUP) => at,
            start => start?,
        };
        let count = match rustix::io::pread(&fd, &mut *ours, at) {
            Ok(0) => return Ok(true),
            Err(Errno::INTR) => continue,
            count => count?,
        };
        meant.fill(0);
        let count = count.min(file.read_at(&mut meant, at)?);
        let is_same = |(ours, meant): (&u8, &u8)| *ours == 0 || ours == meant;
        if count == 0 || !ours.iter().take(count).zip(&meant).all(is_same) {
            return Ok(false);
        }
        at = at.saturating_add(u64::try_from(count)?);
    }
}

/// True for the same kind of file, with the same target or device number.
fn is_same_thing(
    export: &Export<'_>,
    (dir, name): (&OwnedFd, &OsStr),
    image: &Path,
    metadata: &Metadata,
    found: &Stat,
) -> Result<bool> {
    if NodeKind::from_mode(found.st_mode) != Some(metadata.kind) {
        return Ok(false);
    }
    Ok(match metadata.kind {
        NodeKind::Symlink => {
            let target = rustix::fs::readlinkat(dir, name, Vec::new())?;
            target.as_bytes() == export.volume.read_link(image)?.as_os_str().as_bytes()
        }
        NodeKind::CharDevice | NodeKind::BlockDevice => found.st_rdev == u64::from(metadata.rdev),
        _ => true,
    })
}

/// True where both names are of one file.
pub(super) fn is_linked((dir, name): (&OwnedFd, &OsStr), (other_dir, other_name): (&OwnedFd, &OsStr)) -> Result<bool> {
    let found = match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(false),
        found => found?,
    };
    let other = rustix::fs::statat(other_dir, other_name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok((found.st_dev, found.st_ino) == (other.st_dev, other.st_ino))
}

/// Lets the caller into a directory of his own whose final mode keeps him out; the end of the copy gives it that again.
pub(super) fn enter((dir, name): (&OwnedFd, &OsStr)) -> Result<()> {
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
fn signed<N: TryInto<i64>>(nsec: N) -> Result<i64, N::Error> {
    nsec.try_into()
}
