//! Control operations: the flags of a node, and what a format has of its own.

use super::encode::{put, put_bytes};
use super::{Answer, Session, Stale};
use crate::protocol::Request;
use crate::protocol::replies::IoctlOut;
use crate::protocol::requests::IoctlIn;
use crate::sys::LOST;
use vfs::file_system::{Caller, Control, Errno, NodeFlags, NodeId, Result, Trim};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
const FS_IOC_FSGETXATTR: u32 = 0x801c_581f;
const FS_IOC_FSSETXATTR: u32 = 0x401c_5820;
const FITRIM: u32 = 0xc018_5879;
/// Shorter ranges are refused by the kernel's file systems.
const TRIM_BYTES_MIN: u64 = 4096;

/// The caller runs in a 32-bit world, whose structures are laid out in another way.
const IOCTL_COMPAT: u32 = 1 << 0;

/// Flags in the second form in which Linux knows them (`struct fsxattr`).
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct ExtendedFlags {
    flags: u32,
    extent_size: u32,
    extent_count: u32,
    project: u32,
    copy_extent_size: u32,
    padding: [u8; 8],
}
const _: () = assert!(size_of::<ExtendedFlags>() == 28);

/// What `FITRIM` asks for, and answers in `len` (`struct fstrim_range`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct TrimRange {
    start: u64,
    len: u64,
    bytes_min: u64,
}
const _: () = assert!(size_of::<TrimRange>() == 24);

/// Flags that both forms have: first here, second there (`FS_XFLAG_*`).
const PAIRS: &[(NodeFlags, u32)] = &[
    (NodeFlags::IMMUTABLE, 0x08),
    (NodeFlags::APPEND, 0x10),
    (NodeFlags::SYNC, 0x20),
    (NodeFlags::NOATIME, 0x40),
    (NodeFlags::NODUMP, 0x80),
];

impl Session {
    pub(super) fn ioctl(&self, request: &Request<'_>, out: &mut [u8]) -> Answer {
        match self.control(request, out) {
            Ok((len, Some(stale))) => Answer::DoneStale(len, stale),
            Ok((len, None)) => Answer::Done(len),
            Err(error) => Answer::Failed(error),
        }
    }

    /// The flags that a command gives to a node; `None` for a command that sets none.
    pub(super) fn flags_to_set(&self, node: NodeId, command: u32, input: &[u8]) -> Option<Result<NodeFlags>> {
        let read = || match command {
            FS_IOC_SETFLAGS => {
                let (flags, _) = u32::read_from_prefix(input).map_err(|_| Errno::EINVAL)?;
                Ok(NodeFlags::from_bits_retain(flags))
            }
            _ => {
                let (wanted, _) = ExtendedFlags::read_from_prefix(input).map_err(|_| Errno::EINVAL)?;
                from_extended(self.fs.flags(node)?, &wanted)
            }
        };
        matches!(command, FS_IOC_SETFLAGS | FS_IOC_FSSETXATTR).then(read)
    }

    /// The length of the reply, and what may have changed.
    fn control(&self, request: &Request<'_>, out: &mut [u8]) -> Result<(usize, Option<Stale>)> {
        let args: IoctlIn = request.args()?;
        let input = request.data();
        if usize::try_from(args.in_size) != Ok(input.len()) {
            return Err(Errno::EINVAL);
        }
        let room = usize::try_from(args.out_size).map_err(|_| Errno::EINVAL)?;
        let len = put(out, &IoctlOut::default())?;
        let out = out.get_mut(len..).ok_or(Errno::EIO)?;
        let out = out.get_mut(..room).ok_or(Errno::EINVAL)?;
        let node = request.node();
        let stale = |names| Stale { node, names, has_epochs: self.has_epochs };
        match args.cmd {
            FS_IOC_GETFLAGS => {
                let flags = self.fs.flags(node)?.bits();
                // A C `long` by its name, an `int` by custom: the kernel brings room for either.
                let bytes = flags.to_ne_bytes();
                out.fill(0);
                Ok((len + put_bytes(out, &bytes)?.max(room), None))
            }
            FS_IOC_SETFLAGS | FS_IOC_FSSETXATTR => {
                let flags = self.flags_to_set(node, args.cmd, input).ok_or(Errno::EINVAL)??;
                self.fs.set_flags(&self.flag_setter(request), node, flags)?;
                Ok((len, Some(stale(Vec::new()))))
            }
            FS_IOC_FSGETXATTR => {
                let flags = ExtendedFlags { flags: to_extended(self.fs.flags(node)?), ..ExtendedFlags::default() };
                Ok((len + put(out, &flags)?, None))
            }
            FITRIM => {
                let (asked, _) = TrimRange::read_from_prefix(input).map_err(|_| Errno::EINVAL)?;
                let told = self.trim(&request.caller(), asked)?;
                Ok((len + put(out, &TrimRange { len: told, ..asked })?, None))
            }
            LOST => {
                let number = self.lost.first(&*self.fs).map_or(0, |error| error.0);
                Ok((len + put(out, &number)?, None))
            }
            _ if args.flags & IOCTL_COMPAT != 0 => Err(Errno::ENOTTY),
            command => {
                let control = Control { caller: request.caller(), node, command, input, output_bytes_max: room };
                let names = self.fs.control_names(&control);
                let output = self.fs.control(&control)?;
                Ok((len + put_bytes(out, &output)?, Some(stale(names))))
            }
        }
    }
}

impl Session {
    /// Tells the device what is free, for whom the device belongs to: root, and the user who serves.
    fn trim(&self, caller: &Caller, asked: TrimRange) -> Result<u64> {
        let is_ours = caller.uid == 0 || caller.uid == rustix::process::geteuid().as_raw();
        if !caller.is_known() || !is_ours {
            return Err(Errno::EPERM);
        }
        // Less than a block is not told anywhere, and no file system begins at the last address.
        if asked.len < TRIM_BYTES_MIN || asked.start == u64::MAX {
            return Err(Errno::EINVAL);
        }
        let end = asked.start.saturating_add(asked.len);
        let wanted = Trim { range: asked.start..end, bytes_min: asked.bytes_min };
        Ok(self.fs.trim(&wanted, &mut |_, _| ())?)
    }

    /// Who sets flags. A kernel that does not tell has looked itself whether the caller owns the node, and may change
    /// flags that protect it: it knows these operations, and does so for every mount before it passes them on.
    fn flag_setter(&self, request: &Request<'_>) -> Caller {
        match request.caller() {
            caller if self.has_idmaps && !caller.is_known() => Caller { uid: 0, gid: 0, ..caller },
            caller => caller,
        }
    }
}

fn to_extended(flags: NodeFlags) -> u32 {
    PAIRS.iter().filter(|(ours, _)| flags.contains(*ours)).fold(0, |bits, (_, theirs)| bits | theirs)
}

/// What a node that has the flags `old` gets. What the second form cannot say stays.
fn from_extended(old: NodeFlags, wanted: &ExtendedFlags) -> Result<NodeFlags> {
    let known = PAIRS.iter().fold(0, |bits, (_, theirs)| bits | theirs);
    let asks_more =
        wanted.flags & !known != 0 || wanted.project != 0 || wanted.extent_size != 0 || wanted.copy_extent_size != 0;
    if asks_more {
        return Err(Errno::EOPNOTSUPP);
    }
    let mut flags = old;
    for (ours, theirs) in PAIRS {
        flags.set(*ours, wanted.flags & theirs != 0);
    }
    Ok(flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_flags_say_the_same() {
        let flags = NodeFlags::APPEND | NodeFlags::NOATIME | NodeFlags::NOCOW;
        assert_eq!(to_extended(flags), 0x50);
        let wanted = ExtendedFlags { flags: 0x88, ..ExtendedFlags::default() };
        assert_eq!(from_extended(flags, &wanted), Ok(NodeFlags::NOCOW | NodeFlags::IMMUTABLE | NodeFlags::NODUMP));
        let unknown = ExtendedFlags { flags: 0x100, ..ExtendedFlags::default() };
        assert_eq!(from_extended(flags, &unknown), Err(Errno::EOPNOTSUPP));
    }
}
