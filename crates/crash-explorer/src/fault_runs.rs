//! Runs workloads on devices that fail while files are synced: each caller of a sync must get the error, and the device
//! must have a state of a crash at that moment. Called by the tests of `testkit`, through `explore_faults`.

use super::ace::{ones, twos};
use super::drive::Scene;
use super::explore::Explorer;
use super::image::Image;
use super::random_workloads::wander;
use super::recording::Recording;
use super::state::Found;
use super::step::Step;
use super::tape::{TapeDevice, Time};
use super::workload::{Workload, salt};
use super::{Config, Report};
use crate::Random;
use crate::faults::{FailingDevice, Fault, FaultKind};
use anyhow::{Context, Result, bail, ensure};
use blockdev::Op;
use std::sync::Arc;

/// Bytes of a write that is cut short.
const SHORT_BYTES: u64 = 700;
/// States that are explored after each fault.
const STATES_EACH: u64 = 6;

/// Counts of the faults.
#[derive(Debug, Clone, Default)]
pub struct FaultsReport {
    /// Faults that happened.
    pub faults: u64,
    /// Of those, how many a call of fsync, fdatasync or sync was told.
    pub told_to_sync: u64,
    /// Report of the explored states.
    pub report: Report,
}

/// Lets each write and flush of so many workloads fail in turn.
///
/// # Errors
/// The first fault that was not answered as it should be. Images that are wrong are in the report.
pub fn explore_faults(config: &Config, workloads: u64) -> Result<FaultsReport> {
    let explorer = Explorer::new(config);
    let mut total = FaultsReport::default();
    let mut random = Random::new(config.seed);
    let (ones, twos) = (ones(), twos(config.seed));
    for number in 0..workloads {
        let drawn = match number % 4 {
            0 => random.pick(&ones).cloned(),
            3 => Some(wander(config.seed, number)),
            _ => random.pick(&twos).cloned(),
        };
        let Some(workload) = drawn else { continue };
        for (op, kind) in [
            (Op::Write, FaultKind::Once),
            (Op::Write, FaultKind::Always),
            (Op::Write, FaultKind::NoSpace),
            (Op::Write, FaultKind::Torn { bytes: SHORT_BYTES }),
            (Op::Flush, FaultKind::Once),
        ] {
            let mut after = 0;
            loop {
                let fault = Fault { op, after, kind };
                let story = || format!("{} (seed {}), {fault:?}", workload.name, config.seed);
                if !one(&explorer, &workload, fault, &mut total).with_context(story)? {
                    break;
                }
                after += 1;
            }
        }
    }
    total.report = explorer.report();
    Ok(total)
}

/// One run with one fault; false when the workload ended before it.
fn one(explorer: &Explorer<'_>, workload: &Workload, fault: Fault, total: &mut FaultsReport) -> Result<bool> {
    let start = Image::new(explorer.base(workload.form)?);
    let device = Arc::new(TapeDevice::new(start.clone()));
    let failing = Arc::new(FailingDevice::new(Arc::<TapeDevice>::clone(&device)));
    let scene = workload.prepare(&*explorer.config.format, &device, Arc::<FailingDevice>::clone(&failing))?;
    let first = device.now();
    failing.plan(vec![fault]);
    if fault.kind == FaultKind::NoSpace {
        return one_without_room(explorer, workload, (start, &device), (&scene, &failing, first, fault), total);
    }
    let mut ran = Vec::new();
    let mut told = None;
    for (fill, step) in (1..).zip(workload.threads.iter().flatten()) {
        let began = device.now();
        let result = scene.run(step, fill);
        ran.push(super::recording::Ran { began, returned: device.now(), text: step.to_string() });
        match result {
            Ok(done) => done.with_context(|| step.to_string())?,
            Err(error) => {
                told = Some((step, error));
                break;
            }
        }
        ensure!(failing.happened() == 0 || !step.is_sync(), "{step} returned well after the fault");
    }
    if failing.happened() == 0 {
        ensure!(told.is_none(), "an error without a fault: {told:?}");
        return Ok(false);
    }
    let Some((step, error)) = told else { bail!("no call reported the fault") };
    ensure!(!is_full(&error), "{step} says that the volume is full");
    total.faults += 1;
    total.told_to_sync += u64::from(step.is_sync());
    is_poisoned(&scene.volume, step)?;
    Found::read(&scene.volume, &scene.oracle.lock()).context("reads do not go on")?;
    let oracle = scene.oracle.lock().clone();
    drop(scene);
    let name = name_of(workload, fault);
    let recording =
        Recording::new(start, device.tape(), oracle, ran, salt(&*explorer.config.format, workload.form), first)?;
    explorer.recording(&name, workload.form, &recording, STATES_EACH, 1);
    Ok(true)
}

fn name_of(workload: &Workload, fault: Fault) -> String {
    format!("{}-fault-{}-{:?}-{:?}", workload.name, fault.after, fault.op, fault.kind)
}

/// One run in which a write finds no room on the host, once: the caller that is told asks again, and succeeds; the
/// workload goes on to its end, and all that was promised, before and after, is there in each state that a crash
/// leaves.
fn one_without_room(
    explorer: &Explorer<'_>,
    workload: &Workload,
    (start, device): (Image, &Arc<TapeDevice>),
    (scene, failing, first, fault): (&Scene, &FailingDevice, Time, Fault),
    total: &mut FaultsReport,
) -> Result<bool> {
    let mut ran = Vec::new();
    for (fill, step) in (1..).zip(workload.threads.iter().flatten()) {
        let began = device.now();
        if let Err(error) = scene.run(step, fill) {
            ensure!(is_full(&error), "{step} says: {error:#}");
            total.told_to_sync += u64::from(step.is_sync());
            scene.run(step, fill)?.with_context(|| format!("{step}, asked again"))?;
        }
        ran.push(super::recording::Ran { began, returned: device.now(), text: step.to_string() });
    }
    if failing.happened() == 0 {
        return Ok(false);
    }
    total.faults += 1;
    scene.volume.create_dir("/after-the-fault")?;
    scene.volume.remove_dir("/after-the-fault")?;
    scene.volume.sync()?;
    let oracle = scene.oracle.lock().clone();
    let name = name_of(workload, fault);
    let recording =
        Recording::new(start, device.tape(), oracle, ran, salt(&*explorer.config.format, workload.form), first)?;
    explorer.recording(&name, workload.form, &recording, STATES_EACH, 1);
    Ok(true)
}

fn is_full(error: &anyhow::Error) -> bool {
    error.downcast_ref::<vfs::Error>().is_some_and(|error| error.blame() == vfs::Blame::Space)
}

/// After a failed write nothing may be promised any more.
fn is_poisoned(volume: &vfs::Volume, step: &Step) -> Result<()> {
    let made = volume.create_dir("/after-the-fault");
    let synced = volume.sync();
    let file = vfs::FileOptions::new().read(true).open(volume, "/")?;
    let fsynced = file.sync_all();
    ensure!(
        made.is_err() && synced.is_err() && fsynced.is_err(),
        "after the fault in {step} the volume goes on: {made:?}, {synced:?}, {fsynced:?}"
    );
    Ok(())
}
