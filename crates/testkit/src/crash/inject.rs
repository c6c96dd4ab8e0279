//! Lets the n-th write or flush of a workload fail, and judges the image that results. Called by
//! `testkit/tests/crash.rs`.

use super::judge::{check, judge, read_all};
use super::workload::{Journal, Settings, fresh, open_on, options};
use crate::faults::{FailingDevice, Fault, FaultKind};
use anyhow::{Context, Result, bail, ensure};
use blockdev::backends::MemoryDevice;
use blockdev::{Device, Op};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use vfs::Volume;
use vfs_conformance::property::is_full;

/// Bytes of a write that is cut short.
const SHORT_BYTES: u64 = 700;

/// Counts of the faults of one seed.
#[derive(Debug, Clone, Copy, Default)]
pub struct FaultReport {
    /// Faults that happened, all answered well.
    pub faults: u64,
    /// Images that `btrfs check` found clean afterwards.
    pub checked: u64,
}

/// Runs the workload of a seed once for every `stride`-th write and flush of it, which fails in one of three ways.
///
/// # Errors
/// The first fault that was not answered as it should be.
pub fn inject(seed: u64, settings: &Settings, stride: u64, folder: &Path) -> Result<FaultReport> {
    let (image, form) = fresh(seed, settings, folder)?;
    let mut report = FaultReport::default();
    for (op, kind) in [
        (Op::Write, FaultKind::Once),
        (Op::Write, FaultKind::Torn { bytes: SHORT_BYTES }),
        (Op::Write, FaultKind::Always),
        (Op::Flush, FaultKind::Once),
    ] {
        let step = if op == Op::Flush { 1 } else { stride.max(1) };
        let mut after = if op == Op::Flush { 0 } else { seed % step };
        loop {
            let fault = Fault { op, after, kind };
            let story = || format!("seed {seed}, image by {form}, {fault:?}");
            let device = image.duplicate();
            let Some(left) = one(seed, settings, device, fault).with_context(story)? else {
                break;
            };
            report.faults = report.faults.saturating_add(1);
            if report.faults % settings.check_every == 1 {
                let name = format!("fault-{seed}-{}", report.faults);
                let is_clean = check(&left, folder, &name).with_context(story)?;
                report.checked = report.checked.saturating_add(u64::from(is_clean));
            }
            after = after.saturating_add(step);
        }
    }
    Ok(report)
}

/// One run with one fault; returns the device afterwards, or `None` if the workload ended before the fault.
fn one(seed: u64, settings: &Settings, image: MemoryDevice, fault: Fault) -> Result<Option<MemoryDevice>> {
    let image = Arc::new(image);
    let device: Arc<dyn Device> = Arc::<MemoryDevice>::clone(&image);
    let failing = Arc::new(FailingDevice::new(device));
    let volume = open_on(&failing, &options(seed))?;
    volume.sync()?;
    failing.plan(vec![fault]);
    let (journal, error) = Journal::run(seed, settings, &volume, || 0)?;
    if failing.happened() == 0 {
        return Ok(None);
    }
    match error {
        None => bail!("the fault happened, and no call failed"),
        Some(error) if is_full(&error) => bail!("the fault is told as NoSpace"),
        Some(_) => {}
    }
    refuses_changes(&volume)?;
    let mut names = BTreeMap::new();
    read_all(&volume, Path::new("/"), &mut names).context("reads go on")?;
    drop(volume);
    judge(&image, &journal, 0)?;
    Ok(Some(image.duplicate()))
}

/// After a failed write nothing may be promised any more.
fn refuses_changes(volume: &Volume) -> Result<()> {
    let made = volume.create_dir("after the fault");
    let synced = volume.sync();
    ensure!(made.is_err() && synced.is_err(), "a volume whose device failed goes on: {made:?}, {synced:?}");
    Ok(())
}
