//! How `spinney check` checks f2fs.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::Result;
use blockdev::Device;
use f2fs_check::{Code, CodeInfo, Options, Pass, Report, Watch, check};
use serde::Serialize;

use crate::checked::{Checked, Found, Meaning, PassRow, Place};
use commands::progress::{Bar, Progress};

const FORMAT: &str = super::row::FORMAT.name;

/// True for the name of a pass.
pub(crate) fn has_pass(id: &str) -> bool {
    Pass::from_id(id).is_some()
}

/// All passes.
pub(crate) fn passes() -> impl Iterator<Item = PassRow> {
    Pass::all().iter().map(|info| PassRow {
        format: FORMAT,
        id: info.id,
        about: info.about,
        needs: info.needs.iter().map(|pass| pass.id()).collect(),
    })
}

/// All codes.
pub(crate) fn codes() -> impl Iterator<Item = Meaning> {
    Code::all().iter().map(meaning)
}

fn meaning(info: &CodeInfo) -> Meaning {
    let CodeInfo { id, pass, what, means, advice, .. } = *info;
    Meaning { format: FORMAT, code: id, pass: pass.id(), what, means, advice }
}

/// Checks; nothing is written. All names of passes are those of [`has_pass`].
pub(crate) fn run(device: &dyn Device, passes: &[String], quiet: bool) -> Result<Checked<At>> {
    let options = Options { passes: passes.iter().filter_map(|id| Pass::from_id(id)).collect() };
    let progress = Arc::new(Progress::default());
    let bar = Bar::new(&progress, !quiet);
    let report = check(device, &options, &Shown(&progress));
    drop(bar);
    Ok(checked(report?))
}

/// Tells the bar what the check tells.
struct Shown<'a>(&'a Progress);

impl Watch for Shown<'_> {
    fn add_bytes(&self, bytes: u64) {
        self.0.add_bytes(bytes);
    }

    fn add_inodes(&self, count: u64) {
        self.0.names.fetch_add(count, Ordering::Relaxed);
    }
}

/// Where something was found.
#[derive(Debug, Serialize)]
pub(crate) struct At {
    inode: Option<u32>,
    node: Option<u32>,
    file_block: Option<u64>,
    block: Option<u32>,
    segment: Option<u32>,
    device_offset: Option<u64>,
}

impl Place for At {
    fn words(&self) -> Vec<String> {
        let mut words: Vec<String> = Vec::new();
        words.extend(self.inode.map(|inode| format!("inode {inode}")));
        words.extend(self.node.map(|node| format!("node {node}")));
        words.extend(self.file_block.map(|index| format!("its block {index}")));
        words.extend(self.segment.map(|segment| format!("segment {segment}")));
        words.extend(self.block.map(|at| format!("block {at}")));
        words.extend(self.device_offset.map(|at| format!("byte {at}")));
        words
    }
}

fn checked(report: Report) -> Checked<At> {
    let findings = report.findings.into_iter().map(|finding| {
        let place = finding.place;
        Found {
            code: finding.code.id(),
            pass: finding.code.info().map_or("", |info| info.pass.id()),
            whole: Found::<At>::whole(finding.code.info().map_or("", |info| info.what), &finding.what),
            what: finding.what,
            path: place.path,
            place: At {
                inode: place.inode,
                node: place.node,
                file_block: place.file_block,
                block: place.block,
                segment: place.segment,
                device_offset: place.device_offset,
            },
            expected: finding.expected,
            found: finding.found,
        }
    });
    Checked {
        findings: findings.collect(),
        counts: report.counts.iter().filter_map(|(code, count)| Some((meaning(code.info()?), *count))).collect(),
        passes: report.passes.iter().map(|pass| pass.id()).collect(),
        notes: report.notes,
        note_word: "Note",
        inodes: report.inodes,
        bytes: report.bytes,
    }
}
