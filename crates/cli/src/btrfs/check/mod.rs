//! How `spinney check` checks btrfs: the report of `btrfs-check` in the form that it has for every format. An image is
//! checked here, a mount in `mounted`.
//!
//! Nothing is ever written. Failure: what keeps the check from being done; what is wrong with the file system is in the
//! report. Caller: `spinney check`, which knows the arguments and opens the devices.

mod marks;
pub(super) mod mounted;

use std::path::Path;
use std::sync::Arc;

use anyhow::{Error, Result};
use blockdev::Device;
use btrfs_check::{Code, Marks, Options, Pass, PassTable as _, Report, check};
use serde::Serialize;

use crate::checked::{self, Checked, Meaning, PassRow, Place, Shown};
use commands::progress::{Bar, Progress};
use marks::MarkFile;

pub(crate) use marks::Holder;

/// As the row of the format has it, which knows of mounts, whose jobs know of this.
const FORMAT: &str = "btrfs";

/// Where a volume is.
#[derive(Debug)]
pub(crate) enum Source<'a> {
    /// Devices, and what each of them is.
    Devices(&'a [Arc<dyn Device>], &'a [Holder]),
    /// A directory of a mount.
    Mount(&'a Path),
}

/// What is to be checked, and how.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) source: Source<'a>,
    /// Names of passes, all of which [`passes`] has.
    pub(crate) passes: &'a [String],
    pub(crate) data: bool,
    /// The data is read from where an earlier check was ended.
    pub(crate) resumes: bool,
    pub(crate) memory: u64,
    pub(crate) threads: usize,
    pub(crate) quiet: bool,
}

/// All passes.
pub(crate) fn passes() -> impl Iterator<Item = PassRow> {
    checked::passes::<Pass>(FORMAT)
}

/// All codes.
pub(crate) fn codes() -> impl Iterator<Item = Meaning> {
    checked::codes::<Code>(FORMAT)
}

/// Checks; nothing is written.
pub(crate) fn run(wanted: &Wanted<'_>) -> Result<Checked<At>> {
    let mut passes: Vec<Pass> = wanted.passes.iter().filter_map(|id| Pass::from_id(id)).collect();
    if wanted.data {
        if passes.is_empty() {
            passes = Pass::all().iter().map(|info| info.pass).collect();
        }
        passes.push(Pass::Data);
    }
    let holders = match wanted.source {
        Source::Devices(_, holders) => holders,
        Source::Mount(_) => &[],
    };
    let options = Options {
        passes,
        memory_bytes: usize::try_from(wanted.memory).unwrap_or(usize::MAX),
        folder: std::env::temp_dir(),
        threads: wanted.threads,
        marks: wanted.data.then(|| -> Arc<dyn Marks> { Arc::new(MarkFile::new(wanted.resumes, holders)) }),
    };
    let progress = Arc::new(Progress::default());
    let bar = Bar::new(&progress, !wanted.quiet);
    let watch = Shown(Arc::clone(&progress));
    let report = match wanted.source {
        Source::Devices(devices, _) => check(devices, &options, &watch).map_err(Error::from),
        Source::Mount(dir) => mounted::check_mount(dir, &options, &watch),
    };
    drop(bar);
    Ok(checked(report?))
}

/// Where something was found.
#[derive(Debug, Serialize)]
pub(crate) struct At {
    tree: Option<u64>,
    inode: Option<u64>,
    key: Option<[u64; 3]>,
    #[serde(skip)]
    key_text: Option<String>,
    logical: Option<u64>,
    device: Option<u64>,
    device_offset: Option<u64>,
}

impl Place for At {
    fn words(&self) -> Vec<String> {
        let mut words: Vec<String> = Vec::new();
        words.extend(self.tree.map(|tree| format!("tree {}", tree_name(tree))));
        words.extend(self.inode.map(|inode| format!("inode {inode}")));
        words.extend(self.key_text.as_ref().map(|key| format!("key {key}")));
        words.extend(self.logical.map(|at| format!("address {at}")));
        words.extend(self.device.zip(self.device_offset).map(|(device, at)| format!("device {device} byte {at}")));
        words
    }
}

fn checked(report: Report) -> Checked<At> {
    Checked::of(FORMAT, report, "Not looked at", |place| {
        let at = At {
            tree: place.tree,
            inode: place.inode,
            key: place.key.map(|key| [key.objectid, key.item_type.into(), key.offset]),
            key_text: place.key.map(|key| key.to_string()),
            logical: place.logical,
            device: place.device.map(|(device, _)| device),
            device_offset: place.device.map(|(_, offset)| offset),
        };
        (place.path, at)
    })
}

/// Trees with negative numbers are known by those.
fn tree_name(tree: u64) -> String {
    match i64::from_le_bytes(tree.to_le_bytes()) {
        number if number < 0 => number.to_string(),
        _ => tree.to_string(),
    }
}
