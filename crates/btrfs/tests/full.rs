//! Tests full volumes of several sizes: files and subvolumes can be removed, and their space can be used again.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use btrfs::{FsOptions, MakeOptions, Volume};
use common::{check, empty, fill};
use vfs::file_system::{AllocateFlags, Caller, Errno, Handle, NewNode, NodeId, SetAttr, SyncWhat, WriteFlags};
use vfs::{Blame, Error};
use vfs::{File, SnapshotMode};

const MIB: u64 = 1 << 20;

fn make(size: u64, nodesize: Option<u32>) -> (tempfile::NamedTempFile, Volume) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut options = MakeOptions { size: Some(size), ..MakeOptions::default() };
    if let Some(nodesize) = nodesize {
        options.nodesize = nodesize;
    }
    let volume = Volume::make(file.path(), &options).unwrap();
    (file, volume)
}

/// An earlier version reserved 12 MiB of metadata to remove a large file, even on a small volume.
#[test]
fn a_large_file_can_be_removed_from_a_small_full_volume() {
    for (size, nodesize) in [(16, None), (64, None), (64, Some(65536)), (200, None)] {
        let (file, volume) = make(size * MIB, nodesize);
        let mut counts = Vec::new();
        for _ in 0..3 {
            let large = usize::try_from(size * MIB / 2).unwrap();
            let _ = volume.write("/large", vec![1; large]);
            let _ = volume.sync();
            counts.push(fill(&volume, 1 << 20));
            empty(&volume);
        }
        assert!(counts.iter().all(|count| count.abs_diff(counts[0]) <= 1), "{counts:?} files on {size} MiB");
        volume.close().unwrap();
        drop(file);
    }
}

/// Fills the metadata: with names and inline contents only.
#[test]
fn names_can_be_removed_when_the_metadata_is_full() {
    for nodesize in [4096, 16384] {
        let (_file, volume) = make(16 * MIB, Some(nodesize));
        for _ in 0..2 {
            assert!(fill(&volume, 700) > 100);
            empty(&volume);
        }
        volume.close().unwrap();
    }
}

/// Every block of a snapshot's tree may have to be visited when it is deleted.
#[test]
fn a_snapshot_can_be_deleted_when_the_metadata_is_full() {
    let (_file, volume) = make(16 * MIB, None);
    for number in 0..500 {
        volume.write(format!("/before-{number}"), vec![1; 500]).unwrap();
    }
    volume.create_subvolume("/snapshots").unwrap();
    volume.snapshot("/", "/snapshots/one", SnapshotMode::ReadWrite).unwrap();
    fill(&volume, 700);
    volume.delete_subvolume("/snapshots/one").unwrap();
    volume.delete_subvolume("/snapshots").unwrap();
    empty(&volume);
    volume.close().unwrap();
}

/// In an earlier version, when two threads wrote into the same preallocated extent of a full volume, one saw the
/// other's flush half done, decided that the extent has to be copied, and found no space (the kernel sends writes from
/// its cache as several requests at once).
#[test]
fn several_threads_write_into_preallocated_space_of_a_full_volume() {
    const PIECE: u64 = 256 << 10;
    const EXTENT: u64 = 8 * MIB;
    const THREADS: u64 = 4;
    let (file, volume) = make(64 * MIB, None);
    let fs = volume.serve(FsOptions::default()).unwrap();
    let caller = Caller::default();
    for round in 0..40 {
        let mut nodes = Vec::new();
        let name = |index: usize| format!("file-{index}");
        let mut len = EXTENT;
        while len >= 4096 {
            let node = match fs.create(&caller, NodeId::ROOT, name(nodes.len()).as_bytes(), &NewNode::default()) {
                Ok(entry) => entry.node,
                Err(error) if error.errno() == Errno::ENOSPC => break,
                Err(error) => panic!("{error}"),
            };
            let allocated = fs.allocate(node, AllocateFlags::empty(), 0, len);
            if allocated.is_err() {
                let empty = SetAttr { size: Some(0), ..SetAttr::default() };
                fs.set_attr(&caller, node, &empty).unwrap();
                len /= 2;
            }
            nodes.push((node, if allocated.is_ok() { len } else { 0 }));
        }
        fs.sync_fs().unwrap();
        let bytes = vec![7; usize::try_from(PIECE).unwrap()];
        for (node, len) in nodes.iter().filter(|(_, len)| *len >= MIB) {
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    let (fs, bytes) = (&fs, &bytes);
                    scope.spawn(move || {
                        for at in (thread * PIECE..*len).step_by(usize::try_from(THREADS * PIECE).unwrap()) {
                            let flags = WriteFlags::FROM_CACHE;
                            let written = fs.write(*node, Handle(0), at, bytes, flags);
                            written.unwrap_or_else(|error| panic!("round {round}, byte {at}: {error}"));
                            if at % MIB == 0 {
                                fs.sync_file(*node, Handle(0), SyncWhat::Data).unwrap();
                            }
                        }
                    });
                }
            });
        }
        for (index, (node, _)) in nodes.iter().enumerate() {
            fs.unlink(NodeId::ROOT, name(index).as_bytes()).unwrap();
            fs.forget(*node, 1);
        }
        fs.sync_fs().unwrap();
    }
    drop(fs);
    volume.close().unwrap();
    common::check(file.path());
}

/// The kinds of files of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Files {
    Small,
    Large,
    Mixed,
}

/// Size of the file with this number, and of each write to it, in bytes.
fn shape(files: Files, number: u64) -> (u64, u64) {
    let small = (200 + number * 977 % 12_000, 4096);
    let large = (3 * MIB + number * 65_521 % (5 * MIB), 300_000 + number % 3 * 700_001);
    match files {
        Files::Small => small,
        Files::Large => large,
        Files::Mixed if number.is_multiple_of(17) => large,
        Files::Mixed => small,
    }
}

/// Writes a file; false when there was no space, and then the file is shorter or missing.
fn put(volume: &Volume, path: &str, (bytes, step): (u64, u64), number: u64) -> bool {
    let data = vec![u8::try_from(number % 251).unwrap(); usize::try_from(step).unwrap()];
    let write = || -> Result<(), Error> {
        let file = File::create(volume, path)?;
        let mut at = 0;
        while at < bytes {
            let len = usize::try_from(step.min(bytes - at)).unwrap();
            file.write_at(&data[..len], at)?;
            at += step;
        }
        match number % 64 {
            0 => file.sync_all(),
            _ => Ok(()),
        }
    };
    match write() {
        Ok(()) => true,
        Err(error) if error.blame() == Blame::Space => {
            let _ = volume.remove_file(path);
            false
        }
        Err(error) => panic!("{path}: {error}"),
    }
}

/// Fills the volume from several threads until each has failed five times for lack of space; returns the bytes written.
fn fill_together(volume: &Volume, round: u64, threads: u64, files: Files) -> u64 {
    let written = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let written = &written;
            scope.spawn(move || {
                let dir = format!("/{round}-{thread}");
                if volume.create_dir(&dir).is_err() {
                    return;
                }
                let mut failures = 0;
                for number in 0.. {
                    let shape = shape(files, number + thread);
                    if put(volume, &format!("{dir}/{number}"), shape, number) {
                        written.fetch_add(shape.0, Ordering::Relaxed);
                    } else {
                        failures += 1;
                        if failures == 5 {
                            return;
                        }
                    }
                }
            });
        }
    });
    written.into_inner()
}

/// Checks that the files have their contents, and removes half of them, or all.
fn thin_out(volume: &Volume, all: bool) {
    let names = |dir: &str| -> Vec<String> {
        let entries = volume.read_dir(dir).unwrap();
        let name = |entry: vfs::DirEntry| entry.file_name().to_str().unwrap().to_owned();
        entries.map(|entry| name(entry.unwrap())).collect()
    };
    let dirs = names("/");
    std::thread::scope(|scope| {
        for dir in &dirs {
            let names = &names;
            scope.spawn(move || {
                for (index, name) in names(&format!("/{dir}")).iter().enumerate() {
                    let path = format!("/{dir}/{name}");
                    if index % 16 == 0 {
                        let bytes = volume.read(&path).unwrap();
                        let number: u64 = name.parse().unwrap();
                        let byte = u8::try_from(number % 251).unwrap();
                        assert!(bytes.iter().all(|b| *b == byte), "{path}");
                    }
                    if all || index % 2 == 0 {
                        volume.remove_file(&path).unwrap();
                    }
                }
                if all {
                    volume.remove_dir(format!("/{dir}")).unwrap();
                }
            });
        }
    });
}

/// Fills a volume with several kinds of files, and checks that it reports `NoSpace`, that all space can be freed, and
/// that nearly as much fits again.
fn fill_and_thin_out(mib: u64, rounds: u64, threads: u64, make_options: &MakeOptions) {
    let file = tempfile::NamedTempFile::new_in(std::env::temp_dir()).unwrap();
    let options = MakeOptions { size: Some(mib * MIB), ..make_options.clone() };
    let volume = Volume::make(file.path(), &options).unwrap();
    let start = Instant::now();
    let mut first = Vec::new();
    for round in 0..rounds {
        for files in [Files::Small, Files::Large, Files::Mixed] {
            let written = fill_together(&volume, round * 2, threads, files);
            thin_out(&volume, false);
            let again = fill_together(&volume, round * 2 + 1, threads, files);
            let show = |bytes: u64| bytes / MIB;
            println!("{mib} MiB, {files:?}: {} + {} MiB, {:?}", show(written), show(again), start.elapsed());
            assert!(again > written / 4, "half of {written} was removed, then {again} fitted");
            if round == 0 {
                first.push(written);
            } else {
                let least = first[usize::from(files != Files::Small) + usize::from(files == Files::Mixed)];
                assert!(written >= least / 10 * 8, "{files:?}: {written} after {least}");
            }
            thin_out(&volume, true);
        }
    }
    assert!(start.elapsed() < Duration::from_secs(120 * rounds), "took {:?}", start.elapsed());
    volume.close().unwrap();
    common::check(file.path());
}

#[test]
fn a_volume_can_be_filled_and_emptied_again_and_again() {
    let number = |name: &str, or: u64| std::env::var(name).map_or(or, |text| text.parse().unwrap());
    let rounds = number("FULL_ROUNDS", 1);
    fill_and_thin_out(number("FULL_MIB", 128), rounds, 4, &MakeOptions::default());
}

/// Many removals at once share the global reserve.
#[test]
fn many_threads_can_remove_at_once_from_a_full_volume() {
    let (file, volume) = make(128 * MIB, None);
    for round in 0..2 {
        assert!(fill_together(&volume, round, 16, Files::Small) > 10 * MIB);
        thin_out(&volume, false);
        thin_out(&volume, true);
    }
    volume.close().unwrap();
    common::check(file.path());
}

/// An earlier version reserved 48 MiB of metadata for a thousand attributes.
#[test]
fn many_attributes_fit_a_small_volume() {
    let (file, volume) = make(64 * MIB, None);
    let names: Vec<String> = (0..1000).map(|number| format!("user.{number}")).collect();
    let xattrs: Vec<(&[u8], &[u8])> = names.iter().map(|name| (name.as_bytes(), &[7; 100][..])).collect();
    let node = vfs::file_system::WholeNode { xattrs: &xattrs, ..vfs::file_system::WholeNode::default() };
    for number in 0..20 {
        volume.create_node(format!("/{number}"), &node).unwrap();
    }
    empty(&volume);
    volume.close().unwrap();
    common::check(file.path());
}

/// The write needs space in a block group whose free space is not loaded, and much of it was freed since the last
/// commit.
#[test]
fn writes_after_many_removals_find_room() {
    let (file, volume) = make(256 * MIB, None);
    let bytes = vec![7; 9000];
    for number in 0..600 {
        volume.write(format!("/{number}"), &bytes).unwrap();
    }
    volume.close().unwrap();
    let volume = Volume::open(file.path()).unwrap();
    for number in 0..590 {
        volume.remove_file(format!("/{number}")).unwrap();
    }
    volume.write("/new", &bytes).unwrap();
    volume.sync().unwrap();
    assert_eq!(volume.read("/new").unwrap(), bytes);
    volume.close().unwrap();
    check(file.path());
}
