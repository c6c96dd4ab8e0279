//! Contents that are written where they were, as the kernel's policy of in-place updates has it.
//!
//! An fsync of few pages, or one of data alone, writes them over their old blocks: addresses stay, so that no node
//! says anything new, and of an fdatasync nothing else may be left to write. Contents that are kept together
//! (`Advise::COLD`), or that shall stay where they are (pinned), are always written so. A crash leaves old and new
//! contents mixed then, as anywhere that writes in place, but only within the size that the file has on the disk too:
//! beyond that a block has zeros, or another size would show what lies there.

use std::sync::Arc;

use f2fs_disk::flags::{Advise, InlineFlags};
use f2fs_disk::inode::{self, Kind};
use f2fs_disk::node::{self, Footer};
use f2fs_disk::{Block, BlockAddr, Nid};

use super::addresses;
use crate::error::Result;
use crate::policy::Mode;
use crate::read_volume::{Node, ReadVolume};
use crate::write_volume::WriteVolume;

/// Pages of a file up to which an fsync writes them in place (the kernel's `min_fsync_blocks`).
pub(super) const PAGES_MAX: usize = 8;

/// Where pages go whose file has blocks for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rewrite {
    /// To other blocks: the old ones are to come free.
    Elsewhere,
    /// To other blocks, unless the file's contents are kept together or pinned.
    Usual,
    /// To the same blocks, where that can be.
    InPlace,
}

/// True where blocks of a file may be written over.
pub(super) fn may_overwrite(volume: &WriteVolume, node: &Node, rewrite: Rewrite) -> Result<bool> {
    let is_wanted = match rewrite {
        Rewrite::Elsewhere => false,
        Rewrite::Usual => {
            node.inode.advise().contains(Advise::COLD) || node.inode.inline().contains(InlineFlags::PIN_FILE)
        }
        Rewrite::InPlace => true,
    };
    let is_plain = node.inode.kind() == Kind::File && !node.inode.inline().contains(InlineFlags::DATA);
    if !is_wanted || !is_plain || volume.policy.mode != Mode::Adaptive {
        return Ok(false);
    }
    let Some(block) = durable(volume, node.ino())? else { return Ok(false) };
    let old = volume.inode_in(&block, node.ino())?;
    Ok(old.size() == node.inode.size() && !old.inline().contains(InlineFlags::DATA))
}

/// The block of a file that may be written over: one that is in use, and this file's for the segment's summary too.
pub(super) fn block_of(volume: &WriteVolume, node: &Node, index: u64) -> Result<Option<BlockAddr>> {
    let Some(slot) = addresses::find(volume, node, index)? else { return Ok(None) };
    let at = addresses::get(volume, &node.inode, &slot)?;
    if !at.is_block() {
        return Ok(None);
    }
    crate::map::check_is_data(volume, node.ino(), index, at)?;
    let is_own = volume.space.owner_of(at)? == Some((slot.nid, slot.index));
    Ok(is_own.then_some(at))
}

/// The node as a crash would leave it; `None` for one that was never written.
fn durable(volume: &ReadVolume, nid: Nid) -> Result<Option<Arc<Block>>> {
    volume.address(nid)?.map(|at| volume.blocks.get(at)).transpose()
}

/// True where a node that changed says something else than on the disk; times that an inode has do not count where
/// `has_times` is false.
pub(super) fn is_news(volume: &ReadVolume, nid: Nid, block: &Block, has_times: bool) -> Result<bool> {
    let Some(old) = durable(volume, nid)? else { return Ok(true) };
    if Footer::of(&old).offset() != Footer::of(block).offset() {
        return Ok(true);
    }
    if !Footer::of(block).is_inode() || has_times {
        return Ok(node::contents(&old) != node::contents(block));
    }
    let timeless = [&*old, block].map(inode::without_times);
    let [old, new] = &timeless;
    Ok(node::contents(old) != node::contents(new))
}
