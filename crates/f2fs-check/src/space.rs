//! Compares used blocks with the SIT and the counters of the checkpoint. Called by `run`.

use f2fs_disk::convert::usize_from;
use f2fs_disk::flags::Features;
use f2fs_disk::{BlockAddr, SEGMENT_BLOCKS};

use crate::code::Code;
use crate::files::Found;
use crate::finding::{Findings, Place};
use crate::packs::{self, Log};
use crate::tables::Segments;
use crate::volume::Volume;

/// Allocation type of logs that fill holes of segments (`SSR`).
const IN_HOLES: u8 = 1;

/// Compares the used blocks of a walk with the SIT, and all counts with those of the checkpoint.
pub(crate) fn compare(volume: &Volume<'_>, segments: &Segments, found: &Found, findings: &Findings) {
    for segment in 0..volume.segment_count() {
        compare_segment(volume, segments, found, segment, findings);
    }
    let fields = volume.checkpoint.fields();
    let counts = [
        (Code::CountBlocks, found.blocks, fields.valid_block_count.get()),
        (Code::CountNodes, found.nodes, u64::from(fields.valid_node_count.get())),
        (Code::CountInodes, found.inodes, u64::from(fields.valid_inode_count.get())),
    ];
    for (code, counted, stored) in counts.into_iter().filter(|(_, counted, stored)| counted != stored) {
        findings.add(code, Place::block(volume.checkpoint.at()), counted, stored);
    }
    // A read-only volume needs no free segments.
    if volume.superblock.features().contains(Features::RO) {
        return;
    }
    let logs = packs::logs(volume);
    let is_current = |segment: u32| logs.iter().any(|log| log.segment == segment);
    let free = (0_u32..).zip(&segments.counts).filter(|(segment, count)| **count == 0 && !is_current(*segment)).count();
    let stored = fields.free_segment_count.get();
    if usize_from(stored) != free {
        findings.add(Code::CountFree, Place::block(volume.checkpoint.at()), free, stored);
    }
}

/// One finding a segment: a wrong table concerns many of its blocks.
fn compare_segment(volume: &Volume<'_>, segments: &Segments, found: &Found, segment: u32, findings: &Findings) {
    let first = segment.saturating_mul(SEGMENT_BLOCKS);
    let blocks = first..first.saturating_add(SEGMENT_BLOCKS);
    let main = volume.geometry().main;
    let report = |code: Code, blocks: Vec<u32>| {
        let Some(first) = blocks.first() else { return };
        let place = Place::segment(segment).at(main.plus(*first));
        let (expected, found) = match code {
            Code::SitMissing => ("in use", "free"),
            _ => ("free", "in use"),
        };
        let found = format!("{found}: {} blocks of the segment", blocks.len());
        findings.add(code, place, expected, found);
    };
    let claimed = |block: &u32| found.claimed.has(*block);
    let valid = |block: &u32| segments.valid.has(*block);
    report(Code::SitMissing, blocks.clone().filter(|block| claimed(block) && !valid(block)).collect());
    report(Code::SitExtra, blocks.filter(|block| valid(block) && !claimed(block)).collect());
}

/// Each log has a segment of its own, of its type, and the next block in it is free.
pub(crate) fn check_current(volume: &Volume<'_>, segments: &Segments, findings: &Findings) {
    let logs = packs::logs(volume);
    for (index, log) in logs.iter().enumerate() {
        let Log { number, segment, next } = *log;
        let place = || Place::segment(segment);
        let name = packs::log_name(number);
        if logs.iter().take(index).any(|other| other.segment == segment) {
            findings.add_what(Code::CheckpointCurrent, name, place(), "a segment of its own", "that of another log");
        }
        let kind = segments.types.get(usize_from(segment)).copied().unwrap_or(0);
        if kind != number {
            findings.add_what(Code::CheckpointCurrent, "type", place(), name, packs::log_name(kind));
        }
        // A log in holes needs only its next block free; others need all blocks behind it free.
        let in_holes = volume.checkpoint.fields().alloc_type.get(usize::from(number)) == Some(&IN_HOLES);
        let behind = if in_holes { next..next.saturating_add(1) } else { next..SEGMENT_BLOCKS };
        let first = segment.saturating_mul(SEGMENT_BLOCKS);
        let is_used = |block: &u32| *block < SEGMENT_BLOCKS && segments.valid.has(first.saturating_add(*block));
        if let Some(block) = behind.into_iter().find(is_used) {
            let at: BlockAddr = volume.geometry().segment_block(segment, block);
            findings.add_what(
                Code::CheckpointCurrent,
                name,
                place().at(at),
                "free blocks from the next one on",
                "one in use",
            );
        }
    }
}
