//! Keeps the file system in memory on a device: each sync writes all of it.
//!
//! A device has two slots. A sync writes the whole tree into the one that is not in use, flushes, writes a header of
//! one sector that names it, and flushes again. Opening takes the slot with the newest header whose checksums are
//! right: the tree of a sync is there as a whole or not at all, whatever a power cut leaves of the writes.
//!
//! ```text
//! header at 0 and at 4096:  magic, generation, length, checksum of the tree, checksum of the header
//! trees at 8192 and at the middle of the device
//! ```
//!
//! Invariant: a header is written only when the flush after its tree has returned.
//!
//! Failure: `EIO` if the device fails; the tree in memory stays, and the next sync tries again. Caller: `memory`.

use std::sync::Arc;

use blockdev::Device;
use parking_lot::Mutex;
use vfs::Blame;
use vfs::file_system::{Answer, Errno};

use super::image::{read_tree, write_tree};
use super::{MemoryFs, MemoryOptions, to_u64};

const MAGIC: u64 = u64::from_le_bytes(*b"MemTree\x01");
const HEADER_BYTES: usize = 40;
const HEADERS_AT: [u64; 2] = [0, 4096];
const FIRST_TREE_AT: u64 = 8192;

/// Where the tree is kept.
#[derive(Debug)]
pub(super) struct Keeper {
    device: Arc<dyn Device>,
    /// Generation of the newest tree on the device; 0 for none.
    generation: Mutex<u64>,
}

struct Header {
    generation: u64,
    len: u64,
    checksum: u64,
}

impl Header {
    fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let words = [MAGIC, self.generation, self.len, self.checksum];
        for (target, word) in bytes.chunks_exact_mut(8).zip(words) {
            target.copy_from_slice(&word.to_le_bytes());
        }
        let own = checksum(&bytes[..32]);
        bytes[32..].copy_from_slice(&own.to_le_bytes());
        bytes
    }

    /// The header in these bytes, where there is one that is whole.
    fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let is_whole = word(0) == MAGIC && word(32) == checksum(&bytes[..32]);
        is_whole.then(|| Self { generation: word(8), len: word(16), checksum: word(24) })
    }
}

/// FNV-1a: enough to tell a torn tree from a whole one.
fn checksum(bytes: &[u8]) -> u64 {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

/// Where the tree of a generation is, and how long it may be.
fn slot(device: &dyn Device, generation: u64) -> (usize, u64, u64) {
    let half = device.size_bytes() / 2;
    match generation % 2 {
        0 => (0, FIRST_TREE_AT, half.saturating_sub(FIRST_TREE_AT)),
        _ => (1, half, device.size_bytes() - half),
    }
}

fn failed(error: blockdev::Error) -> vfs::Error {
    vfs::Error::new(Errno::EIO, Blame::Device, error)
}

impl MemoryFs {
    /// An empty file system stored on a device; the device's contents are lost.
    ///
    /// # Errors
    /// `EIO`; `ENOSPC` for a device that is too small.
    pub fn make_on(device: Arc<dyn Device>, options: &MemoryOptions) -> Answer<Self> {
        for at in HEADERS_AT {
            device.write_at(at, &[&[0; HEADER_BYTES]]).map_err(failed)?;
        }
        let mut fs = Self::new(options);
        fs.keeper = Some(Keeper { device, generation: Mutex::new(0) });
        fs.keep()?;
        Ok(fs)
    }

    /// The file system that a device keeps.
    ///
    /// # Errors
    /// `EIO` where the device fails, and blaming the image where it holds no tree that is whole.
    pub fn open_on(device: Arc<dyn Device>, options: &MemoryOptions) -> Answer<Self> {
        let mut newest: Option<(Header, Vec<u8>)> = None;
        for at in HEADERS_AT {
            let mut bytes = [0; HEADER_BYTES];
            device.read_at(at, &mut bytes).map_err(failed)?;
            let Some(header) = Header::from_bytes(&bytes) else { continue };
            let (_, tree_at, len_max) = slot(&*device, header.generation);
            let is_newer = newest.as_ref().is_none_or(|(other, _)| other.generation < header.generation);
            if header.len > len_max || !is_newer {
                continue;
            }
            let mut tree = vec![0; usize::try_from(header.len).map_err(|_| Errno::EFBIG)?];
            device.read_at(tree_at, &mut tree).map_err(failed)?;
            if checksum(&tree) == header.checksum {
                newest = Some((header, tree));
            }
        }
        let damaged = || vfs::Error::new(Errno::EIO, Blame::Image, std::io::Error::other("no tree that is whole"));
        let (header, tree) = newest.ok_or_else(damaged)?;
        let mut fs = Self::new(options);
        read_tree(&fs, &tree).ok_or_else(damaged)?;
        fs.keeper = Some(Keeper { device, generation: Mutex::new(header.generation) });
        Ok(fs)
    }

    /// Writes the whole tree to the device, where there is one.
    pub(super) fn keep(&self) -> Answer<()> {
        let Some(keeper) = self.keeper.as_ref().filter(|_| !self.is_read_only) else { return Ok(()) };
        let mut generation = keeper.generation.lock();
        let next = *generation + 1;
        let tree = write_tree(self);
        let (header_index, at, len_max) = slot(&*keeper.device, next);
        let len = to_u64(tree.len());
        if len > len_max {
            return Err(Errno::ENOSPC.into());
        }
        keeper.device.write_at(at, &[&tree]).map_err(failed)?;
        keeper.device.flush().map_err(failed)?;
        let header = Header { generation: next, len, checksum: checksum(&tree) };
        keeper.device.write_at(HEADERS_AT[header_index], &[&header.to_bytes()]).map_err(failed)?;
        keeper.device.flush().map_err(failed)?;
        *generation = next;
        Ok(())
    }
}

impl Drop for MemoryFs {
    fn drop(&mut self) {
        // A failure cannot be reported; synced data is safe in any case.
        let _ = self.keep();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blockdev::backends::MemoryDevice;
    use vfs::{SnapshotMode, Volume, file_system::Errno};

    fn volume(fs: MemoryFs) -> Volume {
        Volume::new(Arc::new(fs))
    }

    #[test]
    fn what_was_synced_is_there_after_an_open_and_a_torn_tree_is_not_taken() {
        let device = Arc::new(MemoryDevice::new(1 << 20));
        let shared: Arc<dyn Device> = Arc::<MemoryDevice>::clone(&device);
        let options = MemoryOptions::default();
        let first = volume(MemoryFs::make_on(Arc::clone(&shared), &options).unwrap());
        first.create_dir("/dir").unwrap();
        first.write("/dir/file", vec![7; 10_000]).unwrap();
        first.hard_link("/dir/file", "/twice").unwrap();
        first.symlink("dir/file", "/link").unwrap();
        first.set_xattr("/dir/file", "user.a", "value", vfs::file_system::XattrMode::Either).unwrap();
        first.sync().unwrap();
        let held = first.symlink_metadata("/dir/file").unwrap();
        drop(first);
        let again = volume(MemoryFs::open_on(Arc::clone(&shared), &options).unwrap());
        assert_eq!(again.read("/link").unwrap(), vec![7; 10_000]);
        assert_eq!(again.symlink_metadata("/dir/file").unwrap(), held);
        assert_eq!(again.get_xattr("/twice", "user.a").unwrap().unwrap(), b"value");
        let refused = again.snapshot("/", "/snapshot", SnapshotMode::ReadOnly).unwrap_err();
        assert_eq!(refused.errno(), Errno::EOPNOTSUPP);
        drop(again);
        let generation = {
            let mut bytes = [0; HEADER_BYTES];
            let headers = HEADERS_AT.map(|at| {
                device.read_at(at, &mut bytes).unwrap();
                Header::from_bytes(&bytes).unwrap().generation
            });
            headers[0].max(headers[1])
        };
        device.write_at(slot(&*device, generation).1, &[&[0xff; 64]]).unwrap();
        let older = volume(MemoryFs::open_on(shared, &options).unwrap());
        assert_eq!(older.read("/twice").unwrap(), vec![7; 10_000]);
    }
}
