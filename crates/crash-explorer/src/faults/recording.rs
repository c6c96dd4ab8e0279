//! Implements a device that remembers every write and flush, and makes the images a crash could leave. Used by `crash`
//! of `testkit`, its tests, and the trial `log-replay`.

use crate::Random;
use crate::number::to_u64;
use blockdev::backends::MemoryDevice;
use blockdev::{Device, Result};
use parking_lot::Mutex;

/// The smallest part of a write that is whole after a crash.
const ATOM_BYTES: usize = 512;

/// A request to the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A write that returned.
    Write {
        /// First byte.
        offset: u64,
        /// The written bytes.
        data: Vec<u8>,
    },
    /// A flush that returned.
    Flush,
    /// The device grew.
    Grow {
        /// Its size since.
        size_bytes: u64,
    },
}

/// A device in memory with a record of its changes.
#[derive(Debug)]
pub struct RecordingDevice {
    start: MemoryDevice,
    now: MemoryDevice,
    events: Mutex<Vec<Event>>,
}

impl RecordingDevice {
    /// Starts the record with the device as it is.
    #[must_use]
    pub fn new(device: MemoryDevice) -> Self {
        Self { start: device.duplicate(), now: device, events: Mutex::default() }
    }

    /// How many events there were. A crash may come after any number of them.
    #[must_use]
    pub fn event_count(&self) -> usize {
        self.events.lock().len()
    }

    /// The record so far.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        self.events.lock().clone()
    }

    /// The image with the first `count` events, all whole: a crash that loses nothing more.
    ///
    /// # Errors
    /// Those of the device in memory; none in practice.
    pub fn image_after(&self, count: usize) -> Result<MemoryDevice> {
        let image = self.start.duplicate();
        let events = self.events.lock();
        for event in events.get(..count).unwrap_or(&events) {
            replay(&image, event)?;
        }
        Ok(image)
    }

    /// An image that a crash after `count` events could leave: everything that was flushed, and of the writes since
    /// the last flush a random part, torn between atoms of 512 bytes, in any order.
    ///
    /// # Errors
    /// Those of the device in memory; none in practice.
    pub fn crash_after(&self, count: usize, random: &mut Random) -> Result<MemoryDevice> {
        let image = self.start.duplicate();
        let events = self.events.lock();
        crash_onto(&image, events.get(..count).unwrap_or(&events), random)?;
        Ok(image)
    }
}

/// Makes of a device as it was before these events one that a crash after them could leave, see
/// [`RecordingDevice::crash_after`].
///
/// # Errors
/// Those of the device.
pub fn crash_onto(image: &dyn Device, events: &[Event], random: &mut Random) -> Result<()> {
    let durable = events.iter().rposition(|event| *event == Event::Flush).map_or(0, |index| index.saturating_add(1));
    let (flushed, pending) = events.split_at(durable);
    for event in flushed {
        replay(image, event)?;
    }
    let mut pending: Vec<&Event> = pending.iter().collect();
    // Half of the crashes keep the order, so that prefixes are tried as well as subsets.
    if random.one_in(2) {
        for index in (1..pending.len()).rev() {
            pending.swap(index, random.index(index.saturating_add(1)));
        }
    }
    for event in pending {
        replay_part(image, event, random)?;
    }
    Ok(())
}

fn replay(image: &dyn Device, event: &Event) -> Result<()> {
    match event {
        Event::Write { offset, data } => image.write_at(*offset, &[data]),
        Event::Grow { size_bytes } => image.grow(*size_bytes),
        Event::Flush => Ok(()),
    }
}

fn replay_part(image: &dyn Device, event: &Event, random: &mut Random) -> Result<()> {
    let Event::Write { offset, data } = event else {
        return replay(image, event);
    };
    match random.below(4) {
        0 => Ok(()),
        1 => {
            for (index, atom) in (0u64..).zip(data.chunks(ATOM_BYTES)) {
                if random.one_in(2) {
                    image.write_at(offset.saturating_add(index.saturating_mul(to_u64(ATOM_BYTES))), &[atom])?;
                }
            }
            Ok(())
        }
        _ => replay(image, event),
    }
}

impl Device for RecordingDevice {
    fn name(&self) -> &str {
        self.now.name()
    }

    fn size_bytes(&self) -> u64 {
        self.now.size_bytes()
    }

    fn is_read_only(&self) -> bool {
        self.now.is_read_only()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.now.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        // Locked around the write: the record has the order in which overlapping writes happened.
        let mut events = self.events.lock();
        self.now.write_at(offset, parts)?;
        events.push(Event::Write { offset, data: parts.concat() });
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        let mut events = self.events.lock();
        self.now.flush()?;
        events.push(Event::Flush);
        Ok(())
    }

    /// Does nothing: a discarded range may keep its content, and tests should see that.
    fn discard(&self, _: u64, _: u64) -> Result<()> {
        Ok(())
    }

    fn grow(&self, size_bytes: u64) -> Result<()> {
        let mut events = self.events.lock();
        self.now.grow(size_bytes)?;
        events.push(Event::Grow { size_bytes });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_flushed_survives_every_crash() {
        let device = RecordingDevice::new(MemoryDevice::new(4096));
        device.write_at(0, &[&[1; 1024]]).unwrap();
        device.flush().unwrap();
        device.write_at(512, &[&[2; 1024]]).unwrap();
        let mut random = Random::new(1);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..100 {
            let bytes = device.crash_after(device.event_count(), &mut random).unwrap().to_bytes();
            assert_eq!(&bytes[..512], [1; 512]);
            assert!([1, 2].contains(&bytes[512]) && [0, 2].contains(&bytes[1024]));
            seen.insert((bytes[512], bytes[1024]));
        }
        assert_eq!(seen.len(), 4, "whole, torn both ways, absent");
    }
}
