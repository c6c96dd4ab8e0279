//! Decides, by the kernel's policy, which dirty pages overwrite their old blocks in place. Called by `flush` and
//! `fsync`.
//!
//! An fsync of few pages, or one of data alone, overwrites their old blocks: addresses stay, so that no node changes,
//! and an fdatasync may have nothing else to write. Contents of cold files (`Advise::COLD`) and of pinned files are
//! always written so. A crash may then leave a mix of old and new contents, as everywhere with in-place writes, but
//! only within the size that the file has on the disk: beyond that a block has zeros, since a later size would expose
//! it.

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

/// Most pages that an fsync writes in place (the kernel's `min_fsync_blocks`).
pub(super) const PAGES_MAX: usize = 8;

/// Whether pages of a file with allocated blocks are written in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rewrite {
    /// To other blocks, so that the old ones come free.
    Elsewhere,
    /// To other blocks, unless the file is cold or pinned.
    Usual,
    /// In place, if possible.
    InPlace,
}

/// True if blocks of a file may be overwritten.
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

/// The block of a file that may be overwritten: in use, and owned by this file according to the segment's summary.
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

/// The node that a crash would leave; `None` for one that was never written.
fn durable(volume: &ReadVolume, nid: Nid) -> Result<Option<Arc<Block>>> {
    volume.address(nid)?.map(|at| volume.blocks.get(at)).transpose()
}

/// True if a dirty node differs from the one on the disk; the times of an inode count only with `has_times`.
pub(super) fn differs_from_disk(volume: &ReadVolume, nid: Nid, block: &Block, has_times: bool) -> Result<bool> {
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
