//! Calls a control operation of the served format on a FUSE mount, by `ioctl`. Called by `spinney subvolume` on a
//! mount, and by tests.

use rustix::fd::BorrowedFd;
use rustix::fs::fstatfs;
use rustix::io::Errno;
use rustix::ioctl::{self, Ioctl, IoctlOutput, Opcode};
use std::ffi::c_void;
use std::io;

/// Type of all FUSE mounts in `statfs(2)`.
const FUSE_MAGIC: u32 = 0x6573_5546;
/// Ioctl type of the formats' operations.
const KIND: u32 = 0x94;
/// Operations of that kind that Linux answers itself for every file system, with pointers of their own.
const OF_LINUX: [u32; 3] = [9, 13, 54];

/// An operation whose number is known when it is made.
struct Operation<'a>(Opcode, &'a mut [u8]);

// SAFETY: the pointer is to as many bytes as the number says, which `control` has checked, and the call may change
// them.
unsafe impl Ioctl for Operation<'_> {
    type Output = ();
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        self.0
    }

    fn as_ptr(&mut self) -> *mut c_void {
        self.1.as_mut_ptr().cast()
    }

    unsafe fn output_from_ptr(_: IoctlOutput, _: *mut c_void) -> rustix::io::Result<()> {
        Ok(())
    }
}

/// Calls a control operation of the server of the FUSE mount that contains an open file. `args` has the arguments, as
/// many bytes as the number says, and afterwards the answer; a failure may have changed it as well.
///
/// # Errors
/// The server's; `EINVAL` for an operation that no format has, or for wrong arguments; `ENOTTY` for a file outside a
/// FUSE mount, or an operation that its server does not know.
pub fn control(file: BorrowedFd<'_>, command: u32, args: &mut [u8]) -> io::Result<()> {
    const SIZE_MASK: u32 = (1 << 14) - 1;
    let [number, kind, ..] = command.to_le_bytes().map(u32::from);
    let size = usize::try_from((command >> 16) & SIZE_MASK);
    if kind != KIND || OF_LINUX.contains(&number) || size != Ok(args.len()) {
        return Err(Errno::INVAL.into());
    }
    if u32::try_from(fstatfs(file)?.f_type) != Ok(FUSE_MAGIC) {
        return Err(Errno::NOTTY.into());
    }
    // SAFETY: of a FUSE mount's operation the kernel copies as many bytes in and out as its number says, which was
    // compared, and follows no pointer in them; those that it answers itself were refused.
    Ok(unsafe { ioctl::ioctl(file, Operation(Opcode::from(command), args)) }?)
}
