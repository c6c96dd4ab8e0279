//! The reports of `device`: of an image and, as JSON, of the server of a mount.

use std::io::Write as _;
use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use spinney::btrfs::{DeviceState, RebuildReport};

use super::MISSING;
use crate::btrfs::scrub::Lost;
use crate::commands::failure::{Failure, Status};
use crate::commands::human;
use crate::commands::names;
use crate::commands::output::Output;

/// Lost parts of files that are printed; `--json` lists more.
const LINES_MAX: usize = 50;

/// A device.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) id: u64,
    pub(super) path: Option<String>,
    pub(super) uuid: String,
    device_bytes: u64,
    pub(super) total_bytes: u64,
    pub(super) allocated_bytes: u64,
    missing: bool,
    seed: bool,
}

impl Row {
    pub(super) fn print(&self, out: &mut Output) -> Result<()> {
        let (allocated, total) = (human::bytes(self.allocated_bytes), human::bytes(self.total_bytes));
        let path = self.path.as_deref().map_or_else(|| MISSING.into(), names::escaped_text);
        Ok(writeln!(out, "{:>4}  {path}: {allocated} of {total} allocated", self.id)?)
    }

    /// Fails for a seed of the volume, whose place no device of this volume alone can take.
    ///
    /// # Errors
    /// `Unsupported` for a seed.
    pub(super) fn refuse_seed(&self) -> Result<()> {
        let name = self.path.as_deref().unwrap_or(MISSING);
        let text = format!(
            "{name}: this device is a seed of the volume and cannot be replaced; `device remove` moves its contents"
        );
        if self.seed { Err(Failure::new(Status::Unsupported, text).into()) } else { Ok(()) }
    }
}

impl From<&DeviceState> for Row {
    fn from(device: &DeviceState) -> Self {
        Self {
            id: device.id.0,
            path: (!device.is_missing).then(|| device.name.clone()),
            uuid: names::uuid(&device.uuid.0),
            device_bytes: device.device_bytes,
            total_bytes: device.total_bytes,
            allocated_bytes: device.used_bytes,
            missing: device.is_missing,
            seed: device.is_seed,
        }
    }
}

/// The row that a text names: a path, a number, or `missing`.
///
/// # Errors
/// `Refused` where no row, or more than one, has that name.
pub(super) fn find(rows: Vec<Row>, text: &str) -> Result<Row> {
    let mut found = rows.into_iter().filter(|row| match text {
        MISSING => row.missing,
        _ => row.id.to_string() == text || row.path.as_deref().is_some_and(|path| is_path(path, text)),
    });
    match (found.next(), found.next()) {
        (Some(row), None) => Ok(row),
        (Some(_), Some(_)) => Err(Failure::usage(format!("{text}: several devices are missing: give a number")).into()),
        (None, _) => Err(Failure::refused(format!("{text}: no device of this volume")).into()),
    }
}

/// A server knows its devices by paths from the root.
fn is_path(path: &str, text: &str) -> bool {
    let (path, text) = (Path::new(path), Path::new(text));
    let absolute = || text.canonicalize().or_else(|_| std::path::absolute(text));
    path == text || absolute().is_ok_and(|absolute| absolute == path)
}

/// A device that was added or removed.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Changed {
    pub(super) id: u64,
}

/// A device that was written anew.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Rebuilt {
    id: u64,
    written_bytes: u64,
    same_bytes: u64,
    /// Logical addresses and lengths of ranges without a good copy.
    lost: Vec<(u64, u64)>,
    lost_files: Vec<Lost>,
    is_old_left: bool,
}

impl From<RebuildReport> for Rebuilt {
    fn from(report: RebuildReport) -> Self {
        let RebuildReport { id, written_bytes, same_bytes, lost, lost_files, is_old_left, .. } = report;
        let lost_files = lost_files.iter().map(Lost::from).collect();
        Self { id, written_bytes, same_bytes, lost, lost_files, is_old_left }
    }
}

impl Rebuilt {
    /// Prints it. Ranges without a good copy make the command fail.
    ///
    /// # Errors
    /// Those of the output; `Corrupt` for lost ranges.
    pub(super) fn tell(&self, out: &mut Output, (quiet, json): (bool, bool)) -> Result<()> {
        let id = self.id;
        if json {
            out.json(self)?;
        } else if !quiet {
            let (written, same) = (human::bytes(self.written_bytes), human::bytes(self.same_bytes));
            writeln!(out, "device {id}: {written} written, {same} were there already")?;
        }
        if !json {
            for lost in self.lost_files.iter().take(LINES_MAX) {
                writeln!(out, "{lost}")?;
            }
            if self.is_old_left {
                writeln!(out, "the replaced device cannot be written: it still looks like a device of the volume")?;
            }
        }
        let bytes: u64 = self.lost.iter().map(|(_, len)| *len).sum();
        if bytes == 0 {
            return Ok(());
        }
        let text = format!("device {id}: {} have no good copy; all else is there", human::bytes(bytes));
        Err(Failure::new(Status::Corrupt, text).into())
    }
}
