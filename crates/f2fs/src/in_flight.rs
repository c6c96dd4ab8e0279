//! Holds in-flight writes: blocks that were allocated and are not known to be on the device yet (`batch`). Readers find
//! them here.
//!
//! Failure: blocks whose write failed stay readable here as long as the volume is open, and every later write is
//! refused. Callers: `blocks` and `batch`.

use std::collections::BTreeMap;
use std::sync::Arc;

use f2fs_disk::convert::{to_u64, to_usize, u32_len};
use f2fs_disk::{Block, BlockAddr};

use crate::error::{Error, Result};
use crate::locks::{Condvar, Mutex, Rank};

const BLOCK_BYTES: u64 = 4096;

/// Blocks being written, and whether a batch of them is pending.
#[derive(Debug)]
pub(crate) struct InFlight {
    state: Mutex<State>,
    finished: Condvar,
}

#[derive(Debug, Default)]
struct State {
    blocks: BTreeMap<BlockAddr, Arc<Block>>,
    is_writing: bool,
    failed: Option<Error>,
}

impl Default for InFlight {
    fn default() -> Self {
        Self { state: Mutex::new(Rank::InFlight, State::default()), finished: Condvar::new() }
    }
}

impl InFlight {
    pub(crate) fn get(&self, at: BlockAddr) -> Option<Arc<Block>> {
        self.state.lock().blocks.get(&at).cloned()
    }

    /// The blocks within a range of bytes.
    pub(crate) fn within(&self, offset: u64, len: usize) -> Vec<(BlockAddr, Arc<Block>)> {
        let state = self.state.lock();
        if state.blocks.is_empty() || len == 0 {
            return Vec::new();
        }
        let address = |byte: u64| BlockAddr(u32::try_from(byte / BLOCK_BYTES).unwrap_or(u32::MAX));
        let last = offset.saturating_add(to_u64(len)).saturating_sub(1);
        let found = state.blocks.range(address(offset)..=address(last));
        found.map(|(at, block)| (*at, Arc::clone(block))).collect()
    }

    /// Readers find these blocks here until their batch is finished.
    pub(crate) fn add(&self, at: BlockAddr, blocks: &[Arc<Block>]) {
        let mut state = self.state.lock();
        for (at, block) in (at.0..).zip(blocks) {
            state.blocks.insert(BlockAddr(at), Arc::clone(block));
        }
    }

    /// Waits until no batch is being written.
    ///
    /// # Errors
    /// The failure of any batch before.
    pub(crate) fn wait(&self) -> Result<()> {
        let mut state = self.state.lock();
        self.finished.wait_while(&mut state, |state| state.is_writing);
        state.failed.clone().map_or(Ok(()), Err)
    }

    /// Notes the beginning of a batch; the caller has waited for the one before.
    pub(crate) fn begin(&self) {
        self.state.lock().is_writing = true;
    }

    /// The batch is on the device, or its write failed.
    pub(crate) fn finish(&self, written: &Result<()>) {
        let mut state = self.state.lock();
        state.is_writing = false;
        match written {
            Ok(()) => state.blocks.clear(),
            Err(error) => state.failed = Some(error.clone()),
        }
        self.finished.notify_all();
    }
}

/// Copies in-flight blocks over the bytes that were read of their range.
pub(crate) fn lay_over(buf: &mut [u8], offset: u64, blocks: &[(BlockAddr, Arc<Block>)]) {
    for (at, block) in blocks {
        let skipped = to_usize(offset.saturating_sub(at.byte()));
        let start = to_usize(at.byte().saturating_sub(offset));
        let (Some(to), Some(from)) = (buf.get_mut(start..), block.get(skipped..)) else { continue };
        to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
    }
}

/// True if `blocks`, sorted and distinct, cover the whole byte range: the device need not be read then.
pub(crate) fn is_all(offset: u64, len: usize, blocks: &[(BlockAddr, Arc<Block>)]) -> bool {
    let end = offset.saturating_add(to_u64(len));
    let covered = blocks.first().is_some_and(|(at, _)| at.byte() <= offset)
        && blocks.last().is_some_and(|(at, _)| at.plus(1).byte() >= end);
    let span = blocks.first().zip(blocks.last()).map(|((first, _), (last, _))| last.0.saturating_sub(first.0));
    covered && span.is_some_and(|span| span.saturating_add(1) == u32_len(blocks.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use f2fs_disk::BLOCK_SIZE;

    fn holding(numbers: &[u32]) -> InFlight {
        let in_flight = InFlight::default();
        for number in numbers {
            let value = u8::try_from(*number).unwrap();
            in_flight.add(BlockAddr(*number), &[Arc::new([value; BLOCK_SIZE])]);
        }
        in_flight
    }

    #[test]
    fn reads_find_blocks_in_flight() {
        let in_flight = holding(&[2, 3, 5]);
        let read = |offset: u64, len: usize| {
            let mut buf = vec![0xff; len];
            let found = in_flight.within(offset, len);
            lay_over(&mut buf, offset, &found);
            (buf, is_all(offset, len, &found))
        };
        assert_eq!(read(2 * 4096 + 4095, 2), (vec![2, 3], true));
        assert_eq!(read(2 * 4096 - 1, 2), (vec![0xff, 2], false));
        let (buf, is_all) = read(3 * 4096 + 7, 2 * 4096);
        assert!(!is_all);
        let (three, rest) = buf.split_at(4096 - 7);
        let (four, five) = rest.split_at(4096);
        assert!(three.iter().all(|byte| *byte == 3) && four.iter().all(|byte| *byte == 0xff));
        assert_eq!(five, [5; 7]);
        assert_eq!(read(9 * 4096, 1), (vec![0xff], false));
        assert_eq!(read(2 * 4096, 0), (vec![], false));
    }

    #[test]
    fn blocks_that_failed_stay_readable_and_refuse_later_writes() {
        let in_flight = holding(&[2]);
        in_flight.begin();
        in_flight.finish(&Ok(()));
        assert!(in_flight.wait().is_ok() && in_flight.get(BlockAddr(2)).is_none());
        in_flight.add(BlockAddr(4), &[Arc::new([4; BLOCK_SIZE])]);
        in_flight.begin();
        in_flight.finish(&Err(Error::no_space(1, 0)));
        assert!(in_flight.wait().is_err() && in_flight.wait().is_err());
        assert!(in_flight.get(BlockAddr(4)).is_some());
    }
}
