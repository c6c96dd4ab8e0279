//! Makes devices of functions of the caller, and of memory. Volumes are opened, made and checked on them.

use std::ffi::{c_char, c_int, c_void};
use std::fmt;
use std::io;
use std::sync::Arc;

use spinney::blockdev::{Error, Op, Result as DeviceResult};
use spinney::{Device, Devices, Errno, MemoryDevice, Result};

use crate::failure::Misuse;
use crate::handle::{self, Handle, SpinneyDevice, alone};
use crate::pointer::{HandlePlace, Struct, array, read_struct, utf8_or_null};
use crate::progress::Context;

/// `spinney_device_calls`: the functions of a device of the caller.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SpinneyDeviceCalls {
    pub struct_size: usize,
    pub name: *const c_char,
    pub size: u64,
    pub read: Option<unsafe extern "C" fn(*mut c_void, u64, *mut c_void, usize) -> c_int>,
    pub write: Option<unsafe extern "C" fn(*mut c_void, u64, *const c_void, usize) -> c_int>,
    pub flush: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
    pub discard: Option<unsafe extern "C" fn(*mut c_void, u64, u64) -> c_int>,
    pub release: Option<unsafe extern "C" fn(*mut c_void)>,
}

// SAFETY: it begins with its size; all fields are numbers, pointers and optional functions.
unsafe impl Struct for SpinneyDeviceCalls {
    const NAME: &'static str = "spinney_device_calls";
}

impl Handle for SpinneyDevice {
    type Object = Arc<dyn Device>;
    const NAME: &'static str = "a device";
}

/// A device of the caller's functions.
struct CallerDevice {
    name: String,
    calls: SpinneyDeviceCalls,
    context: Context,
}

// SAFETY: the functions may be called by any thread, as the header demands; the pointer to the name is not used.
unsafe impl Send for CallerDevice {}
// SAFETY: as above.
unsafe impl Sync for CallerDevice {}

impl fmt::Debug for CallerDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallerDevice").field("name", &self.name).field("size", &self.calls.size).finish_non_exhaustive()
    }
}

impl Drop for CallerDevice {
    fn drop(&mut self) {
        if let Some(release) = self.calls.release {
            // SAFETY: the caller gave the function for this context, and it is called once.
            unsafe { release(self.context.pointer()) }
        }
    }
}

impl CallerDevice {
    /// The result of a function of the caller.
    fn done(&self, op: Op, offset: u64, len: usize, code: c_int) -> DeviceResult<()> {
        if code == 0 {
            return Ok(());
        }
        let source = match code.checked_neg().filter(|errno| *errno > 0) {
            Some(errno) => io::Error::from_raw_os_error(errno),
            None => io::Error::other(format!("the function of the device returned {code}: expected 0 or less")),
        };
        Err(Error::io(op, &self.name, offset, u64::try_from(len).unwrap_or(u64::MAX), source))
    }

    /// Refuses a range that reaches past the end.
    fn check_range(&self, op: Op, offset: u64, len: u64) -> DeviceResult<()> {
        let size = self.calls.size;
        if offset.checked_add(len).is_some_and(|end| end <= size) {
            return Ok(());
        }
        let device = self.name.clone();
        Err(match op {
            Op::Read => Error::UnexpectedEnd { device, offset, len, size },
            _ => Error::OutOfRange { op, device, offset, len, size },
        })
    }

    fn check_writable(&self, op: Op) -> DeviceResult<()> {
        if self.is_read_only() { Err(Error::ReadOnly { op, device: self.name.clone() }) } else { Ok(()) }
    }
}

impl Device for CallerDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn size_bytes(&self) -> u64 {
        self.calls.size
    }

    fn is_read_only(&self) -> bool {
        self.calls.write.is_none()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.check_range(Op::Read, offset, u64::try_from(buf.len()).unwrap_or(u64::MAX))?;
        let Some(read) = self.calls.read else { return self.done(Op::Read, offset, buf.len(), -Errno::EIO.0) };
        // SAFETY: the caller gave the function for this context; the buffer has the length.
        let code = unsafe { read(self.context.pointer(), offset, buf.as_mut_ptr().cast(), buf.len()) };
        self.done(Op::Read, offset, buf.len(), code)
    }

    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> DeviceResult<()> {
        self.check_writable(Op::Write)?;
        let Some(write) = self.calls.write else { return Ok(()) };
        let len = parts.iter().map(|part| u64::try_from(part.len()).unwrap_or(u64::MAX)).fold(0, u64::saturating_add);
        self.check_range(Op::Write, offset, len)?;
        let mut at = offset;
        for part in parts {
            // SAFETY: the caller gave the function for this context; the buffer has the length.
            let code = unsafe { write(self.context.pointer(), at, part.as_ptr().cast(), part.len()) };
            self.done(Op::Write, at, part.len(), code)?;
            at = at.saturating_add(u64::try_from(part.len()).unwrap_or(u64::MAX));
        }
        Ok(())
    }

    fn flush(&self) -> DeviceResult<()> {
        let Some(flush) = self.calls.flush else { return Ok(()) };
        // SAFETY: the caller gave the function for this context.
        self.done(Op::Flush, 0, 0, unsafe { flush(self.context.pointer()) })
    }

    fn discard(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.check_writable(Op::Discard)?;
        self.check_range(Op::Discard, offset, len)?;
        let Some(discard) = self.calls.discard else { return Ok(()) };
        // SAFETY: the caller gave the function for this context.
        let code = unsafe { discard(self.context.pointer(), offset, len) };
        self.done(Op::Discard, offset, usize::try_from(len).unwrap_or(usize::MAX), code)
    }

    fn grow(&self, size_bytes: u64) -> DeviceResult<()> {
        if size_bytes <= self.calls.size {
            return Ok(());
        }
        Err(Error::CannotGrow { device: self.name.clone(), size: self.calls.size })
    }
}

/// Makes a device of the caller's functions; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_device_new(
    calls: *const SpinneyDeviceCalls,
    context: *mut c_void,
    device: *mut *mut SpinneyDevice,
) -> c_int {
    // SAFETY: the caller keeps the contract of the header.
    let (calls, place) = unsafe { (read_struct(calls), HandlePlace::new(device, "device")) };
    alone(|| {
        let (calls, place) = (calls?, place?);
        if calls.read.is_none() {
            return Err(Misuse::Null("read").error());
        }
        // SAFETY: as above.
        let name = unsafe { utf8_or_null(calls.name, "name") }?.unwrap_or("device").to_owned();
        let device: Arc<dyn Device> = Arc::new(CallerDevice { name, calls, context: Context(context) });
        place.fill(handle::new(device));
        Ok(0)
    })
}

/// Makes a device in memory; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_device_memory(size: u64, device: *mut *mut SpinneyDevice) -> c_int {
    // SAFETY: the caller keeps the contract of the header.
    let place = unsafe { HandlePlace::new(device, "device") };
    alone(|| {
        let place = place?;
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(size));
        place.fill(handle::new(device));
        Ok(0)
    })
}

/// The devices behind an array of handles.
///
/// # Safety
/// `devices` leads to `count` handles, or is NULL.
pub(crate) unsafe fn devices(devices: *const *mut SpinneyDevice, count: usize) -> Result<Devices> {
    // SAFETY: as this function demands.
    let handles = unsafe { array(devices, count, "devices") }?;
    Ok(handle::all(handles)?.iter().map(|device| Arc::clone(device)).collect())
}
