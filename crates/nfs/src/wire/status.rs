//! The results of procedures (`nfsstat3`, `mountstat3`), and the errors of Linux that they stand for.

use vfs::Errno;

/// The result of a procedure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Status(pub u32);

macro_rules! statuses {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        impl Status {
            $(
                #[doc = $text]
                pub const $name: Self = Self($number);
            )*
        }
    };
}

statuses! {
    OK = 0, "Done.";
    PERM = 1, "Only for the owner or root.";
    NOENT = 2, "No such name.";
    IO = 5, "The device failed.";
    NXIO = 6, "No such device.";
    ACCES = 13, "Permission denied.";
    EXIST = 17, "The name exists.";
    XDEV = 18, "Between two file systems.";
    NODEV = 19, "No such device.";
    NOTDIR = 20, "Not a directory.";
    ISDIR = 21, "A directory.";
    INVAL = 22, "An argument that has no meaning here.";
    FBIG = 27, "The file would be too large.";
    NOSPC = 28, "No space is left.";
    ROFS = 30, "Read-only.";
    MLINK = 31, "Too many links.";
    NAMETOOLONG = 63, "A name that is too long.";
    NOTEMPTY = 66, "The directory is not empty.";
    DQUOT = 69, "A quota is used up.";
    STALE = 70, "The handle leads to nothing any more.";
    BADHANDLE = 10_001, "The handle was not made by this server.";
    NOT_SYNC = 10_002, "The file was changed since the client looked.";
    BAD_COOKIE = 10_003, "No position of this directory.";
    NOTSUPP = 10_004, "Not supported.";
    TOOSMALL = 10_005, "The buffer is too small.";
    SERVERFAULT = 10_006, "A fault of the server.";
    BADTYPE = 10_007, "A kind of node that cannot be made.";
    JUKEBOX = 10_008, "Not now: the client tries again later.";
}

impl From<Errno> for Status {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::EPERM => Self::PERM,
            Errno::ENOENT => Self::NOENT,
            Errno::EIO | Errno::EAGAIN | Errno::EINTR | Errno::ECANCELED => Self::IO,
            Errno::ENXIO => Self::NXIO,
            Errno::ENOMEM => Self::JUKEBOX,
            Errno::EACCES => Self::ACCES,
            Errno::EEXIST => Self::EXIST,
            Errno::EXDEV => Self::XDEV,
            Errno::ENODEV => Self::NODEV,
            Errno::ENOTDIR => Self::NOTDIR,
            Errno::EISDIR => Self::ISDIR,
            // EILSEQ: a name that the file system cannot keep; EBUSY: a name in use, for instance of a default
            // subvolume; ELOOP: of a path of MNT.
            Errno::EINVAL | Errno::EILSEQ | Errno::ELOOP | Errno::EOVERFLOW | Errno::ERANGE => Self::INVAL,
            Errno::EBUSY => Self::ACCES,
            Errno::EFBIG => Self::FBIG,
            Errno::ENOSPC => Self::NOSPC,
            Errno::EROFS => Self::ROFS,
            Errno::EMLINK => Self::MLINK,
            Errno::ENAMETOOLONG => Self::NAMETOOLONG,
            Errno::ENOTEMPTY => Self::NOTEMPTY,
            Errno::EDQUOT => Self::DQUOT,
            Errno::ESTALE => Self::STALE,
            Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::ENOTTY => Self::NOTSUPP,
            _ => Self::SERVERFAULT,
        }
    }
}

impl From<vfs::Error> for Status {
    fn from(error: vfs::Error) -> Self {
        error.errno().into()
    }
}
