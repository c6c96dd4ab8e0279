//! Lists the numbers of the requests, their names, and the size of their fixed parts. `decode` and `session` use it.

use super::requests::{
    BatchForgetIn, CopyFileRangeIn, CreateIn, FallocateIn, FlushIn, ForgetIn, FsyncIn, GetattrIn, GetxattrIn, InitIn,
    InterruptIn, IoctlIn, LinkIn, LseekIn, MkdirIn, MknodIn, OpenIn, ReadIn, ReleaseIn, Rename2In, RenameIn, SetattrIn,
    SetxattrIn, StatxIn, SyncfsIn, WriteIn,
};

macro_rules! opcodes {
    ($($name:ident = $number:literal, $fixed:expr;)*) => {
        $(pub(crate) const $name: u32 = $number;)*

        /// Bytes of the structure at the beginning of a request; names and data follow it. `None` for a request that is
        /// not supported here.
        pub(crate) const fn fixed_bytes(opcode: u32) -> Option<usize> {
            match opcode {
                $($number => Some($fixed),)*
                _ => None,
            }
        }

        /// Name of a request for the log.
        pub(crate) const fn name(opcode: u32) -> &'static str {
            match opcode {
                $($number => stringify!($name),)*
                _ => "unknown",
            }
        }
    };
}

/// True for a request that never gets a reply.
pub(crate) const fn is_forget(opcode: u32) -> bool {
    matches!(opcode, FORGET | BATCH_FORGET)
}

/// True for a request that may wait for a commit, or takes as long as its data.
pub(crate) const fn may_wait(opcode: u32) -> bool {
    let syncs = matches!(opcode, FSYNC | FSYNCDIR | SYNCFS | IOCTL);
    syncs || matches!(opcode, FALLOCATE | COPY_FILE_RANGE | COPY_FILE_RANGE_64)
}

/// True for a request whose sender goes on before it is answered.
pub(crate) const fn is_unawaited(opcode: u32) -> bool {
    is_forget(opcode) || matches!(opcode, RELEASE | RELEASEDIR)
}

opcodes! {
    LOOKUP = 1, 0;
    FORGET = 2, size_of::<ForgetIn>();
    GETATTR = 3, size_of::<GetattrIn>();
    SETATTR = 4, size_of::<SetattrIn>();
    READLINK = 5, 0;
    SYMLINK = 6, 0;
    MKNOD = 8, size_of::<MknodIn>();
    MKDIR = 9, size_of::<MkdirIn>();
    UNLINK = 10, 0;
    RMDIR = 11, 0;
    RENAME = 12, size_of::<RenameIn>();
    LINK = 13, size_of::<LinkIn>();
    OPEN = 14, size_of::<OpenIn>();
    READ = 15, size_of::<ReadIn>();
    WRITE = 16, size_of::<WriteIn>();
    STATFS = 17, 0;
    RELEASE = 18, size_of::<ReleaseIn>();
    FSYNC = 20, size_of::<FsyncIn>();
    SETXATTR = 21, size_of::<SetxattrIn>();
    GETXATTR = 22, size_of::<GetxattrIn>();
    LISTXATTR = 23, size_of::<GetxattrIn>();
    REMOVEXATTR = 24, 0;
    FLUSH = 25, size_of::<FlushIn>();
    INIT = 26, size_of::<InitIn>();
    OPENDIR = 27, size_of::<OpenIn>();
    READDIR = 28, size_of::<ReadIn>();
    RELEASEDIR = 29, size_of::<ReleaseIn>();
    FSYNCDIR = 30, size_of::<FsyncIn>();
    CREATE = 35, size_of::<CreateIn>();
    INTERRUPT = 36, size_of::<InterruptIn>();
    DESTROY = 38, 0;
    IOCTL = 39, size_of::<IoctlIn>();
    BATCH_FORGET = 42, size_of::<BatchForgetIn>();
    FALLOCATE = 43, size_of::<FallocateIn>();
    READDIRPLUS = 44, size_of::<ReadIn>();
    RENAME2 = 45, size_of::<Rename2In>();
    LSEEK = 46, size_of::<LseekIn>();
    COPY_FILE_RANGE = 47, size_of::<CopyFileRangeIn>();
    SYNCFS = 50, size_of::<SyncfsIn>();
    TMPFILE = 51, size_of::<CreateIn>();
    STATX = 52, size_of::<StatxIn>();
    COPY_FILE_RANGE_64 = 53, size_of::<CopyFileRangeIn>();
}
