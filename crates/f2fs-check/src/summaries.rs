//! Compares the owners of blocks with the summaries of segments: those of the current segments are in the checkpoint
//! pack, all others in an area of their own. Called by `files` (`claims`).

use std::collections::{BTreeSet, HashMap};

use f2fs_disk::convert::{to_usize, usize_from};
use f2fs_disk::flags::{CheckpointFlags, Features};
use f2fs_disk::summary::{ENTRIES, JOURNAL_SIZE, Summary, SummaryBlock, summaries};
use f2fs_disk::{Block, BlockAddr, Nid, SEGMENT_BLOCKS};

use crate::code::Code;
use crate::finding::{Findings, Place};
use crate::packs::{self, Log};
use crate::volume::Volume;

/// The first log of nodes.
const FIRST_OF_NODES: u16 = 3;
/// Bytes at the end of a block of packed summaries that stay free.
const FOOTER_SIZE: usize = 5;
/// Allocation type of logs that fill holes of segments (`SSR`).
const IN_HOLES: u8 = 1;

/// Summaries of the current segments; `None` if the checkpoint lacks one.
pub(crate) struct Summaries {
    current: HashMap<u32, Option<Vec<Summary>>>,
    /// Segments whose summary was reported as unreadable or of the wrong kind.
    reported: BTreeSet<u32>,
}

/// The owner recorded in a block itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    pub(crate) nid: Nid,
    pub(crate) offset: u32,
    /// Version of the number, for data alone.
    pub(crate) version: u8,
    pub(crate) is_node: bool,
}

impl Summaries {
    pub(crate) fn read(volume: &mut Volume<'_>, findings: &Findings) -> Self {
        let mut current = HashMap::new();
        let is_packed = volume.checkpoint.flags().contains(CheckpointFlags::COMPACT_SUM);
        let logs = packs::logs(volume);
        // Read-only volumes keep them elsewhere.
        if volume.superblock.features().contains(Features::RO) {
            current.extend(logs.iter().map(|log| (log.segment, None)));
            return Self { current, reported: BTreeSet::new() };
        }
        let packed = if is_packed { read_packed(volume, &logs, findings) } else { HashMap::new() };
        for log in logs {
            let found = match log.number {
                0..FIRST_OF_NODES if is_packed => packed.get(&log.number).cloned(),
                0..FIRST_OF_NODES => {
                    let at = volume.checkpoint.data_summary(u32::from(log.number));
                    read_one(volume, at, log, findings)
                }
                _ => node_summary(volume, log, findings),
            };
            current.insert(log.segment, found);
        }
        Self { current, reported: BTreeSet::new() }
    }

    /// Compares a block's owner with the one that the summary names.
    pub(crate) fn check(&mut self, volume: &mut Volume<'_>, at: BlockAddr, owner: Owner, findings: &Findings) {
        let index = at.0.saturating_sub(volume.geometry().main.0);
        let (segment, within) = (index / SEGMENT_BLOCKS, usize_from(index % SEGMENT_BLOCKS));
        let entry = match self.current.get(&segment) {
            Some(None) => return,
            Some(Some(entries)) => entries.get(within).copied(),
            None => self.stored(volume, segment, owner.is_node, within, findings),
        };
        let Some(entry) = entry else { return };
        let is_right = entry.nid.get() == owner.nid.0
            && (owner.is_node || (u32::from(entry.ofs_in_node.get()), entry.version) == (owner.offset, owner.version));
        if !is_right {
            let place = Place { segment: Some(segment), ..Place::node(owner.nid).at(at) };
            let expected = format!("node {}, index {}, version {}", owner.nid, owner.offset, owner.version);
            let found = format!("node {}, index {}, version {}", entry.nid, entry.ofs_in_node, entry.version);
            findings.add(Code::SummaryOwner, place, expected, found);
        }
    }

    fn stored(
        &mut self,
        volume: &mut Volume<'_>,
        segment: u32,
        is_node: bool,
        within: usize,
        findings: &Findings,
    ) -> Option<Summary> {
        let at = volume.geometry().summary_block(segment);
        let place = || Place::segment(segment).at(at);
        let block = match volume.media.get(at) {
            Ok(block) => block,
            Err(error) => {
                if self.reported.insert(segment) {
                    findings.add(Code::SummaryRead, place(), "a summary", error);
                }
                return None;
            }
        };
        match SummaryBlock::verify(&block) {
            Err(error) => {
                if self.reported.insert(segment) {
                    findings.add_corrupt(Code::SummaryRead, place(), &error);
                }
                return None;
            }
            Ok(summary) if (summary.footer.entry_type == 1) != is_node => {
                if self.reported.insert(segment) {
                    let kind = |is_node| if is_node { "nodes" } else { "data" };
                    findings.add(Code::SummaryType, place(), kind(is_node), kind(!is_node));
                }
            }
            Ok(_) => {}
        }
        summaries(&block).get(within).copied()
    }
}

fn read_one(volume: &mut Volume<'_>, at: BlockAddr, log: Log, findings: &Findings) -> Option<Vec<Summary>> {
    let place = || Place::segment(log.segment).at(at);
    let block: Block = match volume.media.read(at) {
        Ok(block) => block,
        Err(error) => {
            findings.add(Code::CheckpointSummary, place(), "a summary", error);
            return None;
        }
    };
    let summary = match SummaryBlock::verify(&block) {
        Ok(summary) => summary,
        Err(error) => {
            findings.add_corrupt(Code::CheckpointSummary, place(), &error);
            return None;
        }
    };
    let is_node = summary.footer.entry_type == 1;
    if is_node != (log.number >= FIRST_OF_NODES) {
        let found = if is_node { "nodes" } else { "data" };
        findings.add_what(Code::CheckpointSummary, "kind", place(), packs::log_name(log.number), found);
    }
    Some(summary.entries.to_vec())
}

/// A checkpoint has those of nodes after an unmount; otherwise they are read from the nodes.
fn node_summary(volume: &mut Volume<'_>, log: Log, findings: &Findings) -> Option<Vec<Summary>> {
    let flags = volume.checkpoint.flags();
    if !flags.intersects(CheckpointFlags::UMOUNT | CheckpointFlags::FASTBOOT) {
        return None;
    }
    let total = volume.checkpoint.fields().cp_pack_total_block_count.get();
    let index = u32::from(log.number.saturating_sub(FIRST_OF_NODES));
    let at = volume.checkpoint.at().plus(total.saturating_sub(4)).plus(index);
    read_one(volume, at, log, findings)
}

/// Packed summaries: entries of the three logs follow each other, one for each written block.
fn read_packed(volume: &mut Volume<'_>, logs: &[Log], findings: &Findings) -> HashMap<u16, Vec<Summary>> {
    let fields = *volume.checkpoint.fields();
    let counts: Vec<usize> = logs
        .iter()
        .filter(|log| log.number < FIRST_OF_NODES)
        .map(|log| {
            let kind = fields.alloc_type.get(to_usize(u64::from(log.number)));
            let count = if kind == Some(&IN_HOLES) { SEGMENT_BLOCKS } else { log.next };
            usize_from(count).min(ENTRIES)
        })
        .collect();
    let wanted: usize = counts.iter().sum();
    let mut found: Vec<Summary> = Vec::new();
    let (mut at, mut start) = (volume.checkpoint.compact_summaries(), JOURNAL_SIZE.saturating_mul(2));
    while found.len() < wanted {
        let block = match volume.media.read(at) {
            Ok(block) => block,
            Err(error) => {
                findings.add(Code::CheckpointSummary, Place::block(at), "packed summaries", error);
                return HashMap::new();
            }
        };
        let end = block.len().saturating_sub(FOOTER_SIZE);
        let entries = block.get(start..end).unwrap_or_default();
        found.extend(entries.chunks_exact(size_of::<Summary>()).filter_map(Summary::read));
        (at, start) = (at.plus(1), 0);
    }
    let mut rest = found.as_slice();
    let mut all = HashMap::new();
    for (number, count) in (0..).zip(counts) {
        let (own, behind) = rest.split_at_checked(count).unwrap_or((rest, &[]));
        all.insert(number, own.to_vec());
        rest = behind;
    }
    all
}
