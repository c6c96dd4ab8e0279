//! Finds and sets the addresses of the blocks of a file, in its inode and in the nodes below. Called by `flush`,
//! `size_and_holes`, `clean` and other modules of `change`.

use std::sync::Arc;

use f2fs_disk::convert::usize_from;
use f2fs_disk::inode::{self, Inode};
use f2fs_disk::node::{self, Step};
use f2fs_disk::{At, Block, BlockAddr, Nid};

use crate::error::Result;
use crate::read_volume::{Node, ReadVolume};
use crate::write_volume::WriteVolume;

/// Place of the address of a file's block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    /// The node with the address.
    pub(super) nid: Nid,
    /// Offset of that node in its inode: 0 for the inode itself.
    pub(super) offset: u32,
    /// Index in the node.
    pub(super) index: u32,
}

/// The slot of a block's address; `None` if a node above it is missing.
pub(super) fn find(volume: &ReadVolume, node: &Node, index: u64) -> Result<Option<Slot>> {
    let ino = node.ino();
    let way = node.inode.fanout().way(index).map_err(|error| error.at(At::Inode(ino)))?;
    let (mut nid, mut offset, mut block) = (ino, 0, Arc::clone(&node.block));
    for (depth, step) in way.steps().iter().enumerate() {
        nid = below(&block, depth, step);
        if nid.0 == 0 {
            return Ok(None);
        }
        offset = step.offset;
        block = volume.node(nid, ino, offset)?;
    }
    Ok(Some(Slot { nid, offset, index: way.slot }))
}

/// The slot of a block's address; missing nodes above it are made, and counted in the inode. The last one becomes
/// dirty.
pub(super) fn make(volume: &mut WriteVolume, layout: &Inode, index: u64) -> Result<Slot> {
    let ino = layout.ino();
    let way = layout.fanout().way(index).map_err(|error| error.at(At::Inode(ino)))?;
    let (mut nid, mut offset) = (ino, 0);
    for (depth, step) in way.steps().iter().enumerate() {
        let block = volume.edit(nid, ino, offset)?;
        let mut next = below(block, depth, step);
        if next.0 == 0 {
            next = volume.new_node(ino, step.offset)?;
            let block = volume.edit(nid, ino, offset)?;
            set_below(block, depth, step, next);
            volume.count_inode_blocks(ino, 1)?;
        }
        (nid, offset) = (next, step.offset);
    }
    volume.edit(nid, ino, offset)?;
    Ok(Slot { nid, offset, index: way.slot })
}

/// The address in a slot.
pub(super) fn get(volume: &ReadVolume, layout: &Inode, slot: &Slot) -> Result<BlockAddr> {
    let block = volume.node(slot.nid, layout.ino(), slot.offset)?;
    let addresses = if slot.offset == 0 { layout.addresses(&block) } else { node::entries(&block) };
    Ok(addresses.get(usize_from(slot.index)).map_or(BlockAddr::NULL, |at| BlockAddr(at.get())))
}

/// Sets the address in a slot, and frees the block that was there.
pub(super) fn set(volume: &mut WriteVolume, layout: &Inode, slot: &Slot, at: BlockAddr) -> Result<BlockAddr> {
    let ino = layout.ino();
    let block = volume.edit(slot.nid, ino, slot.offset)?;
    let addresses = if slot.offset == 0 { layout.addresses_mut(block) } else { node::entries_mut(block) };
    let Some(place) = addresses.get_mut(usize_from(slot.index)) else { return Ok(BlockAddr::NULL) };
    let old = BlockAddr(place.get());
    *place = at.0.into();
    if old.is_block() && old != at {
        volume.space.give_back(old)?;
    }
    Ok(old)
}

/// The number of the node that a step leads to.
pub(super) fn below(block: &Block, depth: usize, step: &Step) -> Nid {
    let nids = if depth == 0 { Inode::nids(block).as_slice() } else { node::entries(block) };
    Nid(nids.get(usize_from(step.slot)).map_or(0, |nid| nid.get()))
}

fn set_below(block: &mut Block, depth: usize, step: &Step, nid: Nid) {
    let nids = if depth == 0 { inode::nids_mut(block).as_mut_slice() } else { node::entries_mut(block) };
    if let Some(place) = nids.get_mut(usize_from(step.slot)) {
        *place = nid.0.into();
    }
}
