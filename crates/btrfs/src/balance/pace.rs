//! Decides how much one step of a balance moves, so that other operations do not wait long. Used by `run`, `evacuation`
//! and `shrink`.
//!
//! While a step moves extents, programs that change something wait for it, and programs that sync wait for the commit
//! that writes them. On a served volume, a step that kept others waiting for long makes the next one smaller, and a
//! short one makes it larger. A balance of a volume without other users takes steps of one size, so that its result is
//! reproducible.

use std::time::Duration;

/// Bytes of data that are copied before they are moved together: at most, and at least.
const DATA_BYTES_MAX: u64 = 32 << 20;
const DATA_BYTES_MIN: u64 = 1 << 20;

/// Tree blocks that are moved together, those on the way to them counted: at most, and at least.
const BLOCKS_MAX: usize = 512;
const BLOCKS_MIN: usize = 16;

/// The divisor of the first steps of a served volume.
const FIRST_DIVISOR: u8 = 8;

/// A step that kept others waiting for longer makes the next one half as large.
const HELD_MAX: Duration = Duration::from_millis(10);
/// One that took less than this makes the next one larger by a quarter.
const HELD_MIN: Duration = Duration::from_millis(4);

/// A commit that took longer makes the next step half as large, though not smaller than this: the writes of others are
/// in that commit, too, and smaller steps would not make it shorter.
const COMMIT_MAX: Duration = Duration::from_millis(25);
const COMMIT_DATA_BYTES_MIN: u64 = DATA_BYTES_MIN * 2;
const COMMIT_BLOCKS_MIN: usize = BLOCKS_MIN * 4;

/// Longest rest between two steps.
const REST_MAX: Duration = Duration::from_millis(60);

/// How large steps are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    data_bytes: u64,
    blocks: usize,
    is_served: bool,
    /// How long the last step took.
    took: Duration,
}

impl Pace {
    /// For a volume without other users.
    pub(crate) const WHOLE: Self =
        Self { data_bytes: DATA_BYTES_MAX, blocks: BLOCKS_MAX, is_served: false, took: Duration::ZERO };

    /// For a volume that others use meanwhile.
    pub(crate) fn served() -> Self {
        let data_bytes = DATA_BYTES_MAX / u64::from(FIRST_DIVISOR);
        Self { data_bytes, blocks: BLOCKS_MAX / usize::from(FIRST_DIVISOR), is_served: true, took: Duration::ZERO }
    }

    /// Bytes of data that are to be moved together.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// Tree blocks that are to be moved together.
    pub(crate) fn blocks(&self) -> usize {
        self.blocks
    }

    /// How long to wait before the next step where others use the volume, so that they have at least as much of the
    /// time.
    pub(crate) fn rest(&self) -> Duration {
        if self.is_served { self.took.min(REST_MAX) } else { Duration::ZERO }
    }

    /// True where others use the volume.
    pub(crate) fn is_served(&self) -> bool {
        self.is_served
    }

    /// Notes how long a step took, including its commits.
    pub(crate) fn note_whole(&mut self, took: Duration) {
        self.took = took;
    }

    /// Notes how long a step kept others waiting, and how long the commit after it took.
    pub(crate) fn note(&mut self, held: Duration, commit: Duration) {
        if !self.is_served {
            return;
        }
        if held > HELD_MAX {
            self.halve(DATA_BYTES_MIN, BLOCKS_MIN);
        } else if commit > COMMIT_MAX {
            self.halve(COMMIT_DATA_BYTES_MIN, COMMIT_BLOCKS_MIN);
        } else if held < HELD_MIN {
            self.data_bytes = (self.data_bytes + self.data_bytes / 4).min(DATA_BYTES_MAX);
            self.blocks = (self.blocks + self.blocks / 4).min(BLOCKS_MAX);
        }
    }

    /// Halves the step, down to these minimums.
    fn halve(&mut self, data_bytes_min: u64, blocks_min: usize) {
        self.data_bytes = (self.data_bytes / 2).max(data_bytes_min.min(self.data_bytes));
        self.blocks = (self.blocks / 2).max(blocks_min.min(self.blocks));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_become_as_long_as_others_can_wait() {
        let mut pace = Pace::served();
        let first = pace;
        pace.note(HELD_MAX, COMMIT_MAX);
        assert_eq!(pace, first);
        pace.note_whole(HELD_MAX);
        assert_eq!((first.rest(), pace.rest()), (Duration::ZERO, HELD_MAX));
        (0..100).for_each(|_| pace.note(Duration::ZERO, Duration::ZERO));
        assert_eq!((pace.data_bytes(), pace.blocks()), (DATA_BYTES_MAX, BLOCKS_MAX));
        (0..100).for_each(|_| pace.note(Duration::ZERO, Duration::from_millis(80)));
        assert_eq!((pace.data_bytes(), pace.blocks()), (COMMIT_DATA_BYTES_MIN, COMMIT_BLOCKS_MIN));
        (0..100).for_each(|_| pace.note(Duration::from_millis(80), Duration::ZERO));
        assert_eq!((pace.data_bytes(), pace.blocks()), (DATA_BYTES_MIN, BLOCKS_MIN));
        pace.note(Duration::ZERO, Duration::from_millis(80));
        assert_eq!((pace.data_bytes(), pace.blocks()), (DATA_BYTES_MIN, BLOCKS_MIN), "no reason for larger ones");
    }

    #[test]
    fn where_nobody_waits_steps_stay_as_they_are() {
        let mut pace = Pace::WHOLE;
        pace.note(Duration::from_secs(1), Duration::from_secs(1));
        assert_eq!(pace, Pace::WHOLE);
        pace.note_whole(Duration::from_secs(1));
        assert_eq!(pace.rest(), Duration::ZERO);
    }
}
