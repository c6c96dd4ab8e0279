//! Tests fragmentation: files that are written while others grow still lie in one piece on the disk.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use btrfs::{MakeOptions, Volume};
use common::Image;
use vfs::{File, FileOptions};

const GROWING: usize = 4;
const ROUNDS: usize = 20;

fn open(volume: &Volume, path: &str) -> File {
    FileOptions::new().read(true).write(true).create(true).open(volume, path).unwrap()
}

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from((at * 31 + at / 256 * seed) % 251).unwrap()).collect()
}

/// Numbers of contiguous pieces and of extents of a file.
fn pieces(volume: &Volume, path: &str) -> (usize, usize) {
    let extents = open(volume, path).extents().unwrap();
    let mut ends_at = None;
    let breaks = extents.iter().filter(|extent| {
        let begins_at = extent.logical;
        let is_break = begins_at != ends_at;
        ends_at = begins_at.map(|at| at + extent.len);
        is_break
    });
    (breaks.count(), extents.len())
}

/// Lets files grow in turn, by pieces of these sizes, and writes other files in between; returns the numbers of pieces
/// and extents of each.
fn grow(sizes: &[usize]) -> Vec<(usize, usize)> {
    // The volume is large, so that there is free space after each file.
    let (image, volume) = Image::make_with(MakeOptions { size: Some(4 << 30), ..MakeOptions::default() });
    volume.write("/fills the first chunk", vec![7; 8 << 20]).unwrap();
    let names: Vec<String> = (0..GROWING).map(|index| format!("/grows {index}")).collect();
    let mut contents = vec![Vec::new(); GROWING];
    let files: Vec<File> = names.iter().map(|name| open(&volume, name)).collect();
    for round in 0..ROUNDS {
        for (index, (file, contents)) in files.iter().zip(&mut contents).enumerate() {
            let piece = bytes(sizes[(round + index) % sizes.len()], round + index);
            file.write_at(&piece, u64::try_from(contents.len()).unwrap()).unwrap();
            contents.extend(piece);
            let between = bytes(130_000 + round, index);
            volume.write(format!("/between {round} {index}"), &between).unwrap();
        }
    }
    drop(files);
    for round in 0..ROUNDS {
        volume.write(format!("/behind {round}"), bytes(200_000, round)).unwrap();
    }
    volume.sync().unwrap();
    let volume = image.reopen(volume);
    for (name, contents) in names.iter().zip(&contents) {
        assert!(volume.read(name).unwrap() == *contents, "{name} differs");
    }
    assert_eq!(volume.read("/between 3 1").unwrap(), bytes(130_003, 1));
    names.iter().map(|name| pieces(&volume, name)).collect()
}

#[test]
fn files_that_grow_beside_others_are_in_one_piece() {
    for sizes in [&[100_000][..], &[131_072], &[70_001, 4096, 300_000, 1], &[200_000, 131_072, 5000]] {
        let found = grow(sizes);
        assert!(found.iter().all(|(pieces, extents)| *pieces == 1 && *extents <= 3), "pieces of {sizes:?}: {found:?}");
    }
}

#[test]
fn an_end_of_odd_length_follows_the_rest_of_the_file_on_disk() {
    let (image, volume) = Image::make();
    for (index, len) in [(1 << 20) + 1, (2 << 20) + 5000, 300_001, 65_537].into_iter().enumerate() {
        let (name, contents) = (format!("/odd {index}"), bytes(len, index));
        let file = open(&volume, &name);
        for (at, part) in contents.chunks(1 << 20).enumerate() {
            file.write_at(part, u64::try_from(at << 20).unwrap()).unwrap();
        }
        drop(file);
        volume.write(format!("/next {index}"), bytes(150_000, index)).unwrap();
    }
    volume.sync().unwrap();
    let volume = image.reopen(volume);
    for index in 0..4 {
        assert_eq!(pieces(&volume, &format!("/odd {index}")), (1, 1), "file {index}");
    }
}

/// In an earlier version, after a volume was opened, the allocator loaded the free space of one block group and filled
/// even its last holes before it loaded the next group.
#[test]
fn files_are_contiguous_although_the_first_group_has_only_holes() {
    let (image, volume) = Image::make_with(MakeOptions { size: Some(2 << 30), ..MakeOptions::default() });
    let mut count = 0;
    let data_groups = |volume: &Volume| {
        let chunks = volume.chunks();
        chunks.iter().filter(|chunk| chunk.flags.contains(btrfs_disk::flags::BlockGroupFlags::DATA)).count()
    };
    // Holes of 64 KiB in the first groups, and one large run in the last.
    while data_groups(&volume) < 4 {
        volume.write(format!("/{count}"), vec![7; 64 << 10]).unwrap();
        count += 1;
        if count % 256 == 0 {
            volume.sync().unwrap();
        }
    }
    (0..count).step_by(2).for_each(|number| volume.remove_file(format!("/{number}")).unwrap());
    let volume = image.reopen(volume);
    for index in 0..6 {
        // The small file fits into a hole of the first group.
        volume.write(format!("/small {index}"), vec![1; 5000]).unwrap();
        volume.sync().unwrap();
        volume.write(format!("/whole {index}"), vec![2; 4 << 20]).unwrap();
    }
    volume.sync().unwrap();
    let found: Vec<_> = (0..6).map(|index| pieces(&volume, &format!("/whole {index}"))).collect();
    assert!(found.iter().all(|(pieces, _)| *pieces == 1), "{found:?}");
}
