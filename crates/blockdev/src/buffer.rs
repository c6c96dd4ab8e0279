//! Lends large reusable buffers, aligned to pages. Direct I/O uses them: `direct_io`, `read_ahead` and `ring`.
//!
//! Page alignment lets the system copy whole pages, and is what direct I/O needs. Reuse matters
//! more: a fresh large allocation costs a page fault for each of its pages.

use crate::convert::to_usize;
use parking_lot::Mutex;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Alignment of every buffer, in bytes: a page.
pub const ALIGNMENT: usize = 4096;

/// Bytes in memory that begin at a page boundary. Zeros at first.
#[derive(Debug)]
pub struct AlignedBuffer {
    storage: Box<[u8]>,
    start: usize,
    len: usize,
}

impl AlignedBuffer {
    /// A buffer of `len` zeros.
    #[must_use]
    pub fn new(len: usize) -> Self {
        // Rust has no safe aligned allocation: a page more is allocated, and its head left unused.
        let storage = vec![0; len.saturating_add(ALIGNMENT)].into_boxed_slice();
        let start = storage.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Self { storage, start, len }
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.storage[self.start..self.start + self.len]
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.storage[self.start..self.start + self.len]
    }
}

/// Equally long buffers, kept for reuse up to a limit. Cloning shares the pool.
#[derive(Debug, Clone)]
pub struct BufferPool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    buffer_len: usize,
    idle_count_max: usize,
    idle: Mutex<Vec<AlignedBuffer>>,
}

impl BufferPool {
    /// A pool of buffers of `buffer_len` bytes that keeps at most `idle_bytes_max` bytes waiting.
    #[must_use]
    pub fn new(buffer_len: usize, idle_bytes_max: u64) -> Self {
        Self {
            shared: Arc::new(Shared {
                buffer_len,
                idle_count_max: to_usize(idle_bytes_max) / buffer_len.max(1),
                idle: Mutex::new(Vec::new()),
            }),
        }
    }

    /// A buffer with unspecified content: zeros, or that of its last use. Never waits.
    #[must_use]
    pub fn take(&self) -> PooledBuffer {
        let idle = self.shared.idle.lock().pop();
        let buffer = idle.unwrap_or_else(|| AlignedBuffer::new(self.shared.buffer_len));
        PooledBuffer { buffer: Some(buffer), shared: Arc::clone(&self.shared) }
    }

    /// Buffers waiting for reuse.
    #[must_use]
    pub fn idle_count(&self) -> usize {
        self.shared.idle.lock().len()
    }
}

/// A buffer that goes back to its pool when it is dropped.
#[derive(Debug)]
pub struct PooledBuffer {
    /// Empty only while dropping.
    buffer: Option<AlignedBuffer>,
    shared: Arc<Shared>,
}

impl Deref for PooledBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.buffer.as_deref().unwrap_or_default()
    }
}

impl DerefMut for PooledBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.buffer.as_deref_mut().unwrap_or_default()
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        let mut idle = self.shared.idle.lock();
        if idle.len() < self.shared.idle_count_max {
            idle.extend(self.buffer.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_zeroed_and_exactly_as_long_as_asked() {
        for len in [0, 1, 4095, 4096, 1 << 20] {
            let buffer = AlignedBuffer::new(len);
            assert_eq!(buffer.len(), len);
            assert_eq!(buffer.as_ptr().addr() % ALIGNMENT, 0);
            assert!(buffer.iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn a_pool_reuses_buffers_and_keeps_no_more_than_its_limit() {
        let pool = BufferPool::new(8192, 2 * 8192 + 100);
        let mut first = pool.take();
        first[0] = 7;
        let address = first.as_ptr();
        drop(first);
        assert_eq!(pool.idle_count(), 1);
        assert_eq!(pool.take().as_ptr(), address);
        let many: Vec<_> = (0..5).map(|_| pool.take()).collect();
        assert_eq!(pool.idle_count(), 0);
        assert!(many.iter().all(|buffer| buffer.len() == 8192));
        drop(many);
        assert_eq!(pool.idle_count(), 2);
    }
}
