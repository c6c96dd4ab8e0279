//! Does random direct I/O on one file, and compares it with a copy in memory: like fsx, which lacks direct I/O. Called
//! by `long`.
//!
//! Reads and writes are direct or go through the page cache, by turns on two descriptors of the same file, so that each
//! must read the writes of the other.

use anyhow::{Result, bail, ensure};
use rustix::fs::{FallocateFlags, OFlags};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use testkit::Random;

/// Bytes of the longest file.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Bytes of the longest operation.
const LEN_MAX: u64 = 128 << 10;
/// Alignment of direct I/O, in the file and in memory; block devices require it.
const ALIGN: u64 = 512;
/// Most wrong offsets that are shown.
const SHOWN: usize = 3;

/// The file, and its expected contents.
struct Exercise {
    direct: File,
    cached: File,
    wanted: Vec<u8>,
    random: Random,
}

/// Runs `operations` on a new file.
pub(super) fn run(path: &Path, operations: u64, seed: u64) -> Result<()> {
    let cached = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
    let flags = i32::try_from(OFlags::DIRECT.bits())?;
    let direct = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
    let mut exercise = Exercise { direct, cached, wanted: Vec::new(), random: Random::new(seed) };
    for operation in 0..operations {
        if let Err(error) = exercise.step() {
            bail!("{}, seed {seed}, operation {operation}: {error:#}", path.display());
        }
    }
    exercise.compare_all()
}

impl Exercise {
    fn step(&mut self) -> Result<()> {
        match self.random.below(100) {
            0..30 => self.read(true),
            30..40 => self.read(false),
            40..75 => self.write(true),
            75..85 => self.write(false),
            85..90 => self.truncate(),
            90..95 => self.punch(),
            95..97 => self.allocate(),
            97..99 => Ok(self.direct.sync_all()?),
            _ => self.compare_all(),
        }
    }

    /// Offset and length of an operation; with `is_aligned`, for direct I/O.
    fn place(&mut self, is_aligned: bool) -> (u64, usize) {
        let (mut offset, mut len) = (self.random.below(FILE_BYTES_MAX), self.random.skewed(LEN_MAX).max(1));
        if is_aligned {
            offset -= offset % ALIGN;
            len = len.next_multiple_of(ALIGN);
        }
        let len = len.min(FILE_BYTES_MAX - offset);
        (offset, usize::try_from(len).unwrap_or_default())
    }

    fn read(&mut self, is_direct: bool) -> Result<()> {
        let (offset, len) = self.place(is_direct);
        let file = if is_direct { &self.direct } else { &self.cached };
        let mut buffer = Aligned::new(len);
        let count = file.read_at(buffer.bytes(), offset)?;
        let start = usize::try_from(offset)?.min(self.wanted.len());
        let end = start.saturating_add(len).min(self.wanted.len());
        let wanted = self.wanted.get(start..end).unwrap_or_default();
        let found = buffer.bytes().get(..count).unwrap_or_default();
        same(wanted, found, offset, if is_direct { "direct read" } else { "read" })
    }

    fn write(&mut self, is_direct: bool) -> Result<()> {
        let (offset, len) = self.place(is_direct);
        let bytes = self.random.noise(len);
        let mut buffer = Aligned::new(len);
        buffer.bytes().copy_from_slice(&bytes);
        let file = if is_direct { &self.direct } else { &self.cached };
        file.write_all_at(buffer.bytes(), offset)?;
        let start = usize::try_from(offset)?;
        let end = start.saturating_add(len);
        if self.wanted.len() < end {
            self.wanted.resize(end, 0);
        }
        if let Some(place) = self.wanted.get_mut(start..end) {
            place.copy_from_slice(&bytes);
        }
        Ok(())
    }

    fn truncate(&mut self) -> Result<()> {
        let len = self.random.below(FILE_BYTES_MAX);
        self.cached.set_len(len)?;
        self.wanted.resize(usize::try_from(len)?, 0);
        Ok(())
    }

    fn punch(&mut self) -> Result<()> {
        let (offset, len) = self.place(false);
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&self.direct, flags, offset, u64::try_from(len)?)?;
        let start = usize::try_from(offset)?.min(self.wanted.len());
        let end = start.saturating_add(len).min(self.wanted.len());
        if let Some(place) = self.wanted.get_mut(start..end) {
            place.fill(0);
        }
        Ok(())
    }

    fn allocate(&mut self) -> Result<()> {
        let (offset, len) = self.place(false);
        rustix::fs::fallocate(&self.direct, FallocateFlags::empty(), offset, u64::try_from(len)?)?;
        let end = usize::try_from(offset)?.saturating_add(len);
        if self.wanted.len() < end {
            self.wanted.resize(end, 0);
        }
        Ok(())
    }

    fn compare_all(&self) -> Result<()> {
        let size = self.cached.metadata()?.len();
        ensure!(size == u64::try_from(self.wanted.len())?, "{size} bytes, wanted {}", self.wanted.len());
        let mut found = vec![0; self.wanted.len()];
        self.cached.read_exact_at(&mut found, 0)?;
        same(&self.wanted, &found, 0, "everything")
    }
}

fn same(wanted: &[u8], found: &[u8], offset: u64, what: &str) -> Result<()> {
    ensure!(wanted.len() == found.len(), "{what} at {offset}: {} bytes, wanted {}", found.len(), wanted.len());
    let places = wanted.iter().zip(found).enumerate().filter(|(_, (a, b))| a != b);
    let wrong: Vec<usize> = places.map(|(at, _)| at).take(SHOWN).collect();
    ensure!(wrong.is_empty(), "{what} at {offset}, {} bytes: wrong at {wrong:?}", found.len());
    Ok(())
}

/// Memory that direct I/O can use.
struct Aligned {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    fn new(len: usize) -> Self {
        let align = 4096;
        let memory = vec![0; len + align];
        let start = memory.as_ptr().addr().wrapping_neg() % align;
        Self { memory, start, len }
    }

    fn bytes(&mut self) -> &mut [u8] {
        self.memory.get_mut(self.start..self.start + self.len).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned() {
        let mut aligned = Aligned::new(5000);
        assert_eq!(aligned.bytes().len(), 5000);
        assert_eq!(aligned.bytes().as_ptr().addr() % 4096, 0);
    }

    #[test]
    fn differences_are_found() {
        assert!(same(b"abc", b"abc", 0, "x").is_ok());
        assert!(same(b"abc", b"abd", 7, "x").unwrap_err().to_string().contains("[2]"));
        assert!(same(b"abc", b"ab", 0, "x").is_err());
    }
}
