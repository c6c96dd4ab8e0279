//! Keeps buffers for the copies of blocks that a commit writes, from one commit to the next. `txn/write_out` takes
//! them.
//!
//! A commit of some hundred blocks copies megabytes. If the allocator returned that memory to the system in between,
//! each commit would get it back page by page, zeroed, and take several times as long (on a virtual machine 20 ms for
//! 450 blocks, which are copied in one).

use crate::locks::{Mutex, Rank};

/// Bytes that are kept.
const KEPT_BYTES_MAX: usize = 16 << 20;

/// The idle buffers.
pub(crate) struct Buffers(Mutex<Vec<Vec<u8>>>);

impl Buffers {
    pub(crate) fn none() -> Self {
        Self(Mutex::new(Rank::Counters, Vec::new()))
    }

    /// An empty buffer for `bytes`; a new one gets at least `usual_bytes`, the size of most requests.
    pub(super) fn take(&self, bytes: usize, usual_bytes: usize) -> Vec<u8> {
        let mut buffer = self.0.lock().pop().unwrap_or_else(|| Vec::with_capacity(bytes.max(usual_bytes)));
        buffer.reserve_exact(bytes);
        buffer
    }

    /// Returns a buffer to the pool unless it is full.
    pub(super) fn give_back(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        let mut kept = self.0.lock();
        let bytes = kept.iter().chain([&buffer]).map(Vec::capacity).sum::<usize>();
        if bytes <= KEPT_BYTES_MAX {
            kept.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_again_and_what_is_kept_is_bounded() {
        let buffers = Buffers::none();
        let mut first = buffers.take(100, 4096);
        assert!(first.is_empty() && first.capacity() >= 4096);
        first.extend([1; 100]);
        let place = first.as_ptr();
        buffers.give_back(first);
        let again = buffers.take(4096, 4096);
        assert!(again.is_empty() && again.as_ptr() == place);
        buffers.give_back(again);
        let all: Vec<_> = (0..40).map(|_| buffers.take(1 << 20, 1 << 20)).collect();
        all.into_iter().for_each(|buffer| buffers.give_back(buffer));
        let kept: usize = buffers.0.lock().iter().map(Vec::capacity).sum();
        assert!((15 << 20..=KEPT_BYTES_MAX).contains(&kept), "{kept}");
    }
}
