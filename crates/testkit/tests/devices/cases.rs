//! Cases that the kernel's test suite (fstests, groups raid, replace and volume) has, by its numbers; the table of all
//! of them is `docs/devices-cases.md`.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use blockdev::Device;
use btrfs::{BalanceSpec, Compression, Volume};
use btrfs_disk::flags::BlockGroupFlags;
use btrfs_pool::supers;
use vfs::file_system::{AllocateFlags, Layout, Trim};
use vfs::{FileOptions, SnapshotMode};

use super::MIB;
use super::probe::{
    Probe, check, devices, find_place, go_on, made, mirror, noise, open, open_without_others, place_of,
};

const SINGLE: BlockGroupFlags = BlockGroupFlags::empty();
const RAID1: BlockGroupFlags = BlockGroupFlags::RAID1;

fn probes<const N: usize>(bytes: u64) -> [Arc<Probe>; N] {
    std::array::from_fn(|n| Probe::new(&format!("device-{}", n + 1), bytes))
}

fn device(probe: &Arc<Probe>) -> Arc<dyn Device> {
    Arc::<Probe>::clone(probe)
}

fn read_with(probes: &[&Arc<Probe>]) -> Volume {
    Volume::options().degraded(true).read_only(true).open_devices(devices(probes)).unwrap()
}

/// 011 and 027: a device is replaced, while it is there and while it is missing, in every profile.
#[test]
fn a_device_is_replaced_in_every_profile() {
    let profiles = [
        (SINGLE, BlockGroupFlags::DUP, 0),
        (BlockGroupFlags::RAID0, RAID1, 0),
        (RAID1, RAID1, 1),
        (BlockGroupFlags::RAID10, BlockGroupFlags::RAID10, 1),
        (BlockGroupFlags::RAID1C3, BlockGroupFlags::RAID1C3, 2),
        (BlockGroupFlags::RAID1C4, BlockGroupFlags::RAID1C4, 3),
    ];
    for (data, metadata, may_lose) in profiles {
        let [a, b, c, d, new, other] = probes::<6>(300 * MIB);
        let volume = made(&[&a, &b, &c, &d], data, metadata);
        for part in 0..4 {
            volume.write(format!("file{part}"), noise(part, 3 * MIB)).unwrap();
        }
        let report = volume.replace_device(2, device(&new), &mut go_on).unwrap();
        assert!(report.lost.is_empty(), "{data}: {report:?}");
        volume.close().unwrap();
        let mut members = [&a, &new, &c, &d];
        check(&members);
        if may_lose > 0 {
            let volume = open_without_others(&[&a, &new, &d]);
            volume.write("missing", noise(9, MIB)).unwrap();
            let report = volume.replace_device(3, device(&other), &mut go_on).unwrap();
            assert!(report.lost.is_empty(), "{data}: {report:?}");
            volume.close().unwrap();
            members[2] = &other;
            check(&members);
            // The new devices have their parts.
            let volume = read_with(&members[1..]);
            assert!(volume.read("missing").unwrap() == noise(9, MIB), "{data}");
        }
        let volume = open(&members);
        assert!((0..4).all(|part| volume.read(format!("file{part}")).unwrap() == noise(part, 3 * MIB)), "{data}");
    }
}

/// 020 and 288: a volume that is only read is not changed.
#[test]
fn devices_of_a_volume_that_is_only_read_stay() {
    let [a, b, new] = probes::<3>(300 * MIB);
    mirror(&[&a, &b]).close().unwrap();
    let volume = Volume::options().read_only(true).open_devices(devices(&[&a, &b])).unwrap();
    let refused = [
        volume.replace_device(2, device(&new), &mut go_on).map(drop),
        volume.add_device(&device(&new)).map(drop),
        volume.remove_device(2, &mut |_| ControlFlow::Continue(())),
        volume.resync_device(device(&b), &mut go_on).map(drop),
    ];
    assert!(refused.iter().all(|done| done.as_ref().is_err_and(|error| error.errno() == vfs::Errno::EROFS)));
    assert_eq!(new.written.load(Ordering::Relaxed), 0);
}

/// 064: a balance and a replace exclude each other.
#[test]
fn one_change_of_devices_runs_at_a_time() {
    let [a, b, new] = probes::<3>(300 * MIB);
    let volume = mirror(&[&a, &b]);
    volume.write("file", noise(1, 16 * MIB)).unwrap();
    let mut tried = 0;
    let mut watch = |_: &btrfs::RebuildReport| {
        tried += 1;
        let balanced = volume.balance(BalanceSpec::all(), &mut |_| ControlFlow::Continue(()));
        assert_eq!(balanced.unwrap_err().errno(), vfs::Errno::EBUSY);
        let removed = volume.remove_device(1, &mut |_| ControlFlow::Continue(()));
        assert_eq!(removed.unwrap_err().errno(), vfs::Errno::EBUSY);
        ControlFlow::Continue(())
    };
    volume.replace_device(2, device(&new), &mut watch).unwrap();
    assert!(tried > 0);
    volume.close().unwrap();
    check(&[&a, &new]);
}

/// 060 to 074: devices are replaced and scrubbed, and profiles converted, while subvolumes come and go and files are
/// compressed and laid out anew.
#[test]
fn devices_change_while_subvolumes_come_and_go() {
    let [a, b, c, d] = probes::<4>(500 * MIB);
    let compress = Volume::options().compress(Compression::parse("zstd:1"));
    mirror(&[&a, &b]).close().unwrap();
    let volume = compress.open_devices(devices(&[&a, &b])).unwrap();
    volume.create_subvolume("base").unwrap();
    for part in 0..6 {
        volume.write(format!("base/file{part}"), noise(part, 2 * MIB)).unwrap();
    }
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let subvolumes = scope.spawn(|| {
            let mut count = 0u64;
            while !ends.load(Ordering::Relaxed) {
                let name = format!("snapshot{}", count % 5);
                if count >= 5 {
                    volume.delete_subvolume(&name).unwrap();
                }
                volume.snapshot("base", &name, SnapshotMode::ReadWrite).unwrap();
                volume.write(format!("{name}/own"), noise(count, 100_000)).unwrap();
                count += 1;
            }
        });
        let layouts = scope.spawn(|| {
            let mut count = 0u64;
            while !ends.load(Ordering::Relaxed) {
                let wanted = Layout { range: 0..u64::MAX, extent_bytes: 1 << 20, compression: None };
                volume.defragment(format!("base/file{}", count % 6), &wanted).unwrap();
                volume.write("text", "compressible ".repeat(20_000)).unwrap();
                count += 1;
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
        });
        let changed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            volume.replace_device(1, device(&c), &mut go_on).unwrap();
            let scrubbed = volume.scrub(btrfs::ScrubOptions::default(), &mut |_| ControlFlow::Continue(())).unwrap();
            assert!(scrubbed.faults.is_empty(), "{:?}", scrubbed.faults);
            volume.add_device(&device(&d)).unwrap();
            let spec = BalanceSpec::default().data("convert=raid0").unwrap().metadata("convert=raid1c3").unwrap();
            volume.balance(spec.system("convert=raid1c3").unwrap(), &mut |_| ControlFlow::Continue(())).unwrap();
            volume.replace_device(2, device(&a), &mut go_on).unwrap();
        }));
        ends.store(true, Ordering::Relaxed);
        subvolumes.join().unwrap();
        layouts.join().unwrap();
        changed.unwrap();
    });
    volume.close().unwrap();
    check(&[&c, &a, &d]);
    let volume = open(&[&c, &a, &d]);
    assert!((0..6).all(|part| volume.read(format!("base/file{part}")).unwrap() == noise(part, 2 * MIB)));
}

/// 100 and 101: a device that cannot be read is replaced, and another one removed.
#[test]
fn a_device_that_cannot_be_read_leaves() {
    let [a, b, c, d] = probes::<4>(400 * MIB);
    let volume = mirror(&[&a, &b]);
    for part in 0..4 {
        volume.write(format!("file{part}"), noise(part, 4 * MIB)).unwrap();
    }
    volume.close().unwrap();
    let volume = open(&[&a, &b]);
    b.is_unreadable.store(true, Ordering::Relaxed);
    let report = volume.replace_device(2, device(&c), &mut go_on).unwrap();
    assert!(report.lost.is_empty(), "{report:?}");
    volume.add_device(&device(&d)).unwrap();
    a.is_unreadable.store(true, Ordering::Relaxed);
    volume.remove_device(1, &mut |_| ControlFlow::Continue(())).unwrap();
    volume.close().unwrap();
    check(&[&c, &d]);
    for one in [&c, &d] {
        let volume = read_with(&[one]);
        assert!((0..4).all(|part| volume.read(format!("file{part}")).unwrap() == noise(part, 4 * MIB)));
    }
}

/// 150, 261 and 270: each device in turn has bad copies of everything, also of compressed data, and is mended.
#[test]
fn a_device_with_bad_copies_of_everything_is_mended() {
    let [a, b] = probes::<2>(300 * MIB);
    mirror(&[&a, &b]).close().unwrap();
    let compress = Volume::options().compress(Compression::parse("zstd:3"));
    let volume = compress.open_devices(devices(&[&a, &b])).unwrap();
    let text = (0..60_000u64).map(|line| format!("line {line}\n")).collect::<String>();
    volume.write("text", &text).unwrap();
    volume.close().unwrap();
    let piece = noise(1, MIB);
    for probe in [&a, &b] {
        // All but the superblocks.
        for mebi in (1..300).filter(|mebi| *mebi != 64) {
            probe.inner.write_at(mebi * MIB, &[&piece]).unwrap();
        }
        let volume = open(&[&a, &b]);
        assert_eq!(volume.read_to_string("text").unwrap(), text);
        let scrubbed = volume.scrub(btrfs::ScrubOptions::default(), &mut |_| ControlFlow::Continue(())).unwrap();
        assert!(scrubbed.progress.mended > 0 && scrubbed.progress.lost == 0, "{:?}", scrubbed.progress);
        volume.close().unwrap();
        check(&[&a, &b]);
        assert_eq!(read_with(&[probe]).read_to_string("text").unwrap(), text);
    }
}

/// 151 and 195: data keeps its profile when a device leaves; every profile is converted to every other one.
#[test]
fn profiles_are_kept_and_converted() {
    let [a, b, c, d] = probes::<4>(600 * MIB);
    let volume = made(&[&a, &b, &c, &d], BlockGroupFlags::RAID0, RAID1);
    volume.write("file", noise(1, 5 * MIB)).unwrap();
    volume.remove_device(4, &mut |_| ControlFlow::Continue(())).unwrap();
    let profiles = |volume: &Volume| -> Vec<BlockGroupFlags> {
        volume.info().unwrap().space.profiles.iter().map(|space| space.flags).collect()
    };
    let found = profiles(&volume);
    let data = BlockGroupFlags::DATA;
    assert!(found.contains(&(data | BlockGroupFlags::RAID0)) && !found.contains(&data), "{found:?}");
    volume.add_device(&device(&d)).unwrap();
    for (to, flags) in [
        ("raid1", RAID1),
        ("raid10", BlockGroupFlags::RAID10),
        ("raid1c3", BlockGroupFlags::RAID1C3),
        ("dup", BlockGroupFlags::DUP),
        ("raid1c4", BlockGroupFlags::RAID1C4),
        ("raid0", BlockGroupFlags::RAID0),
        ("single", SINGLE),
        ("raid10", BlockGroupFlags::RAID10),
    ] {
        let spec = BalanceSpec::default().data(&format!("convert={to}")).unwrap();
        let metadata = if matches!(to, "raid0" | "single") { "convert=raid1" } else { &format!("convert={to}") };
        let spec = spec.metadata(metadata).unwrap().system(metadata).unwrap().force();
        volume.balance(spec, &mut |_| ControlFlow::Continue(())).unwrap();
        let found = profiles(&volume);
        let of_data: Vec<_> = found.iter().filter(|found| found.contains(data)).collect();
        assert_eq!(of_data, [&(data | flags)], "{to}");
        volume.write(format!("after-{to}"), noise(2, MIB)).unwrap();
    }
    // 296: the new profile is among the features.
    assert!(volume.info().unwrap().features.iter().any(|name| name.contains("raid1c34")));
    volume.close().unwrap();
    check(&[&a, &b, &c, &d]);
    let volume = open(&[&a, &b, &c, &d]);
    assert!(volume.read("file").unwrap() == noise(1, 5 * MIB));
}

/// 167 and 286: data without checksums, compressed or not, is right on the device that takes the place of a missing
/// one.
#[test]
fn data_without_checksums_is_replaced_as_it_is() {
    let [a, b, new] = probes::<3>(300 * MIB);
    mirror(&[&a, &b]).close().unwrap();
    let volume = Volume::options().nodatasum(true).open_devices(devices(&[&a, &b])).unwrap();
    volume.write("bare", noise(1, 8 * MIB)).unwrap();
    volume.close().unwrap();
    let volume = Volume::options().nodatacow(true).degraded(true).open_devices(devices(&[&a])).unwrap();
    volume.write("in-place", noise(2, 4 * MIB)).unwrap();
    volume.sync().unwrap();
    let file = FileOptions::new().write(true).open(&volume, "in-place").unwrap();
    let mut count = 0;
    volume
        .replace_device(2, device(&new), &mut |_| {
            // Writes in place go to both meanwhile.
            file.write_at(&noise(10 + count, 4096), (count % 512) * 8192).unwrap();
            count += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
    drop(file);
    let expected = volume.read("in-place").unwrap();
    volume.close().unwrap();
    check(&[&a, &new]);
    let volume = read_with(&[&new]);
    assert!(volume.read("bare").unwrap() == noise(1, 8 * MIB));
    assert!(volume.read("in-place").unwrap() == expected);
}

/// 184: all superblocks of a removed device are overwritten.
#[test]
fn a_removed_device_has_no_superblock() {
    let [a, b, c] = probes::<3>(300 * MIB);
    let volume = made(&[&a, &b, &c], BlockGroupFlags::RAID0, BlockGroupFlags::RAID0);
    volume.remove_device(2, &mut |_| ControlFlow::Continue(())).unwrap();
    volume.close().unwrap();
    for copy in 0..2 {
        assert!(supers::read_one(&*b, copy).is_err(), "copy {copy}");
    }
    check(&[&a, &c]);
}

/// 194: numbers of devices grow for ever.
#[test]
fn numbers_of_devices_become_large() {
    let [a, b, c] = probes::<3>(100 * MIB);
    let volume = made(&[&a, &b], SINGLE, RAID1);
    for round in 0..30u64 {
        assert_eq!(volume.add_device(&device(&c)).unwrap(), 3 + round);
        volume.remove_device(3 + round, &mut |_| ControlFlow::Continue(())).unwrap();
    }
    volume.add_device(&device(&c)).unwrap();
    volume.write("file", noise(1, MIB)).unwrap();
    volume.close().unwrap();
    check(&[&a, &b, &c]);
}

/// 223 and 242: a trim takes nothing of what is in use from a device that took the place of another one, and runs
/// without a missing device.
#[test]
fn a_trim_leaves_what_is_in_use() {
    let [a, b, new] = probes::<3>(300 * MIB);
    let volume = mirror(&[&a, &b]);
    volume.write("file", noise(1, 8 * MIB)).unwrap();
    volume.write("gone", noise(2, 8 * MIB)).unwrap();
    volume.close().unwrap();
    let volume = open_without_others(&[&a]);
    volume.remove_file("gone").unwrap();
    volume.sync().unwrap();
    volume.trim(&Trim::default(), &mut |_, _| ()).unwrap();
    volume.replace_device(2, device(&new), &mut go_on).unwrap();
    volume.trim(&Trim::default(), &mut |_, _| ()).unwrap();
    volume.close().unwrap();
    check(&[&a, &new]);
    assert!(read_with(&[&new]).read("file").unwrap() == noise(1, 8 * MIB));
}

/// 265 to 267: of three copies two are bad, in turns.
#[test]
fn two_of_three_copies_are_bad_in_turns() {
    let [a, b, c] = probes::<3>(300 * MIB);
    let volume = made(&[&a, &b, &c], BlockGroupFlags::RAID1C3, BlockGroupFlags::RAID1C3);
    volume.write("file", noise(1, 64 * 4096)).unwrap();
    volume.close().unwrap();
    let all = [&a, &b, &c];
    let places = all.map(|probe| place_of(probe, &noise(1, 4096)));
    for sector in 0..64usize {
        for (index, (probe, place)) in all.iter().zip(places).enumerate() {
            if index != sector % 3 {
                let at = place + u64::try_from(sector).unwrap() * 4096;
                probe.inner.write_at(at, &[&[0xaa; 4096]]).unwrap();
            }
        }
    }
    let volume = open(&all);
    assert!(volume.read("file").unwrap() == noise(1, 64 * 4096));
    // A read mends the copies that it tried.
    volume.scrub(btrfs::ScrubOptions::default(), &mut |_| ControlFlow::Continue(())).unwrap();
    volume.close().unwrap();
    check(&all);
    for one in all {
        assert!(read_with(&[one]).read("file").unwrap() == noise(1, 64 * 4096), "all copies are mended");
    }
}

/// 268 and 269: where both copies are bad, a read fails; an unreadable copy and a bad one of different rows do not.
#[test]
fn rows_of_mirrors_fail_one_by_one() {
    let [a, b, c, d] = probes::<4>(300 * MIB);
    let volume = made(&[&a, &b, &c, &d], BlockGroupFlags::RAID10, BlockGroupFlags::RAID10);
    let contents = noise(1, 512 << 10);
    volume.write("file", &contents).unwrap();
    volume.close().unwrap();
    let all = [&a, &b, &c, &d];
    let row = |index: usize| &contents[index << 16..][..4096];
    let holders = |index: usize| -> Vec<(&Arc<Probe>, u64)> {
        all.into_iter().filter_map(|probe| Some((probe, find_place(probe, row(index))?))).collect()
    };
    let (first, second) = (holders(0), holders(1));
    assert!(first.len() == 2 && second.len() == 2);
    // The first copy of one row cannot be read, the second copy of the other is bad.
    second[1].0.inner.write_at(second[1].1, &[&[0; 4096]]).unwrap();
    let volume = open(&all);
    first[0].0.is_unreadable.store(true, Ordering::Relaxed);
    assert!(volume.read("file").unwrap() == contents);
    first[0].0.is_unreadable.store(false, Ordering::Relaxed);
    volume.close().unwrap();
    // Both copies of a row.
    for (probe, at) in first {
        probe.inner.write_at(at, &[&[0; 4096]]).unwrap();
    }
    let volume = open(&all);
    assert!(volume.read("file").is_err());
    volume.close().unwrap();
}

/// 292: a chunk over several devices is longer than 4 GiB.
#[test]
fn chunks_are_longer_than_32_bits() {
    let all = probes::<6>(40 << 30);
    let all: Vec<&Arc<Probe>> = all.iter().collect();
    let volume = made(&all, BlockGroupFlags::RAID0, RAID1);
    volume.write("file", b"").unwrap();
    let file = FileOptions::new().write(true).read(true).open(&volume, "file").unwrap();
    let len = 5u64 << 30;
    file.allocate(AllocateFlags::empty(), 0, len).unwrap();
    for at in [0, (4 << 30) - 4096, (4 << 30) + 8192, len - MIB] {
        file.write_at(&noise(at, MIB / 2), at).unwrap();
    }
    file.sync_all().unwrap();
    drop(file);
    volume.close().unwrap();
    let volume = open(&all);
    let file = FileOptions::new().read(true).open(&volume, "file").unwrap();
    for at in [0, (4 << 30) + 8192, len - MIB] {
        let mut found = vec![0; usize::try_from(MIB / 2).unwrap()];
        assert_eq!(file.read_at(&mut found, at).unwrap(), found.len());
        assert!(found == noise(at, MIB / 2), "{at}");
    }
    drop(file);
    volume.remove_file("file").unwrap();
    volume.sync().unwrap();
    volume.trim(&Trim::default(), &mut |_, _| ()).unwrap();
    volume.close().unwrap();
    check(&all);
}
