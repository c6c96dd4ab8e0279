//! Asks the server of a mount to change its devices. Called by `device`.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context as _, Result};
use serde::de::DeserializeOwned;
use spinney::blockdev::Device as _;
use spinney::blockdev::backends::FileDevice;
use spinney::remote::send_descriptor;

use super::progress::{ChangeStatus, State};
use super::report::{Changed, Rebuilt, Row};
use super::{report, served};
use crate::commands::failure::Failure;
use crate::commands::on_mount::OnMount;
use crate::commands::polling::Polling;
use crate::commands::progress::{Bar, Progress};

pub(super) fn list(dir: &Path) -> Result<Vec<Row>> {
    ask(dir, served::LIST, Vec::new(), None)
}

/// The device that a text names.
pub(super) fn find(dir: &Path, text: &str) -> Result<Row> {
    report::find(list(dir)?, text)
}

pub(super) fn add(dir: &Path, new: FileDevice) -> Result<Changed> {
    ask(dir, served::ADD, Vec::new(), Some(new))
}

pub(super) fn remove(dir: &Path, old: &str, has_bar: bool) -> Result<Changed> {
    let words = vec![find(dir, old)?.id.to_string()];
    shown(dir, has_bar, || ask(dir, served::REMOVE, words, None))
}

pub(super) fn replace(dir: &Path, old: &Row, new: FileDevice, has_bar: bool) -> Result<Rebuilt> {
    shown(dir, has_bar, || ask(dir, served::REPLACE, vec![old.id.to_string()], Some(new)))
}

pub(super) fn resync(dir: &Path, stale: FileDevice, has_bar: bool) -> Result<Rebuilt> {
    shown(dir, has_bar, || ask(dir, served::RESYNC, Vec::new(), Some(stale)))
}

/// The running change of the devices, or the last one.
pub(super) fn status(dir: &Path) -> Result<ChangeStatus> {
    ask(dir, served::STATUS, Vec::new(), None)
}

/// Cancels the running change, and waits until it has ended.
pub(super) fn cancel(dir: &Path) -> Result<ChangeStatus> {
    OnMount::connect(dir)?
        .take(vec![served::CANCEL.to_owned()], std::io::sink())
        .with_context(|| dir.display().to_string())?;
    let mut polling = Polling::default();
    loop {
        let status = status(dir)?;
        if status.state != State::Running {
            return Ok(status);
        }
        polling.wait();
    }
}

/// Shows the progress while the server works.
fn shown<T>(dir: &Path, has_bar: bool, ask: impl FnOnce() -> Result<T>) -> Result<T> {
    let progress = Arc::new(Progress::default());
    let bar = Bar::new(&progress, has_bar);
    if !bar.is_shown() {
        return ask();
    }
    let has_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut polling = Polling::default();
            while !has_ended.load(Ordering::Acquire) {
                // The answer to the change says whether something failed.
                if let Ok(status) = status(dir) {
                    progress.bytes.store(status.done_bytes, Ordering::Relaxed);
                    progress.bytes_total.store(status.total_bytes, Ordering::Relaxed);
                }
                thread::park_timeout(polling.interval());
            }
        });
        let done = ask();
        has_ended.store(true, Ordering::Release);
        watching.thread().unpark();
        done
    })
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
