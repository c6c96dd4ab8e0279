//! A device that keeps all that was written and flushed, with the times at which each began and returned.
//!
//! Time is a counter that every beginning and every return moves on, so that what ran at the same time as a flush is
//! told from what returned before it: only the latter is durable.

use super::image::{Image, ImageDevice};
use blockdev::{Device, Result};
use parking_lot::Mutex;
use std::sync::Arc;

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
        let index = {
            // Locked around the write: the tape has the order in which overlapping writes happened.
            let mut tape = self.tape.lock();
            self.inner.write_at(offset, parts)?;
            let began = tape.tick();
            let data = Arc::from(parts.concat());
            tape.writes.push(Write { began, returned: Time::MAX, offset, data });
            tape.writes.len() - 1
        };
        let mut tape = self.tape.lock();
        let now = tape.tick();
        if let Some(write) = tape.writes.get_mut(index) {
            write.returned = now;
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        let began = self.tape.lock().tick();
        let mut tape = self.tape.lock();
        let returned = tape.tick();
        tape.flushes.push(Flush { began, returned });
        Ok(())
    }

    /// Nothing: a discarded range may keep its content, and that is what tests should see.
    fn discard(&self, _: u64, _: u64) -> Result<()> {
        Ok(())
    }

    fn grow(&self, size_bytes: u64) -> Result<()> {
        self.inner.grow(size_bytes)
    }
}
