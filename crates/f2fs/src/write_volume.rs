//! Holds a volume that is open for writing: the readable volume, and parts with the changes since the last checkpoint.
//!
//! - `read_volume`: the readable volume, with its dirty nodes and pages
//! - `space`: segments and logs; `node_numbers`: node numbers; `counters`: blocks, nodes and inodes in use
//! - `fsync_chain`: whether an fsync needs a checkpoint; `charges`: changes that quota files have to count
//! - `progress`: changes, and the failure that ended writing
//!
//! Callers: `change/open` makes it; the functions of `change` take it or the parts that they need.
//!
//! Failure: an error in the middle of a change poisons the volume ([`Progress`]): all later writes are refused.

#![expect(clippy::arithmetic_side_effects, reason = "counts of nodes and blocks, bounded by the superblock")]

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;

use f2fs_disk::flags::{Advise, Features, InlineFlags, InodeFlags};
use f2fs_disk::inode::{self, DiskInode, Inode, Kind};
use f2fs_disk::nat::NatEntry;
use f2fs_disk::node::Footer;
use f2fs_disk::summary::Summary;
use f2fs_disk::{BLOCK_SIZE, Block, BlockAddr, Nid};
use host::Env;
use vfs::file_system::Time;

use crate::charges::{Charge, Charges};
use crate::counters::Counters;
use crate::dir;
use crate::dirty_blocks::DirtyCount;
use crate::error::{Result, Unsupported};
use crate::fsync_chain::Chain;
use crate::node_numbers::Numbers;
use crate::policy::Policy;
use crate::progress::Progress;
use crate::read_volume::{Node, ReadVolume};
use crate::space::Space;

/// A volume that is open for writing.
#[derive(Debug)]
pub(crate) struct WriteVolume {
    pub(crate) read: ReadVolume,
    pub(crate) policy: Policy,
    pub(crate) clock: Clock,
    pub(crate) space: Space,
    pub(crate) numbers: Numbers,
    pub(crate) counters: Counters,
    pub(crate) orphans: Orphans,
    pub(crate) chain: Chain,
    pub(crate) charges: Charges,
    pub(crate) progress: Progress,
    pub(crate) background: Background,
}

/// Identifies a period without a checkpoint and without an in-place write. While it lasts, a file block that still has
/// the same address still has the same contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Epoch {
    checkpoint: u64,
    rewrites: u64,
}

/// Inodes that have lost their last name.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    pub(crate) all: BTreeSet<Nid>,
    /// Orphans that never had a name, and may get one.
    pub(crate) unnamed: BTreeSet<Nid>,
}

/// The clock, the mounted time, and the generation numbers of new inodes.
#[derive(Debug)]
pub(crate) struct Clock {
    pub(crate) env: Env,
    /// Seconds of the clock when the volume was opened, and that it had been mounted before.
    pub(crate) opened: i64,
    pub(crate) elapsed_before: u64,
    /// The generation of the last new inode.
    pub(crate) generation: u32,
}

/// The section that the background cleaner empties, and how many it has emptied.
#[derive(Debug, Default)]
pub(crate) struct Background {
    /// The section being emptied, and the next block in it.
    pub(crate) at: Option<(u32, u32)>,
    /// Sections emptied since its last checkpoint, and how many were free then.
    pub(crate) emptied: u32,
    pub(crate) free_before: u32,
}

impl Orphans {
    /// Notes that an inode was removed, or got a name.
    pub(crate) fn remove(&mut self, ino: Nid) -> bool {
        self.unnamed.remove(&ino);
        self.all.remove(&ino)
    }

    pub(crate) fn all(&self) -> Vec<Nid> {
        self.all.iter().copied().collect()
    }
}

impl Clock {
    /// The time by the clock.
    pub(crate) fn now(&self) -> Time {
        let (sec, nsec) = self.env.now();
        Time { sec, nsec }
    }

    /// Seconds that the volume has ever been mounted: the unit of segment ages (`elapsed_time`).
    pub(crate) fn elapsed(&self) -> u64 {
        let passed = self.env.now().0.saturating_sub(self.opened);
        self.elapsed_before.saturating_add(u64::try_from(passed).unwrap_or(0))
    }

    pub(crate) const fn next_generation(&mut self) -> u32 {
        self.generation = self.generation.wrapping_add(1);
        self.generation
    }
}

impl Deref for WriteVolume {
    type Target = ReadVolume;

    fn deref(&self) -> &ReadVolume {
        &self.read
    }
}

impl WriteVolume {
    /// Numbers of dirty blocks.
    pub(crate) fn dirty(&self) -> DirtyCount {
        self.read.dirty.count()
    }

    pub(crate) fn epoch(&self) -> Epoch {
        Epoch { checkpoint: self.checkpoint().version(), rewrites: self.progress.rewrites() }
    }

    /// True where `spare` sections stay free with `more` blocks and those of the quota files: [`Space::has_sections`].
    pub(crate) fn has_sections(&self, more: u64, spare: u64) -> bool {
        self.space.has_sections(self.dirty(), more + self.charges.blocks(), spare)
    }

    /// Refuses a change where fewer sections are free.
    ///
    /// # Errors
    /// [`NoSpace`](crate::Error::NoSpace).
    pub(crate) fn check_sections(&self, more: u64, spare: u64) -> Result<()> {
        match self.has_sections(more, spare) {
            true => Ok(()),
            false => Err(self.space.no_sections(self.dirty(), more + self.charges.blocks(), spare)),
        }
    }

    /// Allows a checkpoint to have all changes so far without later ones.
    pub(crate) fn settle(&mut self) {
        self.progress.settle();
        self.space.segments.set_clock(self.clock.elapsed());
    }

    /// Poisons the volume if `result` is an error: every later write is refused. For changes that may be half done.
    pub(crate) fn poison_on_error<T>(&mut self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            self.progress.poison(error);
        }
        result
    }

    /// Allocates the next block of a log.
    pub(crate) fn allocate(&mut self, log: usize, summary: Summary, mtime: Option<u64>) -> Result<BlockAddr> {
        let at = self.space.allocate(log, summary, mtime, self.read.dirty.count())?;
        self.progress.changed();
        Ok(at)
    }

    /// Moves a log to another segment.
    pub(crate) fn change_segment(&mut self, log: usize) -> Result<()> {
        self.space.change_segment(log, self.read.dirty.count())
    }

    /// Sets the entry of a node in the NAT.
    pub(crate) fn set_nat(&mut self, nid: Nid, version: u8, ino: Nid, at: BlockAddr) {
        self.read.nat.insert(nid, NatEntry::new(version, ino, at));
        self.progress.changed();
    }

    /// Takes a free node number.
    pub(crate) fn new_nid(&mut self) -> Result<Nid> {
        self.numbers.take(&self.read)
    }

    /// Adds a new node in memory. It counts as a block of its inode, which the caller has to update.
    pub(crate) fn add_node(&mut self, nid: Nid, ino: Nid, block: Block) -> Result<()> {
        let version = self.nat_entry(nid)?.version;
        if nid == ino && self.charges.wants(ino) {
            let now = self.charge_of(ino, &block)?;
            self.charges.note(ino, None, Some(now));
        }
        self.set_nat(nid, version, ino, BlockAddr::NEW);
        self.read.dirty.nodes.insert(nid, Arc::new(block));
        self.chain.reserved(1);
        self.counters.add_node();
        Ok(())
    }

    /// Adds an empty node to an inode.
    pub(crate) fn new_node(&mut self, ino: Nid, offset: u32) -> Result<Nid> {
        let nid = self.new_nid()?;
        let mut block = [0; BLOCK_SIZE];
        Footer::new(nid, ino, offset).put(&mut block);
        self.add_node(nid, ino, block)?;
        Ok(nid)
    }

    /// Removes a node; the caller has to update its inode's count of blocks.
    pub(crate) fn remove_node(&mut self, nid: Nid) -> Result<()> {
        let entry = self.nat_entry(nid)?;
        if entry.ino() == nid && self.charges.wants(nid) {
            let block = self.inode(nid)?.block;
            self.note_charge(nid, &block)?;
        }
        if let Some(at) = self.address(nid)? {
            self.space.give_back(at)?;
        }
        self.set_nat(nid, entry.version.wrapping_add(1), Nid(0), BlockAddr::NULL);
        self.read.dirty.nodes.remove(nid);
        match entry.ino() == nid {
            true => self.chain.gone(nid),
            // The other nodes do not record its removal.
            false => self.chain.bar(entry.ino()),
        }
        self.numbers.give_back(nid);
        self.counters.remove_node();
        Ok(())
    }

    /// The block of a node, for changes.
    pub(crate) fn edit(&mut self, nid: Nid, ino: Nid, offset: u32) -> Result<&mut Block> {
        if self.changed_node(nid).is_none() {
            let block = self.node(nid, ino, offset)?;
            if offset == 0 {
                self.note_charge(ino, &block)?;
            }
            self.read.dirty.nodes.insert(nid, block);
        }
        self.progress.changed();
        Ok(Arc::make_mut(self.read.dirty.nodes.get_mut(nid)?))
    }

    /// The block of an inode, for changes.
    pub(crate) fn edit_inode(&mut self, ino: Nid) -> Result<&mut Block> {
        self.edit(ino, ino, 0)
    }

    /// The fields of an inode, for changes.
    pub(crate) fn edit_fields(&mut self, ino: Nid) -> Result<&mut DiskInode> {
        Ok(inode::fields_mut(self.edit_inode(ino)?))
    }

    /// Sets the modification time of contents or a directory.
    pub(crate) fn touch_contents(&mut self, ino: Nid) -> Result<()> {
        let now = self.clock.now();
        self.edit_fields(ino)?.set_mtime(now.sec, now.nsec);
        self.touch_inode(ino)
    }

    /// Sets the change time of an inode.
    pub(crate) fn touch_inode(&mut self, ino: Nid) -> Result<()> {
        let now = self.clock.now();
        self.edit_fields(ino)?.set_ctime(now.sec, now.nsec);
        Ok(())
    }

    /// Adds to an inode's link count.
    pub(crate) fn add_links(&mut self, ino: Nid, more: i32) -> Result<()> {
        let fields = self.edit_fields(ino)?;
        fields.i_links = fields.i_links.get().saturating_add_signed(more).into();
        Ok(())
    }

    /// Adds to an inode's count of blocks, and to that of the volume.
    pub(crate) fn count_blocks(&mut self, ino: Nid, more: i64) -> Result<()> {
        if more != 0 {
            self.count_inode_blocks(ino, more)?;
            self.chain.reserved(u64::try_from(more).unwrap_or(0));
            self.counters.add_blocks(more);
        }
        Ok(())
    }

    /// Adds only to an inode's count of blocks: its nodes are counted when they are made.
    pub(crate) fn count_inode_blocks(&mut self, ino: Nid, more: i64) -> Result<()> {
        let fields = self.edit_fields(ino)?;
        fields.i_blocks = fields.i_blocks.get().saturating_add_signed(more).into();
        Ok(())
    }

    /// Clears the hint for the longest run of blocks, which is no longer true.
    pub(crate) fn forget_extent(&mut self, layout: &Inode) -> Result<()> {
        if layout.fields().i_ext.len.get() != 0 {
            self.edit_fields(layout.ino())?.i_ext.len = 0.into();
        }
        Ok(())
    }

    /// Adds a dirty page of a file.
    pub(crate) fn put_page(&mut self, ino: Nid, index: u64, page: Arc<Block>) {
        self.read.dirty.pages.put(ino, index, page);
        self.progress.changed();
    }

    /// True for an inode that has lost its last name.
    pub(crate) fn is_orphan(&self, ino: Nid) -> bool {
        self.orphans.all.contains(&ino)
    }

    /// Refuses to change the contents or names of an inode of a kind that is read-only in this version.
    ///
    /// # Errors
    /// [`Unsupported::Change`].
    pub(crate) fn check_is_writable(&self, node: &Node) -> Result<()> {
        let advise = node.inode.advise();
        let has_flag = node.inode.kind() == Kind::Directory && node.inode.flags().contains(InodeFlags::CASEFOLD);
        let is_folded = has_flag && !(dir::ignores_case(self, node) && dir::knows_case(self));
        let is_guarded = advise.intersects(Advise::ENCRYPT.union(Advise::VERITY));
        let released = node.inode.inline().contains(InlineFlags::COMPRESS_RELEASED);
        if is_folded || is_guarded || released || node.inode.compressed().is_some() {
            return Err(Unsupported::Change(node.ino()).into());
        }
        Ok(())
    }

    /// Notes the charge of an inode that is about to change from `block`.
    fn note_charge(&mut self, ino: Nid, block: &Block) -> Result<()> {
        if self.charges.wants(ino) {
            let before = self.charge_of(ino, block)?;
            self.charges.note(ino, Some(before), None);
        }
        Ok(())
    }

    /// Blocks and owners charged for an inode in memory. Its checksum was verified when it was read, or is not yet
    /// computed.
    fn charge_of(&self, ino: Nid, block: &Block) -> Result<Charge> {
        let features = self.features().difference(Features::INODE_CHKSUM);
        Ok(Charge::of(&Inode::verify(block, ino, features, self.inode_seed())?, features))
    }
}
