//! Finds the addresses of the blocks of a file, for reading. Called by `file`, `cluster`, `dir` and `change/pages`.

use std::sync::Arc;

use f2fs_disk::inode::Inode;
use f2fs_disk::node::{self, Way};
use f2fs_disk::{At, Block, BlockAddr, Corrupt, Detail, Nid};

use crate::error::Result;
use crate::read_volume::{Node, ReadVolume};

/// Consecutive blocks of a file with addresses of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    /// Address of the first one, or the mark of a hole, a reserved block or a compressed cluster.
    pub(crate) at: BlockAddr,
    /// Blocks, at least one.
    pub(crate) count: u64,
}

impl Run {
    /// True for blocks with data.
    pub(crate) fn is_data(&self) -> bool {
        self.at.is_block()
    }
}

/// The node with a file's addresses, or a hole of some length.
enum Reached {
    Addresses(Arc<Block>),
    Inode,
    Hole(u64),
}

/// The run of blocks that begins with block `index` of a file, of at most `count_max` blocks.
pub(crate) fn run(volume: &ReadVolume, node: &Node, index: u64, count_max: u64) -> Result<Run> {
    let count_max = count_max.max(1);
    let fanout = node.inode.fanout();
    let way = fanout.way(index).map_err(|error| error.at(At::Inode(node.ino())))?;
    let direct;
    let addresses = match reach(volume, node, &way, index)? {
        Reached::Hole(count) => return Ok(Run { at: BlockAddr::NULL, count: count.min(count_max) }),
        Reached::Inode => node.inode.addresses(&node.block).get(..to_index(fanout.inode)),
        Reached::Addresses(block) => {
            direct = block;
            node::entries(&direct).get(..to_index(fanout.direct))
        }
    };
    let mut rest = addresses.and_then(|all| all.get(to_index(way.slot)..)).unwrap_or_default().iter();
    let at = rest.next().map_or(BlockAddr::NULL, |at| BlockAddr(at.get()));
    let first = Run { at, count: 1 };
    if at == BlockAddr::COMPRESS {
        return Ok(first);
    }
    if first.is_data() {
        check_is_data(volume, node.ino(), index, at)?;
    }
    let mut run = first;
    for next in rest {
        let expected = if run.is_data() { u64::from(at.0).saturating_add(run.count) } else { u64::from(at.0) };
        // An address behind the end of the main area is refused when it is looked up itself.
        let goes_on =
            u64::from(next.get()) == expected && (!run.is_data() || volume.geometry().is_main(BlockAddr(next.get())));
        if run.count >= count_max || !goes_on {
            break;
        }
        run.count = run.count.saturating_add(1);
    }
    Ok(run)
}

/// The addresses of `count` blocks of a cluster from `index` on, which are in one node.
pub(crate) fn addresses(volume: &ReadVolume, node: &Node, index: u64, count: u32) -> Result<Vec<BlockAddr>> {
    let fanout = node.inode.fanout();
    let way = fanout.way(index).map_err(|error| error.at(At::Inode(node.ino())))?;
    let start = to_index(way.slot);
    let end = start.saturating_add(to_index(count));
    let direct;
    let found = match reach(volume, node, &way, index)? {
        Reached::Hole(_) => &[],
        Reached::Inode => node.inode.addresses(&node.block).get(start..end).unwrap_or_default(),
        Reached::Addresses(block) => {
            direct = block;
            node::entries(&direct).get(start..end).unwrap_or_default()
        }
    };
    Ok(found.iter().map(|at| BlockAddr(at.get())).collect())
}

/// Refuses an address outside the main area.
pub(crate) fn check_is_data(volume: &ReadVolume, ino: Nid, index: u64, at: BlockAddr) -> Result<()> {
    if volume.geometry().is_main(at) {
        return Ok(());
    }
    let expected = Detail::Text("a block of the main area");
    Err(Corrupt::new("address of a block", expected, Detail::Block(at)).at(At::File(ino, index)).into())
}

/// Finds the node with the address of block `index`.
fn reach(volume: &ReadVolume, node: &Node, way: &Way, index: u64) -> Result<Reached> {
    let ino = node.ino();
    let Some(last) = way.steps().last() else { return Ok(Reached::Inode) };
    if let Some(block) = volume.fsynced(ino, last.offset)? {
        return Ok(Reached::Addresses(block));
    }
    let mut block = Arc::clone(&node.block);
    for (depth, step) in way.steps().iter().enumerate() {
        let nids = if depth == 0 { Inode::nids(&block).as_slice() } else { node::entries(&block) };
        let nid = nids.get(to_index(step.slot)).map_or(0, |nid| nid.get());
        let is_fsynced = volume.overlay().has(ino);
        // An fsynced inode may name an indirect node that was not written: recovery makes it.
        let is_missing = nid == 0 || (is_fsynced && volume.address(Nid(nid))?.is_none());
        if is_missing {
            // Fsynced nodes may be anywhere below a missing one.
            let hole = if is_fsynced { last } else { step };
            return Ok(Reached::Hole(hole.first.saturating_add(hole.count).saturating_sub(index).max(1)));
        }
        block = volume.node(Nid(nid), ino, step.offset)?;
    }
    Ok(Reached::Addresses(block))
}

fn to_index(slot: u32) -> usize {
    f2fs_disk::convert::usize_from(slot)
}
