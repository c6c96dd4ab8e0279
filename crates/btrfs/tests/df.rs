//! The numbers of `df` are true: that much can be written, and a read-only volume has the same numbers.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use btrfs::{MakeOptions, Volume, VolumeOptions};
use btrfs_disk::flags::BlockGroupFlags;
use vfs::{Blame, File};

const MIB: u64 = 1 << 20;
/// Most that a file may deviate from the reported number, in hundredths.
const OFF_MAX: u64 = 2;

fn make(size: u64, metadata_profile: BlockGroupFlags) -> (tempfile::NamedTempFile, Volume) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let options = MakeOptions { size: Some(size), metadata_profile, ..MakeOptions::default() };
    let volume = Volume::make(file.path(), &options).unwrap();
    (file, volume)
}

fn available(volume: &Volume) -> u64 {
    let status = volume.status().unwrap();
    status.blocks_available * u64::from(status.block_bytes)
}

/// Bytes of one file that grows until there is no room.
fn fill_one(volume: &Volume) -> u64 {
    let file = File::create(volume, "/large").unwrap();
    let (mut at, mut len) = (0, usize::try_from(MIB).unwrap());
    let piece = vec![7; len];
    while len >= 4096 {
        match file.write_at(&piece[..len], at).and_then(|()| volume.sync()) {
            Ok(()) => at += u64::try_from(len).unwrap(),
            Err(error) if error.blame() == Blame::Space => len /= 2,
            Err(error) => panic!("{error}"),
        }
    }
    at
}

#[test]
fn one_file_takes_what_df_promises() {
    for profile in [BlockGroupFlags::DUP, BlockGroupFlags::empty()] {
        for size in [64, 128, 200, 512, 1100] {
            let (file, volume) = make(size * MIB, profile);
            let promised = available(&volume);
            let taken = fill_one(&volume);
            let off = promised.abs_diff(taken);
            assert!(off * 100 <= promised * OFF_MAX, "{size} MiB, {profile:?}: {promised} promised, {taken} taken");
            let left = available(&volume);
            assert!(left * 100 <= promised * OFF_MAX, "{size} MiB, {profile:?}: {left} of {promised} left when full");
            volume.remove_file("/large").unwrap();
            volume.sync().unwrap();
            assert_eq!(available(&volume), promised, "{size} MiB, {profile:?}");
            volume.close().unwrap();
            drop(file);
        }
    }
}

/// All groups of a read-only volume counted as full: only unallocated space was available.
#[test]
fn df_says_the_same_of_a_volume_that_is_only_read() {
    let (file, volume) = make(256 * MIB, BlockGroupFlags::DUP);
    volume.write("/some", vec![3; 20 << 20]).unwrap();
    volume.sync().unwrap();
    volume.close().unwrap();
    let status = |options: VolumeOptions| options.open(file.path()).unwrap().status().unwrap();
    let when_written = status(VolumeOptions::new());
    let when_read = status(VolumeOptions::new().read_only(true));
    assert_eq!(when_read.blocks_available, when_written.blocks_available);
    assert_eq!((when_read.blocks, when_read.blocks_free), (when_written.blocks, when_written.blocks_free));
}
