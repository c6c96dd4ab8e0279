//! Defines the structures of replies and notifications to the kernel, as in linux/fuse.h, protocol 7.45. `session`,
//! `notify`, `init` and `transport` fill them.

use vfs::file_system::{Errno, Result};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The kernel accepts error numbers below this one.
const ERRNO_END: i32 = 512;

macro_rules! reply {
    ($($(#[$doc:meta])* $name:ident, $size:literal { $($field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
            #[repr(C)]
            pub(crate) struct $name { $(pub(crate) $field: $type,)* }
            const _: () = assert!(size_of::<$name>() == $size);
        )*
    };
}

reply! {
    /// Begins every reply. `error` is 0 or a negative error number.
    OutHeader, 16 { len: u32, error: i32, unique: u64, }
    /// Attributes, as of `stat`.
    AttrBody, 88 {
        ino: u64,
        size: u64,
        blocks: u64,
        atime: u64,
        mtime: u64,
        ctime: u64,
        atimensec: u32,
        mtimensec: u32,
        ctimensec: u32,
        mode: u32,
        nlink: u32,
        uid: u32,
        gid: u32,
        rdev: u32,
        blksize: u32,
        flags: u32,
    }
    /// A node, and how long its name and attributes may be cached. Node 0: there is no such name.
    EntryOut, 128 {
        nodeid: u64,
        generation: u64,
        entry_valid: u64,
        attr_valid: u64,
        entry_valid_nsec: u32,
        attr_valid_nsec: u32,
        attr: AttrBody,
    }
    /// Attributes, and how long they may be cached.
    AttrOut, 104 { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: AttrBody, }
    /// A time of `statx`.
    StatxTime, 16 { tv_sec: i64, tv_nsec: u32, reserved: i32, }
    /// Attributes, as of `statx`.
    StatxBody, 256 {
        mask: u32,
        blksize: u32,
        attributes: u64,
        nlink: u32,
        uid: u32,
        gid: u32,
        mode: u16,
        spare0: u16,
        ino: u64,
        size: u64,
        blocks: u64,
        attributes_mask: u64,
        atime: StatxTime,
        btime: StatxTime,
        ctime: StatxTime,
        mtime: StatxTime,
        rdev_major: u32,
        rdev_minor: u32,
        dev_major: u32,
        dev_minor: u32,
        spare2: [u64; 14],
    }
    /// Attributes as of `statx`, and how long they may be cached.
    StatxOut, 288 {
        attr_valid: u64,
        attr_valid_nsec: u32,
        flags: u32,
        spare: [u64; 2],
        stat: StatxBody,
    }
    /// An open file.
    OpenOut, 16 { fh: u64, open_flags: u32, backing_id: i32, }
    /// Bytes written or copied.
    WriteOut, 8 { size: u32, padding: u32, }
    /// Bytes copied, where 32 bits are too few.
    CopyFileRangeOut, 8 { bytes_copied: u64, }
    /// Space of the volume, as of `statfs`.
    StatfsOut, 80 {
        blocks: u64,
        bfree: u64,
        bavail: u64,
        files: u64,
        ffree: u64,
        bsize: u32,
        namelen: u32,
        frsize: u32,
        padding: u32,
        spare: [u32; 6],
    }
    /// Size that a value or the names need.
    GetxattrOut, 8 { size: u32, padding: u32, }
    /// The server's part of the negotiation.
    InitOut, 64 {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u32,
        max_background: u16,
        congestion_threshold: u16,
        max_write: u32,
        time_gran: u32,
        max_pages: u16,
        map_alignment: u16,
        flags2: u32,
        max_stack_depth: u32,
        request_timeout: u16,
        unused: [u16; 11],
    }
    /// Result of a control operation; its output follows.
    IoctlOut, 16 { result: i32, flags: u32, in_iovs: u32, out_iovs: u32, }
    /// Offset of the data or hole.
    LseekOut, 8 { offset: u64, }
    /// A name of a listing; `namelen` bytes follow, and zeros up to a multiple of 8.
    Dirent, 24 { ino: u64, off: u64, namelen: u32, kind: u32, }
    /// Invalidates cached attributes (and pages from `off`, if that is not negative).
    InvalInodeOut, 24 { ino: u64, off: i64, len: i64, }
    /// Invalidates a name in a directory; `namelen` bytes and a zero follow.
    InvalEntryOut, 16 { parent: u64, namelen: u32, flags: u32, }
    /// Drops unused nodes, here one (uapi 7.45).
    PruneOut, 24 { count: u32, padding: u32, spare: u64, node: u64, }
}

impl OutHeader {
    /// The header of a reply with this many bytes behind it, or of an error.
    pub(crate) fn new(unique: u64, result: Result<usize>) -> Self {
        let len = |bytes| u32::try_from(size_of::<Self>().checked_add(bytes)?).ok();
        let (data_len, error) = match result {
            Ok(data_len) => (data_len, 0),
            Err(Errno(number)) if (1..ERRNO_END).contains(&number) => (0, -number),
            Err(_) => (0, -Errno::EIO.0),
        };
        match len(data_len) {
            Some(len) => Self { len, error, unique },
            None => Self::new(unique, Err(Errno::EIO)),
        }
    }
}

/// [`OpenOut::open_flags`].
pub(crate) mod open {
    /// No page cache for this open file.
    pub(crate) const DIRECT_IO: u32 = 1 << 0;
    /// Cached pages of the file are still valid.
    pub(crate) const KEEP_CACHE: u32 = 1 << 1;
    /// No request when a descriptor is closed.
    pub(crate) const NOFLUSH: u32 = 1 << 5;
    /// Direct writes to one file may run at the same time.
    pub(crate) const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

/// Codes of notifications, in [`OutHeader::error`] with `unique` 0.
pub(crate) mod notify {
    /// Of an [`super::InvalInodeOut`].
    pub(crate) const INVAL_INODE: i32 = 2;
    /// Of an [`super::InvalEntryOut`].
    pub(crate) const INVAL_ENTRY: i32 = 3;
    /// Without a body: every cached name is to be looked up again.
    pub(crate) const INC_EPOCH: i32 = 8;
    /// Of a [`super::PruneOut`].
    pub(crate) const PRUNE: i32 = 9;
}
