//! How a file is being read, as far as that tells what will be read next.
//!
//! Numbers that readers change without a lock: where several read one file at once, what is made of them may be
//! wrong, and then something is fetched that nobody wants.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that are fetched ahead of who reads one byte after the other.
const AHEAD_BYTES: u64 = 4 << 20;
/// Reads that are fetched ahead of who leaves out the same number of bytes each time.
const AHEAD_READS: u64 = 8;

/// What was read last.
#[derive(Debug)]
pub(crate) struct Stream {
    start: AtomicU64,
    end: AtomicU64,
    /// From the start of the read before to that of the last one.
    step: AtomicU64,
    /// Up to where, or up to which read, it was told what comes next.
    told: AtomicU64,
}

impl Default for Stream {
    fn default() -> Self {
        let nowhere = || AtomicU64::new(u64::MAX);
        Self { start: nowhere(), end: nowhere(), step: nowhere(), told: nowhere() }
    }
}

impl Stream {
    /// Notes a read; what will be read next, and was not told before.
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
        let was_told = self.told.swap(last, Ordering::Relaxed) == nth(AHEAD_READS - 1);
        let first = if was_told { AHEAD_READS } else { 1 };
        let len = read.end.saturating_sub(read.start);
        (first..=AHEAD_READS).map(|count| nth(count)..nth(count).saturating_add(len)).collect()
    }

    /// What comes behind `end`, told in large pieces.
    fn go_on(&self, end: u64) -> Option<Range<u64>> {
        let wanted = end.saturating_add(AHEAD_BYTES);
        let told = self.told.load(Ordering::Relaxed);
        let known = (end..=wanted).contains(&told);
        if known && told.saturating_sub(end) > AHEAD_BYTES / 2 {
            return None;
        }
        self.told.store(wanted, Ordering::Relaxed);
        Some(if known { told } else { end }..wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn who_reads_on_is_told_each_byte_once() {
        let stream = Stream::default();
        assert!(stream.note(&(0..MIB)).is_empty());
        let mut told = Vec::new();
        for at in 1..20 {
            told.extend(stream.note(&(at * MIB..(at + 1) * MIB)));
        }
        assert_eq!(told.first().map(|range| range.start), Some(2 * MIB));
        assert!(told.windows(2).all(|pair| pair[0].end == pair[1].start), "{told:?}");
        assert!(told.last().is_some_and(|range| range.end >= 22 * MIB) && told.len() <= 10, "{told:?}");
        assert!(stream.note(&(500 * MIB..501 * MIB)).is_empty());
        let told = stream.note(&(501 * MIB..502 * MIB));
        assert!(told.len() == 1 && told[0] == (502 * MIB..506 * MIB), "{told:?}");
    }

    #[test]
    fn steps_are_told_once_each_in_both_directions() {
        for at in [|n: u64| n * MIB, |n: u64| (1000 - n) * MIB] {
            let stream = Stream::default();
            let read = |n| stream.note(&(at(n)..at(n) + 4096));
            assert!(read(0).is_empty() && read(1).is_empty());
            let told = read(2);
            assert_eq!(told, (3..11).map(|n| at(n)..at(n) + 4096).collect::<Vec<_>>());
            for n in 3..20 {
                let told = read(n);
                assert!(told.len() == 1 && told[0].start == at(n + 8), "{told:?}");
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
