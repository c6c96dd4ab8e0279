//! Seeds and their sprouts: made, cut short, written, trimmed, and separated from the seed.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use blockdev::Device;
use blockdev::backends::{FileDevice, FileOptions};
use btrfs::{MakeOptions, Volume};
use btrfs_pool::{Intent, Members, Mode, supers};
use vfs::SnapshotMode;
use vfs::file_system::Trim;

use super::MIB;
use super::probe::{Probe, all_bytes, check, devices, go_on, noise, open};

/// Notes the generations of superblocks that are written.
#[derive(Debug)]
struct OnSuperblock {
    inner: Arc<Probe>,
    states: Mutex<Vec<u64>>,
}

impl OnSuperblock {
    fn new(inner: Arc<Probe>) -> Self {
        Self { inner, states: Mutex::default() }
    }
}

impl Device for OnSuperblock {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> blockdev::Result<()> {
        self.inner.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> blockdev::Result<()> {
        self.inner.write_at(offset, parts)?;
        if let Ok(superblock) = supers::read_one(&*self.inner, 0) {
            self.states.lock().unwrap().push(superblock.generation().0);
        }
        Ok(())
    }
    fn flush(&self) -> blockdev::Result<()> {
        self.inner.flush()
    }
    fn discard(&self, offset: u64, len: u64) -> blockdev::Result<()> {
        self.inner.discard(offset, len)
    }
    fn grow(&self, size_bytes: u64) -> blockdev::Result<()> {
        self.inner.grow(size_bytes)
    }
}

/// A volume with some contents, which becomes a seed.
fn make_seed(seed: &Arc<Probe>, fill: impl FnOnce(&Volume)) {
    let volume = Volume::options().make_device(Arc::<Probe>::clone(seed), &MakeOptions::default()).unwrap();
    fill(&volume);
    volume.close().unwrap();
    mark_seed(&[seed]);
}

fn mark_seed(probes: &[&Arc<Probe>]) {
    Members::read(&devices(probes), Intent::ReadOnly, None, Mode::Strict).unwrap().mark_seed(true).unwrap();
}

fn sprout(seeds: &[&Arc<Probe>], new: &Arc<Probe>) -> Volume {
    Volume::options().sprout(devices(seeds), Arc::<Probe>::clone(new)).unwrap()
}

/// `mkfs --seed` commits twice. A superblock of the first state led to system chunks of the seed, which the kernel does
/// not look for.
#[test]
fn no_superblock_leads_to_a_sprout_that_is_not_finished() {
    let (seed, new) = (Probe::new("seed", 200 * MIB), Probe::new("new", 200 * MIB));
    make_seed(&seed, |volume| volume.write("file", noise(1, MIB)).unwrap());
    let writes = Arc::new(OnSuperblock::new(Arc::<Probe>::clone(&new)));
    let volume = Volume::options().sprout(devices(&[&seed]), Arc::<OnSuperblock>::clone(&writes)).unwrap();
    volume.close().unwrap();
    let states = writes.states.lock().unwrap().clone();
    assert!(!states.is_empty());
    for generation in states {
        assert!(generation >= supers::read_one(&*seed, 0).unwrap().generation().0 + 2, "{generation}");
    }
    let volume = open(&[&new, &seed]);
    assert!(volume.read("file").unwrap() == noise(1, MIB));
    // The seed leaves, and is not changed.
    let before = seed.written.load(Ordering::Relaxed);
    let mut last = btrfs::RemovalProgress::default();
    volume
        .remove_device(1, &mut |progress| {
            last = *progress;
            ControlFlow::Continue(())
        })
        .unwrap();
    assert!(last.total_bytes >= MIB && last.moved_bytes >= MIB, "{last:?}");
    volume.write("more", noise(2, MIB)).unwrap();
    volume.close().unwrap();
    assert_eq!(seed.written.load(Ordering::Relaxed), before);
    check(&[&new]);
    let alone = open(&[&new]);
    assert!(alone.read("file").unwrap() == noise(1, MIB) && alone.read("more").unwrap() == noise(2, MIB));
}

/// fstests 162: a sprout becomes a seed, but no sprout of it is made yet.
#[test]
fn a_sprout_of_a_sprout_is_refused_and_changes_nothing() {
    let [first, second, third] = ["first", "second", "third"].map(|name| Probe::new(name, 200 * MIB));
    make_seed(&first, |volume| volume.write("one", noise(1, MIB)).unwrap());
    let volume = sprout(&[&first], &second);
    volume.write("two", noise(2, MIB)).unwrap();
    volume.close().unwrap();
    mark_seed(&[&second, &first]);
    let refused = Volume::options().sprout(devices(&[&second, &first]), Arc::<Probe>::clone(&third));
    let refused = refused.map(drop).unwrap_err().to_string();
    assert!(refused.contains("of one file system"), "{refused}");
    assert_eq!(third.written.load(Ordering::Relaxed), 0);
}

/// fstests 163, 218, 238 and 323: the device of a sprout is replaced; its counters are its own; its trim leaves the
/// seed alone; snapshots that the seed has are deleted in the sprout.
#[test]
fn the_device_of_a_sprout_is_used_like_any_other() {
    let [seed, new, other] = ["seed", "new", "other"].map(|name| Probe::new(name, 200 * MIB));
    make_seed(&seed, |volume| {
        volume.create_subvolume("sub").unwrap();
        volume.write("sub/file", noise(1, 4 * MIB)).unwrap();
        volume.snapshot("sub", "snapshot", SnapshotMode::ReadOnly).unwrap();
    });
    let before = all_bytes(&seed);
    let volume = sprout(&[&seed], &new);
    volume.delete_subvolume("snapshot").unwrap();
    volume.remove_file("sub/file").unwrap();
    volume.write("sub/new", noise(2, MIB)).unwrap();
    volume.sync().unwrap();
    volume.trim(&Trim::default(), &mut |_, _| ()).unwrap();
    let ids: Vec<u64> = volume.device_errors().unwrap().iter().map(|errors| errors.device).collect();
    assert_eq!(ids, [2]);
    let refused = volume.replace_device(1, Arc::<Probe>::clone(&other), &mut go_on);
    assert!(refused.is_err(), "a seed was replaced");
    volume.replace_device(2, Arc::<Probe>::clone(&other), &mut go_on).unwrap();
    volume.trim(&Trim::default(), &mut |_, _| ()).unwrap();
    volume.close().unwrap();
    assert!(supers::read_one(&*new, 0).is_err());
    check(&[&other, &seed]);
    let volume = open(&[&other, &seed]);
    assert!(volume.read("sub/new").unwrap() == noise(2, MIB) && volume.read("snapshot/file").is_err());
    assert!(all_bytes(&seed) == before, "the seed was changed");
}

/// fstests 249: a sprout of which the seed is missing tells what it can.
#[test]
fn a_sprout_without_its_seed_is_refused_by_name() {
    let [seed, new] = ["seed", "new"].map(|name| Probe::new(name, 200 * MIB));
    make_seed(&seed, |volume| volume.write("file", noise(1, 4 * MIB)).unwrap());
    sprout(&[&seed], &new).close().unwrap();
    let refused = Volume::options().open_devices(devices(&[&new])).unwrap_err().to_string();
    assert!(refused.contains("1 of 2 devices"), "{refused}");
    let refused = Volume::options().degraded(true).open_devices(devices(&[&new])).unwrap_err().to_string();
    assert!(refused.contains("device 1") || refused.contains("missing"), "{refused}");
    // A seed whose device was lost since serves as far as its sprout has everything.
    let volume = open(&[&new, &seed]);
    volume.remove_device(1, &mut |_| ControlFlow::Continue(())).unwrap();
    volume.close().unwrap();
    assert!(open(&[&new]).read("file").unwrap() == noise(1, 4 * MIB));
}

/// A balance leaves the seed, whose groups have another profile, and it is stopped and resumed.
#[test]
fn a_balance_of_a_sprout_converts_what_the_seed_has() {
    let [seed, new, other] = ["seed", "new", "other"].map(|name| Probe::new(name, 300 * MIB));
    make_seed(&seed, |volume| volume.write("file", noise(1, 20 * MIB)).unwrap());
    let before = all_bytes(&seed);
    let volume = sprout(&[&seed], &new);
    let device: Arc<dyn Device> = Arc::<Probe>::clone(&other);
    volume.add_device(&device).unwrap();
    let spec = btrfs::BalanceSpec::default();
    let spec = spec.data("convert=raid1").unwrap().metadata("convert=raid1").unwrap().system("convert=raid1").unwrap();
    let mut steps = 0;
    let mut watch = |_: &btrfs::BalanceProgress| {
        steps += 1;
        if steps == 4 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let ended = volume.balance(spec, &mut watch).unwrap();
    if matches!(ended, btrfs::BalanceEnd::Paused(_)) {
        volume.close().unwrap();
        let volume = open(&[&new, &other, &seed]);
        volume.resume_balance(&mut |_| ControlFlow::Continue(())).unwrap();
        volume.close().unwrap();
    }
    let volume = open(&[&new, &other, &seed]);
    volume.remove_device(1, &mut |_| ControlFlow::Continue(())).unwrap();
    volume.close().unwrap();
    check(&[&new, &other]);
    for one in [&new, &other] {
        let alone = Volume::options().degraded(true).read_only(true).open_devices(devices(&[one])).unwrap();
        assert!(alone.read("file").unwrap() == noise(1, 20 * MIB));
    }
    assert!(all_bytes(&seed) == before, "the seed was changed");
}

/// misc-tests/052 of btrfs-progs: a log would have to be replayed.
#[test]
fn a_volume_with_a_log_does_not_become_a_seed() {
    let seed = Probe::new("seed", 200 * MIB);
    let volume = Volume::options().make_device(Arc::<Probe>::clone(&seed), &MakeOptions::default()).unwrap();
    volume.write("file", noise(1, MIB)).unwrap();
    volume.sync().unwrap();
    let file = vfs::FileOptions::new().write(true).open(&volume, "file").unwrap();
    file.write_at(b"synced", 0).unwrap();
    file.sync_all().unwrap();
    let cut: Arc<dyn Device> = Arc::new(seed.inner.duplicate());
    drop(file);
    drop(volume);
    let members = Members::read(&[cut], Intent::ReadOnly, None, Mode::Strict).unwrap();
    let refused = members.mark_seed(true).unwrap_err().to_string();
    assert!(refused.contains("a seed with a log"), "{refused}");
}

/// misc-tests/046 of btrfs-progs: two sprouts of one seed are open at the same time.
#[test]
fn sprouts_of_one_seed_are_open_at_the_same_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let file = |name: &str| -> Arc<dyn Device> {
        std::fs::File::create(path(name)).unwrap().set_len(200 * MIB).unwrap();
        Arc::new(FileDevice::open(path(name), &FileOptions::default()).unwrap())
    };
    let seed = file("seed.img");
    let volume = Volume::options().make_device(Arc::clone(&seed), &MakeOptions::default()).unwrap();
    volume.write("file", noise(1, MIB)).unwrap();
    volume.close().unwrap();
    Members::read(&[Arc::clone(&seed)], Intent::ReadOnly, None, Mode::Strict).unwrap().mark_seed(true).unwrap();
    for name in ["a.img", "b.img"] {
        Volume::options().sprout(vec![Arc::clone(&seed)], file(name)).unwrap().close().unwrap();
    }
    drop(seed);
    let list = |name: &str| format!("{},{}", path(name).display(), path("seed.img").display());
    let (a, b) = (Volume::open(list("a.img")).unwrap(), Volume::open(list("b.img")).unwrap());
    a.write("own", noise(2, MIB)).unwrap();
    b.remove_file("file").unwrap();
    a.close().unwrap();
    b.close().unwrap();
    let a = Volume::open(list("a.img")).unwrap();
    assert!(a.read("file").unwrap() == noise(1, MIB) && a.read("own").unwrap() == noise(2, MIB));
    assert!(Volume::open(list("b.img")).unwrap().read("own").is_err());
}
