//! Calls a server of this crate to report lost data that the kernel had accepted. `spinney umount` calls it before it
//! unmounts.

use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::ioctl;
use std::io;

/// Returns an error number, or 0: read-direction, 32 bits, of an otherwise unused type and number.
pub(crate) const LOST: ioctl::Opcode = ioctl::opcode::read::<i32>(b'S', 0xb7);

/// Fails if data that the kernel had accepted from programs for existing files was refused by the server of the mount
/// of `root`. Call after syncing. Servers of other programs report no failure.
///
/// # Errors
/// The first error of a refused write; the system's if the server cannot be asked.
pub fn check_written(root: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the operation writes one i32 through the pointer it is given, and `Getter` gives it a pointer to one
    // that lives as long as the call, and takes any value.
    let lost = unsafe { ioctl::ioctl(root, ioctl::Getter::<LOST, i32>::new()) };
    match lost {
        Ok(0) | Err(Errno::NOTTY | Errno::NOSYS) => Ok(()),
        Ok(number) => Err(io::Error::from_raw_os_error(number)),
        Err(error) => Err(error.into()),
    }
}
