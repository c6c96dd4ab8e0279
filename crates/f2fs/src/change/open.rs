//! Opening a volume for writing.

#![expect(clippy::arithmetic_side_effects, reason = "numbers of blocks and segments, verified with the superblock")]

use std::collections::{BTreeSet, HashMap, VecDeque};

use f2fs_disk::convert::usize_from;
use f2fs_disk::flags::{CheckpointFlags, Features};
use f2fs_disk::node::Footer;
use f2fs_disk::sit::{self, SitEntry};
use f2fs_disk::summary::{self, JOURNAL_SIZE, Summary, SummaryBlock};
use f2fs_disk::{At, Block, BlockAddr, Corrupt, Detail, SEGMENT_BLOCKS};
use host::Env;

use crate::chain::Chain;
use crate::charges::Charges;
use crate::error::{CallerError, Result, Unsupported};
use crate::policy::{COLD_DATA, HOT_NODE, LOGS, Mode, Policy};
use crate::quotas;
use crate::segments::{AllocType, Segment, Segments};
use crate::store::Store;
use crate::writer::{Background, Log, Nodes, Writer};

/// Features of volumes that are only read so far.
const READ_ONLY: Features = Features::BLKZONED.union(Features::DEVICE_ALIAS);
/// Bytes of an entry of a summary, and those of a summary's end.
const SUMMARY_SIZE: usize = size_of::<Summary>();
const FOOTER_SIZE: usize = 5;
/// Sections that count as kept for the cleaner at least.
const RESERVED_MIN: u64 = 3;

impl Store {
    /// Makes the volume ready for changes; nothing is written. What was fsynced after the checkpoint is replayed later.
    ///
    /// # Errors
    /// [`Unsupported::WritingWith`], `ReadOnly` for a device or volume that cannot be written, and for tables of
    /// segments that are damaged.
    pub(crate) fn open_for_writing(&mut self, env: Env, policy: Policy) -> Result<()> {
        let missing = self.features().intersection(READ_ONLY);
        if !missing.is_empty() {
            return Err(Unsupported::WritingWith(missing).into());
        }
        if self.features().contains(Features::RO) || self.blocks.is_read_only() {
            return Err(CallerError::ReadOnly.into());
        }
        let journal: HashMap<u32, SitEntry> = self.sit_journal()?.into_iter().collect();
        let list = self.read_segments(&journal)?;
        let per_section = self.superblock().fields().segs_per_sec.get();
        let mut segments = Segments::new(list, per_section);
        let has_crc = self.checkpoint().flags().contains(CheckpointFlags::CRC_RECOVERY);
        segments.fill_holes(has_crc && policy.mode == Mode::Adaptive);
        let logs = (0..LOGS).map(|log| self.read_log(log, &segments)).collect::<Result<Vec<_>>>()?;
        logs.iter().for_each(|log| segments.opened(log.segment));
        let fields = self.checkpoint().fields();
        let (charges, quotas_need_repair) = self.charges();
        let opened = env.now().0;
        let writer = Writer {
            policy,
            segments,
            logs,
            sit_journal: journal.keys().copied().collect(),
            free_nids: VecDeque::new(),
            nat_scan: fields.next_free_nid.get() / f2fs_disk::geometry::NAT_ENTRIES_PER_BLOCK,
            nat_left: self.geometry().nat_blocks,
            freed_nids: Vec::new(),
            has_freed_nids: false,
            nodes: Nodes::default(),
            pages: HashMap::new(),
            page_count: 0,
            orphans: BTreeSet::new(),
            unnamed: BTreeSet::new(),
            valid_blocks: fields.valid_block_count.get(),
            valid_nodes: fields.valid_node_count.get(),
            valid_inodes: fields.valid_inode_count.get(),
            user_blocks: fields.user_block_count.get(),
            reserved_sections: u64::from(fields.rsvd_segment_count.get() / per_section.max(1)).max(RESERVED_MIN),
            generation: f2fs_disk::hash::crc32(&fields.checkpoint_ver.get().to_le_bytes()),
            changes: 0,
            committed: 0,
            settled: 0,
            chain: Chain::default(),
            charges,
            quotas_need_repair,
            poison: None,
            is_replaying: false,
            opened,
            elapsed_before: fields.elapsed_time.get(),
            background: Background::default(),
            env,
        };
        self.writer = Some(Box::new(writer));
        self.leave_shared_segments()
    }

    /// The quota files, where they are right and so can be kept right.
    fn charges(&self) -> (Charges, bool) {
        if quotas::need_repair(self) {
            return (Charges::default(), true);
        }
        match quotas::files(self) {
            Ok(files) => (Charges::new(files), false),
            Err(error) => {
                tracing::warn!("quotas are not counted, until fsck.f2fs has counted anew: {error}");
                (Charges::default(), true)
            }
        }
    }

    /// Logs go on in other segments where theirs are not as they say: free behind what they have written, or with the
    /// next block free where they fill holes. With `mode=lfs` none does.
    fn leave_shared_segments(&mut self) -> Result<()> {
        for log in 0..LOGS {
            let writer = self.writer()?;
            let goes_on = writer.logs.get(log).is_some_and(|open| {
                writer.segments.segment(open.segment).is_some_and(|segment| match open.alloc_type() {
                    AllocType::Lfs => segment.is_free_from(open.next),
                    AllocType::Ssr => writer.policy.mode == Mode::Adaptive && open.room() > 0,
                })
            });
            if !goes_on {
                self.change_segment(log)?;
            }
        }
        Ok(())
    }

    /// Segments whose entries are in the checkpoint, beside the summary of cold data.
    fn sit_journal(&self) -> Result<Vec<(u32, SitEntry)>> {
        let checkpoint = self.checkpoint();
        let is_compact = checkpoint.flags().contains(CheckpointFlags::COMPACT_SUM);
        let at = if is_compact { checkpoint.compact_summaries() } else { checkpoint.data_summary(2) };
        let block = self.blocks.read(at)?;
        let entries = match summary::compact_journals(&block) {
            Some((_, sit)) if is_compact => summary::sit_journal(sit),
            _ => SummaryBlock::verify(&block).and_then(|summary| summary::sit_journal(&summary.journal)),
        };
        let entries = entries.map_err(|error| error.at(At::Block(at)))?;
        let count = self.segment_count();
        if let Some((segment, _)) = entries.iter().find(|(segment, _)| *segment >= count) {
            let found = Detail::Number(u64::from(*segment));
            return Err(Corrupt::new("SIT journal segno", Detail::AtMost(u64::from(count)), found)
                .at(At::Block(at))
                .into());
        }
        Ok(entries)
    }

    pub(super) fn segment_count(&self) -> u32 {
        self.geometry().main_blocks / SEGMENT_BLOCKS
    }

    fn read_segments(&self, journal: &HashMap<u32, SitEntry>) -> Result<Vec<Segment>> {
        let mut list = Vec::new();
        for number in 0..self.segment_count() {
            let entry = match journal.get(&number) {
                Some(entry) => *entry,
                None => {
                    let (at, index) = self.geometry().sit_block(number, self.checkpoint().sit_bitmap());
                    let block = self.blocks.get(at)?;
                    sit::entry(&block, index).map_err(|error| error.at(At::Block(at)))?
                }
            };
            list.push(Segment::of(&entry));
        }
        Ok(list)
    }

    /// A log as the checkpoint has it.
    fn read_log(&self, log: usize, segments_of: &Segments) -> Result<Log> {
        let fields = self.checkpoint().fields();
        let is_node = log >= HOT_NODE;
        let index = if is_node { log - HOT_NODE } else { log };
        let (segments, offsets) = if is_node {
            (&fields.cur_node_segno, &fields.cur_node_blkoff)
        } else {
            (&fields.cur_data_segno, &fields.cur_data_blkoff)
        };
        let segment = segments.get(index).map_or(0, |segment| segment.get());
        let next = offsets.get(index).map_or(0, |offset| u32::from(offset.get()));
        let found = if is_node { self.node_summaries(segment, index)? } else { self.data_summaries(log)? };
        let known = segments_of.segment(segment);
        if self.alloc_type(log) == AllocType::Ssr
            && let Some(known) = known
        {
            let is_free = known.holes(next).next() == Some(next);
            let holes = if is_free { next } else { SEGMENT_BLOCKS };
            return Ok(Log::in_holes(segment, known.holes(holes), &found));
        }
        let mut open = Log::new(segment);
        open.next = next;
        open.summaries.iter_mut().zip(found).for_each(|(to, from)| *to = from);
        Ok(open)
    }

    /// Who owns the blocks of a segment of nodes: the checkpoint says it after an unmount, otherwise the nodes do.
    fn node_summaries(&self, segment: u32, index: usize) -> Result<Vec<Summary>> {
        let checkpoint = self.checkpoint();
        if checkpoint.flags().intersects(CheckpointFlags::UMOUNT | CheckpointFlags::FASTBOOT) {
            let total = checkpoint.fields().cp_pack_total_block_count.get();
            let at = checkpoint.at().plus(total.saturating_sub(4)).plus(u32::try_from(index).unwrap_or(0));
            return self.summaries_at(at);
        }
        let blocks = (0..SEGMENT_BLOCKS).map(|block| {
            let footer = Footer::of(&self.blocks.read(self.geometry().segment_block(segment, block))?);
            Ok(Summary::new(footer.nid(), 0, 0))
        });
        blocks.collect()
    }

    fn summaries_at(&self, at: BlockAddr) -> Result<Vec<Summary>> {
        let block = self.blocks.read(at)?;
        let summary = SummaryBlock::verify(&block).map_err(|error| error.at(At::Block(at)))?;
        Ok(summary.entries.to_vec())
    }

    fn data_summaries(&self, log: usize) -> Result<Vec<Summary>> {
        let checkpoint = self.checkpoint();
        if !checkpoint.flags().contains(CheckpointFlags::COMPACT_SUM) {
            return self.summaries_at(checkpoint.data_summary(u32::try_from(log).unwrap_or(0)));
        }
        // Entries of the three logs follow each other, as many of each as it has written.
        let fields = checkpoint.fields();
        let counts: Vec<usize> = (0..=COLD_DATA).map(|log| self.compact_count(fields, log)).collect();
        let skipped: usize = counts.iter().take(log).sum();
        let wanted = counts.get(log).copied().unwrap_or(0);
        let (mut found, mut at, mut start) = (Vec::new(), checkpoint.compact_summaries(), 2 * JOURNAL_SIZE);
        while found.len() < skipped + wanted {
            let block: Block = self.blocks.read(at)?;
            let room = (block.len() - FOOTER_SIZE - start) / SUMMARY_SIZE;
            let entries = block.get(start..start + room * SUMMARY_SIZE).unwrap_or_default();
            found.extend(entries.chunks_exact(SUMMARY_SIZE).filter_map(Summary::read));
            (at, start) = (at.plus(1), 0);
        }
        Ok(found.into_iter().skip(skipped).take(wanted).collect())
    }

    /// How a log finds its blocks.
    fn alloc_type(&self, log: usize) -> AllocType {
        AllocType::of(self.checkpoint().fields().alloc_type.get(log).copied().unwrap_or(0))
    }

    /// Entries that a log has among packed ones: all of a segment whose holes are written to.
    fn compact_count(&self, fields: &f2fs_disk::checkpoint::DiskCheckpoint, log: usize) -> usize {
        let is_in_holes = self.alloc_type(log) == AllocType::Ssr;
        let next = fields.cur_data_blkoff.get(log).map_or(0, |offset| usize::from(offset.get()));
        if is_in_holes { usize_from(SEGMENT_BLOCKS) } else { next.min(usize_from(SEGMENT_BLOCKS)) }
    }

    /// Inodes that lost their last name before the checkpoint are removed.
    pub(crate) fn remove_orphans(&mut self) -> Result<()> {
        let orphans = self.orphans()?;
        if orphans.is_empty() {
            return Ok(());
        }
        for ino in orphans {
            self.settle()?;
            match self.inode(ino) {
                Ok(_) => self.free_inode(ino)?,
                // It went before the list was written.
                Err(crate::Error::Caller(CallerError::Stale)) => {}
                Err(error) => return Err(error),
            }
        }
        self.writer_mut()?.changes += 1;
        Ok(())
    }
}
