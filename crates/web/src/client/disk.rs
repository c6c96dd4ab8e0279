//! Keeps fetched blocks in files of a directory, which processes share and which outlives them (`cache=DIR`).
//!
//! ```text
//! NAME.blocks   a sparse file as large as the image: each block at its place
//! NAME.sums     8 bytes for each block: a checksum of its number and contents; 0 if it is not kept
//! ```
//!
//! NAME is made of the address, the size and the validator of the image (ETag or date): a changed image has other
//! files. A block is written before its checksum, and read after it; a block that does not match its checksum (torn,
//! rotten, or half written by a process that died) counts as missing, and is fetched and written again. So no locks are
//! needed, and two processes may write the same block.
//!
//! Invariant: at most `limit` bytes of blocks, in this image's files, are added by a process; when they are reached,
//! the files are emptied. When a cache is opened, the files of other images that were not used longest are removed
//! until all together are below `limit`.
//!
//! Failure: opening fails with the host's error; later failures only make blocks missing. Caller: `reader`.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(target_os = "linux")]
use rustix::fs::FallocateFlags;
use sha2::{Digest as _, Sha256};
use twox_hash::XxHash64;

use super::window::BLOCK_BYTES;
use crate::number::{to_u64, to_usize};

/// Bytes of a stored checksum.
const SUM_BYTES: u64 = 8;
/// Ends the names of the two files.
const BLOCKS: &str = "blocks";
const SUMS: &str = "sums";
/// Bytes of a block that `st_blocks` counts.
const SECTOR_BYTES: u64 = 512;

/// The files of one image.
#[derive(Debug)]
pub(crate) struct DiskCache {
    blocks: File,
    sums: File,
    size_bytes: u64,
    /// Bytes that this process added, and those that were there.
    stored_bytes: AtomicU64,
    limit: u64,
}

impl DiskCache {
    /// Opens the files of the image that `identity` names, `size_bytes` long, in the directory `dir`, which is made if
    /// missing.
    ///
    /// # Errors
    /// The host's.
    pub(crate) fn open(dir: &Path, identity: &str, size_bytes: u64, limit: u64) -> io::Result<Self> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let digest = Sha256::digest(identity.as_bytes());
        let name: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        make_room(dir, &name, limit)?;
        let open = |end: &str, len: u64| {
            let path = dir.join(format!("{name}.{end}"));
            let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
            if file.metadata()?.len() < len {
                file.set_len(len)?;
            }
            Ok::<File, io::Error>(file)
        };
        let blocks = open(BLOCKS, size_bytes)?;
        let sums = open(SUMS, size_bytes.div_ceil(BLOCK_BYTES).saturating_mul(SUM_BYTES))?;
        let stored_bytes = AtomicU64::new(blocks.metadata()?.blocks().saturating_mul(SECTOR_BYTES));
        Ok(Self { blocks, sums, size_bytes, stored_bytes, limit })
    }

    /// The bytes of the first blocks of `range` that are kept and whole, and the number of the first block behind them
    /// that may be kept: up to there nothing is.
    pub(crate) fn read(&self, range: &Range<u64>) -> (Vec<u8>, u64) {
        let Ok(sums) = self.sums_of(range) else { return (Vec::new(), range.end) };
        let kept = to_u64(sums.iter().take_while(|sum| **sum != 0).count());
        if kept == 0 {
            let missing = to_u64(sums.iter().take_while(|sum| **sum == 0).count());
            return (Vec::new(), range.start + missing);
        }
        let mut bytes = vec![0; to_usize(self.bytes_of(&(range.start..range.start + kept)))];
        let read = self.blocks.read_exact_at(&mut bytes, range.start.saturating_mul(BLOCK_BYTES));
        let blocks = range.clone().zip(bytes.chunks(to_usize(BLOCK_BYTES))).zip(&sums);
        let good = blocks.take_while(|((block, part), sum)| checksum(*block, part) == **sum).count();
        match read {
            Ok(()) if good > 0 => {
                bytes.truncate(good.saturating_mul(to_usize(BLOCK_BYTES)));
                (bytes, range.start + to_u64(good))
            }
            // The first block is not what was stored: it is fetched alone with what is missing behind it.
            _ => (Vec::new(), range.start + 1),
        }
    }

    /// Keeps blocks, the first at `first`. Failures are ignored: the blocks are then fetched again.
    pub(crate) fn write(&self, first: u64, bytes: &[u8]) {
        let len = to_u64(bytes.len());
        if len > self.limit {
            return;
        }
        if self.stored_bytes.fetch_add(len, Ordering::Relaxed).saturating_add(len) > self.limit {
            self.empty();
            self.stored_bytes.store(len, Ordering::Relaxed);
        }
        let sums: Vec<u8> = (first..)
            .zip(bytes.chunks(to_usize(BLOCK_BYTES)))
            .flat_map(|(block, part)| checksum(block, part).to_le_bytes())
            .collect();
        let written = self.blocks.write_all_at(bytes, first.saturating_mul(BLOCK_BYTES));
        let written = written.and_then(|()| self.sums.write_all_at(&sums, first.saturating_mul(SUM_BYTES)));
        if let Err(error) = written {
            tracing::debug!(%error, "a block cannot be kept in the cache");
        }
    }

    /// Forgets all blocks. Readers in other processes find zeros, which match no checksum.
    fn empty(&self) {
        for (file, len) in [
            (&self.sums, self.size_bytes.div_ceil(BLOCK_BYTES).saturating_mul(SUM_BYTES)),
            (&self.blocks, self.size_bytes),
        ] {
            if let Err(error) = forget(file, len.max(1)) {
                tracing::debug!(%error, "the cache cannot be emptied");
            }
        }
    }

    fn sums_of(&self, range: &Range<u64>) -> io::Result<Vec<u64>> {
        let mut bytes = vec![0; to_usize(range.end.saturating_sub(range.start).saturating_mul(SUM_BYTES))];
        self.sums.read_exact_at(&mut bytes, range.start.saturating_mul(SUM_BYTES))?;
        let (sums, _) = bytes.as_chunks::<8>();
        Ok(sums.iter().map(|sum| u64::from_le_bytes(*sum)).collect())
    }

    /// Bytes of whole blocks, of which the last one of the image may be short.
    fn bytes_of(&self, range: &Range<u64>) -> u64 {
        let end = range.end.saturating_mul(BLOCK_BYTES).min(self.size_bytes);
        end.saturating_sub(range.start.saturating_mul(BLOCK_BYTES))
    }
}

/// Makes the first bytes of a file zeros.
#[cfg(target_os = "linux")]
fn forget(file: &File, len: u64) -> io::Result<()> {
    Ok(rustix::fs::fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, len)?)
}

/// Makes the first bytes of a file zeros, by making it empty and as long again.
#[cfg(not(target_os = "linux"))]
fn forget(file: &File, len: u64) -> io::Result<()> {
    file.set_len(0)?;
    file.set_len(len)
}

/// Never 0, which stands for a block that is not kept. The number is part of it: a block in the wrong place is bad.
fn checksum(block: u64, bytes: &[u8]) -> u64 {
    XxHash64::oneshot(block, bytes).max(1)
}

/// Removes files of other images, those used least recently first, until all are below `limit` bytes.
fn make_room(dir: &Path, own: &str, limit: u64) -> io::Result<()> {
    let mut found: Vec<(std::time::SystemTime, PathBuf, u64)> = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let path = entry.path();
        let is_ours = |path: &Path| path.extension().is_some_and(|end| end == BLOCKS);
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.is_file() && is_ours(&path) && is_a_name(&path) {
            let used = metadata.accessed().or_else(|_| metadata.modified())?.max(metadata.modified()?);
            found.push((used, path, metadata.blocks().saturating_mul(SECTOR_BYTES)));
        }
    }
    let mut total: u64 = found.iter().map(|(_, _, bytes)| *bytes).sum();
    found.sort();
    for (_, path, bytes) in found {
        if total <= limit {
            break;
        }
        if path.file_stem().is_some_and(|stem| stem == own) {
            continue;
        }
        // Programs that have them open go on with them.
        for end in [SUMS, BLOCKS] {
            std::fs::remove_file(path.with_extension(end)).or_else(|error| match error.kind() {
                io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            })?;
        }
        total = total.saturating_sub(bytes);
    }
    Ok(())
}

/// True for a name that [`DiskCache::open`] gives: other files in the directory are left alone.
fn is_a_name(path: &Path) -> bool {
    let stem = path.file_stem().map(OsString::from).and_then(|stem| stem.into_string().ok());
    stem.is_some_and(|stem| stem.len() == 32 && stem.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 100 * BLOCK_BYTES + 10;

    #[test]
    fn blocks_that_were_kept_are_found_by_the_next_process() {
        let dir = tempfile::tempdir().unwrap();
        let cache = DiskCache::open(dir.path(), "a", SIZE, 1 << 20).unwrap();
        let bytes: Vec<u8> = (0..3 * BLOCK_BYTES).map(|at| at.to_le_bytes()[0]).collect();
        cache.write(4, &bytes);
        cache.write(100, &[9; 10]);
        let again = DiskCache::open(dir.path(), "a", SIZE, 1 << 20).unwrap();
        assert_eq!(again.read(&(4..20)), (bytes.clone(), 7));
        assert_eq!(again.read(&(0..20)), (Vec::new(), 4));
        assert_eq!(again.read(&(99..101)), (Vec::new(), 100));
        assert_eq!(again.read(&(100..101)), (vec![9; 10], 101));
        let other = DiskCache::open(dir.path(), "b", SIZE, 1 << 20).unwrap();
        assert_eq!(other.read(&(4..20)), (Vec::new(), 20));
    }

    #[test]
    fn a_block_that_does_not_match_its_checksum_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let cache = DiskCache::open(dir.path(), "a", SIZE, 1 << 20).unwrap();
        cache.write(0, &[1; 3 * 4096]);
        cache.blocks.write_all_at(b"rot", 4096 + 7).unwrap();
        assert_eq!(cache.read(&(0..3)), (vec![1; 4096], 1));
        assert_eq!(cache.read(&(1..3)), (Vec::new(), 2));
        cache.write(1, &[1; 4096]);
        assert_eq!(cache.read(&(1..3)).0.len(), 2 * 4096);
    }

    #[test]
    fn space_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let limit = 8 * BLOCK_BYTES;
        let used = |cache: &DiskCache| cache.blocks.metadata().unwrap().blocks() * SECTOR_BYTES;
        let cache = DiskCache::open(dir.path(), "a", SIZE, limit).unwrap();
        for block in 0..100 {
            cache.write(block, &[1; 4096]);
            assert!(used(&cache) <= limit);
        }
        assert_eq!(cache.read(&(99..100)).0.len(), 4096);
        drop(cache);
        std::fs::write(dir.path().join("other"), [0; 100_000]).unwrap();
        let next = DiskCache::open(dir.path(), "b", SIZE, BLOCK_BYTES).unwrap();
        next.write(0, &[1; 4096]);
        let names = std::fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(names, 3, "files of another image are left");
    }
}
