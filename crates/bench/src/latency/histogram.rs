//! Counts how long operations took: a count for each range of times, the ranges 3 % wide, as HdrHistogram has them.
//! `kind` has one for each kind of operation; `latency` prints its percentiles.

/// Ranges in each doubling of the time: a power of two.
const RANGES_PER_DOUBLING: u64 = 32;
const SHIFT: u32 = RANGES_PER_DOUBLING.trailing_zeros();

/// Times of one kind of operation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Histogram {
    /// By range, the shortest first; as many as the longest time needed.
    counts: Vec<u64>,
    count: u64,
    max_ns: u64,
}

impl Histogram {
    pub(super) fn add(&mut self, ns: u64) {
        let range = range_of(ns);
        if self.counts.len() <= range {
            self.counts.resize(range + 1, 0);
        }
        self.counts[range] += 1;
        self.count += 1;
        self.max_ns = self.max_ns.max(ns);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.count += other.count;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The time that so many of 10,000 operations did not exceed: the end of its range, and never more than the
    /// longest. Where there were fewer operations than the fraction needs to leave one out, that is the longest.
    pub(super) fn percentile_ns(&self, of_10_000: u64) -> u64 {
        let wanted = self.count.saturating_mul(of_10_000).div_ceil(10_000);
        let mut seen = 0;
        for (range, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return end_of(range).min(self.max_ns);
            }
        }
        self.max_ns
    }

    /// Each range that has a count: where it ends, and the count.
    pub(super) fn ranges(&self) -> Vec<(u64, u64)> {
        let counted = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        counted.map(|(range, count)| (end_of(range), *count)).collect()
    }
}

fn range_of(ns: u64) -> usize {
    // Below this each nanosecond has a range of its own.
    let doublings = ns.checked_ilog2().map_or(0, |log| log.saturating_sub(SHIFT));
    let range = u64::from(doublings) * RANGES_PER_DOUBLING + (ns >> doublings);
    usize::try_from(range).unwrap_or(usize::MAX)
}

/// The last nanosecond of a range.
fn end_of(range: usize) -> u64 {
    let range = u64::try_from(range).unwrap_or(u64::MAX);
    let doublings = (range / RANGES_PER_DOUBLING).saturating_sub(1);
    let first = range - doublings * RANGES_PER_DOUBLING;
    ((first + 1) << doublings) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_holds_what_it_says() {
        let mut before = None;
        for ns in (0..5_000).chain([1_000_000, 100_000_000, 100_000_001, u64::from(u32::MAX) * 4]) {
            let range = range_of(ns);
            assert!(ns <= end_of(range), "{ns}");
            assert!(range == 0 || ns > end_of(range - 1), "{ns}");
            assert!(end_of(range) <= ns + ns / RANGES_PER_DOUBLING, "{ns}: wider than 3 %");
            assert!(before <= Some(range));
            before = Some(range);
        }
    }

    #[test]
    fn the_slow_ones_are_not_lost_among_many() {
        let (mut fast, mut slow) = (Histogram::default(), Histogram::default());
        (0..9_998).for_each(|_| fast.add(1_000));
        (0..2).for_each(|_| slow.add(70_000_000));
        fast.merge(&slow);
        assert_eq!((fast.count(), fast.max_ns()), (10_000, 70_000_000));
        assert!(fast.percentile_ns(9_998) < 1_050);
        assert_eq!(fast.percentile_ns(9_999), 70_000_000);
        assert_eq!(slow.percentile_ns(5_000), 70_000_000);
        assert_eq!(Histogram::default().percentile_ns(9_999), 0);
        assert_eq!(fast.ranges().iter().map(|(_, count)| count).sum::<u64>(), 10_000);
    }
}
