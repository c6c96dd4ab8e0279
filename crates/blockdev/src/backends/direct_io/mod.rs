//! Reads and writes past the page cache (`O_DIRECT`), for disks.
//!
//! Direct I/O takes only whole blocks of the disk, from aligned memory: other requests go through buffers here. Writes
//! of one [`submit`](crate::Device::submit) run concurrently, through a ring; if the kernel has none, or all are in
//! use, one after the other. Called by `file`.

use super::raw::{PARTS_MAX, RawFile};
use super::read_ahead::{Around, READ_BYTES_MAX};
use super::ring::{Bytes, Job, Outcome, WriteRing};
use crate::buffer::{ALIGNMENT, BufferPool, PooledBuffer};
use crate::convert::{to_u64, to_usize};
use crate::device::parts_len;
use crate::{Result, Write, tag};
use parking_lot::Mutex;
use std::io::{IoSlice, IoSliceMut};

/// Result of [`crate::Device::queue_depth`].
pub(super) const QUEUE_DEPTH_HINT: usize = 16;

/// Bytes of a buffer, and with it of a request that has to go through one.
const PIECE_BYTES: usize = 1 << 20;
/// Bytes of buffers that wait for their next use.
const IDLE_BYTES_MAX: u64 = 16 << 20;
/// Threads that have writes under way together at the same time; the others write one after the other, which many
/// threads do at the same time too.
const RINGS: usize = 4;
/// The largest block of a disk that is known.
pub(super) const BLOCK_BYTES_MAX: u64 = 4096;

/// Further state of a file opened for direct I/O.
pub(super) struct Direct {
    /// Bytes of a block of the disk: 512 or 4096.
    block: u64,
    buffers: BufferPool,
    around: Around,
    rings: Mutex<Vec<WriteRing>>,
    /// Whether writes can be under way together.
    pub(super) has_rings: bool,
    /// Held while a block of which only a part is written is read and written again.
    edges: Mutex<()>,
}

impl std::fmt::Debug for Direct {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Direct").field("block", &self.block).field("has_rings", &self.has_rings).finish_non_exhaustive()
    }
}

impl Direct {
    /// For a disk with blocks of `block` bytes. Its rings are made now: later the process may be forbidden to.
    pub(super) fn new(block: u64) -> Self {
        let rings: Vec<WriteRing> = (0..RINGS).map_while(|_| WriteRing::new().ok()).collect();
        Self {
            block,
            buffers: BufferPool::new(PIECE_BYTES, IDLE_BYTES_MAX),
            around: Around::new(),
            has_rings: !rings.is_empty(),
            rings: Mutex::new(rings),
            edges: Mutex::new(()),
        }
    }

    #[cfg(test)]
    pub(super) fn idle_rings(&self) -> usize {
        self.rings.lock().len()
    }

    /// Fills `parts` from `offset`.
    pub(super) fn read(&self, device: &RawFile, size: u64, offset: u64, parts: &mut [&mut [u8]]) -> Result<()> {
        let len: u64 = parts.iter().map(|part| to_u64(part.len())).sum();
        if len > READ_BYTES_MAX && self.is_whole(offset, len) && parts.iter().all(|part| self.is_direct(part)) {
            let mut at = offset;
            return parts.chunks_mut(PARTS_MAX).try_for_each(|some| {
                let mut batch: Vec<_> = some.iter_mut().map(|part| IoSliceMut::new(part)).collect();
                let len: u64 = batch.iter().map(|part| to_u64(part.len())).sum();
                let read = device.read_batch(at, &mut batch);
                at += len;
                read
            });
        }
        if let [part] = parts {
            let fetch = |at: u64, bytes: &mut [u8]| device.read_batch(at, &mut [IoSliceMut::new(bytes)]);
            if self.around.read((offset, size), tag().kind, part, fetch)? {
                return Ok(());
            }
        }
        let mut parts = parts.iter_mut();
        let mut rest: &mut [u8] = parts.next().map_or(&mut [], |part| part);
        for piece in self.pieces(offset, len) {
            let mut buffer = self.buffers.take();
            let whole = &mut buffer[..piece.whole_len];
            device.read_batch(piece.start, &mut [IoSliceMut::new(whole)])?;
            let mut bytes = &whole[piece.head..piece.head + piece.len];
            while !bytes.is_empty() {
                if rest.is_empty() {
                    rest = parts.next().map_or(&mut [], |part| part);
                    continue;
                }
                let (now, later) = bytes.split_at(bytes.len().min(rest.len()));
                let (target, behind) = rest.split_at_mut(now.len());
                target.copy_from_slice(now);
                (bytes, rest) = (later, behind);
            }
        }
        Ok(())
    }

    /// Writes `parts` one after the other, the first at `offset`.
    pub(super) fn write(&self, device: &RawFile, offset: u64, parts: &[&[u8]]) -> Result<()> {
        let answer = self.write_parts(device, offset, parts);
        self.around.forget(offset, parts_len(parts));
        answer
    }

    /// The range has new bytes, or none.
    pub(super) fn forget(&self, offset: u64, len: u64) {
        self.around.forget(offset, len);
    }

    fn write_parts(&self, device: &RawFile, offset: u64, parts: &[&[u8]]) -> Result<()> {
        if !self.is_whole(offset, parts_len(parts)) {
            return self.write_around(device, offset, parts);
        }
        self.jobs(0, device.position(offset), parts).try_for_each(|job| write_job(device, &job, 0))
    }

    /// As [`Self::write`] for each, together.
    pub(super) fn submit(&self, device: &RawFile, writes: &[Write<'_>]) -> Vec<Result<()>> {
        let alone = |write: &Write<'_>| self.write(device, write.offset, write.parts);
        let ring = if writes.len() > 1 { self.rings.lock().pop() } else { None };
        let Some(mut ring) = ring else { return writes.iter().map(alone).collect() };
        let mut answers = vec![Ok(()); writes.len()];
        let whole = |write: &Write<'_>| self.is_whole(write.offset, parts_len(write.parts));
        let jobs = writes
            .iter()
            .enumerate()
            .filter(|(_, write)| whole(write))
            .flat_map(|(owner, write)| self.jobs(owner, device.position(write.offset), write.parts));
        ring.write(device.descriptor(), jobs, |job, outcome| {
            let answer = settle(device, &job, outcome);
            if let Some(first @ Ok(())) = answers.get_mut(job.owner) {
                *first = answer;
            }
        });
        if !ring.is_broken {
            self.rings.lock().push(ring);
        }
        writes.iter().for_each(|write| self.around.forget(write.offset, parts_len(write.parts)));
        for (write, answer) in std::iter::zip(writes, &mut answers).filter(|(write, _)| !whole(write)) {
            *answer = alone(write);
        }
        answers
    }

    /// A run of whole blocks at a place of the file, as requests.
    fn jobs<'a>(
        &'a self,
        owner: usize,
        position: u64,
        parts: &'a [&'a [u8]],
    ) -> Box<dyn Iterator<Item = Job<'a>> + 'a> {
        let mut position = position;
        let mut next = move |len: usize, bytes| {
            let job = Job { owner, position, len, bytes };
            position += to_u64(len);
            job
        };
        if parts.iter().all(|part| self.is_direct(part)) {
            return Box::new(parts.chunks(PARTS_MAX).map(move |some| {
                let len = some.iter().map(|part| part.len()).sum();
                next(len, Bytes::Parts(some.iter().map(|part| IoSlice::new(part)).collect()))
            }));
        }
        let mut source = Gather::new(parts);
        Box::new(std::iter::from_fn(move || {
            let mut buffer = None;
            let len = source.fill(|| self.buffers.take(), &mut buffer);
            Some(next(len, Bytes::Copied(buffer?)))
        }))
    }

    /// Writes a range that begins or ends within a block: reads the rest of its blocks, and writes it again.
    fn write_around(&self, device: &RawFile, offset: u64, parts: &[&[u8]]) -> Result<()> {
        let _held = self.edges.lock();
        let mut source = Gather::new(parts);
        self.pieces(offset, parts_len(parts)).try_for_each(|piece| {
            let mut buffer = self.buffers.take();
            let whole = &mut buffer[..piece.whole_len];
            device.read_batch(piece.start, &mut [IoSliceMut::new(whole)])?;
            source.copy(&mut whole[piece.head..piece.head + piece.len]);
            device.write_batch(piece.start, &mut [IoSlice::new(whole)])
        })
    }

    /// The blocks that hold a range, a buffer full at a time.
    fn pieces(&self, offset: u64, len: u64) -> impl Iterator<Item = Piece> + use<> {
        let block = self.block;
        let end = offset.saturating_add(len);
        let mut at = offset;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let start = at - at % block;
            let until = start.saturating_add(to_u64(PIECE_BYTES)).min(end);
            let piece = Piece {
                start,
                whole_len: to_usize(until.next_multiple_of(block) - start),
                head: to_usize(at - start),
                len: to_usize(until - at),
            };
            at = until;
            Some(piece)
        })
    }

    const fn is_whole(&self, offset: u64, len: u64) -> bool {
        offset.is_multiple_of(self.block) && len.is_multiple_of(self.block)
    }

    /// Whether the disk takes these bytes, or gives them, where they are.
    fn is_direct(&self, bytes: &[u8]) -> bool {
        bytes.as_ptr().addr().is_multiple_of(ALIGNMENT) && to_u64(bytes.len()).is_multiple_of(self.block)
    }
}

/// Whole blocks, and the wanted part of them.
struct Piece {
    /// Where the first block begins on the device.
    start: u64,
    /// Bytes of all blocks.
    whole_len: usize,
    /// Bytes of the first block that are not meant.
    head: usize,
    /// Bytes that are meant.
    len: usize,
}

/// Bytes of several buffers, taken one after the other.
struct Gather<'a> {
    parts: std::slice::Iter<'a, &'a [u8]>,
    rest: &'a [u8],
}

impl<'a> Gather<'a> {
    fn new(parts: &'a [&'a [u8]]) -> Self {
        Self { parts: parts.iter(), rest: &[] }
    }

    /// Copies as many bytes as are left and have room; their number.
    fn copy(&mut self, target: &mut [u8]) -> usize {
        let mut done = 0;
        while let Some(room) = target.get_mut(done..).filter(|room| !room.is_empty()) {
            if self.rest.is_empty() {
                let Some(part) = self.parts.next() else { break };
                self.rest = part;
                continue;
            }
            let (now, later) = self.rest.split_at(self.rest.len().min(room.len()));
            room[..now.len()].copy_from_slice(now);
            done += now.len();
            self.rest = later;
        }
        done
    }

    /// Copies into a buffer that is taken only where something is left; the number of bytes.
    fn fill(&mut self, take: impl FnOnce() -> PooledBuffer, buffer: &mut Option<PooledBuffer>) -> usize {
        while self.rest.is_empty() {
            let Some(part) = self.parts.next() else { return 0 };
            self.rest = part;
        }
        self.copy(buffer.insert(take()))
    }
}

/// The result of a job; writes the part that the kernel left out.
fn settle(device: &RawFile, job: &Job<'_>, outcome: Outcome) -> Result<()> {
    match outcome {
        Outcome::Written(count) if count >= job.len => Ok(()),
        Outcome::Written(count) => write_job(device, job, count),
        Outcome::NotTried => write_job(device, job, 0),
        Outcome::Failed(error) if is_passing(&error) => write_job(device, job, 0),
        Outcome::Failed(error) => Err(device.write_error(job.position, to_u64(job.len), error)),
    }
}

fn is_passing(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::Interrupted | std::io::ErrorKind::WouldBlock)
}

/// Writes a job from its byte `from` on, without a ring.
fn write_job(device: &RawFile, job: &Job<'_>, from: usize) -> Result<()> {
    let at = device.offset_of(job.position) + to_u64(from);
    match &job.bytes {
        Bytes::Copied(buffer) => device.write_batch(at, &mut [IoSlice::new(&buffer[from..job.len])]),
        Bytes::Parts(parts) => {
            let mut parts = parts.clone();
            let mut rest = parts.as_mut_slice();
            IoSlice::advance_slices(&mut rest, from);
            device.write_batch(at, rest)
        }
    }
}

#[cfg(test)]
mod tests;
