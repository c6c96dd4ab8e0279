//! Implements a sparse device in memory: only chunks that were written take space. Tests, the recording devices and
//! images of crash tests, and `mkfs` (to try whether a file system fits) use it.

use crate::convert::{to_u64, to_usize};
use crate::device::{check_range, check_writable, parts_len};
use crate::{Device, Error, Holes, Op, Result};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes allocated together.
const CHUNK_BYTES: usize = 64 << 10;
/// Neighbouring chunks lie behind different locks, so that writers rarely meet.
const SHARD_COUNT: usize = 64;
/// The size limit of files: offsets stay positive as signed numbers.
const MEMORY_BYTES_MAX: u64 = u64::MAX >> 1;

type Shard = RwLock<BTreeMap<u64, Box<[u8]>>>;

/// A sparse device in memory. Its writes are "durable" at once.
pub struct MemoryDevice {
    name: String,
    size_bytes: AtomicU64,
    read_only: bool,
    shards: Vec<Shard>,
}

impl MemoryDevice {
    /// A writable device of `size_bytes` zeros.
    #[must_use]
    pub fn new(size_bytes: u64) -> Self {
        Self::named("memory", size_bytes)
    }

    /// As [`MemoryDevice::new`], with a name for messages.
    #[must_use]
    pub fn named(name: &str, size_bytes: u64) -> Self {
        Self {
            name: name.to_owned(),
            size_bytes: AtomicU64::new(size_bytes),
            read_only: false,
            shards: (0..SHARD_COUNT).map(|_| Shard::default()).collect(),
        }
    }

    /// A writable device that starts with these bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let device = Self::new(to_u64(bytes.len()));
        device.copy_in(0, bytes);
        device
    }

    /// Makes the device read-only: it keeps its bytes, and refuses every change.
    #[must_use]
    pub fn into_read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// An independent, writable copy of the present contents. It may contain a part of a concurrent write.
    #[must_use]
    pub fn duplicate(&self) -> Self {
        Self {
            name: self.name.clone(),
            size_bytes: AtomicU64::new(self.size_bytes()),
            read_only: false,
            shards: self.shards.iter().map(|shard| RwLock::new(shard.read().clone())).collect(),
        }
    }

    /// Every byte, holes as zeros.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; to_usize(self.size_bytes())];
        self.copy_out(0, &mut bytes);
        bytes
    }

    /// Bytes of memory that hold content.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        let chunk_count: usize = self.shards.iter().map(|shard| shard.read().len()).sum();
        to_u64(chunk_count.saturating_mul(CHUNK_BYTES))
    }

    fn shard(&self, chunk: u64) -> &Shard {
        &self.shards[to_usize(chunk) % SHARD_COUNT]
    }

    fn copy_out(&self, offset: u64, buf: &mut [u8]) {
        for piece in pieces(offset, buf.len()) {
            let target = &mut buf[piece.from..piece.from + piece.len];
            match self.shard(piece.chunk).read().get(&piece.chunk) {
                Some(chunk) => target.copy_from_slice(&chunk[piece.within..][..piece.len]),
                None => target.fill(0),
            }
        }
    }

    fn copy_in(&self, offset: u64, bytes: &[u8]) {
        for piece in pieces(offset, bytes.len()) {
            let source = &bytes[piece.from..piece.from + piece.len];
            let mut shard = self.shard(piece.chunk).write();
            let chunk = shard.entry(piece.chunk).or_insert_with(empty_chunk);
            chunk[piece.within..][..piece.len].copy_from_slice(source);
        }
    }

    /// Zeros the allocated chunks' parts of `from..to`; the other chunks read as zeros already.
    fn zero(&self, from: u64, to: u64) {
        for piece in pieces(from, to_usize(to - from)) {
            if let Some(chunk) = self.shard(piece.chunk).write().get_mut(&piece.chunk) {
                chunk[piece.within..][..piece.len].fill(0);
            }
        }
    }
}

impl Device for MemoryDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Acquire)
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        check_range(self, Op::Read, offset, to_u64(buf.len()))?;
        self.copy_out(offset, buf);
        Ok(())
    }

    fn next_data(&self, offset: u64) -> u64 {
        let first = offset / to_u64(CHUNK_BYTES);
        let after = |shard: &Shard| shard.read().range(first..).next().map(|(chunk, _)| *chunk);
        let next = self.shards.iter().filter_map(after).min();
        let start = next.map_or(self.size_bytes(), |chunk| chunk.saturating_mul(to_u64(CHUNK_BYTES)));
        start.max(offset)
    }

    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        check_writable(self, Op::Write)?;
        check_range(self, Op::Write, offset, parts_len(parts))?;
        let mut at = offset;
        for part in parts {
            self.copy_in(at, part);
            at += to_u64(part.len());
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn write_zeroes(&self, offset: u64, len: u64, _: Holes) -> Result<bool> {
        check_writable(self, Op::Write)?;
        check_range(self, Op::Write, offset, len)?;
        self.discard(offset, len).map(|()| true)
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        check_writable(self, Op::Discard)?;
        check_range(self, Op::Discard, offset, len)?;
        let chunk_bytes = to_u64(CHUNK_BYTES);
        let end = offset + len;
        let first_whole = offset.div_ceil(chunk_bytes);
        let whole = first_whole..(end / chunk_bytes).max(first_whole);
        for shard in &self.shards {
            shard.write().retain(|chunk, _| !whole.contains(chunk));
        }
        let head_end = end.min(whole.start * chunk_bytes);
        self.zero(offset, head_end);
        self.zero((whole.end * chunk_bytes).clamp(head_end, end), end);
        Ok(())
    }

    fn grow(&self, size_bytes: u64) -> Result<()> {
        check_writable(self, Op::Grow)?;
        if size_bytes > MEMORY_BYTES_MAX {
            return Err(Error::CannotGrow { device: self.name.clone(), size: self.size_bytes() });
        }
        self.size_bytes.fetch_max(size_bytes, Ordering::AcqRel);
        Ok(())
    }
}

impl fmt::Debug for MemoryDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryDevice")
            .field("name", &self.name)
            .field("size_bytes", &self.size_bytes())
            .field("read_only", &self.read_only)
            .finish_non_exhaustive()
    }
}

/// The part of a request that lies in one chunk.
struct Piece {
    chunk: u64,
    /// First byte inside the chunk.
    within: usize,
    /// First byte inside the request.
    from: usize,
    len: usize,
}

fn pieces(offset: u64, len: usize) -> impl Iterator<Item = Piece> {
    let mut from = 0;
    std::iter::from_fn(move || {
        if from == len {
            return None;
        }
        let at = offset + to_u64(from);
        let within = to_usize(at % to_u64(CHUNK_BYTES));
        let piece =
            Piece { chunk: at / to_u64(CHUNK_BYTES), within, from, len: (CHUNK_BYTES - within).min(len - from) };
        from += piece.len;
        Some(piece)
    })
}

fn empty_chunk() -> Box<[u8]> {
    vec![0; CHUNK_BYTES].into_boxed_slice()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::as_conversions, reason = "tests")]
    use super::*;

    #[test]
    fn reads_back_what_was_written_and_zeros_elsewhere() {
        let device = MemoryDevice::new(1 << 40);
        device.write_at(65_530, &[b"hello ", b"", b"world"]).unwrap();
        let mut buf = [9; 20];
        device.read_at(65_528, &mut buf).unwrap();
        assert_eq!(&buf, b"\0\0hello world\0\0\0\0\0\0\0");
        assert_eq!(device.allocated_bytes(), 2 * CHUNK_BYTES as u64);
    }

    #[test]
    fn knows_where_nothing_was_written() {
        let device = MemoryDevice::new(1 << 40);
        device.write_at((1 << 30) + 5, &[b"x"]).unwrap();
        assert_eq!(device.next_data(7), 1 << 30);
        assert_eq!(device.next_data((1 << 30) + 9), (1 << 30) + 9);
        assert_eq!(device.next_data((1 << 30) + CHUNK_BYTES as u64), 1 << 40);
    }

    #[test]
    fn refuses_ranges_outside_without_writing() {
        let device = MemoryDevice::new(100);
        let mut buf = [0; 10];
        let end = device.read_at(95, &mut buf).unwrap_err();
        assert!(matches!(end, Error::UnexpectedEnd { offset: 95, len: 10, size: 100, .. }));
        assert!(device.read_at(u64::MAX, &mut buf).is_err());
        assert!(matches!(device.write_at(95, &[&buf]), Err(Error::OutOfRange { op: Op::Write, .. })));
        assert_eq!(device.allocated_bytes(), 0);
        device.grow(200).unwrap();
        device.grow(150).unwrap();
        assert_eq!(device.size_bytes(), 200);
        assert!(device.grow(u64::MAX).is_err());
        let fixed = device.into_read_only();
        assert!(matches!(fixed.write_at(0, &[&buf]), Err(Error::ReadOnly { .. })));
        assert!(matches!(fixed.discard(0, 1), Err(Error::ReadOnly { .. })));
    }

    #[test]
    fn discard_zeros_exactly_its_range() {
        let chunk = CHUNK_BYTES;
        let ranges = [
            (0, 5 * chunk),
            (10, 20),
            (10, chunk),
            (chunk, chunk),
            (chunk - 1, chunk + 2),
            (7, 4 * chunk),
            (3 * chunk + 5, 0),
        ];
        for (from, len) in ranges {
            let mut bytes = vec![0xaa; 5 * chunk];
            let device = MemoryDevice::from_bytes(&bytes);
            let copy = device.duplicate();
            device.discard(from as u64, len as u64).unwrap();
            bytes[from..from + len].fill(0);
            assert!(device.to_bytes() == bytes, "discard of {len} at {from}");
            assert!(copy.to_bytes().iter().all(|byte| *byte == 0xaa));
        }
    }
}
