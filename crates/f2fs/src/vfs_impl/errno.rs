//! Turns errors of the crate into `vfs::Error` with the errno that Linux has for them, and logs faults once. Called by
//! `data` and `file_system`.

use std::collections::HashSet;

use vfs::{Blame, Errno};

use crate::error::{CallerError, Error, Unsupported};
use crate::locks::{Mutex, Rank};

/// Most different failures that are logged; one line reports that there are more.
const LOGGED_MAX: usize = 1000;

impl From<CallerError> for Errno {
    fn from(what: CallerError) -> Self {
        use CallerError as C;
        match what {
            C::NotFound => Self::ENOENT,
            C::NotADirectory => Self::ENOTDIR,
            C::IsADirectory => Self::EISDIR,
            C::NameTooLong => Self::ENAMETOOLONG,
            C::InvalidArgument => Self::EINVAL,
            C::NoAttribute => Self::ENODATA,
            C::NoSuchOffset => Self::ENXIO,
            C::Stale => Self::ESTALE,
            C::Exists => Self::EEXIST,
            C::NotEmpty => Self::ENOTEMPTY,
            C::NotPermitted => Self::EPERM,
            C::AccessDenied => Self::EACCES,
            C::ReadOnly => Self::EROFS,
            C::TooLarge => Self::EFBIG,
            C::TooManyLinks => Self::EMLINK,
            C::NotSupported => Self::EOPNOTSUPP,
            C::AttributesTooLarge(_) => Self::ENOSPC,
        }
    }
}

impl From<Error> for vfs::Error {
    fn from(error: Error) -> Self {
        let (errno, blame) = match &error {
            Error::Caller(what @ CallerError::AttributesTooLarge(_)) => (Errno::from(*what), Blame::Space),
            // The error number says everything.
            Error::Caller(what) => return Errno::from(*what).into(),
            Error::Io(error) if error.is_no_space() => (Errno::ENOSPC, Blame::Space),
            Error::Io(_) => (Errno::EIO, Blame::Device),
            Error::NoSpace { .. } => (Errno::ENOSPC, Blame::Space),
            // The kernel turns a file system read-only when a checkpoint fails.
            Error::Poisoned { .. } => (Errno::EROFS, Blame::EarlierFailure),
            Error::Bug(_) | Error::LostBatch => (Errno::EIO, Blame::Bug),
            Error::Corrupt(_) | Error::Cluster { .. } | Error::Verity { .. } => (Errno::EIO, Blame::Image),
            Error::Unsupported(Unsupported::WritingWith(_)) => (Errno::EROFS, Blame::Program),
            Error::Unsupported(_) => (Errno::EOPNOTSUPP, Blame::Program),
        };
        Self::new(errno, blame, error)
    }
}

/// Failures that are not the caller's: each is logged once, with its place.
#[derive(Debug)]
pub(super) struct FaultLog(Mutex<HashSet<String>>);

impl Default for FaultLog {
    fn default() -> Self {
        Self(Mutex::new(Rank::Logged, HashSet::new()))
    }
}

impl FaultLog {
    /// The error for servers and users of paths.
    pub(super) fn report(&self, error: Error) -> vfs::Error {
        if matches!(
            error,
            Error::Io(_)
                | Error::Corrupt(_)
                | Error::Cluster { .. }
                | Error::Verity { .. }
                | Error::Bug(_)
                | Error::LostBatch
        ) {
            self.note(&error);
        }
        error.into()
    }

    #[cold]
    fn note(&self, error: &Error) {
        let text = error.to_string();
        let mut logged = self.0.lock();
        if logged.len() >= LOGGED_MAX || !logged.insert(text.clone()) {
            return;
        }
        let is_last = logged.len() == LOGGED_MAX;
        drop(logged);
        tracing::error!("{text}");
        if is_last {
            tracing::error!("{LOGGED_MAX} different failures: further ones are not logged");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_says_why() {
        let error = FaultLog::default().report(Unsupported::WritingWith(f2fs_disk::flags::Features::QUOTA_INO).into());
        assert_eq!((error.errno(), error.blame()), (Errno::EROFS, Blame::Program));
        assert!(error.to_string().contains("read-only in this version: quota"), "{error}");
        let error = vfs::Error::from(Error::from(CallerError::NoAttribute));
        assert_eq!((error.errno(), error.blame()), (Errno::ENODATA, Blame::Caller));
        let poisoned = Error::Poisoned { reason: Box::new(Error::no_space(1, 0)) };
        assert_eq!(vfs::Error::from(poisoned).errno(), Errno::EROFS);
    }
}
