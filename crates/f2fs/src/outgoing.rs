//! Blocks that have their places and have not arrived there yet (`departure`): readers find them here.
//!
//! Failure: what did not arrive is found as long as the volume is open, and every later write is refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use f2fs_disk::convert::{to_u64, to_usize, u32_len};
use f2fs_disk::{Block, BlockAddr};

use crate::error::{Error, Result};
use crate::locks::{Condvar, Mutex, Rank};

const BLOCK_BYTES: u64 = 4096;

/// Blocks that have not arrived.
#[derive(Debug)]
pub(crate) struct Outgoing {
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct State {
    blocks: BTreeMap<BlockAddr, Arc<Block>>,
    is_under_way: bool,
    failed: Option<Error>,
}

impl Default for Outgoing {
    fn default() -> Self {
        Self { state: Mutex::new(Rank::Outgoing, State::default()), arrived: Condvar::new() }
    }
}

impl Outgoing {
    pub(crate) fn get(&self, at: BlockAddr) -> Option<Arc<Block>> {
        self.state.lock().blocks.get(&at).cloned()
    }

    /// Those that lie in a range of bytes.
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

    /// Blocks are found here until they have arrived.
    pub(crate) fn keep(&self, at: BlockAddr, blocks: &[Arc<Block>]) {
        let mut state = self.state.lock();
        for (at, block) in (at.0..).zip(blocks) {
            state.blocks.insert(BlockAddr(at), Arc::clone(block));
        }
    }

    /// Waits until nothing is under way.
    ///
    /// # Errors
    /// Why something did not arrive, at any time before.
    pub(crate) fn wait(&self) -> Result<()> {
        let mut state = self.state.lock();
        self.arrived.wait_while(&mut state, |state| state.is_under_way);
        state.failed.clone().map_or(Ok(()), Err)
    }

    /// Something is under way; nothing else is.
    pub(crate) fn depart(&self) {
        self.state.lock().is_under_way = true;
    }

    /// It has arrived, or never will.
    pub(crate) fn end(&self, sent: &Result<()>) {
        let mut state = self.state.lock();
        state.is_under_way = false;
        match sent {
            Ok(()) => state.blocks.clear(),
            Err(error) => state.failed = Some(error.clone()),
        }
        self.arrived.notify_all();
    }
}

/// Puts blocks where a read of their range has them.
pub(crate) fn lay_over(buf: &mut [u8], offset: u64, blocks: &[(BlockAddr, Arc<Block>)]) {
    for (at, block) in blocks {
        let skipped = to_usize(offset.saturating_sub(at.byte()));
        let start = to_usize(at.byte().saturating_sub(offset));
        let (Some(to), Some(from)) = (buf.get_mut(start..), block.get(skipped..)) else { continue };
        to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
    }
}

/// True where blocks, each once and in order, are all that a range touches.
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

    fn kept(numbers: &[u32]) -> Outgoing {
        let outgoing = Outgoing::default();
        for number in numbers {
            let value = u8::try_from(*number).unwrap();
            outgoing.keep(BlockAddr(*number), &[Arc::new([value; BLOCK_SIZE])]);
        }
        outgoing
    }

    #[test]
    fn reads_have_what_has_not_arrived() {
        let outgoing = kept(&[2, 3, 5]);
        let read = |offset: u64, len: usize| {
            let mut buf = vec![0xff; len];
            let found = outgoing.within(offset, len);
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
    fn what_failed_stays_and_is_told_ever_after() {
        let outgoing = kept(&[2]);
        outgoing.depart();
        outgoing.end(&Ok(()));
        assert!(outgoing.wait().is_ok() && outgoing.get(BlockAddr(2)).is_none());
        outgoing.keep(BlockAddr(4), &[Arc::new([4; BLOCK_SIZE])]);
        outgoing.depart();
        outgoing.end(&Err(Error::NoSpace));
        assert!(outgoing.wait().is_err() && outgoing.wait().is_err());
        assert!(outgoing.get(BlockAddr(4)).is_some());
    }
}
