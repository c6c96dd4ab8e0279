//! Describes a workload and the image it begins with, and records a run of it. `plan` and `explore` call it; the
//! generators (`ace`, `programs`, ...) make workloads.

use super::cuts::Epoch;
use super::drive::Scene;
use super::image::Image;
use super::recording::{Ran, Recording};
use super::step::Step;
use super::tape::TapeDevice;
use super::{Access, Form, Format};
use crate::number::to_u64;
use anyhow::{Context, Result, bail};
use blockdev::Device;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The operations on an empty volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Workload {
    pub(super) name: String,
    pub(super) form: Form,
    /// Done and committed before.
    pub(super) setup: Vec<Step>,
    /// Done at the same time.
    pub(super) threads: Vec<Vec<Step>>,
}

/// Differs between forms with different images.
pub(super) fn salt(format: &dyn Format, form: Form) -> u64 {
    match format.base(form) {
        Form::Small => 0,
        Form::Usual => 1,
        Form::NoInline => 2,
        Form::Compressed => 3,
    }
}

impl Workload {
    /// True when the format can do all of it.
    pub(super) fn is_for(&self, format: &dyn Format) -> bool {
        self.setup.iter().chain(self.threads.iter().flatten()).all(|step| format.can(step))
    }

    /// Runs it on an image of its form.
    pub(super) fn record(&self, format: &dyn Format, base: &Arc<dyn Device>) -> Result<Recording> {
        let start = Image::new(Arc::clone(base));
        let device = Arc::new(TapeDevice::new(start.clone()));
        let scene = self.prepare(format, &device, Arc::<TapeDevice>::clone(&device))?;
        let first = device.now();
        let ran = self.run(&scene)?;
        Recording::new(start, device.tape(), scene.oracle.lock().clone(), ran, salt(format, self.form), first)
    }

    /// Opens a volume on `outer`, which leads to `device`, runs the preparations of the workload, and opens it again,
    /// so that state loaded at the first use is not loaded yet.
    pub(super) fn prepare(
        &self,
        format: &dyn Format,
        device: &Arc<TapeDevice>,
        outer: Arc<dyn Device>,
    ) -> Result<Scene> {
        let volume = format.open(self.form, Arc::clone(&outer), Access::ReadWrite)?;
        let before = Scene::new(volume.clone(), Arc::clone(device), &BTreeSet::new())?;
        for (fill, step) in (1..).zip(&self.setup) {
            run_one(&before, step, fill).context("setting up")?;
        }
        drop(before);
        volume.close()?;
        let volume = format.open(self.form, outer, Access::ReadWrite)?;
        // Files that are renamed later have other names then: all of them are read now.
        let mut paths = paths(self.threads.iter().flatten());
        super::drive::all_paths(&volume, "", &mut paths)?;
        Scene::new(volume, Arc::clone(device), &paths)
    }

    fn run(&self, scene: &Scene) -> Result<Vec<Ran>> {
        let one_thread = |(thread, steps): (u64, &Vec<Step>)| {
            let fills = (thread + 1) * 1_000_000..;
            fills.zip(steps).map(|(fill, step)| run_one(scene, step, fill)).collect::<Result<Vec<Ran>>>()
        };
        if let [steps] = &*self.threads {
            return one_thread((0, steps));
        }
        let mut all = Vec::new();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..).zip(&self.threads).map(|pair| scope.spawn(move || one_thread(pair))).collect();
            for thread in threads {
                all.extend(thread.join().unwrap_or_else(|_| bail!("a thread of the workload panicked"))?);
            }
            anyhow::Ok(())
        })?;
        all.sort_by_key(|ran| ran.began);
        Ok(all)
    }
}

/// Runs a workload on a volume that exists. Lines are named where a step cannot be done.
pub(super) fn record_given(format: &dyn Format, base: &Arc<dyn Device>, steps: &[(usize, Step)]) -> Result<Recording> {
    let start = Image::new(Arc::clone(base));
    let device = Arc::new(TapeDevice::new(start.clone()));
    let volume = format.open(Form::Small, Arc::<TapeDevice>::clone(&device), Access::ReadWrite)?;
    let first = device.now();
    let scene = Scene::new(volume, device, &paths(steps.iter().map(|(_, step)| step)))?;
    let mut ran = Vec::new();
    for (fill, (line, step)) in (1..).zip(steps) {
        ran.push(run_one(&scene, step, fill).with_context(|| format!("line {line}"))?);
    }
    Recording::new(start, scene.device.tape(), scene.oracle.lock().clone(), ran, 0, first)
}

fn run_one(scene: &Scene, step: &Step, fill: u64) -> Result<Ran> {
    let began = scene.device.now();
    if let Err(error) = scene.run(step, fill)? {
        return Err(error).with_context(|| step.to_string());
    }
    Ok(Ran { began, returned: scene.device.now(), text: step.to_string() })
}

fn paths<'a>(steps: impl Iterator<Item = &'a Step>) -> BTreeSet<String> {
    steps.flat_map(Step::paths).map(str::to_owned).collect()
}

/// The state of a crash in words: the finished operations, and the surviving writes.
pub(super) fn story(recording: &Recording, chosen: &super::cuts::Chosen) -> String {
    let moments = super::cuts::moments(&recording.tape, &recording.epochs, chosen).unwrap_or_default();
    let mut lines = Vec::new();
    for ran in &recording.ran {
        let state = match (ran.began, ran.returned) {
            (_, returned) if returned <= moments.0 => "done   ",
            (began, _) if began < moments.1 => "running",
            _ => "later  ",
        };
        lines.push(format!("  {state} {}", ran.text));
    }
    let epoch: Option<&Epoch> = recording.epochs.get(chosen.epoch);
    let pending = epoch.map_or(0, |epoch| epoch.pending.len());
    lines.push(format!("flush {} had returned; of the {pending} writes since, these are there:", chosen.epoch));
    for (number, part) in &chosen.parts {
        if let Some(write) = recording.tape.writes.get(*number) {
            let index = epoch.and_then(|epoch| epoch.pending.iter().position(|other| other == number)).unwrap_or(0);
            let (offset, len) = (write.offset, to_u64(write.data.len()));
            lines.push(format!("  write {index} of {len} bytes at {offset}: {part:?}"));
        }
    }
    lines.join("\n")
}
