//! Chooses the section that the cleaner empties. Called by `change/clean` and `change/background`.

#![expect(clippy::arithmetic_side_effects, reason = "numbers of segments and blocks, bounded by the superblock")]

use super::Segments;

/// Background cleaning empties a section that gains at least one block of so many.
const GAIN_OF: u64 = 16;

/// A section that can be emptied.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    section: u32,
    /// Blocks in use: some, and not all.
    valid: u64,
    mtime: u64,
}

impl Segments {
    fn candidates(&self) -> impl Iterator<Item = Candidate> + '_ {
        let sections = (0..self.section_count()).filter(|section| {
            let is_away = self.cleaned.contains(section) || self.left_alone.contains(section);
            !is_away && !self.is_open(*section) && !self.free.contains(section)
        });
        let all = sections.map(|section| {
            let valid = self.segments_of(section).map(|segment| u64::from(segment.valid)).sum();
            let mtime: u128 = self.segments_of(section).map(|segment| u128::from(segment.mtime)).sum();
            let mtime = u64::try_from(mtime / u128::from(self.per_section)).unwrap_or(u64::MAX);
            Candidate { section, valid, mtime }
        });
        // A section without a block in use comes free with the next checkpoint.
        all.filter(|candidate| candidate.valid > 0 && candidate.valid < self.blocks_per_section())
    }

    /// The section with the fewest blocks in use, for a waiting operation; `None` if emptying one would gain nothing.
    pub(crate) fn fewest_used(&self) -> Option<u32> {
        self.candidates().min_by_key(|candidate| candidate.valid).map(|candidate| candidate.section)
    }

    /// The section with most to gain for its cost, for background cleaning: an old section will not lose more blocks
    /// soon, and so is worth more (the kernel's cost-benefit rule).
    pub(crate) fn most_to_gain(&self) -> Option<u32> {
        let blocks = self.blocks_per_section();
        let times = self.candidates().map(|candidate| candidate.mtime);
        let (oldest, youngest) = times.fold((u64::MAX, 0), |(min, max), time| (min.min(time), max.max(time)));
        let span = u128::from(youngest.saturating_sub(oldest));
        let benefit = |candidate: &Candidate| {
            let since = u128::from(candidate.mtime.saturating_sub(oldest));
            let age = (100 * since).checked_div(span).map_or(100, |part| 100 - part);
            let used = u128::from(100 * candidate.valid / blocks);
            100 * (100 - used) * age / (100 + used)
        };
        let gains = self.candidates().filter(|candidate| blocks - candidate.valid >= blocks / GAIN_OF);
        let best = gains.max_by_key(|candidate| (benefit(candidate), u64::MAX - candidate.valid));
        best.map(|candidate| candidate.section)
    }
}

#[cfg(test)]
mod tests {
    use f2fs_disk::sit::SitEntry;

    use super::super::{MAP_BYTES, Segment, Segments};

    /// Segments with these numbers of blocks in use and times.
    fn segments(list: &[(usize, u64)]) -> Segments {
        let list = list.iter().map(|(valid, mtime)| {
            let mut map = [0; MAP_BYTES];
            map.iter_mut().take(valid / 8).for_each(|byte| *byte = 0xff);
            Segment::of(&SitEntry::new(0, map, *mtime))
        });
        Segments::new(list.collect(), 1)
    }

    #[test]
    fn the_background_takes_old_sections_first_and_who_waits_the_emptiest() {
        let mut segments = segments(&[(0, 0), (200, 1000), (256, 10), (512, 5), (496, 1)]);
        assert_eq!(segments.fewest_used(), Some(1));
        assert_eq!(segments.most_to_gain(), Some(2), "half full and old, before emptier and young");
        segments.opened(2);
        assert_eq!(segments.most_to_gain(), Some(1), "the old one gains too little");
        segments.leave_alone(1);
        assert_eq!((segments.most_to_gain(), segments.fewest_used()), (None, Some(4)));
    }

    #[test]
    fn times_that_lie_do_no_harm() {
        let same = segments(&[(400, 7), (128, 7)]);
        assert_eq!(same.most_to_gain(), Some(1), "of one age, the emptiest");
        let far = segments(&[(128, u64::MAX), (256, 0)]);
        assert_eq!(far.most_to_gain(), Some(1));
    }
}
