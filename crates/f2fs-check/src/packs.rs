//! Reads the checkpoint packs: the valid one of the two, its orphans, journals, and current segments. Called by `run`,
//! `space` and `summaries`.

use std::collections::HashMap;
use std::fmt::Display;

use f2fs_disk::checkpoint::{Checkpoint, LOGS, PackEnd};
use f2fs_disk::convert::{to_usize, usize_from};
use f2fs_disk::flags::{CheckpointFlags, Features};
use f2fs_disk::nat::NatEntry;
use f2fs_disk::orphan::orphans;
use f2fs_disk::sit::SitEntry;
use f2fs_disk::summary::{self, JOURNAL_SIZE, SummaryBlock};
use f2fs_disk::superblock::Superblock;
use f2fs_disk::{At, BLOCK_SIZE, Block, BlockAddr, Nid};

use crate::code::Code;
use crate::error::Error;
use crate::finding::{Findings, Place};
use crate::volume::{Media, Volume};

/// The logs whose summaries have the journals of NAT and SIT.
const HOT_DATA: u32 = 0;
const COLD_DATA: u32 = 2;

/// A log: data hot, warm and cold, then nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Log {
    /// 0 to 5, as the SIT counts types.
    pub(crate) number: u16,
    pub(crate) segment: u32,
    /// Next block in it.
    pub(crate) next: u32,
}

/// The newest complete checkpoint. An incomplete one is left by a power cut, and is no error.
///
/// # Errors
/// [`Error::NoCheckpoint`].
pub(crate) fn open(media: &mut Media<'_>, superblock: &Superblock, findings: &Findings) -> Result<Checkpoint, Error> {
    let [first, second] = [0, 1].map(|number| read(media, superblock, superblock.geometry().pack(number)));
    let note = |number: u32, unfit: &Unfit| match unfit {
        Unfit::Torn(why) => findings.note(format!("checkpoint pack {number} is not whole: {why}")),
        Unfit::Senseless(why) => {
            let place = Place::block(superblock.geometry().pack(number.saturating_sub(1)));
            findings.add(Code::CheckpointPack, place, "a checkpoint", why);
        }
    };
    let checkpoint = match (first, second) {
        (Ok(first), Ok(second)) => {
            if second.is_newer_than(&first) {
                second
            } else {
                first
            }
        }
        (Ok(first), Err(why)) => {
            note(2, &why);
            first
        }
        (Err(why), Ok(second)) => {
            note(1, &why);
            second
        }
        (Err(why), Err(_)) => return Err(Error::NoCheckpoint(why.text())),
    };
    let flags = checkpoint.flags();
    let noted = flags.intersection(CheckpointFlags::ERROR.union(CheckpointFlags::FSCK));
    if !noted.is_empty() {
        let found = format!("{:#x}", noted.bits());
        findings.add_what(Code::CheckpointError, "flags", Place::block(checkpoint.at()), "none of an error", found);
    }
    if flags.contains(CheckpointFlags::QUOTA_NEED_FSCK) {
        findings.note("the checkpoint says that the quota files have to be checked".to_owned());
    }
    Ok(checkpoint)
}

/// The reason why a pack is not used.
enum Unfit {
    /// It is incomplete, or cannot be read.
    Torn(String),
    /// Its checksums are right, but its values are invalid.
    Senseless(String),
}

impl Unfit {
    fn text(self) -> String {
        match self {
            Self::Torn(why) | Self::Senseless(why) => why,
        }
    }
}

fn read(media: &mut Media<'_>, superblock: &Superblock, at: BlockAddr) -> Result<Checkpoint, Unfit> {
    let torn = |error: &dyn Display| Unfit::Torn(error.to_string());
    let head = media.read(at).map_err(|error| torn(&error))?;
    let end = PackEnd::verify(&head).map_err(|error| torn(&error.at(At::Checkpoint(at))))?;
    // Bounded: the superblock was verified.
    let payload = usize_from(superblock.geometry().cp_payload);
    let mut first = vec![0; payload.saturating_add(1).saturating_mul(BLOCK_SIZE)];
    media.read_bytes(at.byte(), &mut first).map_err(|error| torn(&error))?;
    let last = media.read(at.plus(end.last_index())).map_err(|error| torn(&error))?;
    let version = end.fields.checkpoint_ver.get();
    let is_whole = PackEnd::verify(&last).is_ok_and(|last| last.fields.checkpoint_ver.get() == version);
    Checkpoint::verify(&first, &last, at, superblock).map_err(|error| match is_whole {
        true => Unfit::Senseless(error.to_string()),
        false => torn(&error),
    })
}

/// Entries of the tables that the checkpoint keeps beside the summaries of its data segments.
#[derive(Debug, Default)]
pub(crate) struct Journals {
    pub(crate) nat: HashMap<Nid, NatEntry>,
    pub(crate) sit: HashMap<u32, SitEntry>,
}

/// Reads the journals; an unreadable one is reported, and counts as empty.
pub(crate) fn journals(media: &mut Media<'_>, checkpoint: &Checkpoint, findings: &Findings) -> Journals {
    let mut journal = |is_nat: bool| -> Option<[u8; JOURNAL_SIZE]> {
        let is_compact = checkpoint.flags().contains(CheckpointFlags::COMPACT_SUM);
        let log = if is_nat { HOT_DATA } else { COLD_DATA };
        let at = if is_compact { checkpoint.compact_summaries() } else { checkpoint.data_summary(log) };
        let block = match media.read(at) {
            Ok(block) => block,
            Err(error) => {
                findings.add(Code::CheckpointSummary, Place::block(at), "a summary", error);
                return None;
            }
        };
        if is_compact {
            let (nat, sit) = summary::compact_journals(&block)?;
            return Some(if is_nat { *nat } else { *sit });
        }
        match SummaryBlock::verify(&block) {
            Ok(summary) => Some(summary.journal),
            Err(error) => {
                findings.add_corrupt(Code::CheckpointSummary, Place::block(at), &error);
                None
            }
        }
    };
    let (nat, sit) = (journal(true), journal(false));
    let place = || Place::block(checkpoint.at());
    let nat = nat.map(|journal| summary::nat_journal(&journal));
    let sit = sit.map(|journal| summary::sit_journal(&journal));
    let mut journals = Journals::default();
    match nat {
        Some(Ok(entries)) => journals.nat.extend(entries),
        Some(Err(error)) => findings.add_corrupt(Code::CheckpointSummary, place(), &error),
        None => {}
    }
    match sit {
        Some(Ok(entries)) => journals.sit.extend(entries),
        Some(Err(error)) => findings.add_corrupt(Code::CheckpointSummary, place(), &error),
        None => {}
    }
    journals
}

/// The logs in use.
pub(crate) fn logs(volume: &Volume<'_>) -> Vec<Log> {
    // A read-only volume has one log of each kind.
    let count = if volume.superblock.features().contains(Features::RO) { 1 } else { LOGS };
    let fields = volume.checkpoint.fields();
    let data = fields.cur_data_segno.iter().zip(&fields.cur_data_blkoff).take(count).zip(0..);
    let nodes = fields.cur_node_segno.iter().zip(&fields.cur_node_blkoff).take(count).zip(3..);
    let logs = data.chain(nodes);
    logs.map(|((segment, next), number)| Log { number, segment: segment.get(), next: u32::from(next.get()) }).collect()
}

/// The inodes that the checkpoint lists as orphans: at most those of the blocks of a segment.
pub(crate) fn read_orphans(volume: &mut Volume<'_>, findings: &Findings) -> Vec<Nid> {
    let (first, count) = volume.checkpoint.orphan_blocks(volume.geometry().cp_payload);
    let mut all = Vec::new();
    for index in 0..count {
        let at = first.plus(index);
        let block: Block = match volume.media.read(at) {
            Ok(block) => block,
            Err(error) => {
                findings.add(Code::CheckpointOrphans, Place::block(at), "a list of orphans", error);
                continue;
            }
        };
        match orphans(&block) {
            Ok(orphans) => all.extend(orphans),
            Err(error) => findings.add_corrupt(Code::CheckpointOrphans, Place::block(at), &error),
        }
    }
    all
}

/// The word of a log's number.
pub(crate) fn log_name(number: u16) -> &'static str {
    const NAMES: [&str; 6] = ["hot data", "warm data", "cold data", "hot nodes", "warm nodes", "cold nodes"];
    NAMES.get(to_usize(u64::from(number))).copied().unwrap_or("no log")
}
