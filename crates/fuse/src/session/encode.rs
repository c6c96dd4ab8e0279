//! Converts values of the file system to the kernel's structures. Called by the other files of `session`.

use crate::protocol::replies::{AttrBody, AttrOut, EntryOut, StatfsOut, StatxBody, StatxTime};
use std::time::Duration;
use vfs::file_system::{Attr, Entry, Errno, Result, Time, VolumeStatus};
use zerocopy::{Immutable, IntoBytes};

/// How long the kernel may cache replies.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timeouts {
    pub(super) entry: Duration,
    pub(super) attr: Duration,
}

impl Timeouts {
    /// The structure for a node.
    pub(super) fn entry(&self, entry: &Entry) -> EntryOut {
        EntryOut {
            nodeid: entry.node.0,
            generation: entry.generation,
            attr: attr(&entry.attr),
            attr_valid: self.attr.as_secs(),
            attr_valid_nsec: self.attr.subsec_nanos(),
            ..self.no_entry()
        }
    }

    /// The structure for a missing name.
    pub(super) fn no_entry(&self) -> EntryOut {
        EntryOut {
            entry_valid: self.entry.as_secs(),
            entry_valid_nsec: self.entry.subsec_nanos(),
            ..EntryOut::default()
        }
    }

    /// The structure for attributes alone.
    pub(super) fn attr(&self, value: &Attr) -> AttrOut {
        AttrOut {
            attr_valid: self.attr.as_secs(),
            attr_valid_nsec: self.attr.subsec_nanos(),
            dummy: 0,
            attr: attr(value),
        }
    }
}

/// Writes a structure at the beginning of a reply, and returns its size.
pub(super) fn put<T: IntoBytes + Immutable>(out: &mut [u8], value: &T) -> Result<usize> {
    value.write_to_prefix(out).map_err(|_| Errno::EIO)?;
    Ok(size_of::<T>())
}

/// Writes bytes at the beginning of a reply, and returns their count.
pub(super) fn put_bytes(out: &mut [u8], bytes: &[u8]) -> Result<usize> {
    out.get_mut(..bytes.len()).ok_or(Errno::EIO)?.copy_from_slice(bytes);
    Ok(bytes.len())
}

pub(super) fn attr(attr: &Attr) -> AttrBody {
    AttrBody {
        ino: attr.ino,
        size: attr.size,
        blocks: attr.blocks,
        atime: attr.atime.sec.cast_unsigned(),
        mtime: attr.mtime.sec.cast_unsigned(),
        ctime: attr.ctime.sec.cast_unsigned(),
        atimensec: attr.atime.nsec,
        mtimensec: attr.mtime.nsec,
        ctimensec: attr.ctime.nsec,
        mode: mode(attr),
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: attr.block_bytes,
        flags: 0,
    }
}

/// `STATX_BASIC_STATS | STATX_BTIME`.
const STATX_MASK: u32 = 0xfff;
/// Flags of a node that `statx` has too, with the same numbers: compressed, immutable,
/// append-only, not dumped.
const STATX_ATTRIBUTES: u32 = 0x4 | 0x10 | 0x20 | 0x40;

pub(super) fn statx(attr: &Attr) -> StatxBody {
    StatxBody {
        mask: STATX_MASK,
        blksize: attr.block_bytes,
        attributes: u64::from(attr.flags.bits() & STATX_ATTRIBUTES),
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        mode: u16::try_from(mode(attr)).unwrap_or(0),
        ino: attr.ino,
        size: attr.size,
        blocks: attr.blocks,
        attributes_mask: u64::from(STATX_ATTRIBUTES),
        atime: statx_time(attr.atime),
        btime: statx_time(attr.btime),
        ctime: statx_time(attr.ctime),
        mtime: statx_time(attr.mtime),
        rdev_major: (attr.rdev >> 8) & 0xfff,
        rdev_minor: (attr.rdev & 0xff) | ((attr.rdev >> 12) & 0xfff00),
        ..StatxBody::default()
    }
}

fn statx_time(time: Time) -> StatxTime {
    StatxTime { tv_sec: time.sec, tv_nsec: time.nsec, reserved: 0 }
}

fn mode(attr: &Attr) -> u32 {
    attr.kind.mode_bits() | (attr.permissions & 0o7777)
}

pub(super) fn statfs(status: &VolumeStatus) -> StatfsOut {
    StatfsOut {
        blocks: status.blocks,
        bfree: status.blocks_free,
        bavail: status.blocks_available,
        files: status.nodes,
        ffree: status.nodes_free,
        bsize: status.block_bytes,
        namelen: status.name_bytes_max,
        frsize: status.block_bytes,
        ..StatfsOut::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfs::file_system::{Home, NodeFlags, NodeKind};

    #[test]
    fn attributes_are_told_alike_both_ways() {
        let time = |sec| Time { sec, nsec: 5 };
        let value = Attr {
            ino: 300,
            kind: NodeKind::BlockDevice,
            permissions: 0o4755,
            nlink: 2,
            uid: 1,
            gid: 2,
            rdev: 0x1234_5678,
            size: 9,
            blocks: 8,
            block_bytes: 4096,
            atime: time(-1),
            mtime: time(1),
            ctime: time(2),
            btime: time(3),
            flags: NodeFlags::IMMUTABLE | NodeFlags::NOCOW,
            home: Home::default(),
        };
        let body = attr(&value);
        assert_eq!((body.mode, body.atime, body.atimensec), (0o064_755, u64::MAX, 5));
        let body = statx(&value);
        assert_eq!((body.mode, body.attributes, body.btime.tv_sec), (0o064_755, 0x10, 3));
        assert_eq!((body.rdev_major, body.rdev_minor), (0x456, 0x12378));
    }

    #[test]
    fn a_reply_that_does_not_fit_is_an_error() {
        assert_eq!(put(&mut [0; 7], &1_u64), Err(Errno::EIO));
        assert_eq!(put_bytes(&mut [0; 2], b"abc"), Err(Errno::EIO));
    }
}
