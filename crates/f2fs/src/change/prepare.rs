//! The part of a write before it takes the volume's lock, which several threads do at the same time: it copies pages,
//! and reads blocks from the device, those of nodes too.
//!
//! ```text
//!    whole pages: copied -> first and last page, where a part is written: lock, look the block up, unlock, read it
//!      -> lock -> blocks are reserved, pages become dirty
//! ```
//!
//! Others change the volume meanwhile. A page that was read is taken only where it cannot have changed: the file has
//! the same block and no dirty page, no checkpoint came (until then a freed block is not used again), and no page was
//! written in place. Otherwise the write reads it anew, with the lock.
//!
//! Failure: what fails here is left to the write, which meets it again.

use std::sync::Arc;

use f2fs_disk::convert::to_usize;
use f2fs_disk::flags::InlineFlags;
use f2fs_disk::inode::Kind;
use f2fs_disk::{At, BLOCK_SIZE, Block, BlockAddr, Nid};

use super::addresses::{self, Slot};
use super::pages::{self, Piece};
use crate::blocks::Blocks;
use crate::error::Result;
use crate::locks::RwLock;
use crate::map;
use crate::read_volume::ReadVolume;
use crate::write_volume::{Epoch, WriteVolume};

/// Pages that are prepared at most: 4 MiB. The others of a larger write are copied with the lock.
const PAGES_MAX: usize = 1024;
/// Blocks that are read at most on the way to one page: an inode and four nodes, each with its block of the NAT, and
/// some that were forgotten meanwhile.
const READS_MAX: usize = 16;

/// Pages of a write, to be put among the dirty ones.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    /// Where the write begins.
    offset: u64,
    pages: Vec<Option<Page>>,
}

#[derive(Debug)]
struct Page {
    page: Arc<Block>,
    /// Of a page that is written in part: the block that the rest was read from, and when.
    base: Option<(BlockAddr, Epoch)>,
}

/// The read that the contents of a page need.
enum Lookup {
    /// They are in memory or inline, or there are none.
    NothingToRead,
    Contents(BlockAddr),
    /// A block of the NAT or of a node, to know more.
    Metadata(BlockAddr),
}

impl Prepared {
    /// Prepares a write of `data` at `offset`.
    ///
    /// # Errors
    /// The device's, or that the image is damaged.
    pub(crate) fn new(
        volume: &RwLock<WriteVolume>,
        blocks: &Blocks,
        ino: Nid,
        offset: u64,
        data: &[u8],
    ) -> Result<Self> {
        let mut prepared = Self { offset, pages: Vec::new() };
        let mut pieces = pages::pieces(offset, data).take(PAGES_MAX).peekable();
        while let Some(piece) = pieces.next() {
            let is_end = prepared.pages.is_empty() || pieces.peek().is_none();
            // The nodes of the pages between are those of the first and the last one.
            let contents = if is_end { locate(volume, blocks, ino, piece.index)? } else { None };
            let page = match (piece.bytes.first_chunk::<BLOCK_SIZE>(), contents) {
                (Some(whole), _) => Some(Page { page: Arc::new(*whole), base: None }),
                (None, Some((at, epoch))) => {
                    let mut page = blocks.read(at)?;
                    piece.put(&mut page);
                    Some(Page { page: Arc::new(page), base: Some((at, epoch)) })
                }
                (None, None) => None,
            };
            prepared.pages.push(page);
        }
        Ok(prepared)
    }

    /// Forgets what was prepared for another offset: an append finds out with the lock where it writes.
    pub(super) fn keep_if_at(&mut self, offset: u64) {
        if self.offset != offset {
            self.pages.clear();
        }
    }

    /// Takes a page whose file has `at` as its block; `None` where it has to be made anew.
    pub(super) fn take(
        &mut self,
        volume: &WriteVolume,
        ino: Nid,
        piece: &Piece<'_>,
        at: BlockAddr,
    ) -> Option<Arc<Block>> {
        let index = to_usize(piece.index.checked_sub(pages::index_of(self.offset))?);
        let Page { page, base } = self.pages.get_mut(index)?.take()?;
        let is_valid =
            |base: (BlockAddr, Epoch)| base == (at, volume.epoch()) && volume.page(ino, piece.index).is_none();
        base.is_none_or(is_valid).then_some(page)
    }
}

/// The block with the contents of a page, and when it was; `None` for a page that needs no block read.
fn locate(volume: &RwLock<WriteVolume>, blocks: &Blocks, ino: Nid, index: u64) -> Result<Option<(BlockAddr, Epoch)>> {
    for _ in 0..READS_MAX {
        let (at, epoch) = {
            let volume = volume.read();
            match look_up(&volume, ino, index)? {
                Lookup::NothingToRead => return Ok(None),
                Lookup::Contents(at) => return Ok(Some((at, volume.epoch()))),
                Lookup::Metadata(at) => (at, volume.epoch()),
            }
        };
        let block = Arc::new(blocks.read(at)?);
        let volume = volume.read();
        // Otherwise another block may have been written there.
        if volume.epoch() == epoch {
            blocks.put(at, &block);
        }
    }
    Ok(None)
}

/// Looks the contents of a page up, without the device.
fn look_up(volume: &ReadVolume, ino: Nid, index: u64) -> Result<Lookup> {
    if volume.page(ino, index).is_some() {
        return Ok(Lookup::NothingToRead);
    }
    if let Some(at) = volume.unread_block(ino)? {
        return Ok(Lookup::Metadata(at));
    }
    let node = volume.inode(ino)?;
    let has_blocks = node.inode.kind() == Kind::File
        && !node.inode.inline().contains(InlineFlags::DATA)
        && node.inode.compressed().is_none();
    if !has_blocks {
        return Ok(Lookup::NothingToRead);
    }
    let way = node.inode.fanout().way(index).map_err(|error| error.at(At::Inode(ino)))?;
    let (mut nid, mut offset, mut block) = (ino, 0, Arc::clone(&node.block));
    for (depth, step) in way.steps().iter().enumerate() {
        (nid, offset) = (addresses::below(&block, depth, step), step.offset);
        if nid.0 == 0 {
            return Ok(Lookup::NothingToRead);
        }
        if let Some(at) = volume.unread_block(nid)? {
            return Ok(Lookup::Metadata(at));
        }
        block = volume.node(nid, ino, offset)?;
    }
    let at = addresses::get(volume, &node.inode, &Slot { nid, offset, index: way.slot })?;
    if !at.is_block() {
        return Ok(Lookup::NothingToRead);
    }
    map::check_is_data(volume, ino, index, at)?;
    Ok(Lookup::Contents(at))
}
