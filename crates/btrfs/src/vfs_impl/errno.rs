//! What went wrong, in the numbers that Linux has for it.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use parking_lot::Mutex;
use vfs::Errno;

use crate::error::{CallerError, Error};

/// Different failures that are logged; what comes after them is only counted by its absence.
const LOGGED_MAX: usize = 1000;

impl From<&Error> for Errno {
    fn from(error: &Error) -> Self {
        match error {
            Error::Caller { what, .. } => (*what).into(),
            Error::Io { .. } if error.is_device_full() => Self::ENOSPC,
            Error::Io { .. } | Error::Corrupt { .. } => Self::EIO,
            Error::Unsupported(_) => Self::EOPNOTSUPP,
            Error::NoSpace => Self::ENOSPC,
            // The kernel turns a file system read-only when a transaction fails.
            Error::Poisoned { .. } => Self::EROFS,
        }
    }
}

impl From<CallerError> for Errno {
    fn from(what: CallerError) -> Self {
        use CallerError as C;
        match what {
            C::NotFound | C::NoSuchSubvolume => Self::ENOENT,
            C::Exists => Self::EEXIST,
            C::NotADirectory => Self::ENOTDIR,
            C::IsADirectory => Self::EISDIR,
            C::NotEmpty => Self::ENOTEMPTY,
            C::NameTooLong => Self::ENAMETOOLONG,
            C::InvalidArgument => Self::EINVAL,
            C::ReadOnly => Self::EROFS,
            C::CrossSubvolume => Self::EXDEV,
            C::TooManyLinks => Self::EMLINK,
            C::TooManySymlinks => Self::ELOOP,
            C::NoAttribute => Self::ENODATA,
            C::AttributeTooLarge => Self::ENOSPC,
            C::Busy => Self::EBUSY,
            C::NotPermitted => Self::EPERM,
            C::AccessDenied => Self::EACCES,
            C::BadAccess => Self::EBADF,
            C::TooLarge => Self::EFBIG,
            C::NoSuchOffset => Self::ENXIO,
            C::Stale => Self::ESTALE,
            C::NotSupported => Self::EOPNOTSUPP,
        }
    }
}

/// Failures that are not the caller's: each goes to the log once, with its place.
#[derive(Debug, Default)]
pub(super) struct FaultLog {
    hasher: RandomState,
    logged: Mutex<HashSet<u64>>,
}

impl FaultLog {
    /// The number for an error, which is logged when nobody has heard of it yet.
    pub(super) fn errno(&self, error: &Error) -> Errno {
        if !matches!(error, Error::Caller { .. } | Error::NoSpace) {
            self.note(error);
        }
        error.into()
    }

    #[cold]
    fn note(&self, error: &Error) {
        let text = error.to_string();
        let mut logged = self.logged.lock();
        if logged.len() < LOGGED_MAX && logged.insert(self.hasher.hash_one(&text)) {
            let is_last = logged.len() == LOGGED_MAX;
            drop(logged);
            tracing::error!("{text}");
            if is_last {
                tracing::error!("{LOGGED_MAX} different failures: further ones are not logged");
            }
        }
    }
}
