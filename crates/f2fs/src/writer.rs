//! What a volume that is open for writing keeps in memory: what changed since the last checkpoint, and where new blocks
//! go.
//!
//! ```text
//!    writes -> pages (of files and directories) --flush--> logs of data --.
//!    changes -> nodes (inodes too) ------------commit--> logs of nodes ---+--> SIT, NAT --> checkpoint
//! ```

#![expect(clippy::arithmetic_side_effects, reason = "numbers of blocks of a volume, bounded by the superblock")]

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use f2fs_disk::convert::{to_u64, usize_from};
use f2fs_disk::node::Footer;
use f2fs_disk::summary::Summary;
use f2fs_disk::{Block, BlockAddr, Geometry, Nid, SEGMENT_BLOCKS};
use host::Env;

use crate::chain::Chain;
use crate::charges::Charges;
use crate::error::{Error, Result};
use crate::segments::Segments;

/// Logs: data hot, warm and cold, then nodes.
pub(crate) const LOGS: usize = 6;
pub(crate) const HOT_DATA: usize = 0;
pub(crate) const WARM_DATA: usize = 1;
pub(crate) const COLD_DATA: usize = 2;
pub(crate) const HOT_NODE: usize = 3;
pub(crate) const WARM_NODE: usize = 4;
pub(crate) const COLD_NODE: usize = 5;
/// Blocks beyond what is known to be needed, for what a change makes dirty besides.
const SLACK_BLOCKS: u64 = 32;

/// A segment that blocks are written to one after the other.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) segment: u32,
    /// Index of the next block.
    pub(crate) next: u32,
    /// Who owns the blocks before that.
    pub(crate) summaries: Vec<Summary>,
}

impl Log {
    pub(crate) fn new(segment: u32) -> Self {
        Self { segment, next: 0, summaries: vec![Summary::new(Nid(0), 0, 0); usize_from(SEGMENT_BLOCKS)] }
    }

    pub(crate) fn room(&self) -> u64 {
        u64::from(SEGMENT_BLOCKS.saturating_sub(self.next))
    }

    /// Where the next block goes.
    pub(crate) fn next_address(&self, geometry: &Geometry) -> BlockAddr {
        geometry.segment_block(self.segment, self.next)
    }
}

/// The pages of a file that changed.
pub(crate) type Pages = BTreeMap<u64, Arc<Block>>;

/// Nodes that changed.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    blocks: HashMap<Nid, Arc<Block>>,
    /// Inodes with their nodes: an fsync looks for those of one inode.
    by_inode: BTreeSet<(Nid, Nid)>,
}

impl Nodes {
    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    pub(crate) fn get(&self, nid: Nid) -> Option<&Arc<Block>> {
        self.blocks.get(&nid)
    }

    pub(crate) fn get_mut(&mut self, nid: Nid) -> Option<&mut Arc<Block>> {
        self.blocks.get_mut(&nid)
    }

    pub(crate) fn insert(&mut self, nid: Nid, block: Arc<Block>) {
        self.by_inode.insert((Footer::of(&block).ino(), nid));
        self.blocks.insert(nid, block);
    }

    pub(crate) fn remove(&mut self, nid: Nid) -> Option<Arc<Block>> {
        let block = self.blocks.remove(&nid)?;
        self.by_inode.remove(&(Footer::of(&block).ino(), nid));
        Some(block)
    }

    pub(crate) fn clear(&mut self) {
        self.blocks.clear();
        self.by_inode.clear();
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (Nid, &Arc<Block>)> {
        self.blocks.iter().map(|(nid, block)| (*nid, block))
    }

    /// The nodes of one inode, and the inode.
    pub(crate) fn of(&self, ino: Nid) -> impl Iterator<Item = (Nid, &Arc<Block>)> {
        let nids = self.by_inode.range((ino, Nid(0))..=(ino, Nid(u32::MAX)));
        nids.filter_map(|(_, nid)| Some((*nid, self.blocks.get(nid)?)))
    }
}

/// State of a volume that is open for writing.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) env: Env,
    pub(crate) segments: Segments,
    pub(crate) logs: Vec<Log>,
    /// Segments whose entries are in the journal of the last checkpoint instead of in the SIT.
    pub(crate) sit_journal: BTreeSet<u32>,
    pub(crate) free_nids: VecDeque<Nid>,
    /// The next block of the NAT to be searched for free numbers, and blocks that were not.
    pub(crate) nat_scan: u32,
    pub(crate) nat_left: u32,
    /// Numbers that are free with the next checkpoint; a later search finds them.
    pub(crate) freed_nids: Vec<Nid>,
    /// Some came free that a search may have passed.
    pub(crate) has_freed_nids: bool,
    pub(crate) nodes: Nodes,
    pub(crate) pages: HashMap<Nid, Pages>,
    pub(crate) page_count: u64,
    /// Inodes without names.
    pub(crate) orphans: BTreeSet<Nid>,
    /// Of these, such as never had one, and may get one.
    pub(crate) unnamed: BTreeSet<Nid>,
    pub(crate) valid_blocks: u64,
    pub(crate) valid_nodes: u32,
    pub(crate) valid_inodes: u32,
    pub(crate) user_blocks: u64,
    pub(crate) generation: u32,
    /// Counts changes; and how many of them the last checkpoint has.
    pub(crate) changes: u64,
    pub(crate) committed: u64,
    /// What fsyncs have to know.
    pub(crate) chain: Chain,
    /// What the quota files have to count.
    pub(crate) charges: Charges,
    /// They could not be kept right.
    pub(crate) quotas_need_repair: bool,
    /// Why nothing is written any more.
    pub(crate) poison: Option<Box<Error>>,
    /// How many changes there were when the volume was last as between two operations: see [`Writer::is_settled`].
    pub(crate) settled: u64,
    /// What was fsynced before is being replayed: a checkpoint before its end would leave the rest out.
    pub(crate) is_replaying: bool,
    /// Seconds of the clock when the volume was opened.
    pub(crate) opened: i64,
}

impl Writer {
    /// Blocks that the next commit has to find room for, beside `more`.
    fn dirty(&self, more: u64) -> u64 {
        to_u64(self.nodes.len()) + self.page_count + self.charges.blocks() + more + SLACK_BLOCKS
    }

    /// Free sections that these blocks may need, however they are distributed among the logs.
    pub(crate) fn sections_needed(&self, more: u64) -> u64 {
        let dirty = self.dirty(more);
        let short = self.logs.iter().filter(|log| log.room() < dirty).count();
        dirty / self.segments.blocks_per_section() + to_u64(short)
    }

    /// True where a checkpoint would hold whole operations: the one that goes on has changed nothing yet, or is at a
    /// point where it may be cut short.
    pub(crate) fn is_settled(&self) -> bool {
        !self.is_replaying && self.changes == self.settled
    }

    /// Refuses to go on once something could not be written.
    pub(crate) fn check(&self) -> Result<()> {
        match &self.poison {
            Some(reason) => Err(Error::Poisoned { reason: reason.clone() }),
            None => Ok(()),
        }
    }

    /// The pages of a file.
    pub(crate) fn page(&self, ino: Nid, index: u64) -> Option<&Arc<Block>> {
        self.pages.get(&ino)?.get(&index)
    }

    /// Puts a page of a file among those that changed.
    pub(crate) fn put_page(&mut self, ino: Nid, index: u64, page: Arc<Block>) {
        if self.pages.entry(ino).or_default().insert(index, page).is_none() {
            self.page_count += 1;
        }
        self.changes += 1;
    }

    /// Forgets a page of a file.
    pub(crate) fn drop_page(&mut self, ino: Nid, index: u64) {
        if let Some(pages) = self.pages.get_mut(&ino) {
            if pages.remove(&index).is_some() {
                self.page_count -= 1;
            }
            if pages.is_empty() {
                self.pages.remove(&ino);
            }
        }
    }

    /// Forgets all pages of a file from one on.
    pub(crate) fn drop_pages(&mut self, ino: Nid, from: u64) {
        if let Some(pages) = self.pages.get_mut(&ino) {
            let dropped = pages.split_off(&from);
            self.page_count -= to_u64(dropped.len());
            if pages.is_empty() {
                self.pages.remove(&ino);
            }
        }
    }
}
