//! Changes the devices of a mounted volume in its server, for a client. Called by `jobs`.
//!
//! The words of a job are its name, the number of a device if it is about one, and the name of the file whose
//! descriptor comes through the stream. The report goes back through the stream, as JSON. [`Changing`] has the
//! progress, and other clients can cancel the job. A client that is gone asks no more for the change: it is given up,
//! and all is as before, but for block groups that were moved.

use std::io::Write as _;
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use spinney::blockdev::Device;
use spinney::blockdev::backends::FileDevice;
use spinney::btrfs::{RebuildReport, Volume};
use spinney::remote::receive_descriptor;

use super::progress::{Change, Changing};
use super::report::{Changed, Rebuilt, Row};
use crate::btrfs::scrub::Lost;
use crate::commands::failure::Failure;
use crate::commands::trace::watch::watched;

/// Time between two attempts to bring devices up to date while commands change the devices.
const BUSY_INTERVAL: Duration = Duration::from_secs(1);

/// The names of the jobs.
pub(super) const LIST: &str = "device-list";
pub(super) const ADD: &str = "device-add";
pub(super) const REMOVE: &str = "device-remove";
pub(super) const REPLACE: &str = "device-replace";
pub(super) const RESYNC: &str = "device-resync";
pub(super) const STATUS: &str = "device-status";
pub(super) const CANCEL: &str = "device-cancel";

/// True for a job that changes nothing.
pub(in crate::btrfs) fn only_reads(words: &[String]) -> bool {
    words.first().is_some_and(|word| word == LIST || word == STATUS)
}

/// Runs a job; false for words that are no job of `device`.
///
/// # Errors
/// As the command on an image.
pub(in crate::btrfs) fn serve(
    volume: &Volume,
    changing: &Changing,
    words: &[String],
    stream: &UnixStream,
) -> Result<bool> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [LIST] => tell(stream, &volume.devices().iter().map(Row::from).collect::<Vec<_>>())?,
        [ADD, name] => {
            let id = volume.add_device(&receive(stream, name)?).with_context(|| (*name).to_owned())?;
            tell(stream, &Changed { id })?;
        }
        [REMOVE, id] => {
            let id = number(id)?;
            changing.run((Change::Remove, Some(id), None), |note| {
                let removed = volume.remove_device(id, &mut |progress| both(note(&progress.into()), stream));
                removed.with_context(|| format!("device {id}"))
            })?;
            tell(stream, &Changed { id })?;
        }
        [REPLACE, id, name] => {
            let (id, new) = (number(id)?, receive(stream, name)?);
            let report = changing.run((Change::Replace, Some(id), Some(name)), |note| {
                let replaced = volume.replace_device(id, new, &mut |report| both(note(&report.into()), stream));
                replaced.with_context(|| (*name).to_owned())
            })?;
            tell(stream, &Rebuilt::from(report))?;
        }
        [RESYNC, name] => {
            let stale = receive(stream, name)?;
            let report = changing.run((Change::Resync, None, Some(name)), |note| {
                let resynced = volume.resync_device(stale, &mut |report| both(note(&report.into()), stream));
                Ok(resynced.map_err(|error| Failure::refused(format!("{name}: {error}")))?)
            })?;
            tell(stream, &Rebuilt::from(report))?;
        }
        [STATUS] => tell(stream, &changing.status())?,
        [CANCEL] => changing.cancel()?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// Brings devices up to date in the background that were put aside when a volume was mounted; stops when it is dropped.
pub(in crate::btrfs) struct Resyncing {
    stops: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Resyncing {
    /// Begins, where there is something to do.
    pub(in crate::btrfs) fn begin(volume: &Arc<Volume>, changing: &Arc<Changing>) -> Self {
        let stops = Arc::new(AtomicBool::new(false));
        let mut resyncing = Self { stops: Arc::clone(&stops), thread: None };
        if volume.stale_devices() > 0 {
            let (volume, changing) = (Arc::clone(volume), Arc::clone(changing));
            let begun =
                thread::Builder::new().name("resync".to_owned()).spawn(move || resync(&volume, &changing, &stops));
            resyncing.thread = begun.map_err(|error| tracing::warn!(%error, "devices are not brought up to date")).ok();
        }
        resyncing
    }
}

impl Drop for Resyncing {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Its panic was reported.
            let _ = thread.join();
        }
    }
}

fn resync(volume: &Volume, changing: &Changing, stops: &AtomicBool) {
    while volume.stale_devices() > 0 {
        let mut name = String::new();
        let done = changing.run((Change::Resync, None, None), |note| {
            let mut watch = |report: &RebuildReport| match stops.load(Ordering::Relaxed) {
                true => ControlFlow::Break(()),
                false => note(&report.into()),
            };
            let (found, done) = volume.resync_stale_device(&mut watch).context("no device is left")?;
            name = found;
            Ok(done?)
        });
        match done {
            Ok(report) => {
                let (id, bytes) = (report.id, report.written_bytes);
                tracing::warn!("{name} (device {id}) missed commits and is up to date again: {bytes} bytes written");
                for lost in &report.lost_files {
                    tracing::error!("{name}: {}", Lost::from(lost));
                }
            }
            Err(_) if stops.load(Ordering::Relaxed) => return,
            // A command changes the devices at the same time.
            Err(_) if name.is_empty() => thread::sleep(BUSY_INTERVAL),
            Err(error) => tracing::error!("{name} missed commits and stays missing: {error:#}"),
        }
    }
}

fn number(word: &str) -> Result<u64> {
    word.parse().map_err(|_| Failure::usage(format!("{word}: no number of a device")).into())
}

/// The device that the client opened.
fn receive(stream: &UnixStream, name: &str) -> Result<Arc<dyn Device>> {
    let descriptor = receive_descriptor(stream).context("the device")?;
    Ok(watched(Arc::new(FileDevice::of_descriptor(descriptor, name, (0, None))?)))
}

fn tell(mut stream: &UnixStream, report: &impl Serialize) -> Result<()> {
    // The change stays made, also for a client that is gone.
    let _ = stream.write_all(&serde_json::to_vec(report)?);
    Ok(())
}

/// Goes on if the change is not cancelled and the client is there.
fn both(note: ControlFlow<()>, stream: &UnixStream) -> ControlFlow<()> {
    if note.is_break() { note } else { unless_gone(stream) }
}

/// Goes on as long as the client is there.
fn unless_gone(stream: &UnixStream) -> ControlFlow<()> {
    let mut ends = [PollFd::new(stream, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    match poll(&mut ends, Some(&now)) {
        Ok(count) if count > 0 => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    }
}
