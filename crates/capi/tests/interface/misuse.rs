//! Calls that no program should make are refused, each with an error that says why.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::{size_of, zeroed};
use std::ptr::{null, null_mut};

use spinney_capi::*;

const EBADF: c_int = -9;
const EINVAL: c_int = -22;
const E2BIG: c_int = -7;

/// The message of a handle, or of this thread for NULL.
pub(crate) fn message<T>(handle: *const T) -> String {
    let text = spinney_error_message(handle.cast());
    unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned()
}

pub(crate) fn text(text: &str) -> CString {
    CString::new(text).unwrap()
}

/// A volume in memory.
pub(crate) fn volume(format: &str) -> *mut SpinneyVolume {
    let (mut device, mut volume) = (null_mut(), null_mut());
    unsafe {
        assert_eq!(spinney_device_memory(64 << 20, &raw mut device), 0);
        let made = spinney_make_devices(&raw const device, 1, text(format).as_ptr(), null(), &raw mut volume);
        assert_eq!(made, 0, "{}", message::<u8>(null()));
    }
    assert_eq!(spinney_close(device.cast()), 0);
    volume
}

#[test]
fn handles_that_are_none_are_told() {
    let volume = volume("btrfs");
    let path = text("dir");
    let mut dir = null_mut();
    unsafe {
        assert_eq!(spinney_dir_open(volume, text("/").as_ptr(), &raw mut dir), 0);
        // NULL, an address of the caller, a handle of another type.
        assert_eq!(spinney_mkdir(null_mut(), path.as_ptr(), 0o755), EINVAL);
        assert_eq!(message::<u8>(null()), "`a volume` is NULL");
        let mut own = 0u64;
        assert_eq!(spinney_mkdir((&raw mut own).cast(), path.as_ptr(), 0o755), EBADF);
        assert_eq!(
            message::<u8>(null()),
            "not an open handle: expected a volume, found one that was closed, or no handle"
        );
        assert_eq!(spinney_mkdir(dir.cast(), path.as_ptr(), 0o755), EBADF);
        assert_eq!(message::<u8>(null()), "a handle of another type: expected a volume, found a directory");
        // The directory stays usable without the handle of its volume; a closed handle does not.
        assert_eq!(spinney_close(volume.cast()), 0);
        assert_eq!(spinney_mkdir(volume, path.as_ptr(), 0o755), EBADF);
        let mut entry: SpinneyEntry = zeroed();
        entry.struct_size = size_of::<SpinneyEntry>();
        assert_eq!(spinney_dir_read(dir, &raw mut entry), 0);
    }
    assert_eq!(spinney_close(dir.cast()), 0);
    assert_eq!(spinney_close(dir.cast()), EBADF);
    assert_eq!(spinney_close((&raw const path).cast_mut().cast()), EBADF);
}

#[test]
fn pointers_and_numbers_that_make_no_sense() {
    let volume = volume("btrfs");
    let (path, name) = (text("f"), text("user.x"));
    let mut file = null_mut();
    let mut bytes = [0u8; 8];
    let buffer: *mut c_void = bytes.as_mut_ptr().cast();
    unsafe {
        assert_eq!(spinney_mkdir(volume, null(), 0o755), EINVAL);
        assert_eq!(message(volume), "`path` is NULL");
        assert_eq!(spinney_mkdir(volume, path.as_ptr(), 0o17_777), EINVAL);
        assert_eq!(message(volume), "`mode` is 0o17777: expected permission bits, at most 07777");
        assert_eq!(spinney_file_open(volume, path.as_ptr(), 64, 0, &raw mut file), EINVAL);
        assert_eq!(spinney_file_open(volume, path.as_ptr(), 0, 0, &raw mut file), EINVAL);
        assert_eq!(spinney_file_open(volume, path.as_ptr(), 11, 0o644, null_mut()), EINVAL);
        assert_eq!(spinney_file_open(volume, path.as_ptr(), 11, 0o644, &raw mut file), 0);
        assert_eq!(spinney_file_write(file, null(), 3, 0), i64::from(EINVAL));
        assert_eq!(spinney_file_write(file, null(), 0, 0), 0);
        assert_eq!(spinney_file_write(file, buffer, 3, -1), i64::from(EINVAL));
        assert_eq!(message(file), "`offset` is -1: expected 0 or more");
        assert_eq!(spinney_file_write(file, buffer, usize::MAX, 0), i64::from(EINVAL));
        assert_eq!(spinney_file_read(file, buffer, 8, i64::MAX), 0);
        assert!(spinney_file_write(file, buffer, 8, i64::MAX) < 0);
        assert_eq!(spinney_file_truncate(file, i64::MIN), EINVAL);
        assert_eq!(spinney_setxattr(volume, path.as_ptr(), name.as_ptr(), buffer, 1, 3), EINVAL);
        let long = SpinneyTime { seconds: 0, nanoseconds: 1_000_000_000, reserved: 0 };
        assert_eq!(spinney_utimens(volume, path.as_ptr(), &raw const long, null()), EINVAL);
        assert_eq!(spinney_receive(volume, text("/").as_ptr(), -1, None, null_mut()), EINVAL);
        assert_eq!(spinney_receive(volume, text("/").as_ptr(), 1 << 20, None, null_mut()), EBADF);
        assert_eq!(spinney_send_to(volume, path.as_ptr(), null(), None, None, null_mut()), EINVAL);
        let mut list = null_mut();
        let other = self::volume("f2fs");
        assert_eq!(spinney_subvolumes_open(other, &raw mut list), -95);
        assert_eq!(message(other), "the format f2fs has none of this: it needs btrfs");
        spinney_close(other.cast());
    }
    spinney_close(file.cast());
    spinney_close(volume.cast());
}

#[test]
fn structs_of_older_and_newer_programs() {
    let volume = volume("btrfs");
    #[repr(C)]
    struct Newer {
        known: SpinneyInfo,
        further: u64,
    }
    unsafe {
        let mut info: SpinneyInfo = zeroed();
        assert_eq!(spinney_get_info(volume, &raw mut info), EINVAL);
        let expected = size_of::<SpinneyInfo>();
        assert_eq!(message(volume), format!("the struct `spinney_info` has 0 bytes: expected {expected} or more"));
        let mut newer = Newer { known: zeroed(), further: 7 };
        newer.known.struct_size = size_of::<Newer>();
        assert_eq!(spinney_get_info(volume, &raw mut newer.known), 0);
        assert_eq!((newer.further, newer.known.struct_size), (0, size_of::<Newer>()));
        #[repr(C)]
        struct NewerOptions {
            known: SpinneySendOptions,
            further: u64,
        }
        let mut options = NewerOptions { known: zeroed(), further: 1 };
        options.known.struct_size = size_of::<NewerOptions>();
        let (path, out) = (text("/"), out_of());
        let send = |options: &NewerOptions| {
            spinney_send_to(volume, path.as_ptr(), (&raw const *options).cast(), out, None, null_mut())
        };
        assert_eq!(send(&options), E2BIG);
        options.further = 0;
        // The top level is writable, which is the next thing to be wrong.
        assert_eq!(send(&options), EINVAL);
        assert!(message(volume).contains("only read-only ones are sent"), "{}", message(volume));
    }
    spinney_close(volume.cast());
}

fn out_of() -> SpinneyWriteFn {
    unsafe extern "C" fn take(_context: *mut c_void, _buffer: *const c_void, length: usize) -> i64 {
        i64::try_from(length).unwrap_or(-5)
    }
    Some(take)
}

/// A device of the caller that fails with the number that its context holds.
unsafe extern "C" fn failing_read(context: *mut c_void, _offset: u64, _buffer: *mut c_void, _length: usize) -> c_int {
    unsafe { *context.cast::<c_int>() }
}

#[test]
fn devices_that_fail_or_return_nonsense() {
    let mut code: c_int = -5;
    let name = text("mine");
    let mut calls: SpinneyDeviceCalls = unsafe { zeroed() };
    calls.struct_size = size_of::<SpinneyDeviceCalls>();
    (calls.size, calls.name) = (64 << 20, name.as_ptr());
    let (mut device, mut volume) = (null_mut(), null_mut());
    let context: *mut c_void = (&raw mut code).cast();
    unsafe {
        assert_eq!(spinney_device_new(&raw const calls, context, &raw mut device), EINVAL);
        assert_eq!(message::<u8>(null()), "`read` is NULL");
        calls.read = Some(failing_read);
        assert_eq!(spinney_device_new(&raw const calls, context, &raw mut device), 0);
        for (answer, expected) in [(-5, "Input/output error"), (-28, "No space left"), (7, "returned 7: expected 0")] {
            context.cast::<c_int>().write(answer);
            assert!(spinney_open_devices(&raw const device, 1, null(), &raw mut volume) < 0);
            let message = message::<u8>(null());
            assert!(message.starts_with("mine: cannot read") && message.contains(expected), "{message}");
            assert!(volume.is_null());
        }
        assert_eq!(spinney_open_devices(null(), 1, null(), &raw mut volume), EINVAL);
        assert_eq!(spinney_open_devices(null(), 0, null(), &raw mut volume), EINVAL);
    }
    spinney_close(device.cast());
}

#[test]
fn options_that_no_format_has() {
    let (mut device, mut volume) = (null_mut(), null_mut());
    let (format, words) = (text("btrfs"), text("ro,flavour=sweet"));
    let mut make: SpinneyMakeOptions = unsafe { zeroed() };
    make.struct_size = size_of::<SpinneyMakeOptions>();
    make.options = words.as_ptr();
    let latin: [c_char; 3] = [c_char::from_ne_bytes([0xe9]), 61, 0];
    unsafe {
        assert_eq!(spinney_device_memory(64 << 20, &raw mut device), 0);
        let wrong = spinney_make_devices(&raw const device, 1, format.as_ptr(), &raw const make, &raw mut volume);
        assert_eq!(wrong, EINVAL, "{}", message::<u8>(null()));
        let wrong = spinney_make_devices(&raw const device, 1, text("ext9").as_ptr(), null(), &raw mut volume);
        assert_eq!(wrong, EINVAL);
        assert!(message::<u8>(null()).contains("unknown format `ext9`"), "{}", message::<u8>(null()));
        assert_eq!(spinney_make_devices(&raw const device, 1, format.as_ptr(), null(), &raw mut volume), 0);
        assert_eq!(spinney_close(volume.cast()), 0);
        let mut open: SpinneyOpenOptions = zeroed();
        open.struct_size = size_of::<SpinneyOpenOptions>();
        let seconds = text("commit=0");
        for options in [words.as_ptr(), latin.as_ptr(), seconds.as_ptr()] {
            open.options = options;
            assert_eq!(spinney_open_devices(&raw const device, 1, &raw const open, &raw mut volume), EINVAL);
        }
    }
    spinney_close(device.cast());
}
