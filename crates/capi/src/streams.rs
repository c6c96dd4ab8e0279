//! Sends subvolumes to, and receives them from, file descriptors and functions of the caller.

use std::error::Error as StdError;
use std::ffi::{c_char, c_int, c_void};
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::iter::successors;
use std::os::fd::BorrowedFd;
use std::path::Path;

use spinney::btrfs::receive::{self, Receiver};
use spinney::btrfs::{self, SendError, SendOptions, Sending};
use spinney::{Blame, Errno, Error, Result, Volume};

use crate::failure::Misuse;
use crate::handle::{SpinneyVolume, on};
use crate::pointer::{Struct, as_path, check_flags, path, read_struct_or_null, text_or_null, texts};
use crate::progress::{Context, SpinneyProgressFn, watch};
use crate::subvolumes::own;

/// Sends compressed data as it is.
pub const SPINNEY_SEND_COMPRESSED: u32 = 1;
/// Sends which bytes differ, without them.
pub const SPINNEY_SEND_NO_DATA: u32 = 2;

/// Bytes of a stream that are asked for at once.
const READ_BYTES: usize = 1 << 20;

/// `spinney_send_options`: how a subvolume is sent.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SpinneySendOptions {
    pub struct_size: usize,
    pub parent: *const c_char,
    pub clones: *const *const c_char,
    pub clone_count: usize,
    pub version: u32,
    pub flags: u32,
}

// SAFETY: it begins with its size; all fields are numbers and pointers.
unsafe impl Struct for SpinneySendOptions {
    const NAME: &'static str = "spinney_send_options";
}

/// `spinney_write_fn`: takes the next bytes of a stream.
pub type SpinneyWriteFn =
    Option<unsafe extern "C" fn(context: *mut c_void, buffer: *const c_void, length: usize) -> i64>;

/// `spinney_read_fn`: gives the next bytes of a stream.
pub type SpinneyReadFn = Option<unsafe extern "C" fn(context: *mut c_void, buffer: *mut c_void, length: usize) -> i64>;

/// A stream behind a function of the caller.
struct Callback<F> {
    function: F,
    context: Context,
}

impl Write for Callback<unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> i64> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // SAFETY: the caller gave the function for this context; the buffer has the length.
        let done = unsafe { (self.function)(self.context.pointer(), bytes.as_ptr().cast(), bytes.len()) };
        bytes_done(done, bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Callback<unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> i64> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // SAFETY: the caller gave the function for this context; the buffer has the length.
        let done = unsafe { (self.function)(self.context.pointer(), buffer.as_mut_ptr().cast(), buffer.len()) };
        bytes_done(done, buffer.len())
    }
}

/// The result of a function of the caller.
fn bytes_done(done: i64, len: usize) -> io::Result<usize> {
    match usize::try_from(done) {
        Ok(done) if done <= len => Ok(done),
        Ok(done) => Err(io::Error::other(format!("the function of the stream returned {done} bytes of {len}"))),
        Err(_) => Err(io::Error::from_raw_os_error(i32::try_from(done.saturating_neg()).unwrap_or(Errno::EIO.0))),
    }
}

/// A file of the caller, with a descriptor of its own.
fn file(fd: c_int) -> Result<File> {
    if fd < 0 {
        return Err(Misuse::value("fd", "0 or more", fd));
    }
    // SAFETY: the borrow ends with this function. A number that is no open descriptor is refused by the system.
    let copy = unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned();
    copy.map(File::from).map_err(host)
}

fn host(error: io::Error) -> Error {
    Error::new(Errno(error.raw_os_error().unwrap_or(Errno::EIO.0)), Blame::Device, error)
}

/// Sends a subvolume to a file descriptor; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_send(
    volume: *mut SpinneyVolume,
    subvolume: *const c_char,
    options: *const SpinneySendOptions,
    fd: c_int,
    progress: SpinneyProgressFn,
    context: *mut c_void,
) -> c_int {
    on(volume, |volume| {
        // SAFETY: the caller keeps the contract of the header.
        unsafe { send(volume, subvolume, options, &mut file(fd)?, progress, context) }
    })
}

/// Sends a subvolume to a function; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_send_to(
    volume: *mut SpinneyVolume,
    subvolume: *const c_char,
    options: *const SpinneySendOptions,
    write: SpinneyWriteFn,
    progress: SpinneyProgressFn,
    context: *mut c_void,
) -> c_int {
    on(volume, |volume| {
        let function = write.ok_or_else(|| Misuse::Null("write").error())?;
        let mut output = Callback { function, context: Context(context) };
        // SAFETY: the caller keeps the contract of the header.
        unsafe { send(volume, subvolume, options, &mut output, progress, context) }
    })
}

/// # Safety
/// The pointers are those of a call of the header.
unsafe fn send(
    volume: &Volume,
    subvolume: *const c_char,
    options: *const SpinneySendOptions,
    output: &mut dyn Write,
    progress: SpinneyProgressFn,
    context: *mut c_void,
) -> Result<c_int> {
    // SAFETY: as this function demands.
    let (subvolume, options) = unsafe { (path(subvolume, "subvolume")?, read_struct_or_null(options)?) };
    let mut sending =
        Sending { subvolume, parent: None, clones: &[], options: SendOptions { version: 1, ..SendOptions::default() } };
    let mut clones = Vec::new();
    if let Some(given) = options {
        check_flags(given.flags, SPINNEY_SEND_COMPRESSED | SPINNEY_SEND_NO_DATA)?;
        // SAFETY: as this function demands.
        let (parent, texts) =
            unsafe { (text_or_null(given.parent), texts(given.clones, given.clone_count, "clones")?) };
        sending.parent = parent.map(as_path);
        clones.extend(texts.into_iter().map(as_path));
        sending.options.version = match given.version {
            0 => 1,
            version @ 1..=2 => version,
            other => return Err(Misuse::value("version", "1 or 2", other)),
        };
        sending.options.compressed_data = given.flags & SPINNEY_SEND_COMPRESSED != 0;
        sending.options.no_data = given.flags & SPINNEY_SEND_NO_DATA != 0;
    }
    sending.clones = &clones;
    // SAFETY: as this function demands.
    let mut watch = unsafe { watch(progress, context) };
    btrfs::send(own(volume)?, &sending, output, &mut watch).map_err(of_send)?;
    Ok(0)
}

/// Receives subvolumes from a file descriptor; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_receive(
    volume: *mut SpinneyVolume,
    dir: *const c_char,
    fd: c_int,
    progress: SpinneyProgressFn,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller keeps the contract of the header.
    let (dir, watch) = unsafe { (path(dir, "dir"), watch(progress, context)) };
    on(volume, |volume| receive(volume, dir?, file(fd)?, watch))
}

/// Receives subvolumes from a function; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_receive_from(
    volume: *mut SpinneyVolume,
    dir: *const c_char,
    read: SpinneyReadFn,
    progress: SpinneyProgressFn,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller keeps the contract of the header.
    let (dir, watch) = unsafe { (path(dir, "dir"), watch(progress, context)) };
    on(volume, |volume| {
        let function = read.ok_or_else(|| Misuse::Null("read").error())?;
        receive(volume, dir?, Callback { function, context: Context(context) }, watch)
    })
}

fn receive(
    volume: &Volume,
    dir: &Path,
    input: impl Read,
    mut watch: impl FnMut(&spinney::Progress) -> std::ops::ControlFlow<()> + Send,
) -> Result<c_int> {
    let options = receive::Options::default();
    let mut receiver = Receiver::new(own(volume)?, dir, options).map_err(of_receipt)?;
    let input = BufReader::with_capacity(READ_BYTES, input);
    let received = btrfs::receive(&mut receiver, input, &mut (), &mut watch);
    if received.is_err() {
        // The failure of the stream is the one to tell.
        let _ = receiver.discard();
    }
    received.map(|()| 0).map_err(of_receipt)
}

/// The failure of a send.
fn of_send(error: SendError) -> Error {
    match error {
        SendError::Volume(error) => error,
        error => {
            let errno = errno_in(&error).unwrap_or(Errno::EINVAL);
            let blame = if matches!(error, SendError::Output(_)) { Blame::Device } else { Blame::Caller };
            Error::new(errno, blame, error)
        }
    }
}

/// The failure of a receipt.
fn of_receipt(error: receive::Error) -> Error {
    let errno = match &error {
        receive::Error::Cancelled => Errno::ECANCELED,
        error => errno_in(error).unwrap_or(Errno::EIO),
    };
    Error::new(errno, Blame::Caller, error)
}

/// The number of the first cause that has one.
fn errno_in(error: &(dyn StdError + 'static)) -> Option<Errno> {
    successors(Some(error), |error: &&(dyn StdError + 'static)| (*error).source()).find_map(|cause| {
        match cause.downcast_ref::<Error>() {
            Some(error) => Some(error.errno()),
            None => cause.downcast_ref::<io::Error>()?.raw_os_error().map(Errno),
        }
    })
}
