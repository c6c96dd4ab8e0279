//! Defines the errors of the crate, divided by the party to blame. All modules return them; `vfs_impl/errno` turns them
//! into errno.

use codec::compress::BlockError;
use f2fs_disk::convert::to_u64;
use f2fs_disk::flags::Features;
use f2fs_disk::{BLOCK_SIZE, Corrupt, Detail, Nid};

/// Result of this crate's operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why an operation failed.
///
/// To do: the operation is not possible here; nothing was changed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request does not fit the volume's contents.
    #[error(transparent)]
    Caller(#[from] CallerError),
    /// The device failed.
    #[error(transparent)]
    Io(#[from] blockdev::Error),
    /// The image is damaged.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// A compressed cluster does not decompress: the image is damaged.
    ///
    /// To do: run `spinney check IMAGE`; the page on rescue says how to go on.
    #[error("corrupt compressed cluster in inode {ino}, its block {index}: {source}")]
    Cluster {
        /// Inode of the file.
        ino: Nid,
        /// First block of the cluster.
        index: u64,
        /// The fault of the compressed data.
        source: BlockError,
    },
    /// Contents differ from those that fs-verity protects: the image is damaged, or was changed.
    ///
    /// To do: restore the file from a copy.
    #[error("block {index} of inode {ino} does not match its fs-verity hash")]
    Verity {
        /// Inode of the file.
        ino: Nid,
        /// The block.
        index: u64,
    },
    /// The image, or the request, needs a feature that this crate lacks.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The volume is full.
    ///
    /// To do: delete files, or make a larger image.
    #[error("no space left on the volume: {needed} bytes needed, {available} available")]
    NoSpace {
        /// Requested bytes.
        needed: u64,
        /// Available bytes.
        available: u64,
    },
    /// An earlier write failed, so all later ones are refused.
    ///
    /// To do: see the first failure in the log; open the volume again when its cause is gone.
    #[error("the volume is read-only because of an earlier failure: {reason}")]
    Poisoned {
        /// The failure.
        reason: Box<Error>,
    },
    /// The engine refused to write inconsistent data of its own making.
    ///
    /// To do: report it with `spinney version --verbose`; after that, open the volume again.
    #[error("bug in this program: {0}; nothing was written")]
    Bug(Box<Corrupt>),
    /// An fsync had allocated blocks and panicked before it wrote them.
    ///
    /// To do: report it with `spinney version --verbose`; after that, open the volume again.
    #[error("the fsync writer panicked before its blocks were written; the volume is read-only now")]
    LostBatch,
}

impl Error {
    /// `needed` blocks are needed, and `available` left.
    pub(crate) fn no_space(needed: u64, available: u64) -> Self {
        let bytes = |blocks: u64| blocks.saturating_mul(to_u64(BLOCK_SIZE));
        Self::NoSpace { needed: bytes(needed), available: bytes(available) }
    }

    /// An inconsistency in memory.
    #[cold]
    pub(crate) fn bug(what: &'static str, expected: &'static str) -> Self {
        Self::Bug(Box::new(Corrupt::new(what, Detail::Text(expected), Detail::Text("another"))))
    }
}

/// Errors in a request.
///
/// To do: the operation is not possible here; nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CallerError {
    /// The name does not exist.
    ///
    /// To do: look at the path with `spinney ls`.
    #[error("no such file or directory")]
    NotFound,
    /// Only directories have names.
    #[error("not a directory")]
    NotADirectory,
    /// Directories have no contents.
    #[error("is a directory")]
    IsADirectory,
    /// The name exceeds 255 bytes.
    #[error("name too long")]
    NameTooLong,
    /// Not valid for this kind of file.
    #[error("invalid argument")]
    InvalidArgument,
    /// The attribute does not exist.
    #[error("no such attribute")]
    NoAttribute,
    /// There is neither data nor a hole behind the offset.
    #[error("no data or hole at or after the offset")]
    NoSuchOffset,
    /// There is no node with this number.
    #[error("stale file handle")]
    Stale,
    /// The name exists.
    #[error("already exists")]
    Exists,
    /// Only empty directories can be removed.
    ///
    /// To do: remove with `-r`.
    #[error("directory not empty")]
    NotEmpty,
    /// The inode's flags forbid it, or the caller may not.
    #[error("operation not permitted")]
    NotPermitted,
    /// A default ACL was set on a non-directory.
    #[error("permission denied")]
    AccessDenied,
    /// The volume was opened for reading.
    #[error("read-only file system")]
    ReadOnly,
    /// No file can be that large.
    #[error("file too large")]
    TooLarge,
    /// An inode has no room for more names.
    #[error("too many links")]
    TooManyLinks,
    /// The format does not support it.
    #[error("operation not supported")]
    NotSupported,
    /// Attributes of an inode have a bounded size.
    #[error("extended attributes are too large: all of an inode's fit in {0} bytes")]
    AttributesTooLarge(usize),
}

/// Formats and requests that this crate does not support.
///
/// To do: the operation is not possible here; nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unsupported {
    /// Features of the volume.
    ///
    /// To do: use the kernel or a newer version for this image; nothing was changed.
    #[error("f2fs feature not supported: {}", _0.names().join(", "))]
    Features(Features),
    /// Blocks of another size than 4 KiB; the logarithm of the size.
    ///
    /// To do: use the kernel or a newer version for this image; nothing was changed.
    #[error("f2fs blocks of 2^{0} bytes are not supported, those of 4096 bytes are")]
    BlockSize(u32),
    /// A volume on several devices.
    ///
    /// To do: use the kernel or a newer version for this image; nothing was changed.
    #[error("f2fs volume on {0} devices: only a single device is supported")]
    Devices(usize),
    /// Features of a volume that is read-only in this version.
    ///
    /// To do: open it read-only, or write it with the kernel.
    #[error("f2fs volumes with these features are read-only in this version: {}", _0.names().join(", "))]
    WritingWith(Features),
    /// A file or directory that this crate reads and does not write.
    ///
    /// To do: change this file with the kernel.
    #[error(
        "inode {0} cannot be written: compressed, encrypted, fs-verity and case-insensitive files are read-only in \
         this version"
    )]
    Change(Nid),
    /// Contents that need a key to be read.
    ///
    /// To do: read it with the kernel, which has the key.
    #[error("inode {0} is encrypted: contents, names and targets that need a key are not supported")]
    Encrypted(Nid),
}
