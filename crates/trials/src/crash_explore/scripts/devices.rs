//! Implements scripts that change the devices of a volume: devices are added, removed, replaced and brought up to date,
//! profiles converted, a sprout made. `scripts` passes them to `crash_explorer`, which tries power cuts.
//!
//! The devices are parts of the recorded one. After each power cut, each set of devices that a person may take for the
//! volume's is given: it either is refused by name, or has everything that was promised; one of them has it. If the
//! profile tolerates that, the volume is then opened without each of its devices.

use super::{Contents, contents, difference};
use anyhow::{Context as _, Result, bail, ensure};
use blockdev::Device;
use blockdev::backends::MemoryDevice;
use btrfs::{BalanceSpec, Env, MakeOptions, Volume};
use btrfs_check::{Pass, PassTable as _};
use btrfs_crash::{Several, volume_options};
use btrfs_pool::Profile;
use crash_explorer::{Access, CLOCK, Form, Format, Promises, Random, Script};
use parking_lot::Mutex;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

/// Devices beside those that the volume begins with.
const SPARE: usize = 2;
/// Bytes of the largest file.
const FILE_BYTES_MAX: u64 = 150_000;

/// A change of the devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Add,
    Remove,
    Replace,
    ReplaceMissing,
    Resync,
    Convert,
    Sprout,
}

/// The changes of a script, by its number.
const SCRIPTS: &[&[Change]] = &[
    &[Change::Add, Change::Convert, Change::Remove],
    &[Change::Replace, Change::Add],
    &[Change::Resync, Change::Replace],
    &[Change::ReplaceMissing, Change::Resync],
    &[Change::Sprout],
];

/// A set of devices that may be given for the volume.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Set {
    parts: Vec<usize>,
    degraded: bool,
    read_only: bool,
}

impl Set {
    fn of(parts: &[usize]) -> Self {
        Self { parts: parts.to_vec(), degraded: false, read_only: false }
    }
}

/// The state that a promise is about.
#[derive(Debug, Clone)]
struct Stage {
    sets: Vec<Set>,
    contents: Contents,
}

/// The script.
pub(super) struct Devices {
    name: String,
    seed: u64,
    layout: Several,
    changes: &'static [Change],
    stages: Mutex<Vec<Stage>>,
}

impl Devices {
    pub(super) fn new(name: String, seed: u64, number: u64, layout: Several) -> Self {
        let index = usize::try_from(number).unwrap_or(0) % SCRIPTS.len();
        let changes = SCRIPTS.get(index).copied().unwrap_or_default();
        Self { name, seed, layout, changes, stages: Mutex::default() }
    }

    fn open(&self, device: &Arc<dyn Device>, set: &Set) -> Result<Volume> {
        let parts = set.parts.iter().map(|part| self.layout.part(device, *part)).collect();
        let options = volume_options(self.form()).degraded(set.degraded).read_only(set.read_only);
        Ok(options.open_devices(parts)?)
    }

    /// The members at the beginning.
    fn members(&self) -> Vec<usize> {
        (0..self.layout.count).collect()
    }

    /// Notes a state that a promise is to be made about; changes until the next one lead to one of `sets`.
    fn note(&self, sets: Vec<Set>, volume: &Volume) -> Result<()> {
        let contents = contents(volume, Path::new("/"))?;
        self.stages.lock().push(Stage { sets, contents });
        Ok(())
    }

    /// Writes some files, and makes them durable.
    fn write(&self, volume: &Volume, random: &mut Random) -> Result<()> {
        for _ in 0..3 {
            let len = random.below(FILE_BYTES_MAX);
            volume.write(format!("file{}", random.below(12)), random.content(usize::try_from(len)?))?;
        }
        Ok(volume.sync()?)
    }
}

/// The profile of data and metadata that a volume is converted to and fro.
fn converted(profile: Profile, count: usize) -> &'static str {
    match profile {
        Profile::Raid1 if count > 2 => "convert=raid1c3",
        Profile::Raid1 => "convert=dup",
        _ => "convert=raid1",
    }
}

impl Script for Devices {
    fn name(&self) -> &str {
        &self.name
    }

    fn form(&self) -> Form {
        Form::Small
    }

    fn prepare(&self, device: Arc<dyn Device>) -> Result<()> {
        let mut random = Random::new(self.seed);
        let (data_profile, metadata_profile) = (self.layout.profile, self.layout.profile);
        let make = MakeOptions { data_profile, metadata_profile, nodesize: 4096, ..MakeOptions::default() };
        let parts = self.members().iter().map(|part| self.layout.part(&device, *part)).collect();
        let volume = volume_options(self.form()).make_devices(parts, &make)?;
        self.write(&volume, &mut random)?;
        self.stages.lock().clear();
        self.note(vec![Set::of(&self.members())], &volume)?;
        Ok(volume.close()?)
    }

    fn run(&self, device: Arc<dyn Device>, promises: &Promises<'_>) -> Result<()> {
        let mut random = Random::new(self.seed ^ 1);
        let mut run = Run { script: self, device: &device, promises, members: self.members(), next: self.layout.count };
        for change in self.changes {
            run.change(*change, &mut random).with_context(|| format!("{change:?}"))?;
        }
        Ok(())
    }

    fn judge(&self, device: Arc<dyn Device>, promised: usize) -> Result<()> {
        let stages = self.stages.lock().clone();
        let (now, next) = (stages.get(promised).context("no such promise")?, stages.get(promised + 1));
        let mut sets = now.sets.clone();
        sets.extend(next.iter().flat_map(|next| next.sets.clone()));
        sets.dedup();
        let mut opened = 0usize;
        for set in &sets {
            let volume = match self.open(&device, set) {
                Ok(volume) => volume,
                Err(error) if is_refusal(&error) => continue,
                Err(error) => return Err(error.context(format!("{set:?}"))),
            };
            let found = contents(&volume, Path::new("/"))?;
            let is_right = |stage: &Stage| lost(&found, &now.contents, &stage.contents);
            if let Some(lost) = is_right(next.unwrap_or(now)) {
                bail!("{set:?}: {lost}");
            }
            if !set.read_only {
                volume.write("after", b"the power cut")?;
                volume.close()?;
                self.check(&device, set)?;
                self.open_without_each(&device, set, now, next.unwrap_or(now))?;
            }
            opened += 1;
        }
        ensure!(opened > 0, "no set of devices is the volume: {sets:?}");
        Ok(())
    }
}

impl Devices {
    /// Checks the volume, if all of its devices are there.
    fn check(&self, device: &Arc<dyn Device>, set: &Set) -> Result<()> {
        if set.degraded {
            return Ok(());
        }
        let parts: Vec<_> = set.parts.iter().map(|part| self.layout.part(device, *part)).collect();
        let passes = Pass::all().iter().map(|info| info.pass).collect();
        let options = btrfs_check::Options { passes, threads: 1, ..btrfs_check::Options::default() };
        let report = btrfs_check::check(&parts, &options, &())?;
        ensure!(report.counts.is_empty(), "{set:?}: a check finds {:?}", report.findings.first());
        Ok(())
    }

    /// Opens the volume without each of its devices, where the profile tolerates that.
    fn open_without_each(&self, device: &Arc<dyn Device>, set: &Set, now: &Stage, next: &Stage) -> Result<()> {
        let converts = self.changes.contains(&Change::Convert) || self.changes.contains(&Change::Sprout);
        if set.degraded || converts {
            return Ok(());
        }
        for lost_part in &set.parts {
            let parts = set.parts.iter().copied().filter(|part| part != lost_part).collect();
            let left = Set { parts, degraded: true, read_only: true };
            let volume = self.open(device, &left).with_context(|| format!("without {lost_part}"))?;
            let found = contents(&volume, Path::new("/"))?;
            if let Some(lost) = lost(&found, &now.contents, &next.contents) {
                bail!("without device {lost_part}: {lost}");
            }
        }
        Ok(())
    }
}

/// True for devices that are refused because they do not make up a volume.
fn is_refusal(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        matches!(cause.downcast_ref::<btrfs::Error>(), Some(btrfs::Error::Members(_)))
            || cause.downcast_ref::<btrfs::MemberError>().is_some()
            || cause.to_string().contains("no superblock")
            || cause.to_string().contains("seed")
    })
}

/// A promised path that is not there: each path has its contents of either stage, or is what the test itself wrote.
fn lost(found: &Contents, now: &Contents, next: &Contents) -> Option<String> {
    for (path, facts) in now {
        let there = found.get(path);
        // Times of directories change with each file.
        let is_dir = facts.starts_with("Dir");
        if there != Some(facts) && there != next.get(path) && !is_dir {
            let expected = Contents::from([(path.clone(), facts.clone())]);
            let found = found.get(path).map(|facts| (path.clone(), facts.clone())).into_iter().collect();
            return difference(&found, &expected);
        }
    }
    None
}

/// A script while it runs.
struct Run<'a> {
    script: &'a Devices,
    device: &'a Arc<dyn Device>,
    promises: &'a Promises<'a>,
    members: Vec<usize>,
    /// The next unused part.
    next: usize,
}

impl Run<'_> {
    fn open(&self, set: &Set) -> Result<Volume> {
        self.script.open(self.device, set)
    }

    fn spare(&mut self) -> Result<usize> {
        let part = self.next;
        ensure!(part < self.script.layout.count + SPARE, "no spare device");
        self.next += 1;
        Ok(part)
    }

    /// Promises the present state, from which the next change leads to `sets`.
    fn promise(&self, volume: &Volume, sets: Vec<Set>) -> Result<()> {
        self.script.note(sets, volume)?;
        self.promises.made();
        Ok(())
    }

    /// Writes to the changed volume, and promises that.
    fn end(&self, volume: Volume, set: Set, random: &mut Random) -> Result<()> {
        self.script.write(&volume, random)?;
        self.promise(&volume, vec![set])?;
        Ok(volume.close()?)
    }

    fn change(&mut self, change: Change, random: &mut Random) -> Result<()> {
        let before = Set::of(&self.members);
        match change {
            Change::Add => {
                let new = self.spare()?;
                self.members.push(new);
                let after = Set::of(&self.members);
                let volume = self.open(&before)?;
                self.script.write(&volume, random)?;
                self.promise(&volume, vec![before, after.clone()])?;
                volume.add_device(&self.script.layout.part(self.device, new))?;
                self.promise(&volume, vec![after.clone()])?;
                self.end(volume, after, random)
            }
            Change::Remove => {
                self.members.remove(0);
                let after = Set::of(&self.members);
                let volume = self.open(&before)?;
                self.script.write(&volume, random)?;
                self.promise(&volume, vec![before, after.clone()])?;
                let first = volume.devices().iter().map(|device| device.id.0).min().context("no device")?;
                volume.remove_device(first, &mut |_| ControlFlow::Continue(()))?;
                self.promise(&volume, vec![after.clone()])?;
                self.end(volume, after, random)
            }
            Change::Replace => self.replace(before, random),
            Change::ReplaceMissing => {
                self.members.remove(0);
                let left = Set { degraded: true, ..Set::of(&self.members) };
                self.replace(left, random)
            }
            Change::Resync => self.resync(&before, random),
            Change::Convert => {
                let volume = self.open(&before)?;
                self.script.write(&volume, random)?;
                self.promise(&volume, vec![before.clone()])?;
                let profile = Profile::from_flags(self.script.layout.profile)?;
                let back = format!("convert={}", profile.to_string().to_lowercase());
                for to in [converted(profile, self.members.len()), &back] {
                    let spec = BalanceSpec::default().data(to)?.metadata(to)?.system(to)?.force();
                    volume.balance(spec, &mut |_| ControlFlow::Continue(()))?;
                    self.promise(&volume, vec![before.clone()])?;
                }
                Ok(volume.close()?)
            }
            Change::Sprout => self.sprout(&before, random),
        }
    }

    /// Replaces the first device, or the one that is missing.
    fn replace(&mut self, before: Set, random: &mut Random) -> Result<()> {
        let new = self.spare()?;
        let volume = self.open(&before)?;
        if !before.degraded {
            self.members.remove(0);
        }
        self.members.push(new);
        let after = Set::of(&self.members);
        self.script.write(&volume, random)?;
        self.promise(&volume, vec![before.clone(), after.clone()])?;
        let devices = volume.devices();
        let old = match before.degraded {
            true => devices.iter().find(|device| device.is_missing),
            false => devices.iter().min_by_key(|device| device.id),
        };
        let old = old.context("no device")?.id.0;
        let target = self.script.layout.part(self.device, new);
        let report = volume.replace_device(old, target, &mut |_| ControlFlow::Continue(()))?;
        ensure!(report.lost.is_empty(), "{report:?}");
        self.promise(&volume, vec![after.clone()])?;
        self.end(volume, after, random)
    }

    fn resync(&self, whole: &Set, random: &mut Random) -> Result<()> {
        let stale = *self.members.first().context("no device")?;
        let left = Set { degraded: true, ..Set::of(self.members.get(1..).unwrap_or_default()) };
        let volume = self.open(&left)?;
        self.script.write(&volume, random)?;
        let both = || vec![left.clone(), whole.clone()];
        self.promise(&volume, both())?;
        self.script.write(&volume, random)?;
        self.promise(&volume, both())?;
        let target = self.script.layout.part(self.device, stale);
        volume.resync_device(target, &mut |_| ControlFlow::Continue(()))?;
        self.promise(&volume, vec![whole.clone()])?;
        self.end(volume, whole.clone(), random)
    }

    /// Makes the volume a seed, and a sprout of it.
    fn sprout(&mut self, before: &Set, random: &mut Random) -> Result<()> {
        let volume = self.open(before)?;
        self.script.write(&volume, random)?;
        let seed = Set { read_only: true, ..before.clone() };
        self.promise(&volume, vec![before.clone(), seed.clone()])?;
        volume.close()?;
        let parts: Vec<_> = before.parts.iter().map(|part| self.script.layout.part(self.device, *part)).collect();
        btrfs_pool::Members::read(&parts, btrfs_pool::Intent::ReadOnly, None, btrfs_pool::Mode::Strict)?
            .mark_seed(true)?;
        let new = self.spare()?;
        let mut with_new = before.parts.clone();
        with_new.insert(0, new);
        let sprout = Set::of(&with_new);
        self.promise(&self.open(&seed)?, vec![seed.clone(), sprout.clone()])?;
        let target = self.script.layout.part(self.device, new);
        // The UUIDs of the sprout are not those of the seed.
        let options = volume_options(self.script.form()).env(Env::seeded(2, CLOCK));
        let volume = options.sprout(parts, target)?;
        self.promise(&volume, vec![seed, sprout.clone()])?;
        self.end(volume, sprout, random)
    }
}

/// Devices without a volume: the scripts make it.
pub(super) struct Blank(pub(super) Several);

impl Format for Blank {
    fn make(&self, _: Form) -> Result<Arc<dyn Device>> {
        Ok(Arc::new(MemoryDevice::new(self.0.bytes_of(self.0.count + SPARE)).into_read_only()))
    }

    fn open(&self, _: Form, _: Arc<dyn Device>, _: Access) -> Result<vfs::Volume> {
        bail!("scripts open their volumes themselves")
    }
}
