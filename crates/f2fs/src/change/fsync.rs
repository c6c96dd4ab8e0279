//! Makes fsyncs durable: writes the nodes of files behind the last checkpoint, where the next opening, by Spinney or
//! the kernel, finds them ("roll-forward recovery"). Called by `vfs_impl/syncs` and `vfs_impl/data`.
//!
//! ```text
//!    pages of the file -> its direct nodes -> its inode, with the fsync mark; the first of these nodes without the
//!      checkpoint's version -> flush -> the first node, with it -> flush
//! ```
//!
//! Each node has the address of the next one, so that none is found before the first one is valid, and then all of them
//! are durable. Its block differs from the earlier contents only in the last 512 bytes.
//!
//! Nodes that a checkpoint writes have the version of an older one: they end the chain, whatever lies behind them.

#![expect(clippy::arithmetic_side_effects, reason = "counts of blocks of a volume, bounded by the superblock")]

use std::sync::Arc;

use f2fs_disk::convert::to_u64;
use f2fs_disk::flags::Advise;
use f2fs_disk::inode::Kind;
use f2fs_disk::node::Footer;
use f2fs_disk::{Block, BlockAddr, Nid};
use vfs::file_system::SyncWhat;

use super::commit::{self, Marks};
use super::flush;
use super::in_place_updates::{self, Rewrite};
use crate::batch::{Batch, BatchGuard, PendingBatch};
use crate::blocks::Run;
use crate::dir;
use crate::error::Result;
use crate::policy::{ActiveLogs, FsyncMode, LOGS, WARM_NODE};
use crate::read_volume::{Node, ReadVolume};
use crate::write_volume::WriteVolume;

/// Properties of an inode that the chain cannot record: where its name is, or how names and contents are kept.
const NEED_CHECKPOINT: Advise =
    Advise::LOST_PINO.union(Advise::ENCRYPT).union(Advise::ENC_NAME).union(Advise::VERITY).union(Advise::TRUNC);
/// Blocks for a replay beyond those it takes.
const REPLAY_SLACK_BLOCKS: u64 = 64;

/// Nodes of a file that an fsync has to write.
enum Unwritten {
    /// These: direct ones, and the inode as the last.
    Nodes(Vec<Nid>),
    /// None: addresses and size on the disk are current.
    Contents,
    /// Nothing was written since the last fsync.
    Nothing,
}

/// Makes a file durable.
///
/// # Errors
/// As [`Self::begin_sync`].
pub(crate) fn sync(volume: &mut WriteVolume, ino: Nid, what: SyncWhat) -> Result<()> {
    let written = begin(volume, &[(ino, what)])?.write();
    volume.poison_on_error(written)
}

/// Begins to make distinct files and their names durable, or everything, if nodes cannot record that. A sync of data
/// alone writes no node in which only times changed.
///
/// They are durable once the batch is written, which no longer needs the volume's lock. If that fails, the caller notes
/// it ([`Self::noted`]).
///
/// # Errors
/// The device's error; then all later writes are refused.
pub(crate) fn begin(volume: &mut WriteVolume, wanted: &[(Nid, SyncWhat)]) -> Result<PendingBatch> {
    volume.progress.check()?;
    let finished = volume.blocks.in_flight().wait();
    volume.poison_on_error(finished)?;
    if !can_be_said(volume, wanted)? {
        commit::commit(volume, false)?;
        return Ok(BatchGuard::new(&volume.blocks).begin(Batch::default()));
    }
    let guard = BatchGuard::new(&volume.blocks);
    match place_batch(volume, wanted) {
        Ok(batch) => Ok(guard.begin(batch)),
        Err(error) => {
            guard.end();
            volume.poison_on_error(Err(error))
        }
    }
}

/// True if nodes can record all that is promised.
fn can_be_said(volume: &WriteVolume, wanted: &[(Nid, SyncWhat)]) -> Result<bool> {
    let (mut pages, mut nodes) = (0, 0);
    for (ino, _) in wanted {
        pages += to_u64(volume.dirty.pages.count_of(*ino));
        nodes += to_u64(volume.read.dirty.nodes.of(*ino).count()) + 1;
        if !can_say(volume, &volume.inode(*ino)?, nodes)? {
            return Ok(false);
        }
    }
    can_be_replayed(volume, pages + nodes)
}

/// True if `nodes` further nodes can record what is promised of a file.
fn can_say(volume: &WriteVolume, node: &Node, nodes: u64) -> Result<bool> {
    let (ino, fields) = (node.ino(), node.inode.fields());
    // Another form of its name may have been that of another file.
    let ignores_case = match volume.inode(Nid(fields.i_pino.get())) {
        Ok(dir) => dir::ignores_case(volume, &dir),
        Err(_) => true,
    };
    let is_plain = !ignores_case
        && node.inode.kind() == Kind::File
        && fields.i_links.get() == 1
        && node.inode.compressed().is_none()
        && !node.inode.advise().intersects(NEED_CHECKPOINT);
    if !is_plain {
        return Ok(false);
    }
    let dir = Nid(fields.i_pino.get());
    let is_strict = volume.policy.fsync_mode == FsyncMode::Strict;
    // The kernel looks for the chain in the log of warm nodes.
    if volume.policy.active_logs == ActiveLogs::Two
        || (is_strict && volume.chain.is_fresh(ino) && volume.chain.has_lost_in(dir))
    {
        return Ok(false);
    }
    let place = (dir, node.inode.name().unwrap_or_default());
    Ok(volume.chain.can_say(ino, place, nodes))
}

/// True if an opening finds space to replay all fsyncs since the checkpoint, and `more` blocks. It rewrites contents,
/// the nodes above, and names.
fn can_be_replayed(volume: &WriteVolume, more: u64) -> Result<bool> {
    let (written, reserved) = volume.chain.replayed(more);
    let valid = volume.checkpoint().fields().valid_block_count.get();
    // Each log begins a section for the replay, and may end in another one; it fills holes, too.
    let written = written + REPLAY_SLACK_BLOCKS;
    let sections = written / volume.space.segments.blocks_per_section() + 2 * to_u64(LOGS);
    let has_sections = u64::from(volume.space.segments.free_sections()) > sections
        || [false, true].iter().all(|is_node| volume.space.segments.room_in_holes(*is_node) > written);
    Ok(volume.counters.has_room(valid, reserved + REPLAY_SLACK_BLOCKS) && has_sections)
}

/// Allocates the blocks of an fsync; readers find them from now on.
fn place_batch(volume: &mut WriteVolume, wanted: &[(Nid, SyncWhat)]) -> Result<Batch> {
    let mut files = Vec::with_capacity(wanted.len());
    for (ino, what) in wanted {
        let pages = volume.dirty.pages.count_of(*ino);
        let is_in_place = *what == SyncWhat::Data || pages <= in_place_updates::PAGES_MAX;
        files.push((*ino, if is_in_place { Rewrite::InPlace } else { Rewrite::Usual }));
    }
    let mut runs = Vec::new();
    flush::place_for_batch(volume, &files, &mut runs)?;
    let cp_ver = volume.checkpoint().mark_of_next();
    let (mut placed, mut has_contents): (Vec<(BlockAddr, Arc<Block>)>, _) = (Vec::new(), false);
    for (ino, what) in wanted {
        let nids = match unwritten_of(volume, *ino, *what)? {
            Unwritten::Nodes(nids) => nids,
            Unwritten::Contents => {
                has_contents = true;
                continue;
            }
            Unwritten::Nothing => continue,
        };
        volume.edit_inode(*ino)?;
        let is_fresh = volume.chain.is_fresh(*ino);
        for nid in nids {
            let is_inode = nid == *ino;
            let marks = Marks { cp_ver, is_fsync: is_inode, is_dent: is_inode && is_fresh };
            let (at, block) = commit::place_node(volume, WARM_NODE, nid, marks)?;
            volume.blocks.add_metadata_in_flight(at, &block);
            placed.push((at, block));
            volume.read.dirty.nodes.remove(nid);
            volume.chain.wrote_node(nid);
        }
    }
    let commit_block = placed.first().cloned();
    if let Some((_, first)) = placed.first_mut() {
        end_chain_at(volume, first);
    }
    placed.into_iter().for_each(|(at, block)| Run::add(&mut runs, at, block));
    let waits = volume.policy.fsync_mode != FsyncMode::Nobarrier;
    Ok(Batch { has_barriers: waits && (commit_block.is_some() || has_contents), runs, commit_block })
}

fn unwritten_of(volume: &WriteVolume, ino: Nid, what: SyncWhat) -> Result<Unwritten> {
    let is_data = what == SyncWhat::Data;
    let (mut nodes, mut has_nodes, mut has_news): (Vec<(u32, Nid)>, _, _) = (Vec::new(), false, false);
    for (nid, block) in volume.read.dirty.nodes.of(ino) {
        has_nodes = true;
        let footer = Footer::of(block);
        // A replay makes indirect nodes itself; one with attributes did not change, or the inode would be barred.
        if !footer.is_direct() || !in_place_updates::differs_from_disk(volume, nid, block, !is_data)? {
            continue;
        }
        has_news = true;
        if nid != ino {
            nodes.push((footer.offset(), nid));
        }
    }
    if !has_nodes {
        return Ok(Unwritten::Nothing);
    }
    if is_data && !has_news {
        return Ok(Unwritten::Contents);
    }
    nodes.sort_unstable();
    // The inode is the last: it has the valid size.
    Ok(Unwritten::Nodes(nodes.into_iter().map(|(_, nid)| nid).chain([ino]).collect()))
}

/// Gives a node the version of an older checkpoint, which ends the chain: until the commit block replaces it, later
/// nodes are invalid.
fn end_chain_at(volume: &ReadVolume, block: &mut Arc<Block>) {
    let ending = Arc::make_mut(block);
    let mut footer = Footer::of(ending);
    footer.cp_ver = volume.checkpoint().mark_of_past().into();
    footer.put(ending);
}
