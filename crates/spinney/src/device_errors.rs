//! Converts errors of devices to errors of the library. Called by `open`, `repair` and `formats`.

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
