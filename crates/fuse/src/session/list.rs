//! Answers requests for listings of directories: READDIR and READDIRPLUS. Called by `service`.

use super::encode::Timeouts;
use crate::protocol::Request;
use crate::protocol::replies::{Dirent, EntryOut};
use crate::protocol::requests::ReadIn;
use vfs::FileSystem;
use vfs::file_system::{DirEntry, DirSink, Entry, Errno, Result};
use zerocopy::IntoBytes;

/// Requests that list directories.
pub(super) struct Lists<'a> {
    pub(super) fs: &'a dyn FileSystem,
    pub(super) timeouts: Timeouts,
}

impl Lists<'_> {
    pub(super) fn readdir(&self, request: &Request<'_>, out: &mut [u8]) -> Result<usize> {
        self.list(request, false, out)
    }

    pub(super) fn readdirplus(&self, request: &Request<'_>, out: &mut [u8]) -> Result<usize> {
        self.list(request, true, out)
    }

    fn list(&self, request: &Request<'_>, with_nodes: bool, out: &mut [u8]) -> Result<usize> {
        let args: ReadIn = request.args()?;
        let size = usize::try_from(args.size).map_err(|_| Errno::EINVAL)?;
        let mut listing = Listing { out: out.get_mut(..size).ok_or(Errno::EINVAL)?, len: 0, timeouts: self.timeouts };
        let listed = self.fs.read_dir(request.node(), args.offset, with_nodes, &mut listing);
        // Entries in the reply have references, which only a successful reply passes to the kernel.
        match listed {
            Err(error) if listing.len == 0 => Err(error.into()),
            _ => Ok(listing.len),
        }
    }
}

/// The entries, each padded to 8 bytes.
struct Listing<'a> {
    out: &'a mut [u8],
    len: usize,
    timeouts: Timeouts,
}

impl Listing<'_> {
    /// Appends a record; false, without a change, if there is no room.
    fn push(&mut self, front: &[u8], entry: &DirEntry<'_>) -> bool {
        let Ok(namelen) = u32::try_from(entry.name.len()) else {
            return false;
        };
        let dirent = Dirent { ino: entry.ino, off: entry.next, namelen, kind: entry.kind.dirent_type() };
        let filled = front.len() + size_of::<Dirent>() + entry.name.len();
        let end = self.len + filled.next_multiple_of(8);
        let Some(record) = self.out.get_mut(self.len..end) else {
            return false;
        };
        let parts = [front, dirent.as_bytes(), entry.name];
        let mut rest = record;
        for part in parts {
            let Some((place, behind)) = rest.split_at_mut_checked(part.len()) else {
                return false;
            };
            place.copy_from_slice(part);
            rest = behind;
        }
        rest.fill(0);
        self.len = end;
        true
    }
}

impl DirSink for Listing<'_> {
    fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        self.push(&[], entry)
    }

    fn add_with_node(&mut self, entry: &DirEntry<'_>, node: Option<&Entry>) -> bool {
        // Node 0 with zeros: the kernel takes the name without a node.
        let front = node.map_or_else(EntryOut::default, |node| self.timeouts.entry(node));
        self.push(front.as_bytes(), entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use vfs::file_system::NodeKind;

    fn entry(name: &[u8]) -> DirEntry<'_> {
        DirEntry { name, ino: 300, kind: NodeKind::Directory, next: 9 }
    }

    fn listing(out: &mut [u8]) -> Listing<'_> {
        Listing { out, len: 0, timeouts: Timeouts { entry: Duration::from_secs(1), attr: Duration::from_secs(1) } }
    }

    #[test]
    fn records_are_padded_with_zeros() {
        let mut out = [0xff; 80];
        let mut listing = listing(&mut out);
        assert!(listing.add(&entry(b"abc")));
        assert_eq!(listing.len, 32);
        assert!(listing.add(&entry(b"12345678")));
        assert_eq!(listing.len, 64);
        assert!(!listing.add(&entry(b"x")));
        assert_eq!(listing.len, 64);
        assert_eq!(out[16..32], [3, 0, 0, 0, 4, 0, 0, 0, b'a', b'b', b'c', 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_name_without_node_is_node_zero() {
        let mut out = [0xff; 160];
        let mut listing = listing(&mut out);
        assert!(listing.add_with_node(&entry(b".."), None));
        assert_eq!(listing.len, 160);
        assert_eq!(out[..128], [0; 128]);
    }
}
