//! Answers requests on contents of files: reading, writing, allocating and copying. Called by `service`.

use super::encode::put;
use super::open::DATA_SYNC;
use super::state::{Agreed, Answer, Caches};
use crate::notify::Stale;
use crate::protocol::Request;
use crate::protocol::replies::{CopyFileRangeOut, WriteOut};
use crate::protocol::requests::{CopyFileRangeIn, FallocateIn, ReadIn, WRITE_CACHE, WRITE_KILL_SUIDGID, WriteIn};
use rustix::fs::OFlags;
use vfs::FileSystem;
use vfs::file_system::{AllocateFlags, CopyRange, Errno, Handle, NodeId, Result, WriteFlags};
use vfs::privileges::has_bare_set_group;

/// Most bytes copied by one request whose reply has a count of 32 bits: whole pages.
const COPY_BYTES_MAX: u64 = 0xffff_0000;

/// Requests about the contents of files.
pub(super) struct Contents<'a> {
    pub(super) fs: &'a dyn FileSystem,
    pub(super) agreed: Agreed,
    pub(super) caches: &'a Caches,
}

impl Contents<'_> {
    pub(super) fn read(&self, request: &Request<'_>, out: &mut [u8]) -> Result<usize> {
        let args: ReadIn = request.args()?;
        let size = usize::try_from(args.size).map_err(|_| Errno::EINVAL)?;
        let out = out.get_mut(..size).ok_or(Errno::EINVAL)?;
        self.caches.mappable.read(request.node());
        Ok(self.fs.read(request.node(), Handle(args.fh), args.offset, out)?)
    }

    pub(super) fn write(&self, request: &Request<'_>, out: &mut [u8]) -> Result<Answer> {
        let args: WriteIn = request.args()?;
        let data = request.data();
        if usize::try_from(args.size) != Ok(data.len()) {
            return Err(Errno::EINVAL);
        }
        let mut flags = write_flags(&args, self.agreed.writeback);
        flags.set(WriteFlags::BY_MEMBER, self.is_by_member(request, flags));
        let written = self.fs.write(request.node(), Handle(args.fh), args.offset, data, flags);
        if flags.contains(WriteFlags::FROM_CACHE) {
            let refused = written.as_ref().err().map(vfs::Error::errno);
            if let Some(error) = refused {
                self.caches.lost.note(request.node(), error);
            }
            self.caches.room.written(request.node(), args.size.into(), refused, self.fs);
        }
        let written = written?;
        let missing = u32::try_from(written.missing).unwrap_or(args.size);
        let reply = WriteOut { size: args.size.saturating_sub(missing), padding: 0 };
        let len = put(out, &reply)?;
        // The kernel requested it, but does not change its cached mode: a program run next would still get its owner's
        // rights.
        Ok(match written.cleared_privileges {
            true => Answer::DoneStale(len, Stale::attributes(request.node())),
            false => Answer::Done(len),
        })
    }

    /// True if the caller's group is the node's and has an effect. A request does not have the caller's other groups.
    fn is_by_member(&self, request: &Request<'_>, flags: WriteFlags) -> bool {
        // For data from the cache the caller is not the writer.
        flags & (WriteFlags::CLEAR_PRIVILEGES | WriteFlags::FROM_CACHE) == WriteFlags::CLEAR_PRIVILEGES
            && request.caller().is_known()
            && self
                .fs
                .attr(request.node())
                .is_ok_and(|attr| has_bare_set_group(attr.permissions) && attr.gid == request.caller().gid)
    }

    pub(super) fn fallocate(&self, request: &Request<'_>) -> Result<usize> {
        let args: FallocateIn = request.args()?;
        let flags = AllocateFlags::from_bits(args.mode).ok_or(Errno::EOPNOTSUPP)?;
        self.fs.allocate(request.node(), flags, args.offset, args.length)?;
        Ok(0)
    }

    pub(super) fn copy_file_range(&self, request: &Request<'_>, out: &mut [u8]) -> Result<usize> {
        let copied = self.copy(request, COPY_BYTES_MAX)?;
        let reply = WriteOut { size: u32::try_from(copied).map_err(|_| Errno::EIO)?, padding: 0 };
        put(out, &reply)
    }

    pub(super) fn copy_file_range_64(&self, request: &Request<'_>, out: &mut [u8]) -> Result<usize> {
        let bytes_copied = self.copy(request, u64::MAX)?;
        put(out, &CopyFileRangeOut { bytes_copied })
    }

    fn copy(&self, request: &Request<'_>, bytes_max: u64) -> Result<u64> {
        let args: CopyFileRangeIn = request.args()?;
        if args.flags != 0 {
            return Err(Errno::EINVAL);
        }
        let range = CopyRange {
            source: request.node(),
            source_offset: args.off_in,
            target: NodeId(args.nodeid_out),
            target_offset: args.off_out,
            len: args.len.min(bytes_max),
        };
        Ok(self.fs.copy_range(&range)?)
    }
}

/// The kernel chooses the offset of an appending write, since it knows the size and holds the node's lock; so two parts
/// of one write may arrive in any order.
fn write_flags(args: &WriteIn, collects: bool) -> WriteFlags {
    let open = OFlags::from_bits_retain(args.flags);
    let from_cache = args.write_flags & WRITE_CACHE != 0;
    let mut flags = WriteFlags::empty();
    flags.set(WriteFlags::FROM_CACHE, from_cache);
    // A kernel that does not collect writes writes back only mappings.
    flags.set(WriteFlags::FROM_MAPPING, from_cache && !collects);
    flags.set(WriteFlags::CLEAR_PRIVILEGES, args.write_flags & WRITE_KILL_SUIDGID != 0);
    if open.contains(OFlags::DIRECT) && !from_cache {
        flags |= WriteFlags::DIRECT;
        // After any other write to such a file the kernel requests a sync.
        flags.set(WriteFlags::DATA_SYNC, open.contains(DATA_SYNC));
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_a_write_come_from_two_places() {
        let args = WriteIn {
            flags: (OFlags::WRONLY | OFlags::DIRECT | OFlags::APPEND | DATA_SYNC).bits(),
            write_flags: WRITE_KILL_SUIDGID,
            ..WriteIn::default()
        };
        assert_eq!(write_flags(&args, true), WriteFlags::DIRECT | WriteFlags::DATA_SYNC | WriteFlags::CLEAR_PRIVILEGES);
        let cached = WriteIn { write_flags: WRITE_CACHE, ..args };
        assert_eq!(write_flags(&cached, true), WriteFlags::FROM_CACHE);
        assert_eq!(write_flags(&cached, false), WriteFlags::FROM_CACHE | WriteFlags::FROM_MAPPING);
    }
}
