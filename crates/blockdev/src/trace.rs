//! Wraps a device and counts its requests, for tests and trials that limit the I/O of an operation;
//! [`crate::recording`] records them for pictures.

use crate::convert::to_u64;
use crate::device::parts_len;
use crate::{Device, Op, Result, Write};
use parking_lot::Mutex;
use std::fs::Metadata;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most events that a recording holds at once; further ones are dropped and counted in [`Counts::events_lost`].
pub const EVENTS_MAX: usize = 1 << 20;

/// One request, in the order in which they were issued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// The operation.
    pub op: Op,
    /// First byte; for [`Op::Flush`], [`Op::Grow`] and [`Op::Shrink`] 0.
    pub offset: u64,
    /// Bytes; for [`Op::Flush`] 0, for [`Op::Grow`] and [`Op::Shrink`] the new size.
    pub len: u64,
}

/// How often each operation was asked, failed ones included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Read requests.
    pub reads: u64,
    /// Bytes they asked for.
    pub read_bytes: u64,
    /// Number of announced reads.
    pub announced: u64,
    /// Bytes of that.
    pub announced_bytes: u64,
    /// Write requests.
    pub writes: u64,
    /// Bytes they carried.
    pub write_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discards.
    pub discards: u64,
    /// Bytes they covered.
    pub discard_bytes: u64,
    /// Events that found no room: a recording with any is incomplete.
    pub events_lost: u64,
}

/// Counts the requests to a device, and records them if asked to.
#[derive(Debug)]
pub struct TracingDevice<D> {
    inner: D,
    reads: Tally,
    announced: Tally,
    writes: Tally,
    flushes: Tally,
    discards: Tally,
    events_lost: AtomicU64,
    events: Option<Mutex<Vec<Event>>>,
}

#[derive(Debug, Default)]
struct Tally {
    count: AtomicU64,
    bytes: AtomicU64,
}

impl Tally {
    fn add(&self, bytes: u64) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Count and bytes.
    fn get(&self) -> (u64, u64) {
        (self.count.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}

impl<D: Device> TracingDevice<D> {
    /// Counts only.
    pub fn counting(inner: D) -> Self {
        Self {
            inner,
            reads: Tally::default(),
            announced: Tally::default(),
            writes: Tally::default(),
            flushes: Tally::default(),
            discards: Tally::default(),
            events_lost: AtomicU64::new(0),
            events: None,
        }
    }

    /// Counts, and records up to [`EVENTS_MAX`] events.
    pub fn recording(inner: D) -> Self {
        Self { events: Some(Mutex::new(Vec::new())), ..Self::counting(inner) }
    }

    /// The device itself; requests made there are not seen.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Totals since the beginning.
    pub fn counts(&self) -> Counts {
        let (reads, read_bytes) = self.reads.get();
        let (announced, announced_bytes) = self.announced.get();
        let (writes, write_bytes) = self.writes.get();
        let (discards, discard_bytes) = self.discards.get();
        Counts {
            reads,
            read_bytes,
            announced,
            announced_bytes,
            writes,
            write_bytes,
            flushes: self.flushes.get().0,
            discards,
            discard_bytes,
            events_lost: self.events_lost.load(Ordering::Relaxed),
        }
    }

    /// The events since the last call.
    pub fn take_events(&self) -> Vec<Event> {
        match &self.events {
            Some(events) => std::mem::take(&mut *events.lock()),
            None => Vec::new(),
        }
    }

    fn record(&self, op: Op, offset: u64, len: u64) {
        let Some(events) = &self.events else {
            return;
        };
        let mut events = events.lock();
        if events.len() < EVENTS_MAX {
            events.push(Event { op, offset, len });
        } else {
            self.events_lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<D: Device> Device for TracingDevice<D> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let len = to_u64(buf.len());
        self.reads.add(len);
        self.record(Op::Read, offset, len);
        self.inner.read_at(offset, buf)
    }

    fn will_read(&self, offset: u64, len: u64) {
        self.announced.add(len);
        self.inner.will_read(offset, len);
    }

    fn next_data(&self, offset: u64) -> u64 {
        self.inner.next_data(offset)
    }

    fn read_parts_at(&self, offset: u64, parts: &mut [&mut [u8]]) -> Result<()> {
        let len = parts.iter().map(|part| to_u64(part.len())).sum();
        self.reads.add(len);
        self.record(Op::Read, offset, len);
        self.inner.read_parts_at(offset, parts)
    }

    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        let len = parts_len(parts);
        self.writes.add(len);
        self.record(Op::Write, offset, len);
        self.inner.write_at(offset, parts)
    }

    fn submit(&self, writes: &[Write<'_>]) -> Vec<Result<()>> {
        for write in writes {
            let len = parts_len(write.parts);
            self.writes.add(len);
            self.record(Op::Write, write.offset, len);
        }
        self.inner.submit(writes)
    }

    fn queue_depth(&self) -> usize {
        self.inner.queue_depth()
    }

    fn flush(&self) -> Result<()> {
        self.flushes.add(0);
        self.record(Op::Flush, 0, 0);
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.discards.add(len);
        self.record(Op::Discard, offset, len);
        self.inner.discard(offset, len)
    }

    fn check_room(&self, offset: u64, len: u64, spare: u64) -> Result<()> {
        self.inner.check_room(offset, len, spare)
    }

    fn grow(&self, size_bytes: u64) -> Result<()> {
        self.record(Op::Grow, 0, size_bytes);
        self.inner.grow(size_bytes)
    }

    fn shrink(&self, size_bytes: u64) -> Result<()> {
        self.record(Op::Shrink, 0, size_bytes);
        self.inner.shrink(size_bytes)
    }

    fn host_metadata(&self) -> Result<Option<Metadata>> {
        self.inner.host_metadata()
    }

    fn check_length(&self) -> Result<()> {
        self.inner.check_length()
    }

    fn uses_rings(&self) -> bool {
        self.inner.uses_rings()
    }

    fn let_go(&self) {
        self.inner.let_go();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::MemoryDevice;

    #[test]
    fn everything_is_counted_and_recorded_in_order() {
        let device = TracingDevice::recording(MemoryDevice::new(4096));
        device.write_at(8, &[b"abc", b"de"]).unwrap();
        device.flush().unwrap();
        device.read_at(9, &mut [0; 2]).unwrap();
        device.discard(0, 4096).unwrap();
        device.grow(8192).unwrap();
        assert!(device.read_at(9000, &mut [0; 2]).is_err());
        let events: Vec<_> = device.take_events().iter().map(|event| (event.op, event.offset, event.len)).collect();
        assert_eq!(
            events,
            [
                (Op::Write, 8, 5),
                (Op::Flush, 0, 0),
                (Op::Read, 9, 2),
                (Op::Discard, 0, 4096),
                (Op::Grow, 0, 8192),
                (Op::Read, 9000, 2),
            ]
        );
        let counts = device.counts();
        assert_eq!((counts.reads, counts.writes, counts.flushes), (2, 1, 1));
        assert_eq!((counts.read_bytes, counts.write_bytes), (4, 5));
        assert!(device.take_events().is_empty());
        let quiet = TracingDevice::counting(MemoryDevice::new(1));
        quiet.flush().unwrap();
        assert!(quiet.take_events().is_empty());
        assert_eq!(quiet.counts().flushes, 1);
    }
}
