//! Status codes of procedures (`nfsstat3`, `mountstat3`), and how errno of Linux maps to them.

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
    PERM = 1, "Only the owner or root may do this.";
    NOENT = 2, "The name does not exist.";
    IO = 5, "I/O error.";
    NXIO = 6, "No such device.";
    ACCES = 13, "Permission denied.";
    EXIST = 17, "The name exists.";
    XDEV = 18, "A hard link or rename between two file systems.";
    NODEV = 19, "No such device.";
    NOTDIR = 20, "Not a directory.";
    ISDIR = 21, "Is a directory.";
    INVAL = 22, "Invalid argument.";
    FBIG = 27, "The file would be too large.";
    NOSPC = 28, "No space is left.";
    ROFS = 30, "The export is read-only.";
    MLINK = 31, "Too many links.";
    NAMETOOLONG = 63, "The name is too long.";
    NOTEMPTY = 66, "The directory is not empty.";
    DQUOT = 69, "A quota is used up.";
    STALE = 70, "The node of the handle was removed, or the handle is of another export or key.";
    BADHANDLE = 10_001, "The handle has another length or version than ours.";
    NOT_SYNC = 10_002, "The guard of SETATTR does not match: the file was changed.";
    BAD_COOKIE = 10_003, "The cookie of READDIR is not a position in the directory.";
    NOTSUPP = 10_004, "Not supported.";
    TOOSMALL = 10_005, "The buffer is too small.";
    SERVERFAULT = 10_006, "Internal error of the server.";
    BADTYPE = 10_007, "MKNOD cannot make a node of this type.";
    JUKEBOX = 10_008, "Temporary failure: the client has to repeat the call later.";
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
            // EILSEQ: the file system cannot store such a name; EBUSY: the name is in use, for example by the default
            // subvolume; ELOOP: too many symbolic links in the path of MNT.
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
