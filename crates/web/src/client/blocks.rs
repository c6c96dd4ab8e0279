//! Holds the blocks that are in memory and the ranges that are being fetched: the state behind the lock of `reader`.
//!
//! Invariants: a block is never fetched twice at the same time; at most [`CACHE_BYTES_MAX`] are kept, and of those that
//! have to go a used one stays for one more turn of the clock.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;

use super::window::{BLOCK_BYTES, Budget, PIECE_BYTES_MAX, Plan, blocks_of};
use crate::number::{to_u64, to_usize};

/// Bytes of blocks in memory. The engines keep what they have verified; this holds what was fetched ahead of them.
pub(crate) const CACHE_BYTES_MAX: u64 = 64 << 20;
/// A window of at least so many blocks asks for the next one when a reader reaches its middle.
const AHEAD_BLOCKS_MIN: u64 = 64;

/// The kind of bytes for which a range is fetched; each has a budget of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Blocks of trees.
    Trees,
    /// Anything else.
    Other,
}

struct Slot {
    bytes: Box<[u8]>,
    /// It came over the network, for this purpose, and no reader has wanted it so far.
    unused: Option<Purpose>,
    /// It was read since the clock passed it.
    is_recent: bool,
}

/// The next step of a reader.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// So many bytes were copied.
    Copied(usize),
    /// Another reader fetches the block: wait for it.
    Wait,
    /// Fetch these blocks, which are noted as being fetched.
    Fetch(Range<u64>),
}

/// Blocks in memory and in flight.
#[derive(Default)]
pub(crate) struct Blocks {
    slots: HashMap<u64, Slot>,
    clock: VecDeque<u64>,
    /// Ranges that are being fetched, by their first block.
    in_flight: BTreeMap<u64, u64>,
    trees: Budget,
    others: Budget,
    /// The block at which to fetch ahead, and the first block of that window.
    mark: Option<(u64, u64)>,
    /// The reader passed the mark: the window that begins here is wanted soon.
    next_window: Option<u64>,
    /// Blocks of the device.
    end: u64,
}

impl Blocks {
    pub(crate) fn new(size_bytes: u64) -> Self {
        Self { end: size_bytes.div_ceil(BLOCK_BYTES), ..Self::default() }
    }

    /// Copies bytes that are here to the begin of `buf`, or says what to do about the first that are not.
    pub(crate) fn step(&mut self, offset: u64, buf: &mut [u8], purpose: Purpose) -> Step {
        let (first, copied) = (offset / BLOCK_BYTES, self.copy(offset, buf));
        if copied > 0 {
            return Step::Copied(copied);
        }
        if self.is_in_flight(first) {
            return Step::Wait;
        }
        let wanted = blocks_of(offset, buf.len());
        let needed = to_u64((first..wanted.end).take_while(|block| self.is_missing(*block)).count());
        let plan = match purpose {
            Purpose::Trees => self.trees.plan_tree_block(needed),
            Purpose::Other => Plan::Window(self.others.window_of_contents(needed)),
        };
        Step::Fetch(match plan {
            Plan::Window(len) => self.reserve_window(first, needed, len),
            Plan::Chunk(len) => self.reserve_chunk(first, needed, len),
        })
    }

    /// Copies the bytes from `offset` on that are here.
    fn copy(&mut self, offset: u64, buf: &mut [u8]) -> usize {
        let mut done = 0;
        while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let at = offset.saturating_add(to_u64(done));
            let block = at / BLOCK_BYTES;
            let Some(slot) = self.slots.get(&block) else { break };
            let Some(bytes) = slot.bytes.get(to_usize(at % BLOCK_BYTES)..).filter(|bytes| !bytes.is_empty()) else {
                break;
            };
            let len = copy_into(rest, bytes);
            done += len;
            self.note_used(block);
        }
        done
    }

    /// Notes that a reader has bytes of these blocks.
    pub(crate) fn note_read(&mut self, offset: u64, len: usize) {
        blocks_of(offset, len).for_each(|block| self.note_used(block));
    }

    fn note_used(&mut self, block: u64) {
        let Some(slot) = self.slots.get_mut(&block) else { return };
        slot.is_recent = true;
        if let Some(purpose) = slot.unused.take() {
            self.budget(purpose).use_block();
        }
        if let Some((_, next)) = self.mark.take_if(|(mark, _)| *mark == block) {
            self.next_window = Some(next);
        }
    }

    /// The window that should be fetched ahead now, noted as being fetched.
    pub(crate) fn take_next_window(&mut self) -> Option<Range<u64>> {
        let first = self.next_window.take()?;
        // Ahead of a reader, only bytes that used ones have paid for.
        let len = self.others.window_of_contents(1).saturating_sub(1);
        if len < AHEAD_BLOCKS_MIN || !self.is_missing(first) {
            return None;
        }
        Some(self.reserve(first, len))
    }

    /// The missing parts of a range that will be read, in pieces of one request each, noted as being fetched. At most
    /// half of the cache is announced at a time.
    pub(crate) fn take_announced(&mut self, offset: u64, len: u64) -> Vec<Range<u64>> {
        let wanted = blocks_of(offset, to_usize(len.min(CACHE_BYTES_MAX / 2)));
        let (mut at, end) = (wanted.start, wanted.end.min(self.end));
        let mut found = Vec::new();
        while at < end {
            if !self.is_missing(at) {
                at += 1;
                continue;
            }
            let range = self.reserve(at, (end - at).min(PIECE_BYTES_MAX / BLOCK_BYTES));
            at = range.end;
            found.push(range);
        }
        found
    }

    /// Notes up to `len` missing blocks from `first` on as being fetched.
    fn reserve(&mut self, first: u64, len: u64) -> Range<u64> {
        let end = first.saturating_add(len.max(1)).min(self.end.max(first + 1));
        let end = (first + 1..end).find(|block| !self.is_missing(*block)).unwrap_or(end);
        self.in_flight.insert(first, end);
        first..end
    }

    /// Notes a window of `len` blocks as being fetched, of which `needed` from `first` on are wanted. A reader that
    /// goes downwards has the blocks behind them: its window ends with them.
    fn reserve_window(&mut self, first: u64, needed: u64, len: u64) -> Range<u64> {
        let behind = first.saturating_add(needed);
        if len <= needed || behind >= self.end || self.is_missing(behind) {
            return self.reserve(first, len);
        }
        let lowest = behind.saturating_sub(len);
        let start = (lowest..first).rev().take_while(|block| self.is_missing(*block)).last().unwrap_or(first);
        self.in_flight.insert(start, behind);
        start..behind
    }

    /// Notes the missing blocks around the needed ones as being fetched, as far as they lie in the same chunk.
    fn reserve_chunk(&mut self, first: u64, needed: u64, len: u64) -> Range<u64> {
        let lowest = first - first % len.max(1);
        let start = (lowest..first).rev().take_while(|block| self.is_missing(*block)).last().unwrap_or(first);
        let end = lowest.saturating_add(len).max(first.saturating_add(needed)).min(self.end.max(first + 1));
        let end = (first + 1..end).find(|block| !self.is_missing(*block)).unwrap_or(end);
        self.in_flight.insert(start, end);
        start..end
    }

    fn budget(&mut self, purpose: Purpose) -> &mut Budget {
        match purpose {
            Purpose::Trees => &mut self.trees,
            Purpose::Other => &mut self.others,
        }
    }

    /// A range was fetched, or could not be: the note goes. `bytes` begin with the first block and may be fewer;
    /// `paid` says for what they came over the network.
    pub(crate) fn land(&mut self, range: &Range<u64>, bytes: &[u8], paid: Option<Purpose>) {
        self.in_flight.remove(&range.start);
        let mut count = 0;
        for (block, part) in range.clone().zip(bytes.chunks(to_usize(BLOCK_BYTES))) {
            let slot = Slot { bytes: part.into(), unused: paid, is_recent: false };
            if self.slots.insert(block, slot).is_none() {
                self.clock.push_back(block);
            }
            count += 1;
        }
        if let Some(purpose) = paid {
            self.budget(purpose).fetch(count);
        }
        if count >= AHEAD_BLOCKS_MIN && paid == Some(Purpose::Other) {
            self.mark = Some((range.start + count / 2, range.start + count));
        }
        self.evict();
    }

    fn evict(&mut self) {
        let most = to_usize(CACHE_BYTES_MAX / BLOCK_BYTES);
        // Ends: each turn forgets a block, or takes its second chance away.
        while self.slots.len() > most {
            let Some(block) = self.clock.pop_front() else { return };
            match self.slots.get_mut(&block) {
                Some(slot) if slot.is_recent => {
                    slot.is_recent = false;
                    self.clock.push_back(block);
                }
                _ => drop(self.slots.remove(&block)),
            }
        }
    }

    fn is_missing(&self, block: u64) -> bool {
        !self.slots.contains_key(&block) && !self.is_in_flight(block)
    }

    fn is_in_flight(&self, block: u64) -> bool {
        self.in_flight.range(..=block).next_back().is_some_and(|(_, end)| block < *end)
    }
}

/// Copies as many bytes as fit; returns how many.
pub(crate) fn copy_into(to: &mut [u8], from: &[u8]) -> usize {
    let len = from.len().min(to.len());
    if let (Some(to), Some(from)) = (to.get_mut(..len), from.get(..len)) {
        to.copy_from_slice(from);
    }
    len
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: usize = 4096;

    fn read(blocks: &mut Blocks, offset: u64, len: usize) -> (Vec<u8>, Vec<Range<u64>>) {
        let (mut buf, mut done, mut fetched) = (vec![0; len], 0, Vec::new());
        while done < len {
            match blocks.step(offset + to_u64(done), &mut buf[done..], Purpose::Other) {
                Step::Copied(count) => done += count,
                Step::Wait => panic!("nobody fetches"),
                Step::Fetch(range) => {
                    let bytes: Vec<u8> = range.clone().flat_map(|block| [block.to_le_bytes()[0]; BLOCK]).collect();
                    blocks.land(&range, &bytes, Some(Purpose::Other));
                    fetched.push(range);
                }
            }
        }
        (buf, fetched)
    }

    #[test]
    fn blocks_are_fetched_once() {
        let mut blocks = Blocks::new(100 << 20);
        let (bytes, fetched) = read(&mut blocks, 4000, 200);
        assert_eq!((bytes, fetched.len()), ([vec![0; 96], vec![1; 104]].concat(), 1));
        assert!(read(&mut blocks, 4096, 100).1.is_empty());
    }

    #[test]
    fn readers_of_blocks_in_flight_wait() {
        let mut blocks = Blocks::new(100 << 20);
        let mut buf = [0; 10];
        let Step::Fetch(range) = blocks.step(0, &mut buf, Purpose::Other) else { panic!("no fetch") };
        assert_eq!(blocks.step(5, &mut buf, Purpose::Other), Step::Wait);
        // The fetch failed: the next reader tries again.
        blocks.land(&range, &[], Some(Purpose::Other));
        assert!(matches!(blocks.step(5, &mut buf, Purpose::Other), Step::Fetch(_)));
    }

    /// Leaves of a tree that was written from its end to its begin: each read was a request of its own.
    #[test]
    fn windows_grow_downwards_too() {
        let mut blocks = Blocks::new(100 << 20);
        let fetched = (0..4096).rev().map(|block| read(&mut blocks, block * 16_384 % (64 << 20), 16_384).1.len());
        let requests: usize = fetched.sum();
        assert!(requests < 40, "{requests} requests for 64 MiB");
    }

    #[test]
    fn announced_ranges_are_cut_into_requests_and_skip_what_is_there() {
        let mut blocks = Blocks::new(100 << 20);
        read(&mut blocks, 8192, 1);
        let announced = blocks.take_announced(0, 10 << 20);
        assert_eq!(announced.first(), Some(&(0..2)));
        assert_eq!(announced.iter().map(|range| range.end - range.start).max(), Some(1024));
        assert!(blocks.take_announced(0, 10 << 20).is_empty());
        assert!(blocks.take_announced(u64::MAX - 5, 5).is_empty());
    }

    #[test]
    fn memory_is_bounded_and_the_last_block_may_be_short() {
        let size = 3 * CACHE_BYTES_MAX + 100;
        let mut blocks = Blocks::new(size);
        for offset in (0..3 * CACHE_BYTES_MAX).step_by(1 << 20) {
            read(&mut blocks, offset, 1 << 20);
        }
        assert!(to_u64(blocks.slots.len()) <= CACHE_BYTES_MAX / BLOCK_BYTES);
        assert!(blocks.clock.len() <= 2 * blocks.slots.len());
        let mut blocks = Blocks::new(size);
        let Step::Fetch(range) = blocks.step(size - 50, &mut [0; 50], Purpose::Other) else { panic!("no fetch") };
        assert_eq!(range.end, size.div_ceil(BLOCK_BYTES));
        blocks.land(&range, &[7; 100], Some(Purpose::Other));
        assert_eq!(blocks.step(size - 50, &mut [0; 50], Purpose::Other), Step::Copied(50));
    }
}
