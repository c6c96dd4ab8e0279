//! Balance: contents stay the same, and data shared by snapshots and clones stays shared.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::ops::ControlFlow;

use btrfs::{BalanceEnd, BalanceProgress, BalanceSpec, MakeOptions, Volume};
use btrfs_disk::flags::BlockGroupFlags;
use common::check;
use common::whole::{all, contents, make, populate};
use vfs::{File, FileOptions};

const MIB: u64 = 1 << 20;

fn on(_: &BalanceProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn used(volume: &Volume) -> u64 {
    volume.usage().groups.iter().map(|group| group.used_bytes).sum()
}

#[test]
fn everything_is_written_anew_and_stays_what_it_was() {
    let (file, volume) = make(600 * MIB);
    populate(&volume);
    let (before, used_before) = (all(&volume), used(&volume));
    let starts: Vec<_> = volume.chunks().iter().map(|chunk| chunk.logical).collect();
    let end = volume.balance(BalanceSpec::all(), &mut on).unwrap();
    let BalanceEnd::Done(progress) = end else { panic!("{end:?}") };
    assert_eq!((progress.completed, progress.without_room), (progress.expected, 0), "{progress:?}");
    for chunk in volume.chunks() {
        assert!(!starts.contains(&chunk.logical), "{chunk:?} is where it was");
    }
    assert!(all(&volume) == before, "on the open volume");
    volume.sync().unwrap();
    let used_after = used(&volume);
    assert!(used_after < used_before + used_before / 50 + 64 * 16384, "{used_before}, then {used_after}: not shared");
    volume.close().unwrap();
    check(file.path());
    let volume = Volume::open(file.path()).unwrap();
    assert!(all(&volume) == before, "after it was opened again");
    assert_eq!(volume.paused_balance().unwrap(), None);
    // Shared data is copied when it is written, and can be freed.
    volume.write("/snap-1/large-3", b"new").unwrap();
    volume.write("/sub/small-7", contents(1, 10_000)).unwrap();
    volume.delete_subvolume("/snap-2").unwrap();
    volume.sync().unwrap();
    volume.close().unwrap();
    check(file.path());
}

#[test]
fn profiles_are_converted_both_ways() {
    let (file, volume) = make(600 * MIB);
    populate(&volume);
    let before = all(&volume);
    let flags = |volume: &Volume| {
        let mut flags: Vec<String> = volume.chunks().iter().map(|chunk| chunk.flags.to_string()).collect();
        flags.sort();
        flags.dedup();
        flags
    };
    let single = BalanceSpec::default().metadata("convert=single").unwrap().system("convert=single").unwrap();
    volume.balance(single, &mut on).unwrap_err();
    volume.balance(single.force(), &mut on).unwrap();
    assert_eq!(flags(&volume), ["data", "metadata", "system"]);
    let dup = BalanceSpec::default().data("convert=dup,soft").unwrap().metadata("convert=dup").unwrap();
    volume.balance(dup.system("convert=dup").unwrap(), &mut on).unwrap();
    assert_eq!(flags(&volume), ["data, dup", "metadata, dup", "system, dup"]);
    assert!(volume.chunks().iter().all(|chunk| chunk.flags.contains(BlockGroupFlags::DUP)));
    assert!(all(&volume) == before);
    volume.close().unwrap();
    check(file.path());
    assert!(all(&Volume::open(file.path()).unwrap()) == before);
}

#[test]
fn a_balance_that_was_stopped_is_resumed() {
    let (file, volume) = make(600 * MIB);
    populate(&volume);
    let before = all(&volume);
    let spec = BalanceSpec::default().data("").unwrap().metadata("usage=99").unwrap();
    let mut steps = 0;
    let end = volume.balance(spec, &mut |_| {
        steps += 1;
        if steps > 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(matches!(end.unwrap(), BalanceEnd::Paused(_)));
    assert_eq!(volume.paused_balance().unwrap().unwrap(), spec);
    volume.balance(spec, &mut on).unwrap_err();
    volume.close().unwrap();
    check(file.path());
    let volume = Volume::open(file.path()).unwrap();
    assert_eq!(volume.paused_balance().unwrap().unwrap().to_string(), "data metadata:usage=99");
    assert!(matches!(volume.resume_balance(&mut on).unwrap(), BalanceEnd::Done(_)));
    assert_eq!(volume.paused_balance().unwrap(), None);
    volume.resume_balance(&mut on).unwrap_err();
    assert!(all(&volume) == before);
    volume.close().unwrap();
    check(file.path());
}

/// A file that one thread changes, and its expected contents.
struct Changing {
    file: File,
    expected: Vec<u8>,
    random: u64,
}

impl Changing {
    fn new(volume: &Volume, path: &str, len: usize) -> Self {
        let file = FileOptions::new().create(true).read(true).write(true).open(volume, path).unwrap();
        file.write_at(&vec![1; len], 0).unwrap();
        file.sync_all().unwrap();
        Self { file, expected: vec![1; len], random: u64::try_from(len).unwrap() }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.random >> 33).unwrap() % bound
    }

    fn change(&mut self) {
        let len = 1 + self.below(150_000);
        let at = self.below(self.expected.len() - len);
        let byte = u8::try_from(self.below(256)).unwrap();
        self.file.write_at(&vec![byte; len], at.try_into().unwrap()).unwrap();
        self.expected[at..at + len].fill(byte);
        match self.below(4) {
            0 => self.file.sync_all().unwrap(),
            1 => self.compare(),
            _ => {}
        }
    }

    fn compare(&self) {
        let mut found = vec![0; self.expected.len()];
        assert_eq!(self.file.read_at(&mut found, 0).unwrap(), found.len());
        assert!(found == self.expected, "a file that was changed");
    }
}

#[test]
fn everybody_goes_on_while_everything_moves() {
    let (file, volume) = make(800 * MIB);
    populate(&volume);
    volume.write("/sub/in-place", b"").unwrap();
    volume.set_flags("/sub/in-place", vfs::file_system::NodeFlags::NOCOW).unwrap();
    let before = all(&volume);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let goes_on = || !stop.load(std::sync::atomic::Ordering::Relaxed);
    let rounds = std::thread::scope(|scope| {
        for path in ["/sub/in-place", "/sub/copied", "/snap-1/copied"] {
            let volume = &volume;
            scope.spawn(move || {
                let mut changing = Changing::new(volume, path, 4_000_000);
                while goes_on() {
                    changing.change();
                }
                changing.compare();
            });
        }
        scope.spawn(|| {
            for number in 0.. {
                if !goes_on() {
                    break;
                }
                let path = format!("/sub/passing-{}", number % 7);
                volume.write(&path, contents(number, 100_000)).unwrap();
                let source = File::open(&volume, "/sub/large-8").unwrap();
                let target = FileOptions::new().write(true).open(&volume, &path).unwrap();
                target.reflink(&source, 4096, 65536, 65536).unwrap();
                volume.remove_file(&path).unwrap();
            }
        });
        scope.spawn(|| {
            while goes_on() {
                for (path, bytes) in before.iter().filter(|(path, _)| !path.ends_with("in-place")) {
                    assert!(volume.read(path).unwrap() == *bytes, "{path:?}");
                }
            }
        });
        let end = std::time::Instant::now() + std::time::Duration::from_secs(8);
        let mut rounds = 0;
        while std::time::Instant::now() < end {
            let spec: BalanceSpec = match rounds % 3 {
                0 => BalanceSpec::all(),
                1 => "data:convert=dup metadata:convert=single system:convert=single force".parse().unwrap(),
                _ => "data:convert=single metadata:convert=dup system:convert=dup".parse().unwrap(),
            };
            match volume.balance(spec, &mut on) {
                Ok(_) => rounds += 1,
                // New data kept arriving.
                Err(error) if error.errno() == vfs::Errno::EBUSY => volume.cancel_balance().unwrap(),
                Err(error) => panic!("{error}"),
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        rounds
    });
    assert!(rounds >= 2, "{rounds} balances");
    let mut after = all(&volume);
    after.retain(|path, _| before.contains_key(path));
    assert!(after.iter().all(|(path, bytes)| path.ends_with("in-place") || before.get(path) == Some(bytes)));
    volume.sync().unwrap();
    volume.close().unwrap();
    check(file.path());
}

#[test]
fn data_and_metadata_that_lie_together_move_together() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let options = MakeOptions {
        size: Some(200 * MIB),
        mixed: true,
        nodesize: 4096,
        metadata_profile: BlockGroupFlags::empty(),
        ..MakeOptions::default()
    };
    let volume = Volume::make(file.path(), &options).unwrap();
    populate(&volume);
    let before = all(&volume);
    let end = volume.balance(BalanceSpec::all(), &mut on).unwrap();
    assert!(matches!(end, BalanceEnd::Done(progress) if progress.completed > 0), "{end:?}");
    volume.balance("data".parse().unwrap(), &mut on).unwrap_err();
    assert!(all(&volume) == before);
    volume.close().unwrap();
    check(file.path());
}

/// New extents arrive in a group that is being emptied, before those that were copied: the balance went round in
/// circles.
#[test]
fn late_arrivals_are_moved_as_well() {
    let (file, volume) = make(600 * MIB);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..2u64 {
            let (volume, stop) = (&volume, &stop);
            scope.spawn(move || {
                for number in 0..200_000u64 {
                    if stop.load(std::sync::atomic::Ordering::Relaxed) {
                        break;
                    }
                    let path = format!("/{writer}-{}", number % 6);
                    let file = FileOptions::new().create(true).write(true).open(volume, &path).unwrap();
                    file.write_at(&vec![7; 120_000], number * 7919 % 900_000).unwrap();
                    if number % 3 == 0 {
                        file.set_len(number * 104_729 % 1_000_000).unwrap();
                    }
                    if number % 5 == 0 {
                        file.sync_data().unwrap();
                    }
                }
            });
        }
        let begin = std::time::Instant::now();
        for _ in 0..12 {
            let end = begin.elapsed() + std::time::Duration::from_secs(20);
            let spec: BalanceSpec = "data".parse().unwrap();
            let ended = volume.balance(spec, &mut |_| {
                assert!(begin.elapsed() < end, "it does not end");
                ControlFlow::Continue(())
            });
            match ended {
                Ok(_) => {}
                Err(error) if error.errno() == vfs::Errno::EBUSY => {
                    volume.cancel_balance().unwrap();
                }
                Err(error) => {
                    stop.store(true, std::sync::atomic::Ordering::Relaxed);
                    panic!("{error}");
                }
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    volume.close().unwrap();
    check(file.path());
}

/// An extent is moved as a whole: where free space is in pieces that are too small for it, room is added.
#[test]
fn a_long_extent_is_moved_though_free_space_is_in_pieces() {
    let (file, volume) = make(400 * MIB);
    let long = contents(5, 6 << 20);
    volume.write("/long", &long).unwrap();
    volume.sync().unwrap();
    let extents = File::open(&volume, "/long").unwrap().extents().unwrap();
    let [extent] = extents.as_slice() else { panic!("{extents:?}") };
    let at = extent.logical.unwrap();
    let count = common::fill(&volume, 1 << 20);
    for number in (0..count).step_by(2) {
        volume.remove_file(format!("/{}-{number}", 1 << 20)).unwrap();
    }
    volume.sync().unwrap();
    volume.resize(vfs::Size::Bytes(800 * MIB)).unwrap();
    let spec = BalanceSpec::default().data(&format!("vrange={at}..{}", at + 1)).unwrap();
    let BalanceEnd::Done(progress) = volume.balance(spec, &mut on).unwrap() else { panic!("it was not stopped") };
    assert_eq!((progress.completed, progress.without_room), (1, 0), "{progress:?}");
    assert!(volume.read("/long").unwrap() == long);
    volume.close().unwrap();
    check(file.path());
}
