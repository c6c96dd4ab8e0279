//! The cleaner: what is in use in a section moves elsewhere, so that the section comes free.
//!
//! Where there is no other room an operation waits for it: the section with the fewest blocks in use is emptied at
//! once. `background` empties others while nobody changes anything.

#![expect(clippy::arithmetic_side_effects, reason = "numbers of segments and blocks")]

use f2fs_disk::node::Footer;
use f2fs_disk::summary::{Summary, SummaryBlock};
use f2fs_disk::{At, BlockAddr, Corrupt, Detail, Nid, SEGMENT_BLOCKS};

use super::addresses::Slot;
use super::in_place::Rewrite;
use crate::error::Result;
use crate::policy::COLD_DATA;
use crate::store::{Node, Store};

/// What leads to a block with data.
struct Owner {
    node: Node,
    slot: Slot,
    /// Index of the block in its file.
    index: u64,
}

impl Store {
    /// Moves what is in use in the section with the fewest such blocks; it comes free with the next checkpoint. False
    /// where no section would.
    pub(super) fn clean_section(&mut self) -> Result<bool> {
        let Some(section) = self.writer()?.segments.fewest_used() else { return Ok(false) };
        self.writer_mut()?.segments.clean(section);
        let moved = self.move_blocks(section, 0, u32::MAX);
        self.noted(moved)?;
        Ok(true)
    }

    /// Moves what is in use in a section from its block `from` on, at most `count_max` blocks. Returns where that goes
    /// on, `None` at the end of the section.
    pub(super) fn move_blocks(&mut self, section: u32, from: u32, count_max: u32) -> Result<Option<u32>> {
        let per_section = self.writer()?.segments.per_section();
        let mut moved = 0;
        for block in from..per_section * SEGMENT_BLOCKS {
            let (segment, index) = (section * per_section + block / SEGMENT_BLOCKS, block % SEGMENT_BLOCKS);
            // Looked at anew each time: what one block takes along with it has left already.
            if !self.writer()?.segments.segment(segment).is_some_and(|segment| segment.is_in_use(index)) {
                continue;
            }
            if moved == count_max {
                return Ok(Some(block));
            }
            self.move_block(segment, index)?;
            moved += 1;
        }
        Ok(None)
    }

    fn move_block(&mut self, segment: u32, index: u32) -> Result<()> {
        let geometry = *self.geometry();
        let summary_at = geometry.summary_block(segment);
        let block = self.blocks.get(summary_at)?;
        let summary = SummaryBlock::verify(&block).map_err(|error| error.at(At::Block(summary_at)))?;
        let entry = summary.entries.get(f2fs_disk::convert::usize_from(index)).copied().unwrap_or_default();
        let at = geometry.segment_block(segment, index);
        match summary.footer.entry_type {
            1 => self.move_node(at, &entry),
            _ => self.move_data(at, &entry, segment),
        }
    }

    /// A node that is written with the next checkpoint anyway, and elsewhere.
    fn move_node(&mut self, at: BlockAddr, entry: &Summary) -> Result<()> {
        let nid = Nid(entry.nid.get());
        if self.address(nid)? != Some(at) {
            return Err(wrong(at, "the node of the summary").into());
        }
        let block = match self.changed_node(nid) {
            Some(_) => return Ok(()),
            None => self.blocks.get(at)?,
        };
        let footer = Footer::of(&block);
        self.edit(nid, footer.ino(), footer.offset())?;
        Ok(())
    }

    fn move_data(&mut self, at: BlockAddr, entry: &Summary, segment: u32) -> Result<()> {
        let Owner { node, slot, index } = self.owner(at, entry)?;
        let ino = node.ino();
        if self.page(ino, index).is_some() {
            return self.flush_files(&[(ino, Rewrite::Elsewhere)]);
        }
        let version = self.nat_entry(slot.nid)?.version;
        let contents = self.blocks.read(at)?;
        // It is as old as it was.
        let mtime = self.writer()?.segments.segment(segment).map(crate::segments::Segment::mtime);
        let summary = Summary::new(slot.nid, version, entry.ofs_in_node.get());
        let new = self.allocate_aged(COLD_DATA, summary, mtime)?;
        self.write_blocks(new, &[&contents])?;
        self.set_address(&node.inode, &slot, new)?;
        // Who replays an fsync finds another address than the checkpoint's.
        self.writer_mut()?.chain.wrote_pages(ino, 1, node.inode.fields().i_blocks.get());
        self.forget_extent(ino)
    }

    fn owner(&self, at: BlockAddr, entry: &Summary) -> Result<Owner> {
        let nid = Nid(entry.nid.get());
        let block = match (self.changed_node(nid).cloned(), self.address(nid)?) {
            (Some(block), _) => block,
            (None, Some(at)) => self.blocks.get(at)?,
            (None, None) => return Err(wrong(at, "a node that leads here").into()),
        };
        let footer = Footer::of(&block);
        let slot = Slot { nid, offset: footer.offset(), index: u32::from(entry.ofs_in_node.get()) };
        let node = self.inode(footer.ino())?;
        if self.address_in(&node.inode, &slot)? != at {
            return Err(wrong(at, "a node that leads here").into());
        }
        let index = node.inode.fanout().first_of(slot.offset) + u64::from(slot.index);
        Ok(Owner { node, slot, index })
    }
}

fn wrong(at: BlockAddr, expected: &'static str) -> Corrupt {
    Corrupt::new("summary nid", Detail::Text(expected), Detail::Text("another")).at(At::Block(at))
}
