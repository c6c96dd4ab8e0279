//! Asking a server of this crate what became of data that the kernel had taken.

use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::ioctl;
use std::io;

/// Answered with the number of an error, or 0: read-direction, 32 bits, of a type and number that nobody else has.
pub(crate) const LOST: ioctl::Opcode = ioctl::opcode::read::<i32>(b'S', 0xb7);

/// Whether everything that the kernel had taken from programs for files that still exist could be handed over, as the
/// server of the mount of `root` knows it. Call after syncing. A server that is none of ours knows of no failure.
///
/// # Errors
/// What stopped the first that could not; what the system says when the server cannot be asked.
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
