//! Defines the commands of a stream as typed values. The decoder returns them, the encoder takes them.

use crate::attribute::Attribute;
use crate::error::Problem;
use crate::fields::Fields;
use crate::value::{Compression, Time, Uuid};
use crate::version::Version;

/// A device node, fifo or socket. The kernel sends mode and device of all three.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Special<'a> {
    /// Its path.
    pub path: &'a [u8],
    /// Its inode number on the sending side.
    pub ino: Option<u64>,
    /// Type and permissions, as in `st_mode`; 0 if the stream lacks it (never for device nodes).
    pub mode: u64,
    /// Device number as encoded by the kernel's `new_encode_dev`: low 8 bits of the minor, 12 bits of the major, other
    /// bits of the minor. 0 if the stream lacks it.
    pub rdev: u64,
}

/// A range shared with another file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CloneRange<'a> {
    /// The file that gets the data.
    pub path: &'a [u8],
    /// Offset in it, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// The subvolume of the other file: its received UUID, or its own if it was never received.
    pub from_uuid: Uuid,
    /// The transaction of the sender's last change to that subvolume.
    pub from_ctransid: u64,
    /// Path of the other file in its subvolume.
    pub from_path: &'a [u8],
    /// Offset in the other file, in bytes.
    pub from_offset: u64,
}

/// An extent in its compressed form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncodedWrite<'a> {
    /// The file.
    pub path: &'a [u8],
    /// Offset in it, in bytes.
    pub offset: u64,
    /// Bytes of the file that the command writes.
    pub unencoded_file_len: u64,
    /// Bytes of the whole extent when decompressed.
    pub unencoded_len: u64,
    /// Start of the written range in the decompressed extent.
    pub unencoded_offset: u64,
    /// Compression of `data`.
    pub compression: Compression,
    /// The compressed extent.
    pub data: &'a [u8],
}

/// A command of a stream. Paths are relative to the subvolume being built, without a leading slash; the empty path is
/// its root directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command<'a> {
    /// Makes an empty subvolume; `path` is its name.
    Subvol {
        /// Its name.
        path: &'a [u8],
        /// Its UUID.
        uuid: Uuid,
        /// The transaction of its last change on the sending side.
        ctransid: u64,
    },
    /// Makes a snapshot of a received subvolume.
    Snapshot {
        /// Its name.
        path: &'a [u8],
        /// Its UUID.
        uuid: Uuid,
        /// The transaction of its last change on the sending side.
        ctransid: u64,
        /// UUID of the parent.
        parent_uuid: Uuid,
        /// The transaction of the parent's last change on the sending side.
        parent_ctransid: u64,
    },
    /// Makes an empty regular file.
    Mkfile {
        /// Its path.
        path: &'a [u8],
        /// Its inode number on the sending side.
        ino: Option<u64>,
    },
    /// Makes a directory.
    Mkdir {
        /// Its path.
        path: &'a [u8],
        /// Its inode number on the sending side.
        ino: Option<u64>,
    },
    /// Makes a device node.
    Mknod(Special<'a>),
    /// Makes a fifo.
    Mkfifo(Special<'a>),
    /// Makes a socket.
    Mksock(Special<'a>),
    /// Makes a symbolic link.
    Symlink {
        /// Its path.
        path: &'a [u8],
        /// Its inode number on the sending side.
        ino: Option<u64>,
        /// Target of the link.
        target: &'a [u8],
    },
    /// Renames a file or directory.
    Rename {
        /// The old path.
        path: &'a [u8],
        /// The new path.
        to: &'a [u8],
    },
    /// Adds a hard link.
    Link {
        /// Path of the new link.
        path: &'a [u8],
        /// A path of the file.
        existing: &'a [u8],
    },
    /// Removes the name of a file.
    Unlink {
        /// Its path.
        path: &'a [u8],
    },
    /// Removes an empty directory.
    Rmdir {
        /// Its path.
        path: &'a [u8],
    },
    /// Sets an extended attribute.
    SetXattr {
        /// Path of the file.
        path: &'a [u8],
        /// Its name.
        name: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
    /// Removes an extended attribute.
    RemoveXattr {
        /// Path of the file.
        path: &'a [u8],
        /// Its name.
        name: &'a [u8],
    },
    /// Writes data.
    Write {
        /// Path of the file.
        path: &'a [u8],
        /// Offset in it, in bytes.
        offset: u64,
        /// The data.
        data: &'a [u8],
    },
    /// Shares data with another file.
    Clone(CloneRange<'a>),
    /// Truncates or extends a file.
    Truncate {
        /// Path of the file.
        path: &'a [u8],
        /// New length in bytes.
        size: u64,
    },
    /// Sets the permissions.
    Chmod {
        /// Path of the file.
        path: &'a [u8],
        /// The permissions; the kernel also sends the file type.
        mode: u64,
    },
    /// Sets the owner.
    Chown {
        /// Path of the file.
        path: &'a [u8],
        /// The user.
        uid: u64,
        /// The group.
        gid: u64,
    },
    /// Sets the times.
    Utimes {
        /// Path of the file.
        path: &'a [u8],
        /// Last access.
        atime: Time,
        /// Last change of the contents.
        mtime: Time,
        /// Last change of the inode.
        ctime: Time,
        /// Creation; since version 2.
        otime: Option<Time>,
    },
    /// Ends the stream.
    End,
    /// Marks a range as changed, in a stream without data.
    UpdateExtent {
        /// Path of the file.
        path: &'a [u8],
        /// Offset in it, in bytes.
        offset: u64,
        /// Length in bytes.
        size: u64,
    },
    /// Allocates space or punches a hole. Since version 2.
    Fallocate {
        /// Path of the file.
        path: &'a [u8],
        /// `FALLOC_FL_*` flags of `fallocate(2)`.
        mode: u32,
        /// Offset in it, in bytes.
        offset: u64,
        /// Length in bytes.
        size: u64,
    },
    /// Sets the inode flags. Since version 2.
    Fileattr {
        /// Path of the file.
        path: &'a [u8],
        /// `BTRFS_INODE_*` flags of the inode item.
        flags: u64,
    },
    /// Writes a compressed extent. Since version 2.
    EncodedWrite(EncodedWrite<'a>),
}

/// Number, name and first version of every supported command.
const KINDS: [(u16, &str, Version); 25] = [
    (1, "subvol", Version::V1),
    (2, "snapshot", Version::V1),
    (3, "mkfile", Version::V1),
    (4, "mkdir", Version::V1),
    (5, "mknod", Version::V1),
    (6, "mkfifo", Version::V1),
    (7, "mksock", Version::V1),
    (8, "symlink", Version::V1),
    (9, "rename", Version::V1),
    (10, "link", Version::V1),
    (11, "unlink", Version::V1),
    (12, "rmdir", Version::V1),
    (13, "set_xattr", Version::V1),
    (14, "remove_xattr", Version::V1),
    (15, "write", Version::V1),
    (16, "clone", Version::V1),
    (17, "truncate", Version::V1),
    (18, "chmod", Version::V1),
    (19, "chown", Version::V1),
    (20, "utimes", Version::V1),
    (21, "end", Version::V1),
    (22, "update_extent", Version::V1),
    (23, "fallocate", Version::V2),
    (24, "fileattr", Version::V2),
    (25, "encoded_write", Version::V2),
];

/// The command that version 3 adds. The decoder refuses it, with its name.
pub(crate) const ENABLE_VERITY: u16 = 26;

/// Name and first version of a command number.
pub(crate) fn kind(number: u16) -> Option<(&'static str, Version)> {
    KINDS.iter().find(|(raw, ..)| *raw == number).map(|(_, name, version)| (*name, *version))
}

impl<'a> Command<'a> {
    /// The number in a stream.
    #[must_use]
    pub const fn number(&self) -> u16 {
        match self {
            Self::Subvol { .. } => 1,
            Self::Snapshot { .. } => 2,
            Self::Mkfile { .. } => 3,
            Self::Mkdir { .. } => 4,
            Self::Mknod(_) => 5,
            Self::Mkfifo(_) => 6,
            Self::Mksock(_) => 7,
            Self::Symlink { .. } => 8,
            Self::Rename { .. } => 9,
            Self::Link { .. } => 10,
            Self::Unlink { .. } => 11,
            Self::Rmdir { .. } => 12,
            Self::SetXattr { .. } => 13,
            Self::RemoveXattr { .. } => 14,
            Self::Write { .. } => 15,
            Self::Clone(_) => 16,
            Self::Truncate { .. } => 17,
            Self::Chmod { .. } => 18,
            Self::Chown { .. } => 19,
            Self::Utimes { .. } => 20,
            Self::End => 21,
            Self::UpdateExtent { .. } => 22,
            Self::Fallocate { .. } => 23,
            Self::Fileattr { .. } => 24,
            Self::EncodedWrite(_) => 25,
        }
    }

    /// The name, as `btrfs receive --dump` prints it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        kind(self.number()).map_or("command", |(name, _)| name)
    }

    /// The first version of the format that has the command.
    #[must_use]
    pub fn since(&self) -> Version {
        kind(self.number()).map_or(Version::V1, |(_, version)| version)
    }

    /// The path of the command; `None` for [`Command::End`].
    #[must_use]
    pub const fn path(&self) -> Option<&'a [u8]> {
        match self {
            Self::End => None,
            Self::Mknod(special) | Self::Mkfifo(special) | Self::Mksock(special) => Some(special.path),
            Self::Clone(range) => Some(range.path),
            Self::EncodedWrite(write) => Some(write.path),
            Self::Subvol { path, .. }
            | Self::Snapshot { path, .. }
            | Self::Mkfile { path, .. }
            | Self::Mkdir { path, .. }
            | Self::Symlink { path, .. }
            | Self::Rename { path, .. }
            | Self::Link { path, .. }
            | Self::Unlink { path }
            | Self::Rmdir { path }
            | Self::SetXattr { path, .. }
            | Self::RemoveXattr { path, .. }
            | Self::Write { path, .. }
            | Self::Truncate { path, .. }
            | Self::Chmod { path, .. }
            | Self::Chown { path, .. }
            | Self::Utimes { path, .. }
            | Self::UpdateExtent { path, .. }
            | Self::Fallocate { path, .. }
            | Self::Fileattr { path, .. } => Some(path),
        }
    }

    /// Builds the command with this number from its attributes; `None` for an unknown number.
    pub(crate) fn from_fields(number: u16, fields: &Fields<'a>) -> Result<Option<Self>, Problem> {
        if number == 21 {
            return Ok(Some(Self::End));
        }
        let path = fields.string(Attribute::Path)?;
        let ino = fields.number_if_any(Attribute::Ino)?;
        Ok(Some(match number {
            1 => Self::Subvol {
                path,
                uuid: fields.uuid(Attribute::Uuid)?,
                ctransid: fields.number(Attribute::Ctransid)?,
            },
            2 => Self::Snapshot {
                path,
                uuid: fields.uuid(Attribute::Uuid)?,
                ctransid: fields.number(Attribute::Ctransid)?,
                parent_uuid: fields.uuid(Attribute::CloneUuid)?,
                parent_ctransid: fields.number(Attribute::CloneCtransid)?,
            },
            3 => Self::Mkfile { path, ino },
            4 => Self::Mkdir { path, ino },
            5 => Self::Mknod(Special {
                path,
                ino,
                mode: fields.number(Attribute::Mode)?,
                rdev: fields.number(Attribute::Rdev)?,
            }),
            6 => Self::Mkfifo(special(fields, path, ino)?),
            7 => Self::Mksock(special(fields, path, ino)?),
            8 => Self::Symlink { path, ino, target: fields.link_target(Attribute::PathLink)? },
            9 => Self::Rename { path, to: fields.string(Attribute::PathTo)? },
            10 => Self::Link { path, existing: fields.string(Attribute::PathLink)? },
            11 => Self::Unlink { path },
            12 => Self::Rmdir { path },
            _ => return Self::of_contents(number, path, fields),
        }))
    }

    /// [`Command::from_fields`] for commands that change a file.
    fn of_contents(number: u16, path: &'a [u8], fields: &Fields<'a>) -> Result<Option<Self>, Problem> {
        Ok(Some(match number {
            13 => Self::SetXattr {
                path,
                name: fields.string(Attribute::XattrName)?,
                value: fields.bytes(Attribute::XattrData)?,
            },
            14 => Self::RemoveXattr { path, name: fields.string(Attribute::XattrName)? },
            15 => Self::Write {
                path,
                offset: fields.number(Attribute::FileOffset)?,
                data: fields.bytes(Attribute::Data)?,
            },
            16 => Self::Clone(clone_range(fields, path)?),
            17 => Self::Truncate { path, size: fields.number(Attribute::Size)? },
            18 => Self::Chmod { path, mode: fields.number(Attribute::Mode)? },
            19 => Self::Chown { path, uid: fields.number(Attribute::Uid)?, gid: fields.number(Attribute::Gid)? },
            20 => Self::Utimes {
                path,
                atime: fields.time(Attribute::Atime)?,
                mtime: fields.time(Attribute::Mtime)?,
                ctime: fields.time(Attribute::Ctime)?,
                otime: fields.time_if_any(Attribute::Otime)?,
            },
            22 => Self::UpdateExtent {
                path,
                offset: fields.number(Attribute::FileOffset)?,
                size: fields.number(Attribute::Size)?,
            },
            23 => Self::Fallocate {
                path,
                mode: fields.small(Attribute::FallocateMode)?,
                offset: fields.number(Attribute::FileOffset)?,
                size: fields.number(Attribute::Size)?,
            },
            24 => Self::Fileattr { path, flags: fields.number(Attribute::Fileattr)? },
            25 => Self::EncodedWrite(encoded_write(fields, path)?),
            _ => return Ok(None),
        }))
    }
}

fn special<'a>(fields: &Fields<'a>, path: &'a [u8], ino: Option<u64>) -> Result<Special<'a>, Problem> {
    let mode = fields.number_if_any(Attribute::Mode)?.unwrap_or(0);
    Ok(Special { path, ino, mode, rdev: fields.number_if_any(Attribute::Rdev)?.unwrap_or(0) })
}

fn clone_range<'a>(fields: &Fields<'a>, path: &'a [u8]) -> Result<CloneRange<'a>, Problem> {
    Ok(CloneRange {
        path,
        offset: fields.number(Attribute::FileOffset)?,
        len: fields.number(Attribute::CloneLen)?,
        from_uuid: fields.uuid(Attribute::CloneUuid)?,
        from_ctransid: fields.number(Attribute::CloneCtransid)?,
        from_path: fields.string(Attribute::ClonePath)?,
        from_offset: fields.number(Attribute::CloneOffset)?,
    })
}

fn encoded_write<'a>(fields: &Fields<'a>, path: &'a [u8]) -> Result<EncodedWrite<'a>, Problem> {
    fields.not_encrypted()?;
    Ok(EncodedWrite {
        path,
        offset: fields.number(Attribute::FileOffset)?,
        unencoded_file_len: fields.number(Attribute::UnencodedFileLen)?,
        unencoded_len: fields.number(Attribute::UnencodedLen)?,
        unencoded_offset: fields.number(Attribute::UnencodedOffset)?,
        compression: fields.compression()?,
        data: fields.bytes(Attribute::Data)?,
    })
}
