//! A wrapper that records each request to a device: time, operation, range, purpose, and thread.
//!
//! One line for each request, with fields separated by one blank:
//!
//! ```text
//! # spinney trace 1: begin_us took_us op offset bytes kind mirror thread
//! 1532 41 write 30408704 65536 metadata 1 3
//! ```
//!
//! Times are microseconds since the beginning of the recording; threads are numbered in the order of their first
//! requests. Callers: `spinney trace` and `bench runs`.

use std::collections::HashMap;
use std::fmt;
use std::fs::Metadata;
use std::io::{self, Write};
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::Instant;

use parking_lot::Mutex;

use crate::convert::to_u64;
use crate::device::parts_len;
use crate::tag::{tag, tagged};
use crate::{Device, Op, Result, Write as Request};

/// The first line of a recording.
pub const HEADER: &str = "# spinney trace 1: begin_us took_us op offset bytes kind mirror thread";

/// Where requests are written down. Several devices may share one.
pub struct Recorder {
    began: Instant,
    state: Mutex<State>,
}

struct State {
    out: Box<dyn Write + Send>,
    threads: HashMap<ThreadId, usize>,
    /// The first failure: later lines are lost.
    failed: Option<io::Error>,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("began", &self.began).finish_non_exhaustive()
    }
}

impl Recorder {
    /// Begins a recording. `out` should be buffered.
    pub fn new(out: Box<dyn Write + Send>) -> Arc<Self> {
        let mut state = State { out, threads: HashMap::new(), failed: None };
        state.failed = writeln!(state.out, "{HEADER}").err();
        Arc::new(Self { began: Instant::now(), state: Mutex::new(state) })
    }

    /// Flushes the buffer.
    ///
    /// # Errors
    /// The first failure since the recording began: it is incomplete then.
    pub fn finish(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        match state.failed.take() {
            Some(error) => Err(error),
            None => state.out.flush(),
        }
    }

    fn record(&self, begin: Instant, (op, offset, len): (Op, u64, u64)) {
        let took = begin.elapsed().as_micros();
        let at = begin.saturating_duration_since(self.began).as_micros();
        let tag = tag();
        let mut state = self.state.lock();
        if state.failed.is_some() {
            return;
        }
        let next = state.threads.len();
        let thread = *state.threads.entry(std::thread::current().id()).or_insert(next);
        let line = writeln!(state.out, "{at} {took} {op} {offset} {len} {} {} {thread}", tag.kind, tag.mirror);
        state.failed = line.err();
    }
}

/// A device whose requests are recorded.
#[derive(Debug)]
pub struct RecordedDevice {
    inner: Arc<dyn Device>,
    recorder: Arc<Recorder>,
}

impl RecordedDevice {
    /// Writes down the requests to `inner`.
    pub fn new(inner: Arc<dyn Device>, recorder: Arc<Recorder>) -> Self {
        Self { inner, recorder }
    }

    fn recorded<R>(&self, request: (Op, u64, u64), run: impl FnOnce(&dyn Device) -> R) -> R {
        let begin = Instant::now();
        let answer = run(&*self.inner);
        self.recorder.record(begin, request);
        answer
    }
}

impl Device for RecordedDevice {
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
        self.recorded((Op::Read, offset, to_u64(buf.len())), |device| device.read_at(offset, buf))
    }

    fn will_read(&self, offset: u64, len: u64) {
        self.inner.will_read(offset, len);
    }

    fn next_data(&self, offset: u64) -> u64 {
        self.inner.next_data(offset)
    }

    fn read_parts_at(&self, offset: u64, parts: &mut [&mut [u8]]) -> Result<()> {
        let len = parts.iter().map(|part| to_u64(part.len())).sum();
        self.recorded((Op::Read, offset, len), |device| device.read_parts_at(offset, parts))
    }

    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        self.recorded((Op::Write, offset, parts_len(parts)), |device| device.write_at(offset, parts))
    }

    fn submit(&self, writes: &[Request<'_>]) -> Vec<Result<()>> {
        if self.inner.queue_depth() == 1 {
            let write = |request: &Request<'_>| tagged(request.tag, || self.write_at(request.offset, request.parts));
            return writes.iter().map(write).collect();
        }
        // They are under way together: when each of them ended, the device does not say.
        let begin = Instant::now();
        let answers = self.inner.submit(writes);
        for write in writes {
            let request = (Op::Write, write.offset, parts_len(write.parts));
            tagged(write.tag, || self.recorder.record(begin, request));
        }
        answers
    }

    fn queue_depth(&self) -> usize {
        self.inner.queue_depth()
    }

    fn flush(&self) -> Result<()> {
        self.recorded((Op::Flush, 0, 0), |device| device.flush())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.recorded((Op::Discard, offset, len), |device| device.discard(offset, len))
    }

    fn check_room(&self, offset: u64, len: u64, spare: u64) -> Result<()> {
        self.inner.check_room(offset, len, spare)
    }

    fn grow(&self, size_bytes: u64) -> Result<()> {
        self.recorded((Op::Grow, 0, size_bytes), |device| device.grow(size_bytes))
    }

    fn shrink(&self, size_bytes: u64) -> Result<()> {
        self.recorded((Op::Shrink, 0, size_bytes), |device| device.shrink(size_bytes))
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
    use crate::{Kind, Tag, tagged};

    /// The written lines, for the test.
    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn each_request_is_a_line() {
        let written = Shared::default();
        let recorder = Recorder::new(Box::new(written.clone()));
        let device = RecordedDevice::new(Arc::new(MemoryDevice::new(1 << 20)), Arc::clone(&recorder));
        tagged(Tag { kind: Kind::Metadata, mirror: 1 }, || device.write_at(4096, &[&[1; 100], &[2; 412]])).unwrap();
        device.read_at(4096, &mut [0; 512]).unwrap();
        device.flush().unwrap();
        recorder.finish().unwrap();
        let text = String::from_utf8(written.0.lock().clone()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], HEADER);
        let requests: Vec<Vec<&str>> = lines[1..].iter().map(|line| line.split(' ').skip(2).collect()).collect();
        assert_eq!(requests[0], ["write", "4096", "512", "metadata", "1", "0"]);
        assert_eq!(requests[1], ["read", "4096", "512", "other", "0", "0"]);
        assert_eq!(requests[2], ["flush", "0", "0", "other", "0", "0"]);
    }

    /// A recording that cannot be written fails at its end, and does not disturb the device.
    #[test]
    fn a_full_disk_ends_the_recording_only() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let recorder = Recorder::new(Box::new(Full));
        let device = RecordedDevice::new(Arc::new(MemoryDevice::new(1 << 20)), Arc::clone(&recorder));
        device.write_at(0, &[&[7; 4096]]).unwrap();
        assert_eq!(recorder.finish().unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
