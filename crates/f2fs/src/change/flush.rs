//! Pages go to the logs of data.

#![expect(clippy::arithmetic_side_effects, reason = "addresses within a segment")]

use std::sync::Arc;

use f2fs_disk::convert::to_u64;
use f2fs_disk::flags::Advise;
use f2fs_disk::inode::Kind;
use f2fs_disk::summary::Summary;
use f2fs_disk::{Block, BlockAddr, Nid};

use super::in_place::Rewrite;
use crate::ablation;
use crate::blocks::Run;
use crate::error::Result;
use crate::policy::{ActiveLogs, COLD_DATA, HOT_DATA, WARM_DATA};
use crate::store::{Node, Store};

/// Pages that have their places after which they are written, and no longer kept as changed.
const PLACED_MAX: usize = 256;

/// Files whose pages have their places, with how many of these got other blocks than they had.
#[derive(Debug, Default)]
struct Placed {
    /// What is written as one request each.
    runs: Vec<Run>,
    files: Vec<(Nid, u64)>,
    pages: usize,
}

/// When pages that have their places are written.
#[derive(Debug)]
enum When<'a> {
    /// At once.
    Now,
    /// With what else is here.
    Later(&'a mut Vec<Run>),
}

/// Where the pages of a file go.
#[derive(Debug)]
struct Target {
    node: Node,
    log: usize,
    overwrites: bool,
}

impl Store {
    /// Writes the pages of all files; nothing is durable by that.
    pub(crate) fn flush_all(&mut self) -> Result<()> {
        let mut files: Vec<_> = self.writer()?.pages.keys().map(|ino| (*ino, Rewrite::Usual)).collect();
        files.sort_unstable_by_key(|(ino, _)| *ino);
        self.flush_files(&files)
    }

    /// Writes the pages of files, each in the order of the file: all pages of one get their places before another
    /// file's, and what lies together is submitted as one request.
    pub(crate) fn flush_files(&mut self, files: &[(Nid, Rewrite)]) -> Result<()> {
        self.place_files(files, &mut When::Now)
    }

    /// As [`Self::flush_files`], but writes nothing: the writes are added to `runs`, and readers find them in flight.
    pub(super) fn place_for_batch(&mut self, files: &[(Nid, Rewrite)], runs: &mut Vec<Run>) -> Result<()> {
        self.place_files(files, &mut When::Later(runs))
    }

    fn place_files(&mut self, files: &[(Nid, Rewrite)], when: &mut When<'_>) -> Result<()> {
        let placed = if ablation::places_in_turn() {
            self.place_in_turn(files, when)
        } else {
            self.place_one_by_one(files, when)
        };
        self.noted(placed)
    }

    fn place_one_by_one(&mut self, files: &[(Nid, Rewrite)], when: &mut When<'_>) -> Result<()> {
        let mut placed = Placed::default();
        for (ino, rewrite) in files {
            let Some(pages) = self.writer()?.pages.get(ino).cloned() else { continue };
            let to = self.target(*ino, *rewrite)?;
            let mut count = 0;
            for (index, page) in &pages {
                count += u64::from(self.place(&to, *index, page, &mut placed.runs)?);
            }
            placed.files.push((*ino, count));
            placed.pages += pages.len();
            if placed.pages >= PLACED_MAX {
                self.end_placed(std::mem::take(&mut placed), when)?;
            }
        }
        self.end_placed(placed, when)
    }

    /// The older way: as threads that write files at the same time, and ask for one block after the other. Requests of
    /// one file are cut where another one got a block.
    fn place_in_turn(&mut self, files: &[(Nid, Rewrite)], when: &mut When<'_>) -> Result<()> {
        let mut open = Vec::new();
        for (ino, rewrite) in files {
            let Some(pages) = self.writer()?.pages.get(ino).cloned() else { continue };
            open.push((self.target(*ino, *rewrite)?, pages.into_iter(), Vec::new(), 0));
        }
        let mut is_done = open.is_empty();
        while !is_done {
            is_done = true;
            for (to, pages, runs, count) in &mut open {
                let Some((index, page)) = pages.next() else { continue };
                is_done = false;
                *count += u64::from(self.place(to, index, &page, runs)?);
            }
        }
        for (to, _, runs, count) in open {
            self.end_placed(Placed { runs, files: vec![(to.node.ino(), count)], pages: 0 }, when)?;
        }
        Ok(())
    }

    /// Submits what has its place, or has readers find it, and keeps the pages no longer.
    fn end_placed(&mut self, placed: Placed, when: &mut When<'_>) -> Result<()> {
        match when {
            When::Now => self.blocks.write_runs(&placed.runs)?,
            When::Later(runs) => {
                placed.runs.iter().for_each(|run| self.blocks.add_in_flight(run));
                Run::append(runs, placed.runs);
            }
        }
        for (ino, count) in placed.files {
            let blocks = self.inode(ino)?.inode.fields().i_blocks.get();
            let writer = self.writer_mut()?;
            if let Some(pages) = writer.pages.remove(&ino) {
                writer.page_count -= to_u64(pages.len());
                writer.chain.wrote_pages(ino, count, blocks);
            }
        }
        Ok(())
    }

    fn target(&self, ino: Nid, rewrite: Rewrite) -> Result<Target> {
        let node = self.inode(ino)?;
        Ok(Target { log: self.data_log(&node)?, overwrites: self.may_overwrite(&node, rewrite)?, node })
    }

    /// Gives a page its place, behind the last run where it follows. True where that is another block than it had.
    fn place(&mut self, to: &Target, index: u64, page: &Arc<Block>, runs: &mut Vec<Run>) -> Result<bool> {
        let old = if to.overwrites { self.block_of(&to.node, index)? } else { None };
        let at = match old {
            Some(at) => at,
            None => self.place_page(&to.node, index, to.log)?,
        };
        Run::add(runs, at, Arc::clone(page));
        Ok(old.is_none())
    }

    /// The next block of a log becomes that of a page.
    fn place_page(&mut self, node: &Node, index: u64, log: usize) -> Result<BlockAddr> {
        let slot = self.slot_made(&node.inode, index)?;
        let version = self.nat_entry(slot.nid)?.version;
        let summary = Summary::new(slot.nid, version, u16::try_from(slot.index).unwrap_or(0));
        let at = self.allocate(log, summary)?;
        self.set_address(&node.inode, &slot, at)?;
        Ok(at)
    }

    /// The log that the contents of an inode go to.
    fn data_log(&self, node: &Node) -> Result<usize> {
        let advise = node.inode.advise();
        let is_hot = advise.contains(Advise::HOT) && self.writer()?.policy.active_logs == ActiveLogs::Six;
        Ok(match node.inode.kind() {
            Kind::Directory => HOT_DATA,
            _ if advise.contains(Advise::COLD) => COLD_DATA,
            _ if is_hot => HOT_DATA,
            _ => WARM_DATA,
        })
    }
}
