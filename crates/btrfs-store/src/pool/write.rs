//! Writing to every copy.
//!
//! Nothing here is durable before [`Pool::flush`] returned. A failed write leaves the range
//! unknown on every copy, and the rest of a batch unwritten: the caller stops writing.

#![expect(
    clippy::indexing_slicing,
    reason = "parts of a plan lie in the buffer that it was made for; a panic is our own bug"
)]

use std::collections::BTreeMap;
use std::sync::Arc;

use blockdev::queue::{self, WriteRequest};
use blockdev::{Kind, Tag, tagged};
use btrfs_disk::convert::to_u64;
use btrfs_disk::{DevId, Logical, TreeId, node};

use super::Pool;
use super::chunk::Chunk;
use super::devices::Event;
use super::plan::{Part, Purpose, plan};
use super::read::range_of;
use crate::error::{Error, Result};

/// What data leaves for commits of what holds a device of this size: some, of small ones less.
fn spare_bytes(size_bytes: u64) -> u64 {
    (size_bytes / 64).clamp(1 << 20, 4 << 20)
}

impl Pool {
    /// Writes `parts` one after the other to every copy, the first at `at`. Where a device is a sparse
    /// file on a file system that is nearly full, what is left there is kept for commits: they alone
    /// let go of what was deleted.
    ///
    /// # Errors
    /// The first device's that failed; `Corrupt` when the range is not inside one chunk.
    pub fn write(&self, at: Logical, parts: &[&[u8]]) -> Result<()> {
        self.check_writable()?;
        let len = parts.iter().map(|part| to_u64(part.len())).sum();
        let chunk = self.chunks().lookup(at, len)?;
        let plan = plan(&chunk, at, len, Purpose::Write);
        for part in &plan {
            let device = self.device(part.device);
            let spare = spare_bytes(device.device().size_bytes());
            device.device().check_room(part.device_offset, part.len, spare)?;
        }
        if plan.iter().any(|part| part.len != len) {
            let pieces = plan.iter().flat_map(|part| cut(parts, part, Kind::Data));
            return self.submit(pieces);
        }
        for part in plan {
            let device = self.device(part.device);
            let tag = Tag { kind: Kind::Data, mirror: part.mirror };
            let written = tagged(tag, || device.device().write_at(part.device_offset, parts));
            written.inspect_err(|_| device.count(Event::WriteError))?;
        }
        Ok(())
    }

    /// Writes many blocks to every copy. They are sorted by device and place first, so that
    /// neighbours reach the device as one write.
    ///
    /// # Errors
    /// The first device's that failed; `Corrupt` when a block is not inside one chunk (then
    /// nothing was written).
    pub fn write_blocks<'a>(&self, blocks: impl IntoIterator<Item = (Logical, &'a [u8])>) -> Result<()> {
        self.check_writable()?;
        let mut pieces = Vec::new();
        let mut chunk: Option<Arc<Chunk>> = None;
        for (at, bytes) in blocks {
            let len = to_u64(bytes.len());
            let known = chunk.take().filter(|chunk| chunk.contains(at, len));
            let found = match known {
                Some(chunk) => chunk,
                None => self.chunks().lookup(at, len)?,
            };
            for part in plan(&found, at, len, Purpose::Write) {
                pieces.push(Piece::new(&part, &bytes[range_of(&part)], kind_of(bytes)));
            }
            chunk = Some(found);
        }
        self.submit(pieces)
    }

    /// Makes every write that returned before this call durable, on all devices.
    ///
    /// # Errors
    /// The first device's that failed. Nothing is known then about the writes before.
    pub fn flush(&self) -> Result<()> {
        for device in self.devices() {
            let flushed = device.device().flush();
            flushed.inspect_err(|_| device.count(Event::WriteError))?;
        }
        Ok(())
    }

    /// Tells the devices that nobody needs these bytes. Advisory.
    ///
    /// # Errors
    /// The device's; `Corrupt` when the range is not inside one chunk.
    pub fn discard(&self, at: Logical, len: u64) -> Result<()> {
        self.check_writable()?;
        let chunk = self.chunks().lookup(at, len)?;
        for part in plan(&chunk, at, len, Purpose::Write) {
            self.device(part.device).device().discard(part.device_offset, part.len)?;
        }
        Ok(())
    }

    /// Writes one copy only: mending.
    pub(super) fn write_copy(&self, chunk: &Chunk, at: Logical, bytes: &[u8], mirror: u32) -> Result<()> {
        let plan = plan(chunk, at, to_u64(bytes.len()), Purpose::Read(mirror));
        self.submit(plan.iter().map(|part| Piece::new(part, &bytes[range_of(part)], chunk.kind())))
    }

    /// Hands every device its pieces, in one queue each.
    fn submit<'a>(&self, pieces: impl IntoIterator<Item = Piece<'a>>) -> Result<()> {
        let mut queues: BTreeMap<DevId, Vec<WriteRequest<'a>>> = BTreeMap::new();
        for Piece { device, request } in pieces {
            queues.entry(device).or_default().push(request);
        }
        for (id, mut requests) in queues {
            let device = self.device(id);
            let written = queue::write_all(&**device.device(), &mut requests);
            written.inspect_err(|_| device.count(Event::WriteError))?;
        }
        Ok(())
    }

    pub(super) fn check_writable(&self) -> Result<()> {
        if self.is_writable() { Ok(()) } else { Err(Error::ReadOnly) }
    }
}

/// What a tree block is part of: a log, as its header says, or the trees.
fn kind_of(block: &[u8]) -> Kind {
    match node::owner(block) {
        Some(TreeId::TREE_LOG) => Kind::Log,
        _ => Kind::Metadata,
    }
}

/// Bytes for a place of a device.
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
