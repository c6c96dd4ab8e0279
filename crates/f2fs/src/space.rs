//! Allocates blocks of a volume that is open for writing: tracks blocks in use, and the logs that give new ones.
//!
//! ```text
//!    pages (of files and directories) --flush--> logs of data --.
//!    nodes (inodes too) --------------commit--> logs of nodes --+--> SIT, NAT --> checkpoint
//! ```
//!
//! Failure: the device's, when the summary of a full segment is read or written; [`Error::NoSpace`](crate::Error) if no
//! section is free. Callers: `write_volume` and `change`.

#![expect(clippy::arithmetic_side_effects, reason = "numbers of blocks of a volume, bounded by the superblock")]

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use f2fs_disk::convert::{to_u64, usize_from};
use f2fs_disk::summary::{JOURNAL_SIZE, Summary, SummaryBlock};
use f2fs_disk::{BlockAddr, Geometry, Nid, SEGMENT_BLOCKS};

use crate::blocks::Blocks;
use crate::dirty_blocks::DirtyCount;
use crate::error::{Error, Result};
use crate::policy::{ActiveLogs, HOT_DATA, HOT_NODE, LOGS};
use crate::segments::{AllocType, Segments, place_of};

/// Blocks beyond the known need, for blocks that a change makes dirty in addition.
const SLACK_BLOCKS: u64 = 32;

/// A segment that blocks are written to in order: to all of it, or to its holes.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) segment: u32,
    /// Index of the next block.
    pub(crate) next: u32,
    /// Holes behind the next block, if the log fills holes.
    holes: Option<VecDeque<u32>>,
    /// The owners of the blocks that were written.
    pub(crate) summaries: Vec<Summary>,
}

impl Log {
    pub(crate) fn new(segment: u32) -> Self {
        let summaries = vec![Summary::new(Nid(0), 0, 0); usize_from(SEGMENT_BLOCKS)];
        Self { segment, next: 0, holes: None, summaries }
    }

    /// A log that fills these holes of a segment.
    pub(crate) fn in_holes(segment: u32, holes: impl Iterator<Item = u32>, owners: &[Summary]) -> Self {
        let mut open = Self { holes: Some(holes.collect()), ..Self::new(segment) };
        open.summaries.iter_mut().zip(owners).for_each(|(to, owner)| *to = *owner);
        open.advance();
        open
    }

    pub(crate) const fn alloc_type(&self) -> AllocType {
        if self.holes.is_some() { AllocType::Ssr } else { AllocType::Lfs }
    }

    pub(crate) fn room(&self) -> u64 {
        match &self.holes {
            Some(holes) if self.next < SEGMENT_BLOCKS => to_u64(holes.len()) + 1,
            Some(_) => 0,
            None => u64::from(SEGMENT_BLOCKS.saturating_sub(self.next)),
        }
    }

    /// Notes that the next block was written.
    fn advance(&mut self) {
        self.next = match &mut self.holes {
            Some(holes) => holes.pop_front().unwrap_or(SEGMENT_BLOCKS),
            None => self.next + 1,
        };
    }

    /// Address of the next block.
    fn next_address(&self, geometry: &Geometry) -> BlockAddr {
        geometry.segment_block(self.segment, self.next)
    }
}

/// Segments, and the logs that write to some of them.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) blocks: Arc<Blocks>,
    pub(crate) geometry: Geometry,
    pub(crate) active_logs: ActiveLogs,
    pub(crate) segments: Segments,
    pub(crate) logs: Vec<Log>,
    /// Segments whose entries are in the journal of the last checkpoint instead of in the SIT.
    pub(crate) sit_journal: BTreeSet<u32>,
    /// Sections reserved for the cleaner.
    pub(crate) reserved_sections: u64,
}

impl Space {
    /// Allocates the next block of a log; `mtime` is the age of its contents if they are not new. With fewer logs than
    /// six, others replace some of them.
    pub(crate) fn allocate(
        &mut self,
        log: usize,
        summary: Summary,
        mtime: Option<u64>,
        dirty: DirtyCount,
    ) -> Result<BlockAddr> {
        let log = self.active_logs.log(log);
        if self.logs.get(log).is_none_or(|open| open.room() == 0) {
            self.change_segment(log, dirty)?;
        }
        let open = self.logs.get_mut(log).ok_or_else(|| Error::bug("log", "one of six"))?;
        let at = open.next_address(&self.geometry);
        if let Some(entry) = open.summaries.get_mut(usize_from(open.next)) {
            *entry = summary;
        }
        open.advance();
        let is_full = open.room() == 0;
        self.segments.take(&self.geometry, at, mtime)?;
        if is_full {
            self.change_segment(log, dirty)?;
        }
        Ok(at)
    }

    /// Frees a block.
    pub(crate) fn give_back(&mut self, at: BlockAddr) -> Result<()> {
        self.segments.give_back(&self.geometry, at)
    }

    /// Reserves a block until the next checkpoint.
    pub(crate) fn keep(&mut self, at: BlockAddr) {
        self.segments.keep(&self.geometry, at);
    }

    /// Address of the next block of a log.
    pub(crate) fn next_address(&self, log: usize) -> BlockAddr {
        let open = self.logs.get(self.active_logs.log(log));
        open.map_or(BlockAddr::NULL, |open| open.next_address(&self.geometry))
    }

    /// Moves a log to another segment, in the kernel's order: the next one of its section, the holes of one if free
    /// sections are few, a free section. Writes the summary of the old one.
    pub(crate) fn change_segment(&mut self, log: usize, dirty: DirtyCount) -> Result<()> {
        let left = self.logs.get(log).map(|open| (open.segment, open.alloc_type()));
        let following = left.filter(|(_, alloc_type)| *alloc_type == AllocType::Lfs);
        let following = following.and_then(|(segment, _)| self.segments.following(segment));
        let is_short = self.needs_ssr(dirty) || self.segments.free_sections() == 0;
        let holes = if following.is_none() && is_short { self.holes_for(log)? } else { None };
        let open = match (following, holes) {
            (Some(next), _) => Log::new(next),
            (None, Some(open)) => open,
            (None, None) => Log::new(self.segments.next_free()?),
        };
        let kind = u16::try_from(log).unwrap_or(0);
        self.segments.change(left.map(|(segment, _)| segment), open.segment, kind);
        if let Some(place) = self.logs.get_mut(log) {
            let left = std::mem::replace(place, open);
            let block = SummaryBlock::new(&left.summaries, log >= HOT_NODE, &[0; JOURNAL_SIZE]);
            self.blocks.write(self.geometry.summary_block(left.segment), &[&block])?;
        }
        Ok(())
    }

    /// A log in the holes of a segment. Its other blocks keep their owners; if these are unknown, its holes are not
    /// used.
    fn holes_for(&mut self, log: usize) -> Result<Option<Log>> {
        while let Some(number) = self.segments.best_holes(log) {
            let block = self.blocks.read(self.geometry.summary_block(number))?;
            let summary = SummaryBlock::verify(&block).ok();
            let summary = summary.filter(|found| (found.footer.entry_type == 1) == (log >= HOT_NODE));
            if let (Some(summary), Some(segment)) = (summary, self.segments.segment(number)) {
                return Ok(Some(Log::in_holes(number, segment.holes(0), &summary.entries)));
            }
            self.segments.bar_holes(number);
        }
        Ok(None)
    }

    /// The node with the address of a data block in use, and the index in it, by the segment's summary.
    pub(crate) fn owner_of(&self, at: BlockAddr) -> Result<Option<(Nid, u32)>> {
        let (number, index) = place_of(&self.geometry, at);
        if !self.segments.segment(number).is_some_and(|segment| segment.is_in_use(index)) {
            return Ok(None);
        }
        let of = |entries: &[Summary]| {
            let owner = entries.get(usize_from(index))?;
            Some((Nid(owner.nid.get()), u32::from(owner.ofs_in_node.get())))
        };
        if let Some(open) = self.logs.iter().take(HOT_NODE).find(|open| open.segment == number) {
            return Ok(of(&open.summaries));
        }
        let block = self.blocks.get(self.geometry.summary_block(number))?;
        let summary = SummaryBlock::verify(&block).ok().filter(|summary| summary.footer.entry_type == 0);
        Ok(summary.and_then(|summary| of(&summary.entries)))
    }

    /// True if `spare` sections stay free when all dirty blocks, and `more` blocks, are written.
    pub(crate) fn has_sections(&self, dirty: DirtyCount, more: u64, spare: u64) -> bool {
        u64::from(self.segments.free_sections()) >= self.sections_needed(dirty, more) + spare
    }

    /// The error if fewer stay free.
    pub(crate) fn no_sections(&self, dirty: DirtyCount, more: u64, spare: u64) -> Error {
        let blocks = |sections: u64| sections.saturating_mul(self.segments.blocks_per_section());
        let needed = self.sections_needed(dirty, more) + spare;
        Error::no_space(blocks(needed), blocks(self.segments.free_sections().into()))
    }

    /// Free sections that the next commit may need for all dirty blocks and `more` blocks, in any distribution among
    /// the logs.
    fn sections_needed(&self, dirty: DirtyCount, more: u64) -> u64 {
        let more = more + SLACK_BLOCKS;
        let all = dirty.nodes + dirty.pages + more;
        let without_holes = all / self.segments.blocks_per_section() + self.short_logs(0..LOGS, all);
        let (data, nodes) = (dirty.pages + more, dirty.nodes + more);
        without_holes.min(self.sections_beside_holes(false, data) + self.sections_beside_holes(true, nodes))
    }

    /// Free sections that logs of data, or of nodes, may need for `blocks`: holes take the first of them.
    fn sections_beside_holes(&self, is_node: bool, blocks: u64) -> u64 {
        let left = blocks.saturating_sub(self.segments.room_in_holes(is_node));
        if left == 0 {
            return 0;
        }
        let logs = if is_node { HOT_NODE..LOGS } else { HOT_DATA..HOT_NODE };
        left / self.segments.blocks_per_section() + self.short_logs(logs, blocks)
    }

    /// Number of logs without space for `blocks` in their segments.
    fn short_logs(&self, logs: Range<usize>, blocks: u64) -> u64 {
        let logs = self.logs.get(logs).unwrap_or_default();
        to_u64(logs.iter().filter(|log| log.room() < blocks).count())
    }

    /// True if free sections are so few that holes are filled first: the rule of the kernel's `f2fs_need_SSR`.
    fn needs_ssr(&self, dirty: DirtyCount) -> bool {
        let sections = |blocks: u64| blocks.div_ceil(self.segments.blocks_per_section());
        let dirty = sections(dirty.nodes) + sections(dirty.pages);
        u64::from(self.segments.free_sections()) <= dirty + 2 * self.reserved_sections
    }
}
