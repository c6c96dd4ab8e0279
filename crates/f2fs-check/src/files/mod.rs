//! Walks every file from the root directory on: nodes, inodes, contents, names.
//!
//! - `claims`: each node or block is claimed once, and its owner compared with the tables
//! - `inode`: fields of an inode
//! - `contents`: nodes below an inode, and the addresses in them
//! - `attributes`: extended attributes
//! - `verity`: contents protected by fs-verity, on request
//! - `quotas`: usage in quota files
//! - `dir`: names of a directory, and their inodes
//!
//! A directory is queued when its name is met, and listed after those before it; so recursion is limited to the three
//! levels of nodes below an inode. Inodes with several names are remembered with a count.
//!
//! Failure: every fault is a finding; unreadable blocks are skipped. Caller: `run`.

mod attributes;
mod claims;
mod contents;
mod dir;
mod inode;
mod quotas;
mod verity;

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

/// The blocks in use found by the walk.
pub(crate) struct Found {
    /// Blocks of the main area, counted from its start.
    pub(crate) claimed: Bitmap,
    /// Blocks in use, including reserved ones without an address.
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
    /// Entered nodes.
    entered: Bitmap,
    found: Found,
    /// Directories whose names are still to be listed.
    waiting: Vec<Directory>,
    /// Inodes with several names, or a link count above one.
    links: BTreeMap<Nid, Links>,
    /// Segments already reported for blocks of the wrong kind.
    mixed: Bitmap,
    quotas: quotas::Quotas,
    /// True if data is verified; and the number of files that cannot be.
    reads_data: bool,
    not_compared: u64,
}

/// A queued directory, and its parent.
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

/// The reference to an inode.
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

/// Walks all files, and reports nodes without a reference.
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
