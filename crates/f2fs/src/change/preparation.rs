//! Prepares a write before it takes the volume's lock, in several threads at once: copies pages, and reads blocks from
//! the device, including nodes. Called by `vfs_impl/data`; `data` takes the prepared pages.
//!
//! ```text
//!    whole pages: copied -> first and last page, where a part is written: lock, look the block up, unlock, read it
//!      -> lock -> blocks are reserved, pages become dirty
//! ```
//!
//! Other threads change the volume meanwhile. A page that was read is used only if it cannot have changed: the file has
//! the same block and no dirty page, there was no checkpoint (until then a freed block is not reused), and no in-place
//! write. Otherwise the write reads it again, with the lock.
//!
//! Failure: a failed preparation is dropped, and the write meets the same error.

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

/// Most pages that are prepared: 4 MiB. The others of a larger write are copied with the lock.
const PAGES_MAX: usize = 1024;
/// Most blocks that are read for one page: an inode and four nodes, each with its block of the NAT, and some that were
/// evicted meanwhile.
const READS_MAX: usize = 16;

/// Pages of a write, to become dirty.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    /// Offset of the write.
    offset: u64,
    pages: Vec<Option<Page>>,
}

#[derive(Debug)]
struct Page {
    page: Arc<Block>,
    /// Of a partly written page: the block that the rest was read from, and the epoch of the read.
    base: Option<(BlockAddr, Epoch)>,
}

/// The read needed for the contents of a page.
enum Lookup {
    /// They are in memory or inline, or the page is a hole.
    NothingToRead,
    Contents(BlockAddr),
    /// A block of the NAT or of a node, to find the contents.
    Metadata(BlockAddr),
}

impl Prepared {
    /// Prepares a write of `data` at `offset`.
    ///
    /// # Errors
    /// The device's; a damaged image.
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
            // The nodes of the pages in between are those of the first and the last one.
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

    /// Drops pages prepared for another offset: an append learns its offset with the lock.
    pub(super) fn keep_if_at(&mut self, offset: u64) {
        if self.offset != offset {
            self.pages.clear();
        }
    }

    /// Takes the page of a file with block `at`; `None` if it has to be read again.
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

/// The block with the contents of a page, and the epoch; `None` for a page that needs no read.
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
        // Otherwise the block may have been overwritten.
        if volume.epoch() == epoch {
            blocks.put(at, &block);
        }
    }
    Ok(None)
}

/// Looks up the contents of a page, without the device.
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
