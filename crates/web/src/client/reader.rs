//! Reads bytes of the image from memory, from the cache on disk, or from the server, and has several ranges in flight.
//!
//! A reader fetches what it needs itself. Ranges that were announced, the later parts of long reads and the window
//! behind the one that is being read are fetched by [`WORKERS`] threads, which start with the first such range: opening
//! a device starts none, so that a process can restrict itself after opening it.
//!
//! Failure: a range that a worker cannot fetch is fetched again by the reader that needs it, which gets the error.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::thread;

use blockdev::Kind;
use parking_lot::{Condvar, Mutex};

use super::blocks::{Blocks, Purpose, Step, copy_into};
use super::disk::DiskCache;
use super::origin::Origin;
use super::window::{BLOCK_BYTES, PIECE_BYTES_MAX};
use crate::error::Result;
use crate::number::{to_u64, to_usize};

/// Threads that fetch ahead, each with a connection of its own.
const WORKERS: usize = 4;
/// Ranges that wait for a worker; further ones are left to the readers.
const QUEUE_MAX: usize = 32;

/// Reads an image that is elsewhere.
pub(crate) struct Reader(Arc<Shared>);

struct Shared {
    origin: Origin,
    disk: Option<DiskCache>,
    size_bytes: u64,
    blocks: Mutex<Blocks>,
    /// A range is no longer in flight.
    landed: Condvar,
    queue: Mutex<Queue>,
    /// The queue has a range, or the reader is gone.
    queued: Condvar,
}

#[derive(Default)]
struct Queue {
    ranges: VecDeque<Range<u64>>,
    worker_count: usize,
    is_closed: bool,
}

impl Reader {
    /// Reads an image of `size_bytes`, whose first bytes are `head`.
    pub(crate) fn new(origin: Origin, disk: Option<DiskCache>, size_bytes: u64, head: &[u8]) -> Self {
        let mut blocks = Blocks::new(size_bytes);
        // A short piece would look like the end of the image.
        let whole = to_u64(head.len()) / BLOCK_BYTES;
        let is_all = to_u64(head.len()) == size_bytes;
        let count = if is_all { size_bytes.div_ceil(BLOCK_BYTES) } else { whole };
        let head = head.get(..to_usize(count.saturating_mul(BLOCK_BYTES)).min(head.len())).unwrap_or_default();
        blocks.land(&(0..count), head, Some(Purpose::Trees));
        if let Some(disk) = disk.as_ref().filter(|_| !head.is_empty()) {
            disk.write(0, head);
        }
        Self(Arc::new(Shared {
            origin,
            disk,
            size_bytes,
            blocks: Mutex::new(blocks),
            landed: Condvar::new(),
            queue: Mutex::default(),
            queued: Condvar::new(),
        }))
    }

    /// Fills `buf` with the bytes from `offset` on, which lie inside the image.
    ///
    /// # Errors
    /// Those of the server and the network.
    pub(crate) fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let (mut at, mut rest) = (offset, buf);
        let purpose = match blockdev::tag().kind {
            Kind::Metadata | Kind::Superblock => Purpose::Trees,
            _ => Purpose::Other,
        };
        while !rest.is_empty() {
            let mut blocks = self.0.blocks.lock();
            let step = blocks.step(at, rest, purpose);
            let count = match step {
                Step::Copied(count) => {
                    let next = blocks.take_next_window();
                    drop(blocks);
                    self.enqueue(next);
                    count
                }
                Step::Wait => {
                    self.0.landed.wait(&mut blocks);
                    0
                }
                Step::Fetch(range) => {
                    let behind = range.end.saturating_mul(BLOCK_BYTES);
                    let end = at.saturating_add(to_u64(rest.len()));
                    let later = blocks.take_announced(behind, end.saturating_sub(behind));
                    drop(blocks);
                    self.enqueue(later);
                    let start = range.start.saturating_mul(BLOCK_BYTES);
                    let count = self.0.fetch(&range, purpose, |bytes| copy(start, bytes, at, rest))?;
                    if count > 0 {
                        self.0.blocks.lock().note_read(at, count);
                    }
                    count
                }
            };
            at = at.saturating_add(to_u64(count));
            rest = rest.get_mut(count..).unwrap_or_default();
        }
        Ok(())
    }

    /// Fetches a range meanwhile.
    pub(crate) fn announce(&self, offset: u64, len: u64) {
        let ranges = self.0.blocks.lock().take_announced(offset, len.min(8 * PIECE_BYTES_MAX));
        self.enqueue(ranges);
    }

    fn enqueue(&self, ranges: impl IntoIterator<Item = Range<u64>>) {
        for range in ranges {
            if !self.hand_over(range.clone()) {
                self.0.give_up(&range);
            }
        }
    }

    /// False if no worker will fetch the range.
    fn hand_over(&self, range: Range<u64>) -> bool {
        let mut queue = self.0.queue.lock();
        if queue.ranges.len() >= QUEUE_MAX {
            return false;
        }
        if queue.worker_count < WORKERS && (queue.worker_count == 0 || !queue.ranges.is_empty()) {
            let shared = Arc::clone(&self.0);
            let started = thread::Builder::new().name("web".to_owned()).spawn(move || shared.work());
            match started {
                Ok(_) => queue.worker_count += 1,
                Err(_) if queue.worker_count == 0 => return false,
                Err(_) => {}
            }
        }
        queue.ranges.push_back(range);
        self.0.queued.notify_one();
        true
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        queue.is_closed = true;
        queue.ranges.clear();
        self.0.queued.notify_all();
    }
}

impl Shared {
    /// Fetches queued ranges until the reader is gone.
    fn work(&self) {
        loop {
            let mut queue = self.queue.lock();
            let range = loop {
                if queue.is_closed {
                    return;
                }
                match queue.ranges.pop_front() {
                    Some(range) => break range,
                    None => self.queued.wait(&mut queue),
                }
            };
            drop(queue);
            if let Err(error) = self.fetch(&range, Purpose::Other, |_| ()) {
                tracing::debug!(%error, "read ahead");
            }
        }
    }

    /// Fetches the first blocks of a reserved range, and gives them to `take` before others can evict them.
    fn fetch<T>(&self, range: &Range<u64>, purpose: Purpose, take: impl FnOnce(&[u8]) -> T) -> Result<T> {
        let (kept, missing_end) = match &self.disk {
            Some(disk) => disk.read(range),
            None => (Vec::new(), range.end),
        };
        let is_from_network = kept.is_empty();
        let bytes = if is_from_network {
            let offset = range.start.saturating_mul(BLOCK_BYTES);
            let end = missing_end.saturating_mul(BLOCK_BYTES).min(self.size_bytes);
            let fetched = self.origin.fetch(offset, to_usize(end.saturating_sub(offset)));
            let bytes = fetched.inspect_err(|_| self.give_up(range))?;
            if let Some(disk) = &self.disk {
                disk.write(range.start, &bytes);
            }
            bytes
        } else {
            kept
        };
        let taken = take(&bytes);
        self.blocks.lock().land(range, &bytes, is_from_network.then_some(purpose));
        self.landed.notify_all();
        Ok(taken)
    }

    fn give_up(&self, range: &Range<u64>) {
        self.blocks.lock().land(range, &[], None);
        self.landed.notify_all();
    }
}

/// Copies the bytes at `at` out of those that begin at `start`; returns how many.
fn copy(start: u64, bytes: &[u8], at: u64, to: &mut [u8]) -> usize {
    copy_into(to, bytes.get(to_usize(at.saturating_sub(start))..).unwrap_or_default())
}
