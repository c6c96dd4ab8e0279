//! Fsync: the nodes of files are written behind the last checkpoint, where the next opening, or the kernel's, finds
//! them ("roll-forward recovery").
//!
//! ```text
//!    pages of the file -> its direct nodes -> its inode, with the fsync mark; the first of these nodes without the
//!      checkpoint's version -> flush -> the first node, with it -> flush
//! ```
//!
//! Each node says where the next one is, so that nothing is found before the first one counts, and then all of it is on
//! the disk. Its block differs from what was there in the last 512 bytes alone.
//!
//! Nodes that a checkpoint writes have the version of an older one: they end the chain, whatever lies behind them.

#![expect(clippy::arithmetic_side_effects, reason = "counts of blocks of a volume, bounded by the superblock")]

use std::collections::BTreeMap;
use std::sync::Arc;

use f2fs_disk::convert::to_u64;
use f2fs_disk::flags::Advise;
use f2fs_disk::inode::Kind;
use f2fs_disk::node::Footer;
use f2fs_disk::{Block, BlockAddr, Nid};
use vfs::file_system::SyncWhat;

use super::commit::Marks;
use super::in_place::{self, Rewrite};
use crate::batch::{Batch, BatchGuard, PendingBatch};
use crate::blocks::Run;
use crate::dir;
use crate::error::Result;
use crate::policy::{ActiveLogs, FsyncMode, LOGS, WARM_NODE};
use crate::store::{Node, Store};

/// What the chain does not say of an inode: where its name is, or how names and contents are kept.
const NEED_CHECKPOINT: Advise =
    Advise::LOST_PINO.union(Advise::ENCRYPT).union(Advise::ENC_NAME).union(Advise::VERITY).union(Advise::TRUNC);
/// Blocks that a replay finds room for beyond those it takes.
const REPLAY_SLACK_BLOCKS: u64 = 64;

/// What of a file's nodes an fsync has to write.
enum News {
    /// These: direct ones, and the inode as the last.
    Nodes(Vec<Nid>),
    /// None: addresses and size are those that the disk has.
    Contents,
    /// Nothing was written since the last fsync.
    Nothing,
}

impl Store {
    /// Makes a file durable.
    ///
    /// # Errors
    /// As [`Self::begin_sync`].
    pub(crate) fn sync_file(&mut self, ino: Nid, what: SyncWhat) -> Result<()> {
        let written = self.begin_sync(&[(ino, what)])?.write();
        self.noted(written)
    }

    /// Begins to make files durable, none of them named twice, and that their names lead to them; everything, where
    /// nodes cannot say that. Data alone takes no node where nothing but times changed in them.
    ///
    /// They are durable once the batch is written, which needs the volume's lock no longer. Where that fails, the caller
    /// notes it ([`Self::noted`]).
    ///
    /// # Errors
    /// What the device says; nothing is written any more then.
    pub(crate) fn begin_sync(&mut self, wanted: &[(Nid, SyncWhat)]) -> Result<PendingBatch> {
        self.writer()?.check()?;
        let finished = self.blocks.in_flight().wait();
        self.noted(finished)?;
        if !self.can_be_said(wanted)? {
            self.commit(false)?;
            return Ok(BatchGuard::new(&self.blocks).begin(Batch::default()));
        }
        let guard = BatchGuard::new(&self.blocks);
        match self.place_batch(wanted) {
            Ok(batch) => Ok(guard.begin(batch)),
            Err(error) => {
                guard.end();
                self.noted(Err(error))
            }
        }
    }

    /// True where nodes say all that is promised.
    fn can_be_said(&self, wanted: &[(Nid, SyncWhat)]) -> Result<bool> {
        let (mut pages, mut nodes) = (0, 0);
        for (ino, _) in wanted {
            let writer = self.writer()?;
            pages += writer.pages.get(ino).map_or(0, |pages| to_u64(pages.len()));
            nodes += to_u64(writer.nodes.of(*ino).count()) + 1;
            if !self.can_say(&self.inode(*ino)?, nodes)? {
                return Ok(false);
            }
        }
        self.can_be_replayed(pages + nodes)
    }

    /// True where `nodes` nodes more say what is promised of a file.
    fn can_say(&self, node: &Node, nodes: u64) -> Result<bool> {
        let (ino, fields) = (node.ino(), node.inode.fields());
        // Another form of its name may have been that of another file.
        let ignores_case = match self.inode(Nid(fields.i_pino.get())) {
            Ok(dir) => dir::ignores_case(self, &dir),
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
        let writer = self.writer()?;
        let dir = Nid(fields.i_pino.get());
        let is_strict = writer.policy.fsync_mode == FsyncMode::Strict;
        // The kernel, which finds the chain, looks for it in the log of warm nodes.
        if writer.policy.active_logs == ActiveLogs::Two
            || (is_strict && writer.chain.is_fresh(ino) && writer.chain.has_lost_in(dir))
        {
            return Ok(false);
        }
        let place = (dir, node.inode.name().unwrap_or_default());
        Ok(writer.chain.can_say(ino, place, nodes))
    }

    /// True where an opening finds room to replay all that was fsynced since the checkpoint, and `more` blocks. It
    /// writes contents anew, with the nodes above, and names.
    fn can_be_replayed(&self, more: u64) -> Result<bool> {
        let writer = self.writer()?;
        let (written, reserved) = writer.chain.replayed(more);
        let valid = self.checkpoint().fields().valid_block_count.get();
        // Each log begins a section for the replay, and may end in another one; holes are filled by it, too.
        let written = written + REPLAY_SLACK_BLOCKS;
        let sections = written / writer.segments.blocks_per_section() + 2 * to_u64(LOGS);
        let has_sections = u64::from(writer.segments.free_sections()) > sections
            || [false, true].iter().all(|is_node| writer.segments.room_in_holes(*is_node) > written);
        Ok(valid + reserved + REPLAY_SLACK_BLOCKS <= writer.user_blocks && has_sections)
    }

    /// Allocates the blocks of an fsync; readers find them from now on.
    fn place_batch(&mut self, wanted: &[(Nid, SyncWhat)]) -> Result<Batch> {
        let mut files = Vec::with_capacity(wanted.len());
        for (ino, what) in wanted {
            let pages = self.writer()?.pages.get(ino).map_or(0, BTreeMap::len);
            let is_in_place = *what == SyncWhat::Data || pages <= in_place::PAGES_MAX;
            files.push((*ino, if is_in_place { Rewrite::InPlace } else { Rewrite::Usual }));
        }
        let mut runs = Vec::new();
        self.place_for_batch(&files, &mut runs)?;
        let cp_ver = self.checkpoint().mark_of_next();
        let (mut placed, mut has_contents): (Vec<(BlockAddr, Arc<Block>)>, _) = (Vec::new(), false);
        for (ino, what) in wanted {
            let nids = match self.news_of(*ino, *what)? {
                News::Nodes(nids) => nids,
                News::Contents => {
                    has_contents = true;
                    continue;
                }
                News::Nothing => continue,
            };
            self.edit_inode(*ino)?;
            let is_fresh = self.writer()?.chain.is_fresh(*ino);
            for nid in nids {
                let is_inode = nid == *ino;
                let marks = Marks { cp_ver, is_fsync: is_inode, is_dent: is_inode && is_fresh };
                let (at, block) = self.place_node(WARM_NODE, nid, marks)?;
                self.blocks.add_metadata_in_flight(at, &block);
                placed.push((at, block));
                let writer = self.writer_mut()?;
                writer.nodes.remove(nid);
                writer.chain.wrote_node(nid);
            }
        }
        let commit_block = placed.first().cloned();
        if let Some((_, first)) = placed.first_mut() {
            self.end_chain_at(first);
        }
        placed.into_iter().for_each(|(at, block)| Run::add(&mut runs, at, block));
        let waits = self.writer()?.policy.fsync_mode != FsyncMode::Nobarrier;
        Ok(Batch { has_barriers: waits && (commit_block.is_some() || has_contents), runs, commit_block })
    }

    fn news_of(&self, ino: Nid, what: SyncWhat) -> Result<News> {
        let is_data = what == SyncWhat::Data;
        let (mut nodes, mut has_nodes, mut has_news): (Vec<(u32, Nid)>, _, _) = (Vec::new(), false, false);
        for (nid, block) in self.writer()?.nodes.of(ino) {
            has_nodes = true;
            let footer = Footer::of(block);
            // Indirect nodes are made anew by who replays; one with attributes did not change, or it would be barred.
            if !footer.is_direct() || !self.is_news(nid, block, !is_data)? {
                continue;
            }
            has_news = true;
            if nid != ino {
                nodes.push((footer.offset(), nid));
            }
        }
        if !has_nodes {
            return Ok(News::Nothing);
        }
        if is_data && !has_news {
            return Ok(News::Contents);
        }
        nodes.sort_unstable();
        // The inode is the last: it has the size that counts.
        Ok(News::Nodes(nodes.into_iter().map(|(_, nid)| nid).chain([ino]).collect()))
    }

    /// Gives a node the version of an older checkpoint, which ends the chain: until the commit block replaces it,
    /// nothing behind it counts.
    fn end_chain_at(&self, block: &mut Arc<Block>) {
        let ending = Arc::make_mut(block);
        let mut footer = Footer::of(ending);
        footer.cp_ver = self.checkpoint().mark_of_past().into();
        footer.put(ending);
    }
}
