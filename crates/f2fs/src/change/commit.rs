//! Checkpoints: everything that changed becomes the state that counts, at once.
//!
//! ```text
//!    quota files -> pages -> nodes -> SIT and NAT blocks, the copies that do not count
//!      -> the other pack but its last block -> flush -> the last block of the pack -> flush
//!      -> discards of what only the checkpoint before needed
//! ```
//!
//! Until the last block is on the disk the pack has no end of the same version, and the other one counts. What that one
//! needs was not overwritten: blocks that were given back since stay out of use, and of SIT and NAT the other copies
//! were written.

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

use crate::blocks::Run;
use crate::error::{Error, Result};
use crate::policy::{COLD_DATA, COLD_NODE, HOT_DATA, HOT_NODE, LOGS, Mode, WARM_NODE};
use crate::store::Store;

/// What the footer of a node says of the log.
#[derive(Debug, Clone, Copy)]
pub(super) struct Marks {
    /// Of which checkpoint it counts as written after.
    pub(super) cp_ver: u64,
    /// The last node of an fsync.
    pub(super) is_fsync: bool,
    /// An inode whose name has to be made.
    pub(super) is_dent: bool,
}

/// Entries of the NAT, in order.
type NatEntries = Vec<(Nid, NatEntry)>;

/// Blocks of a pack that every one has.
const FIRST_AND_LAST: u32 = 2;

impl Store {
    /// Makes all changes durable. `is_last` where the volume is closed behind it.
    ///
    /// # Errors
    /// What the device says; nothing is written any more then.
    pub(crate) fn commit(&mut self, is_last: bool) -> Result<()> {
        let writer = self.writer()?;
        writer.check()?;
        let is_clean = self.checkpoint().flags().contains(CheckpointFlags::UMOUNT);
        if writer.changes == writer.committed && (is_clean || !is_last) {
            return Ok(());
        }
        let done = self.write_checkpoint(is_last);
        self.noted(done)?;
        let (writer, mut freed) = (self.writer_mut()?, Vec::new());
        let is_told = writer.policy.discard;
        writer.segments.committed(|run| {
            if is_told {
                freed.push(run);
            }
        });
        // From now on nodes carry the checksum of the checkpoint: what lies in holes cannot be taken for one of them.
        writer.segments.fill_holes(writer.policy.mode == Mode::Adaptive);
        writer.chain.committed(is_last);
        writer.has_freed_nids |= !writer.freed_nids.is_empty();
        writer.freed_nids.clear();
        writer.committed = writer.changes;
        self.discard_freed(&freed);
        Ok(())
    }

    fn write_checkpoint(&mut self, is_last: bool) -> Result<()> {
        self.count_quotas()?;
        self.flush_all()?;
        self.write_nodes()?;
        let (nat_bitmap, nat_journal) = self.write_nat()?;
        let (sit_bitmap, sit_journal) = self.write_sit()?;
        let nat = (&nat_bitmap[..], nat_journal.as_slice());
        self.write_pack(is_last, (&sit_bitmap, &sit_journal), nat)?;
        if nat_journal.is_empty() {
            // Not earlier: who reads after a failure is led by the blocks that the checkpoint before counts.
            self.nat.clear();
        }
        Ok(())
    }

    /// Writes all nodes that changed.
    fn write_nodes(&mut self) -> Result<()> {
        let mut nids: Vec<(usize, Nid)> = Vec::new();
        for (nid, block) in self.writer()?.nodes.all() {
            nids.push((self.node_log(block)?, nid));
        }
        nids.sort_unstable();
        // They end the chain of fsynced nodes.
        let marks = Marks { cp_ver: self.checkpoint().mark_of_past(), is_fsync: false, is_dent: false };
        let mut runs = Vec::new();
        for (log, nid) in nids {
            let (at, block) = self.place_node(log, nid, marks)?;
            Run::add(&mut runs, at, block);
        }
        self.blocks.write_runs(&runs)?;
        self.writer_mut()?.nodes.clear();
        Ok(())
    }

    /// Gives a node its place, and makes its block ready to be written there.
    pub(super) fn place_node(&mut self, log: usize, nid: Nid, marks: Marks) -> Result<(BlockAddr, Arc<Block>)> {
        let geometry = *self.geometry();
        let entry = self.nat_entry(nid)?;
        let old = self.address(nid)?;
        let at = self.allocate(log, Summary::new(nid, 0, 0))?;
        let writer = self.writer()?;
        let next = writer
            .logs
            .get(writer.policy.active_logs.log(log))
            .map_or(BlockAddr::NULL, |open| open.next_address(&geometry));
        if let Some(old) = old {
            self.writer_mut()?.segments.give_back(&geometry, old)?;
        }
        let (features, seed) = (self.features(), self.inode_seed());
        let block = self.writer_mut()?.nodes.get_mut(nid).ok_or(Error::NoSpace)?;
        let contents = Arc::make_mut(block);
        let footer = Footer::of(contents);
        let mut footer = footer.with_marks(log != HOT_NODE, marks.is_fsync, marks.is_dent);
        (footer.cp_ver, footer.next_blkaddr) = (marks.cp_ver.into(), next.0.into());
        footer.put(contents);
        if footer.is_inode() {
            inode::seal(contents, nid, features, seed);
        }
        let block = Arc::clone(block);
        self.set_nat(nid, entry.version, footer.ino(), at)?;
        Ok((at, block))
    }

    /// The log of nodes that a node goes to.
    fn node_log(&self, block: &Block) -> Result<usize> {
        let footer = Footer::of(block);
        if !footer.is_direct() && footer.offset() != XATTR_OFFSET {
            return Ok(COLD_NODE);
        }
        let is_dir = self.inode(footer.ino())?.inode.kind() == Kind::Directory;
        Ok(if is_dir { HOT_NODE } else { WARM_NODE })
    }

    /// Writes entries of the NAT into blocks where they are too many for the journal; which copies of blocks count, and
    /// what the journal has.
    fn write_nat(&self) -> Result<(Vec<u8>, NatEntries)> {
        let mut bitmap = self.checkpoint().nat_bitmap().to_vec();
        let mut entries: NatEntries = self.nat.iter().map(|(nid, entry)| (*nid, *entry)).collect();
        entries.sort_unstable_by_key(|(nid, _)| *nid);
        if entries.len() <= NAT_JOURNAL_MAX {
            return Ok((bitmap, entries));
        }
        let geometry = *self.geometry();
        let number_of = |nid: Nid| nid.0 / NAT_ENTRIES_PER_BLOCK;
        for entries in entries.chunk_by(|(one, _), (other, _)| number_of(*one) == number_of(*other)) {
            let Some((nid, _)) = entries.first() else { continue };
            let number = number_of(*nid);
            let first = Nid(number * NAT_ENTRIES_PER_BLOCK);
            let (old, _) = geometry.nat_block(first, &bitmap);
            let mut block = self.blocks.get(old)?;
            let contents = Arc::make_mut(&mut block);
            for (nid, entry) in entries {
                nat::put(contents, usize_from(nid.0 % NAT_ENTRIES_PER_BLOCK), entry);
            }
            flip(&mut bitmap, number);
            let (new, _) = geometry.nat_block(first, &bitmap);
            self.blocks.write_metadata(new, &[block])?;
        }
        Ok((bitmap, Vec::new()))
    }

    /// Writes entries of the SIT into blocks where they are too many for the journal; which copies of blocks count,
    /// and the journal.
    fn write_sit(&mut self) -> Result<(Vec<u8>, [u8; JOURNAL_SIZE])> {
        let mut bitmap = self.checkpoint().sit_bitmap().to_vec();
        let writer = self.writer()?;
        let mut wanted: BTreeSet<u32> = writer.sit_journal.clone();
        wanted.extend(writer.segments.changed());
        let entry_of = |number: u32| writer.segments.segment(number).map(crate::segments::Segment::entry);
        if wanted.len() <= SIT_JOURNAL_MAX {
            let entries: Vec<_> = wanted.iter().filter_map(|number| Some((*number, entry_of(*number)?))).collect();
            let journal = sit_journal_of(&entries);
            self.writer_mut()?.sit_journal = wanted;
            return Ok((bitmap, journal));
        }
        let geometry = *self.geometry();
        let mut by_block: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for number in wanted {
            by_block.entry(number / ENTRIES_PER_BLOCK).or_default().push(number);
        }
        for (number, segments) in by_block {
            let first = number * ENTRIES_PER_BLOCK;
            let (old, _) = geometry.sit_block(first, &bitmap);
            let mut block = self.blocks.get(old)?;
            let contents = Arc::make_mut(&mut block);
            for segment in segments {
                if let Some(entry) = entry_of(segment) {
                    sit::put(contents, usize_from(segment % ENTRIES_PER_BLOCK), &entry);
                }
            }
            flip(&mut bitmap, number);
            let (new, _) = geometry.sit_block(first, &bitmap);
            self.blocks.write_metadata(new, &[block])?;
        }
        self.writer_mut()?.sit_journal.clear();
        Ok((bitmap, sit_journal_of(&[])))
    }

    fn write_pack(
        &mut self,
        is_last: bool,
        (sit, sit_journal): (&[u8], &[u8; JOURNAL_SIZE]),
        (nat, nat_journal): (&[u8], &[(Nid, NatEntry)]),
    ) -> Result<()> {
        let payload = self.geometry().cp_payload;
        let orphans = self.orphan_blocks_of()?;
        let mut fields = self.next_fields(is_last, u32_len(orphans.len()))?;
        let summaries = self.pack_summaries(is_last, sit_journal, &nat_journal_of(nat_journal))?;
        let total = FIRST_AND_LAST + payload + u32_len(orphans.len() + summaries.len());
        fields.cp_pack_total_block_count = total.into();
        let head = checkpoint::encode(&fields, sit, nat, payload);
        let last: Block = head.first_chunk().copied().unwrap_or([0; BLOCK_SIZE]);
        let geometry = *self.geometry();
        let is_first = self.checkpoint().at() == geometry.pack(0);
        let at = geometry.pack(u32::from(is_first));
        let checkpoint = Checkpoint::verify(&head, &last, at, self.superblock());
        let checkpoint = checkpoint.map_err(|wrong| Error::Bug(Box::new(wrong)))?;
        let mut parts: Vec<&[u8]> = vec![&head];
        parts.extend(orphans.iter().chain(&summaries).map(|block| block.as_slice()));
        // No block of a pack is in the cache: they are read once.
        self.blocks.write(at, &parts)?;
        self.blocks.flush()?;
        self.blocks.write(at.plus(total.saturating_sub(1)), &[&last])?;
        self.blocks.flush()?;
        self.set_checkpoint(checkpoint);
        Ok(())
    }

    fn orphan_blocks_of(&self) -> Result<Vec<Block>> {
        let orphans: Vec<Nid> = self.writer()?.orphans.iter().copied().collect();
        let count = u16::try_from(orphans.len().div_ceil(orphan::ORPHANS_PER_BLOCK)).unwrap_or(u16::MAX);
        let blocks = (1..).zip(orphans.chunks(orphan::ORPHANS_PER_BLOCK));
        Ok(blocks.map(|(index, inos)| orphan::block_of(inos, index, count)).collect())
    }

    /// Summaries of the logs of data, with the journals, and of those of nodes where the volume is closed.
    fn pack_summaries(
        &self,
        is_last: bool,
        sit_journal: &[u8; JOURNAL_SIZE],
        nat_journal: &[u8; JOURNAL_SIZE],
    ) -> Result<Vec<Block>> {
        let none = [0; JOURNAL_SIZE];
        let count = if is_last { LOGS } else { HOT_NODE };
        let logs = self.writer()?.logs.iter().enumerate().take(count);
        let blocks = logs.map(|(log, open)| {
            let journal = match log {
                HOT_DATA => nat_journal,
                COLD_DATA => sit_journal,
                _ => &none,
            };
            SummaryBlock::new(&open.summaries, log >= HOT_NODE, journal)
        });
        Ok(blocks.collect())
    }

    fn next_fields(&self, is_last: bool, orphan_blocks: u32) -> Result<DiskCheckpoint> {
        let writer = self.writer()?;
        let mut fields = *self.checkpoint().fields();
        fields.checkpoint_ver = fields.checkpoint_ver.get().wrapping_add(1).into();
        fields.valid_block_count = writer.valid_blocks.into();
        fields.valid_node_count = writer.valid_nodes.into();
        fields.valid_inode_count = writer.valid_inodes.into();
        let current: Vec<u32> = writer.logs.iter().map(|open| open.segment).collect();
        fields.free_segment_count = writer.segments.free_segments(&current).into();
        let (data, nodes) = writer.logs.split_at_checked(HOT_NODE).unwrap_or((&[], &[]));
        for (index, open) in nodes.iter().enumerate() {
            set(&mut fields.cur_node_segno, index, open.segment.into());
            set(&mut fields.cur_node_blkoff, index, u16::try_from(open.next).unwrap_or(u16::MAX).into());
        }
        for (index, open) in data.iter().enumerate() {
            set(&mut fields.cur_data_segno, index, open.segment.into());
            set(&mut fields.cur_data_blkoff, index, u16::try_from(open.next).unwrap_or(u16::MAX).into());
        }
        fields.alloc_type = [0; 16];
        for (log, open) in writer.logs.iter().enumerate() {
            set(&mut fields.alloc_type, log, open.alloc_type().number());
        }
        fields.next_free_nid = self.next_free_nid()?.into();
        fields.cp_pack_start_sum = (1 + self.geometry().cp_payload + orphan_blocks).into();
        fields.elapsed_time = writer.clock().into();
        let mut flags = fields.flags();
        flags.remove(CheckpointFlags::COMPACT_SUM | CheckpointFlags::FASTBOOT | CheckpointFlags::NAT_BITS);
        flags.remove(CheckpointFlags::NOCRC_RECOVERY | CheckpointFlags::TRIMMED);
        flags.insert(CheckpointFlags::CRC_RECOVERY);
        if writer.quotas_need_repair {
            flags.insert(CheckpointFlags::QUOTA_NEED_FSCK);
        }
        flags.set(CheckpointFlags::UMOUNT, is_last);
        flags.set(CheckpointFlags::ORPHAN_PRESENT, orphan_blocks > 0);
        fields.ckpt_flags = flags.bits().into();
        Ok(fields)
    }

    /// From where the kernel would look for a free number.
    fn next_free_nid(&self) -> Result<u32> {
        let writer = self.writer()?;
        let known = writer.free_nids.front().map(|nid| nid.0);
        if known.is_none() && writer.nat_left == self.geometry().nat_blocks {
            // Nobody has looked for one.
            return Ok(self.checkpoint().fields().next_free_nid.get());
        }
        let scan = writer.nat_scan.saturating_mul(NAT_ENTRIES_PER_BLOCK);
        let next = known.unwrap_or(if scan < self.geometry().nid_count { scan } else { 0 });
        Ok(next.max(self.root().0 + 1))
    }
}

fn set<T>(list: &mut [T], index: usize, value: T) {
    if let Some(place) = list.get_mut(index) {
        *place = value;
    }
}

/// The other copy of a block counts from now on.
fn flip(bitmap: &mut [u8], number: u32) {
    let index = to_usize(u64::from(number));
    if test_bit(bitmap, index) {
        f2fs_disk::bits::clear_bit(bitmap, index);
    } else {
        set_bit(bitmap, index);
    }
}
