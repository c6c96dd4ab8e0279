//! Nodes that change, and their numbers.

#![expect(clippy::arithmetic_side_effects, reason = "counts of nodes and blocks, bounded by the superblock")]

use std::sync::Arc;

use f2fs_disk::geometry::NAT_ENTRIES_PER_BLOCK;
use f2fs_disk::inode::{self, DiskInode};
use f2fs_disk::nat::NatEntry;
use f2fs_disk::node::Footer;
use f2fs_disk::summary::{Summary, SummaryBlock};
use f2fs_disk::{BLOCK_SIZE, Block, BlockAddr, Nid};

use crate::error::{Error, Result};
use crate::policy::HOT_NODE;
use crate::segments::AllocType;
use crate::store::Store;
use crate::writer::Log;

/// Numbers below this one are those of the format itself.
const NID_MIN: u32 = 4;

impl Store {
    /// A number that no node has.
    pub(super) fn new_nid(&mut self) -> Result<Nid> {
        loop {
            if let Some(nid) = self.writer_mut()?.free_nids.pop_front() {
                return Ok(nid);
            }
            let blocks = self.geometry().nat_blocks;
            let writer = self.writer_mut()?;
            if writer.nat_left == 0 {
                if !writer.has_freed_nids {
                    return Err(Error::NoSpace);
                }
                (writer.nat_left, writer.has_freed_nids) = (blocks, false);
            }
            self.find_free_nids()?;
        }
    }

    /// Looks through one more block of the NAT.
    fn find_free_nids(&mut self) -> Result<()> {
        let geometry = *self.geometry();
        let block = self.writer()?.nat_scan % geometry.nat_blocks.max(1);
        let first = block * NAT_ENTRIES_PER_BLOCK;
        let mut found = Vec::new();
        for nid in (first..first + NAT_ENTRIES_PER_BLOCK).filter(|nid| (NID_MIN..geometry.nid_count).contains(nid)) {
            if self.nat_entry(Nid(nid))?.at() == BlockAddr::NULL {
                found.push(Nid(nid));
            }
        }
        let hint = self.checkpoint().fields().next_free_nid.get();
        let writer = self.writer_mut()?;
        // From where the last search ended: a number comes again as late as it can.
        found.sort_by_key(|nid| (nid.0 < hint, nid.0));
        // Those that this transaction gave back wait for its end.
        found.retain(|nid| !writer.freed_nids.contains(nid));
        writer.free_nids.extend(found);
        writer.nat_scan = block + 1;
        writer.nat_left -= 1;
        Ok(())
    }

    pub(super) fn set_nat(&mut self, nid: Nid, version: u8, ino: Nid, at: BlockAddr) -> Result<()> {
        self.nat.insert(nid, NatEntry::new(version, ino, at));
        self.writer_mut()?.changes += 1;
        Ok(())
    }

    /// Puts a new node into memory; it counts as a block of its inode's, which the caller notes there.
    pub(super) fn add_node(&mut self, nid: Nid, ino: Nid, block: Block) -> Result<()> {
        let version = self.nat_entry(nid)?.version;
        if nid == ino {
            self.note_new_charge(ino, &block)?;
        }
        self.set_nat(nid, version, ino, BlockAddr::NEW)?;
        let writer = self.writer_mut()?;
        writer.nodes.insert(nid, Arc::new(block));
        writer.chain.reserved(1);
        writer.valid_nodes += 1;
        writer.valid_blocks += 1;
        Ok(())
    }

    /// A new node of an inode, without anything in it.
    pub(super) fn new_node(&mut self, ino: Nid, offset: u32) -> Result<Nid> {
        let nid = self.new_nid()?;
        let mut block = [0; BLOCK_SIZE];
        Footer::new(nid, ino, offset).put(&mut block);
        self.add_node(nid, ino, block)?;
        Ok(nid)
    }

    /// Removes a node; its inode's count of blocks is the caller's business.
    pub(super) fn remove_node(&mut self, nid: Nid) -> Result<()> {
        let entry = self.nat_entry(nid)?;
        if entry.ino() == nid && self.writer()?.charges.wants(nid) {
            let block = self.inode(nid)?.block;
            self.note_charge(nid, &block)?;
        }
        if let Some(at) = self.address(nid)? {
            let geometry = *self.geometry();
            self.writer_mut()?.segments.give_back(&geometry, at)?;
        }
        self.set_nat(nid, entry.version.wrapping_add(1), Nid(0), BlockAddr::NULL)?;
        let writer = self.writer_mut()?;
        writer.nodes.remove(nid);
        match entry.ino() == nid {
            true => writer.chain.gone(nid),
            // Nothing in the other nodes says that it is gone.
            false => writer.chain.bar(entry.ino()),
        }
        writer.freed_nids.push(nid);
        writer.valid_nodes = writer.valid_nodes.saturating_sub(1);
        writer.valid_blocks = writer.valid_blocks.saturating_sub(1);
        Ok(())
    }

    /// The block of a node, to be changed.
    pub(super) fn edit(&mut self, nid: Nid, ino: Nid, offset: u32) -> Result<&mut Block> {
        if self.changed_node(nid).is_none() {
            let block = self.node(nid, ino, offset)?;
            if offset == 0 {
                self.note_charge(ino, &block)?;
            }
            self.writer_mut()?.nodes.insert(nid, block);
        }
        let writer = self.writer_mut()?;
        writer.changes += 1;
        let block = writer.nodes.get_mut(nid).ok_or(Error::NoSpace)?;
        Ok(Arc::make_mut(block))
    }

    /// The block of an inode, to be changed.
    pub(crate) fn edit_inode(&mut self, ino: Nid) -> Result<&mut Block> {
        self.edit(ino, ino, 0)
    }

    /// The fields of an inode, to be changed.
    pub(crate) fn edit_fields(&mut self, ino: Nid) -> Result<&mut DiskInode> {
        Ok(inode::fields_mut(self.edit_inode(ino)?))
    }

    /// Adds to the count of an inode's blocks, and to that of the volume.
    pub(super) fn count_blocks(&mut self, ino: Nid, more: i64) -> Result<()> {
        if more != 0 {
            self.count_inode_blocks(ino, more)?;
            let writer = self.writer_mut()?;
            writer.chain.reserved(u64::try_from(more).unwrap_or(0));
            writer.valid_blocks = writer.valid_blocks.saturating_add_signed(more);
        }
        Ok(())
    }

    /// Adds to the count of an inode's blocks alone: its nodes count when they are made.
    pub(super) fn count_inode_blocks(&mut self, ino: Nid, more: i64) -> Result<()> {
        let fields = self.edit_fields(ino)?;
        fields.i_blocks = fields.i_blocks.get().saturating_add_signed(more).into();
        Ok(())
    }

    /// The next block of a log, which is in use from now on.
    pub(super) fn allocate(&mut self, log: usize, summary: Summary) -> Result<BlockAddr> {
        self.allocate_aged(log, summary, None)
    }

    /// The same for contents that are as old as `mtime` says. With fewer logs than six, others stand for some of them.
    pub(super) fn allocate_aged(&mut self, log: usize, summary: Summary, mtime: Option<u64>) -> Result<BlockAddr> {
        let geometry = *self.geometry();
        let log = self.writer()?.policy.active_logs.log(log);
        if self.writer()?.logs.get(log).is_none_or(|open| open.room() == 0) {
            self.change_segment(log)?;
        }
        let writer = self.writer_mut()?;
        let open = writer.logs.get_mut(log).ok_or(Error::NoSpace)?;
        let at = open.next_address(&geometry);
        if let Some(entry) = open.summaries.get_mut(f2fs_disk::convert::usize_from(open.next)) {
            *entry = summary;
        }
        open.advance();
        let is_full = open.room() == 0;
        writer.segments.take(&geometry, at, mtime)?;
        writer.changes += 1;
        if is_full {
            self.change_segment(log)?;
        }
        Ok(at)
    }

    /// A log goes on in another segment, in the kernel's order: in the next one of its section, in the holes of one
    /// where free sections are few, in a free section. The summary of the one it leaves is written.
    pub(super) fn change_segment(&mut self, log: usize) -> Result<()> {
        let writer = self.writer()?;
        let left = writer.logs.get(log).map(|open| (open.segment, open.alloc_type()));
        let following = left.filter(|(_, alloc_type)| *alloc_type == AllocType::Lfs);
        let following = following.and_then(|(segment, _)| writer.segments.following(segment));
        let is_short = writer.needs_ssr() || writer.segments.free_sections() == 0;
        let holes = if following.is_none() && is_short { self.holes_for(log)? } else { None };
        let writer = self.writer_mut()?;
        let open = match (following, holes) {
            (Some(next), _) => Log::new(next),
            (None, Some(open)) => open,
            (None, None) => Log::new(writer.segments.next_free()?),
        };
        let kind = u16::try_from(log).unwrap_or(0);
        writer.segments.change(left.map(|(segment, _)| segment), open.segment, kind);
        if let Some(place) = writer.logs.get_mut(log) {
            let left = std::mem::replace(place, open);
            let block = SummaryBlock::new(&left.summaries, log >= HOT_NODE, &[0; f2fs_disk::summary::JOURNAL_SIZE]);
            let at = self.geometry().summary_block(left.segment);
            self.write_blocks(at, &[&block])?;
        }
        Ok(())
    }

    /// The log in the holes of a segment. Its other blocks keep their owners; where these cannot be told, its holes
    /// are left alone.
    fn holes_for(&mut self, log: usize) -> Result<Option<Log>> {
        while let Some(number) = self.writer()?.segments.best_holes(log) {
            let block = self.blocks.read(self.geometry().summary_block(number))?;
            let summary = SummaryBlock::verify(&block).ok();
            let summary = summary.filter(|found| (found.footer.entry_type == 1) == (log >= HOT_NODE));
            let writer = self.writer_mut()?;
            if let (Some(summary), Some(segment)) = (summary, writer.segments.segment(number)) {
                return Ok(Some(Log::in_holes(number, segment.holes(0), &summary.entries)));
            }
            writer.segments.bar_holes(number);
        }
        Ok(None)
    }

    /// Writes blocks; where that fails nothing is written any more.
    pub(super) fn write_blocks(&mut self, at: BlockAddr, blocks: &[&[u8]]) -> Result<()> {
        let written = self.blocks.write(at, blocks);
        self.noted(written)
    }

    /// Remembers a failure.
    pub(crate) fn noted<T>(&mut self, result: Result<T>) -> Result<T> {
        if let (Err(error), Some(writer)) = (&result, self.writer.as_deref_mut())
            && writer.poison.is_none()
        {
            writer.poison = Some(Box::new(error.clone()));
        }
        result
    }
}
