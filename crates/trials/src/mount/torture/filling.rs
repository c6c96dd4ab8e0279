//! Counts the data of a volume that is being filled until it has no space ([`Filling`]). `ways` writes stamped files
//! through it; `enospc` makes it, and reads the files back with it.

use super::stand::sync_of;
use anyhow::{Context, Result, bail, ensure};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use testkit::Random;

/// Bytes of one write to a large file.
pub(super) const PIECE_BYTES: u64 = 1 << 20;
/// Bytes of a block: each has its own stamp.
pub(super) const BLOCK_BYTES: u64 = 4096;
/// Bytes of a stamp: the number of the file, and the offset in it.
const STAMP_BYTES: usize = 16;

/// Whether there was space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    Had,
    /// `ENOSPC`.
    None,
}

/// The result of an operation, where a lack of space is no error.
pub(super) fn room(done: io::Result<()>) -> io::Result<Room> {
    match done {
        Ok(()) => Ok(Room::Had),
        Err(error) if error.kind() == io::ErrorKind::StorageFull => Ok(Room::None),
        Err(error) => Err(error),
    }
}

/// Data that a volume took.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Taken {
    pub(super) bytes: u64,
    /// Files, directories or attributes, depending on the `Way` in which the volume is filled.
    pub(super) count: u64,
}

/// A file whose contents are known up to a length.
#[derive(Debug, Clone)]
struct Written {
    path: PathBuf,
    number: u64,
    bytes: u64,
}

/// A volume that is being filled.
#[derive(Debug)]
pub(super) struct Filling<'a> {
    dir: &'a Path,
    seed: u64,
    /// True if the kernel takes data before the server checks for space. The filling then ends at `bytes_max`.
    tells_late: bool,
    bytes_max: u64,
    piece: Vec<u8>,
    bytes: AtomicU64,
    count: AtomicU64,
    numbers: AtomicU64,
    written: Mutex<Vec<Written>>,
}

impl<'a> Filling<'a> {
    /// `available` are the bytes reported by `df`.
    pub(super) fn new(dir: &'a Path, seed: u64, available: u64, tells_late: bool) -> Self {
        let piece = Random::new(seed).noise(usize::try_from(PIECE_BYTES).unwrap_or_default());
        Self {
            dir,
            seed,
            tells_late,
            bytes_max: available.saturating_mul(2),
            piece,
            bytes: AtomicU64::new(0),
            count: AtomicU64::new(0),
            numbers: AtomicU64::new(0),
            written: Mutex::new(Vec::new()),
        }
    }

    pub(super) fn dir(&self) -> &'a Path {
        self.dir
    }

    /// True if a write may succeed without space.
    pub(super) fn tells_late(&self) -> bool {
        self.tells_late
    }

    /// Bytes that should fit.
    pub(super) fn available(&self) -> u64 {
        self.bytes_max / 2
    }

    /// Random numbers for one part of the work.
    pub(super) fn random(&self, part: u64) -> Random {
        Random::new(self.seed.wrapping_mul(0x1_0001).wrapping_add(part))
    }

    /// A number that no other file has.
    pub(super) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn taken(&self) -> Taken {
        Taken { bytes: self.bytes.load(Ordering::Relaxed), count: self.count.load(Ordering::Relaxed) }
    }

    pub(super) fn made_one(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn took(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// True if the volume took twice the available bytes: with late errors, writing then ends without ENOSPC.
    pub(super) fn is_endless(&self) -> bool {
        self.tells_late && self.taken().bytes >= self.bytes_max
    }

    /// Makes the directory `name`, unless an earlier round did; returns its path.
    pub(super) fn folder(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.dir.join(name);
        match std::fs::create_dir(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(path),
        }
    }

    /// Writes `len` bytes with the file's stamps at `at`, at most [`PIECE_BYTES`]; returns the number written, which is
    /// less without space.
    pub(super) fn put(&self, file: &File, number: u64, at: u64, len: u64) -> io::Result<u64> {
        let len = len.min(PIECE_BYTES);
        let mut bytes = self.piece.get(..usize::try_from(len).unwrap_or_default()).unwrap_or_default().to_vec();
        stamp(&mut bytes, number, at);
        self.put_bytes(file, at, &bytes)
    }

    /// Writes the given bytes at `at`; returns the number written, which is less without space.
    pub(super) fn put_bytes(&self, file: &File, at: u64, bytes: &[u8]) -> io::Result<u64> {
        let mut done = 0;
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            match file.write_at(rest, at.saturating_add(u64::try_from(done).unwrap_or_default())) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => done = done.saturating_add(written),
                Err(error) if error.kind() == io::ErrorKind::StorageFull => break,
                Err(error) => return Err(error),
            }
        }
        u64::try_from(done).map_err(io::Error::other)
    }

    /// Makes a file of `len` bytes; written bytes are counted.
    pub(super) fn file(&self, folder: &Path, len: u64) -> Result<Room> {
        let number = self.number();
        let path = folder.join(format!("file-{number}"));
        let file = match File::create_new(&path) {
            Ok(file) => file,
            Err(error) => return Ok(room(Err(error))?),
        };
        let mut at = 0;
        let mut found = Room::Had;
        while at < len && found == Room::Had {
            let wanted = PIECE_BYTES.min(len.saturating_sub(at));
            let written = self.put(&file, number, at, wanted).with_context(|| path.display().to_string())?;
            at = at.saturating_add(written);
            self.took(written);
            if written < wanted || self.is_endless() {
                found = Room::None;
            }
        }
        self.remember(path, number, at);
        if at == len {
            self.made_one();
        }
        Ok(found)
    }

    /// Records that the first `bytes` bytes of the file must have its stamps.
    pub(super) fn remember(&self, path: PathBuf, number: u64, bytes: u64) {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.push(Written { path, number, bytes });
    }

    /// Syncs everything. With late errors the sync may report a lack of space.
    pub(super) fn sync(&self) -> Result<()> {
        match sync_of(self.dir) {
            Ok(()) => Ok(()),
            Err(Errno::NOSPC) if self.tells_late => Ok(()),
            Err(error) => Err(error).context("syncing the full volume"),
        }
    }

    /// Reads every file back and checks its stamps. Not with late errors: data that the kernel took may be lost then.
    pub(super) fn verify(&self) -> Result<()> {
        if self.tells_late {
            return Ok(());
        }
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut piece = vec![0; usize::try_from(PIECE_BYTES).unwrap_or_default()];
        for Written { path, number, bytes } in written {
            let file = File::open(&path).with_context(|| path.display().to_string())?;
            let mut at = 0;
            while at < bytes {
                let len = PIECE_BYTES.min(bytes.saturating_sub(at));
                let part = piece.get_mut(..usize::try_from(len)?).unwrap_or_default();
                file.read_exact_at(part, at).with_context(|| path.display().to_string())?;
                check_stamps(part, number, at).with_context(|| path.display().to_string())?;
                at = at.saturating_add(len);
            }
        }
        Ok(())
    }
}

/// The stamp of the block at `at`.
fn stamp_of(number: u64, at: u64) -> [u8; STAMP_BYTES] {
    let mut stamp = [0; STAMP_BYTES];
    for (byte, value) in stamp.iter_mut().zip(number.to_le_bytes().into_iter().chain(at.to_le_bytes())) {
        *byte = value;
    }
    stamp
}

fn stamp(bytes: &mut [u8], number: u64, at: u64) {
    let mut place = at;
    for block in bytes.chunks_mut(usize::try_from(BLOCK_BYTES).unwrap_or(1)) {
        for (byte, value) in block.iter_mut().zip(stamp_of(number, place)) {
            *byte = value;
        }
        place = place.saturating_add(BLOCK_BYTES);
    }
}

fn check_stamps(bytes: &[u8], number: u64, at: u64) -> Result<()> {
    let mut place = at;
    for block in bytes.chunks(usize::try_from(BLOCK_BYTES)?) {
        let stamp = stamp_of(number, place);
        let Some(wanted) = stamp.get(..block.len().min(STAMP_BYTES)) else { bail!("no stamp") };
        ensure!(block.starts_with(wanted), "wrong data at byte {place}");
        place = place.saturating_add(BLOCK_BYTES);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_block_is_found() {
        let mut bytes = vec![7; 3 * 4096 + 100];
        stamp(&mut bytes, 5, 8192);
        assert!(check_stamps(&bytes, 5, 8192).is_ok());
        assert!(check_stamps(&bytes, 6, 8192).is_err());
        assert!(check_stamps(&bytes, 5, 4096).is_err());
        bytes[3 * 4096] ^= 1;
        assert!(check_stamps(&bytes, 5, 8192).is_err());
    }
}
