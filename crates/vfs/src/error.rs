//! Defines the error of a file system: number, party at fault, place, and the format's cause. The engines and the
//! `spinney` library make it; servers and programs get it.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::errno::Errno;

/// Result of operations on a volume.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The party at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Blame {
    /// The caller: the request does not fit the present state.
    Caller,
    /// The device's or the host's.
    Device,
    /// The image's: it is damaged.
    Image,
    /// This program: it lacks a feature that the image or the caller needs.
    Program,
    /// This program's: it contradicts itself.
    Bug,
    /// The volume has no room.
    Space,
    /// An earlier failure's: nothing can be written until the volume is opened again.
    EarlierFailure,
}

/// Why an operation failed. Displays the path, where one is to blame, and the cause.
#[derive(Debug, Clone)]
pub struct Error {
    errno: Errno,
    blame: Blame,
    context: Option<Box<Context>>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

/// The context of an error, beside its number and its cause.
#[derive(Debug, Clone, Default)]
struct Context {
    operation: Option<&'static str>,
    path: Option<Box<Path>>,
    device: Option<DevicePlace>,
    shortage: Option<Shortage>,
}

/// A place on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DevicePlace {
    /// The device's name, as it was given when the device was opened.
    pub name: String,
    /// First byte of the request that failed; `None` where it has none, as a flush.
    pub offset: Option<u64>,
}

/// By how much there was not enough room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage {
    /// Bytes that the operation needs.
    pub needed: u64,
    /// Bytes that it could have.
    pub available: u64,
}

impl Error {
    /// A failure with its cause. For a mistake of the caller, the number alone says enough: `errno.into()`.
    #[must_use]
    pub fn new(errno: Errno, blame: Blame, source: impl StdError + Send + Sync + 'static) -> Self {
        Self { errno, blame, context: None, source: Some(Arc::new(source)) }
    }

    /// The number that Linux has for the failure.
    #[must_use]
    pub const fn errno(&self) -> Errno {
        self.errno
    }

    /// The party at fault.
    #[must_use]
    pub const fn blame(&self) -> Blame {
        self.blame
    }

    /// True when the object that was named does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.errno == Errno::ENOENT
    }

    /// The same error naming the path, unless it names one already.
    #[must_use]
    pub fn at(mut self, path: impl AsRef<Path>) -> Self {
        self.context().path.get_or_insert_with(|| path.as_ref().into());
        self
    }

    /// The same error naming the operation that failed, unless it names one already.
    #[must_use]
    pub fn during(mut self, operation: &'static str) -> Self {
        self.context().operation.get_or_insert(operation);
        self
    }

    /// The same error naming the place on the device that failed.
    #[must_use]
    pub fn on_device(mut self, device: DevicePlace) -> Self {
        self.context().device = Some(device);
        self
    }

    /// The same error saying how much room was missing.
    #[must_use]
    pub fn short_of(mut self, shortage: Shortage) -> Self {
        self.context().shortage = Some(shortage);
        self
    }

    /// The path that the error names.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.context.as_ref()?.path.as_deref()
    }

    /// The operation that failed: the name of the method of [`crate::Volume`] or [`crate::File`].
    #[must_use]
    pub fn operation(&self) -> Option<&'static str> {
        self.context.as_ref()?.operation
    }

    /// The place on a device that could not be read or written.
    #[must_use]
    pub fn device(&self) -> Option<&DevicePlace> {
        self.context.as_ref()?.device.as_ref()
    }

    /// How much room was missing, where the format knows.
    #[must_use]
    pub fn shortage(&self) -> Option<Shortage> {
        self.context.as_ref()?.shortage
    }

    /// The cause, if it is an error of the type `E`.
    #[must_use]
    pub fn cause<E: StdError + 'static>(&self) -> Option<&E> {
        self.source.as_ref()?.downcast_ref()
    }

    fn context(&mut self) -> &mut Context {
        self.context.get_or_insert_default()
    }

    /// The kind that [`std::io::Error`] has for the failure. Damage of the image is `InvalidData`, whatever its number.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
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
        Self { errno, blame, context: None, source: None }
    }
}

impl From<Error> for Errno {
    fn from(error: Error) -> Self {
        error.errno
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::new(error.kind(), error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = self.path() {
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
