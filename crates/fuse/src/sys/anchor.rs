//! A block device of no use but to be there: the kernel trusts a server with syncing the whole
//! file system only where a block device is mounted.

use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{self, Ioctl, IoctlOutput, Opcode};
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Bytes of the device. The kernel looks at none of them.
const LEN: u64 = 64 * 1024;
/// How often another process may snatch the free device.
const TRIES_MAX: usize = 16;

const LOOP_CTL_GET_FREE: Opcode = 0x4c82;
const LOOP_CONFIGURE: Opcode = 0x4c0a;
/// `LO_FLAGS_AUTOCLEAR`: gone when nobody has it open or mounted any more.
const AUTOCLEAR: u32 = 4;
/// Words of `struct loop_info64`, and where its flags are.
const INFO_WORDS: usize = 58;
const INFO_FLAGS: usize = 13;

/// `struct loop_config` of linux/loop.h.
#[repr(C)]
struct Config {
    fd: u32,
    block_bytes: u32,
    info: [u32; INFO_WORDS],
    reserved: [u64; 8],
}
const _: () = assert!(size_of::<Config>() == 304);

/// Asks for the number of a free loop device, which the call returns.
struct GetFree;

// SAFETY: the operation takes no argument and writes nowhere; its result is the return value.
unsafe impl Ioctl for GetFree {
    type Output = IoctlOutput;

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        LOOP_CTL_GET_FREE
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut c_void) -> rustix::io::Result<IoctlOutput> {
        Ok(out)
    }
}

/// A block device on a few bytes of memory, and its path. It goes when it is closed and not
/// mounted any more.
pub(crate) fn make_anchor() -> io::Result<(OwnedFd, String)> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let memory = rustix::fs::memfd_create("spinney-anchor", MemfdFlags::CLOEXEC)?;
    rustix::fs::ftruncate(&memory, LEN)?;
    let control = rustix::fs::open("/dev/loop-control", flags, Mode::empty())?;
    for _ in 0..TRIES_MAX {
        // SAFETY: `GetFree` describes the operation as it is.
        let number = unsafe { ioctl::ioctl(&control, GetFree)? };
        let path = format!("/dev/loop{number}");
        let device = rustix::fs::open(path.as_str(), flags, Mode::empty())?;
        let mut config = Config {
            fd: u32::try_from(memory.as_raw_fd()).map_err(|_| io::ErrorKind::InvalidInput)?,
            block_bytes: 0,
            info: [0; INFO_WORDS],
            reserved: [0; 8],
        };
        config.info[INFO_FLAGS] = AUTOCLEAR;
        // SAFETY: the operation reads one `struct loop_config` through its pointer, which is what
        // `Setter` passes; it keeps a reference of its own to the file that `fd` names.
        let configured = unsafe {
            ioctl::ioctl(
                &device,
                ioctl::Setter::<LOOP_CONFIGURE, Config>::new(config),
            )
        };
        match configured {
            Ok(()) => return Ok((device, path)),
            Err(Errno::BUSY) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Errno::BUSY.into())
}
