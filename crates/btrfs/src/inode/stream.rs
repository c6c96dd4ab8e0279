//! Recognises sequential reads of a file, from which read-ahead follows. Called by `file/read`.
//!
//! Readers change these numbers without a lock: where several read one file at once, the pattern may be wrong, and
//! bytes are fetched in vain.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes fetched ahead of a sequential reader.
const AHEAD_BYTES: u64 = 4 << 20;
/// Reads fetched ahead of a reader with a constant stride.
const AHEAD_READS: u64 = 8;

/// The last reads.
#[derive(Debug)]
pub(crate) struct Stream {
    start: AtomicU64,
    end: AtomicU64,
    /// Distance between the starts of the last two reads.
    step: AtomicU64,
    /// The end, or the last read, up to which bytes were fetched ahead.
    announced: AtomicU64,
}

impl Default for Stream {
    fn default() -> Self {
        let nowhere = || AtomicU64::new(u64::MAX);
        Self { start: nowhere(), end: nowhere(), step: nowhere(), announced: nowhere() }
    }
}

impl Stream {
    /// Notes a read; returns the ranges to fetch ahead that were not returned before.
    pub(crate) fn note(&self, read: &Range<u64>) -> Vec<Range<u64>> {
        let before = self.start.swap(read.start, Ordering::Relaxed);
        let end = self.end.swap(read.end, Ordering::Relaxed);
        let step = read.start.wrapping_sub(before);
        let is_steady = self.step.swap(step, Ordering::Relaxed) == step;
        if read.start == end {
            return self.go_on(read.end).into_iter().collect();
        }
        if !is_steady || step == 0 {
            return Vec::new();
        }
        let nth = |count: u64| read.start.wrapping_add(step.wrapping_mul(count));
        let last = nth(AHEAD_READS);
        let was_announced = self.announced.swap(last, Ordering::Relaxed) == nth(AHEAD_READS - 1);
        let first = if was_announced { AHEAD_READS } else { 1 };
        let len = read.end.saturating_sub(read.start);
        (first..=AHEAD_READS).map(|count| nth(count)..nth(count).saturating_add(len)).collect()
    }

    /// The range behind `end` to fetch ahead, in large pieces.
    fn go_on(&self, end: u64) -> Option<Range<u64>> {
        let wanted = end.saturating_add(AHEAD_BYTES);
        let announced = self.announced.load(Ordering::Relaxed);
        let known = (end..=wanted).contains(&announced);
        if known && announced.saturating_sub(end) > AHEAD_BYTES / 2 {
            return None;
        }
        self.announced.store(wanted, Ordering::Relaxed);
        Some(if known { announced } else { end }..wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_sequential_reader_gets_each_byte_once() {
        let stream = Stream::default();
        assert!(stream.note(&(0..MIB)).is_empty());
        let mut announced = Vec::new();
        for at in 1..20 {
            announced.extend(stream.note(&(at * MIB..(at + 1) * MIB)));
        }
        assert_eq!(announced.first().map(|range| range.start), Some(2 * MIB));
        assert!(announced.windows(2).all(|pair| pair[0].end == pair[1].start), "{announced:?}");
        assert!(announced.last().is_some_and(|range| range.end >= 22 * MIB) && announced.len() <= 10, "{announced:?}");
        assert!(stream.note(&(500 * MIB..501 * MIB)).is_empty());
        let announced = stream.note(&(501 * MIB..502 * MIB));
        assert!(announced.len() == 1 && announced[0] == (502 * MIB..506 * MIB), "{announced:?}");
    }

    #[test]
    fn strides_are_announced_once_each_in_both_directions() {
        for at in [|n: u64| n * MIB, |n: u64| (1000 - n) * MIB] {
            let stream = Stream::default();
            let read = |n| stream.note(&(at(n)..at(n) + 4096));
            assert!(read(0).is_empty() && read(1).is_empty());
            let announced = read(2);
            assert_eq!(announced, (3..11).map(|n| at(n)..at(n) + 4096).collect::<Vec<_>>());
            for n in 3..20 {
                let announced = read(n);
                assert!(announced.len() == 1 && announced[0].start == at(n + 8), "{announced:?}");
            }
        }
    }

    #[test]
    fn places_without_an_order_say_nothing() {
        let stream = Stream::default();
        for place in [7, 3, 90, 4, 4, 4, 55, 54, 12] {
            assert!(stream.note(&(place * MIB..place * MIB + 4096)).is_empty(), "{place}");
        }
    }
}
