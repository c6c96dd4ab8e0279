//! Makes the anchor: a tiny loop device that serves only as the source of a `fuseblk` mount. The kernel passes `sync`
//! and `syncfs` to a FUSE server only for mounts of a block device. Called by `mount/direct`.

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{self, Ioctl, IoctlOutput, Opcode};
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// Bytes of the device. The kernel reads none of them, and no program can take a device this small for the file system
/// in the file.
const LEN: u32 = 4096;
/// [`LEN`] as the two 32-bit words of a 64-bit number.
const LEN_WORDS: [u32; 2] = if cfg!(target_endian = "little") { [LEN, 0] } else { [0, LEN] };
/// Attempts to configure a free loop device, as another process may take it after its number was asked for.
const TRIES_MAX: usize = 16;

const LOOP_CTL_GET_FREE: Opcode = 0x4c82;
const LOOP_CONFIGURE: Opcode = 0x4c0a;
/// `LO_FLAGS_AUTOCLEAR`: the kernel detaches the device when its last opener or mount is gone.
const AUTOCLEAR: u32 = 4;
/// Words of `struct loop_info64`, where its size limit is (two words), and where its flags are.
const INFO_WORDS: usize = 58;
const INFO_SIZE_LIMIT: usize = 8;
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

/// Makes a loop device on the first bytes of a file; returns it with its path. The kernel detaches it when it is
/// neither open nor mounted any more.
pub(crate) fn make_anchor(file: BorrowedFd<'_>) -> io::Result<(OwnedFd, String)> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let control = rustix::fs::open("/dev/loop-control", flags, Mode::empty())?;
    for _ in 0..TRIES_MAX {
        // SAFETY: `GetFree` describes the operation correctly.
        let number = unsafe { ioctl::ioctl(&control, GetFree)? };
        let path = format!("/dev/loop{number}");
        let device = rustix::fs::open(path.as_str(), flags, Mode::empty())?;
        let mut config = Config {
            fd: u32::try_from(file.as_raw_fd()).map_err(|_| io::ErrorKind::InvalidInput)?,
            block_bytes: 0,
            info: [0; INFO_WORDS],
            reserved: [0; 8],
        };
        config.info[INFO_SIZE_LIMIT..][..2].copy_from_slice(&LEN_WORDS);
        config.info[INFO_FLAGS] = AUTOCLEAR;
        // SAFETY: the operation reads one `struct loop_config` through its pointer, which is what
        // `Setter` passes; it keeps a reference of its own to the file that `fd` names.
        let configured = unsafe { ioctl::ioctl(&device, ioctl::Setter::<LOOP_CONFIGURE, Config>::new(config)) };
        match configured {
            Ok(()) => return Ok((device, path)),
            Err(Errno::BUSY) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Errno::BUSY.into())
}
