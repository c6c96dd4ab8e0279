//! Reads NAT and SIT, checks every entry, and records the used numbers and blocks. Called by `run`.

use std::collections::HashMap;

use f2fs_disk::convert::{to_u64, to_usize, usize_from};
use f2fs_disk::geometry::NAT_ENTRIES_PER_BLOCK;
use f2fs_disk::nat::{self, NatEntry};
use f2fs_disk::sit::{ENTRIES_PER_BLOCK, SitEntry};
use f2fs_disk::{At, BlockAddr, Nid, OnDisk as _, SEGMENT_BLOCKS};

use crate::bitmap::Bitmap;
use crate::code::Code;
use crate::finding::{Findings, Place};
use crate::volume::Volume;

/// Numbers below are no nodes' (`F2FS_RESERVED_NODE_NUM`).
const FIRST_NID: u32 = 3;

/// Contents of the tables.
pub(crate) struct Tables {
    /// Numbers of nodes.
    pub(crate) nodes: Bitmap,
    pub(crate) segments: Segments,
}

/// Contents of the SIT.
#[derive(Default)]
pub(crate) struct Segments {
    /// Types of logs.
    pub(crate) types: Vec<u16>,
    /// Counts of blocks in use.
    pub(crate) counts: Vec<u16>,
    /// Blocks in use, counted from the start of the main area.
    pub(crate) valid: Bitmap,
}

pub(crate) fn read(volume: &mut Volume<'_>, sit_journal: &HashMap<u32, SitEntry>, findings: &Findings) -> Tables {
    let segments = read_sit(volume, sit_journal, findings);
    Tables { nodes: read_nat(volume, findings), segments }
}

fn read_nat(volume: &mut Volume<'_>, findings: &Findings) -> Bitmap {
    let geometry = *volume.geometry();
    let mut nodes = Bitmap::new(geometry.nid_count);
    for number in 0..geometry.nat_blocks {
        let first = Nid(number.saturating_mul(NAT_ENTRIES_PER_BLOCK));
        let (at, _) = geometry.nat_block(first, volume.checkpoint.nat_bitmap());
        let block = match volume.media.read(at) {
            Ok(block) => block,
            Err(error) => {
                findings.add(Code::TableRead, Place::block(at), "a block of the NAT", error);
                continue;
            }
        };
        for index in 0..NAT_ENTRIES_PER_BLOCK {
            let nid = Nid(first.0.saturating_add(index));
            let stored = nat::entry(&block, usize_from(index)).unwrap_or_default();
            let entry = volume.nat_journal.get(&nid).copied().unwrap_or(stored);
            check_entry(volume, nid, &entry, at, findings, &mut nodes);
        }
    }
    for nid in volume.nat_journal.keys().filter(|nid| nid.0 >= geometry.nid_count) {
        let expected = format!("less than {}", geometry.nid_count);
        findings.add_what(Code::NatInode, "number of a journal's entry", Place::node(*nid), expected, nid);
    }
    nodes
}

fn check_entry(
    volume: &Volume<'_>,
    nid: Nid,
    entry: &NatEntry,
    block: BlockAddr,
    findings: &Findings,
    nodes: &mut Bitmap,
) {
    let at = entry.at();
    let place = || Place::node(nid).at(block);
    // 1 and 2 represent all nodes and all metadata, and mkfs gives them an address.
    if at == BlockAddr::NULL || nid.0 == 1 || nid.0 == 2 {
        return;
    }
    if nid.0 < FIRST_NID {
        findings.add_what(Code::NatAddress, "reserved number", place(), BlockAddr::NULL, at);
        return;
    }
    if !volume.geometry().is_main(at) {
        findings.add(Code::NatAddress, place(), "a block of the main area", at);
        return;
    }
    if !(FIRST_NID..volume.geometry().nid_count).contains(&entry.ino().0) {
        findings.add(Code::NatInode, place(), "the number of an inode", entry.ino());
    }
    nodes.set(nid.0);
}

fn read_sit(volume: &mut Volume<'_>, journal: &HashMap<u32, SitEntry>, findings: &Findings) -> Segments {
    let geometry = *volume.geometry();
    let count = volume.segment_count();
    let mut segments = Segments { valid: Bitmap::new(geometry.main_blocks), ..Segments::default() };
    for (segno, _) in journal.iter().filter(|(segno, _)| **segno >= count) {
        let expected = format!("less than {count}");
        findings.add_what(Code::SitEntry, "number of a journal's entry", Place::segment(*segno), expected, segno);
    }
    let mut reported = None;
    for segment in 0..count {
        let (at, index) = geometry.sit_block(segment, volume.checkpoint.sit_bitmap());
        let entry = match journal.get(&segment) {
            Some(entry) => Some(*entry),
            None => match volume.media.get(at) {
                Ok(block) => raw_entry(&block[..], index),
                Err(error) => {
                    if reported.replace(at) != Some(at) {
                        findings.add(Code::TableRead, Place::block(at), "a block of the SIT", error);
                    }
                    None
                }
            },
        };
        let Some(entry) = entry else {
            segments.types.push(0);
            segments.counts.push(0);
            continue;
        };
        if let Err(error) = entry.verify() {
            findings.add_corrupt(Code::SitEntry, Place::segment(segment), &error.at(At::Block(at)));
        }
        segments.types.push(entry.log_type());
        segments.counts.push(entry.valid_blocks());
        let first = segment.saturating_mul(SEGMENT_BLOCKS);
        for block in (0..SEGMENT_BLOCKS).filter(|block| entry.is_valid(to_usize(u64::from(*block)))) {
            segments.valid.set(first.saturating_add(block));
        }
    }
    segments
}

/// An unverified entry: its faults are reported, and the rest is used.
fn raw_entry(block: &[u8], index: usize) -> Option<SitEntry> {
    debug_assert!(to_u64(index) < u64::from(ENTRIES_PER_BLOCK), "no block has so many entries");
    let bytes = block.get(index.saturating_mul(size_of::<SitEntry>())..)?;
    SitEntry::parse(bytes).ok().copied()
}
