//! Defines the errors of a device, and the party that each blames. Every device returns them; the engines pass them on.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::sync::Arc;

/// Numbers of errno(3), which every architecture that Spinney runs on has.
const ENOENT: i32 = 2;
const EIO: i32 = 5;
const EACCES: i32 = 13;
const ENOTBLK: i32 = 15;
const EINVAL: i32 = 22;
const EOPNOTSUPP: i32 = 95;
const EBUSY: i32 = 16;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;

/// The result of a device operation.
pub type Result<T> = std::result::Result<T, Error>;

/// The operation that failed, for error messages and traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// Opening, locking or asking for the size.
    Open,
    /// Reading bytes.
    Read,
    /// Writing bytes.
    Write,
    /// Making earlier writes durable.
    Flush,
    /// Telling the device that a range is no longer needed.
    Discard,
    /// Making an image larger.
    Grow,
    /// Making an image smaller.
    Shrink,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "open",
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Discard => "discard",
            Self::Grow => "grow",
            Self::Shrink => "shrink",
        })
    }
}

/// Where an operation took place, in a sentence; nothing for those without a range.
struct Range(u64, u64);

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self(_, 0) => Ok(()),
            Self(offset, len) => write!(f, " {len} bytes at {offset}"),
        }
    }
}

/// A failed device operation. Cheap to clone, because one failed request may end many waiters.
///
/// To do: see what the operating system says behind the colon, and whether the path is the one you mean.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system reported a failure.
    ///
    /// To do: read the system log for the device; copy what is readable to another one, then run `spinney check`.
    #[error("{device}: cannot {op}{}: {source}", Range(*offset, *len))]
    Io {
        /// The attempted operation.
        op: Op,
        /// The device's name.
        device: String,
        /// First byte of the request.
        offset: u64,
        /// Bytes of the request; 0 where the operation has no range.
        len: u64,
        /// The system's reason.
        source: Arc<io::Error>,
    },
    /// A read reaches past the end: the image is truncated, or it shrank while in use.
    ///
    /// To do: the image was cut short: get a whole copy, or save files with `spinney rescue get`.
    #[error("{device}: unexpected end at byte {size}, while reading {len} bytes at {offset}")]
    UnexpectedEnd {
        /// The device's name.
        device: String,
        /// First byte of the request.
        offset: u64,
        /// Bytes of the request.
        len: u64,
        /// Bytes the device really has.
        size: u64,
    },
    /// A request other than a read lies outside the device.
    #[error("{device}: cannot {op} {len} bytes at {offset}: the device has {size} bytes")]
    OutOfRange {
        /// The attempted operation.
        op: Op,
        /// The device's name.
        device: String,
        /// First byte of the request.
        offset: u64,
        /// Bytes of the request.
        len: u64,
        /// Bytes of the device.
        size: u64,
    },
    /// A change was asked of a device that was opened for reading.
    ///
    /// To do: choose a command that only reads, or make the file writable.
    #[error("{device}: cannot {op}: opened read-only")]
    ReadOnly {
        /// The attempted operation.
        op: Op,
        /// The device's name.
        device: String,
    },
    /// Another process (or another handle of this one) has it open in a conflicting way.
    ///
    /// To do: wait for the other program; of an image that is mounted use the path below the mount.
    #[error("{device}: in use by another program")]
    Locked {
        /// The device's name.
        device: String,
    },
    /// The operating system itself uses it: mounted, or attached as a loop device.
    ///
    /// To do: unmount or detach it first.
    #[error("{device}: in use by the system ({holder})")]
    Busy {
        /// The device's name.
        device: String,
        /// The process that holds it.
        holder: String,
    },
    /// The path is neither a regular file nor a block device.
    ///
    /// To do: give an image file or an unmounted block device.
    #[error("{device}: neither a regular file nor a block device")]
    NotADevice {
        /// The path.
        device: String,
    },
    /// The text after the `?` of a device name is not made of `offset=N` and `size=N`.
    ///
    /// To do: write `IMAGE?offset=BYTES`, quoted from the shell.
    #[error("{device}: `{pair}`: expected `?offset=N`, `?size=N` or `?offset=N&size=N`, in bytes without a unit")]
    NotALocator {
        /// The words that name the device.
        device: String,
        /// The pair that is something else.
        pair: String,
    },
    /// No backend has registered the scheme of a locator.
    #[error("{device}: this program cannot open devices of the scheme `{scheme}`; for a file write `file:{device}`")]
    NoBackend {
        /// The words that name the device.
        device: String,
        /// The scheme, without its colon.
        scheme: String,
    },
    /// The contents that the device showed cannot be read any longer.
    #[error("{device}: {reason}")]
    Gone {
        /// The device's name.
        device: String,
        /// Why.
        reason: Cow<'static, str>,
    },
    /// The device has a fixed size.
    ///
    /// To do: use a file, or a larger device.
    #[error("{device}: cannot grow: its size is fixed at {size} bytes")]
    CannotGrow {
        /// The device's name.
        device: String,
        /// Bytes of the device.
        size: u64,
    },
}

impl Error {
    /// An [`Error::Io`] from the system's error.
    #[must_use]
    pub fn io(op: Op, device: &str, offset: u64, len: u64, source: io::Error) -> Self {
        Self::Io { op, device: device.to_owned(), offset, len, source: Arc::new(source) }
    }

    /// The device's name.
    #[must_use]
    pub fn device(&self) -> &str {
        match self {
            Self::Io { device, .. }
            | Self::UnexpectedEnd { device, .. }
            | Self::OutOfRange { device, .. }
            | Self::ReadOnly { device, .. }
            | Self::Locked { device }
            | Self::Busy { device, .. }
            | Self::NotADevice { device }
            | Self::NotALocator { device, .. }
            | Self::NoBackend { device, .. }
            | Self::Gone { device, .. }
            | Self::CannotGrow { device, .. } => device,
        }
    }

    /// First byte of the request that failed; `None` where the operation has no range.
    #[must_use]
    pub fn offset(&self) -> Option<u64> {
        match self {
            Self::Io { offset, len, .. } => Some(*offset).filter(|_| *len > 0),
            Self::UnexpectedEnd { offset, .. } | Self::OutOfRange { offset, .. } => Some(*offset),
            _ => None,
        }
    }

    /// The Linux errno of the failure. A failed open: the system's own. Locked or busy: `EBUSY`. Neither file nor block
    /// device: `ENOTBLK`. A change of a read-only device: `EROFS`. A write without space on the host: `ENOSPC`. A
    /// wrong locator: `EINVAL`. A scheme without a backend: `EOPNOTSUPP`. All others: `EIO`.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            // Other systems than Linux have other numbers.
            Self::Io { op: Op::Open, source, .. } => match source.raw_os_error() {
                Some(number) if cfg!(target_os = "linux") => number,
                _ => errno_of(source.kind()),
            },
            Self::Locked { .. } | Self::Busy { .. } => EBUSY,
            Self::NotADevice { .. } => ENOTBLK,
            Self::ReadOnly { .. } => EROFS,
            Self::NotALocator { .. } => EINVAL,
            Self::NoBackend { .. } => EOPNOTSUPP,
            _ if self.is_no_space() => ENOSPC,
            _ => EIO,
        }
    }

    /// True if a write failed only because the host of the image has no space left. Earlier writes stay, and the same
    /// write succeeds once there is space. (A flush that fails so may have lost earlier writes.)
    #[must_use]
    pub fn is_no_space(&self) -> bool {
        let is_full = matches!(self.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        is_full && matches!(self, Self::Io { op: Op::Write, .. })
    }

    /// The closest kind of `std::io` error, for callers that must report one.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Io { source, .. } => source.kind(),
            Self::UnexpectedEnd { .. } => io::ErrorKind::UnexpectedEof,
            Self::OutOfRange { .. } | Self::NotADevice { .. } | Self::NotALocator { .. } => io::ErrorKind::InvalidInput,
            Self::ReadOnly { .. } => io::ErrorKind::ReadOnlyFilesystem,
            Self::Locked { .. } | Self::Busy { .. } => io::ErrorKind::ResourceBusy,
            Self::CannotGrow { .. } | Self::NoBackend { .. } => io::ErrorKind::Unsupported,
            Self::Gone { .. } => io::ErrorKind::StaleNetworkFileHandle,
        }
    }
}

/// The number for a reason that is not the operating system's, such as that of a server.
fn errno_of(kind: io::ErrorKind) -> i32 {
    use io::ErrorKind as K;
    match kind {
        K::NotFound => ENOENT,
        K::PermissionDenied => EACCES,
        K::InvalidInput => EINVAL,
        K::ReadOnlyFilesystem => EROFS,
        K::Unsupported => EOPNOTSUPP,
        _ => EIO,
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::new(error.kind(), error)
    }
}
