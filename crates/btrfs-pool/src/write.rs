//! Writes to every copy of a range. The store calls it for data, commits, log syncs, discards and repairs; reads that
//! repair a copy call it too.
//!
//! Writes are durable only after [`Pool::flush`] returns. A batch is tried as a whole even if parts fail; each failure
//! is counted for its device, and any failure fails the batch, because fewer copies than the profile promises were
//! written. The store then stops writing, unless only the host of a sparse image was full. Copies on devices that were
//! missing when the pool was opened are left out, and those on seeds, which never change.

#![expect(
    clippy::indexing_slicing,
    reason = "parts of a plan lie in the buffer that it was made for; a panic is our own bug"
)]

use std::collections::BTreeMap;
use std::sync::Arc;

use blockdev::queue::{self, Failed, WriteRequest};
use blockdev::{Device, Kind, Tag, Write};
use btrfs_disk::convert::to_u64;
use btrfs_disk::superblock::{MIRRORS_MAX, SUPERBLOCK_SIZE, mirror_offset};
use btrfs_disk::{DevId, Logical, TreeId, node};

use super::Pool;
use super::chunk::Chunk;
use super::devices::{Event, PoolDevice};
use super::plan::{Part, Purpose, plan};
use super::read::range_of;
use super::twin::Twin;
use crate::error::{Error, Result};

/// Bytes of a sparse device's free space that data writes leave for commits; less for small devices.
fn spare_bytes(size_bytes: u64) -> u64 {
    (size_bytes / 64).clamp(1 << 20, 4 << 20)
}

/// Buffers to write consecutively from a logical address.
#[derive(Clone, Copy, Debug)]
pub struct DataRun<'a> {
    /// Logical address.
    pub at: Logical,
    /// Buffers, in order.
    pub parts: &'a [&'a [u8]],
}

impl DataRun<'_> {
    fn len(&self) -> u64 {
        self.parts.iter().map(|part| to_u64(part.len())).sum()
    }
}

impl Pool {
    /// Writes data to every copy, with as many concurrent requests as the devices take. For sparse files on a nearly
    /// full host file system, some space is reserved for commits, since only they free deleted space.
    ///
    /// # Errors
    /// The first device error; `Corrupt` if a range is not inside one chunk (then nothing was written).
    pub fn write(&self, runs: &[DataRun<'_>]) -> Result<()> {
        self.check_writable()?;
        let find = |run: &DataRun<'_>| self.chunks().lookup(run.at, run.len());
        let chunks = runs.iter().map(find).collect::<Result<Vec<_>, _>>()?;
        let twin = self.twin.read();
        let mut whole: BTreeMap<DevId, Vec<Write<'_>>> = BTreeMap::new();
        let mut pieces = Vec::new();
        for (run, chunk) in runs.iter().zip(&chunks) {
            let len = run.len();
            for part in self.writable(chunk, (run.at, len), &twin)? {
                let device = self.device(part.device);
                if device.is_written() {
                    let device = device.device();
                    device.check_room(part.device_offset, part.len, spare_bytes(device.size_bytes()))?;
                }
                if part.len == len {
                    let tag = Tag { kind: Kind::Data, mirror: part.mirror };
                    let write = Write { offset: part.device_offset, parts: run.parts, tag };
                    whole.entry(part.device).or_default().push(write);
                } else {
                    pieces.extend(cut(run.parts, &part, Kind::Data));
                }
            }
        }
        let mut failed = Vec::new();
        for (id, writes) in whole {
            failed.extend(self.on_each(id, &twin, |device| queue::submit(device, &writes)));
        }
        failed.extend(self.submit(pieces, &twin));
        self.settle(failed)
    }

    /// Number of data runs worth passing to [`Pool::write`] at once.
    pub fn queue_depth(&self) -> usize {
        self.devices().iter().map(|device| device.device().queue_depth()).max().unwrap_or(1)
    }

    /// Writes tree blocks to every copy, sorted by device and offset so that adjacent blocks form one write.
    ///
    /// # Errors
    /// The first device error; `Corrupt` if a block is not inside one chunk (then nothing was written).
    pub fn write_blocks<'a>(&self, blocks: impl IntoIterator<Item = (Logical, &'a [u8])>) -> Result<()> {
        self.check_writable()?;
        let mut found: Vec<(Arc<Chunk>, Logical, &[u8])> = Vec::new();
        for (at, bytes) in blocks {
            let len = to_u64(bytes.len());
            let known = found.last().filter(|(chunk, ..)| chunk.contains(at, len));
            let chunk = match known {
                Some((chunk, ..)) => Arc::clone(chunk),
                None => self.chunks().lookup(at, len)?,
            };
            found.push((chunk, at, bytes));
        }
        let twin = self.twin.read();
        let mut pieces = Vec::new();
        for (chunk, at, bytes) in found {
            for part in self.writable(&chunk, (at, to_u64(bytes.len())), &twin)? {
                pieces.push(Piece::new(&part, &bytes[range_of(&part)], kind_of(bytes)));
            }
        }
        let failed = self.submit(pieces, &twin);
        self.settle(failed)
    }

    /// Makes all writes that returned before this call durable, on all devices.
    ///
    /// # Errors
    /// The first device error. The earlier writes may or may not be durable then.
    pub fn flush(&self) -> Result<()> {
        for device in self.devices().iter().filter(|device| device.is_written()) {
            self.or_without(device, self.flush_whole(device).map_err(Error::from))?;
        }
        Ok(())
    }

    /// Flushes a device. Where there are others, one that was truncated while in use has failed.
    fn flush_whole(&self, device: &PoolDevice) -> blockdev::Result<()> {
        device.flush()?;
        match self.devices().iter().nth(1) {
            Some(_) => device.device().check_length(),
            None => Ok(()),
        }
    }

    /// Tells the devices that this range is unused. Advisory.
    ///
    /// # Errors
    /// The device's; `Corrupt` if the range is not inside one chunk.
    pub fn discard(&self, at: Logical, len: u64) -> Result<()> {
        self.check_writable()?;
        let chunk = self.chunks().lookup(at, len)?;
        if chunk.is_parity() {
            return Ok(());
        }
        for part in self.writable(&chunk, (at, len), &None)? {
            self.device(part.device).device().discard(part.device_offset, part.len)?;
        }
        Ok(())
    }

    /// Writes one copy only, for repair. Returns false without a write if its device is missing or a seed, if the chunk
    /// has parity, or if it overlaps a superblock: no extent is ever allocated there, so the chunk is invalid, and the
    /// write would destroy the superblock.
    pub fn write_copy(&self, chunk: &Chunk, at: Logical, bytes: &[u8], mirror: u32) -> Result<bool> {
        let twin = self.twin.read();
        let plan = plan(chunk, at, to_u64(bytes.len()), Purpose::Read(mirror));
        let is_written = |part: &Part| self.device(part.device).is_written();
        if chunk.is_parity()
            || !plan.iter().all(is_written)
            || plan.iter().any(|part| is_on_superblock(part.device_offset, part.len))
        {
            return Ok(false);
        }
        let pieces = plan.iter().map(|part| Piece::new(part, &bytes[range_of(part)], chunk.kind()));
        // A copy that cannot be mended is no reason to do without its device.
        match self.submit(pieces, &twin).into_iter().next() {
            Some((_, Failed { error, .. })) => Err(error.into()),
            None => Ok(true),
        }
    }

    /// The parts of every copy on devices that are written, or whose twin is. A pool that writes has at least one copy
    /// of each byte there ([`Pool::loss_of`]), but for what a seed has.
    ///
    /// # Errors
    /// `ReadOnly` where no device would be written: a write that goes nowhere must not pass as done.
    fn writable(&self, chunk: &Chunk, (at, len): (Logical, u64), twin: &Option<Twin>) -> Result<Vec<Part>> {
        if chunk.is_parity() {
            return Err(Error::unsupported(format!("writing to {} block groups", chunk.profile())));
        }
        let mut parts = plan(chunk, at, len, Purpose::Write);
        let is_written = |part: &Part| self.device(part.device).is_written();
        if len > 0 && !parts.iter().any(is_written) {
            return Err(Error::ReadOnly);
        }
        parts.retain(|part| is_written(part) || twin_of(twin, part.device).is_some());
        Ok(parts)
    }

    /// Queues the pieces of every device; returns the failures.
    fn submit<'a>(&self, pieces: impl IntoIterator<Item = Piece<'a>>, twin: &Option<Twin>) -> Vec<(DevId, Failed)> {
        let mut queues: BTreeMap<DevId, Vec<WriteRequest<'a>>> = BTreeMap::new();
        for Piece { device, request } in pieces {
            queues.entry(device).or_default().push(request);
        }
        let mut failed = Vec::new();
        for (id, mut requests) in queues {
            failed.extend(self.on_each(id, twin, |device| queue::write_all(device, &mut requests)));
        }
        failed
    }

    /// Writes to a device and to its twin; counts and returns the failures of the device.
    fn on_each(
        &self,
        id: DevId,
        twin: &Option<Twin>,
        mut write: impl FnMut(&dyn Device) -> Vec<Failed>,
    ) -> Vec<(DevId, Failed)> {
        if let Some(twin) = twin_of(twin, id) {
            twin.note(write(&**twin.device()));
        }
        let device = self.device(id);
        let failed = if device.is_written() { write(&**device.device()) } else { Vec::new() };
        failed.iter().for_each(|_| device.count(Event::WriteError));
        failed.into_iter().map(|failed| (id, failed)).collect()
    }

    /// A batch is complete if all copies of all of it are written, but for those on devices that the volume can do
    /// without.
    fn settle(&self, failed: Vec<(DevId, Failed)>) -> Result<()> {
        for (id, Failed { error, .. }) in failed {
            self.or_without(self.device(id), Err(error.into()))?;
        }
        Ok(())
    }

    pub(super) fn check_writable(&self) -> Result<()> {
        if self.is_writable() { Ok(()) } else { Err(Error::ReadOnly) }
    }
}

/// The twin of a device.
fn twin_of(twin: &Option<Twin>, id: DevId) -> Option<&Twin> {
    twin.as_ref().filter(|twin| twin.id() == id)
}

/// The kind of a tree block: a log, by its header, or another tree.
fn kind_of(block: &[u8]) -> Kind {
    match node::owner(block) {
        Some(TreeId::TREE_LOG) => Kind::Log,
        _ => Kind::Metadata,
    }
}

/// Whether a device range overlaps a superblock copy.
fn is_on_superblock(offset: u64, len: u64) -> bool {
    let mut copies = (0..MIRRORS_MAX).filter_map(mirror_offset);
    copies.any(|copy| copy < offset.saturating_add(len) && offset < copy.saturating_add(to_u64(SUPERBLOCK_SIZE)))
}

/// Bytes to write to a device range.
struct Piece<'a> {
    device: DevId,
    request: WriteRequest<'a>,
}

impl<'a> Piece<'a> {
    fn new(part: &Part, bytes: &'a [u8], kind: Kind) -> Self {
        let tag = Tag { kind, mirror: part.mirror };
        Self { device: part.device, request: WriteRequest { offset: part.device_offset, bytes, tag } }
    }
}

/// The pieces of `parts` that make up one part of a plan.
fn cut<'a>(parts: &[&'a [u8]], planned: &Part, kind: Kind) -> Vec<Piece<'a>> {
    let wanted = range_of(planned);
    let mut pieces = Vec::new();
    let mut start = 0;
    for part in parts {
        let end = start + part.len();
        let (from, to) = (wanted.start.max(start), wanted.end.min(end));
        if from < to {
            let mut piece = Piece::new(planned, &part[from - start..to - start], kind);
            piece.request.offset += to_u64(from - wanted.start);
            pieces.push(piece);
        }
        start = end;
    }
    pieces
}
