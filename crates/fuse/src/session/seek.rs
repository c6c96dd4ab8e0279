//! Answers LSEEK: finds the next data or hole of a file, of which the kernel may have newer data than the file system.
//! Called by `service`.
//!
//! Without a writeback cache the kernel passes every write on at once, but not stores into a mapping. If there may be
//! such pages (see `mmap_files`), the whole file is reported as data, which every caller must accept.

use super::data::Contents;
use super::encode::put;
use crate::protocol::Request;
use crate::protocol::replies::LseekOut;
use crate::protocol::requests::LseekIn;
use vfs::file_system::{Errno, NodeId, Result, Seek};

impl Contents<'_> {
    pub(super) fn lseek(&self, request: &Request<'_>, out: &mut [u8]) -> Result<usize> {
        if self.agreed.writeback {
            // The kernel does not write back before it asks, so data would be reported as a hole, and copies would lose
            // it. If it does not ask, it reports the whole file as data.
            return Err(Errno::ENOSYS);
        }
        let args: LseekIn = request.args()?;
        // The kernel answers all other values itself.
        let what = match args.whence {
            3 => Seek::Data,
            4 => Seek::Hole,
            _ => return Err(Errno::EINVAL),
        };
        let offset = self.seek(request.node(), what, args.offset)?;
        put(out, &LseekOut { offset })
    }

    fn seek(&self, node: NodeId, what: Seek, offset: u64) -> Result<u64> {
        // Without requests for openings they are not known.
        let may_hide_data = match self.agreed.zero_open {
            true => !self.agreed.is_read_only,
            false => self.caches.mappable.may_hide_data(node),
        };
        match may_hide_data {
            true => self.seek_in_data(node, what, offset),
            false => Ok(self.fs.seek(node, what, offset)?),
        }
    }

    /// The answer for a file without holes.
    fn seek_in_data(&self, node: NodeId, what: Seek, offset: u64) -> Result<u64> {
        let size = self.fs.attr(node)?.size;
        match what {
            _ if offset >= size => Err(Errno::ENXIO),
            Seek::Data => Ok(offset),
            Seek::Hole => Ok(size),
        }
    }
}
