//! The cleaner: what is in use in a section moves elsewhere, so that the section comes free.

#![expect(clippy::arithmetic_side_effects, reason = "numbers of segments and blocks")]

use f2fs_disk::node::Footer;
use f2fs_disk::summary::{Summary, SummaryBlock};
use f2fs_disk::{At, BlockAddr, Corrupt, Detail, Nid};

use super::addresses::Slot;
use crate::error::Result;
use crate::store::Store;
use crate::writer::COLD_DATA;

impl Store {
    /// Moves what is in use in the section with the fewest such blocks; it comes free with the next checkpoint. False
    /// where no section would.
    pub(super) fn clean_section(&mut self) -> Result<bool> {
        let Some((section, _)) = self.writer()?.segments.victim() else { return Ok(false) };
        let per_section = self.writer()?.segments.per_section();
        self.writer_mut()?.segments.clean(Some(section));
        for segment in section * per_section..(section + 1) * per_section {
            let moved = self.clean_segment(segment);
            self.noted(moved)?;
        }
        Ok(true)
    }

    fn clean_segment(&mut self, segment: u32) -> Result<()> {
        let Some(used) = self.writer()?.segments.segment(segment).map(|segment| segment.in_use().collect::<Vec<_>>())
        else {
            return Ok(());
        };
        if used.is_empty() {
            return Ok(());
        }
        let geometry = *self.geometry();
        let at = geometry.summary_block(segment);
        let block = self.blocks.read(at)?;
        let summary = SummaryBlock::verify(&block).map_err(|error| error.at(At::Block(at)))?;
        let is_node = summary.footer.entry_type == 1;
        for index in used {
            let entry = summary.entries.get(f2fs_disk::convert::usize_from(index));
            let entry = *entry.unwrap_or(&Summary::new(Nid(0), 0, 0));
            let at = geometry.segment_block(segment, index);
            if is_node { self.move_node(at, &entry)? } else { self.move_data(at, &entry)? }
        }
        Ok(())
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

    fn move_data(&mut self, at: BlockAddr, entry: &Summary) -> Result<()> {
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
        if self.page(footer.ino(), index).is_some() {
            return self.flush_file(footer.ino());
        }
        let version = self.nat_entry(nid)?.version;
        let contents = self.blocks.read(at)?;
        let new = self.allocate(COLD_DATA, Summary::new(nid, version, entry.ofs_in_node.get()))?;
        self.write_blocks(new, &[&contents])?;
        self.set_address(&node.inode, &slot, new)?;
        self.forget_extent(footer.ino())
    }
}

fn wrong(at: BlockAddr, expected: &'static str) -> Corrupt {
    Corrupt::new("summary nid", Detail::Text(expected), Detail::Text("another")).at(At::Block(at))
}
