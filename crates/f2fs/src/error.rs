//! Errors, and whom each blames.

use codec::compress::BlockError;
use f2fs_disk::convert::to_u64;
use f2fs_disk::flags::Features;
use f2fs_disk::{BLOCK_SIZE, Corrupt, Detail, Nid};

/// Result of this crate's operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation failed.
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
    #[error("corrupt compressed cluster in inode {ino}, its block {index}: {source}")]
    Cluster {
        /// Inode of the file.
        ino: Nid,
        /// First block of the cluster.
        index: u64,
        /// What is wrong.
        source: BlockError,
    },
    /// Contents that fs-verity protects are others than were protected: the image is damaged, or was changed.
    #[error("the contents of inode {ino}, its block {index}, are not those that fs-verity protects")]
    Verity {
        /// Inode of the file.
        ino: Nid,
        /// The block.
        index: u64,
    },
    /// The image, or what is asked for, needs what this crate does not do.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The volume is full.
    #[error("no space left on the volume: {needed} bytes needed, {available} available")]
    NoSpace {
        /// Bytes asked for.
        needed: u64,
        /// Bytes that could be had.
        available: u64,
    },
    /// Something could not be written earlier, so nothing is written any more.
    #[error("nothing is written any more, because of an earlier failure: {reason}")]
    Poisoned {
        /// The failure.
        reason: Box<Error>,
    },
    /// The engine was about to write something wrong, and did not.
    #[error("bug in this program: {0}; nothing was written")]
    Bug(Box<Corrupt>),
    /// An fsync had allocated blocks and panicked before it wrote them.
    #[error("the fsync writer panicked before its blocks were written; the volume is read-only now")]
    LostBatch,
}

impl Error {
    /// So many blocks are needed, and fewer available.
    pub(crate) fn no_space(needed: u64, available: u64) -> Self {
        let bytes = |blocks: u64| blocks.saturating_mul(to_u64(BLOCK_SIZE));
        Self::NoSpace { needed: bytes(needed), available: bytes(available) }
    }

    /// Something that this program has in memory is not as it has to be.
    #[cold]
    pub(crate) fn bug(what: &'static str, expected: &'static str) -> Self {
        Self::Bug(Box::new(Corrupt::new(what, Detail::Text(expected), Detail::Text("another"))))
    }
}

/// Errors in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CallerError {
    /// There is nothing of the name.
    #[error("no such file or directory")]
    NotFound,
    /// Names are in directories alone.
    #[error("not a directory")]
    NotADirectory,
    /// Directories have no contents.
    #[error("is a directory")]
    IsADirectory,
    /// The name exceeds 255 bytes.
    #[error("name too long")]
    NameTooLong,
    /// It makes no sense for this kind of file.
    #[error("invalid argument")]
    InvalidArgument,
    /// There is no such attribute.
    #[error("no such attribute")]
    NoAttribute,
    /// There is neither data nor a hole behind the offset.
    #[error("no data or hole at or after the offset")]
    NoSuchOffset,
    /// There is no node with this number.
    #[error("stale file handle")]
    Stale,
    /// There is something of the name.
    #[error("already exists")]
    Exists,
    /// Only empty directories are removed.
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
    /// The format does not do that.
    #[error("operation not supported")]
    NotSupported,
    /// Attributes of an inode have a bounded size.
    #[error("extended attributes are too large: all of an inode's fit in {0} bytes")]
    AttributesTooLarge(usize),
}

/// Formats and requests that this crate does not support.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unsupported {
    /// Features of the volume.
    #[error("f2fs feature not supported: {}", _0.names().join(", "))]
    Features(Features),
    /// Blocks of another size than 4 KiB; the logarithm of the size.
    #[error("f2fs blocks of 2^{0} bytes are not supported, those of 4096 bytes are")]
    BlockSize(u32),
    /// A volume on several devices.
    #[error("f2fs volume on {0} devices: only a single device is supported")]
    Devices(usize),
    /// Features of a volume that can only be read.
    #[error("f2fs volumes with these features are only read so far: {}", _0.names().join(", "))]
    WritingWith(Features),
    /// A file or directory that this crate reads and does not write.
    #[error(
        "inode {0} cannot be written: compressed, encrypted, fs-verity and case-insensitive files are read-only in \
         this version"
    )]
    Change(Nid),
    /// Contents that cannot be read without the key.
    #[error("inode {0} is encrypted: contents, names and targets that need a key are not supported")]
    Encrypted(Nid),
}
