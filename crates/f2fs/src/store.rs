//! Nodes and inodes by their numbers.

use std::collections::HashMap;
use std::sync::Arc;

use f2fs_disk::checkpoint::Checkpoint;
use f2fs_disk::flags::{Advise, CheckpointFlags, Features};
use f2fs_disk::inode::Inode;
use f2fs_disk::nat::{self, NatEntry};
use f2fs_disk::node::{Footer, verify_nid};
use f2fs_disk::orphan::orphans;
use f2fs_disk::superblock::Superblock;
use f2fs_disk::{At, Block, BlockAddr, Corrupt, Detail, Geometry, Nid};

use crate::blocks::Blocks;
use crate::error::{CallerError, Result, Unsupported};
use crate::overlay::Overlay;

/// An open volume.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) blocks: Blocks,
    superblock: Superblock,
    checkpoint: Checkpoint,
    /// Entries that count instead of those of NAT blocks.
    journal: HashMap<Nid, NatEntry>,
    overlay: Overlay,
    inode_seed: u32,
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

    /// Refuses what only who has a key can read.
    pub(crate) fn check_is_plain(&self) -> Result<()> {
        if self.inode.advise().contains(Advise::ENCRYPT) {
            return Err(Unsupported::Encrypted(self.ino()).into());
        }
        Ok(())
    }
}

impl Store {
    pub(crate) fn new(
        blocks: Blocks,
        superblock: Superblock,
        checkpoint: Checkpoint,
        journal: HashMap<Nid, NatEntry>,
    ) -> Self {
        let inode_seed = superblock.inode_checksum_seed();
        Self { blocks, superblock, checkpoint, journal, overlay: Overlay::default(), inode_seed }
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

    /// Where a node is, as of the checkpoint; `None` for a number without a node.
    pub(crate) fn address(&self, nid: Nid) -> Result<Option<BlockAddr>> {
        verify_nid("node number", nid, self.geometry().nid_count)?;
        let entry = match self.journal.get(&nid) {
            Some(entry) => *entry,
            None => {
                let (at, index) = self.geometry().nat_block(nid, self.checkpoint.nat_bitmap());
                let block = self.blocks.get(at)?;
                nat::entry(&block, index).map_err(|error| error.at(At::Block(at)))?
            }
        };
        match entry.at() {
            // A number that was given to a node that was never written.
            BlockAddr::NULL | BlockAddr::NEW => Ok(None),
            at if self.geometry().is_main(at) => Ok(Some(at)),
            at => {
                let expected = Detail::Text("a block of the main area");
                Err(Corrupt::new("NAT block_addr", expected, Detail::Block(at)).at(At::Inode(nid)).into())
            }
        }
    }

    /// The node with a number, which is this one of its inode.
    pub(crate) fn node(&self, nid: Nid, ino: Nid, offset: u32) -> Result<Arc<Block>> {
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
    /// [`CallerError::Stale`] where there is none of the number.
    pub(crate) fn inode(&self, ino: Nid) -> Result<Node> {
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

    /// The inode in a block that is known to be its.
    pub(crate) fn inode_in(&self, block: &Block, ino: Nid) -> Result<Inode> {
        Ok(Inode::verify(block, ino, self.features(), self.inode_seed)?)
    }

    /// Inodes without names that go when the volume is mounted for writing.
    pub(crate) fn orphan_count(&self) -> Result<u64> {
        if !self.checkpoint.flags().contains(CheckpointFlags::ORPHAN_PRESENT) {
            return Ok(0);
        }
        let (first, blocks) = self.checkpoint.orphan_blocks(self.geometry().cp_payload);
        let mut count = 0_u64;
        for index in 0..blocks {
            let at = first.plus(index);
            let block = self.blocks.read(at)?;
            let found = orphans(&block).map_err(|error| error.at(At::Block(at)))?;
            count = count.saturating_add(found.map(|_| 1).sum());
        }
        Ok(count)
    }
}
