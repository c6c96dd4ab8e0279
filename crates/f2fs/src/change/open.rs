//! Opens a volume for writing: reads segments, logs and quota files, and removes orphans. Called by `open_volume`.

#![expect(clippy::arithmetic_side_effects, reason = "numbers of blocks and segments, verified with the superblock")]

use std::collections::HashMap;
use std::sync::Arc;

use f2fs_disk::convert::usize_from;
use f2fs_disk::flags::{CheckpointFlags, Features};
use f2fs_disk::node::Footer;
use f2fs_disk::sit::{self, SitEntry};
use f2fs_disk::summary::{self, JOURNAL_SIZE, Summary, SummaryBlock};
use f2fs_disk::{At, Block, BlockAddr, Corrupt, Detail, SEGMENT_BLOCKS};
use host::Env;

use super::inodes;
use crate::charges::Charges;
use crate::counters::Counters;
use crate::error::{CallerError, Result, Unsupported};
use crate::fsync_chain::Chain;
use crate::node_numbers::Numbers;
use crate::policy::{COLD_DATA, HOT_NODE, LOGS, Mode, Policy};
use crate::progress::Progress;
use crate::quotas;
use crate::read_volume::ReadVolume;
use crate::segments::{AllocType, Segment, Segments};
use crate::space::{Log, Space};
use crate::write_volume::{Background, Clock, Orphans, WriteVolume};

/// Features of volumes that are read-only in this version.
const READ_ONLY: Features = Features::BLKZONED.union(Features::DEVICE_ALIAS);
/// Bytes of an entry of a summary, and of a summary's end.
const SUMMARY_SIZE: usize = size_of::<Summary>();
const FOOTER_SIZE: usize = 5;
/// Fewest sections reserved for the cleaner.
const RESERVED_MIN: u64 = 3;

/// Prepares the volume for changes; nothing is written. The caller replays fsyncs after the checkpoint.
///
/// # Errors
/// [`Unsupported::WritingWith`], `ReadOnly` for a device or volume that cannot be written, and `Corrupt` for damaged
/// tables of segments.
pub(crate) fn open(read: ReadVolume, env: Env, policy: Policy) -> Result<WriteVolume> {
    let volume = &read;
    let missing = volume.features().intersection(READ_ONLY);
    if !missing.is_empty() {
        return Err(Unsupported::WritingWith(missing).into());
    }
    if volume.features().contains(Features::RO) || volume.blocks.is_read_only() {
        return Err(CallerError::ReadOnly.into());
    }
    let journal: HashMap<u32, SitEntry> = sit_journal(volume)?.into_iter().collect();
    let list = read_segments(volume, &journal)?;
    let per_section = volume.superblock().fields().segs_per_sec.get();
    let mut segments = Segments::new(list, per_section);
    let has_crc = volume.checkpoint().flags().contains(CheckpointFlags::CRC_RECOVERY);
    segments.fill_holes(has_crc && policy.mode == Mode::Adaptive);
    let logs = (0..LOGS).map(|log| read_log(volume, log, &segments)).collect::<Result<Vec<_>>>()?;
    logs.iter().for_each(|log| segments.opened(log.segment));
    let fields = volume.checkpoint().fields();
    let charges = charges_of(volume);
    let space = Space {
        blocks: Arc::clone(&volume.blocks),
        geometry: *volume.geometry(),
        active_logs: policy.active_logs,
        segments,
        logs,
        sit_journal: journal.keys().copied().collect(),
        reserved_sections: u64::from(fields.rsvd_segment_count.get() / per_section.max(1)).max(RESERVED_MIN),
    };
    let clock = Clock {
        opened: env.now().0,
        elapsed_before: fields.elapsed_time.get(),
        generation: f2fs_disk::hash::crc32(&fields.checkpoint_ver.get().to_le_bytes()),
        env,
    };
    let mut volume = WriteVolume {
        policy,
        clock,
        space,
        numbers: Numbers::of(volume),
        counters: Counters::of(fields),
        orphans: Orphans::default(),
        chain: Chain::default(),
        charges,
        progress: Progress::default(),
        background: Background::default(),
        read,
    };
    leave_shared_segments(&mut volume)?;
    Ok(volume)
}

/// The quota files, if they are correct and so can be updated.
fn charges_of(volume: &ReadVolume) -> Charges {
    if quotas::need_repair(volume) {
        return Charges::unkept();
    }
    match quotas::files(volume) {
        Ok(files) => Charges::new(files),
        Err(error) => {
            tracing::warn!("quotas are not counted, until fsck.f2fs has counted anew: {error}");
            Charges::unkept()
        }
    }
}

/// Moves logs to other segments if theirs are not as the log requires: free behind the written blocks, or with a free
/// next block for a log in holes. With `mode=lfs` logs in holes are always moved.
fn leave_shared_segments(volume: &mut WriteVolume) -> Result<()> {
    for log in 0..LOGS {
        let goes_on = volume.space.logs.get(log).is_some_and(|open| {
            volume.space.segments.segment(open.segment).is_some_and(|segment| match open.alloc_type() {
                AllocType::Lfs => segment.is_free_from(open.next),
                AllocType::Ssr => volume.policy.mode == Mode::Adaptive && open.room() > 0,
            })
        });
        if !goes_on {
            volume.change_segment(log)?;
        }
    }
    Ok(())
}

/// Segments whose entries are in the checkpoint, beside the summary of cold data.
fn sit_journal(volume: &ReadVolume) -> Result<Vec<(u32, SitEntry)>> {
    let checkpoint = volume.checkpoint();
    let is_compact = checkpoint.flags().contains(CheckpointFlags::COMPACT_SUM);
    let at = if is_compact { checkpoint.compact_summaries() } else { checkpoint.data_summary(2) };
    let block = volume.blocks.read(at)?;
    let entries = match summary::compact_journals(&block) {
        Some((_, sit)) if is_compact => summary::sit_journal(sit),
        _ => SummaryBlock::verify(&block).and_then(|summary| summary::sit_journal(&summary.journal)),
    };
    let entries = entries.map_err(|error| error.at(At::Block(at)))?;
    let count = segment_count(volume);
    if let Some((segment, _)) = entries.iter().find(|(segment, _)| *segment >= count) {
        let found = Detail::Number(u64::from(*segment));
        return Err(Corrupt::new("SIT journal segno", Detail::AtMost(u64::from(count)), found)
            .at(At::Block(at))
            .into());
    }
    Ok(entries)
}

pub(super) fn segment_count(volume: &ReadVolume) -> u32 {
    volume.geometry().main_blocks / SEGMENT_BLOCKS
}

fn read_segments(volume: &ReadVolume, journal: &HashMap<u32, SitEntry>) -> Result<Vec<Segment>> {
    let mut list = Vec::new();
    for number in 0..segment_count(volume) {
        let entry = match journal.get(&number) {
            Some(entry) => *entry,
            None => {
                let (at, index) = volume.geometry().sit_block(number, volume.checkpoint().sit_bitmap());
                let block = volume.blocks.get(at)?;
                sit::entry(&block, index).map_err(|error| error.at(At::Block(at)))?
            }
        };
        list.push(Segment::of(&entry));
    }
    Ok(list)
}

/// A log of the checkpoint.
fn read_log(volume: &ReadVolume, log: usize, segments_of: &Segments) -> Result<Log> {
    let fields = volume.checkpoint().fields();
    let is_node = log >= HOT_NODE;
    let index = if is_node { log - HOT_NODE } else { log };
    let (segments, offsets) = if is_node {
        (&fields.cur_node_segno, &fields.cur_node_blkoff)
    } else {
        (&fields.cur_data_segno, &fields.cur_data_blkoff)
    };
    let segment = segments.get(index).map_or(0, |segment| segment.get());
    let next = offsets.get(index).map_or(0, |offset| u32::from(offset.get()));
    let found = if is_node { node_summaries(volume, segment, index)? } else { data_summaries(volume, log)? };
    let known = segments_of.segment(segment);
    if alloc_type(volume, log) == AllocType::Ssr
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

/// The owners of the blocks of a node segment: from the checkpoint after an unmount, otherwise from the nodes.
fn node_summaries(volume: &ReadVolume, segment: u32, index: usize) -> Result<Vec<Summary>> {
    let checkpoint = volume.checkpoint();
    if checkpoint.flags().intersects(CheckpointFlags::UMOUNT | CheckpointFlags::FASTBOOT) {
        let total = checkpoint.fields().cp_pack_total_block_count.get();
        let at = checkpoint.at().plus(total.saturating_sub(4)).plus(u32::try_from(index).unwrap_or(0));
        return summaries_at(volume, at);
    }
    let blocks = (0..SEGMENT_BLOCKS).map(|block| {
        let footer = Footer::of(&volume.blocks.read(volume.geometry().segment_block(segment, block))?);
        Ok(Summary::new(footer.nid(), 0, 0))
    });
    blocks.collect()
}

fn summaries_at(volume: &ReadVolume, at: BlockAddr) -> Result<Vec<Summary>> {
    let block = volume.blocks.read(at)?;
    let summary = SummaryBlock::verify(&block).map_err(|error| error.at(At::Block(at)))?;
    Ok(summary.entries.to_vec())
}

fn data_summaries(volume: &ReadVolume, log: usize) -> Result<Vec<Summary>> {
    let checkpoint = volume.checkpoint();
    if !checkpoint.flags().contains(CheckpointFlags::COMPACT_SUM) {
        return summaries_at(volume, checkpoint.data_summary(u32::try_from(log).unwrap_or(0)));
    }
    // Entries of the three logs follow each other, one for each written block.
    let fields = checkpoint.fields();
    let counts: Vec<usize> = (0..=COLD_DATA).map(|log| compact_count(volume, fields, log)).collect();
    let skipped: usize = counts.iter().take(log).sum();
    let wanted = counts.get(log).copied().unwrap_or(0);
    let (mut found, mut at, mut start) = (Vec::new(), checkpoint.compact_summaries(), 2 * JOURNAL_SIZE);
    while found.len() < skipped + wanted {
        let block: Block = volume.blocks.read(at)?;
        let room = (block.len() - FOOTER_SIZE - start) / SUMMARY_SIZE;
        let entries = block.get(start..start + room * SUMMARY_SIZE).unwrap_or_default();
        found.extend(entries.chunks_exact(SUMMARY_SIZE).filter_map(Summary::read));
        (at, start) = (at.plus(1), 0);
    }
    Ok(found.into_iter().skip(skipped).take(wanted).collect())
}

/// How a log finds its blocks.
fn alloc_type(volume: &ReadVolume, log: usize) -> AllocType {
    AllocType::of(volume.checkpoint().fields().alloc_type.get(log).copied().unwrap_or(0))
}

/// Entries of a log among packed ones: of all blocks, if it fills the holes of a segment.
fn compact_count(volume: &ReadVolume, fields: &f2fs_disk::checkpoint::DiskCheckpoint, log: usize) -> usize {
    let is_in_holes = alloc_type(volume, log) == AllocType::Ssr;
    let next = fields.cur_data_blkoff.get(log).map_or(0, |offset| usize::from(offset.get()));
    if is_in_holes { usize_from(SEGMENT_BLOCKS) } else { next.min(usize_from(SEGMENT_BLOCKS)) }
}

/// Removes inodes that lost their last name before the checkpoint.
pub(crate) fn remove_orphans(volume: &mut WriteVolume) -> Result<()> {
    let orphans = volume.orphans()?;
    if orphans.is_empty() {
        return Ok(());
    }
    for ino in orphans {
        volume.settle();
        match volume.inode(ino) {
            Ok(_) => inodes::free(volume, ino)?,
            // It was removed before the list was written.
            Err(crate::Error::Caller(CallerError::Stale)) => {}
            Err(error) => return Err(error),
        }
    }
    volume.progress.changed();
    Ok(())
}
