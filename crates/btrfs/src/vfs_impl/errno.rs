//! Translates errors into the errno values of Linux, and logs each fault once. Called by `file_system` for each
//! failure.

use std::collections::HashSet;
use std::path::Path;

use vfs::{Blame, DevicePlace, Errno};

use crate::error::{CallerError, Error};
use crate::locks::{Mutex, Rank};

/// Different failures that are logged; further ones are not.
const LOGGED_MAX: usize = 1000;

impl From<&Error> for Errno {
    fn from(error: &Error) -> Self {
        match error {
            Error::Caller { what, .. } => (*what).into(),
            Error::Io { source, .. } => Self(source.errno()),
            Error::Corrupt { .. } | Error::Bug { .. } => Self::EIO,
            Error::Unsupported(_) => Self::EOPNOTSUPP,
            Error::Quota(_) | Error::Members(_) => Self::EINVAL,
            Error::NoSpace(_) => Self::ENOSPC,
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
            C::InvalidArgument | C::FewerCopies | C::FewDevices { .. } => Self::EINVAL,
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
            C::QuotaExceeded => Self::EDQUOT,
        }
    }
}

impl From<Error> for vfs::Error {
    fn from(error: Error) -> Self {
        let errno = Errno::from(&error);
        let blame = match &error {
            Error::Caller { what, path: None } if has_same_words(*what) => return errno.into(),
            Error::Caller { what: CallerError::NotSupported, .. } | Error::Unsupported(_) => Blame::Program,
            Error::Caller { .. } | Error::Quota(_) | Error::Members(_) => Blame::Caller,
            Error::Io { .. } if errno == Errno::ENOSPC => Blame::Space,
            Error::Io { .. } => Blame::Device,
            Error::Corrupt { .. } => Blame::Image,
            Error::Bug { .. } => Blame::Bug,
            Error::NoSpace(_) => Blame::Space,
            Error::Poisoned { .. } => Blame::EarlierFailure,
        };
        let path = error.path().map(Path::to_path_buf);
        let shortage = match &error {
            Error::NoSpace(shortage) => *shortage,
            _ => None,
        };
        let device = match &error {
            Error::Io { source, .. } => Some(DevicePlace { name: source.device().to_owned(), offset: source.offset() }),
            _ => None,
        };
        // The path is in the new error only once.
        let mut answer = Self::new(errno, blame, error.without_path());
        if let Some(path) = path {
            answer = answer.at(path);
        }
        if let Some(device) = device {
            answer = answer.on_device(device);
        }
        shortage.into_iter().fold(answer, Self::short_of)
    }
}

impl From<CallerError> for vfs::Error {
    fn from(what: CallerError) -> Self {
        Error::from(what).into()
    }
}

/// True where the message of the errno says the same as the mistake.
const fn has_same_words(what: CallerError) -> bool {
    use CallerError as C;
    !matches!(
        what,
        C::ReadOnly
            | C::CrossSubvolume
            | C::TooManySymlinks
            | C::NoSuchSubvolume
            | C::AttributeTooLarge
            | C::FewerCopies
            | C::FewDevices { .. }
            | C::NotSupported
    )
}

/// Failures that are not the caller's: each goes to the log once, with its place.
#[derive(Debug)]
pub(super) struct FaultLog {
    /// Messages of those that were logged. Keyed at random: names in them come from images.
    logged: Mutex<HashSet<String>>,
}

impl Default for FaultLog {
    fn default() -> Self {
        Self { logged: Mutex::new(Rank::Lists, HashSet::new()) }
    }
}

impl FaultLog {
    /// The error in its public form; logged as by [`FaultLog::errno`].
    pub(super) fn answer(&self, error: Error) -> vfs::Error {
        self.errno(&error);
        // The caller knows the path, which may be another one by now.
        error.without_path().into()
    }

    /// The errno of an error, which is logged the first time.
    pub(super) fn errno(&self, error: &Error) -> Errno {
        if !matches!(error, Error::Caller { .. } | Error::NoSpace(_)) {
            self.note(error);
        }
        error.into()
    }

    #[cold]
    fn note(&self, error: &Error) {
        let text = error.to_string();
        let mut logged = self.logged.lock();
        if logged.len() < LOGGED_MAX && logged.insert(text.clone()) {
            let is_last = logged.len() == LOGGED_MAX;
            drop(logged);
            tracing::error!("{text}");
            if is_last {
                tracing::error!("{LOGGED_MAX} different failures: further ones are not logged");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_without_text_have_the_words_of_their_errno() {
        use CallerError as C;
        for what in [
            C::NotFound,
            C::Exists,
            C::NotADirectory,
            C::IsADirectory,
            C::NotEmpty,
            C::NameTooLong,
            C::InvalidArgument,
            C::TooManyLinks,
            C::NoAttribute,
            C::Busy,
            C::NotPermitted,
            C::AccessDenied,
            C::BadAccess,
            C::TooLarge,
            C::NoSuchOffset,
            C::Stale,
            C::QuotaExceeded,
        ] {
            assert!(has_same_words(what));
            assert_eq!(Errno::from(what).to_string(), what.to_string());
        }
        let answer = FaultLog::default().answer(Error::from(C::CrossSubvolume).at("a"));
        assert_eq!((answer.errno(), answer.to_string().as_str()), (Errno::EXDEV, "crosses a subvolume boundary"));
    }
}
