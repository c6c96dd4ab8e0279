//! Changes the devices of an image, which this program opens. Called by `device`.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::{Context as _, Result};
use spinney::blockdev::{self, Access, Device as Block, Locator};
use spinney::btrfs::pool::{Error as PoolError, Intent, MemberError, Members, Mode};
use spinney::btrfs::{RebuildReport, Volume, open_with};
use spinney::{Devices, VolumeOptions};

use super::report::{Changed, Rebuilt, Row, find};
use super::{Add, MISSING, New, Remove, Replacement, Resync, remove_unless_member};
use crate::btrfs::format;
use crate::commands::failure::Failure;
use crate::commands::image::{ImageArgs, explain, open_devices};
use crate::commands::progress::{Bar, Progress};

pub(super) fn list(image: &ImageArgs) -> Result<Vec<Row>> {
    Ok(rows(&open(image, true, image.degraded)?.1))
}

pub(super) fn add(command: &Add) -> Result<Changed> {
    let (_, volume) = open(&command.image, false, command.image.degraded)?;
    let new = New { path: &command.new, size: command.size, force: command.force, old: None };
    let (device, target) = new.open()?;
    let added = volume.add_device(&device).with_context(|| command.new.display().to_string());
    let id = added.inspect_err(|_| target.remove_new())?;
    volume.close()?;
    Ok(Changed { id })
}

pub(super) fn remove(command: &Remove) -> Result<Changed> {
    let (_, volume) = open(&command.image, false, command.image.degraded || command.old == MISSING)?;
    let old = find(rows(&volume), &command.old)?;
    let progress = Arc::new(Progress::default());
    let bar = Bar::new(&progress, !command.json);
    let removed = volume.remove_device(old.id, &mut |now| {
        progress.bytes.store(now.moved_bytes, Ordering::Relaxed);
        progress.bytes_total.store(now.total_bytes, Ordering::Relaxed);
        ControlFlow::Continue(())
    });
    drop(bar);
    removed.with_context(|| command.old.clone())?;
    volume.close()?;
    Ok(Changed { id: old.id })
}

pub(super) fn replace(command: &Replacement) -> Result<Rebuilt> {
    let (_, volume) = open(&command.image, false, command.image.degraded || command.old == MISSING)?;
    let old = find(rows(&volume), &command.old)?;
    old.refuse_seed()?;
    let new = New { path: &command.new, size: Some(old.total_bytes), force: command.force, old: Some(&old) };
    let (device, target) = new.open()?;
    let name = device.name().to_owned();
    let rebuilt = shown(command.quiet, |watch| volume.replace_device(old.id, device, watch));
    let report = rebuilt.with_context(|| name).inspect_err(|_| remove_unless_member(&target))?;
    volume.close()?;
    Ok(report.into())
}

pub(super) fn resync(command: &Resync) -> Result<Rebuilt> {
    let shown_name = || command.stale.display().to_string();
    let stale = blockdev::open(&Locator::parse(&command.stale)?, Access::WRITE).with_context(shown_name)?;
    check_is_behind(command, &stale)?;
    let (_, volume) = open(&command.image, false, true)?;
    let rebuilt = shown(command.quiet, |watch| volume.resync_device(stale, watch));
    let report = rebuilt.map_err(|error| Failure::refused(format!("{}: {error}", shown_name())))?;
    volume.close()?;
    Ok(report.into())
}

/// Refuses a device that is not behind the others: its contents would be lost.
fn check_is_behind(command: &Resync, stale: &Arc<dyn Block>) -> Result<()> {
    let mut devices = open_devices(&command.image, &command.image.request().read_only(true))?;
    devices.push(Arc::clone(stale));
    let is_it = |error: &MemberError| matches!(error, MemberError::Stale { device, .. } if device == stale.name());
    let why = match Members::read(&devices, Intent::ReadOnly, None, Mode::Strict) {
        Err(PoolError::Members(error)) if is_it(&error) => return Ok(()),
        Err(PoolError::Members(error)) => error.to_string(),
        Err(error) => return Err(error.into()),
        Ok(members) if members.lagging().any(|(_, error)| is_it(&error)) => return Ok(()),
        Ok(_) => format!("{}: missed no commit", command.stale.display()),
    };
    Err(Failure::refused(why).into())
}

/// Opens the devices of a volume, and the volume.
fn open(image: &ImageArgs, read_only: bool, degraded: bool) -> Result<(Devices, Volume)> {
    let request: VolumeOptions = image.request().read_only(read_only);
    let request = if degraded && !image.degraded { request.flag("degraded") } else { request };
    let opened = open_devices(image, &request).and_then(|devices| {
        let volume = open_with(devices.clone(), &request, |own| own)?;
        Ok((devices, volume))
    });
    opened.map_err(|error| format::of_another(&image.image).unwrap_or_else(|| explain(&image.image, error)))
}

fn rows(volume: &Volume) -> Vec<Row> {
    volume.devices().iter().map(Row::from).collect()
}

/// Runs a rebuild with a progress bar.
fn shown<T>(quiet: bool, run: impl FnOnce(&mut dyn FnMut(&RebuildReport) -> ControlFlow<()>) -> T) -> T {
    let progress = Arc::new(Progress::default());
    let _bar = Bar::new(&progress, !quiet);
    run(&mut |report| {
        progress.bytes.store(report.done_bytes, Ordering::Relaxed);
        progress.bytes_total.store(report.total_bytes, Ordering::Relaxed);
        ControlFlow::Continue(())
    })
}
