//! Pages go to the logs of data.

#![expect(clippy::arithmetic_side_effects, reason = "addresses within a segment")]

use std::sync::Arc;

use f2fs_disk::flags::Advise;
use f2fs_disk::inode::Kind;
use f2fs_disk::summary::Summary;
use f2fs_disk::{Block, BlockAddr, Nid};

use super::in_place::Rewrite;
use crate::error::Result;
use crate::policy::{ActiveLogs, COLD_DATA, HOT_DATA, WARM_DATA};
use crate::store::{Node, Store};

/// Blocks that lie one behind the other.
#[derive(Debug, Default)]
struct Batch {
    at: Option<BlockAddr>,
    blocks: Vec<Arc<Block>>,
}

impl Store {
    /// Writes the pages of all files; nothing is durable by that.
    pub(crate) fn flush_all(&mut self) -> Result<()> {
        let mut files: Vec<Nid> = self.writer()?.pages.keys().copied().collect();
        files.sort_unstable();
        files.into_iter().try_for_each(|ino| self.flush_file(ino, Rewrite::Usual))
    }

    /// Writes the pages of a file, in the order of the file: all of them get their places, and are submitted, before
    /// another file's.
    pub(crate) fn flush_file(&mut self, ino: Nid, rewrite: Rewrite) -> Result<()> {
        let Some(pages) = self.writer()?.pages.get(&ino).cloned() else { return Ok(()) };
        let written = self.write_file(ino, &pages, rewrite);
        let placed = self.noted(written)?;
        let blocks = self.inode(ino)?.inode.fields().i_blocks.get();
        let writer = self.writer_mut()?;
        if let Some(pages) = writer.pages.remove(&ino) {
            writer.page_count -= f2fs_disk::convert::to_u64(pages.len());
            writer.chain.wrote_pages(ino, placed, blocks);
        }
        Ok(())
    }

    /// How many of the pages got other blocks than they had.
    fn write_file(&mut self, ino: Nid, pages: &crate::writer::Pages, rewrite: Rewrite) -> Result<u64> {
        let node = self.inode(ino)?;
        let (log, overwrites) = (self.data_log(&node)?, self.may_overwrite(&node, rewrite)?);
        let (mut batch, mut placed) = (Batch::default(), 0);
        for (index, page) in pages {
            let old = if overwrites { self.block_of(&node, *index)? } else { None };
            let at = match old {
                Some(at) => at,
                None => {
                    placed += 1;
                    self.place_page(&node, *index, log)?
                }
            };
            let follows =
                batch.at.is_some_and(|start| start.0 + f2fs_disk::convert::u32_len(batch.blocks.len()) == at.0);
            if !follows {
                self.submit(&mut batch)?;
                batch.at = Some(at);
            }
            batch.blocks.push(Arc::clone(page));
        }
        self.submit(&mut batch)?;
        Ok(placed)
    }

    /// The next block of a log becomes that of a page.
    fn place_page(&mut self, node: &Node, index: u64, log: usize) -> Result<BlockAddr> {
        let slot = self.slot_made(&node.inode, index)?;
        let version = self.nat_entry(slot.nid)?.version;
        let summary = Summary::new(slot.nid, version, u16::try_from(slot.index).unwrap_or(0));
        let at = self.allocate(log, summary)?;
        self.set_address(&node.inode, &slot, at)?;
        Ok(at)
    }

    /// The log that the contents of an inode go to.
    fn data_log(&self, node: &Node) -> Result<usize> {
        let advise = node.inode.advise();
        let is_hot = advise.contains(Advise::HOT) && self.writer()?.policy.active_logs == ActiveLogs::Six;
        Ok(match node.inode.kind() {
            Kind::Directory => HOT_DATA,
            _ if advise.contains(Advise::COLD) => COLD_DATA,
            _ if is_hot => HOT_DATA,
            _ => WARM_DATA,
        })
    }

    fn submit(&mut self, batch: &mut Batch) -> Result<()> {
        let Batch { at, blocks } = std::mem::take(batch);
        let Some(at) = at else { return Ok(()) };
        let parts: Vec<&[u8]> = blocks.iter().map(|block| block.as_slice()).collect();
        self.write_blocks(at, &parts)
    }
}
