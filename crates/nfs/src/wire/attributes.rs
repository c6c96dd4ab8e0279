//! Attributes of nodes: those that a client sets (`sattr3`), and those in replies (`fattr3`, `wcc_data`).

use vfs::file_system::{Attr, NodeKind, Time};

use super::xdr::{Reader, Writer};
use super::{Malformed, Result};

/// Unit of the allocated space in `Attr`.
const SECTOR_BYTES: u64 = 512;

/// A time: seconds since 1970, and nanoseconds (`nfstime3`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NfsTime {
    /// Seconds.
    pub seconds: u32,
    /// Nanoseconds. SETATTR rejects values of 10^9 and more.
    pub nanoseconds: u32,
}

impl NfsTime {
    pub(super) fn decode(read: &mut Reader<'_>) -> Result<Self> {
        Ok(Self { seconds: read.u32()?, nanoseconds: read.u32()? })
    }

    fn put(self, out: &mut Writer) {
        out.u32(self.seconds);
        out.u32(self.nanoseconds);
    }
}

impl From<Time> for NfsTime {
    /// Clamps to the range of `nfstime3`, 1970 to 2106.
    fn from(time: Time) -> Self {
        match u32::try_from(time.sec) {
            Ok(seconds) => Self { seconds, nanoseconds: time.nsec },
            Err(_) if time.sec < 0 => Self::default(),
            Err(_) => Self { seconds: u32::MAX, nanoseconds: 999_999_999 },
        }
    }
}

/// A change of a time that a client asks for (`set_atime`, `set_mtime`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TimeChange {
    /// Leaves the time unchanged.
    #[default]
    Keep,
    /// Sets the time of the server.
    Now,
    /// Sets this time of the client.
    To(NfsTime),
}

impl TimeChange {
    fn decode(read: &mut Reader<'_>) -> Result<Self> {
        match read.u32()? {
            0 => Ok(Self::Keep),
            1 => Ok(Self::Now),
            2 => NfsTime::decode(read).map(Self::To),
            other => Err(Malformed::new("time_how", "0, 1 or 2", u64::from(other))),
        }
    }

    fn put(self, out: &mut Writer) {
        match self {
            Self::Keep => out.u32(0),
            Self::Now => out.u32(1),
            Self::To(time) => {
                out.u32(2);
                time.put(out);
            }
        }
    }
}

/// Attributes that a client sets (`sattr3`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Last access.
    pub atime: TimeChange,
    /// Last change of the contents.
    pub mtime: TimeChange,
}

impl SetAttributes {
    pub(super) fn decode(read: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            mode: read.optional(Reader::u32)?,
            uid: read.optional(Reader::u32)?,
            gid: read.optional(Reader::u32)?,
            size: read.optional(Reader::u64)?,
            atime: TimeChange::decode(read)?,
            mtime: TimeChange::decode(read)?,
        })
    }

    pub(super) fn put(&self, out: &mut Writer) {
        out.optional(self.mode, Writer::u32);
        out.optional(self.uid, Writer::u32);
        out.optional(self.gid, Writer::u32);
        out.optional(self.size, Writer::u64);
        self.atime.put(out);
        self.mtime.put(out);
    }
}

/// `ftype3`.
const fn kind(kind: NodeKind) -> u32 {
    match kind {
        NodeKind::File => 1,
        NodeKind::Directory => 2,
        NodeKind::BlockDevice => 3,
        NodeKind::CharDevice => 4,
        NodeKind::Symlink => 5,
        NodeKind::Socket => 6,
        NodeKind::Fifo => 7,
    }
}

/// Major and minor number of a 32-bit device number, encoded as in `stat`.
#[must_use]
pub const fn spec_data(rdev: u32) -> (u32, u32) {
    ((rdev >> 8) & 0xfff, rdev & 0xff | (rdev >> 12) & 0xf_ff00)
}

/// Writes `fattr3`; `fsid` names the volume.
pub fn put_attributes(out: &mut Writer, attr: &Attr, fsid: u64) {
    out.u32(kind(attr.kind));
    out.u32(attr.permissions);
    out.u32(attr.nlink);
    out.u32(attr.uid);
    out.u32(attr.gid);
    out.u64(attr.size);
    out.u64(attr.blocks.saturating_mul(SECTOR_BYTES));
    let (major, minor) = spec_data(attr.rdev);
    out.u32(major);
    out.u32(minor);
    out.u64(fsid);
    out.u64(attr.ino);
    for time in [attr.atime, attr.mtime, attr.ctime] {
        NfsTime::from(time).put(out);
    }
}

/// Writes `wcc_data`: a node before and after a change, as far as it is known.
pub fn put_wcc(out: &mut Writer, before: Option<&Attr>, after: Option<&Attr>, fsid: u64) {
    out.optional(before, |out, attr| {
        out.u64(attr.size);
        NfsTime::from(attr.mtime).put(out);
        NfsTime::from(attr.ctime).put(out);
    });
    out.optional(after, |out, attr| put_attributes(out, attr, fsid));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_cannot_be_said_become_the_nearest() {
        let said = |sec, nsec| NfsTime::from(Time::new(sec, nsec));
        assert_eq!(said(-1, 5), NfsTime::default());
        assert_eq!(said(7, 5), NfsTime { seconds: 7, nanoseconds: 5 });
        assert_eq!(said(1 << 32, 0).seconds, u32::MAX);
    }

    #[test]
    fn device_numbers_have_the_bits_of_stat() {
        // makedev(0x123, 0x45678) in the 32 bits of stat.
        assert_eq!(spec_data(0x78 | (0x123 << 8) | (0x456 << 20)), (0x123, 0x4_5678));
    }
}
