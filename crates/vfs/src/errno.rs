//! Defines error numbers: the language that Linux and a file system speak to each other. Used by every format and by
//! the FUSE server.

use std::{fmt, io};

use serde::{Deserialize, Serialize};

/// An error number of Linux (`errno(3)`), positive. Values are those of asm-generic, which every
/// architecture that Spinney runs on uses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Errno(pub i32);

/// Result of a server's own decisions, and of rules common to all formats.
pub type Result<T> = std::result::Result<T, Errno>;

macro_rules! errnos {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        impl Errno {
            $(
                #[doc = $text]
                pub const $name: Self = Self($number);
            )*

            /// The meaning of the number; `None` for one that no file system here uses.
            #[must_use]
            pub const fn text(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some($text),)*
                    _ => None,
                }
            }

            const fn name(self) -> &'static str {
                match self.0 {
                    $($number => stringify!($name),)*
                    _ => "errno",
                }
            }
        }
    };
}

errnos! {
    EPERM = 1, "operation not permitted";
    ENOENT = 2, "no such file or directory";
    EINTR = 4, "interrupted";
    EIO = 5, "input/output error";
    ENXIO = 6, "no data or hole at or after the offset";
    E2BIG = 7, "argument list too long";
    EBADF = 9, "not opened for this access";
    EAGAIN = 11, "try again";
    ENOMEM = 12, "out of memory";
    EACCES = 13, "permission denied";
    EBUSY = 16, "busy";
    EEXIST = 17, "already exists";
    EXDEV = 18, "crosses a boundary";
    ENODEV = 19, "no such device";
    ENOTDIR = 20, "not a directory";
    EISDIR = 21, "is a directory";
    EINVAL = 22, "invalid argument";
    ENOTTY = 25, "no such control operation";
    EFBIG = 27, "file too large";
    ENOSPC = 28, "no space left";
    EROFS = 30, "read-only file system";
    EMLINK = 31, "too many links";
    ERANGE = 34, "buffer too small";
    ENAMETOOLONG = 36, "name too long";
    ENOSYS = 38, "not implemented";
    ENOTEMPTY = 39, "directory not empty";
    ELOOP = 40, "too many symbolic links";
    ENODATA = 61, "no such attribute";
    EOVERFLOW = 75, "value too large";
    EILSEQ = 84, "not text in UTF-8";
    EOPNOTSUPP = 95, "operation not supported";
    ESTALE = 116, "stale handle";
    EDQUOT = 122, "disk quota exceeded";
    ECANCELED = 125, "cancelled";
}

impl Errno {
    /// The number of a failure of the host. Other systems than Linux have other numbers, so that the kind counts there.
    #[must_use]
    pub fn of_host(error: &io::Error) -> Self {
        use io::ErrorKind as Kind;
        if cfg!(target_os = "linux") {
            return error.raw_os_error().map_or(Self::EIO, Self);
        }
        match error.kind() {
            Kind::NotFound => Self::ENOENT,
            Kind::PermissionDenied => Self::EACCES,
            Kind::AlreadyExists => Self::EEXIST,
            Kind::InvalidInput => Self::EINVAL,
            Kind::NotADirectory => Self::ENOTDIR,
            Kind::IsADirectory => Self::EISDIR,
            Kind::DirectoryNotEmpty => Self::ENOTEMPTY,
            Kind::ReadOnlyFilesystem => Self::EROFS,
            Kind::StorageFull => Self::ENOSPC,
            Kind::Interrupted => Self::EINTR,
            Kind::OutOfMemory => Self::ENOMEM,
            Kind::Unsupported => Self::EOPNOTSUPP,
            _ => Self::EIO,
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text() {
            Some(text) => f.write_str(text),
            None => write!(f, "error {}", self.0),
        }
    }
}

impl std::error::Error for Errno {}
