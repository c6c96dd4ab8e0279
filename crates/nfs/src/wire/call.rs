//! The arguments of all procedures of NFS and MOUNT, decoded and encoded.

use vfs::file_system::NodeKind;

use super::attributes::{NfsTime, SetAttributes};
use super::xdr::{Reader, Writer};
use super::{DATA_BYTES_MAX, HANDLE_BYTES_MAX, Malformed, NAME_BYTES_MAX, PATH_BYTES_MAX, Result};
use crate::number::{to_u64, to_usize};

/// Length of the verifier of an exclusive creation.
pub const CREATE_VERIFIER_BYTES: usize = 8;

bitflags::bitflags! {
    /// Rights of a client on a node (`ACCESS3_*`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Access: u32 {
        /// Read data or list names.
        const READ = 0x01;
        /// Look up names in a directory.
        const LOOKUP = 0x02;
        /// Change existing data or names.
        const MODIFY = 0x04;
        /// Add data or names.
        const EXTEND = 0x08;
        /// Remove names of a directory.
        const DELETE = 0x10;
        /// Run a file.
        const EXECUTE = 0x20;
    }
}

/// Numbers of the procedures of NFS.
pub mod procedure {
    #![expect(missing_docs, reason = "the names are those of RFC 1813")]
    pub const NULL: u32 = 0;
    pub const GETATTR: u32 = 1;
    pub const SETATTR: u32 = 2;
    pub const LOOKUP: u32 = 3;
    pub const ACCESS: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const READ: u32 = 6;
    pub const WRITE: u32 = 7;
    pub const CREATE: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const SYMLINK: u32 = 10;
    pub const MKNOD: u32 = 11;
    pub const REMOVE: u32 = 12;
    pub const RMDIR: u32 = 13;
    pub const RENAME: u32 = 14;
    pub const LINK: u32 = 15;
    pub const READDIR: u32 = 16;
    pub const READDIRPLUS: u32 = 17;
    pub const FSSTAT: u32 = 18;
    pub const FSINFO: u32 = 19;
    pub const PATHCONF: u32 = 20;
    pub const COMMIT: u32 = 21;
}

/// Numbers of the procedures of MOUNT.
pub mod mount_procedure {
    #![expect(missing_docs, reason = "the names are those of RFC 1813")]
    pub const NULL: u32 = 0;
    pub const MNT: u32 = 1;
    pub const DUMP: u32 = 2;
    pub const UMNT: u32 = 3;
    pub const UMNTALL: u32 = 4;
    pub const EXPORT: u32 = 5;
}

/// A name in a directory (`diropargs3`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirOp<'a> {
    /// Handle of the directory.
    pub dir: &'a [u8],
    /// The name.
    pub name: &'a [u8],
}

/// The durability that a WRITE demands (`stable_how`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stability {
    /// Durable only after a COMMIT.
    Unstable,
    /// The data is durable before the reply.
    DataSync,
    /// Data and attributes are durable before the reply.
    FileSync,
}

impl Stability {
    /// The number of RFC 1813.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Unstable => 0,
            Self::DataSync => 1,
            Self::FileSync => 2,
        }
    }

    fn decode(read: &mut Reader<'_>) -> Result<Self> {
        match read.u32()? {
            0 => Ok(Self::Unstable),
            1 => Ok(Self::DataSync),
            2 => Ok(Self::FileSync),
            other => Err(Malformed::new("stable_how", "0, 1 or 2", u64::from(other))),
        }
    }
}

/// The behaviour of CREATE if the name exists (`createhow3`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// Takes the existing file.
    Unchecked(SetAttributes),
    /// Fails.
    Guarded(SetAttributes),
    /// Fails, unless the file was made with the same verifier.
    Exclusive([u8; CREATE_VERIFIER_BYTES]),
}

/// The arguments of an NFS procedure. Handles are not verified yet.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of RFC 1813")]
pub enum Arguments<'a> {
    Null,
    GetAttr { node: &'a [u8] },
    SetAttr { node: &'a [u8], changes: SetAttributes, guard: Option<NfsTime> },
    Lookup(DirOp<'a>),
    Access { node: &'a [u8], wanted: Access },
    ReadLink { node: &'a [u8] },
    Read { node: &'a [u8], offset: u64, count: u32 },
    Write { node: &'a [u8], offset: u64, stability: Stability, data: &'a [u8] },
    Create { at: DirOp<'a>, how: How },
    MkDir { at: DirOp<'a>, attributes: SetAttributes },
    SymLink { at: DirOp<'a>, attributes: SetAttributes, target: &'a [u8] },
    MkNod { at: DirOp<'a>, kind: Option<NodeKind>, attributes: SetAttributes, device: (u32, u32) },
    Remove(DirOp<'a>),
    RmDir(DirOp<'a>),
    Rename { from: DirOp<'a>, to: DirOp<'a> },
    Link { node: &'a [u8], at: DirOp<'a> },
    ReadDir { dir: &'a [u8], cookie: u64, verifier: u64, count: u32 },
    ReadDirPlus { dir: &'a [u8], cookie: u64, verifier: u64, dir_count: u32, max_count: u32 },
    FsStat { node: &'a [u8] },
    FsInfo { node: &'a [u8] },
    PathConf { node: &'a [u8] },
    Commit { node: &'a [u8], offset: u64, count: u32 },
}

impl<'a> Arguments<'a> {
    /// Decodes the arguments of a procedure; `None` for one that does not exist.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(number: u32, bytes: &'a [u8]) -> Result<Option<Self>> {
        let mut read = Reader::new("arguments", bytes);
        let found = match number {
            procedure::READ
            | procedure::WRITE
            | procedure::READDIR
            | procedure::READDIRPLUS
            | procedure::COMMIT
            | procedure::READLINK => Self::of_contents(number, &mut read)?,
            procedure::CREATE..=procedure::LINK => Self::of_names(number, &mut read)?,
            procedure::NULL..=procedure::PATHCONF => Self::of_node(number, &mut read)?,
            _ => return Ok(None),
        };
        // Extra bytes after the arguments are ignored, because some clients send them.
        Ok(Some(found))
    }

    fn of_node(number: u32, read: &mut Reader<'a>) -> Result<Self> {
        Ok(match number {
            procedure::GETATTR => Self::GetAttr { node: handle(read)? },
            procedure::SETATTR => Self::SetAttr {
                node: handle(read)?,
                changes: SetAttributes::decode(read)?,
                guard: read.optional(NfsTime::decode)?,
            },
            procedure::LOOKUP => Self::Lookup(dir_op(read)?),
            procedure::ACCESS => Self::Access { node: handle(read)?, wanted: Access::from_bits_retain(read.u32()?) },
            procedure::FSSTAT => Self::FsStat { node: handle(read)? },
            procedure::FSINFO => Self::FsInfo { node: handle(read)? },
            procedure::PATHCONF => Self::PathConf { node: handle(read)? },
            _ => Self::Null,
        })
    }

    fn of_contents(number: u32, read: &mut Reader<'a>) -> Result<Self> {
        let node = handle(read)?;
        Ok(match number {
            procedure::READLINK => Self::ReadLink { node },
            procedure::READ => Self::Read { node, offset: read.u64()?, count: read.u32()? },
            procedure::COMMIT => Self::Commit { node, offset: read.u64()?, count: read.u32()? },
            procedure::READDIR => {
                let (cookie, verifier) = (read.u64()?, read.u64()?);
                Self::ReadDir { dir: node, cookie, verifier, count: read.u32()? }
            }
            procedure::READDIRPLUS => {
                let (cookie, verifier) = (read.u64()?, read.u64()?);
                let (dir_count, max_count) = (read.u32()?, read.u32()?);
                Self::ReadDirPlus { dir: node, cookie, verifier, dir_count, max_count }
            }
            _ => {
                let (offset, count) = (read.u64()?, read.u32()?);
                let stability = Stability::decode(read)?;
                let data = read.opaque(to_usize(DATA_BYTES_MAX))?;
                // The message contains the length twice; both have to agree.
                if u64::from(count) != to_u64(data.len()) {
                    return Err(Malformed::new("count of a WRITE", "the length of its data", u64::from(count)));
                }
                Self::Write { node, offset, stability, data }
            }
        })
    }

    fn of_names(number: u32, read: &mut Reader<'a>) -> Result<Self> {
        Ok(match number {
            procedure::CREATE => Self::Create { at: dir_op(read)?, how: how(read)? },
            procedure::MKDIR => Self::MkDir { at: dir_op(read)?, attributes: SetAttributes::decode(read)? },
            procedure::SYMLINK => Self::SymLink {
                at: dir_op(read)?,
                attributes: SetAttributes::decode(read)?,
                target: read.opaque(PATH_BYTES_MAX)?,
            },
            procedure::MKNOD => mknod(read)?,
            procedure::REMOVE => Self::Remove(dir_op(read)?),
            procedure::RMDIR => Self::RmDir(dir_op(read)?),
            procedure::RENAME => Self::Rename { from: dir_op(read)?, to: dir_op(read)? },
            _ => Self::Link { node: handle(read)?, at: dir_op(read)? },
        })
    }

    /// The number of the procedure.
    #[must_use]
    pub const fn procedure(&self) -> u32 {
        match self {
            Self::Null => procedure::NULL,
            Self::GetAttr { .. } => procedure::GETATTR,
            Self::SetAttr { .. } => procedure::SETATTR,
            Self::Lookup(_) => procedure::LOOKUP,
            Self::Access { .. } => procedure::ACCESS,
            Self::ReadLink { .. } => procedure::READLINK,
            Self::Read { .. } => procedure::READ,
            Self::Write { .. } => procedure::WRITE,
            Self::Create { .. } => procedure::CREATE,
            Self::MkDir { .. } => procedure::MKDIR,
            Self::SymLink { .. } => procedure::SYMLINK,
            Self::MkNod { .. } => procedure::MKNOD,
            Self::Remove(_) => procedure::REMOVE,
            Self::RmDir(_) => procedure::RMDIR,
            Self::Rename { .. } => procedure::RENAME,
            Self::Link { .. } => procedure::LINK,
            Self::ReadDir { .. } => procedure::READDIR,
            Self::ReadDirPlus { .. } => procedure::READDIRPLUS,
            Self::FsStat { .. } => procedure::FSSTAT,
            Self::FsInfo { .. } => procedure::FSINFO,
            Self::PathConf { .. } => procedure::PATHCONF,
            Self::Commit { .. } => procedure::COMMIT,
        }
    }

    /// True for procedures that are not idempotent: their replies go into the duplicate request cache.
    #[must_use]
    pub const fn needs_kept_reply(&self) -> bool {
        matches!(
            self,
            Self::SetAttr { .. }
                | Self::Create { .. }
                | Self::MkDir { .. }
                | Self::SymLink { .. }
                | Self::MkNod { .. }
                | Self::Remove(_)
                | Self::RmDir(_)
                | Self::Rename { .. }
                | Self::Link { .. }
        )
    }

    /// Encodes the arguments, as a client does.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        match self {
            Self::Null => {}
            Self::GetAttr { node }
            | Self::ReadLink { node }
            | Self::FsStat { node }
            | Self::FsInfo { node }
            | Self::PathConf { node } => out.opaque(node),
            Self::Access { node, wanted } => {
                out.opaque(node);
                out.u32(wanted.bits());
            }
            Self::SetAttr { node, changes, guard } => {
                out.opaque(node);
                changes.put(&mut out);
                out.optional(*guard, |out, time| {
                    out.u32(time.seconds);
                    out.u32(time.nanoseconds);
                });
            }
            Self::Read { node, offset, count } | Self::Commit { node, offset, count } => {
                out.opaque(node);
                out.u64(*offset);
                out.u32(*count);
            }
            Self::Write { node, offset, stability, data } => {
                out.opaque(node);
                out.u64(*offset);
                out.u32(crate::number::to_u32(data.len()));
                out.u32(stability.number());
                out.opaque(data);
            }
            Self::ReadDir { dir, cookie, verifier, count } => {
                out.opaque(dir);
                out.u64(*cookie);
                out.u64(*verifier);
                out.u32(*count);
            }
            Self::ReadDirPlus { dir, cookie, verifier, dir_count, max_count } => {
                out.opaque(dir);
                out.u64(*cookie);
                out.u64(*verifier);
                out.u32(*dir_count);
                out.u32(*max_count);
            }
            _ => self.put_names(&mut out),
        }
        out.into_bytes()
    }

    fn put_names(&self, out: &mut Writer) {
        let put = |out: &mut Writer, at: &DirOp<'_>| {
            out.opaque(at.dir);
            out.opaque(at.name);
        };
        match self {
            Self::Lookup(at) | Self::Remove(at) | Self::RmDir(at) => put(out, at),
            Self::Create { at, how } => {
                put(out, at);
                put_how(out, how);
            }
            Self::MkDir { at, attributes } => {
                put(out, at);
                attributes.put(out);
            }
            Self::SymLink { at, attributes, target } => {
                put(out, at);
                attributes.put(out);
                out.opaque(target);
            }
            Self::MkNod { at, kind, attributes, device } => {
                put(out, at);
                put_mknod(out, *kind, attributes, *device);
            }
            Self::Rename { from, to } => {
                put(out, from);
                put(out, to);
            }
            Self::Link { node, at } => {
                out.opaque(node);
                put(out, at);
            }
            _ => {}
        }
    }
}

fn handle<'a>(read: &mut Reader<'a>) -> Result<&'a [u8]> {
    read.opaque(HANDLE_BYTES_MAX)
}

fn dir_op<'a>(read: &mut Reader<'a>) -> Result<DirOp<'a>> {
    Ok(DirOp { dir: handle(read)?, name: read.opaque(NAME_BYTES_MAX)? })
}

fn how(read: &mut Reader<'_>) -> Result<How> {
    match read.u32()? {
        0 => SetAttributes::decode(read).map(How::Unchecked),
        1 => SetAttributes::decode(read).map(How::Guarded),
        2 => read.array().map(How::Exclusive),
        other => Err(Malformed::new("createmode3", "0, 1 or 2", u64::from(other))),
    }
}

fn put_how(out: &mut Writer, how: &How) {
    match how {
        How::Unchecked(attributes) => {
            out.u32(0);
            attributes.put(out);
        }
        How::Guarded(attributes) => {
            out.u32(1);
            attributes.put(out);
        }
        How::Exclusive(verifier) => {
            out.u32(2);
            out.raw(verifier);
        }
    }
}

/// Decodes `mknoddata3`. For kinds that MKNOD cannot make, the message contains no attributes.
fn mknod<'a>(read: &mut Reader<'a>) -> Result<Arguments<'a>> {
    let at = dir_op(read)?;
    let number = read.u32()?;
    let kind = match number {
        3 => NodeKind::BlockDevice,
        4 => NodeKind::CharDevice,
        6 => NodeKind::Socket,
        7 => NodeKind::Fifo,
        1 | 2 | 5 => {
            return Ok(Arguments::MkNod { at, kind: None, attributes: SetAttributes::default(), device: (0, 0) });
        }
        other => return Err(Malformed::new("ftype3", "1 to 7", u64::from(other))),
    };
    let attributes = SetAttributes::decode(read)?;
    let has_device = matches!(kind, NodeKind::BlockDevice | NodeKind::CharDevice);
    let device = if has_device { (read.u32()?, read.u32()?) } else { (0, 0) };
    Ok(Arguments::MkNod { at, kind: Some(kind), attributes, device })
}

fn put_mknod(out: &mut Writer, kind: Option<NodeKind>, attributes: &SetAttributes, device: (u32, u32)) {
    let number = match kind {
        Some(NodeKind::BlockDevice) => 3,
        Some(NodeKind::CharDevice) => 4,
        Some(NodeKind::Socket) => 6,
        Some(NodeKind::Fifo) => 7,
        _ => 1,
    };
    out.u32(number);
    if kind.is_some() {
        attributes.put(out);
    }
    if matches!(kind, Some(NodeKind::BlockDevice | NodeKind::CharDevice)) {
        out.u32(device.0);
        out.u32(device.1);
    }
}

/// The arguments of a procedure of MOUNT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of RFC 1813")]
pub enum MountArguments<'a> {
    Null,
    Mnt { path: &'a [u8] },
    Dump,
    Umnt { path: &'a [u8] },
    UmntAll,
    Export,
}

impl<'a> MountArguments<'a> {
    /// Decodes the arguments of a procedure; `None` for one that does not exist.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(number: u32, bytes: &'a [u8]) -> Result<Option<Self>> {
        let mut read = Reader::new("arguments of MOUNT", bytes);
        Ok(Some(match number {
            mount_procedure::NULL => Self::Null,
            mount_procedure::MNT => Self::Mnt { path: read.opaque(PATH_BYTES_MAX)? },
            mount_procedure::DUMP => Self::Dump,
            mount_procedure::UMNT => Self::Umnt { path: read.opaque(PATH_BYTES_MAX)? },
            mount_procedure::UMNTALL => Self::UmntAll,
            mount_procedure::EXPORT => Self::Export,
            _ => return Ok(None),
        }))
    }
}
