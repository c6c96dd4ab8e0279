//! Reads a volume's state: looks nodes and inodes up by number, first among the dirty ones in memory, then on the
//! device. All modules that read, `change` included, take it.
//!
//! A read-only volume consists of this alone; a writable one (`write_volume`) contains it.

use std::collections::HashMap;
use std::sync::Arc;

use f2fs_disk::checkpoint::Checkpoint;
use f2fs_disk::convert::to_u64;
use f2fs_disk::flags::{Advise, CheckpointFlags, Features};
use f2fs_disk::inode::Inode;
use f2fs_disk::nat::{self, NatEntry};
use f2fs_disk::node::{Footer, verify_nid};
use f2fs_disk::orphan::orphans;
use f2fs_disk::superblock::Superblock;
use f2fs_disk::{At, Block, BlockAddr, Corrupt, Detail, Geometry, Nid};

use crate::blocks::Blocks;
use crate::dirty_blocks::Dirty;
use crate::error::{CallerError, Result, Unsupported};
use crate::overlay::Overlay;

/// A readable volume.
#[derive(Debug)]
pub(crate) struct ReadVolume {
    pub(crate) blocks: Arc<Blocks>,
    superblock: Superblock,
    checkpoint: Checkpoint,
    /// Entries that replace those of NAT blocks: from the checkpoint's journal, and changed since.
    pub(crate) nat: HashMap<Nid, NatEntry>,
    overlay: Overlay,
    inode_seed: u32,
    /// Dirty nodes and pages; see `write_volume`.
    pub(crate) dirty: Dirty,
}

/// An inode and its block.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) inode: Inode,
    pub(crate) block: Arc<Block>,
}

impl Node {
    pub(crate) const fn ino(&self) -> Nid {
        self.inode.ino()
    }

    /// Refuses an encrypted inode, as keys are not supported.
    pub(crate) fn check_is_plain(&self) -> Result<()> {
        if self.inode.advise().contains(Advise::ENCRYPT) {
            return Err(Unsupported::Encrypted(self.ino()).into());
        }
        Ok(())
    }
}

impl ReadVolume {
    pub(crate) fn new(
        blocks: Blocks,
        superblock: Superblock,
        checkpoint: Checkpoint,
        nat: HashMap<Nid, NatEntry>,
    ) -> Self {
        let inode_seed = superblock.inode_checksum_seed();
        let (blocks, overlay, dirty) = (Arc::new(blocks), Overlay::default(), Dirty::default());
        Self { blocks, superblock, checkpoint, nat, overlay, inode_seed, dirty }
    }

    pub(crate) fn set_checkpoint(&mut self, checkpoint: Checkpoint) {
        self.checkpoint = checkpoint;
    }

    pub(crate) const fn inode_seed(&self) -> u32 {
        self.inode_seed
    }

    pub(crate) fn take_overlay(&mut self) -> Overlay {
        std::mem::take(&mut self.overlay)
    }

    pub(crate) fn set_overlay(&mut self, overlay: Overlay) {
        self.overlay = overlay;
    }

    pub(crate) const fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    pub(crate) const fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    pub(crate) const fn overlay(&self) -> &Overlay {
        &self.overlay
    }

    pub(crate) const fn geometry(&self) -> &Geometry {
        self.superblock.geometry()
    }

    pub(crate) fn features(&self) -> Features {
        self.superblock.features()
    }

    pub(crate) fn root(&self) -> Nid {
        self.superblock.root()
    }

    /// The entry of a node in the NAT.
    pub(crate) fn nat_entry(&self, nid: Nid) -> Result<NatEntry> {
        verify_nid("node number", nid, self.geometry().nid_count)?;
        if let Some(entry) = self.nat.get(&nid) {
            return Ok(*entry);
        }
        let (at, index) = self.geometry().nat_block(nid, self.checkpoint.nat_bitmap());
        let block = self.blocks.get(at)?;
        Ok(nat::entry(&block, index).map_err(|error| error.at(At::Block(at)))?)
    }

    /// The first block to read from the device before [`Self::node`] of a number finds everything in memory.
    pub(crate) fn unread_block(&self, nid: Nid) -> Result<Option<BlockAddr>> {
        verify_nid("node number", nid, self.geometry().nid_count)?;
        if self.changed_node(nid).is_some() {
            return Ok(None);
        }
        let (entry_at, _) = self.geometry().nat_block(nid, self.checkpoint.nat_bitmap());
        if !self.nat.contains_key(&nid) && !self.blocks.has(entry_at) {
            return Ok(Some(entry_at));
        }
        Ok(self.address(nid)?.filter(|at| !self.blocks.has(*at)))
    }

    /// The block of a dirty node.
    pub(crate) fn changed_node(&self, nid: Nid) -> Option<&Arc<Block>> {
        self.dirty.nodes.get(nid)
    }

    /// A dirty page of a file or directory.
    pub(crate) fn page(&self, ino: Nid, index: u64) -> Option<&Arc<Block>> {
        self.dirty.pages.get(ino, index)
    }

    /// Number of pages from `index` on, at most `count`, before the first dirty one.
    pub(crate) fn unchanged_pages(&self, ino: Nid, index: u64, count: u64) -> u64 {
        self.dirty.pages.unchanged(ino, index, count)
    }

    /// Where a node is on the disk; `None` for a number without a node there.
    pub(crate) fn address(&self, nid: Nid) -> Result<Option<BlockAddr>> {
        let entry = self.nat_entry(nid)?;
        match entry.at() {
            // The number of a node that was never written.
            BlockAddr::NULL | BlockAddr::NEW => Ok(None),
            at if self.geometry().is_main(at) => Ok(Some(at)),
            at => {
                let expected = Detail::Text("a block of the main area");
                Err(Corrupt::new("NAT block_addr", expected, Detail::Block(at)).at(At::Inode(nid)).into())
            }
        }
    }

    /// The node with a number, which must be at this offset of its inode.
    pub(crate) fn node(&self, nid: Nid, ino: Nid, offset: u32) -> Result<Arc<Block>> {
        if let Some(block) = self.changed_node(nid) {
            Footer::of(block).verify(nid, ino, offset, BlockAddr::NEW)?;
            return Ok(Arc::clone(block));
        }
        let at = self.address(nid)?.ok_or_else(|| {
            let expected = Detail::Text("the block of a node");
            Corrupt::new("NAT block_addr", expected, Detail::Block(BlockAddr::NULL)).at(At::Inode(nid))
        })?;
        let block = self.blocks.get(at)?;
        Footer::of(&block).verify(nid, ino, offset, at)?;
        Ok(block)
    }

    /// A node that an fsync wrote after the checkpoint.
    pub(crate) fn fsynced(&self, ino: Nid, offset: u32) -> Result<Option<Arc<Block>>> {
        self.overlay.node(ino, offset).map(|at| self.blocks.get(at)).transpose()
    }

    /// An inode.
    ///
    /// # Errors
    /// [`CallerError::Stale`] if the number is not that of an inode.
    pub(crate) fn inode(&self, ino: Nid) -> Result<Node> {
        if let Some(block) = self.changed_node(ino) {
            if !Footer::of(block).is_inode() {
                return Err(CallerError::Stale.into());
            }
            // Its checksum is computed when it is written.
            let features = self.features().difference(Features::INODE_CHKSUM);
            let inode = Inode::verify(block, ino, features, self.inode_seed)?;
            return Ok(Node { inode, block: Arc::clone(block) });
        }
        let block = match self.fsynced(ino, 0)? {
            Some(block) => block,
            None => {
                let at = self.address(ino)?.ok_or(CallerError::Stale)?;
                let block = self.blocks.get(at)?;
                // The number may be that of another node.
                let footer = Footer::of(&block);
                if footer.nid() == ino && !footer.is_inode() {
                    return Err(CallerError::Stale.into());
                }
                footer.verify(ino, ino, 0, at)?;
                block
            }
        };
        let inode = self.inode_in(&block, ino)?;
        Ok(Node { inode, block })
    }

    /// The inode in a block that was verified.
    pub(crate) fn inode_in(&self, block: &Block, ino: Nid) -> Result<Inode> {
        Ok(Inode::verify(block, ino, self.features(), self.inode_seed)?)
    }

    /// Number of inodes without names, which are removed when the volume is mounted for writing.
    pub(crate) fn orphan_count(&self) -> Result<u64> {
        Ok(to_u64(self.orphans()?.len()))
    }

    /// The inodes without names of the checkpoint.
    pub(crate) fn orphans(&self) -> Result<Vec<Nid>> {
        if !self.checkpoint.flags().contains(CheckpointFlags::ORPHAN_PRESENT) {
            return Ok(Vec::new());
        }
        let (first, blocks) = self.checkpoint.orphan_blocks(self.geometry().cp_payload);
        let mut all = Vec::new();
        // At most the blocks of a segment.
        for index in 0..blocks {
            let at = first.plus(index);
            let block = self.blocks.read(at)?;
            all.extend(orphans(&block).map_err(|error| error.at(At::Block(at)))?);
        }
        Ok(all)
    }
}
