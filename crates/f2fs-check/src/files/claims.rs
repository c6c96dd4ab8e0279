//! Claims nodes and blocks: each is entered once, and compared with what NAT, SIT and the summaries say of it. Called
//! by `inode`, `contents` and `attributes`.

use f2fs_disk::node::Footer;
use f2fs_disk::{Block, BlockAddr, Nid, SEGMENT_BLOCKS};

use super::Walk;
use crate::code::Code;
use crate::finding::Place;
use crate::summaries::Owner;

/// From this type of log on segments have nodes.
const FIRST_OF_NODES: u16 = 3;

/// A node that was entered.
pub(super) struct Entered {
    pub(super) nid: Nid,
    pub(super) version: u8,
    pub(super) block: Block,
}

impl Walk<'_, '_> {
    /// Enters the node with this number, which is this one of its inode; `None` where it cannot be used, or was entered
    /// before.
    pub(super) fn node(&mut self, nid: Nid, ino: Nid, offset: u32) -> Option<Entered> {
        let place = Place::node(nid).of_inode(ino);
        if !(3..self.volume.geometry().nid_count).contains(&nid.0) {
            let expected = format!("3 to {}", self.volume.geometry().nid_count.saturating_sub(1));
            self.findings.add(Code::NodeNumber, place, expected, nid);
            return None;
        }
        let entry = self.volume.nat_entry(nid);
        let at = entry.at();
        if !self.tables.nodes.has(nid.0) {
            // An address out of the main area was reported already.
            if at == BlockAddr::NULL {
                self.findings.add(Code::NodeMissing, place, "the address of a block", "none");
            }
            return None;
        }
        if !self.entered.set(nid.0) {
            self.findings.add(Code::NodeTwice, place, "a node that was not met before", "one that was");
            return None;
        }
        if entry.ino() != ino {
            self.findings.add(Code::NatInode, place.clone(), ino, entry.ino());
        }
        self.found.nodes = self.found.nodes.saturating_add(1);
        self.claim(at, Owner { nid, offset: 0, version: 0, is_node: true }, ino);
        let block = match self.volume.media.read(at) {
            Ok(block) => block,
            Err(error) => {
                self.findings.add(Code::NodeRead, place.at(at), "a node", error);
                return None;
            }
        };
        if let Err(error) = Footer::of(&block).verify(nid, ino, offset, at) {
            self.findings.add_corrupt(Code::NodeFooter, place, &error);
            return None;
        }
        Some(Entered { nid, version: entry.version, block })
    }

    /// A block is in use. False where it was before.
    pub(super) fn claim(&mut self, at: BlockAddr, owner: Owner, ino: Nid) -> bool {
        let index = at.0.saturating_sub(self.volume.geometry().main.0);
        self.found.blocks = self.found.blocks.saturating_add(1);
        let is_first = self.found.claimed.set(index);
        if !is_first {
            let place = Place::node(owner.nid).of_inode(ino).at(at);
            self.findings.add(Code::BlockTwice, place, "a block of one owner", "one that was met before");
        }
        self.check_type(index / SEGMENT_BLOCKS, owner, at);
        self.summaries.check(self.volume, at, owner, self.findings);
        is_first
    }

    /// Segments have nodes, or data.
    fn check_type(&mut self, segment: u32, owner: Owner, at: BlockAddr) {
        let types = &self.tables.segments.types;
        let Some(kind) = types.get(f2fs_disk::convert::usize_from(segment)) else { return };
        if (*kind >= FIRST_OF_NODES) != owner.is_node && self.mixed.set(segment) {
            let place = Place { segment: Some(segment), ..Place::node(owner.nid).at(at) };
            let expected = if owner.is_node { "a segment of nodes" } else { "a segment of data" };
            self.findings.add(Code::SitType, place, expected, crate::packs::log_name(*kind));
        }
    }
}
