//! Implements a device whose n-th operation fails. Used by `fault_runs`, by `crash/inject` of `testkit`, and by tests
//! of error paths.

use crate::number::{to_u64, to_usize};
use blockdev::{Device, Error, Op, Result};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// One failure to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Which kind of operation fails.
    pub op: Op,
    /// How many of that kind succeed before.
    pub after: u64,
    /// How it fails.
    pub kind: FaultKind,
}

/// How an operation fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// An I/O error, once, without effect.
    Once,
    /// The host's file system with the image is full, once, without effect.
    NoSpace,
    /// An I/O error then and ever after, for this kind of operation.
    Always,
    /// The first bytes of a write are done, then an I/O error, once.
    Torn {
        /// Bytes that reach the device.
        bytes: u64,
    },
}

/// A device with failures to come.
#[derive(Debug)]
pub struct FailingDevice {
    inner: Arc<dyn Device>,
    plan: Mutex<Plan>,
}

#[derive(Debug, Default)]
struct Plan {
    faults: Vec<Fault>,
    /// Operations so far, by kind.
    counts: BTreeMap<&'static str, u64>,
    /// Faults that happened.
    happened: u64,
}

impl FailingDevice {
    /// Wraps `inner`; nothing fails until [`FailingDevice::plan`] says so.
    #[must_use]
    pub fn new(inner: Arc<dyn Device>) -> Self {
        Self { inner, plan: Mutex::default() }
    }

    /// Counts from now on, and fails as planned. Replaces an earlier plan.
    pub fn plan(&self, faults: Vec<Fault>) {
        *self.plan.lock() = Plan { faults, ..Plan::default() };
    }

    /// How many operations of a kind were asked for since the last [`FailingDevice::plan`].
    #[must_use]
    pub fn count(&self, op: Op) -> u64 {
        self.plan.lock().counts.get(name_of(op)).copied().unwrap_or(0)
    }

    /// How many faults happened since then.
    #[must_use]
    pub fn happened(&self) -> u64 {
        self.plan.lock().happened
    }

    /// Counts an operation; the fault that hits it, if one does.
    fn next(&self, op: Op) -> Option<FaultKind> {
        let mut plan = self.plan.lock();
        let count = plan.counts.entry(name_of(op)).or_default();
        let number = *count;
        *count = number.saturating_add(1);
        let hit = plan.faults.iter().find(|fault| {
            let is_due = if fault.kind == FaultKind::Always { number >= fault.after } else { number == fault.after };
            fault.op == op && is_due
        });
        let kind = hit.map(|fault| fault.kind)?;
        plan.happened = plan.happened.saturating_add(1);
        Some(kind)
    }

    fn error(&self, kind: FaultKind, op: Op, offset: u64, len: usize) -> Error {
        let kind = match kind {
            FaultKind::NoSpace => io::ErrorKind::StorageFull,
            _ => io::ErrorKind::Other,
        };
        Error::io(op, self.inner.name(), offset, to_u64(len), io::Error::new(kind, "injected fault"))
    }
}

fn name_of(op: Op) -> &'static str {
    match op {
        Op::Open => "open",
        Op::Read => "read",
        Op::Write => "write",
        Op::Flush => "flush",
        Op::Discard => "discard",
        Op::Grow => "grow",
        Op::Shrink => "shrink",
    }
}

impl Device for FailingDevice {
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
        match self.next(Op::Read) {
            Some(kind) => Err(self.error(kind, Op::Read, offset, buf.len())),
            None => self.inner.read_at(offset, buf),
        }
    }

    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        let len = parts.iter().map(|part| part.len()).sum();
        match self.next(Op::Write) {
            None => self.inner.write_at(offset, parts),
            Some(kind @ FaultKind::Torn { bytes }) => {
                let all = parts.concat();
                let done = all.get(..to_usize(bytes)).unwrap_or(&all);
                self.inner.write_at(offset, &[done])?;
                Err(self.error(kind, Op::Write, offset, len))
            }
            Some(kind) => Err(self.error(kind, Op::Write, offset, len)),
        }
    }

    fn flush(&self) -> Result<()> {
        match self.next(Op::Flush) {
            Some(kind) => Err(self.error(kind, Op::Flush, 0, 0)),
            None => self.inner.flush(),
        }
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        match self.next(Op::Discard) {
            Some(kind) => Err(self.error(kind, Op::Discard, offset, to_usize(len))),
            None => self.inner.discard(offset, len),
        }
    }

    fn grow(&self, size_bytes: u64) -> Result<()> {
        match self.next(Op::Grow) {
            Some(kind) => Err(self.error(kind, Op::Grow, size_bytes, 0)),
            None => self.inner.grow(size_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blockdev::backends::MemoryDevice;

    #[test]
    fn the_chosen_operations_fail() {
        let device = FailingDevice::new(Arc::new(MemoryDevice::new(8192)));
        device.plan(vec![
            Fault { op: Op::Write, after: 1, kind: FaultKind::Torn { bytes: 3 } },
            Fault { op: Op::Flush, after: 0, kind: FaultKind::Always },
        ]);
        assert!(device.write_at(0, &[b"abcdef"]).is_ok());
        assert!(device.write_at(0, &[b"ghi", b"jkl"]).is_err());
        assert!(device.write_at(6, &[b"m"]).is_ok());
        let mut found = [0; 7];
        device.read_at(0, &mut found).unwrap();
        assert_eq!(&found, b"ghidefm");
        assert!(device.flush().is_err() && device.flush().is_err());
        assert_eq!((device.count(Op::Write), device.happened()), (3, 3));
    }
}
