//! How `spinney check` checks f2fs.

use std::sync::Arc;

use anyhow::Result;
use blockdev::Device;
use f2fs_check::{Code, Options, Pass, PassTable as _, Report, check};
use serde::Serialize;

use crate::checked::{self, Checked, Meaning, PassRow, Place, Shown};
use commands::progress::{Bar, Progress};

const FORMAT: &str = super::row::FORMAT.name;

/// All passes.
pub(crate) fn passes() -> impl Iterator<Item = PassRow> {
    checked::passes::<Pass>(FORMAT)
}

/// All codes.
pub(crate) fn codes() -> impl Iterator<Item = Meaning> {
    checked::codes::<Code>(FORMAT)
}

/// Checks; nothing is written. All names of passes are those of [`passes`].
pub(crate) fn run(device: &dyn Device, passes: &[String], data: bool, quiet: bool) -> Result<Checked<At>> {
    let options = Options { passes: passes.iter().filter_map(|id| Pass::from_id(id)).collect(), data };
    let progress = Arc::new(Progress::default());
    let bar = Bar::new(&progress, !quiet);
    let report = check(device, &options, &Shown(Arc::clone(&progress)));
    drop(bar);
    Ok(checked(report?))
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
    Checked::of(FORMAT, report, "Note", |place| {
        let at = At {
            inode: place.inode,
            node: place.node,
            file_block: place.file_block,
            block: place.block,
            segment: place.segment,
            device_offset: place.device_offset,
        };
        (place.path, at)
    })
}
