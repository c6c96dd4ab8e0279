//! Implements a device that records all writes and flushes, with the times at which each began and returned. `workload`
//! runs on it; `cuts` reads the tape.
//!
//! Time is a counter that every beginning and every return increments, so that a write concurrent with a flush is told
//! from one that returned before it: only the latter is durable.

use super::image::{Image, ImageDevice};
use super::number::{to_u64, to_usize};
use blockdev::{Device, Result};
use parking_lot::Mutex;
use std::sync::Arc;

/// Bytes of a discard that reach the device at once.
const DISCARD_BYTES: usize = 64 << 10;

/// Beginnings and returns before a moment.
pub(super) type Time = u64;

/// A write, and when it ran.
#[derive(Debug, Clone)]
pub(super) struct Write {
    pub(super) began: Time,
    /// `Time::MAX` while it runs.
    pub(super) returned: Time,
    pub(super) offset: u64,
    pub(super) data: Arc<[u8]>,
}

/// A flush, and when it ran.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flush {
    pub(super) began: Time,
    pub(super) returned: Time,
}

/// All that happened to a device.
#[derive(Debug, Clone, Default)]
pub(super) struct Tape {
    pub(super) now: Time,
    pub(super) writes: Vec<Write>,
    pub(super) flushes: Vec<Flush>,
}

impl Tape {
    fn tick(&mut self) -> Time {
        let now = self.now;
        self.now += 1;
        now
    }
}

/// A device with a tape running.
#[derive(Debug)]
pub(super) struct TapeDevice {
    inner: ImageDevice,
    tape: Mutex<Tape>,
}

impl TapeDevice {
    pub(super) fn new(image: Image) -> Self {
        Self { inner: ImageDevice::new(image), tape: Mutex::default() }
    }

    fn write(&self, offset: u64, data: &Arc<[u8]>) -> Result<()> {
        let index = {
            // Locked around the write: the tape has the order in which overlapping writes happened.
            let mut tape = self.tape.lock();
            self.inner.write_at(offset, &[data])?;
            let began = tape.tick();
            tape.writes.push(Write { began, returned: Time::MAX, offset, data: Arc::clone(data) });
            tape.writes.len() - 1
        };
        let mut tape = self.tape.lock();
        let now = tape.tick();
        if let Some(write) = tape.writes.get_mut(index) {
            write.returned = now;
        }
        Ok(())
    }

    /// The time: later than all that has returned.
    pub(super) fn now(&self) -> Time {
        self.tape.lock().now
    }

    /// The tape so far.
    pub(super) fn tape(&self) -> Tape {
        self.tape.lock().clone()
    }
}

impl Device for TapeDevice {
    fn name(&self) -> &str {
        "recorded"
    }

    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        self.write(offset, &Arc::from(parts.concat()))
    }

    fn flush(&self) -> Result<()> {
        let began = self.tape.lock().tick();
        let mut tape = self.tape.lock();
        let returned = tape.tick();
        tape.flushes.push(Flush { began, returned });
        Ok(())
    }

    /// Zeros that may be there after a crash or not: the contents of a discarded range are undefined.
    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        let mut content = vec![0; DISCARD_BYTES];
        let end = offset.saturating_add(len);
        let mut at = offset;
        while at < end {
            let piece = to_usize(end - at).min(DISCARD_BYTES);
            let content = content.get_mut(..piece).unwrap_or_default();
            self.inner.read_at(at, content)?;
            // Most of a device was never written to.
            if content.iter().any(|byte| *byte != 0) {
                self.write(at, &Arc::from(vec![0; piece]))?;
            }
            at = at.saturating_add(to_u64(piece));
        }
        Ok(())
    }

    fn grow(&self, size_bytes: u64) -> Result<()> {
        self.inner.grow(size_bytes)
    }
}
