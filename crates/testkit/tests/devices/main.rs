//! Devices that are added, removed, replaced, brought up to date, and that fail, while the volume is used.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod cases;
mod probe;
mod seeds;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use blockdev::Device;
use blockdev::backends::{FileDevice, FileOptions};
use btrfs::{MakeOptions, RebuildReport, Volume};
use btrfs_disk::DevId;
use btrfs_disk::flags::BlockGroupFlags;
use btrfs_pool::supers;
use btrfs_store::{GroupState, SpaceKind, Store, StoreOptions};

use probe::{Probe, check, devices, go_on, mirror, noise, open, open_without_others, place_of};

const MIB: u64 = 1 << 20;

#[test]
fn a_resync_reads_and_writes_what_changed() {
    let (a, b) = (Probe::new("a", 600 * MIB), Probe::new("b", 600 * MIB));
    let volume = mirror(&[&a, &b]);
    let stored = 128 * MIB;
    for part in 0..stored / (16 * MIB) {
        volume.write(format!("old{part}"), noise(part, 16 * MIB)).unwrap();
    }
    volume.close().unwrap();
    let volume = open_without_others(&[&a]);
    let changed = 8 * MIB;
    volume.write("new", noise(99, changed)).unwrap();
    volume.sync().unwrap();
    volume.remove_file("old3").unwrap();
    volume.sync().unwrap();
    a.reset();
    b.reset();
    let report = volume.resync_device(Arc::<Probe>::clone(&b), &mut go_on).unwrap();
    let (read, written) = (a.read.load(Ordering::Relaxed), b.written.load(Ordering::Relaxed));
    assert!(written >= changed && written < changed + 4 * MIB, "{written} written");
    assert!(read >= changed && read < changed + 8 * MIB, "{read} read");
    // The checksums beside those of the removed file lie in changed leaves, each of which covers 16 MiB.
    assert!(b.read.load(Ordering::Relaxed) < 40 * MIB, "{:?}", b.read);
    assert!(report.lost.is_empty());
    volume.write("after", noise(100, MIB)).unwrap();
    volume.close().unwrap();
    check(&[&a, &b]);
    // Each is enough by itself.
    for one in [&a, &b] {
        let alone = Volume::options().degraded(true).read_only(true).open_devices(devices(&[one])).unwrap();
        assert!(alone.read("new").unwrap() == noise(99, changed) && alone.read("old1").unwrap() == noise(1, 16 * MIB));
        assert!(alone.read("after").unwrap() == noise(100, MIB));
    }
}

#[test]
fn data_without_checksums_is_brought_up_to_date_as_a_whole() {
    let (a, b) = (Probe::new("a", 300 * MIB), Probe::new("b", 300 * MIB));
    mirror(&[&a, &b]).close().unwrap();
    let options = || Volume::options().nodatacow(true);
    let volume = options().open_devices(devices(&[&a, &b])).unwrap();
    volume.write("database", noise(1, 4 * MIB)).unwrap();
    volume.close().unwrap();
    let volume = options().degraded(true).open_devices(devices(&[&a])).unwrap();
    let file = vfs::FileOptions::new().write(true).open(&volume, "database").unwrap();
    file.write_at(&noise(2, 4096), MIB).unwrap();
    drop(file);
    volume.sync().unwrap();
    volume.write("other", b"1").unwrap();
    volume.sync().unwrap();
    let report = volume.resync_device(Arc::<Probe>::clone(&b), &mut go_on).unwrap();
    assert!(report.same_bytes >= 3 * MIB, "{report:?}");
    volume.close().unwrap();
    check(&[&a, &b]);
    let alone = Volume::options().degraded(true).read_only(true).open_devices(devices(&[&b])).unwrap();
    let read = alone.read("database").unwrap();
    assert!(read[usize::try_from(MIB).unwrap()..][..4096] == noise(2, 4096));
}

#[test]
fn a_stale_device_is_put_aside_and_brought_up_to_date_later() {
    let (a, b) = (Probe::new("a", 300 * MIB), Probe::new("b", 300 * MIB));
    let volume = mirror(&[&a, &b]);
    volume.write("first", noise(1, MIB)).unwrap();
    volume.close().unwrap();
    let volume = open_without_others(&[&a]);
    volume.write("second", noise(2, MIB)).unwrap();
    volume.sync().unwrap();
    volume.write("third", noise(3, MIB)).unwrap();
    volume.close().unwrap();
    let both = || devices(&[&b, &a]);
    assert!(Volume::options().open_devices(both()).is_err(), "without the option it is refused");
    let old = supers::read_one(&*b, 0).unwrap().generation();
    let volume = Volume::options().resync(true).open_devices(both()).unwrap();
    assert_eq!(volume.stale_devices(), 1);
    volume.write("fourth", noise(4, MIB)).unwrap();
    volume.sync().unwrap();
    assert_eq!(supers::read_one(&*b, 0).unwrap().generation(), old, "not advanced before it has everything");
    let (name, done) = volume.resync_stale_device(&mut go_on).unwrap();
    assert_eq!(name, "b");
    done.unwrap();
    assert_eq!(volume.stale_devices(), 0);
    volume.close().unwrap();
    check(&[&a, &b]);
    // With one that is really missing, nothing is done silently.
    let (c, d) = (Probe::new("c", 300 * MIB), Probe::new("d", 300 * MIB));
    let volume = mirror(&[&a, &c, &d]);
    volume.close().unwrap();
    let volume = open_without_others(&[&c, &d]);
    volume.write("more", noise(5, MIB)).unwrap();
    volume.sync().unwrap();
    volume.write("more", noise(6, MIB)).unwrap();
    volume.close().unwrap();
    assert!(Volume::options().resync(true).open_devices(devices(&[&a, &c])).is_err());
}

#[test]
fn devices_change_while_a_writer_writes() {
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| Probe::new(name, 400 * MIB));
    let volume = mirror(&[&a, &b]);
    for part in 0..6 {
        volume.write(format!("base{part}"), noise(part, 4 * MIB)).unwrap();
    }
    let ends = AtomicBool::new(false);
    let count = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut count = 0;
            while !ends.load(Ordering::Relaxed) {
                volume.write(format!("live{}", count % 20), noise(1000 + count, 300_000)).unwrap();
                if count % 7 == 0 {
                    volume.sync().unwrap();
                }
                count += 1;
            }
            count
        });
        let changed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let report = volume.replace_device(2, Arc::<Probe>::clone(&c), &mut go_on).unwrap();
            assert!(report.lost.is_empty() && report.written_bytes > 20 * MIB && !report.is_old_left, "{report:?}");
            assert!(supers::read_one(&*b, 0).is_err(), "the old one is no device of the volume");
            let new: Arc<dyn Device> = Arc::<Probe>::clone(&d);
            let id = volume.add_device(&new).unwrap();
            assert_eq!(id, 3);
            volume.remove_device(1, &mut |_| ControlFlow::Continue(())).unwrap();
            assert!(supers::read_one(&*a, 0).is_err());
            let names: Vec<String> = volume.devices().into_iter().map(|device| device.name).collect();
            assert_eq!(names, ["c", "d"]);
        }));
        ends.store(true, Ordering::Relaxed);
        let count = writer.join().unwrap();
        changed.unwrap();
        count
    });
    volume.close().unwrap();
    check(&[&c, &d]);
    for one in [&c, &d] {
        let alone = Volume::options().degraded(true).read_only(true).open_devices(devices(&[one])).unwrap();
        for part in 0..6 {
            assert!(alone.read(format!("base{part}")).unwrap() == noise(part, 4 * MIB));
        }
        for last in count.saturating_sub(20)..count {
            assert!(alone.read(format!("live{}", last % 20)).unwrap() == noise(1000 + last, 300_000), "{last}");
        }
    }
}

#[test]
fn a_volume_goes_on_without_a_device_that_fails() {
    let (a, b) = (Probe::new("a", 300 * MIB), Probe::new("b", 300 * MIB));
    let volume = mirror(&[&a, &b]);
    volume.write("before", noise(1, MIB)).unwrap();
    volume.sync().unwrap();
    b.fails.store(true, Ordering::Relaxed);
    for part in 0..5 {
        volume.write(format!("during{part}"), noise(part + 10, MIB)).unwrap();
        volume.sync().unwrap();
    }
    assert!(volume.devices().iter().any(|device| device.is_missing && device.id.0 == 2));
    b.fails.store(false, Ordering::Relaxed);
    let read =
        |volume: &Volume| (0..5).all(|part| volume.read(format!("during{part}")).unwrap() == noise(part + 10, MIB));
    assert!(read(&volume));
    let errors = volume.device_errors().unwrap();
    assert!(errors[0].write == 0 && errors[1].device == 2 && errors[1].write + errors[1].flush > 0, "{errors:?}");
    volume.close().unwrap();
    let refused = Volume::options().open_devices(devices(&[&a, &b])).unwrap_err().to_string();
    assert!(refused.contains("missed commits"), "{refused}");
    let volume = open_without_others(&[&a]);
    assert!(read(&volume));
    volume.resync_device(Arc::<Probe>::clone(&b), &mut go_on).unwrap();
    volume.close().unwrap();
    check(&[&a, &b]);
    assert!(read(&open_without_others(&[&b])));
}

/// The volume went on as if nothing had happened, filled the rest of the file with holes, and could not be opened
/// later.
#[test]
fn a_file_that_is_truncated_while_in_use_is_given_up() {
    for reads_first in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let [a, b] = ["a.img", "b.img"].map(|name| dir.path().join(name));
        let file = |path: &std::path::Path| -> Arc<dyn Device> {
            Arc::new(FileDevice::open(path, &FileOptions::default()).unwrap())
        };
        for path in [&a, &b] {
            std::fs::File::create(path).unwrap().set_len(300 * MIB).unwrap();
        }
        let (data_profile, metadata_profile) = (BlockGroupFlags::RAID1, BlockGroupFlags::RAID1);
        let make = MakeOptions { data_profile, metadata_profile, ..MakeOptions::default() };
        let volume = Volume::options().make_devices(vec![file(&a), file(&b)], &make).unwrap();
        for part in 0..4 {
            volume.write(format!("before{part}"), noise(part, 4 * MIB)).unwrap();
        }
        volume.close().unwrap();
        let volume = Volume::options().open_devices(vec![file(&a), file(&b)]).unwrap();
        std::fs::File::options().write(true).open(&b).unwrap().set_len(10 * MIB).unwrap();
        if reads_first {
            assert!((0..4).all(|part| volume.read(format!("before{part}")).unwrap() == noise(part, 4 * MIB)));
        }
        volume.write("after", noise(9, MIB)).unwrap();
        volume.sync().unwrap();
        assert!(volume.devices().iter().any(|device| device.is_missing && device.id.0 == 2), "{:?}", volume.devices());
        assert!((0..4).all(|part| volume.read(format!("before{part}")).unwrap() == noise(part, 4 * MIB)));
        volume.close().unwrap();
        let refused = Volume::options().open_devices(vec![file(&a), file(&b)]).unwrap_err().to_string();
        assert!(refused.contains("missed commits"), "{refused}");
        let alone = Volume::options().degraded(true).open_device(file(&a)).unwrap();
        assert!(alone.read("after").unwrap() == noise(9, MIB));
        alone.close().unwrap();
    }
}

#[test]
fn a_device_that_is_cut_short_is_named_when_it_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = ["a.img", "b.img"].map(|name| dir.path().join(name));
    for path in [&a, &b] {
        std::fs::File::create(path).unwrap().set_len(300 * MIB).unwrap();
    }
    let file = |path: &std::path::Path| -> Arc<dyn Device> {
        Arc::new(FileDevice::open(path, &FileOptions::default()).unwrap())
    };
    let (data_profile, metadata_profile) = (BlockGroupFlags::RAID1, BlockGroupFlags::RAID1);
    let make = MakeOptions { data_profile, metadata_profile, ..MakeOptions::default() };
    Volume::options().make_devices(vec![file(&a), file(&b)], &make).unwrap().close().unwrap();
    std::fs::File::options().write(true).open(&b).unwrap().set_len(100 * MIB).unwrap();
    for (read_only, resync) in [(false, false), (true, false), (false, true)] {
        let options = Volume::options().read_only(read_only).resync(resync);
        let refused = options.open_devices(vec![file(&a), file(&b)]).unwrap_err().to_string();
        let expected = "b.img (device 2) has 104857600 bytes, and the file system uses 314572800 of it";
        assert!(refused.contains(expected) && refused.contains("-o degraded"), "{refused}");
    }
    Volume::options().degraded(true).open_device(file(&a)).unwrap().close().unwrap();
}

/// Old programs left block groups with one copy in mirrored volumes.
#[test]
fn an_empty_group_without_a_copy_does_not_end_writing() {
    let (a, b) = (Probe::new("a", 300 * MIB), Probe::new("b", 400 * MIB));
    let volume = mirror(&[&a, &b]);
    volume.write("before", noise(1, MIB)).unwrap();
    volume.close().unwrap();
    let store = Store::open(devices(&[&a, &b]), &StoreOptions::default()).unwrap();
    store.set_target(SpaceKind::Data, Some(BlockGroupFlags::DATA));
    store.add_group(SpaceKind::Data).unwrap();
    store.set_target(SpaceKind::Data, None);
    let single = |group: &&GroupState| group.flags == BlockGroupFlags::DATA;
    let groups = store.groups();
    assert_eq!(groups.iter().find(single).unwrap().stripes[0].device, DevId(2), "on the larger device");
    store.commit().unwrap();
    drop(store);
    let volume = open(&[&a, &b]);
    b.fails.store(true, Ordering::Relaxed);
    for part in 0..5 {
        volume.write(format!("during{part}"), noise(part + 10, 16 * MIB)).unwrap();
        volume.sync().unwrap();
    }
    assert!(volume.devices().iter().any(|device| device.is_missing && device.id.0 == 2));
    volume.close().unwrap();
    // Nor does it keep anyone from writing without the device, or from removing it.
    let (c, d) = (Probe::new("c", 400 * MIB), Probe::new("d", 400 * MIB));
    let volume = open_without_others(&[&a]);
    volume.add_device(&devices(&[&c])[0]).unwrap();
    volume.remove_device(2, &mut |_| ControlFlow::Continue(())).unwrap();
    volume.replace_device(1, Arc::<Probe>::clone(&d), &mut go_on).unwrap();
    volume.close().unwrap();
    check(&[&c, &d]);
    let volume = open_without_others(&[&c]);
    assert!((0..5).all(|part| volume.read(format!("during{part}")).unwrap() == noise(part + 10, 16 * MIB)));
}

/// A block group with one copy was the newest one, and later ones got one copy, too.
#[test]
fn new_groups_have_as_many_copies_as_any() {
    let (a, b) = (Probe::new("a", 600 * MIB), Probe::new("b", 600 * MIB));
    mirror(&[&a, &b]).close().unwrap();
    let store = Store::open(devices(&[&a, &b]), &StoreOptions::default()).unwrap();
    store.set_target(SpaceKind::Data, Some(BlockGroupFlags::DATA));
    store.add_group(SpaceKind::Data).unwrap();
    store.set_target(SpaceKind::Data, None);
    store.add_group(SpaceKind::Data).unwrap();
    let newest = store.groups().last().unwrap().flags;
    assert_eq!(newest, BlockGroupFlags::DATA | BlockGroupFlags::RAID1);
}

#[test]
fn a_failure_that_leaves_no_copy_ends_writing() {
    let (a, b) = (Probe::new("a", 300 * MIB), Probe::new("b", 300 * MIB));
    let make = MakeOptions { metadata_profile: BlockGroupFlags::RAID1, ..MakeOptions::default() };
    let volume = Volume::options().make_devices(devices(&[&a, &b]), &make).unwrap();
    // Block groups on both.
    for part in 0..20 {
        volume.write(format!("before{part}"), noise(part, 4 * MIB)).unwrap();
    }
    volume.sync().unwrap();
    b.fails.store(true, Ordering::Relaxed);
    let tried = (0..40).try_for_each(|part| {
        volume.write(format!("during{part}"), noise(part, 4 * MIB))?;
        volume.sync()
    });
    assert!(tried.is_err());
    assert!(volume.write("more", b"x").and_then(|()| volume.sync()).is_err());
    assert!((0..20).any(|part| volume.read(format!("before{part}")).is_ok()));
}

#[test]
fn lost_sectors_are_named_by_file_and_do_not_stop_a_replace() {
    let (a, c) = (Probe::new("a", 300 * MIB), Probe::new("c", 300 * MIB));
    let b = Probe::new("b", 300 * MIB);
    let volume = mirror(&[&a, &b]);
    volume.write("bad", noise(1, 2 * MIB)).unwrap();
    volume.write("good", noise(2, 2 * MIB)).unwrap();
    volume.close().unwrap();
    let volume = open_without_others(&[&a]);
    a.rot.store(place_of(&a, &noise(1, 4096)), Ordering::Relaxed);
    let report = volume.replace_device(2, Arc::<Probe>::clone(&c), &mut go_on).unwrap();
    assert_eq!(report.lost.len(), 1, "{report:?}");
    assert_eq!(report.lost_files[0].path.as_deref(), Some(std::path::Path::new("bad")));
    a.rot.store(u64::MAX, Ordering::Relaxed);
    volume.close().unwrap();
    let volume = open(&[&a, &c]);
    assert!(volume.read("good").unwrap() == noise(2, 2 * MIB));
}

#[test]
fn a_replace_that_is_cut_short_leaves_the_volume_as_it_was() {
    let (a, b, c) = (Probe::new("a", 300 * MIB), Probe::new("b", 300 * MIB), Probe::new("c", 300 * MIB));
    let volume = mirror(&[&a, &b]);
    for part in 0..8 {
        volume.write(format!("file{part}"), noise(part, 4 * MIB)).unwrap();
    }
    let mut steps = 0;
    let cancelled = volume.replace_device(2, Arc::<Probe>::clone(&c), &mut |_| {
        steps += 1;
        if steps > 1 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(cancelled.unwrap_err().errno(), vfs::Errno::ECANCELED);
    volume.write("after", noise(9, MIB)).unwrap();
    // A target that fails ends it, and nothing else.
    c.fails.store(true, Ordering::Relaxed);
    assert!(volume.replace_device(2, Arc::<Probe>::clone(&c), &mut go_on).is_err());
    // One that is too small is refused.
    assert!(volume.replace_device(2, Probe::new("small", 100 * MIB), &mut go_on).is_err());
    assert!(volume.replace_device(7, Probe::new("none", 300 * MIB), &mut go_on).is_err());
    volume.write("last", noise(10, MIB)).unwrap();
    volume.close().unwrap();
    check(&[&a, &b]);
    assert!(supers::read_one(&*c, 0).is_err());
}

#[test]
fn a_cancelled_replace_leaves_an_empty_target() {
    let (a, b, c) = (Probe::new("a", 300 * MIB), Probe::new("b", 300 * MIB), Probe::new("c", 300 * MIB));
    let volume = mirror(&[&a, &b]);
    volume.write("file", noise(1, 24 * MIB)).unwrap();
    let (mut steps, mut last) = (0, RebuildReport::default());
    let target = || -> Arc<dyn Device> { Arc::<Probe>::clone(&c) };
    let cancelled = volume.replace_device(2, target(), &mut |report| {
        steps += 1;
        assert!(report.done_bytes >= last.done_bytes && report.done_bytes <= report.total_bytes, "{report:?}");
        last = report.clone();
        assert!(supers::marked_target(&*c).is_some(), "it is known as a target");
        if steps > 1 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(cancelled.unwrap_err().errno(), vfs::Errno::ECANCELED);
    let mut bytes = vec![0; usize::try_from(c.size_bytes()).unwrap()];
    c.inner.read_at(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 0), "the target is empty");
    let report = volume.replace_device(2, target(), &mut go_on).unwrap();
    assert_eq!(report.done_bytes, report.total_bytes);
    assert!(report.total_bytes >= 2 * 24 * MIB, "{report:?}");
    // A target that is too small is refused, and stays as it is.
    let small = Probe::new("small", 100 * MIB);
    small.inner.write_at(5 * MIB, &[b"precious"]).unwrap();
    let refused = volume.replace_device(2, Arc::<Probe>::clone(&small), &mut go_on).unwrap_err().to_string();
    assert!(refused.contains("small is too small: it has 104857600 bytes"), "{refused}");
    let mut bytes = [0; 8];
    small.inner.read_at(5 * MIB, &mut bytes).unwrap();
    assert_eq!(&bytes, b"precious");
    volume.close().unwrap();
    check(&[&a, &c]);
}

#[test]
fn wrong_devices_are_not_brought_up_to_date() {
    let (a, b, other) = (Probe::new("a", 300 * MIB), Probe::new("b", 300 * MIB), Probe::new("other", 300 * MIB));
    let volume = mirror(&[&a, &b]);
    volume.write("file", noise(1, MIB)).unwrap();
    volume.close().unwrap();
    let volume = Volume::options().make_device(Arc::<Probe>::clone(&other), &MakeOptions::default()).unwrap();
    volume.close().unwrap();
    let volume = open(&[&a, &b]);
    for (device, why) in
        [(&other, "of one file system"), (&b, "missed no commit"), (&Probe::new("empty", MIB), "no superblock")]
    {
        let refused = volume.resync_device(Arc::<Probe>::clone(device), &mut go_on).unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
    }
    volume.close().unwrap();
    // Both halves are written apart.
    for (one, file) in [(&a, "left"), (&b, "right")] {
        let volume = open_without_others(&[one]);
        for part in 0..if file == "left" { 3 } else { 2 } {
            volume.write(format!("{file}{part}"), noise(part, 1000)).unwrap();
            volume.sync().unwrap();
        }
        volume.close().unwrap();
    }
    let volume = open_without_others(&[&a]);
    let refused = volume.resync_device(Arc::<Probe>::clone(&b), &mut go_on).unwrap_err().to_string();
    assert!(refused.contains("written apart"), "{refused}");
}
