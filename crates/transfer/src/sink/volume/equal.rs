//! Finds files with equal contents while they are copied, so that the later one shares the extents of the earlier.
//! Called by `sink/volume` and `filling`.
//!
//! Files are looked up by size, then by a hash of their contents; equal hashes are not believed: the bytes are
//! compared. The first file of a size costs nothing: it is read again when there is a second one. Memory is bounded,
//! and files that are copied when it is used up are not found by later ones. With one thread the same files are found
//! each time.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use vfs::{File, Volume};

use crate::contents::{Contents, copy_data};
use crate::error::Result;

/// Smaller files are often stored beside their inodes, where nothing can be shared.
pub(super) const BYTES_MIN: u64 = 2049;
/// Most bytes of paths, and of what is known of them.
const MEMORY_MAX: usize = 64 << 20;
/// Bytes that are known of a file, beside its path.
const FILE_BYTES: usize = 96;
/// Hashed as one, unless all of it is zeros: holes and zeros are equal contents.
const BLOCK_BYTES: usize = 4096;
const BLOCK_LEN: u64 = 4096;

/// A file that was copied.
#[derive(Debug)]
struct Copied {
    path: PathBuf,
    /// Hash of its contents, when it is known.
    hash: Option<u64>,
}

/// The files that were copied so far.
#[derive(Debug, Default)]
pub(super) struct EqualFiles {
    by_size: Mutex<HashMap<u64, Vec<Copied>>>,
    memory: Mutex<usize>,
}

/// Contents that are looked for: their hash, once it is needed.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Wanted {
    pub(super) hash: Option<u64>,
}

impl EqualFiles {
    /// An earlier file with the same bytes. `wanted` gets the hash if it was needed.
    ///
    /// # Errors
    /// Those of reading the contents. An earlier file that cannot be read, or was replaced, is not found.
    pub(super) fn find(
        &self,
        volume: &Volume,
        (contents, size): (&dyn Contents, u64),
        wanted: &mut Wanted,
        buffer: &mut [u8],
    ) -> Result<Option<File>> {
        if size < BYTES_MIN || !self.lock().contains_key(&size) {
            return Ok(None);
        }
        let hash = hash_of(contents, size, buffer)?;
        wanted.hash = Some(hash);
        self.hash_earlier(volume, size, buffer);
        let same = |copied: &&Copied| copied.hash == Some(hash);
        let path = self.lock().get(&size).and_then(|files| files.iter().find(same)).map(|copied| copied.path.clone());
        let Some(file) = path.and_then(|path| File::open(volume, path).ok()) else { return Ok(None) };
        Ok(is_same(&file, contents, size, buffer)?.then_some(file))
    }

    /// Adds a file that was copied.
    pub(super) fn add(&self, path: &Path, size: u64, wanted: Wanted) {
        if size < BYTES_MIN {
            return;
        }
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let more = memory.saturating_add(path.as_os_str().len()).saturating_add(FILE_BYTES);
        if more <= MEMORY_MAX {
            *memory = more;
            self.lock().entry(size).or_default().push(Copied { path: path.to_owned(), hash: wanted.hash });
        }
    }

    /// Hashes the earlier files of a size, unless that was done.
    fn hash_earlier(&self, volume: &Volume, size: u64, buffer: &mut [u8]) {
        let unknown = |files: &Vec<Copied>| {
            files.iter().filter(|copied| copied.hash.is_none()).map(|copied| copied.path.clone()).collect::<Vec<_>>()
        };
        let paths = self.lock().get(&size).map(unknown).unwrap_or_default();
        for path in paths {
            // A file that cannot be read is no failure of the one that is copied now.
            let hash = File::open(volume, &path).map_err(Into::into).and_then(|file| hash_of(&file, size, buffer)).ok();
            let mut by_size = self.lock();
            let files = by_size.entry(size).or_default();
            match (files.iter().position(|copied| copied.path == path), hash) {
                (Some(at), None) => drop(files.swap_remove(at)),
                (Some(at), hash) => files.iter_mut().skip(at).take(1).for_each(|copied| copied.hash = hash),
                (None, _) => {}
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Vec<Copied>>> {
        self.by_size.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Contents that are in memory.
pub(super) struct Known<'a>(pub(super) &'a [u8]);

impl Contents for Known<'_> {
    fn next_data(&self, at: u64, size: u64) -> Result<Option<(u64, u64)>> {
        let end = size.min(super::bytes(self.0));
        Ok((at < end).then_some((at, end)))
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> Result<usize> {
        let rest = usize::try_from(at).ok().and_then(|at| self.0.get(at..)).unwrap_or_default();
        buffer.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        Ok(rest.len().min(buffer.len()))
    }

    fn size(&self) -> Result<u64> {
        Ok(super::bytes(self.0))
    }
}

/// Hashes contents block by block.
struct BlockHasher {
    hasher: DefaultHasher,
    index: u64,
    block: Vec<u8>,
}

impl BlockHasher {
    fn new() -> Self {
        Self { hasher: DefaultHasher::new(), index: 0, block: vec![0; BLOCK_BYTES] }
    }

    fn add(&mut self, at: u64, mut bytes: &[u8]) {
        let mut at = at;
        while !bytes.is_empty() {
            if self.index != at / BLOCK_LEN {
                self.close();
                self.index = at / BLOCK_LEN;
            }
            let within = usize::try_from(at % BLOCK_LEN).unwrap_or(0);
            let (part, rest) = bytes.split_at(bytes.len().min(BLOCK_BYTES.saturating_sub(within)));
            self.block.iter_mut().skip(within).zip(part).for_each(|(to, from)| *to = *from);
            at = at.saturating_add(super::bytes(part));
            bytes = rest;
        }
    }

    fn close(&mut self) {
        if self.block.iter().any(|byte| *byte != 0) {
            self.hasher.write_u64(self.index);
            self.hasher.write(&self.block);
            self.block.fill(0);
        }
    }

    fn finish(mut self) -> u64 {
        self.close();
        self.hasher.finish()
    }
}

fn hash_of(contents: &dyn Contents, size: u64, buffer: &mut [u8]) -> Result<u64> {
    let mut hasher = BlockHasher::new();
    copy_data(contents, size, buffer, |at, part| -> Result<()> {
        hasher.add(at, part);
        Ok(())
    })?;
    Ok(hasher.finish())
}

/// True if the file has exactly the `size` bytes of `contents`.
fn is_same(file: &File, contents: &dyn Contents, size: u64, buffer: &mut [u8]) -> Result<bool> {
    if Contents::size(file)? != size || contents.size()? != size {
        return Ok(false);
    }
    let (ours, theirs) = buffer.split_at_mut(buffer.len() / 2);
    let mut at = 0;
    while at < size {
        let count = read_full(contents, ours, at)?;
        if count == 0 || read_full(file, theirs, at)? != count || ours.get(..count) != theirs.get(..count) {
            return Ok(false);
        }
        at = at.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
    }
    Ok(true)
}

/// Reads until the buffer is full or the contents end.
fn read_full(contents: &dyn Contents, buffer: &mut [u8], at: u64) -> Result<usize> {
    let mut done = 0;
    while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match contents.read_at(rest, at.saturating_add(u64::try_from(done).unwrap_or(u64::MAX)))? {
            0 => break,
            count => done = done.saturating_add(count),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_and_zeros_have_one_hash() {
        let mut bytes = vec![0; 20_000];
        bytes[9000..9100].fill(7);
        let whole = hash_of(&Known(&bytes), 20_000, &mut [0; 777]).unwrap();
        let mut parts = BlockHasher::new();
        parts.add(8999, &bytes[8999..9050]);
        parts.add(9050, &bytes[9050..9101]);
        assert_eq!(parts.finish(), whole);
        bytes[9000] = 8;
        assert_ne!(hash_of(&Known(&bytes), 20_000, &mut [0; 777]).unwrap(), whole);
    }
}
