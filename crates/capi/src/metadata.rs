//! Tells and changes attributes of nodes by path.

use std::ffi::{c_char, c_int, c_void};
use std::mem::size_of;

use spinney::{Metadata, Result, SetAttr, SetTime, Time, XattrMode};

use crate::failure::Misuse;
use crate::handle::{SpinneyVolume, on};
use crate::pointer::{Struct, StructPlace, array, buffer, check_flags, copy_value, path, text};

/// Stands for the present time.
pub const SPINNEY_TIME_NOW: u32 = 1_073_741_823;
/// Leaves a time as it is.
pub const SPINNEY_TIME_OMIT: u32 = 1_073_741_822;
/// Fails if the attribute is there.
pub const SPINNEY_XATTR_CREATE: u32 = 1;
/// Fails if the attribute is not there.
pub const SPINNEY_XATTR_REPLACE: u32 = 2;

/// Permission bits.
const MODE_MASK: u32 = 0o7777;
/// Nanoseconds of a second.
const SECOND_NS: u32 = 1_000_000_000;

/// `spinney_time`: seconds since 1970.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct SpinneyTime {
    pub seconds: i64,
    pub nanoseconds: u32,
    pub reserved: u32,
}

/// `spinney_attributes`: attributes of a node.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SpinneyAttributes {
    pub struct_size: usize,
    pub ino: u64,
    pub subvolume: u64,
    pub size: u64,
    pub blocks: u64,
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    pub block_bytes: u32,
    pub atime: SpinneyTime,
    pub mtime: SpinneyTime,
    pub ctime: SpinneyTime,
    pub btime: SpinneyTime,
}

// SAFETY: it begins with its size; all fields are numbers.
unsafe impl Struct for SpinneyAttributes {
    const NAME: &'static str = "spinney_attributes";
}

/// A time for the caller.
pub(crate) fn time_of(time: Time) -> SpinneyTime {
    SpinneyTime { seconds: time.sec, nanoseconds: time.nsec, reserved: 0 }
}

/// Attributes for the caller.
pub(crate) fn attributes_of(found: &Metadata) -> SpinneyAttributes {
    SpinneyAttributes {
        struct_size: size_of::<SpinneyAttributes>(),
        ino: found.ino,
        subvolume: found.home.subvolume,
        size: found.size,
        blocks: found.blocks,
        mode: found.mode(),
        nlink: found.nlink,
        uid: found.uid,
        gid: found.gid,
        rdev: found.rdev,
        block_bytes: found.block_bytes,
        atime: time_of(found.atime),
        mtime: time_of(found.mtime),
        ctime: time_of(found.ctime),
        btime: time_of(found.btime),
    }
}

/// Refuses a mode with other bits than permissions.
pub(crate) fn check_mode(mode: u32) -> Result<()> {
    match mode & !MODE_MASK {
        0 => Ok(()),
        _ => Err(Misuse::value("mode", "permission bits, at most 07777", format!("{mode:#o}"))),
    }
}

/// Tells the attributes of what a path leads to; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_stat(
    volume: *mut SpinneyVolume,
    path: *const c_char,
    attributes: *mut SpinneyAttributes,
) -> c_int {
    // SAFETY: the caller keeps the contract of the header.
    let (path, place) = unsafe { (self::path(path, "path"), StructPlace::new(attributes)) };
    on(volume, |volume| {
        place?.fill(&attributes_of(&volume.metadata(path?)?));
        Ok(0)
    })
}

/// Tells the attributes of a node, also of a symbolic link; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_lstat(
    volume: *mut SpinneyVolume,
    path: *const c_char,
    attributes: *mut SpinneyAttributes,
) -> c_int {
    // SAFETY: the caller keeps the contract of the header.
    let (path, place) = unsafe { (self::path(path, "path"), StructPlace::new(attributes)) };
    on(volume, |volume| {
        place?.fill(&attributes_of(&volume.symlink_metadata(path?)?));
        Ok(0)
    })
}

/// Sets permissions; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_chmod(volume: *mut SpinneyVolume, path: *const c_char, mode: u32) -> c_int {
    // SAFETY: the caller keeps the contract of the header.
    let path = unsafe { self::path(path, "path") };
    on(volume, |volume| {
        check_mode(mode)?;
        volume.set_permissions(path?, mode).map(|()| 0)
    })
}

/// Sets owner and group; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_chown(volume: *mut SpinneyVolume, path: *const c_char, uid: u32, gid: u32) -> c_int {
    // SAFETY: the caller keeps the contract of the header.
    let path = unsafe { self::path(path, "path") };
    let id = |id| (id != u32::MAX).then_some(id);
    on(volume, |volume| volume.set_owner(path?, id(uid), id(gid)).map(|()| 0))
}

/// Sets times; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_utimens(
    volume: *mut SpinneyVolume,
    path: *const c_char,
    atime: *const SpinneyTime,
    mtime: *const SpinneyTime,
) -> c_int {
    // SAFETY: the caller keeps the contract of the header.
    let (path, atime, mtime) = unsafe { (self::path(path, "path"), time_to_set(atime), time_to_set(mtime)) };
    on(volume, |volume| {
        let changes = SetAttr { atime: atime?, mtime: mtime?, ..SetAttr::default() };
        volume.set_attributes(path?, &changes).map(|()| 0)
    })
}

/// # Safety
/// `time` is NULL, or a struct of the header.
unsafe fn time_to_set(time: *const SpinneyTime) -> Result<Option<SetTime>> {
    if time.is_null() {
        return Ok(Some(SetTime::Now));
    }
    // SAFETY: as this function demands.
    let SpinneyTime { seconds, nanoseconds, .. } = unsafe { time.read() };
    match nanoseconds {
        SPINNEY_TIME_NOW => Ok(Some(SetTime::Now)),
        SPINNEY_TIME_OMIT => Ok(None),
        0..SECOND_NS => Ok(Some(SetTime::To(Time::new(seconds, nanoseconds)))),
        _ => Err(Misuse::value("nanoseconds", "less than 1000000000", nanoseconds)),
    }
}

/// Copies the value of an extended attribute; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_getxattr(
    volume: *mut SpinneyVolume,
    path: *const c_char,
    name: *const c_char,
    buffer: *mut c_void,
    size: usize,
) -> i64 {
    // SAFETY: the caller keeps the contract of the header.
    let (path, name, buffer) =
        unsafe { (self::path(path, "path"), text(name, "name"), self::buffer(buffer.cast(), size)) };
    on(volume, |volume| {
        let path = path?;
        let value = volume.get_xattr(path, name?)?;
        let missing = || spinney::Error::from(spinney::Errno::ENODATA).during("get_xattr").at(path);
        copy_value(&value.ok_or_else(missing)?, buffer?)
    })
}

/// Sets an extended attribute; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_setxattr(
    volume: *mut SpinneyVolume,
    path: *const c_char,
    name: *const c_char,
    value: *const c_void,
    size: usize,
    flags: u32,
) -> c_int {
    // SAFETY: the caller keeps the contract of the header.
    let (path, name, value) =
        unsafe { (self::path(path, "path"), text(name, "name"), array(value.cast::<u8>(), size, "value")) };
    on(volume, |volume| {
        check_flags(flags, SPINNEY_XATTR_CREATE | SPINNEY_XATTR_REPLACE)?;
        let mode = match flags {
            0 => XattrMode::Either,
            SPINNEY_XATTR_CREATE => XattrMode::Create,
            SPINNEY_XATTR_REPLACE => XattrMode::Replace,
            both => return Err(Misuse::value("flags", "one of the two", both)),
        };
        volume.set_xattr(path?, name?, value?, mode).map(|()| 0)
    })
}

/// Removes an extended attribute; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_removexattr(
    volume: *mut SpinneyVolume,
    path: *const c_char,
    name: *const c_char,
) -> c_int {
    // SAFETY: the caller keeps the contract of the header.
    let (path, name) = unsafe { (self::path(path, "path"), text(name, "name")) };
    on(volume, |volume| volume.remove_xattr(path?, name?).map(|()| 0))
}

/// Copies the names of the extended attributes; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_listxattr(
    volume: *mut SpinneyVolume,
    path: *const c_char,
    buffer: *mut c_char,
    size: usize,
) -> i64 {
    // SAFETY: the caller keeps the contract of the header.
    let (path, buffer) = unsafe { (self::path(path, "path"), self::buffer(buffer.cast(), size)) };
    on(volume, |volume| {
        let mut names = Vec::new();
        for name in volume.list_xattrs(path?)? {
            names.extend_from_slice(name.as_encoded_bytes());
            names.push(0);
        }
        copy_value(&names, buffer?)
    })
}
