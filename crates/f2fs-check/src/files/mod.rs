//! Every file from the root directory on: nodes, inodes, contents, names.
//!
//! - `claims`: a node or a block is entered once, and its owner compared with what the tables say
//! - `inode`: what an inode says of itself
//! - `contents`: nodes below an inode, and the addresses in them
//! - `attributes`: extended ones
//! - `sealed`: contents that fs-verity protects, where that is asked for
//! - `quotas`: what quota files say is in use
//! - `dir`: names of a directory, each of which leads to an inode
//!
//! A directory is put aside when its name is met, and listed when those before it are done; so nothing here is deeper
//! than the three levels of nodes below an inode. Inodes that have several names are remembered with a count.
//!
//! Failure: everything that is wrong is a finding; what cannot be read leads nowhere. Caller: `run`.

mod attributes;
mod claims;
mod contents;
mod dir;
mod inode;
mod quotas;
mod sealed;

use std::collections::BTreeMap;

use f2fs_disk::Nid;
use f2fs_disk::flags::Features;
use f2fs_disk::quota::QuotaKind;

use crate::bitmap::Bitmap;
use crate::code::Code;
use crate::finding::{Findings, Place};
use crate::summaries::Summaries;
use crate::tables::Tables;
use crate::volume::Volume;

/// What the walk found in use.
pub(crate) struct Found {
    /// Blocks of the main area, counted from its start.
    pub(crate) claimed: Bitmap,
    /// Blocks in use, those that are reserved for data and have no place yet too.
    pub(crate) blocks: u64,
    pub(crate) nodes: u64,
    pub(crate) inodes: u64,
}

/// The walk.
struct Walk<'a, 'b> {
    volume: &'a mut Volume<'b>,
    findings: &'a Findings,
    tables: &'a Tables,
    summaries: Summaries,
    /// Nodes that were entered.
    entered: Bitmap,
    found: Found,
    /// Directories whose names are still to be looked at.
    waiting: Vec<Directory>,
    /// Inodes with several names, or that count several.
    links: BTreeMap<Nid, Links>,
    /// Segments of which it was said that they have blocks of the wrong kind.
    mixed: Bitmap,
    quotas: quotas::Quotas,
    /// Data is read where there is something to compare it with; and of how many files it cannot be.
    reads_data: bool,
    not_compared: u64,
}

/// A directory, and the one that its name is in.
#[derive(Clone, Copy, Debug)]
struct Directory {
    ino: Nid,
    /// `None` for an orphan: its parent may be gone.
    parent: Option<Nid>,
}

/// Names of an inode that is no directory.
#[derive(Clone, Copy, Debug)]
struct Links {
    counted: u32,
    names: u32,
}

/// What led to an inode.
#[derive(Clone, Copy, Debug)]
enum LedBy {
    /// The superblock.
    Root,
    /// A name in a directory, and the type that it says.
    Name { dir: Nid, kind: Option<f2fs_disk::inode::Kind> },
    /// The checkpoint's list of orphans.
    Orphan,
    /// The superblock's list of quota files.
    Quota(QuotaKind),
}

/// Walks all files; nodes that nothing led to are reported.
pub(crate) fn walk(
    volume: &mut Volume<'_>,
    tables: &Tables,
    orphans: &[Nid],
    reads_data: bool,
    findings: &Findings,
) -> Found {
    let geometry = *volume.geometry();
    let segments = volume.segment_count();
    let summaries = Summaries::read(volume, findings);
    let found = Found { claimed: Bitmap::new(geometry.main_blocks), blocks: 0, nodes: 0, inodes: 0 };
    let mut walk = Walk {
        volume,
        findings,
        tables,
        summaries,
        entered: Bitmap::new(geometry.nid_count),
        found,
        waiting: Vec::new(),
        links: BTreeMap::new(),
        mixed: Bitmap::new(segments),
        quotas: quotas::Quotas::default(),
        reads_data,
        not_compared: 0,
    };
    let root = walk.volume.superblock.root();
    walk.enter(root, LedBy::Root);
    walk.empty_waiting();
    walk.orphans(orphans);
    walk.quotas();
    walk.compare_links();
    walk.unreachable();
    walk.note_not_compared();
    walk.found
}

impl Walk<'_, '_> {
    fn empty_waiting(&mut self) {
        while let Some(dir) = self.waiting.pop() {
            self.list(dir);
        }
    }

    fn orphans(&mut self, orphans: &[Nid]) {
        for ino in orphans {
            if self.entered.has(ino.0) {
                self.findings.add(Code::OrphanNamed, Place::inode(*ino), "no name", "a name, or a second entry");
                continue;
            }
            if !self.tables.nodes.has(ino.0) {
                self.findings.add(Code::OrphanMissing, Place::inode(*ino), "an inode", "none with its number");
                continue;
            }
            self.enter(*ino, LedBy::Orphan);
        }
        self.empty_waiting();
    }

    fn quotas(&mut self) {
        if !self.volume.superblock.features().contains(Features::QUOTA_INO) {
            return;
        }
        for (kind, ino) in quotas::files(self.volume) {
            if self.tables.nodes.has(ino.0) {
                self.enter(ino, LedBy::Quota(kind));
            } else {
                self.findings.add(Code::QuotaInode, Place::inode(ino), "an inode", "none with its number");
            }
        }
        self.compare_quotas();
    }

    fn compare_links(&mut self) {
        for (ino, links) in std::mem::take(&mut self.links) {
            if links.counted != links.names {
                self.findings.add(Code::InodeLinks, Place::inode(ino), links.names, links.counted);
            }
        }
    }

    fn unreachable(&mut self) {
        let count = self.volume.geometry().nid_count;
        for nid in (0..count).filter(|nid| self.tables.nodes.has(*nid) && !self.entered.has(*nid)) {
            let entry = self.volume.nat_entry(Nid(nid));
            let place = Place::node(Nid(nid)).of_inode(entry.ino()).at(entry.at());
            self.findings.add(Code::NodeUnreachable, place, "something that leads to it", "nothing");
        }
    }
}
