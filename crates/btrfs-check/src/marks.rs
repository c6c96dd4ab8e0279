//! Records the progress in reading the data of a state (marks), from which an interrupted check continues.
//!
//! Leaves of checksums are read by several threads, which end in any order: a mark counts those before the first
//! unfinished one, and has their bad runs. Later leaves are read again.
//!
//! Invariant: a mark is valid only for the very state that it was made in, with the same leaves. Failure: an
//! implausible mark is ignored. Caller: `data`; the caller of the check stores the marks.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use btrfs_disk::Uuid;
use btrfs_disk::convert::to_u64;

use crate::sort::lock;

/// Bad runs that are kept.
pub(crate) const BAD_MAX: usize = 10_000;
/// Time to the first mark, which doubles with each that follows.
const INTERVAL_MIN: Duration = Duration::from_millis(50);
/// Most time between two marks.
const INTERVAL_MAX: Duration = Duration::from_secs(5);

/// The identity of the state that a mark is for: it distinguishes the superblock from all others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateId {
    /// The UUID of the file system.
    pub fsid: Uuid,
    /// The generation.
    pub generation: u64,
    /// The checksum of the superblock, as stored.
    pub csum: [u8; 32],
    /// Leaves of checksums.
    pub leaves: u64,
}

/// The progress in reading the data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Leaves of checksums with data that was read, in the order of their addresses.
    pub leaves: u64,
    /// Bytes that were read for them, on all mirrors.
    pub bytes: u64,
    /// The bad runs.
    pub bad: Vec<BadRun>,
}

/// A run of bad sectors in a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadRun {
    /// Logical address of the first byte.
    pub at: u64,
    /// Bytes.
    pub len: u64,
    /// The copy, from 0.
    pub mirror: u32,
    /// It could be read, and does not match its checksum.
    pub is_read: bool,
    /// Another copy is right.
    pub has_other: bool,
}

/// Stores marks from one check to the next. A stored mark is used as far as it is plausible: the implementation has to
/// see to it that no other user can write it.
pub trait Marks: Debug + Send + Sync {
    /// The mark of an earlier check of this state.
    fn load(&self, state: &StateId) -> Option<Mark>;
    /// Replaces the mark.
    fn save(&self, state: &StateId, mark: &Mark);
    /// Removes the mark: all data was read.
    fn forget(&self, state: &StateId);
}

/// The part of a data pass that makes marks.
pub(crate) struct Marking<'a> {
    marks: Option<&'a Arc<dyn Marks>>,
    state: StateId,
    so_far: Mutex<SoFar>,
}

struct SoFar {
    mark: Mark,
    /// Finished leaves behind an unfinished one: bytes, and bad runs.
    ahead: BTreeMap<u64, (u64, Vec<BadRun>)>,
    /// Bad runs of these; where they are too many for memory, the mark stays where it is.
    runs_ahead: usize,
    kept: Instant,
    interval: Duration,
}

impl<'a> Marking<'a> {
    /// Loads the mark of an earlier check, or begins with an empty one.
    pub(crate) fn begin(marks: Option<&'a Arc<dyn Marks>>, state: StateId) -> (Self, Mark) {
        let found = marks.and_then(|marks| marks.load(&state)).filter(|mark| mark.leaves <= state.leaves);
        let mut mark = found.unwrap_or_default();
        mark.bad.truncate(BAD_MAX);
        (Self { marks, state, so_far: Mutex::new(SoFar::new(mark.clone())) }, mark)
    }

    /// Notes that the data of a leaf was read.
    pub(crate) fn done(&self, leaf: usize, bytes: u64, bad: &[BadRun]) {
        let Some(marks) = self.marks else { return };
        let mut so_far = lock(&self.so_far);
        so_far.add(to_u64(leaf), bytes, bad.to_vec());
        if so_far.kept.elapsed() >= so_far.interval {
            marks.save(&self.state, &so_far.mark);
            so_far.kept = Instant::now();
            so_far.interval = so_far.interval.saturating_mul(2).min(INTERVAL_MAX);
        }
    }

    /// Notes that all was read.
    pub(crate) fn end(&self) {
        if let Some(marks) = self.marks {
            marks.forget(&self.state);
        }
    }
}

impl SoFar {
    fn new(mark: Mark) -> Self {
        Self { mark, ahead: BTreeMap::new(), runs_ahead: 0, kept: Instant::now(), interval: INTERVAL_MIN }
    }

    fn add(&mut self, leaf: u64, bytes: u64, bad: Vec<BadRun>) {
        if self.runs_ahead > BAD_MAX {
            return;
        }
        self.runs_ahead = self.runs_ahead.saturating_add(bad.len());
        self.ahead.insert(leaf, (bytes, bad));
        while let Some((bytes, bad)) = self.ahead.remove(&self.mark.leaves) {
            self.runs_ahead = self.runs_ahead.saturating_sub(bad.len());
            self.mark.leaves = self.mark.leaves.saturating_add(1);
            self.mark.bytes = self.mark.bytes.saturating_add(bytes);
            let room = BAD_MAX.saturating_sub(self.mark.bad.len());
            self.mark.bad.extend(bad.into_iter().take(room));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_counts_what_lies_before_the_first_leaf_that_is_not_done() {
        let begun = || SoFar::new(Mark::default());
        let mut so_far = begun();
        let run = |at| BadRun { at, len: 4096, mirror: 1, is_read: true, has_other: false };
        let bad = |at| vec![run(at)];
        so_far.add(1, 10, bad(1));
        so_far.add(2, 20, bad(2));
        assert_eq!(so_far.mark, Mark::default());
        so_far.add(0, 5, Vec::new());
        assert_eq!(so_far.mark, Mark { leaves: 3, bytes: 35, bad: vec![run(1), run(2)] });
        assert!(so_far.ahead.is_empty());
        so_far.add(4, 1, Vec::new());
        assert_eq!(so_far.mark.leaves, 3);
        // Beyond the limit the mark stays, since it would be incomplete.
        let mut so_far = begun();
        let many: Vec<BadRun> = (0..).take(BAD_MAX).flat_map(bad).collect();
        so_far.add(0, 1, bad(1));
        so_far.add(2, 1, many.clone());
        so_far.add(3, 1, many);
        so_far.add(1, 1, Vec::new());
        assert_eq!(so_far.mark.leaves, 1);
    }
}
