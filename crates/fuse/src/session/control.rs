//! Answers ioctls: inode flags, operations of a format, and the commands of this crate's own (`sys`). Called by
//! `service`.

use super::encode::{put, put_bytes};
use super::lost_writes::Lost;
use super::state::{Agreed, Answer, Own};
use crate::notify::Stale;
use crate::protocol::Request;
use crate::protocol::replies::IoctlOut;
use crate::protocol::requests::IoctlIn;
use crate::sys::numbers::{DATA, LOST, NODE, SERVED, SHARE_SAME, SOCKET};
use crate::sys::{DataRuns, RUNS_MAX, ShareSame};
use vfs::FileSystem;
use vfs::file_system::{
    Caller, Control, ControlAnswer, CopyRange, Errno, ExtentKind, NodeFlags, NodeId, NodeKind, OpenFlags, Result, Trim,
    are_shared,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
const FS_IOC_FSGETXATTR: u32 = 0x801c_581f;
const FS_IOC_FSSETXATTR: u32 = 0x401c_5820;
const FITRIM: u32 = 0xc018_5879;
/// The kernel's file systems refuse shorter ranges.
const TRIM_BYTES_MIN: u64 = 4096;

/// The caller is a 32-bit program, whose structures have other layouts.
const IOCTL_COMPAT: u32 = 1 << 0;

/// Inode flags in Linux's second form (`struct fsxattr`).
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

/// Argument of `FITRIM`, with the answer in `len` (`struct fstrim_range`).
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

/// Control operations.
pub(super) struct Controls<'a> {
    pub(super) fs: &'a dyn FileSystem,
    pub(super) agreed: Agreed,
    pub(super) lost: &'a Lost,
    pub(super) own: Own,
}

impl Controls<'_> {
    pub(super) fn ioctl(&self, request: &Request<'_>, out: &mut [u8]) -> Answer {
        match self.control(request, out) {
            Ok((len, Some(stale))) => Answer::DoneStale(len, stale),
            Ok((len, None)) => Answer::Done(len),
            Err(error) => Answer::Failed(error),
        }
    }

    /// The new flags of a node; `None` for a command that sets none.
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

    /// The length of the reply, and stale entries of the kernel.
    fn control(&self, request: &Request<'_>, out: &mut [u8]) -> Result<(usize, Option<Stale>)> {
        let args: IoctlIn = request.args()?;
        let input = request.data();
        if usize::try_from(args.in_size) != Ok(input.len()) {
            return Err(Errno::EINVAL);
        }
        let room = usize::try_from(args.out_size).map_err(|_| Errno::EINVAL)?;
        let len = put(out, &IoctlOut::default())?;
        let (head, out) = out.split_at_mut_checked(len).ok_or(Errno::EIO)?;
        let out = out.get_mut(..room).ok_or(Errno::EINVAL)?;
        let node = request.node();
        let stale = |names| Stale { node, names, has_epochs: self.agreed.has_epochs };
        match args.cmd {
            FS_IOC_GETFLAGS => {
                let flags = self.fs.flags(node)?.bits();
                // A C `long` by its name, an `int` by custom: the kernel accepts either size.
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
                let number = self.lost.first(self.fs).map_or(0, |error| error.0);
                Ok((len + put(out, &number)?, None))
            }
            DATA => {
                let (asked, _) = DataRuns::read_from_prefix(input).map_err(|_| Errno::EINVAL)?;
                Ok((len + put(out, &self.data_runs(node, asked.offset)?)?, None))
            }
            NODE => Ok((len + put(out, &node.0)?, None)),
            SOCKET => Ok((len + put(out, &self.own.socket.unwrap_or_default())?, None)),
            SERVED => Ok((len + put(out, &self.own.served.unwrap_or_default().numbers())?, None)),
            SHARE_SAME => {
                let (asked, _) = ShareSame::read_from_prefix(input).map_err(|_| Errno::EINVAL)?;
                let is_shared = self.share_same(&request.caller(), node, &asked)?;
                Ok((len + put(out, &ShareSame { is_shared: is_shared.into(), ..asked })?, None))
            }
            _ if args.flags & IOCTL_COMPAT != 0 => Err(Errno::ENOTTY),
            command => {
                let caller = request.caller();
                let owns_device = is_ours(&caller);
                let control = Control { caller, owns_device, node, command, input, output_bytes_max: room };
                let controls = self.fs.controls().ok_or(Errno::ENOTTY)?;
                let names = controls.control_names(&control);
                let ControlAnswer { output, error } = controls.control(&control)?;
                put(head, &IoctlOut { result: error.map_or(0, |error| -error.0), ..IoctlOut::default() })?;
                Ok((len + put_bytes(out, &output)?, Some(stale(names))))
            }
        }
    }
}

/// True for root and for the user of the server, who own the device.
pub(super) fn is_ours(caller: &Caller) -> bool {
    caller.is_known() && (caller.uid == 0 || caller.uid == rustix::process::geteuid().as_raw())
}

impl Controls<'_> {
    /// Discards free space, for root and the user of the server, who own the device.
    fn trim(&self, caller: &Caller, asked: TrimRange) -> Result<u64> {
        if !is_ours(caller) {
            return Err(Errno::EPERM);
        }
        // Shorter ranges are not discarded, and no file system begins at the last address.
        if asked.len < TRIM_BYTES_MIN || asked.start == u64::MAX {
            return Err(Errno::EINVAL);
        }
        let end = asked.start.saturating_add(asked.len);
        let wanted = Trim { range: asked.start..end, bytes_min: asked.bytes_min };
        Ok(self.fs.maintained()?.trim(&wanted, &mut |_, _| ())?)
    }

    /// Lets a file share a range of another if their bytes are equal but stored separately. The kernel has not checked
    /// how the files are open: the caller must own them, or be root. No bytes change, so the kernel's cache stays
    /// valid.
    fn share_same(&self, caller: &Caller, target: NodeId, asked: &ShareSame) -> Result<bool> {
        if self.agreed.is_read_only {
            return Err(Errno::EROFS);
        }
        let source = NodeId(asked.source);
        for node in [source, target] {
            let attr = self.fs.attr(node)?;
            if attr.kind != NodeKind::File {
                return Err(Errno::EINVAL);
            }
            if !caller.is_known() || (caller.uid != 0 && caller.uid != attr.uid) {
                return Err(Errno::EPERM);
            }
        }
        let (source_offset, target_offset, len) = (asked.source_offset, asked.offset, asked.len);
        // A file that cannot be opened for writing (immutable, append-only) cannot be shared into either. A read-only
        // subvolume is no obstacle: sharing does not change contents.
        let handle = match self.fs.open(caller, target, OpenFlags::WRITE) {
            Err(error) if error.errno() == Errno::EROFS => None,
            opened => Some(opened?),
        };
        let shared = self.extents_differ((source, source_offset), (target, target_offset), len).and_then(|differ| {
            let range = CopyRange { source, source_offset, target, target_offset, len };
            Ok(differ && self.fs.dedupe(&range)?)
        });
        if let Some(handle) = handle {
            self.fs.release(target, handle);
        }
        shared
    }

    /// The ranges of data from `offset` on that fit into an answer.
    fn data_runs(&self, node: NodeId, offset: u64) -> Result<DataRuns> {
        let mut found = DataRuns { offset: u64::MAX, count: 0, runs: [[0; 2]; RUNS_MAX] };
        let extents = self.fs.extents(node, offset)?;
        let mut places = found.runs.iter_mut();
        let mut last: Option<&mut [u64; 2]> = None;
        for extent in extents.iter().filter(|extent| extent.kind == ExtentKind::Data) {
            let (start, end) = (extent.offset.max(offset), extent.offset.saturating_add(extent.len));
            match &mut last {
                Some([_, before]) if *before == start => *before = end,
                _ if start >= end => {}
                _ => {
                    let Some(place) = places.next() else {
                        found.offset = start;
                        break;
                    };
                    *place = [start, end];
                    found.count += 1;
                    last = Some(place);
                }
            }
        }
        Ok(found)
    }

    /// Whether ranges of two files are stored separately on disk.
    fn extents_differ(&self, source: (NodeId, u64), target: (NodeId, u64), len: u64) -> Result<bool> {
        let ours = self.fs.extents(source.0, source.1)?;
        let theirs = self.fs.extents(target.0, target.1)?;
        Ok(!are_shared((&ours, source.1), (&theirs, target.1), len))
    }

    /// The user who sets flags. A kernel that does not pass the user has checked itself that the caller owns the node,
    /// and may change flags that protect it: it does so for these operations on every mount before it passes them on.
    fn flag_setter(&self, request: &Request<'_>) -> Caller {
        match request.caller() {
            caller if self.agreed.has_idmaps && !caller.is_known() => Caller { uid: 0, gid: 0, ..caller },
            caller => caller,
        }
    }
}

fn to_extended(flags: NodeFlags) -> u32 {
    PAIRS.iter().filter(|(ours, _)| flags.contains(*ours)).fold(0, |bits, (_, theirs)| bits | theirs)
}

/// The new flags of a node with the flags `old`. Flags that the second form lacks stay.
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
