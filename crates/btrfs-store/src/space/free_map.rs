//! Keeps the free space of one block group, or of one device, as a set of runs in memory.
//!
//! Runs are keyed by their *end*: an allocation from the front of a run, as nearly all allocations are, then changes
//! one value in place and moves no key. A second index sorts the runs into classes by the power of two of their length;
//! a run changes class once per halving, so sequential allocation hardly touches it either. Used by `group` and by the
//! allocation of chunks.

#![expect(clippy::indexing_slicing, reason = "there is a class for each power of two")]

use std::collections::{BTreeMap, BTreeSet};

/// Runs looked at within one class of lengths before the next class is tried: bounds the
/// time of an allocation in a fragmented group.
const PROBES_MAX: usize = 16;

/// Number of classes: one per power of two that a `u64` length can have.
const CLASS_COUNT: usize = 64;

/// A range of bytes, never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Run {
    /// First byte.
    pub start: u64,
    /// Bytes.
    pub len: u64,
}

impl Run {
    /// The first byte after it.
    #[must_use]
    pub const fn end(self) -> u64 {
        self.start + self.len
    }
}

/// The request of an allocation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want {
    /// Bytes wanted in one run.
    pub(crate) len: u64,
    /// Shorter runs are taken down to this many bytes when there is none of `len`.
    pub(crate) min_len: u64,
    /// The start is a multiple of this power of two.
    pub(crate) align: u64,
    /// When the cursor's run is used up, the lowest run of this many bytes is preferred as the next one, so that
    /// consecutive allocations are adjacent; with 0 a short one is.
    pub(crate) cluster: u64,
    /// Bytes after the allocation that are left to the same writer, for as long as others find room elsewhere.
    pub(crate) window: u64,
    /// Bytes after it that have to be free, too: a run without them is not used.
    pub(crate) room: u64,
}

impl Want {
    /// The shortest run from which this is taken, bytes.
    pub(crate) const fn run_bytes_min(&self) -> u64 {
        self.min_len.saturating_add(self.room)
    }
}

/// Where the next allocation begins.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cursor {
    /// The run from which the last one came, by its end.
    run: Option<u64>,
    /// Where other writers begin in it: behind the window of the last writer that has one.
    from: u64,
    /// Where that writer continues.
    window: Option<u64>,
}

/// A window is at most this part of its run.
const WINDOW_SHARE: u64 = 2;

impl Cursor {
    /// The cursor after `part` was taken out of the run that ends at `run_end`.
    fn moved(self, run_end: u64, part: Run, window: u64) -> Self {
        let end = part.end();
        let window = window.min((run_end - end) / WINDOW_SHARE);
        let from = end.saturating_add(window);
        if self.run == Some(run_end) && self.from >= from {
            // In front of the place where others begin.
            let goes_on = self.window == Some(part.start);
            return Self { window: if goes_on { Some(end) } else { self.window }, ..self };
        }
        let is_ahead = self.run == Some(run_end) && self.window.is_some();
        let (from, goes_on) = match (window, is_ahead) {
            // No window: space that is freed in front is taken first.
            (0, false) => (0, None),
            (0, true) => (end, self.window),
            _ => (from, Some(end)),
        };
        Self { run: Some(run_end), from, window: goes_on }
    }

    /// The writer that continues at `at` keeps only `kept` more bytes: others may begin behind them.
    pub(crate) fn end_window(&mut self, at: u64, kept: u64) {
        if self.window == Some(at) {
            self.from = self.from.min(at.saturating_add(kept));
            self.window = Some(at).filter(|_| kept > 0);
        }
    }
}

/// A set of disjoint, non-touching runs with their total.
#[derive(Clone, Debug)]
pub(crate) struct FreeMap {
    /// End -> start.
    runs: BTreeMap<u64, u64>,
    /// Ends of the runs of each class.
    classes: Box<[BTreeSet<u64>]>,
    /// Bit n: class n has runs.
    filled: u64,
    bytes: u64,
}

impl Default for FreeMap {
    fn default() -> Self {
        Self {
            runs: BTreeMap::new(),
            classes: vec![BTreeSet::new(); CLASS_COUNT].into_boxed_slice(),
            filled: 0,
            bytes: 0,
        }
    }
}

/// The range was in the wrong state: free where it had to be taken, or the reverse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overlap;

impl FreeMap {
    /// Sum of the lengths of all runs.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn run_count(&self) -> usize {
        self.runs.len()
    }

    /// Runs in ascending order.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = Run> + '_ {
        self.runs.iter().map(|(&end, &start)| Run { start, len: end - start })
    }

    /// Runs that end behind `at`.
    pub(crate) fn iter_behind(&self, at: u64) -> impl Iterator<Item = Run> + '_ {
        self.runs.range(at.saturating_add(1)..).map(|(&end, &start)| Run { start, len: end - start })
    }

    /// No run is this long or longer; 0 when nothing is free.
    pub(crate) fn len_bound(&self) -> u64 {
        match self.filled.checked_ilog2() {
            None => 0,
            Some(class) => 1u64.checked_shl(class + 1).unwrap_or(u64::MAX),
        }
    }

    /// Makes a range free, merging it with free neighbours.
    ///
    /// # Errors
    /// Part of it is free already, or its end is beyond 2^64; nothing is changed then.
    pub(crate) fn insert(&mut self, run: Run) -> Result<(), Overlap> {
        let Some(end) = run.start.checked_add(run.len) else {
            return Err(Overlap);
        };
        if run.len == 0 {
            return Ok(());
        }
        let mut near = self.runs.range(run.start..).map(|(&e, &s)| (e, s));
        let mut next = near.next();
        let before = next.filter(|(before_end, _)| *before_end == run.start);
        if before.is_some() {
            next = near.next();
        }
        if next.is_some_and(|(_, start)| start < end) {
            return Err(Overlap);
        }
        let start = before.map_or(run.start, |(_, start)| start);
        if before.is_some() {
            self.drop_run(run.start);
        }
        match next {
            Some((next_end, next_start)) if next_start == end => {
                self.move_start(next_end, next_start, start);
            }
            _ => self.add_run(start, end),
        }
        self.bytes += run.len;
        Ok(())
    }

    /// Takes the free parts of a range; returns how many bytes those were.
    pub(crate) fn subtract(&mut self, run: Run) -> u64 {
        let end = run.start.saturating_add(run.len);
        let before = self.bytes;
        while let Some((run_end, run_start)) =
            self.runs.range(run.start.saturating_add(1)..).next().map(|(&e, &s)| (e, s))
        {
            if run_start >= end {
                break;
            }
            let start = run_start.max(run.start);
            self.cut(run_end, run_start, Run { start, len: run_end.min(end) - start });
        }
        before - self.bytes
    }

    /// Takes the range when it is free as a whole. The cursor moves behind it, and behind its window, unless it is in
    /// another run: a writer that continues elsewhere does not move the others.
    pub(crate) fn take_at(&mut self, cursor: &mut Cursor, range: Run, window: u64) -> bool {
        let Some(end) = range.start.checked_add(range.len) else {
            return false;
        };
        match self.runs.range(end..).next().map(|(&e, &s)| (e, s)) {
            Some((run_end, run_start)) if run_start <= range.start && range.len > 0 => {
                self.cut(run_end, run_start, range);
                let is_elsewhere = cursor.run.is_some_and(|run| run != run_end && self.runs.contains_key(&run));
                if !is_elsewhere {
                    *cursor = cursor.moved(run_end, range, window);
                }
                true
            }
            _ => false,
        }
    }

    /// Takes a run as `want` describes it: at the cursor, else from a run that is
    /// long enough, else from a shorter one.
    pub(crate) fn take(&mut self, cursor: &mut Cursor, want: &Want) -> Option<Run> {
        let whole = want.len.saturating_add(want.room);
        let found = self
            .at_cursor(*cursor, whole, want.align)
            .or_else(|| match want.cluster {
                0 => None,
                cluster => self.lowest(whole.max(cluster), want.align),
            })
            .or_else(|| self.tightest(whole, want.align))
            .or_else(|| self.longest(want))?;
        let (run_end, run_start, start) = found;
        let len = want.len.min(run_end - start);
        debug_assert!(start.is_multiple_of(want.align.max(1)), "as aligned as was wanted");
        debug_assert!(len >= want.min_len.min(want.len), "as long as was wanted");
        self.cut(run_end, run_start, Run { start, len });
        *cursor = cursor.moved(run_end, Run { start, len }, want.window);
        Some(Run { start, len })
    }

    /// The lowest run of at least `len` bytes, not taken.
    pub(crate) fn first_of(&self, len: u64) -> Option<Run> {
        self.iter().find(|run| run.len >= len)
    }

    /// The longest run, not taken; of equals the lowest.
    pub(crate) fn longest_run(&self) -> Option<Run> {
        let class = self.filled.checked_ilog2()?;
        self.class_runs(class)
            .rev()
            .max_by_key(|(end, start)| end - start)
            .map(|(end, start)| Run { start, len: end - start })
    }

    fn at_cursor(&self, cursor: Cursor, len: u64, align: u64) -> Option<(u64, u64, u64)> {
        let end = cursor.run?;
        let start = *self.runs.get(&end)?;
        let (_, _, at) = fit(end, start.max(cursor.from), len, align)?;
        Some((end, start, at))
    }

    /// Of the runs with `len` bytes the one that is lowest in each class of lengths, the shortest first.
    fn fits(&self, len: u64, align: u64) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        let lowest_class = len.checked_ilog2().unwrap_or(u64::BITS);
        let mut classes = self.filled & u64::MAX.checked_shl(lowest_class).unwrap_or(0);
        std::iter::from_fn(move || {
            let class = (classes != 0).then(|| classes.trailing_zeros())?;
            classes &= classes - 1;
            Some(class)
        })
        .filter_map(move |class| {
            self.class_runs(class).take(PROBES_MAX).find_map(|(end, start)| fit(end, start, len, align))
        })
    }

    fn lowest(&self, len: u64, align: u64) -> Option<(u64, u64, u64)> {
        self.fits(len, align).min_by_key(|(_, _, start)| *start)
    }

    /// A short run, so that long ones stay long.
    fn tightest(&self, len: u64, align: u64) -> Option<(u64, u64, u64)> {
        self.fits(len, align).next()
    }

    fn longest(&self, want: &Want) -> Option<(u64, u64, u64)> {
        let class = self.filled.checked_ilog2()?;
        self.class_runs(class)
            .take(PROBES_MAX)
            .filter_map(|(end, start)| fit(end, start, want.run_bytes_min().max(1), want.align))
            .max_by_key(|(end, _, start)| end - start)
    }

    fn class_runs(&self, class: u32) -> impl DoubleEndedIterator<Item = (u64, u64)> + '_ {
        self.classes[index(class)].iter().filter_map(|end| self.runs.get(end).map(|start| (*end, *start)))
    }

    /// Takes `part` out of the run `run_start..run_end`, which contains it.
    fn cut(&mut self, run_end: u64, run_start: u64, part: Run) {
        let end = part.end();
        debug_assert!(run_start <= part.start && end <= run_end, "the part lies in a free run");
        if end == run_end {
            self.drop_run(run_end);
            if run_start < part.start {
                self.add_run(run_start, part.start);
            }
        } else {
            self.move_start(run_end, run_start, end);
            if run_start < part.start {
                self.add_run(run_start, part.start);
            }
        }
        self.bytes -= part.len;
    }

    fn add_run(&mut self, start: u64, end: u64) {
        self.runs.insert(end, start);
        self.enter_class(class_of(end - start), end);
    }

    fn drop_run(&mut self, end: u64) {
        if let Some(start) = self.runs.remove(&end) {
            self.leave_class(class_of(end - start), end);
        }
    }

    fn move_start(&mut self, end: u64, old: u64, new: u64) {
        self.runs.insert(end, new);
        let (from, to) = (class_of(end - old), class_of(end - new));
        if from != to {
            self.leave_class(from, end);
            self.enter_class(to, end);
        }
    }

    fn enter_class(&mut self, class: u32, end: u64) {
        self.classes[index(class)].insert(end);
        self.filled |= 1 << class;
    }

    fn leave_class(&mut self, class: u32, end: u64) {
        let runs = &mut self.classes[index(class)];
        runs.remove(&end);
        if runs.is_empty() {
            self.filled &= !(1 << class);
        }
    }
}

/// Where in a run `len` aligned bytes fit: (end of the run, its start, start of the fit).
fn fit(end: u64, start: u64, len: u64, align: u64) -> Option<(u64, u64, u64)> {
    let aligned = start.checked_next_multiple_of(align)?;
    (aligned.checked_add(len)? <= end).then_some((end, start, aligned))
}

fn class_of(len: u64) -> u32 {
    len.checked_ilog2().unwrap_or(0)
}

fn index(class: u32) -> usize {
    btrfs_disk::convert::usize_from(class)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::as_conversions, reason = "tests")]
    use super::*;

    fn run(start: u64, len: u64) -> Run {
        Run { start, len }
    }

    fn runs(map: &FreeMap) -> Vec<(u64, u64)> {
        map.iter().map(|r| (r.start, r.len)).collect()
    }

    fn want(len: u64) -> Want {
        Want { len, min_len: len, align: 1, cluster: 0, window: 0, room: 0 }
    }

    #[test]
    fn neighbours_merge_on_both_sides() {
        let mut map = FreeMap::default();
        for start in [0, 20, 10, 40] {
            map.insert(run(start, 10)).unwrap();
        }
        assert_eq!(runs(&map), [(0, 30), (40, 10)]);
        assert_eq!(map.insert(run(25, 1)), Err(Overlap));
        assert_eq!(map.insert(run(35, 6)), Err(Overlap));
        map.insert(run(30, 10)).unwrap();
        assert_eq!((runs(&map), map.bytes()), (vec![(0, 50)], 50));
        assert_eq!(map.insert(run(u64::MAX, 2)), Err(Overlap));
    }

    #[test]
    fn take_at_wants_the_whole_range_and_subtract_does_not() {
        let mut map = FreeMap::default();
        map.insert(run(0, 100)).unwrap();
        assert!(map.take_at(&mut Cursor::default(), run(10, 10), 0));
        assert!(!map.take_at(&mut Cursor::default(), run(5, 10), 0));
        assert_eq!(map.subtract(run(5, 90)), 80);
        assert_eq!(runs(&map), [(0, 5), (95, 5)]);
    }

    #[test]
    fn hint_then_cursor_then_lowest_run_of_cluster_size() {
        let mut map = FreeMap::default();
        for (start, len) in [(0, 8), (100, 64), (200, 256)] {
            map.insert(run(start, len)).unwrap();
        }
        let mut cursor = Cursor::default();
        let clustered = Want { cluster: 64, ..want(4) };
        assert_eq!(map.take(&mut cursor, &clustered), Some(run(100, 4)));
        assert!(map.take_at(&mut cursor, run(208, 4), 0));
        assert!(!map.take_at(&mut cursor, run(210, 4), 0));
        assert_eq!(map.take(&mut cursor, &clustered), Some(run(104, 4)), "where others are");
        let mut new = Cursor::default();
        assert!(map.take_at(&mut new, run(212, 4), 0));
        assert_eq!(map.take(&mut new, &clustered), Some(run(216, 4)), "after the hint");
        assert_eq!(map.take(&mut cursor, &want(300)), None);
        let short = Want { min_len: 100, ..want(300) };
        assert_eq!(map.take(&mut cursor, &short), Some(run(220, 236)));
        assert_eq!(map.take(&mut cursor, &want(4)), Some(run(0, 4)));
    }

    #[test]
    fn alignment_leaves_the_head_of_a_run_free() {
        let mut map = FreeMap::default();
        map.insert(run(3, 20)).unwrap();
        let aligned = Want { align: 8, ..want(8) };
        assert_eq!(map.take(&mut Cursor::default(), &aligned), Some(run(8, 8)));
        assert_eq!(runs(&map), [(3, 5), (16, 7)]);
        assert_eq!(map.take(&mut Cursor::default(), &aligned), None);
    }

    #[test]
    fn random_operations_agree_with_a_bitmap() {
        const SIZE: u64 = 600;
        for seed in 0..40u64 {
            let mut random = crate::space::test_random::Random::new(seed);
            let mut map = FreeMap::default();
            let mut cursor = Cursor::default();
            let mut model = vec![false; SIZE as usize];
            for step in 0..2000 {
                let start = random.below(SIZE);
                let len = (1 + random.below(20)).min(SIZE - start);
                let range = start as usize..(start + len) as usize;
                match random.below(4) {
                    0 => {
                        let ok = model[range.clone()].iter().all(|free| !free);
                        assert_eq!(map.insert(run(start, len)).is_ok(), ok, "seed {seed} step {step}");
                        if ok {
                            model[range].fill(true);
                        }
                    }
                    1 => {
                        let ok = model[range.clone()].iter().all(|free| *free);
                        assert_eq!(
                            map.take_at(&mut cursor, run(start, len), random.below(20)),
                            ok,
                            "seed {seed} step {step}"
                        );
                        if ok {
                            model[range].fill(false);
                        }
                    }
                    2 if random.below(8) == 0 => {
                        let count = model[range.clone()].iter().filter(|free| **free).count() as u64;
                        assert_eq!(map.subtract(run(start, len)), count, "seed {seed} step {step}");
                        model[range].fill(false);
                    }
                    _ => {
                        let want = Want {
                            len,
                            min_len: 1 + random.below(len),
                            align: 1 << random.below(3),
                            cluster: random.below(30),
                            window: random.below(20),
                            room: random.below(2) * random.below(20),
                        };
                        if let Some(got) = map.take(&mut cursor, &want) {
                            assert!(got.len >= want.min_len && got.len <= want.len);
                            assert_eq!(got.start % want.align, 0);
                            let range = got.start as usize..got.end() as usize;
                            assert!(model[range.clone()].iter().all(|free| *free), "seed {seed} step {step}");
                            model[range].fill(false);
                        }
                    }
                }
                check(&map, &model, seed);
            }
        }
    }

    fn check(map: &FreeMap, model: &[bool], seed: u64) {
        let mut expected = Vec::new();
        let mut at = 0;
        for part in model.chunk_by(|a, b| a == b) {
            if part[0] {
                expected.push((at as u64, part.len() as u64));
            }
            at += part.len();
        }
        assert_eq!(runs(map), expected, "seed {seed}");
        assert_eq!(map.bytes(), expected.iter().map(|r| r.1).sum::<u64>(), "seed {seed}");
        let mut in_classes = 0;
        for (class, ends) in map.classes.iter().enumerate() {
            assert_eq!(map.filled >> class & 1 == 1, !ends.is_empty());
            for end in ends {
                assert_eq!((end - map.runs[end]).ilog2() as usize, class, "seed {seed}");
            }
            in_classes += ends.len();
        }
        assert_eq!(in_classes, map.run_count());
    }

    /// Prints its rate; run with `--release -- --ignored --nocapture`.
    #[test]
    #[ignore = "a measurement"]
    fn speed() {
        let mut map = FreeMap::default();
        map.insert(run(0, 1 << 40)).unwrap();
        let mut cursor = Cursor::default();
        let block = Want { align: 16384, cluster: 1 << 20, ..want(16384) };
        let begin = std::time::Instant::now();
        let mut taken: Vec<Run> = (0..1_000_000).filter_map(|_| map.take(&mut cursor, &block)).collect();
        println!("sequential: {:?} per allocation", begin.elapsed() / 1_000_000);
        let mut random = crate::space::test_random::Random::new(1);
        for i in (1..taken.len()).rev() {
            taken.swap(i, random.below(i as u64 + 1) as usize);
        }
        let begin = std::time::Instant::now();
        for run in &taken[..500_000] {
            map.insert(*run).unwrap();
        }
        println!("random frees: {:?} each, {} runs", begin.elapsed() / 500_000, map.run_count());
        let begin = std::time::Instant::now();
        for _ in 0..500_000 {
            map.take(&mut cursor, &Want { cluster: 0, ..block }).unwrap();
        }
        println!("after that: {:?} per allocation", begin.elapsed() / 500_000);
    }
}
