//! Copies trees from and to the host, and what archives and other images hold.

use std::ffi::{OsStr, OsString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt as _;

use spinney::ContentsOptions;

use crate::handle::{SpinneyVolume, on};
use crate::pointer::{path, texts};
use crate::progress::{SpinneyProgressFn, watch};

/// Copies a directory of the host into a volume; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_import(
    volume: *mut SpinneyVolume,
    from: *const c_char,
    to: *const c_char,
    progress: SpinneyProgressFn,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller keeps the contract of the header.
    let (from, to, mut watch) = unsafe { (path(from, "from"), path(to, "to"), watch(progress, context)) };
    on(volume, |volume| volume.import(from?, to?, &mut watch).map(|()| 0))
}

/// Copies a directory of a volume to the host; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_export(
    volume: *mut SpinneyVolume,
    from: *const c_char,
    to: *const c_char,
    progress: SpinneyProgressFn,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller keeps the contract of the header.
    let (from, to, mut watch) = unsafe { (path(from, "from"), path(to, "to"), watch(progress, context)) };
    on(volume, |volume| volume.export(from?, to?, &mut watch).map(|()| 0))
}

/// Copies what archives, container images, other images and directories hold; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_import_contents(
    volume: *mut SpinneyVolume,
    sources: *const *const c_char,
    count: usize,
    to: *const c_char,
    progress: SpinneyProgressFn,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller keeps the contract of the header.
    let (sources, to, mut watch) =
        unsafe { (texts(sources, count, "sources"), path(to, "to"), watch(progress, context)) };
    on(volume, |volume| {
        let sources: Vec<OsString> = sources?.into_iter().map(|one| OsStr::from_bytes(one).to_owned()).collect();
        volume.import_contents(&sources, to?, &ContentsOptions::default(), &mut watch).map(|()| 0)
    })
}
