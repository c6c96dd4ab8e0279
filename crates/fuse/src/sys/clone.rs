//! Makes a further descriptor of a FUSE connection, so that a worker has its own queue. Called by
//! `transport/connection`.

use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::ioctl;
use std::io;

/// `FUSE_DEV_IOC_CLONE`: read-direction, number 0 of type 229, with a descriptor of 32 bits.
const CLONE: ioctl::Opcode = ioctl::opcode::read::<u32>(229, 0);

/// Makes `fresh`, a just opened `/dev/fuse`, a channel of its own of the connection of `device`.
pub(crate) fn clone_device(device: BorrowedFd<'_>, fresh: BorrowedFd<'_>) -> io::Result<()> {
    let raw = u32::try_from(device.as_raw_fd()).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the operation reads one u32 through the pointer it is given, and `Updater` gives it
    // a pointer to one that lives as long as the call.
    unsafe {
        let mut raw = raw;
        ioctl::ioctl(fresh.as_fd(), ioctl::Updater::<CLONE, u32>::new(&mut raw))?;
    }
    Ok(())
}
