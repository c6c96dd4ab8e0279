//! Writes checkpoints: all changes become the current state at once.
//!
//! ```text
//!    quota files -> pages -> nodes -> SIT and NAT blocks, the copies that do not count
//!      -> the other pack but its last block -> flush -> the last block of the pack -> flush
//!      -> discards of what only the checkpoint before needed
//! ```
//!
//! Until the last block is on the disk the pack has no end of the same version, and the other pack is valid. No block
//! that it needs was overwritten: blocks freed since are not reused, and of SIT and NAT the other copies were written.
//! Callers: syncs, `room`, `fsync`, `background`.

#![expect(clippy::arithmetic_side_effects, reason = "counts of blocks within a pack, and times")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use f2fs_disk::bits::{set_bit, test_bit};
use f2fs_disk::checkpoint::{self, Checkpoint, DiskCheckpoint};
use f2fs_disk::convert::{to_usize, u32_len, usize_from};
use f2fs_disk::flags::CheckpointFlags;
use f2fs_disk::geometry::NAT_ENTRIES_PER_BLOCK;
use f2fs_disk::inode::{self, Kind};
use f2fs_disk::nat::{self, NatEntry};
use f2fs_disk::node::{Footer, XATTR_OFFSET};
use f2fs_disk::sit::{self, ENTRIES_PER_BLOCK};
use f2fs_disk::summary::{
    JOURNAL_SIZE, NAT_JOURNAL_MAX, SIT_JOURNAL_MAX, Summary, SummaryBlock, nat_journal_of, sit_journal_of,
};
use f2fs_disk::{BLOCK_SIZE, Block, BlockAddr, Nid, orphan};

use super::{discard, flush, quotas};
use crate::blocks::Run;
use crate::error::{Error, Result};
use crate::policy::{COLD_DATA, COLD_NODE, HOT_DATA, HOT_NODE, LOGS, Mode, WARM_NODE};
use crate::read_volume::ReadVolume;
use crate::segments::Segment;
use crate::space::{Log, Space};
use crate::write_volume::WriteVolume;

/// Log marks in the footer of a node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Marks {
    /// Version of the checkpoint that it follows.
    pub(super) cp_ver: u64,
    /// Marks the last node of an fsync.
    pub(super) is_fsync: bool,
    /// Marks an inode whose name has to be made.
    pub(super) is_dent: bool,
}

/// Entries of the NAT, in order.
type NatEntries = Vec<(Nid, NatEntry)>;

/// Blocks that every pack has.
const FIRST_AND_LAST: u32 = 2;

/// Makes all changes durable. `is_last` if the volume is closed by it.
///
/// # Errors
/// The device's error; then all later writes are refused.
pub(crate) fn commit(volume: &mut WriteVolume, is_last: bool) -> Result<()> {
    volume.progress.check()?;
    let is_clean = volume.checkpoint().flags().contains(CheckpointFlags::UMOUNT);
    if volume.progress.is_committed() && (is_clean || !is_last) {
        return Ok(());
    }
    let done = write_checkpoint(volume, is_last);
    volume.poison_on_error(done)?;
    let mut freed = Vec::new();
    let is_told = volume.policy.discard;
    volume.space.segments.committed(|run| {
        if is_told {
            freed.push(run);
        }
    });
    // From now on nodes carry the checksum of the checkpoint: old blocks in holes cannot be mistaken for them.
    volume.space.segments.fill_holes(volume.policy.mode == Mode::Adaptive);
    volume.chain.committed(is_last);
    volume.numbers.committed();
    volume.progress.committed();
    discard::freed(&volume.space, &freed);
    Ok(())
}

fn write_checkpoint(volume: &mut WriteVolume, is_last: bool) -> Result<()> {
    quotas::count(volume)?;
    flush::all(volume)?;
    write_nodes(volume)?;
    let (nat_bitmap, nat_journal) = write_nat(volume)?;
    let (sit_bitmap, sit_journal) = write_sit(volume.read.checkpoint().sit_bitmap(), &mut volume.space)?;
    let nat = (&nat_bitmap[..], nat_journal.as_slice());
    write_pack(volume, is_last, (&sit_bitmap, &sit_journal), nat)?;
    if nat_journal.is_empty() {
        // Not earlier: after a failure readers use the blocks of the checkpoint before.
        volume.read.nat.clear();
    }
    Ok(())
}

/// Writes all dirty nodes.
fn write_nodes(volume: &mut WriteVolume) -> Result<()> {
    let mut nids: Vec<(usize, Nid)> = Vec::new();
    for (nid, block) in volume.read.dirty.nodes.all() {
        nids.push((node_log(volume, block)?, nid));
    }
    nids.sort_unstable();
    // They end the chain of fsynced nodes.
    let marks = Marks { cp_ver: volume.checkpoint().mark_of_past(), is_fsync: false, is_dent: false };
    let mut runs = Vec::new();
    for (log, nid) in nids {
        let (at, block) = place_node(volume, log, nid, marks)?;
        Run::add(&mut runs, at, block);
    }
    volume.blocks.write_runs(&runs)?;
    volume.read.dirty.nodes.clear();
    Ok(())
}

/// Allocates the block of a node, and prepares its contents.
pub(super) fn place_node(
    volume: &mut WriteVolume,
    log: usize,
    nid: Nid,
    marks: Marks,
) -> Result<(BlockAddr, Arc<Block>)> {
    let entry = volume.nat_entry(nid)?;
    let old = volume.address(nid)?;
    let at = volume.allocate(log, Summary::new(nid, 0, 0), None)?;
    let next = volume.space.next_address(log);
    if let Some(old) = old {
        volume.space.give_back(old)?;
    }
    let (features, seed) = (volume.features(), volume.inode_seed());
    let block = volume.read.dirty.nodes.get_mut(nid)?;
    let contents = Arc::make_mut(block);
    let footer = Footer::of(contents);
    let mut footer = footer.with_marks(log != HOT_NODE, marks.is_fsync, marks.is_dent);
    (footer.cp_ver, footer.next_blkaddr) = (marks.cp_ver.into(), next.0.into());
    footer.put(contents);
    if footer.is_inode() {
        inode::seal(contents, nid, features, seed);
    }
    let block = Arc::clone(block);
    volume.set_nat(nid, entry.version, footer.ino(), at);
    Ok((at, block))
}

/// The log for a node.
fn node_log(volume: &ReadVolume, block: &Block) -> Result<usize> {
    let footer = Footer::of(block);
    if !footer.is_direct() && footer.offset() != XATTR_OFFSET {
        return Ok(COLD_NODE);
    }
    let is_dir = volume.inode(footer.ino())?.inode.kind() == Kind::Directory;
    Ok(if is_dir { HOT_NODE } else { WARM_NODE })
}

/// Writes NAT entries into blocks if they are too many for the journal; returns which copies of blocks are valid, and
/// the journal.
fn write_nat(volume: &ReadVolume) -> Result<(Vec<u8>, NatEntries)> {
    let mut bitmap = volume.checkpoint().nat_bitmap().to_vec();
    let mut entries: NatEntries = volume.nat.iter().map(|(nid, entry)| (*nid, *entry)).collect();
    entries.sort_unstable_by_key(|(nid, _)| *nid);
    if entries.len() <= NAT_JOURNAL_MAX {
        return Ok((bitmap, entries));
    }
    let geometry = *volume.geometry();
    let number_of = |nid: Nid| nid.0 / NAT_ENTRIES_PER_BLOCK;
    for entries in entries.chunk_by(|(one, _), (other, _)| number_of(*one) == number_of(*other)) {
        let Some((nid, _)) = entries.first() else { continue };
        let number = number_of(*nid);
        let first = Nid(number * NAT_ENTRIES_PER_BLOCK);
        let (old, _) = geometry.nat_block(first, &bitmap);
        let mut block = volume.blocks.get(old)?;
        let contents = Arc::make_mut(&mut block);
        for (nid, entry) in entries {
            nat::put(contents, usize_from(nid.0 % NAT_ENTRIES_PER_BLOCK), entry);
        }
        flip(&mut bitmap, number);
        let (new, _) = geometry.nat_block(first, &bitmap);
        volume.blocks.write_metadata(new, &[block])?;
    }
    Ok((bitmap, Vec::new()))
}

/// Writes SIT entries into blocks if they are too many for the journal; returns which copies of blocks are valid, and
/// the journal.
fn write_sit(bitmap: &[u8], space: &mut Space) -> Result<(Vec<u8>, [u8; JOURNAL_SIZE])> {
    let mut bitmap = bitmap.to_vec();
    let mut wanted: BTreeSet<u32> = space.sit_journal.clone();
    wanted.extend(space.segments.changed());
    let entry_of = |number: u32| space.segments.segment(number).map(Segment::entry);
    if wanted.len() <= SIT_JOURNAL_MAX {
        let entries: Vec<_> = wanted.iter().filter_map(|number| Some((*number, entry_of(*number)?))).collect();
        let journal = sit_journal_of(&entries);
        space.sit_journal = wanted;
        return Ok((bitmap, journal));
    }
    let geometry = space.geometry;
    let mut by_block: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for number in wanted {
        by_block.entry(number / ENTRIES_PER_BLOCK).or_default().push(number);
    }
    for (number, segments) in by_block {
        let first = number * ENTRIES_PER_BLOCK;
        let (old, _) = geometry.sit_block(first, &bitmap);
        let mut block = space.blocks.get(old)?;
        let contents = Arc::make_mut(&mut block);
        for segment in segments {
            if let Some(entry) = entry_of(segment) {
                sit::put(contents, usize_from(segment % ENTRIES_PER_BLOCK), &entry);
            }
        }
        flip(&mut bitmap, number);
        let (new, _) = geometry.sit_block(first, &bitmap);
        space.blocks.write_metadata(new, &[block])?;
    }
    space.sit_journal.clear();
    Ok((bitmap, sit_journal_of(&[])))
}

fn write_pack(
    volume: &mut WriteVolume,
    is_last: bool,
    (sit, sit_journal): (&[u8], &[u8; JOURNAL_SIZE]),
    (nat, nat_journal): (&[u8], &[(Nid, NatEntry)]),
) -> Result<()> {
    let payload = volume.geometry().cp_payload;
    let orphans = orphan_blocks(&volume.orphans.all());
    let mut fields = next_fields(volume, is_last, u32_len(orphans.len()));
    let summaries = pack_summaries(&volume.space.logs, is_last, sit_journal, &nat_journal_of(nat_journal));
    let total = FIRST_AND_LAST + payload + u32_len(orphans.len() + summaries.len());
    fields.cp_pack_total_block_count = total.into();
    let head = checkpoint::encode(&fields, sit, nat, payload);
    let last: Block = head.first_chunk().copied().unwrap_or([0; BLOCK_SIZE]);
    let geometry = *volume.geometry();
    let is_first = volume.checkpoint().at() == geometry.pack(0);
    let at = geometry.pack(u32::from(is_first));
    let checkpoint = Checkpoint::verify(&head, &last, at, volume.superblock());
    let checkpoint = checkpoint.map_err(|wrong| Error::Bug(Box::new(wrong)))?;
    let mut parts: Vec<&[u8]> = vec![&head];
    parts.extend(orphans.iter().chain(&summaries).map(|block| block.as_slice()));
    // Blocks of a pack are read once, and so not cached.
    volume.blocks.write(at, &parts)?;
    volume.blocks.flush()?;
    volume.blocks.write(at.plus(total.saturating_sub(1)), &[&last])?;
    volume.blocks.flush()?;
    volume.read.set_checkpoint(checkpoint);
    Ok(())
}

fn orphan_blocks(orphans: &[Nid]) -> Vec<Block> {
    let count = u16::try_from(orphans.len().div_ceil(orphan::ORPHANS_PER_BLOCK)).unwrap_or(u16::MAX);
    let blocks = (1..).zip(orphans.chunks(orphan::ORPHANS_PER_BLOCK));
    blocks.map(|(index, inos)| orphan::block_of(inos, index, count)).collect()
}

/// Summaries of the data logs, with the journals, and of the node logs if the volume is closed.
fn pack_summaries(
    logs: &[Log],
    is_last: bool,
    sit_journal: &[u8; JOURNAL_SIZE],
    nat_journal: &[u8; JOURNAL_SIZE],
) -> Vec<Block> {
    let count = if is_last { LOGS } else { HOT_NODE };
    let blocks = logs.iter().enumerate().take(count).map(|(log, open)| {
        let journal = match log {
            HOT_DATA => nat_journal,
            COLD_DATA => sit_journal,
            _ => &[0; JOURNAL_SIZE],
        };
        SummaryBlock::new(&open.summaries, log >= HOT_NODE, journal)
    });
    blocks.collect()
}

fn next_fields(volume: &WriteVolume, is_last: bool, orphan_blocks: u32) -> DiskCheckpoint {
    let mut fields = *volume.checkpoint().fields();
    fields.checkpoint_ver = fields.checkpoint_ver.get().wrapping_add(1).into();
    fields.valid_block_count = volume.counters.blocks.into();
    fields.valid_node_count = volume.counters.nodes.into();
    fields.valid_inode_count = volume.counters.inodes.into();
    let current: Vec<u32> = volume.space.logs.iter().map(|open| open.segment).collect();
    fields.free_segment_count = volume.space.segments.free_segments(&current).into();
    fields.alloc_type = [0; 16];
    for (log, open) in volume.space.logs.iter().enumerate() {
        let (segments, offsets) = match log {
            HOT_NODE.. => (&mut fields.cur_node_segno, &mut fields.cur_node_blkoff),
            _ => (&mut fields.cur_data_segno, &mut fields.cur_data_blkoff),
        };
        set(segments, log % HOT_NODE, open.segment.into());
        set(offsets, log % HOT_NODE, u16::try_from(open.next).unwrap_or(u16::MAX).into());
        set(&mut fields.alloc_type, log, open.alloc_type().number());
    }
    fields.next_free_nid = volume.numbers.next_free(volume).into();
    fields.cp_pack_start_sum = (1 + volume.geometry().cp_payload + orphan_blocks).into();
    fields.elapsed_time = volume.clock.elapsed().into();
    let mut flags = fields.flags();
    flags.remove(CheckpointFlags::COMPACT_SUM | CheckpointFlags::FASTBOOT | CheckpointFlags::NAT_BITS);
    flags.remove(CheckpointFlags::NOCRC_RECOVERY | CheckpointFlags::TRIMMED);
    flags.insert(CheckpointFlags::CRC_RECOVERY);
    if volume.charges.need_repair {
        flags.insert(CheckpointFlags::QUOTA_NEED_FSCK);
    }
    flags.set(CheckpointFlags::UMOUNT, is_last);
    flags.set(CheckpointFlags::ORPHAN_PRESENT, orphan_blocks > 0);
    fields.ckpt_flags = flags.bits().into();
    fields
}

fn set<T>(list: &mut [T], index: usize, value: T) {
    if let Some(place) = list.get_mut(index) {
        *place = value;
    }
}

/// Marks the other copy of a block as valid.
fn flip(bitmap: &mut [u8], number: u32) {
    let index = to_usize(u64::from(number));
    if test_bit(bitmap, index) {
        f2fs_disk::bits::clear_bit(bitmap, index);
    } else {
        set_bit(bitmap, index);
    }
}
