//! Errors of devices as errors of the library.

use vfs::{Blame, Errno, Error};

/// The error of a device that cannot be opened or read.
pub(crate) fn device_error(error: ::blockdev::Error) -> Error {
    let errno = Errno(error.errno());
    let blame = match errno {
        Errno::EINVAL => Blame::Caller,
        Errno::EOPNOTSUPP => Blame::Program,
        _ => Blame::Device,
    };
    Error::new(errno, blame, error)
}
