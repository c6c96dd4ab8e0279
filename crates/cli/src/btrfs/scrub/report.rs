//! Prints the report of a finished scrub, as text (`print`) and for `--json` (`Report`). Called by `run`.

use std::fmt;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use spinney::btrfs::{Fate, LostRange, ScrubFault, ScrubReport, ScrubbedKind};

use super::status::Counts;
use crate::commands::human;
use crate::commands::names;
use crate::commands::output::Output;

/// Limit on the faults, and on the lost ranges, that are printed; `--json` lists more.
const LINES_MAX: usize = 50;

#[derive(Serialize)]
pub(super) struct Report {
    is_whole: bool,
    #[serde(flatten)]
    counts: Counts,
    faults: Vec<Fault>,
    lost: Vec<Lost>,
    unreadable_subvolumes: Vec<u64>,
}

#[derive(Serialize)]
struct Fault {
    kind: &'static str,
    logical: u64,
    bytes: u64,
    copy: u32,
    device: u64,
    offset: u64,
    problem: String,
    fate: &'static str,
}

/// A part of a file of which no copy is good.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::btrfs) struct Lost {
    path: Option<String>,
    subvolume: u64,
    inode: u64,
    offset: u64,
    bytes: u64,
}

impl From<&ScrubReport> for Report {
    fn from(report: &ScrubReport) -> Self {
        Self {
            is_whole: report.is_whole,
            counts: Counts::from(&report.progress),
            faults: report.faults.iter().map(Fault::from).collect(),
            lost: report.lost.iter().map(Lost::from).collect(),
            unreadable_subvolumes: report.unreadable.clone(),
        }
    }
}

impl From<&ScrubFault> for Fault {
    fn from(fault: &ScrubFault) -> Self {
        let ScrubFault { kind, logical, len, copy, device, offset, problem, fate } = fault;
        Self {
            kind: kind_name(*kind),
            logical: *logical,
            bytes: *len,
            copy: *copy,
            device: *device,
            offset: *offset,
            problem: problem.clone(),
            fate: fate_name(*fate),
        }
    }
}

impl From<&LostRange> for Lost {
    fn from(range: &LostRange) -> Self {
        let path = range.path.as_ref().map(|path| names::escaped(path.as_os_str().as_bytes()).to_string());
        Self { path, subvolume: range.subvolume, inode: range.inode, offset: range.offset, bytes: range.len }
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, subvolume, inode, offset, bytes } = self;
        match path {
            Some(path) => write!(f, "lost: {path}: {bytes} bytes at {offset}"),
            None => write!(f, "lost: inode {inode} of subvolume {subvolume}: {bytes} bytes at {offset}"),
        }
    }
}

fn kind_name(kind: ScrubbedKind) -> &'static str {
    match kind {
        ScrubbedKind::Superblock => "superblock",
        ScrubbedKind::TreeBlock => "tree block",
        ScrubbedKind::Data => "data",
    }
}

fn fate_name(fate: Fate) -> &'static str {
    match fate {
        Fate::Mended => "mended",
        Fate::Left => "left",
        Fate::Lost => "lost",
    }
}

pub(super) fn print(report: &ScrubReport, took: Duration, out: &mut Output) -> Result<()> {
    for fault in report.faults.iter().take(LINES_MAX) {
        let Fault { kind, logical, bytes, copy, device, offset, problem, fate } = Fault::from(fault);
        writeln!(
            out,
            "{fate}: {kind} at {logical}, {bytes} bytes, copy {copy} at byte {offset} of device {device}: {problem}"
        )?;
    }
    let progress = &report.progress;
    let untold = progress.errors().saturating_sub(report.faults.len().min(LINES_MAX).try_into().unwrap_or(u64::MAX));
    if untold > 0 {
        writeln!(out, "... and {untold} more")?;
    }
    for range in report.lost.iter().take(LINES_MAX) {
        writeln!(out, "{}", Lost::from(range))?;
    }
    if report.lost.len() > LINES_MAX {
        writeln!(out, "... and {} more parts of files", report.lost.len() - LINES_MAX)?;
    }
    for id in &report.unreadable {
        writeln!(out, "subvolume {id} could not be searched for files with lost data: it is damaged")?;
    }
    let rate = u128::from(progress.bytes).saturating_mul(1000).checked_div(took.as_millis().max(1)).unwrap_or(0);
    let rate = human::bytes(u64::try_from(rate).unwrap_or(u64::MAX));
    let state = if report.is_whole {
        "done".to_owned()
    } else {
        format!("stopped at {} (`scrub resume` goes on)", progress.place)
    };
    writeln!(
        out,
        "{state}: {} read ({rate} a second): {} of metadata, {} of data, {} of it without checksums",
        human::bytes(progress.bytes),
        human::bytes(progress.tree_bytes),
        human::bytes(progress.data_bytes),
        human::bytes(progress.unchecked_bytes)
    )?;
    match progress.errors() {
        0 => writeln!(out, "no errors")?,
        errors => writeln!(
            out,
            "{errors} bad copies: {} mended, {} left as they are, {} lost",
            progress.mended, progress.left, progress.lost
        )?,
    }
    Ok(())
}
