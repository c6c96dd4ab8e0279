//! The path interface of all formats, over btrfs.

use std::sync::Arc;

use blockdev::backends::MemoryDevice;
use btrfs::{MakeOptions, Volume};
use vfs_conformance::paths;

fn made() -> Volume {
    let device = Arc::new(MemoryDevice::new(256 << 20));
    Volume::options().make_device(device, &MakeOptions::default()).expect("a volume")
}

#[test]
fn a_volume_by_paths_does_what_every_format_does() {
    let volume = made();
    let by_paths = volume.by_paths().clone();
    if let Err(difference) = paths::check(&by_paths) {
        panic!("{difference}");
    }
}

/// A nested subvolume in a snapshot is an empty directory, whose number contains its place.
#[test]
fn the_stand_in_of_a_subvolume_is_found_by_its_path() {
    let volume = made();
    volume.create_subvolume("sub").expect("a subvolume");
    volume.create_subvolume("sub/inner").expect("one in it");
    volume.snapshot("sub", "snap", vfs::SnapshotMode::ReadWrite).expect("a snapshot");
    let by_paths = volume.by_paths().clone();
    let found = by_paths.metadata("snap/inner").expect("the stand-in");
    assert!(found.is_dir());
    assert_eq!(by_paths.metadata("snap/inner/..").expect("above").ino, by_paths.metadata("snap").expect("snap").ino);
    assert_eq!(by_paths.read_dir("snap/inner").expect("an empty directory").count(), 0);
}
