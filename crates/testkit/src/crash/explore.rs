//! Crashes a workload at many points, and judges the images that result. Called by `testkit/tests/crash.rs`.

use super::judge;
use super::workload::{Journal, Settings, fresh, open_on, options};
use crate::Random;
use crate::faults::{Event, RecordingDevice};
use crate::number::to_u64;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::sync::Arc;

/// Counts of the crashes of one seed.
#[derive(Debug, Clone, Copy, Default)]
pub struct CrashReport {
    /// States that were judged, all well.
    pub states: u64,
    /// Of those, states that `btrfs check` found clean.
    pub checked: u64,
    /// Writes and flushes of the workload.
    pub events: u64,
    /// Syncs of the workload.
    pub syncs: u64,
}

/// Runs the workload of a seed, and judges `settings.states` states that a crash could have left.
///
/// # Errors
/// The first state that is wrong, with its crash point.
pub fn explore(seed: u64, settings: &Settings, folder: &Path) -> Result<CrashReport> {
    let (image, form) = fresh(seed, settings, folder)?;
    let device = Arc::new(RecordingDevice::new(image));
    let volume = open_on(&device, &options(seed))?;
    let (journal, error) = Journal::run(seed, settings, &volume, || device.event_count())
        .with_context(|| format!("seed {seed} on an image by {form}"))?;
    if let Some(error) = error {
        bail!("seed {seed} on an image by {form}: {error}");
    }
    let first = journal.moments.first().map_or(0, |moment| moment.events);
    let mut report = CrashReport {
        events: to_u64(device.event_count()),
        syncs: to_u64(journal.moments.iter().filter(|m| m.operation.is_none()).count()),
        ..CrashReport::default()
    };
    let mut random = Random::new(seed ^ 0xdead);
    let flushes = flushes_after(&device, first);
    for number in 0..settings.states {
        let count = pick_point(&mut random, &flushes, first, device.event_count());
        let image = device.crash_after(count, &mut random)?;
        let story = || format!("seed {seed}, image by {form}, state {number}: a crash after {count} events");
        judge::judge(&image, &journal, count).with_context(story)?;
        report.states = report.states.saturating_add(1);
        if number % settings.check_every == 0 {
            let name = format!("crash-{seed}-{count}");
            let is_clean = judge::check(&image, folder, &name).with_context(story)?;
            report.checked = report.checked.saturating_add(u64::from(is_clean));
        }
    }
    Ok(report)
}

fn flushes_after(device: &RecordingDevice, first: usize) -> Vec<usize> {
    let events = device.events();
    let flushes = events.iter().enumerate().skip(first);
    flushes.filter(|(_, event)| **event == Event::Flush).map(|(index, _)| index).collect()
}

/// Half of the crashes are near a flush: that is where orders matter.
pub(super) fn pick_point(random: &mut Random, flushes: &[usize], first: usize, end: usize) -> usize {
    let near = random.pick(flushes).copied();
    match near {
        Some(flush) if random.one_in(2) => flush.saturating_sub(1).saturating_add(random.index(5)).clamp(first, end),
        _ => first.saturating_add(random.index(end.saturating_sub(first).saturating_add(1))),
    }
}
