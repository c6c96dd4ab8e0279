//! Spinney and the kernel change one volume in turns, chosen at random: they write, add, remove and replace devices,
//! convert profiles, and lose a device that comes back.
//!
//! The trial keeps a list of all files. After each round each file has to have its contents for the kernel and for
//! Spinney, also without a device where the profiles tolerate that, and `btrfs check` and our own check of all data
//! must find no error.

use super::{Attached, Trial, joined};
use crate::system::{btrfs_program, mkfs_program, run as run_program};
use anyhow::{Context as _, Result, ensure};
use btrfs::{TreeId, Volume};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use testkit::Random;

const FIRST_DEVICES: usize = 3;
const DEVICES_MAX: usize = 6;
const DEVICE_BYTES_MIN: u64 = 700 << 20;
/// Replacing devices are at least as large as all others.
const NEW_BYTES: u64 = 1 << 30;
const FILES_PER_ROUND: u64 = 12;
const FILE_BYTES_MAX: u64 = 800_000;
/// With more directories than that, the oldest one is removed.
const DIRECTORIES_MAX: usize = 12;

/// A profile: its name, the fewest devices, and how many may be lost.
type Profile = (&'static str, usize, usize);

const DATA: &[Profile] = &[
    ("single", 1, 0),
    ("dup", 1, 0),
    ("raid0", 2, 0),
    ("raid1", 2, 1),
    ("raid10", 4, 1),
    ("raid1c3", 3, 2),
    ("raid1c4", 4, 3),
];
const METADATA: &[Profile] = &[("dup", 1, 0), ("raid1", 2, 1), ("raid10", 4, 1), ("raid1c3", 3, 2), ("raid1c4", 4, 3)];

/// The side that does something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Kernel,
    Spinney,
}

const SIDES: &[Side] = &[Side::Kernel, Side::Spinney];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Write,
    Add,
    Remove,
    Replace,
    Convert,
    LoseAndReturn,
}

const ACTS: &[Act] = &[Act::Write, Act::Add, Act::Remove, Act::Replace, Act::Convert, Act::LoseAndReturn];

/// The volume, and what belongs into it.
struct Game<'a> {
    trial: &'a Trial<'a>,
    random: Random,
    members: Vec<PathBuf>,
    /// Number of the next image.
    next: usize,
    data: Profile,
    metadata: Profile,
    /// Digests of the files' contents, by path.
    files: BTreeMap<String, Vec<u8>>,
    round: u64,
}

impl Trial<'_> {
    /// Plays so many rounds.
    pub(super) fn ping_pong(&self, rounds: u64, seed: u64) -> Result<()> {
        let [data, metadata] = [DATA.get(3), METADATA.get(1)].map(|profile| profile.copied().unwrap_or(("", 0, 0)));
        let mut game = Game {
            trial: self,
            random: Random::new(seed),
            members: Vec::new(),
            next: 0,
            data,
            metadata,
            files: BTreeMap::new(),
            round: 0,
        };
        game.begin()?;
        for round in 1..=rounds {
            game.round = round;
            let (act, side) = game.choose();
            let name = format!("round {round}: {act:?} by {side:?}, {} devices, {:?}", game.members.len(), game.data);
            game.play(act, side).with_context(|| name.clone())?;
            game.judge().with_context(|| format!("after {name}"))?;
            println!("{name}: right");
        }
        println!("ping-pong: {rounds} rounds with seed {seed}, {} files, 0 differences", game.files.len());
        Ok(())
    }
}

impl Game<'_> {
    fn begin(&mut self) -> Result<()> {
        for _ in 0..FIRST_DEVICES {
            let bytes = DEVICE_BYTES_MIN + (self.random.below(200) << 20);
            let image = self.image(bytes)?;
            self.members.push(image);
        }
        let mut words = vec!["-q", "-f", "-d", self.data.0, "-m", self.metadata.0];
        let names: Vec<String> = self.members.iter().map(|image| shown(image)).collect();
        words.extend(names.iter().map(String::as_str));
        run_program(&mkfs_program(), &words)?;
        self.write(Side::Kernel, false)?;
        self.judge()
    }

    fn image(&mut self, bytes: u64) -> Result<PathBuf> {
        let image = self.trial.folder.join(format!("member{}.img", self.next));
        self.next += 1;
        std::fs::File::create(&image)?.set_len(bytes)?;
        Ok(image)
    }

    /// An act that the volume is ready for, and its side.
    fn choose(&mut self) -> (Act, Side) {
        let side = *self.random.pick(SIDES).unwrap_or(&Side::Kernel);
        loop {
            let act = *self.random.pick(ACTS).unwrap_or(&Act::Write);
            let needed = self.data.1.max(self.metadata.1);
            let is_possible = match act {
                Act::Write | Act::Replace | Act::Convert => true,
                Act::Add => self.members.len() < DEVICES_MAX,
                Act::Remove => self.members.len() > needed.max(2),
                Act::LoseAndReturn => self.may_lose() > 0,
            };
            if is_possible {
                return (act, side);
            }
        }
    }

    fn may_lose(&self) -> usize {
        self.data.2.min(self.metadata.2)
    }

    fn play(&mut self, act: Act, side: Side) -> Result<()> {
        match act {
            Act::Write => self.write(side, false),
            Act::Add => self.add(side),
            Act::Remove => self.remove(side),
            Act::Replace => self.replace(side),
            Act::Convert => self.convert(side, None),
            Act::LoseAndReturn => self.lose_and_return(side),
        }
    }

    fn list(&self) -> String {
        shown(&joined(&self.members))
    }

    fn spinney(&self, words: &[&str]) -> Result<()> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        self.trial.program(&words)
    }

    /// Mounts the volume by the kernel while `work` runs, which gets the directory and the loop devices.
    fn on_kernel(
        &self,
        members: &[PathBuf],
        options: &str,
        work: impl FnOnce(&str, &[String]) -> Result<()>,
    ) -> Result<()> {
        forget_scanned();
        let attached = Attached::new(members)?;
        let loops = attached.0.clone();
        let mount = attached.mount(&format!("subvolid=5{options}"))?;
        let done = work(&shown(mount.path()), &loops);
        mount.unmount()?;
        forget_scanned();
        done
    }

    /// Mounts the volume by Spinney while `work` runs.
    fn on_spinney(&self, members: &[PathBuf], options: &str, work: impl FnOnce(&str) -> Result<()>) -> Result<()> {
        let point = self.trial.folder.join("mnt");
        std::fs::create_dir_all(&point)?;
        let dir = shown(&point);
        self.spinney(&["mount", &shown(&joined(members)), &dir, "-o", &format!("subvolid=5{options}")])?;
        let done = work(&dir);
        self.spinney(&["umount", &dir])?;
        done
    }

    fn write(&mut self, side: Side, degraded: bool) -> Result<()> {
        let members = self.members.clone();
        self.write_on(side, &members, degraded)
    }

    /// Writes a directory, changes files of others, and removes an old directory.
    fn write_on(&mut self, side: Side, members: &[PathBuf], degraded: bool) -> Result<()> {
        let plan = self.plan();
        let options = if degraded { ",degraded" } else { "" };
        let apply = |dir: &str| plan.iter().try_for_each(|step| step.apply(Path::new(dir)));
        let is_mounted = self.random.one_in(2);
        match side {
            Side::Kernel => self.on_kernel(members, options, |dir, _| apply(dir))?,
            Side::Spinney if is_mounted => self.on_spinney(members, options, apply)?,
            Side::Spinney => {
                let options = Volume::options().degraded(degraded).subvolume_id(TreeId::FS);
                let volume = options.open(joined(members))?;
                plan.iter().try_for_each(|step| step.apply_to(&volume))?;
                volume.close()?;
            }
        }
        for step in plan {
            step.note(&mut self.files);
        }
        Ok(())
    }

    fn plan(&mut self) -> Vec<Step> {
        let dir = format!("d{}-{}", self.round, self.random.below(1 << 30));
        let mut plan = vec![Step::MakeDir(dir.clone())];
        for number in 0..FILES_PER_ROUND {
            let len = self.random.below(if number % 3 == 0 { 2000 } else { FILE_BYTES_MAX });
            plan.push(Step::Write(format!("{dir}/f{number}"), self.contents(len)));
        }
        let known: Vec<String> = self.files.keys().cloned().collect();
        for _ in 0..3 {
            if let Some(path) = self.random.pick(&known).cloned() {
                let len = self.random.below(FILE_BYTES_MAX);
                plan.push(Step::Write(path, self.contents(len)));
            }
        }
        let mut dirs: Vec<&str> = known.iter().filter_map(|path| Some(path.split_once('/')?.0)).collect();
        dirs.dedup();
        if dirs.len() > DIRECTORIES_MAX
            && let Some(old) = self.random.pick(&dirs)
        {
            plan.push(Step::Remove((*old).to_owned()));
        }
        plan
    }

    fn contents(&mut self, len: u64) -> Vec<u8> {
        self.random.noise(usize::try_from(len).unwrap_or(0))
    }

    fn add(&mut self, side: Side) -> Result<()> {
        let new = self.image(NEW_BYTES)?;
        match side {
            Side::Spinney => self.spinney(&["device", "add", &self.list(), &shown(&new)])?,
            Side::Kernel => self.on_kernel(&self.members, "", |dir, _| {
                let added = Attached::new(std::slice::from_ref(&new))?;
                let device = added.0.first().context("a device")?;
                run_program(&btrfs_program(), &["device", "add", "-f", device, dir])?;
                added.leave_to_mount();
                Ok(())
            })?,
        }
        self.members.push(new);
        Ok(())
    }

    fn remove(&mut self, side: Side) -> Result<()> {
        let index = self.random.index(self.members.len());
        let old = self.members.get(index).cloned().context("a device")?;
        match side {
            Side::Spinney => self.spinney(&["device", "remove", &self.list(), &shown(&old)])?,
            Side::Kernel => self.on_kernel(&self.members, "", |dir, loops| {
                let device = loops.get(index).context("a device")?;
                run_program(&btrfs_program(), &["device", "remove", device, dir]).map(drop)
            })?,
        }
        self.members.remove(index);
        Ok(std::fs::remove_file(old)?)
    }

    fn replace(&mut self, side: Side) -> Result<()> {
        let index = self.random.index(self.members.len());
        let old = self.members.get(index).cloned().context("a device")?;
        let new = self.image(NEW_BYTES)?;
        let is_mounted = self.random.one_in(2);
        match side {
            Side::Spinney if is_mounted => self.on_spinney(&self.members, "", |dir| {
                self.spinney(&["device", "replace", "-q", dir, &shown(&old), &shown(&new)])
            })?,
            Side::Spinney => self.spinney(&["device", "replace", "-q", &self.list(), &shown(&old), &shown(&new)])?,
            Side::Kernel => self.on_kernel(&self.members, "", |dir, loops| {
                let added = Attached::new(std::slice::from_ref(&new))?;
                let (from, to) = (loops.get(index).context("a device")?, added.0.first().context("a device")?);
                run_program(&btrfs_program(), &["replace", "start", "-B", "-f", from, to, dir])?;
                added.leave_to_mount();
                Ok(())
            })?,
        }
        std::fs::remove_file(old)?;
        if let Some(place) = self.members.get_mut(index) {
            *place = new;
        }
        Ok(())
    }

    /// Converts to other profiles; to the present ones, where `soft` leaves what has them.
    fn convert(&mut self, side: Side, soft: Option<()>) -> Result<()> {
        if soft.is_none() {
            let count = self.members.len();
            let of = |random: &mut Random, all: &[Profile]| {
                let possible: Vec<Profile> = all.iter().filter(|(_, least, _)| *least <= count).copied().collect();
                random.pick(&possible).copied().context("a profile")
            };
            (self.data, self.metadata) = (of(&mut self.random, DATA)?, of(&mut self.random, METADATA)?);
        }
        let soft = soft.map_or("", |()| ",soft");
        let [data, metadata] = [("-dconvert=", self.data), ("-mconvert=", self.metadata)]
            .map(|(word, to)| format!("{word}{}{soft}", to.0));
        match side {
            Side::Spinney => self.spinney(&["balance", "start", "-f", &data, &metadata, &self.list()]),
            Side::Kernel => self.on_kernel(&self.members, "", |dir, _| {
                run_program(&btrfs_program(), &["balance", "start", "-f", &data, &metadata, dir]).map(drop)
            }),
        }
    }

    /// Writes without a device, which then comes back and is brought up to date.
    fn lose_and_return(&mut self, side: Side) -> Result<()> {
        let index = self.random.index(self.members.len());
        let mut left = self.members.clone();
        let lost = left.remove(index);
        // A device is one commit behind after one of them, which alone says nothing.
        for _ in 0..2 {
            self.write_on(side, &left, true)?;
        }
        let by = *self.random.pick(SIDES).unwrap_or(&Side::Spinney);
        match by {
            Side::Spinney if self.random.one_in(2) => {
                self.spinney(&["device", "resync", "-q", &shown(&joined(&left)), &shown(&lost)])?;
            }
            Side::Spinney => self.on_spinney(&self.members, "", |dir| self.wait_for_resync(dir))?,
            Side::Kernel => self.on_kernel(&self.members, "", |dir, _| {
                run_program(&btrfs_program(), &["scrub", "start", "-B", dir]).map(drop)
            })?,
        }
        // The kernel makes block groups with fewer copies while a device is missing.
        self.convert(by, Some(()))
    }

    /// Waits until the server of a mount has brought the device up to date.
    fn wait_for_resync(&self, dir: &str) -> Result<()> {
        for _ in 0..300 {
            let program = self.trial.program.to_string_lossy();
            let rows = run_program(&program, &["device", "list", "--json", dir])?;
            if !rows.contains("\"missing\": true") && !rows.contains("\"missing\":true") {
                return Ok(());
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        anyhow::bail!("a device stays missing")
    }

    /// Asserts that all files have their contents, and that checks find nothing.
    fn judge(&mut self) -> Result<()> {
        self.trial.check(&self.members)?;
        let found = self.by_library(&self.members, false)?;
        self.compare(&found).context("for Spinney")?;
        if self.may_lose() > 0 {
            let mut left = self.members.clone();
            let lost = left.remove(self.random.index(left.len()));
            let found = self.by_library(&left, true)?;
            self.compare(&found).with_context(|| format!("for Spinney, without {}", lost.display()))?;
        }
        let mut found = BTreeMap::new();
        {
            forget_scanned();
            let attached = Attached::new(&self.members)?;
            let first = attached.0.first().context("a device")?;
            run_program(&btrfs_program(), &["device", "scan", first])?;
            run_program(&btrfs_program(), &["check", "--readonly", first])?;
        }
        self.on_kernel(&self.members, ",ro", |dir, _| {
            for path in self.files.keys() {
                let bytes = std::fs::read(Path::new(dir).join(path)).with_context(|| path.clone())?;
                found.insert(path.clone(), digest(&bytes));
            }
            Ok(())
        })?;
        self.compare(&found).context("for the kernel")
    }

    fn by_library(&self, members: &[PathBuf], degraded: bool) -> Result<BTreeMap<String, Vec<u8>>> {
        let options = Volume::options().read_only(true).degraded(degraded).subvolume_id(TreeId::FS);
        let volume = options.open(joined(members))?;
        let read = |path: &String| Ok((path.clone(), digest(&volume.read(path)?)));
        self.files.keys().map(read).collect()
    }

    fn compare(&self, found: &BTreeMap<String, Vec<u8>>) -> Result<()> {
        let differs = |(path, expected): &(&String, &Vec<u8>)| found.get(*path) != Some(*expected);
        let first = self.files.iter().find(differs);
        ensure!(first.is_none(), "{:?} has other contents", first.map(|(path, _)| path));
        Ok(())
    }
}

/// A change of files.
enum Step {
    MakeDir(String),
    Write(String, Vec<u8>),
    Remove(String),
}

impl Step {
    fn apply(&self, top: &Path) -> Result<()> {
        match self {
            Self::MakeDir(path) => std::fs::create_dir(top.join(path))?,
            Self::Write(path, bytes) => std::fs::write(top.join(path), bytes)?,
            Self::Remove(path) => std::fs::remove_dir_all(top.join(path))?,
        }
        Ok(())
    }

    fn apply_to(&self, volume: &Volume) -> Result<()> {
        match self {
            Self::MakeDir(path) => volume.create_dir_all(path)?,
            Self::Write(path, bytes) => volume.write(path, bytes)?,
            Self::Remove(path) => volume.remove_dir_all(path)?,
        }
        Ok(())
    }

    fn note(self, files: &mut BTreeMap<String, Vec<u8>>) {
        match self {
            Self::MakeDir(_) => {}
            Self::Write(path, bytes) => drop(files.insert(path, digest(&bytes))),
            Self::Remove(dir) => files.retain(|path, _| path.split_once('/').is_none_or(|(first, _)| first != dir)),
        }
    }
}

fn digest(bytes: &[u8]) -> Vec<u8> {
    Sha256::digest(bytes).to_vec()
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// Has the kernel forget devices that it scanned and that are detached.
fn forget_scanned() {
    // An older program does not know the option.
    let _ = run_program(&btrfs_program(), &["device", "scan", "--forget"]);
}
