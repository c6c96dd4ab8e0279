//! Tracks the segments of the main area: which blocks are in use, and which segments are free.
//!
//! A freed block is not reused before the next checkpoint is on the disk: the last one, or a later fsync, may still
//! need it. So there are two maps of each segment: blocks in use, and blocks that the last checkpoint counts or that
//! were written since.
//!
//! Logs get segments by sections, which the cleaner empties as a whole. If free sections are few a log fills the holes
//! of a partly used segment instead (`holes`): blocks that are in neither map.
//!
//! - `holes`: segments whose holes can be filled
//! - `free_runs`: runs of free blocks, for discards
//! - `victim`: the section that the cleaner empties
//!
//! Failure: an address outside the main area is damage. Callers: `space`, and `change` (open, commit, clean).

#![expect(clippy::arithmetic_side_effects, reason = "numbers of segments and blocks, bounded by the superblock")]

mod free_runs;
mod holes;
mod victim;

use std::collections::BTreeSet;

use f2fs_disk::convert::usize_from;
use f2fs_disk::sit::SitEntry;
use f2fs_disk::{At, BlockAddr, Corrupt, Detail, Geometry, SEGMENT_BLOCKS};

use crate::error::{Error, Result};

pub(crate) use free_runs::FreeRun;
pub(crate) use holes::AllocType;
use holes::Holes;

/// Bytes of a map of blocks.
const MAP_BYTES: usize = 64;

/// A segment.
#[derive(Debug, Clone)]
pub(crate) struct Segment {
    /// Blocks in use.
    map: [u8; MAP_BYTES],
    /// Blocks that cannot be written: in use at the last checkpoint, or written or reserved since.
    kept: [u8; MAP_BYTES],
    valid: u16,
    /// Blocks in the map `kept`, which has all blocks in use and more.
    kept_count: u16,
    log: u16,
    mtime: u64,
    /// Its key in the list of segments with holes.
    listed: Option<(usize, u16)>,
    /// Its holes cannot be filled, because its summary is unusable.
    is_barred: bool,
}

impl Segment {
    pub(crate) fn of(entry: &SitEntry) -> Self {
        let (map, valid) = (entry.valid_map, entry.valid_blocks());
        let (log, mtime) = (entry.log_type(), entry.mtime.get());
        Self { map, kept: map, valid, kept_count: valid, log, mtime, listed: None, is_barred: false }
    }

    /// As it lies on disk.
    pub(crate) fn entry(&self) -> SitEntry {
        SitEntry::new(self.log, self.map, self.mtime)
    }

    fn is_empty(&self) -> bool {
        self.valid == 0 && self.kept_count == 0
    }

    fn set_kept(&mut self, index: u32) {
        if let Some(byte) = self.kept.get_mut(usize_from(index / 8)) {
            self.kept_count += u16::from(*byte & mask(index) == 0);
            *byte |= mask(index);
        }
    }

    /// Its holes, from block `from` on.
    pub(crate) fn holes(&self, from: u32) -> impl Iterator<Item = u32> + '_ {
        (from..SEGMENT_BLOCKS).filter(|index| !test(&self.kept, *index))
    }

    pub(crate) fn is_in_use(&self, index: u32) -> bool {
        test(&self.map, index)
    }

    /// Mean time of the last changes of its blocks, in seconds that the volume was mounted.
    pub(crate) const fn mtime(&self) -> u64 {
        self.mtime
    }

    /// Updates the mean time with a change of one block, as the kernel does.
    fn changed_at(&mut self, time: u64) {
        let valid = u128::from(self.valid);
        let mean = (u128::from(self.mtime) * valid + u128::from(time)) / (valid + 1);
        self.mtime = if self.mtime == 0 { time } else { u64::try_from(mean).unwrap_or(u64::MAX) };
    }

    /// True where nothing behind the first `count` blocks is in use or kept.
    pub(crate) fn is_free_from(&self, count: u32) -> bool {
        (count..SEGMENT_BLOCKS).all(|index| !test(&self.kept, index))
    }
}

fn test(map: &[u8; MAP_BYTES], index: u32) -> bool {
    map.get(usize_from(index / 8)).is_some_and(|byte| byte & mask(index) != 0)
}

const fn mask(index: u32) -> u8 {
    0x80 >> (index % 8)
}

/// All segments.
#[derive(Debug)]
pub(crate) struct Segments {
    list: Vec<Segment>,
    changed: BTreeSet<u32>,
    per_section: u32,
    free: BTreeSet<u32>,
    holes: Holes,
    /// True if holes may be filled.
    fills_holes: bool,
    /// Segments that logs write to.
    open: Vec<u32>,
    /// Sections emptied, which the next checkpoint frees.
    cleaned: BTreeSet<u32>,
    /// Sections that cannot be emptied.
    left_alone: BTreeSet<u32>,
    /// Start of the search for the next free section.
    hint: u32,
    /// Seconds that the volume was mounted.
    clock: u64,
}

impl Segments {
    pub(crate) fn new(list: Vec<Segment>, per_section: u32) -> Self {
        let per_section = per_section.max(1);
        let mut segments = Self {
            list,
            changed: BTreeSet::new(),
            per_section,
            free: BTreeSet::new(),
            holes: Holes::default(),
            fills_holes: false,
            open: Vec::new(),
            cleaned: BTreeSet::new(),
            left_alone: BTreeSet::new(),
            hint: 0,
            clock: 0,
        };
        for section in 0..segments.section_count() {
            segments.note_if_free(section);
        }
        (0..u32::try_from(segments.list.len()).unwrap_or(0)).for_each(|number| segments.list_holes(number));
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

    /// Segments without a block in use and without a log, as a checkpoint counts them.
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

    /// True if a log writes to a segment of a section.
    pub(crate) fn is_open(&self, section: u32) -> bool {
        self.open.iter().any(|segment| segment / self.per_section == section)
    }

    fn note_if_free(&mut self, section: u32) {
        if !self.is_open(section) && self.segments_of(section).all(Segment::is_empty) {
            self.free.insert(section);
        } else {
            self.free.remove(&section);
        }
    }

    /// Notes that a log writes to a segment.
    pub(crate) fn opened(&mut self, segment: u32) {
        self.open.push(segment);
        self.free.remove(&(segment / self.per_section));
        self.list_holes(segment);
    }

    /// Notes that a log has left a segment.
    pub(crate) fn closed(&mut self, segment: u32) {
        if let Some(at) = self.open.iter().position(|open| *open == segment) {
            self.open.swap_remove(at);
        }
        self.note_if_free(segment / self.per_section);
        self.list_holes(segment);
    }

    /// The segment behind a filled one, if it is empty and in the same section.
    pub(crate) fn following(&self, filled: u32) -> Option<u32> {
        let next = Some(filled + 1).filter(|next| next % self.per_section != 0)?;
        let is_empty = self.segment(next).is_some_and(Segment::is_empty);
        (is_empty && !self.open.contains(&next)).then_some(next)
    }

    /// The first segment of a free section.
    pub(crate) fn next_free(&mut self) -> Result<u32> {
        let section = self.free.range(self.hint..).next().or_else(|| self.free.first());
        let section = *section.ok_or_else(|| Error::no_space(self.blocks_per_section(), 0))?;
        self.hint = section + 1;
        Ok(section * self.per_section)
    }

    /// Notes that a log of a kind moves from the segment that it filled to another.
    pub(crate) fn change(&mut self, filled: Option<u32>, next: u32, log: u16) {
        if let Some(segment) = self.list.get_mut(usize_from(next)) {
            segment.log = log;
            self.changed.insert(next);
        }
        self.opened(next);
        if let Some(filled) = filled {
            self.closed(filled);
        }
    }

    /// Sets the time of later changes.
    pub(crate) const fn set_clock(&mut self, clock: u64) {
        self.clock = clock;
    }

    /// Notes that a section cannot be emptied.
    pub(crate) fn leave_alone(&mut self, section: u32) {
        self.left_alone.insert(section);
    }

    /// Sets whether holes may be filled.
    pub(crate) const fn fill_holes(&mut self, fills_holes: bool) {
        self.fills_holes = fills_holes;
    }

    /// The segment whose holes a log should fill.
    pub(crate) fn best_holes(&self, log: usize) -> Option<u32> {
        if self.fills_holes { self.holes.best(log) } else { None }
    }

    /// Holes certainly available to logs of data, or of nodes.
    pub(crate) fn room_in_holes(&self, is_node: bool) -> u64 {
        if self.fills_holes { self.holes.room(is_node) } else { 0 }
    }

    /// Excludes the holes of a segment, since the owners of its other blocks are unknown.
    pub(crate) fn bar_holes(&mut self, number: u32) {
        if let Some(segment) = self.list.get_mut(usize_from(number)) {
            segment.is_barred = true;
            self.list_holes(number);
        }
    }

    /// Lists a segment with holes, unless a log writes to it or the next checkpoint frees its section.
    fn list_holes(&mut self, number: u32) {
        let is_away = self.open.contains(&number) || self.cleaned.contains(&(number / self.per_section));
        let Some(segment) = self.list.get_mut(usize_from(number)) else { return };
        if let Some((log, kept)) = segment.listed.take() {
            self.holes.remove(log, kept, number);
        }
        let is_partly_used = segment.valid > 0 && u32::from(segment.kept_count) < SEGMENT_BLOCKS;
        if is_partly_used && !is_away && !segment.is_barred {
            let listed = (usize::from(segment.log), segment.kept_count);
            segment.listed = Some(listed);
            self.holes.add(listed.0, listed.1, number);
        }
    }

    /// Notes that a section is emptied: it is not written before the next checkpoint.
    pub(crate) fn clean(&mut self, section: u32) {
        if self.cleaned.insert(section) {
            self.list_holes_of(section);
        }
    }

    fn list_holes_of(&mut self, section: u32) {
        let first = section * self.per_section;
        (first..first + self.per_section).for_each(|number| self.list_holes(number));
    }

    /// Marks a block as in use, written once before the next checkpoint. Its contents are new, or have the age `mtime`.
    pub(crate) fn take(&mut self, geometry: &Geometry, at: BlockAddr, mtime: Option<u64>) -> Result<()> {
        self.set(geometry, at, true, mtime)?;
        let (number, index) = place_of(geometry, at);
        if let Some(segment) = self.list.get_mut(usize_from(number)) {
            segment.set_kept(index);
        }
        Ok(())
    }

    /// Frees a block.
    pub(crate) fn give_back(&mut self, geometry: &Geometry, at: BlockAddr) -> Result<()> {
        self.set(geometry, at, false, None)
    }

    fn set(&mut self, geometry: &Geometry, at: BlockAddr, is_used: bool, mtime: Option<u64>) -> Result<()> {
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
        segment.changed_at(mtime.unwrap_or(self.clock));
        segment.valid = if is_used { segment.valid + 1 } else { segment.valid.saturating_sub(1) };
        self.changed.insert(number);
        if segment.valid == 0 {
            self.list_holes(number);
        }
        Ok(())
    }

    /// Reserves a block until the next checkpoint.
    pub(crate) fn keep(&mut self, geometry: &Geometry, at: BlockAddr) {
        let (number, index) = place_of(geometry, at);
        if let Some(segment) = self.list.get_mut(usize_from(number)) {
            segment.set_kept(index);
            self.changed.insert(number);
            self.note_if_free(number / self.per_section);
            self.list_holes(number);
        }
    }

    /// Segments changed since the last checkpoint.
    pub(crate) fn changed(&self) -> Vec<u32> {
        self.changed.iter().copied().collect()
    }

    /// Notes a checkpoint with all changes. Blocks kept only for the previous checkpoint are free now; `freed`
    /// gets them, neighbours as one run.
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
                (segment.kept, segment.kept_count) = (segment.map, segment.valid);
            }
            self.note_if_free(number / self.per_section);
            self.list_holes(number);
        }
        open.into_iter().for_each(freed);
        std::mem::take(&mut self.cleaned).into_iter().for_each(|section| self.list_holes_of(section));
    }
}

/// The segment of a block and its index there.
pub(crate) fn place_of(geometry: &Geometry, at: BlockAddr) -> (u32, u32) {
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
        (500..530).for_each(|block| segments.take(&geometry, at(block), None).unwrap());
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
        // Written and freed between two checkpoints: an fsync may have referred to it.
        segments.take(&geometry, at(505), None).unwrap();
        segments.give_back(&geometry, at(505)).unwrap();
        assert_eq!(segments.free_run(500), Some(FreeRun { start: 506, count: 14 }));
        assert_eq!(committed(&mut segments), [(505, 1)]);
    }
}
