//! Why an operation on a file system failed: a number, whose fault it is, where, and the cause as the format tells it.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::errno::Errno;

/// What operations on a volume return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Whose fault a failure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Blame {
    /// The caller's: what it asked for does not fit what is there.
    Caller,
    /// The device's or the host's.
    Device,
    /// The image's: it is damaged.
    Image,
    /// This program's: it lacks what the image or the caller wants.
    Program,
    /// This program's: it contradicts itself.
    Bug,
    /// Nobody's: the volume has no room.
    Space,
    /// An earlier failure's: nothing can be written until the volume is opened again.
    EarlierFailure,
}

/// Why an operation failed. Displays the path, where one is to blame, and the cause.
#[derive(Debug, Clone)]
pub struct Error {
    errno: Errno,
    blame: Blame,
    path: Option<Box<Path>>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Error {
    /// A failure with its cause. Of a mistake of the caller's the number alone says enough: `errno.into()`.
    #[must_use]
    pub fn new(errno: Errno, blame: Blame, source: impl StdError + Send + Sync + 'static) -> Self {
        Self { errno, blame, path: None, source: Some(Arc::new(source)) }
    }

    /// The number that Linux has for the failure.
    #[must_use]
    pub const fn errno(&self) -> Errno {
        self.errno
    }

    /// Whose fault it is.
    #[must_use]
    pub const fn blame(&self) -> Blame {
        self.blame
    }

    /// True when what was asked for does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.errno == Errno::ENOENT
    }

    /// The same error naming the path, unless it names one already.
    #[must_use]
    pub fn at(mut self, path: impl AsRef<Path>) -> Self {
        self.path.get_or_insert_with(|| path.as_ref().into());
        self
    }

    /// The path that the error names.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    fn io_kind(&self) -> io::ErrorKind {
        use io::ErrorKind as K;
        if self.blame == Blame::Image {
            return K::InvalidData;
        }
        match self.errno {
            Errno::ENOENT | Errno::ENODATA => K::NotFound,
            Errno::EEXIST => K::AlreadyExists,
            Errno::ENOTDIR => K::NotADirectory,
            Errno::EISDIR => K::IsADirectory,
            Errno::ENOTEMPTY => K::DirectoryNotEmpty,
            Errno::ENAMETOOLONG => K::InvalidFilename,
            Errno::EINVAL | Errno::ELOOP | Errno::ENXIO => K::InvalidInput,
            Errno::EROFS => K::ReadOnlyFilesystem,
            Errno::EXDEV => K::CrossesDevices,
            Errno::EMLINK => K::TooManyLinks,
            Errno::EFBIG => K::FileTooLarge,
            Errno::EBUSY => K::ResourceBusy,
            Errno::EPERM | Errno::EACCES | Errno::EBADF => K::PermissionDenied,
            Errno::ESTALE => K::StaleNetworkFileHandle,
            Errno::EOPNOTSUPP | Errno::ENOTTY | Errno::ENOSYS => K::Unsupported,
            Errno::ENOSPC => K::StorageFull,
            _ => K::Other,
        }
    }
}

impl From<Errno> for Error {
    /// A mistake of the caller's, except for the numbers that mean something else went wrong.
    fn from(errno: Errno) -> Self {
        let blame = match errno {
            Errno::EIO => Blame::Device,
            Errno::ENOSPC => Blame::Space,
            Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::ENOTTY => Blame::Program,
            _ => Blame::Caller,
        };
        Self { errno, blame, path: None, source: None }
    }
}

impl From<Error> for Errno {
    fn from(error: Error) -> Self {
        error.errno
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::new(error.io_kind(), error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.path {
            write!(f, "{}: ", path.display())?;
        }
        match &self.source {
            Some(source) => source.fmt(f),
            None => self.errno.fmt(f),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.source {
            Some(source) => Some(&**source),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_first_path_and_its_cause() {
        let error = Error::from(Errno::ENOENT).at("a/b").at("c");
        assert_eq!(error.to_string(), "a/b: no such file or directory");
        assert!(error.is_not_found() && error.blame() == Blame::Caller);
        let cause = io::Error::other("bad sector");
        let error = Error::new(Errno::EIO, Blame::Image, cause).at("f");
        assert_eq!(error.to_string(), "f: bad sector");
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::InvalidData);
    }
}
