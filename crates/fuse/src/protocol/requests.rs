//! Defines the structures of requests of the kernel: the header, and the structure that each kind begins with. `decode`
//! and `session` read them.
//!
//! Layouts are those of linux/fuse.h, protocol 7.45, in the byte order of the machine.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! request {
    ($($(#[$doc:meta])* $name:ident, $size:literal { $($field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
            #[repr(C)]
            pub(crate) struct $name { $(pub(crate) $field: $type,)* }
            const _: () = assert!(size_of::<$name>() == $size);
        )*
    };
}

request! {
    /// Begins every request. `len` counts the whole request; `unique` names it in the reply.
    InHeader, 40 {
        len: u32,
        opcode: u32,
        unique: u64,
        nodeid: u64,
        uid: u32,
        gid: u32,
        pid: u32,
        total_extlen: u16,
        padding: u16,
    }
    /// Releases references to a node.
    ForgetIn, 8 { nlookup: u64, }
    /// `count` pairs of node and references follow.
    BatchForgetIn, 8 { count: u32, dummy: u32, }
    /// One of them.
    ForgetOne, 16 { nodeid: u64, nlookup: u64, }
    /// `stat`.
    GetattrIn, 16 { getattr_flags: u32, dummy: u32, fh: u64, }
    /// `statx`, for attributes that `stat` lacks.
    StatxIn, 24 { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32, }
    /// `chmod`, `chown`, `truncate`, `utimens`: `valid` says which fields count.
    SetattrIn, 88 {
        valid: u32,
        padding: u32,
        fh: u64,
        size: u64,
        lock_owner: u64,
        atime: u64,
        mtime: u64,
        ctime: u64,
        atimensec: u32,
        mtimensec: u32,
        ctimensec: u32,
        mode: u32,
        unused4: u32,
        uid: u32,
        gid: u32,
        unused5: u32,
    }
    /// A name follows.
    MknodIn, 16 { mode: u32, rdev: u32, umask: u32, padding: u32, }
    /// A name follows.
    MkdirIn, 8 { mode: u32, umask: u32, }
    /// The old and the new name follow.
    RenameIn, 8 { newdir: u64, }
    /// The old and the new name follow.
    Rename2In, 16 { newdir: u64, flags: u32, padding: u32, }
    /// The new name follows.
    LinkIn, 8 { oldnodeid: u64, }
    /// `flags` are those of `open(2)`.
    OpenIn, 8 { flags: u32, open_flags: u32, }
    /// A name follows (of no meaning for a file without name).
    CreateIn, 16 { flags: u32, mode: u32, umask: u32, open_flags: u32, }
    /// Closes.
    ReleaseIn, 24 { fh: u64, flags: u32, release_flags: u32, lock_owner: u64, }
    /// A descriptor was closed; others may stay.
    FlushIn, 24 { fh: u64, unused: u32, padding: u32, lock_owner: u64, }
    /// Reads a file or a directory; `size` is the room in the reply.
    ReadIn, 40 {
        fh: u64,
        offset: u64,
        size: u32,
        read_flags: u32,
        lock_owner: u64,
        flags: u32,
        padding: u32,
    }
    /// `size` bytes of data follow.
    WriteIn, 40 {
        fh: u64,
        offset: u64,
        size: u32,
        write_flags: u32,
        lock_owner: u64,
        flags: u32,
        padding: u32,
    }
    /// Makes a file or directory durable.
    FsyncIn, 16 { fh: u64, fsync_flags: u32, padding: u32, }
    /// A name and `size` bytes of value follow.
    SetxattrIn, 16 { size: u32, flags: u32, setxattr_flags: u32, padding: u32, }
    /// For a value, a name follows; `size` is the room in the reply, 0 asks for the size needed.
    GetxattrIn, 8 { size: u32, padding: u32, }
    /// The kernel's offer.
    InitIn, 64 {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u32,
        flags2: u32,
        unused: [u32; 11],
    }
    /// The process that waits for the request `unique` was sent a signal.
    InterruptIn, 8 { unique: u64, }
    /// `in_size` bytes of input follow.
    IoctlIn, 32 { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32, }
    /// `fallocate(2)`.
    FallocateIn, 32 { fh: u64, offset: u64, length: u64, mode: u32, padding: u32, }
    /// `lseek(2)` for data and holes.
    LseekIn, 24 { fh: u64, offset: u64, whence: u32, padding: u32, }
    /// `copy_file_range(2)`.
    CopyFileRangeIn, 56 {
        fh_in: u64,
        off_in: u64,
        nodeid_out: u64,
        fh_out: u64,
        off_out: u64,
        len: u64,
        flags: u64,
    }
    /// `syncfs(2)`.
    SyncfsIn, 8 { padding: u64, }
}

/// Bits of [`SetattrIn::valid`].
pub(crate) mod setattr {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const FH: u32 = 1 << 6;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
    pub(crate) const CTIME: u32 = 1 << 10;
    pub(crate) const KILL_SUIDGID: u32 = 1 << 11;
}

/// [`WriteIn::write_flags`]: the bytes come from the page cache.
pub(crate) const WRITE_CACHE: u32 = 1 << 0;
/// [`WriteIn::write_flags`]: the write must clear set-user and set-group bits.
pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// [`OpenIn::open_flags`]: truncation must clear set-user and set-group bits.
pub(crate) const OPEN_KILL_SUIDGID: u32 = 1 << 0;
/// [`FsyncIn::fsync_flags`]: contents only.
pub(crate) const FSYNC_FDATASYNC: u32 = 1 << 0;
/// [`SetxattrIn::setxattr_flags`]: setting the ACL must clear the set-group bit.
pub(crate) const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
