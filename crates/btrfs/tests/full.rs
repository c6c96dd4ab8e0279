//! Full volumes: whatever their size, files and subvolumes can be removed and their space comes
//! back.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use btrfs::{Error, MakeOptions, SnapshotMode, Volume};

const MIB: u64 = 1 << 20;

fn make(size: u64, nodesize: Option<u32>) -> (tempfile::NamedTempFile, Volume) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut options = MakeOptions {
        size: Some(size),
        ..MakeOptions::default()
    };
    if let Some(nodesize) = nodesize {
        options.nodesize = nodesize;
    }
    let volume = Volume::make(file.path(), &options).unwrap();
    (file, volume)
}

/// Writes files of `bytes` bytes until there is no space; says how many there are.
fn fill(volume: &Volume, bytes: usize) -> usize {
    for number in 0..1_000_000 {
        let result = volume
            .write(format!("/{bytes}-{number}"), vec![7; bytes])
            .and_then(|()| match bytes {
                0..4096 => Ok(()),
                _ => volume.sync(),
            });
        match result {
            Ok(()) => {}
            Err(Error::NoSpace) => return number,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the volume has no end");
}

fn empty(volume: &Volume) {
    let names: Vec<_> = volume
        .read_dir("/")
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_owned())
        .collect();
    for name in names {
        volume.remove_file(&name).unwrap();
    }
    volume.sync().unwrap();
}

/// The removal of a large file asked for 12 MiB of metadata, whatever the size of the volume.
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
        assert!(
            counts.iter().all(|count| count.abs_diff(counts[0]) <= 1),
            "{counts:?} files on {size} MiB"
        );
        volume.close().unwrap();
        drop(file);
    }
}

/// Nothing but names and inline contents: it is the metadata that is full.
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

/// Every block of a snapshot's tree may have to be visited when it goes.
#[test]
fn a_snapshot_can_be_deleted_when_the_metadata_is_full() {
    let (_file, volume) = make(16 * MIB, None);
    for number in 0..500 {
        volume
            .write(format!("/before-{number}"), vec![1; 500])
            .unwrap();
    }
    volume.create_subvolume("/snapshots").unwrap();
    volume
        .snapshot("/", "/snapshots/one", SnapshotMode::ReadWrite)
        .unwrap();
    fill(&volume, 700);
    volume.delete_subvolume("/snapshots/one").unwrap();
    volume.delete_subvolume("/snapshots").unwrap();
    empty(&volume);
    volume.close().unwrap();
}
