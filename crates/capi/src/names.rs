//! Makes, renames and removes names.

use std::ffi::{c_char, c_int};
use std::os::unix::ffi::OsStrExt as _;

use spinney::{Result, Volume};

use crate::handle::{SpinneyVolume, on};
use crate::metadata::check_mode;
use crate::pointer::{buffer, copy_value, path};

/// Permission bits that a new directory gets by itself.
const DIRECTORY_MODE: u32 = 0o755;

/// Makes a directory; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_mkdir(volume: *mut SpinneyVolume, path: *const c_char, mode: u32) -> c_int {
    // SAFETY: the caller keeps the contract of the header.
    let path = unsafe { self::path(path, "path") };
    on(volume, |volume| {
        let path = path?;
        check_mode(mode)?;
        volume.create_dir(path)?;
        if mode != DIRECTORY_MODE {
            volume.set_permissions(path, mode)?;
        }
        Ok(0)
    })
}

/// Removes an empty directory; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_rmdir(volume: *mut SpinneyVolume, path: *const c_char) -> c_int {
    // SAFETY: the caller keeps the contract of the header.
    let path = unsafe { self::path(path, "path") };
    on(volume, |volume| volume.remove_dir(path?).map(|()| 0))
}

/// Removes a name of a file; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_unlink(volume: *mut SpinneyVolume, path: *const c_char) -> c_int {
    // SAFETY: the caller keeps the contract of the header.
    let path = unsafe { self::path(path, "path") };
    on(volume, |volume| volume.remove_file(path?).map(|()| 0))
}

/// Renames; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_rename(volume: *mut SpinneyVolume, from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: the caller keeps the contract of the header.
    unsafe { with_two(volume, (from, "from"), (to, "to"), |volume, from, to| volume.rename(from, to)) }
}

/// Gives a node one more name; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_link(volume: *mut SpinneyVolume, path: *const c_char, link: *const c_char) -> c_int {
    // SAFETY: the caller keeps the contract of the header.
    unsafe { with_two(volume, (path, "path"), (link, "link"), |volume, path, link| volume.hard_link(path, link)) }
}

/// Makes a symbolic link; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_symlink(
    volume: *mut SpinneyVolume,
    target: *const c_char,
    link: *const c_char,
) -> c_int {
    // SAFETY: the caller keeps the contract of the header.
    unsafe { with_two(volume, (target, "target"), (link, "link"), |volume, target, link| volume.symlink(target, link)) }
}

/// Runs a call with two paths.
///
/// # Safety
/// Both are texts, or NULL.
unsafe fn with_two(
    volume: *mut SpinneyVolume,
    one: (*const c_char, &'static str),
    two: (*const c_char, &'static str),
    call: impl FnOnce(&Volume, &std::path::Path, &std::path::Path) -> Result<()>,
) -> c_int {
    // SAFETY: as this function demands.
    let (one, two) = unsafe { (path(one.0, one.1), path(two.0, two.1)) };
    on(volume, |volume| call(volume, one?, two?).map(|()| 0))
}

/// Copies the target of a symbolic link; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_readlink(
    volume: *mut SpinneyVolume,
    path: *const c_char,
    buffer: *mut c_char,
    size: usize,
) -> i64 {
    // SAFETY: the caller keeps the contract of the header.
    let (path, buffer) = unsafe { (self::path(path, "path"), self::buffer(buffer.cast(), size)) };
    on(volume, |volume| copy_value(volume.read_link(path?)?.as_os_str().as_bytes(), buffer?))
}
