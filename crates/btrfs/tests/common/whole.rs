//! A volume with files of all kinds, and all that is in one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use btrfs::{MakeOptions, Volume};
use vfs::file_system::AllocateFlags;
use vfs::{File, FileOptions, SnapshotMode};

pub fn make(size: u64) -> (tempfile::NamedTempFile, Volume) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let options = MakeOptions { size: Some(size), ..MakeOptions::default() };
    let volume = Volume::make(file.path(), &options).unwrap();
    (file, volume)
}

/// Bytes that no other file has.
pub fn contents(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from((at / 7 + seed * 31 + at * at / 4096) % 251).unwrap()).collect()
}

/// Files of all kinds, two snapshots, clones, and changes on both sides.
pub fn populate(volume: &Volume) {
    volume.create_subvolume("/sub").unwrap();
    for number in 0..300 {
        volume.write(format!("/sub/small-{number}"), contents(number, number * 9)).unwrap();
    }
    for number in 0..12 {
        volume.write(format!("/sub/large-{number}"), contents(number, 900_000 + number * 4096)).unwrap();
    }
    let prealloc = FileOptions::new().create(true).write(true).open(volume, "/sub/prealloc").unwrap();
    prealloc.allocate(AllocateFlags::default(), 0, 3 << 20).unwrap();
    prealloc.write_at(&contents(5, 100_000), 500_000).unwrap();
    volume.sync().unwrap();
    volume.snapshot("/sub", "/snap-1", SnapshotMode::ReadWrite).unwrap();
    for number in 0..6 {
        volume.write(format!("/sub/large-{number}"), contents(number + 100, 500_000)).unwrap();
        volume.remove_file(format!("/sub/small-{}", number * 20)).unwrap();
    }
    volume.snapshot("/sub", "/snap-2", SnapshotMode::ReadOnly).unwrap();
    for number in 0..40 {
        volume.write(format!("/snap-1/new-{number}"), contents(number, 3000)).unwrap();
    }
    let (from, to) = ("/sub/large-7", "/sub/clone");
    let source = File::open(volume, from).unwrap();
    let target = FileOptions::new().create(true).read(true).write(true).open(volume, to).unwrap();
    // The first byte of the clone is not that of its extent, and lies before it in the file.
    target.reflink(&source, 8192, 0, 400 * 1024).unwrap();
    target.reflink(&source, 0, 1 << 20, 128 * 1024).unwrap();
    target.write_at(&contents(9, 5000), 70_000).unwrap();
    volume.sync().unwrap();
}

fn tree(volume: &Volume, dir: &Path, into: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in volume.read_dir(dir).unwrap() {
        let path = dir.join(entry.unwrap().file_name());
        match volume.metadata(&path).unwrap().is_dir() {
            true => tree(volume, &path, into),
            false => drop(into.insert(path.clone(), volume.read(&path).unwrap())),
        }
    }
}

pub fn all(volume: &Volume) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    tree(volume, Path::new("/"), &mut files);
    files
}
