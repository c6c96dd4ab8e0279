//! Flushes dirty pages to the logs of data. Callers: `commit`, `fsync`, and writes beyond a limit.

#![expect(clippy::arithmetic_side_effects, reason = "addresses within a segment")]

use std::sync::Arc;

use f2fs_disk::flags::Advise;
use f2fs_disk::inode::Kind;
use f2fs_disk::summary::Summary;
use f2fs_disk::{Block, BlockAddr, Nid};

use super::addresses;
use super::in_place_updates::{self, Rewrite};
use crate::ablation;
use crate::blocks::Run;
use crate::error::Result;
use crate::policy::{ActiveLogs, COLD_DATA, HOT_DATA, WARM_DATA};
use crate::read_volume::Node;
use crate::write_volume::WriteVolume;

/// Pages with allocated blocks after which they are written, and no longer dirty.
const PLACED_MAX: usize = 256;

/// Files whose pages have allocated blocks, and how many of these are new blocks.
#[derive(Debug, Default)]
struct Placed {
    /// Each is written as one request.
    runs: Vec<Run>,
    files: Vec<(Nid, u64)>,
    pages: usize,
}

/// When pages with allocated blocks are written.
#[derive(Debug)]
enum When<'a> {
    /// At once.
    Now,
    /// Together with the runs here.
    Later(&'a mut Vec<Run>),
}

/// Destination of a file's pages.
#[derive(Debug)]
struct Target {
    node: Node,
    log: usize,
    overwrites: bool,
}

/// Writes the pages of all files, without making them durable.
pub(crate) fn all(volume: &mut WriteVolume) -> Result<()> {
    let all: Vec<_> = volume.dirty.pages.files().into_iter().map(|ino| (ino, Rewrite::Usual)).collect();
    files(volume, &all)
}

/// Writes the pages of files in their order: all pages of one file get their blocks before those of another, and
/// adjacent ones are submitted as one request.
pub(crate) fn files(volume: &mut WriteVolume, files: &[(Nid, Rewrite)]) -> Result<()> {
    place_files(volume, files, &mut When::Now)
}

/// As [`Self::flush_files`], but without writing: the writes are added to `runs`, and readers find them in flight.
pub(super) fn place_for_batch(volume: &mut WriteVolume, files: &[(Nid, Rewrite)], runs: &mut Vec<Run>) -> Result<()> {
    place_files(volume, files, &mut When::Later(runs))
}

fn place_files(volume: &mut WriteVolume, files: &[(Nid, Rewrite)], when: &mut When<'_>) -> Result<()> {
    let placed = if ablation::places_in_turn() {
        place_in_turn(volume, files, when)
    } else {
        place_one_by_one(volume, files, when)
    };
    volume.poison_on_error(placed)
}

fn place_one_by_one(volume: &mut WriteVolume, files: &[(Nid, Rewrite)], when: &mut When<'_>) -> Result<()> {
    let mut placed = Placed::default();
    for (ino, rewrite) in files {
        let Some(pages) = volume.dirty.pages.of(*ino).cloned() else { continue };
        let to = target(volume, *ino, *rewrite)?;
        let mut count = 0;
        for (index, page) in &pages {
            count += u64::from(place(volume, &to, *index, page, &mut placed.runs)?);
        }
        placed.files.push((*ino, count));
        placed.pages += pages.len();
        if placed.pages >= PLACED_MAX {
            end_placed(volume, std::mem::take(&mut placed), when)?;
        }
    }
    end_placed(volume, placed, when)
}

/// The older way: files written by threads at the same time get one block after the other in turn. Requests of one file
/// are split where another one got a block.
fn place_in_turn(volume: &mut WriteVolume, files: &[(Nid, Rewrite)], when: &mut When<'_>) -> Result<()> {
    let mut open = Vec::new();
    for (ino, rewrite) in files {
        let Some(pages) = volume.dirty.pages.of(*ino).cloned() else { continue };
        open.push((target(volume, *ino, *rewrite)?, pages.into_iter(), Vec::new(), 0));
    }
    let mut is_done = open.is_empty();
    while !is_done {
        is_done = true;
        for (to, pages, runs, count) in &mut open {
            let Some((index, page)) = pages.next() else { continue };
            is_done = false;
            *count += u64::from(place(volume, to, index, &page, runs)?);
        }
    }
    for (to, _, runs, count) in open {
        end_placed(volume, Placed { runs, files: vec![(to.node.ino(), count)], pages: 0 }, when)?;
    }
    Ok(())
}

/// Submits the placed pages, or adds them to the in-flight writes; they are no longer dirty.
fn end_placed(volume: &mut WriteVolume, placed: Placed, when: &mut When<'_>) -> Result<()> {
    match when {
        When::Now => volume.blocks.write_runs(&placed.runs)?,
        When::Later(runs) => {
            placed.runs.iter().for_each(|run| volume.blocks.add_in_flight(run));
            Run::append(runs, placed.runs);
        }
    }
    for (ino, count) in placed.files {
        let blocks = volume.inode(ino)?.inode.fields().i_blocks.get();
        if volume.read.dirty.pages.remove_from(ino, 0) > 0 {
            volume.chain.wrote_pages(ino, count, blocks);
        }
    }
    Ok(())
}

fn target(volume: &WriteVolume, ino: Nid, rewrite: Rewrite) -> Result<Target> {
    let node = volume.inode(ino)?;
    Ok(Target {
        log: data_log(volume.policy.active_logs, &node),
        overwrites: in_place_updates::may_overwrite(volume, &node, rewrite)?,
        node,
    })
}

/// Allocates the block of a page, joined with the last run if it follows that. True if it is another block than before.
fn place(volume: &mut WriteVolume, to: &Target, index: u64, page: &Arc<Block>, runs: &mut Vec<Run>) -> Result<bool> {
    let old = if to.overwrites { in_place_updates::block_of(volume, &to.node, index)? } else { None };
    let at = match old {
        Some(at) => {
            volume.progress.rewrote();
            at
        }
        None => place_page(volume, &to.node, index, to.log)?,
    };
    Run::add(runs, at, Arc::clone(page));
    Ok(old.is_none())
}

/// Allocates the next block of a log for a page.
fn place_page(volume: &mut WriteVolume, node: &Node, index: u64, log: usize) -> Result<BlockAddr> {
    let slot = addresses::make(volume, &node.inode, index)?;
    let version = volume.nat_entry(slot.nid)?.version;
    let summary = Summary::new(slot.nid, version, u16::try_from(slot.index).unwrap_or(0));
    let at = volume.allocate(log, summary, None)?;
    addresses::set(volume, &node.inode, &slot, at)?;
    Ok(at)
}

/// The log for the contents of an inode.
fn data_log(active: ActiveLogs, node: &Node) -> usize {
    let advise = node.inode.advise();
    match node.inode.kind() {
        Kind::Directory => HOT_DATA,
        _ if advise.contains(Advise::COLD) => COLD_DATA,
        _ if advise.contains(Advise::HOT) && active == ActiveLogs::Six => HOT_DATA,
        _ => WARM_DATA,
    }
}
