//! Asks the server of a mount to change its devices. Called by `device`.

use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::de::DeserializeOwned;
use spinney::blockdev::Device as _;
use spinney::blockdev::backends::FileDevice;
use spinney::remote::send_descriptor;

use super::report::{Changed, Rebuilt, Row};
use super::{report, served};
use crate::commands::failure::Failure;
use crate::commands::on_mount::OnMount;

pub(super) fn list(dir: &Path) -> Result<Vec<Row>> {
    ask(dir, served::LIST, Vec::new(), None)
}

/// The device that a text names.
pub(super) fn find(dir: &Path, text: &str) -> Result<Row> {
    let row = report::find(list(dir)?, text)?;
    row.refuse_seed()?;
    Ok(row)
}

pub(super) fn add(dir: &Path, new: FileDevice) -> Result<Changed> {
    ask(dir, served::ADD, Vec::new(), Some(new))
}

pub(super) fn remove(dir: &Path, old: &str) -> Result<Changed> {
    ask(dir, served::REMOVE, vec![find(dir, old)?.id.to_string()], None)
}

pub(super) fn replace(dir: &Path, old: &Row, new: FileDevice) -> Result<Rebuilt> {
    ask(dir, served::REPLACE, vec![old.id.to_string()], Some(new))
}

pub(super) fn resync(dir: &Path, stale: FileDevice) -> Result<Rebuilt> {
    ask(dir, served::RESYNC, Vec::new(), Some(stale))
}

/// Has the server run a job, with a device that this program opened for it.
fn ask<T: DeserializeOwned>(dir: &Path, job: &str, mut words: Vec<String>, device: Option<FileDevice>) -> Result<T> {
    if let Some(device) = &device {
        refuse_own(dir, device)?;
        words.push(device.name().to_owned());
    }
    words.insert(0, job.to_owned());
    let report = OnMount::connect(dir)?.converse(words, |mut stream| {
        if let Some(device) = device {
            send_descriptor(stream, device.descriptor()).context("the device")?;
            // The server has the lock from now on.
            device.keep_lock();
        }
        let mut text = Vec::new();
        stream.read_to_end(&mut text).context("the report")?;
        Ok(text)
    })?;
    serde_json::from_slice(&report).with_context(|| format!("{}: unexpected report of the server", dir.display()))
}

/// Refuses a file on the mount itself: its server would wait for itself.
fn refuse_own(dir: &Path, device: &FileDevice) -> Result<()> {
    use std::os::unix::fs::MetadataExt as _;
    let (own, found) = (std::fs::metadata(dir)?, device.host_metadata()?);
    match found {
        Some(found) if found.dev() == own.dev() => {
            Err(Failure::refused(format!("{}: a file on the mount itself", device.name())).into())
        }
        _ => Ok(()),
    }
}
