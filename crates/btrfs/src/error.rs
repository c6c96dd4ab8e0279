//! Defines the one error type of the crate. Each variant blames one party: the caller, the device, the image, this
//! program's limits, the size of the volume, or an earlier failure. `vfs_impl::errno` makes errnos of it.

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use btrfs_disk::{At, Corrupt, Detail, InodeNo, TreeId};
pub use btrfs_pool::MemberError;
use vfs::Shortage;

/// The result of the crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation failed, and which party is to blame.
///
/// To do: the operation is not possible here; nothing was changed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller asked for an operation that the state of the volume does not allow.
    #[error("{}{what}", path_prefix(.path))]
    Caller {
        /// The mistake in the request.
        what: CallerError,
        /// The path as the caller gave it, where there was one.
        path: Option<Box<Path>>,
    },
    /// The device or the host failed.
    ///
    /// To do: see the cause behind the colon; read the system log for the device.
    #[error("{}{source}", path_prefix(.path))]
    Io {
        /// The device's failure, with its name and the place.
        source: blockdev::Error,
        /// The path that the operation was about, where there was one.
        path: Option<Box<Path>>,
    },
    /// The image is damaged.
    ///
    /// To do: run `spinney check IMAGE`; the page on rescue says how to go on.
    #[error("{}{source}", path_prefix(.path))]
    Corrupt {
        /// The contradiction: where, expected and found.
        source: Box<btrfs_store::Error>,
        /// The path that the operation was about, where there was one.
        path: Option<Box<Path>>,
    },
    /// The image uses a feature that this program lacks.
    ///
    /// To do: use the kernel or a newer version for this image; nothing was changed.
    #[error("not supported: {0}")]
    Unsupported(Cow<'static, str>),
    /// The devices cannot be used together.
    #[error(transparent)]
    Members(Box<MemberError>),
    /// This program contradicts itself; the image may be sound.
    ///
    /// To do: report it with `spinney version --verbose`; after that, open the volume again.
    #[error("a bug in this program: {what}, in {place}")]
    Bug {
        /// The broken invariant.
        what: Cow<'static, str>,
        /// The operation that found it.
        place: &'static str,
    },
    /// No space is left for the operation; how much is missing, where the store counted it.
    ///
    /// To do: delete files or snapshots, or `spinney resize`; `spinney usage` shows what takes the space.
    #[error("no space left on the volume")]
    NoSpace(Option<Shortage>),
    /// A request that contradicts the existing quota groups.
    #[error(transparent)]
    Quota(#[from] btrfs_store::QuotaError),
    /// An earlier write failed: nothing can be written until the volume is opened again.
    ///
    /// To do: see the first failure in the log; open the volume again when its cause is gone.
    #[error("writing stopped after an earlier failure: {reason}")]
    Poisoned {
        /// The first failure.
        reason: Arc<btrfs_store::Error>,
    },
}

/// The mistake in a request.
///
/// To do: the operation is not possible here; nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum CallerError {
    /// No such file or directory.
    ///
    /// To do: look at the path with `spinney ls`.
    #[error("no such file or directory")]
    NotFound,
    /// The name is already taken.
    ///
    /// To do: choose another name, or overwrite with `-f` where the command has it.
    #[error("already exists")]
    Exists,
    /// A component of the path is not a directory.
    #[error("not a directory")]
    NotADirectory,
    /// A directory, where the operation needs something else.
    #[error("is a directory")]
    IsADirectory,
    /// The directory is not empty.
    ///
    /// To do: remove with `-r`.
    #[error("directory not empty")]
    NotEmpty,
    /// A name of more than 255 bytes, or a symlink target that does not fit.
    #[error("name too long")]
    NameTooLong,
    /// An argument has no meaning here.
    #[error("invalid argument")]
    InvalidArgument,
    /// The volume or the subvolume is read-only.
    ///
    /// To do: open it for writing, or make the subvolume writable (`spinney subvolume read-only`).
    #[error("read-only")]
    ReadOnly,
    /// The operation does not cross subvolumes.
    ///
    /// To do: copy instead of linking or renaming.
    #[error("crosses a subvolume boundary")]
    CrossSubvolume,
    /// The inode has as many names as its format allows.
    #[error("too many links")]
    TooManyLinks,
    /// Too many symbolic links in the path.
    #[error("too many levels of symbolic links")]
    TooManySymlinks,
    /// No such extended attribute.
    #[error("no such attribute")]
    NoAttribute,
    /// An extended attribute is larger than the format allows.
    #[error("attribute too large")]
    AttributeTooLarge,
    /// A balance would reduce the copies of metadata, without `force`.
    ///
    /// To do: repeat with `--force` if fewer copies are what you want.
    #[error("this conversion reduces metadata redundancy; repeat it with force")]
    FewerCopies,
    /// A profile needs more devices than the volume has.
    ///
    /// To do: take another profile, or add devices.
    #[error("this profile needs {needed} devices, and there are {found}")]
    FewDevices {
        /// Devices that the profile needs.
        needed: usize,
        /// Devices that are there.
        found: usize,
    },
    /// A directory or mount root that cannot be renamed or removed.
    ///
    /// To do: end its use first; a subvolume is deleted with `spinney subvolume delete`.
    #[error("busy")]
    Busy,
    /// The file is immutable, append-only, or otherwise forbids it.
    #[error("operation not permitted")]
    NotPermitted,
    /// The kind of file does not permit this for any user.
    #[error("permission denied")]
    AccessDenied,
    /// Not opened for this kind of access.
    #[error("not opened for this access")]
    BadAccess,
    /// Larger than the largest file.
    #[error("file too large")]
    TooLarge,
    /// No data or hole after the offset.
    #[error("no data or hole at or after the offset")]
    NoSuchOffset,
    /// A subvolume of that name or number does not exist.
    ///
    /// To do: see `spinney subvolume list`.
    #[error("no such subvolume")]
    NoSuchSubvolume,
    /// The handle's inode was removed.
    #[error("stale handle")]
    Stale,
    /// A quota group of the subvolume has reached its limit.
    ///
    /// To do: raise the limit with `spinney qgroup limit`, or delete files of the subvolume.
    #[error("disk quota exceeded")]
    QuotaExceeded,
    /// The operation is not defined for this kind of file.
    #[error("operation not supported on this kind of file")]
    NotSupported,
}

impl Error {
    /// A caller's error without a path.
    #[must_use]
    pub fn caller(what: CallerError) -> Self {
        Self::Caller { what, path: None }
    }

    /// The mistake, when the caller is to blame.
    #[must_use]
    pub fn caller_error(&self) -> Option<CallerError> {
        match self {
            Self::Caller { what, .. } => Some(*what),
            _ => None,
        }
    }

    /// True when the host of a sparse image was full. Nothing was lost, and the operation can be repeated when there is
    /// room.
    #[must_use]
    pub fn is_device_full(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.is_no_space())
    }

    /// True when the requested object does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.caller_error() == Some(CallerError::NotFound)
    }

    /// The same error naming the path, unless it names one already.
    #[must_use]
    pub fn at(mut self, at: impl AsRef<Path>) -> Self {
        if let Self::Caller { path, .. } | Self::Io { path, .. } | Self::Corrupt { path, .. } = &mut self {
            path.get_or_insert_with(|| PathBuf::from(at.as_ref()).into_boxed_path());
        }
        self
    }

    /// The error without the path it names.
    pub(crate) fn without_path(mut self) -> Self {
        if let Self::Caller { path, .. } | Self::Io { path, .. } | Self::Corrupt { path, .. } = &mut self {
            *path = None;
        }
        self
    }

    /// The path the error names.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Caller { path, .. } | Self::Io { path, .. } | Self::Corrupt { path, .. } => path.as_deref(),
            _ => None,
        }
    }

    /// The reason to abort a transaction with.
    pub(crate) fn to_store_error(&self) -> btrfs_store::Error {
        match self {
            Self::Io { source, .. } => source.clone().into(),
            Self::Corrupt { source, .. } => match &**source {
                btrfs_store::Error::Exists { tree, key } | btrfs_store::Error::NotFound { tree, key } => {
                    let (expected, found) = (Detail::Text("one item"), Detail::Text("none, or another one"));
                    Corrupt::new("items of a name", expected, found).at(At::Key(*tree, *key)).into()
                }
                source => source.clone(),
            },
            Self::Poisoned { reason } => btrfs_store::Error::Poisoned { reason: Arc::clone(reason) },
            Self::NoSpace(_) => {
                btrfs_store::Error::bug("it needs more space than it reserved", "an operation on names")
            }
            Self::Bug { what, place } => btrfs_store::Error::Bug { what: what.clone(), place },
            Self::Quota(what) => btrfs_store::Error::Quota(*what),
            Self::Members(what) => btrfs_store::Error::Members(what.clone()),
            Self::Unsupported(what) => btrfs_store::Error::Unsupported { what: what.clone() },
            Self::Caller { what, .. } => btrfs_store::Error::bug(what.to_string(), "an operation on names"),
        }
    }

    fn io_kind(&self) -> io::ErrorKind {
        match self {
            Self::Caller { what, .. } => what.io_kind(),
            Self::Io { .. } if self.is_device_full() => io::ErrorKind::StorageFull,
            Self::Io { .. } | Self::Bug { .. } => io::ErrorKind::Other,
            Self::Corrupt { .. } => io::ErrorKind::InvalidData,
            Self::Quota(_) | Self::Members(_) => io::ErrorKind::InvalidInput,
            Self::Unsupported(_) => io::ErrorKind::Unsupported,
            Self::NoSpace(_) => io::ErrorKind::StorageFull,
            Self::Poisoned { .. } => io::ErrorKind::ReadOnlyFilesystem,
        }
    }
}

impl CallerError {
    fn io_kind(self) -> io::ErrorKind {
        use io::ErrorKind as K;
        match self {
            Self::NotFound | Self::NoSuchSubvolume | Self::NoAttribute => K::NotFound,
            Self::Exists => K::AlreadyExists,
            Self::NotADirectory => K::NotADirectory,
            Self::IsADirectory => K::IsADirectory,
            Self::NotEmpty => K::DirectoryNotEmpty,
            Self::NameTooLong => K::InvalidFilename,
            Self::InvalidArgument
            | Self::TooManySymlinks
            | Self::NoSuchOffset
            | Self::FewerCopies
            | Self::FewDevices { .. } => K::InvalidInput,
            Self::ReadOnly => K::ReadOnlyFilesystem,
            Self::CrossSubvolume => K::CrossesDevices,
            Self::TooManyLinks => K::TooManyLinks,
            Self::AttributeTooLarge | Self::TooLarge => K::FileTooLarge,
            Self::Busy => K::ResourceBusy,
            Self::NotPermitted | Self::AccessDenied | Self::BadAccess => K::PermissionDenied,
            Self::Stale => K::StaleNetworkFileHandle,
            Self::NotSupported => K::Unsupported,
            Self::QuotaExceeded => K::QuotaExceeded,
        }
    }
}

impl From<CallerError> for Error {
    fn from(what: CallerError) -> Self {
        Self::caller(what)
    }
}

impl From<btrfs_store::Error> for Error {
    /// An error that the store blames on its request (an item that exists, or does not) can only reach this conversion
    /// when the trees contradict each other: callers' mistakes are found before.
    fn from(error: btrfs_store::Error) -> Self {
        use btrfs_store::Error as S;
        match error {
            S::Device(source) => Self::Io { source, path: None },
            S::Unsupported { what } => Self::Unsupported(what),
            S::Bug { what, place } => Self::Bug { what, place },
            S::NoSpace { needed, available, .. } => Self::NoSpace(Some(Shortage { needed, available })),
            S::Poisoned { reason } => Self::Poisoned { reason },
            S::ReadOnly => Self::caller(CallerError::ReadOnly),
            S::QuotaExceeded { .. } => Self::caller(CallerError::QuotaExceeded),
            S::Quota(what) => Self::Quota(what),
            S::Members(what) => Self::Members(what),
            source => Self::Corrupt { source: Box::new(source), path: None },
        }
    }
}

impl From<Corrupt> for Error {
    fn from(corrupt: Corrupt) -> Self {
        Self::Corrupt { source: Box::new(corrupt.into()), path: None }
    }
}

impl From<blockdev::Error> for Error {
    fn from(source: blockdev::Error) -> Self {
        Self::Io { source, path: None }
    }
}

/// An inode contradicts itself or its references.
#[cold]
pub(crate) fn corrupt_inode(tree: TreeId, ino: InodeNo, what: &'static str, expected: Detail, found: Detail) -> Error {
    Corrupt::new(what, expected, found).at(At::Inode(tree, ino)).into()
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::new(error.io_kind(), error)
    }
}

fn path_prefix(path: &Option<Box<Path>>) -> String {
    path.as_deref().map_or_else(String::new, |path| format!("{}: ", path.display()))
}
