//! Segments of the main area: which of their blocks are in use, and which segments are free.
//!
//! A block that was given back stays out of use until the next checkpoint is on the disk: the one before it, or what
//! was fsynced since, may still need it. So there are two maps of each segment: what is in use, and what the last
//! checkpoint counts or was written since.
//!
//! Segments are given to logs by sections, which is also the unit that the cleaner empties.

#![expect(clippy::arithmetic_side_effects, reason = "numbers of segments and blocks, bounded by the superblock")]

use std::collections::BTreeSet;
use std::ops::Range;

use f2fs_disk::convert::usize_from;
use f2fs_disk::sit::SitEntry;
use f2fs_disk::{At, BlockAddr, Corrupt, Detail, Geometry, SEGMENT_BLOCKS};

use crate::error::{Error, Result};

/// Bytes of a map of blocks.
const MAP_BYTES: usize = 64;

/// A segment.
#[derive(Debug, Clone)]
pub(crate) struct Segment {
    map: [u8; MAP_BYTES],
    kept: [u8; MAP_BYTES],
    valid: u16,
    log: u16,
    mtime: u64,
}

impl Segment {
    pub(crate) fn of(entry: &SitEntry) -> Self {
        let map = entry.valid_map;
        Self { map, kept: map, valid: entry.valid_blocks(), log: entry.log_type(), mtime: entry.mtime.get() }
    }

    /// As it lies on disk.
    pub(crate) fn entry(&self) -> SitEntry {
        SitEntry::new(self.log, self.map, self.mtime)
    }

    fn is_empty(&self) -> bool {
        self.valid == 0 && self.kept == [0; MAP_BYTES]
    }

    fn set_kept(&mut self, index: u32) {
        if let Some(byte) = self.kept.get_mut(usize_from(index / 8)) {
            *byte |= mask(index);
        }
    }

    /// The blocks in use.
    pub(crate) fn in_use(&self) -> impl Iterator<Item = u32> + '_ {
        (0..SEGMENT_BLOCKS).filter(|index| test(&self.map, *index))
    }

    /// True where nothing behind the first `count` blocks is in use or kept.
    pub(crate) fn is_free_from(&self, count: u32) -> bool {
        (count..SEGMENT_BLOCKS).all(|index| !test(&self.map, index) && !test(&self.kept, index))
    }
}

fn test(map: &[u8; MAP_BYTES], index: u32) -> bool {
    map.get(usize_from(index / 8)).is_some_and(|byte| byte & mask(index) != 0)
}

const fn mask(index: u32) -> u8 {
    0x80 >> (index % 8)
}

/// Blocks of the main area, one behind the other, that no state needs which a crash could bring back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FreeRun {
    /// Index of the first one in the main area.
    pub(crate) start: u32,
    /// Blocks, at least one.
    pub(crate) count: u32,
}

impl FreeRun {
    pub(crate) const fn end(&self) -> u32 {
        self.start + self.count
    }
}

/// All segments.
#[derive(Debug)]
pub(crate) struct Segments {
    list: Vec<Segment>,
    changed: BTreeSet<u32>,
    per_section: u32,
    free: BTreeSet<u32>,
    /// Sections that logs write to; one may stand here more than once.
    open: Vec<u32>,
    /// From where the next free section is looked for.
    hint: u32,
}

impl Segments {
    pub(crate) fn new(list: Vec<Segment>, per_section: u32) -> Self {
        let per_section = per_section.max(1);
        let mut segments =
            Self { list, changed: BTreeSet::new(), per_section, free: BTreeSet::new(), open: Vec::new(), hint: 0 };
        for section in 0..segments.section_count() {
            segments.note_if_free(section);
        }
        segments
    }

    pub(crate) fn section_count(&self) -> u32 {
        u32::try_from(self.list.len()).unwrap_or(0) / self.per_section
    }

    pub(crate) const fn per_section(&self) -> u32 {
        self.per_section
    }

    pub(crate) fn blocks_per_section(&self) -> u64 {
        u64::from(self.per_section) * u64::from(SEGMENT_BLOCKS)
    }

    pub(crate) fn free_sections(&self) -> u32 {
        u32::try_from(self.free.len()).unwrap_or(u32::MAX)
    }

    /// Segments without a block in use that no log has, as a checkpoint counts them.
    pub(crate) fn free_segments(&self, current: &[u32]) -> u32 {
        let free =
            (0_u32..).zip(&self.list).filter(|(number, segment)| segment.valid == 0 && !current.contains(number));
        u32::try_from(free.count()).unwrap_or(u32::MAX)
    }

    pub(crate) fn segment(&self, number: u32) -> Option<&Segment> {
        self.list.get(usize_from(number))
    }

    fn segments_of(&self, section: u32) -> impl Iterator<Item = &Segment> {
        let start = usize_from(section * self.per_section);
        self.list.iter().skip(start).take(usize_from(self.per_section))
    }

    fn note_if_free(&mut self, section: u32) {
        if !self.open.contains(&section) && self.segments_of(section).all(Segment::is_empty) {
            self.free.insert(section);
        } else {
            self.free.remove(&section);
        }
    }

    /// A log goes on in a segment.
    pub(crate) fn opened(&mut self, segment: u32) {
        let section = segment / self.per_section;
        self.open.push(section);
        self.free.remove(&section);
    }

    /// A log has left a segment.
    pub(crate) fn closed(&mut self, segment: u32) {
        let section = segment / self.per_section;
        if let Some(at) = self.open.iter().position(|open| *open == section) {
            self.open.swap_remove(at);
        }
        self.note_if_free(section);
    }

    /// The segment that a log of a kind goes on in when it has filled `filled`; it counts as opened, and `filled` as
    /// closed.
    pub(crate) fn next_for(&mut self, filled: Option<u32>, log: u16) -> Result<u32> {
        let behind = filled.map(|filled| filled + 1).filter(|next| next % self.per_section != 0);
        let is_empty = |next: &u32| self.segment(*next).is_some_and(Segment::is_empty);
        let next = match behind.filter(is_empty) {
            Some(next) => next,
            None => {
                let section = self.free.range(self.hint..).next().or_else(|| self.free.first());
                let section = *section.ok_or(Error::NoSpace)?;
                self.hint = section + 1;
                section * self.per_section
            }
        };
        if let Some(segment) = self.list.get_mut(usize_from(next)) {
            segment.log = log;
            self.changed.insert(next);
        }
        self.opened(next);
        if let Some(filled) = filled {
            self.closed(filled);
        }
        Ok(next)
    }

    /// A block is in use from now on, and written once before the next checkpoint.
    pub(crate) fn take(&mut self, geometry: &Geometry, at: BlockAddr) -> Result<()> {
        self.set(geometry, at, true)?;
        let (number, index) = place_of(geometry, at);
        if let Some(segment) = self.list.get_mut(usize_from(number)) {
            segment.set_kept(index);
        }
        Ok(())
    }

    /// A block is no longer in use.
    pub(crate) fn give_back(&mut self, geometry: &Geometry, at: BlockAddr) -> Result<()> {
        self.set(geometry, at, false)
    }

    fn set(&mut self, geometry: &Geometry, at: BlockAddr, is_used: bool) -> Result<()> {
        let (number, index) = place_of(geometry, at);
        let wrong = |found: &'static str| {
            let expected = if is_used { "a block out of use" } else { "a block in use" };
            Corrupt::new("SIT valid_map", Detail::Text(expected), Detail::Text(found)).at(At::Block(at))
        };
        let segment = self.list.get_mut(usize_from(number)).ok_or_else(|| wrong("one outside the main area"))?;
        if test(&segment.map, index) == is_used {
            return Err(wrong(if is_used { "one in use" } else { "one out of use" }).into());
        }
        if let Some(byte) = segment.map.get_mut(usize_from(index / 8)) {
            *byte ^= mask(index);
        }
        segment.valid = if is_used { segment.valid + 1 } else { segment.valid.saturating_sub(1) };
        self.changed.insert(number);
        Ok(())
    }

    /// Nothing is written to a block before the next checkpoint.
    pub(crate) fn keep(&mut self, geometry: &Geometry, at: BlockAddr) {
        let (number, index) = place_of(geometry, at);
        if let Some(segment) = self.list.get_mut(usize_from(number)) {
            segment.set_kept(index);
            self.changed.insert(number);
            self.note_if_free(number / self.per_section);
        }
    }

    /// Segments that changed since the last checkpoint.
    pub(crate) fn changed(&self) -> Vec<u32> {
        self.changed.iter().copied().collect()
    }

    /// A checkpoint with everything is on the disk. Blocks that only the one before it needed are free from now on;
    /// they are told to `freed`, neighbours together.
    pub(crate) fn committed(&mut self, mut freed: impl FnMut(FreeRun)) {
        let mut open: Option<FreeRun> = None;
        for number in std::mem::take(&mut self.changed) {
            if let Some(segment) = self.list.get_mut(usize_from(number)) {
                let is_freed = |index: &u32| test(&segment.kept, *index) && !test(&segment.map, *index);
                for index in (0..SEGMENT_BLOCKS).filter(is_freed) {
                    let block = number * SEGMENT_BLOCKS + index;
                    match open.as_mut().filter(|run| run.end() == block) {
                        Some(run) => run.count += 1,
                        None => open.replace(FreeRun { start: block, count: 1 }).into_iter().for_each(&mut freed),
                    }
                }
                segment.kept = segment.map;
            }
            self.note_if_free(number / self.per_section);
        }
        open.into_iter().for_each(freed);
    }

    /// Blocks of all segments.
    pub(crate) fn block_count(&self) -> u32 {
        u32::try_from(self.list.len()).unwrap_or(0).saturating_mul(SEGMENT_BLOCKS)
    }

    /// The first run of free blocks that ends behind block `from` of the main area.
    pub(crate) fn free_run(&self, from: u32) -> Option<FreeRun> {
        let end = self.block_count();
        let start = self.next_block(from..end, false)?;
        let behind = self.next_block(start..end, true).unwrap_or(end);
        Some(FreeRun { start, count: behind - start })
    }

    /// The first block of a range that is kept, or that is not.
    fn next_block(&self, range: Range<u32>, is_kept: bool) -> Option<u32> {
        let uniform = if is_kept { [0; MAP_BYTES] } else { [0xff; MAP_BYTES] };
        let mut block = range.start;
        while block < range.end {
            let (number, index) = (block / SEGMENT_BLOCKS, block % SEGMENT_BLOCKS);
            let kept = self.list.get(usize_from(number)).map_or(uniform, |segment| segment.kept);
            if kept != uniform
                && let Some(index) = (index..SEGMENT_BLOCKS).find(|index| test(&kept, *index) == is_kept)
            {
                return Some(number * SEGMENT_BLOCKS + index).filter(|block| *block < range.end);
            }
            block = (number + 1) * SEGMENT_BLOCKS;
        }
        None
    }

    /// The section with the fewest blocks in use that can be emptied, and how many these are; none where that would
    /// gain nothing.
    pub(crate) fn victim(&self) -> Option<(u32, u32)> {
        let sections = (0..self.section_count()).filter(|section| !self.open.contains(section));
        let used = sections.filter(|section| !self.free.contains(section)).map(|section| {
            let valid: u32 = self.segments_of(section).map(|segment| u32::from(segment.valid)).sum();
            (section, valid)
        });
        // What has no block in use comes free with the next checkpoint.
        let gains = used.filter(|(_, valid)| *valid > 0 && u64::from(*valid) < self.blocks_per_section());
        gains.min_by_key(|(_, valid)| *valid)
    }
}

/// The segment of a block and its index there.
fn place_of(geometry: &Geometry, at: BlockAddr) -> (u32, u32) {
    match at.0.checked_sub(geometry.main.0) {
        Some(within) => (within / SEGMENT_BLOCKS, within % SEGMENT_BLOCKS),
        None => (u32::MAX, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAIN: BlockAddr = BlockAddr(4096);

    fn geometry() -> Geometry {
        let (cp, sit, nat, ssa) = (BlockAddr(512), BlockAddr(1536), BlockAddr(2560), BlockAddr(3584));
        let main_blocks = 4 * SEGMENT_BLOCKS;
        let (sit_blocks, nat_blocks, cp_payload, nid_count) = (1, 1, 0, 455);
        Geometry { cp, sit, nat, ssa, main: MAIN, main_blocks, sit_blocks, nat_blocks, cp_payload, nid_count }
    }

    fn at(block: u32) -> BlockAddr {
        MAIN.plus(block)
    }

    fn empty() -> Segments {
        Segments::new(vec![Segment::of(&SitEntry::new(0, [0; MAP_BYTES], 0)); 4], 1)
    }

    fn committed(segments: &mut Segments) -> Vec<(u32, u32)> {
        let mut freed = Vec::new();
        segments.committed(|run| freed.push((run.start, run.count)));
        freed
    }

    #[test]
    fn what_only_the_checkpoint_before_needed_is_free_with_the_next() {
        let (mut segments, geometry) = (empty(), geometry());
        (500..530).for_each(|block| segments.take(&geometry, at(block)).unwrap());
        assert_eq!(committed(&mut segments), []);
        for block in (505..520).chain([525]) {
            segments.give_back(&geometry, at(block)).unwrap();
        }
        assert_eq!(segments.free_run(500), Some(FreeRun { start: 530, count: 2048 - 530 }), "still needed");
        assert_eq!(committed(&mut segments), [(505, 15), (525, 1)]);
        assert_eq!(segments.free_run(0), Some(FreeRun { start: 0, count: 500 }));
        assert_eq!(segments.free_run(510), Some(FreeRun { start: 510, count: 10 }));
        assert_eq!(segments.free_run(2047), Some(FreeRun { start: 2047, count: 1 }));
        assert_eq!(segments.free_run(2048), None);
        // Written and given back before one checkpoint: an fsync may have led there.
        segments.take(&geometry, at(505)).unwrap();
        segments.give_back(&geometry, at(505)).unwrap();
        assert_eq!(segments.free_run(500), Some(FreeRun { start: 506, count: 14 }));
        assert_eq!(committed(&mut segments), [(505, 1)]);
    }
}
