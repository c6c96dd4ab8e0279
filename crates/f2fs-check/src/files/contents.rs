//! Walks the nodes below an inode, and the addresses in them. Called by `inode` for files, and by `dir` for
//! directories.

use f2fs_disk::convert::usize_from;
use f2fs_disk::flags::InlineFlags;
use f2fs_disk::inode::{Inode, Kind};
use f2fs_disk::node::{self, ENTRIES_PER_NODE, Step};
use f2fs_disk::{BlockAddr, Nid};
use zerocopy::little_endian::U32;

use super::Walk;
use super::claims::Entered;
use crate::code::Code;
use crate::finding::Place;
use crate::summaries::Owner;

/// Takes a block of a directory or a quota file: its number, and where it is.
pub(super) type Take<'t> = dyn FnMut(&mut Walk<'_, '_>, u64, BlockAddr) + 't;

/// Counts of a file.
pub(super) struct File {
    pub(super) inode: Inode,
    /// Blocks in use, with the inode's own.
    pub(super) blocks: u64,
    /// Blocks at the addresses of the inode's longest run.
    pub(super) in_extent: u32,
    /// Blocks that compression saves.
    pub(super) saved: u64,
    /// The caller needs its blocks: those of names, and of quotas.
    pub(super) shows_blocks: bool,
    /// First block of the last compressed cluster.
    cluster: Option<u64>,
}

impl File {
    pub(super) fn new(inode: &Inode) -> Self {
        Self {
            inode: *inode,
            blocks: 1,
            in_extent: 0,
            saved: 0,
            shows_blocks: inode.kind() == Kind::Directory,
            cluster: None,
        }
    }

    fn is_released(&self) -> bool {
        self.inode.inline().contains(InlineFlags::COMPRESS_RELEASED)
    }

    fn add_block(&mut self) {
        self.blocks = self.blocks.saturating_add(1);
    }

    /// Counts a block at an address of the longest run.
    fn count_extent(&mut self, index: u64, at: BlockAddr) {
        let extent = self.inode.fields().i_ext;
        let within = index.checked_sub(u64::from(extent.fofs.get()));
        let Some(within) = within.filter(|within| *within < u64::from(extent.len.get())) else { return };
        let expected = u64::from(extent.blk.get()).saturating_add(within);
        self.in_extent = self.in_extent.saturating_add(u32::from(u64::from(at.0) == expected));
    }
}

/// A node's addresses.
struct Addresses<'n> {
    nid: Nid,
    version: u8,
    /// Number of the first one within the file.
    first: u64,
    list: &'n [U32],
}

impl Walk<'_, '_> {
    /// Walks all that an inode refers to, except attributes.
    pub(super) fn contents(&mut self, file: &mut File, entered: &Entered, take: &mut Take<'_>) {
        let inode = file.inode;
        if inode.inline().intersects(InlineFlags::DATA | InlineFlags::DENTRY) {
            self.check_inline(&inode, entered);
            return;
        }
        let fanout = inode.fanout();
        let list = inode.addresses(&entered.block).get(..usize_from(fanout.inode)).unwrap_or_default();
        let own = Addresses { nid: entered.nid, version: entered.version, first: 0, list };
        self.addresses(file, &own, take);
        for (step, nid) in fanout.tops().iter().zip(Inode::nids(&entered.block)) {
            if nid.get() != 0 {
                self.below(file, Nid(nid.get()), step, take);
            }
        }
    }

    /// A node below an inode: at most three levels.
    fn below(&mut self, file: &mut File, nid: Nid, step: &Step, take: &mut Take<'_>) {
        let Some(entered) = self.node(nid, file.inode.ino(), step.offset) else { return };
        file.add_block();
        let fanout = file.inode.fanout();
        if fanout.below(step, 0).is_none() {
            let list = node::entries(&entered.block).get(..usize_from(fanout.direct)).unwrap_or_default();
            let own = Addresses { nid, version: entered.version, first: step.first, list };
            self.addresses(file, &own, take);
            return;
        }
        for (slot, nid) in (0..ENTRIES_PER_NODE).zip(node::entries(&entered.block)) {
            if nid.get() != 0
                && let Some(next) = fanout.below(step, slot)
            {
                self.below(file, Nid(nid.get()), &next, take);
            }
        }
    }

    fn addresses(&mut self, file: &mut File, own: &Addresses<'_>, take: &mut Take<'_>) {
        for (offset, at) in (0..).zip(own.list) {
            let at = BlockAddr(at.get());
            if at == BlockAddr::NULL {
                continue;
            }
            let index = own.first.saturating_add(u64::from(offset));
            let owner = Owner { nid: own.nid, offset, version: own.version, is_node: false };
            // A block is read only once: an image could refer to it without end.
            let is_new = self.address(file, index, at, owner);
            if is_new && file.shows_blocks {
                take(self, index, at);
            }
        }
    }

    /// Claims an address of a file; true for a block that was not claimed before.
    fn address(&mut self, file: &mut File, index: u64, at: BlockAddr, owner: Owner) -> bool {
        let ino = file.inode.ino();
        let cluster_blocks = file.inode.compressed().map(|compressed| u64::from(compressed.cluster.blocks()));
        if at == BlockAddr::COMPRESS {
            let is_first = cluster_blocks.and_then(|blocks| index.checked_rem(blocks)) == Some(0);
            if !is_first {
                let place = Place::inode(ino).file_block(index);
                let expected = "a compressed cluster at the start of one, in a compressed file";
                self.findings.add(Code::InodeCompressed, place, expected, "one elsewhere");
            } else if !file.is_released() {
                self.found.blocks = self.found.blocks.saturating_add(1);
                file.add_block();
                file.saved = file.saved.saturating_add(1);
            }
            file.cluster = Some(index);
            return false;
        }
        let is_saved = !file.is_released()
            && at == BlockAddr::NEW
            && file.cluster.is_some_and(|first| index.saturating_sub(first) < cluster_blocks.unwrap_or(0));
        file.saved = file.saved.saturating_add(u64::from(is_saved));
        if at == BlockAddr::NEW {
            self.found.blocks = self.found.blocks.saturating_add(1);
            file.add_block();
            return false;
        }
        if !self.volume.geometry().is_main(at) {
            let place = Place::node(owner.nid).of_inode(ino).file_block(index);
            self.findings.add(Code::BlockAddress, place, "a block of the main area", at);
            return false;
        }
        file.count_extent(index, at);
        file.add_block();
        self.claim(at, owner, ino)
    }

    /// Inline contents leave one word free in front of them; checks also the flag of their presence.
    fn check_inline(&mut self, inode: &Inode, entered: &Entered) {
        let place = || Place::inode(inode.ino());
        let first = inode.addresses(&entered.block).first().map_or(0, |word| word.get());
        if first != 0 {
            self.findings.add_what(Code::InodeInline, "word in front of it", place(), 0, first);
        }
        let flags = inode.inline();
        let area = inode.inline_area(&entered.block);
        if flags.contains(InlineFlags::DATA)
            && !flags.contains(InlineFlags::DATA_EXIST)
            && area.iter().any(|byte| *byte != 0)
        {
            self.findings.add_what(Code::InodeInline, "contents", place(), "zeros, as none were written", "others");
        }
    }
}
