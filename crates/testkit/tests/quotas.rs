//! Quota groups through random changes: subvolumes, snapshots, clones, deletions, balances, crashes with a log.
//!
//! The counts at each commit are compared with a recount, and with those of `btrfs check`. `SPINNEY_SEEDS` (default 6),
//! `SPINNEY_SEED` (first seed, 0) and `SPINNEY_OPERATIONS` (300) set the length of a run.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use blockdev::Device;
use blockdev::backends::MemoryDevice;
use btrfs::{BalanceSpec, MakeOptions, QgroupId, QuotaChange, QuotaKind, QuotaReport, Volume};
use testkit::{Random, reference};
use vfs::SnapshotMode;
use vfs::{File, FileOptions};

const DEVICE_BYTES: u64 = 256 << 20;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

fn open(device: &Arc<MemoryDevice>) -> Volume {
    Volume::options().open_device(Arc::<MemoryDevice>::clone(device)).unwrap()
}

/// A volume of small nodes, so that trees are high, with quotas.
fn make(nodesize: u32) -> (Arc<MemoryDevice>, Volume) {
    let device = Arc::new(MemoryDevice::new(DEVICE_BYTES));
    let make = MakeOptions { size: Some(DEVICE_BYTES), nodesize, ..MakeOptions::default() };
    let volume = Volume::options().make_device(Arc::<MemoryDevice>::clone(&device), &make).unwrap();
    volume.enable_quotas(QuotaKind::Shared).unwrap();
    (device, volume)
}

fn counted(volume: &Volume) -> QuotaReport {
    volume.quotas().unwrap().expect("quotas are on")
}

/// Fails unless a recount, here and by `btrfs check`, equals the counts.
fn check(story: &str, device: &Arc<MemoryDevice>, volume: &Volume) {
    volume.sync().unwrap();
    let by_changes = counted(volume);
    assert!(!by_changes.is_inconsistent(), "{story}: inconsistent");
    volume.change_quotas(QuotaChange::Rescan).unwrap();
    assert_eq!(by_changes, counted(volume), "{story}: left was counted by changes, right anew");
    if reference::is_installed() {
        let folder = Path::new("/dev/shm");
        let folder = if folder.is_dir() { folder.to_path_buf() } else { std::env::temp_dir() };
        let image = tempfile::Builder::new().prefix("spinney-quotas-").tempfile_in(folder).unwrap();
        write_out(device, image.path());
        reference::check(image.path()).unwrap_or_else(|error| panic!("{story}: {error}"));
    }
}

fn write_out(device: &Arc<MemoryDevice>, path: &Path) {
    use std::os::unix::fs::FileExt as _;
    let file = std::fs::File::create(path).unwrap();
    file.set_len(device.size_bytes()).unwrap();
    let mut buffer = vec![0; 1 << 20];
    for at in (0..device.size_bytes()).step_by(buffer.len()) {
        device.read_at(at, &mut buffer).unwrap();
        if buffer.iter().any(|byte| *byte != 0) {
            file.write_all_at(&buffer, at).unwrap();
        }
    }
}

/// One random volume: names of its subvolumes, and the number of files made in each.
struct Walk {
    random: Random,
    volume: Volume,
    subvolumes: Vec<String>,
    made: u64,
}

impl Walk {
    fn subvolume(&mut self) -> String {
        self.random.pick(&self.subvolumes).unwrap().clone()
    }

    fn file(&mut self) -> String {
        format!("{}/f{}", self.subvolume(), self.random.below(150))
    }

    fn step(&mut self) {
        match self.random.below(24) {
            0 => {
                self.made += 1;
                let name = format!("/v{}", self.made);
                self.volume.create_subvolume(&name).unwrap();
                self.subvolumes.push(name);
            }
            1..=2 if self.subvolumes.len() < 8 => {
                self.made += 1;
                let (source, name) = (self.subvolume(), format!("/v{}", self.made));
                self.volume.snapshot(format!("{source}/"), &name, SnapshotMode::ReadWrite).unwrap();
                self.subvolumes.push(name);
            }
            3 if self.subvolumes.len() > 2 => {
                // The first is the top level.
                let index = 1 + self.random.index(self.subvolumes.len() - 1);
                let name = self.subvolumes.swap_remove(index);
                self.volume.delete_subvolume(name).unwrap();
            }
            4..=9 => self.write(),
            10..=13 => {
                let path = self.file();
                let _ = self.volume.remove_file(path);
            }
            14..=16 => self.clone_range(),
            17 => self.many_small(),
            18 => self.volume.sync().unwrap(),
            19 => {
                let (path, len) = (self.file(), self.random.below(200_000));
                if let Ok(file) = FileOptions::new().write(true).open(&self.volume, path) {
                    file.set_len(len).unwrap();
                }
            }
            20 => self.fsync(),
            21 if self.random.one_in(6) => {
                let spec: BalanceSpec = "data metadata system force".parse().unwrap();
                let _ = self.volume.balance(spec, &mut |_| ControlFlow::Continue(()));
            }
            _ => self.write(),
        }
    }

    fn write(&mut self) {
        let (path, at) = (self.file(), self.random.below(300_000));
        let len = usize::try_from(self.random.skewed(400_000)).unwrap();
        let data = self.random.content(len);
        let file = FileOptions::new().write(true).create(true).open(&self.volume, path).unwrap();
        file.write_at(&data, at).unwrap();
    }

    fn fsync(&mut self) {
        let path = self.file();
        if let Ok(file) = File::open(&self.volume, path) {
            file.sync_all().unwrap();
        }
    }

    fn clone_range(&mut self) {
        let (from, to) = (self.file(), self.file());
        let Ok(source) = File::open(&self.volume, from) else { return };
        let target = FileOptions::new().read(true).write(true).create(true).open(&self.volume, to).unwrap();
        let len = source.metadata().unwrap().size / 4096 * 4096;
        let at = self.random.below(20) * 4096;
        let _ = target.reflink(&source, 0, at, len);
    }

    /// Enough names to make trees higher.
    fn many_small(&mut self) {
        let dir = format!("{}/d{}", self.subvolume(), self.random.below(3));
        if self.volume.exists(&dir).unwrap() && self.random.one_in(2) {
            return self.volume.remove_dir_all(&dir).unwrap();
        }
        self.volume.create_dir_all(&dir).unwrap();
        for number in 0..200 {
            self.volume.write(format!("{dir}/{number}"), self.random.noise(600)).unwrap();
        }
    }
}

#[test]
fn what_is_counted_by_changes_is_what_counting_anew_finds() {
    let (first, seeds, operations) =
        (number("SPINNEY_SEED", 0), number("SPINNEY_SEEDS", 6), number("SPINNEY_OPERATIONS", 300));
    for seed in first..first + seeds {
        let (device, volume) = make(if seed % 2 == 0 { 4096 } else { 16_384 });
        let subvolumes = vec![String::new(), "/v0".to_owned()];
        volume.create_subvolume("/v0").unwrap();
        let mut walk = Walk { random: Random::new(seed), volume, subvolumes, made: 0 };
        for step in 0..operations {
            walk.step();
            if step % 60 == 59 {
                check(&format!("seed {seed}, step {step}"), &device, &walk.volume);
            }
            if walk.random.one_in(50) {
                walk.volume.sync().unwrap();
                drop(walk.volume);
                walk.volume = open(&device);
            }
        }
        check(&format!("seed {seed}, at the end"), &device, &walk.volume);
    }
}

#[test]
fn groups_of_groups_are_counted() {
    let (device, volume) = make(4096);
    let [low, high]: [QgroupId; 2] = ["1/1", "2/5"].map(|id| id.parse().unwrap());
    for id in [low, high] {
        volume.change_quotas(QuotaChange::Create(id)).unwrap();
    }
    volume.create_subvolume("/a").unwrap();
    volume.create_subvolume("/b").unwrap();
    volume.write("/a/file", vec![1; 1 << 20]).unwrap();
    let groups = ["/a", "/b"].map(|path| QgroupId::of(volume.subvolume_at(Path::new(path)).unwrap()));
    for member in groups {
        volume.change_quotas(QuotaChange::Assign { member, parent: low }).unwrap();
    }
    volume.change_quotas(QuotaChange::Assign { member: low, parent: high }).unwrap();
    let source = File::open(&volume, "/a/file").unwrap();
    let target = FileOptions::new().read(true).write(true).create(true).open(&volume, "/b/clone").unwrap();
    target.reflink(&source, 0, 0, 1 << 20).unwrap();
    volume.write("/b/other", vec![2; 100_000]).unwrap();
    drop((source, target));
    check("members share", &device, &volume);
    let report = counted(&volume);
    let of = |id: QgroupId| report.groups.iter().find(|group| group.id == id).unwrap().clone();
    let (parent, member) = (of(high), of(groups[0]));
    assert!(parent.excl > 1 << 20 && member.excl < 1 << 20, "{report:?}");
    volume.change_quotas(QuotaChange::Remove { member: groups[0], parent: low }).unwrap();
    check("a member went", &device, &volume);
    // A member's snapshot is not a member: the group's exclusive bytes become unknown, and are marked so.
    volume.snapshot("/b", "/c", SnapshotMode::ReadWrite).unwrap();
    volume.sync().unwrap();
    assert!(counted(&volume).is_inconsistent());
    volume.change_quotas(QuotaChange::Rescan).unwrap();
    check("counted anew", &device, &volume);
}

#[test]
fn quotas_are_turned_off_and_on_again() {
    let (device, volume) = make(16_384);
    volume.write("/file", vec![1; 100_000]).unwrap();
    assert!(volume.enable_quotas(QuotaKind::Shared).is_err());
    volume.disable_quotas().unwrap();
    assert_eq!(volume.quotas().unwrap(), None);
    assert!(volume.disable_quotas().is_err() && volume.change_quotas(QuotaChange::Rescan).is_err());
    volume.write("/more", vec![1; 100_000]).unwrap();
    drop(volume);
    let volume = open(&device);
    volume.enable_quotas(QuotaKind::Shared).unwrap();
    check("on again", &device, &volume);
}
