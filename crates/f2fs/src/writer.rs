//! What a volume that is open for writing keeps in memory: what changed since the last checkpoint, and where new blocks
//! go.
//!
//! ```text
//!    writes -> pages (of files and directories) --flush--> logs of data --.
//!    changes -> nodes (inodes too) ------------commit--> logs of nodes ---+--> SIT, NAT --> checkpoint
//! ```

#![expect(clippy::arithmetic_side_effects, reason = "numbers of blocks of a volume, bounded by the superblock")]

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use f2fs_disk::convert::{to_u64, usize_from};
use f2fs_disk::node::Footer;
use f2fs_disk::summary::Summary;
use f2fs_disk::{Block, BlockAddr, Geometry, Nid, SEGMENT_BLOCKS};
use host::Env;

use crate::chain::Chain;
use crate::charges::Charges;
use crate::error::{Error, Result};
use crate::policy::{HOT_DATA, HOT_NODE, LOGS, Policy};
use crate::segments::{AllocType, Segments};

/// Blocks beyond what is known to be needed, for what a change makes dirty besides.
const SLACK_BLOCKS: u64 = 32;

/// A segment that blocks are written to in order: to all of it, or to its holes.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) segment: u32,
    /// Index of the next block.
    pub(crate) next: u32,
    /// Holes behind the next block, where these are filled.
    holes: Option<VecDeque<u32>>,
    /// Who owns the blocks that were written.
    pub(crate) summaries: Vec<Summary>,
}

impl Log {
    pub(crate) fn new(segment: u32) -> Self {
        let summaries = vec![Summary::new(Nid(0), 0, 0); usize_from(SEGMENT_BLOCKS)];
        Self { segment, next: 0, holes: None, summaries }
    }

    /// A log that fills these holes of a segment.
    pub(crate) fn in_holes(segment: u32, holes: impl Iterator<Item = u32>, owners: &[Summary]) -> Self {
        let mut open = Self { holes: Some(holes.collect()), ..Self::new(segment) };
        open.summaries.iter_mut().zip(owners).for_each(|(to, owner)| *to = *owner);
        open.advance();
        open
    }

    pub(crate) const fn alloc_type(&self) -> AllocType {
        if self.holes.is_some() { AllocType::Ssr } else { AllocType::Lfs }
    }

    pub(crate) fn room(&self) -> u64 {
        match &self.holes {
            Some(holes) if self.next < SEGMENT_BLOCKS => to_u64(holes.len()) + 1,
            Some(_) => 0,
            None => u64::from(SEGMENT_BLOCKS.saturating_sub(self.next)),
        }
    }

    /// The next block was written.
    pub(crate) fn advance(&mut self) {
        self.next = match &mut self.holes {
            Some(holes) => holes.pop_front().unwrap_or(SEGMENT_BLOCKS),
            None => self.next + 1,
        };
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

/// What the background cleaner has begun.
#[derive(Debug, Default)]
pub(crate) struct Background {
    /// The section that is being emptied, and from which of its blocks on.
    pub(crate) at: Option<(u32, u32)>,
    /// Sections that were emptied since it made a checkpoint, and how many were free then.
    pub(crate) emptied: u32,
    pub(crate) free_before: u32,
}

/// State of a volume that is open for writing.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) policy: Policy,
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
    /// Sections that the volume keeps for the cleaner.
    pub(crate) reserved_sections: u64,
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
    /// Seconds of the clock when the volume was opened, and that it had been mounted before.
    pub(crate) opened: i64,
    pub(crate) elapsed_before: u64,
    pub(crate) background: Background,
}

impl Writer {
    /// Free sections that the next commit may need for all that changed and `more` blocks besides, however they are
    /// distributed among the logs.
    pub(crate) fn sections_needed(&self, more: u64) -> u64 {
        let (nodes, more) = (to_u64(self.nodes.len()), self.charges.blocks() + more + SLACK_BLOCKS);
        let dirty = nodes + self.page_count + more;
        let without_holes = dirty / self.segments.blocks_per_section() + self.short_logs(0..LOGS, dirty);
        let (data, nodes) = (self.page_count + more, nodes + more);
        without_holes.min(self.sections_beside_holes(false, data) + self.sections_beside_holes(true, nodes))
    }

    /// Free sections that logs of data, or of nodes, may need for so many blocks: holes take the first of them.
    pub(crate) fn sections_beside_holes(&self, is_node: bool, blocks: u64) -> u64 {
        let left = blocks.saturating_sub(self.segments.room_in_holes(is_node));
        if left == 0 {
            return 0;
        }
        let logs = if is_node { HOT_NODE..LOGS } else { HOT_DATA..HOT_NODE };
        left / self.segments.blocks_per_section() + self.short_logs(logs, blocks)
    }

    /// Logs without room for so many blocks in the segment that they write to.
    fn short_logs(&self, logs: Range<usize>, blocks: u64) -> u64 {
        let logs = self.logs.get(logs).unwrap_or_default();
        to_u64(logs.iter().filter(|log| log.room() < blocks).count())
    }

    /// Seconds that the volume was mounted, which its segments' ages are told in.
    pub(crate) fn clock(&self) -> u64 {
        let passed = self.env.now().0.saturating_sub(self.opened);
        self.elapsed_before.saturating_add(u64::try_from(passed).unwrap_or(0))
    }

    /// True where free sections are so few that holes are filled first: as the kernel's `f2fs_need_SSR` decides.
    pub(crate) fn needs_ssr(&self) -> bool {
        let sections = |blocks: u64| blocks.div_ceil(self.segments.blocks_per_section());
        let dirty = sections(to_u64(self.nodes.len())) + sections(self.page_count);
        u64::from(self.segments.free_sections()) <= dirty + 2 * self.reserved_sections
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
