//! New volumes, compared block by block with those that `mkfs.f2fs` makes with the same options.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "tests fail by panicking"
)]
#![allow(clippy::arithmetic_side_effects, reason = "so do sums that overflow")]

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use blockdev::Device;
use blockdev::backends::{FileDevice, FileOptions, MemoryDevice};
use f2fs::{CAN_HAVE, Features, Info, MakeError, MakeOptions, OpenOptions, make};
use f2fs_disk::checkpoint::{DiskCheckpoint, NatBits};
use f2fs_disk::superblock::{DiskSuperblock, Superblock, UncheckedSuperblock};
use f2fs_disk::{BLOCK_SIZE, Block};
use rustix::fs::SeekFrom;
use vfs::Volume;
use zerocopy::FromBytes as _;

const UUID: [u8; 16] = *b"\x10\x32\x54\x76\x98\xba\xdc\xfe\x01\x23\x45\x67\x89\xab\xcd\xef";
const UUID_TEXT: &str = "10325476-98ba-dcfe-0123-456789abcdef";
const TIME: u64 = 1_700_000_000;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// `None`, with a message, if the reference tools are missing.
fn tools() -> Option<tempfile::TempDir> {
    for tool in ["mkfs.f2fs", "fsck.f2fs"] {
        if command(tool).arg("-V").output().is_err() {
            println!("SKIPPED: {tool} is missing (Debian: f2fs-tools)");
            return None;
        }
    }
    Some(tempfile::tempdir().unwrap())
}

fn command(tool: &str) -> Command {
    let mut command = Command::new(tool);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command
}

fn text_of(output: &Output) -> String {
    [output.stdout.as_slice(), &output.stderr].iter().map(|bytes| String::from_utf8_lossy(bytes)).collect()
}

fn options() -> MakeOptions {
    MakeOptions { uuid: UUID, time: TIME, made_by: "a test".to_owned(), ..MakeOptions::default() }
}

/// A sparse file with our volume.
fn ours(dir: &Path, size: u64, options: &MakeOptions) -> PathBuf {
    let image = dir.join("ours.img");
    File::create(&image).unwrap().set_len(size).unwrap();
    let device = FileDevice::open(&image, &FileOptions::default()).unwrap();
    make(&device, options).unwrap();
    image
}

/// A sparse file with the volume of `mkfs.f2fs`; `None` if it makes none.
fn theirs(dir: &Path, size: u64, words: &str) -> Option<PathBuf> {
    let image = dir.join("theirs.img");
    File::create(&image).unwrap().set_len(size).unwrap();
    // Without discarding, which a checkpoint would record.
    let (time, fixed) = (TIME.to_string(), ["-q", "-f", "-t", "0", "-U", UUID_TEXT, "-T"]);
    let output =
        command("mkfs.f2fs").args(fixed).arg(time).args(words.split_whitespace()).arg(&image).output().unwrap();
    output.status.success().then_some(image)
}

type Blocks = BTreeMap<u64, Block>;

/// All blocks of a sparse file that are not zeros.
fn blocks(image: &Path) -> Blocks {
    let file = File::open(image).unwrap();
    let size = file.metadata().unwrap().len();
    let (mut found, mut at) = (Blocks::new(), 0);
    while let Ok(data) = rustix::fs::seek(&file, SeekFrom::Data(at)) {
        at = rustix::fs::seek(&file, SeekFrom::Hole(data)).unwrap_or(size);
        let mut bytes = vec![0; BLOCK_SIZE];
        for start in (data / 4096 * 4096..at).step_by(BLOCK_SIZE) {
            let len = usize::try_from(size - start).unwrap_or(BLOCK_SIZE).min(BLOCK_SIZE);
            file.read_exact_at(&mut bytes[..len], start).unwrap();
            if bytes.iter().any(|byte| *byte != 0) {
                found.insert(start / 4096, *bytes.first_chunk().unwrap());
            }
        }
    }
    found
}

fn superblock(blocks: &Blocks) -> Superblock {
    UncheckedSuperblock::new(&blocks[&0][1024..]).unwrap().verify(1024).unwrap()
}

/// Removes random fields (versions of checkpoints), and those that identify the program. Both change checksums.
fn comparable(mut blocks: Blocks) -> Blocks {
    let geometry = *superblock(&blocks).geometry();
    let cp = u64::from(geometry.cp.0);
    for copy in [0, 1] {
        let bytes = &mut blocks.get_mut(&copy).unwrap()[1024..];
        let Ok((fields, _)) = DiskSuperblock::mut_from_prefix(bytes) else { panic!("a block is too short") };
        (fields.version, fields.init_version) = ([0; 256], [0; 256]);
        if fields.features().contains(Features::SB_CHKSUM) {
            fields.seal();
        }
    }
    for block in blocks.range_mut(cp..cp + 1024).map(|(_, block)| block) {
        // Only the ends of packs have contents there.
        if block[4092..] != [0; 4] {
            block[..8].fill(0);
            block[4092..].fill(0);
        }
    }
    let bits = u64::from(512 - NatBits::block_count(geometry.nat_blocks));
    if let Some(block) = blocks.get_mut(&(cp + bits)) {
        block[..8].fill(0);
    }
    blocks
}

/// `mkfs.f2fs` counts the rest of the device behind the last zone among the blocks of users and the free segments,
/// though it is no part of the main area; then `fsck.f2fs` finds the number of free segments wrong.
fn without_rest(blocks: &mut Blocks, rest: u64) {
    let cp = u64::from(superblock(blocks).geometry().cp.0);
    for (_, block) in blocks.range_mut(cp..cp + 1024).filter(|(_, block)| block[8..16] != [0; 8]) {
        let Ok((fields, _)) = DiskCheckpoint::mut_from_prefix(block) else { panic!("a block is too short") };
        if fields.checksum_offset.get() == 4092 && fields.checkpoint_ver.get() == 0 {
            fields.user_block_count = (fields.user_block_count.get() - rest * 512).into();
            fields.free_segment_count = (fields.free_segment_count.get() - u32::try_from(rest).unwrap()).into();
        }
    }
}

fn open(image: &Path) -> (Info, Volume) {
    let device = FileDevice::open(image, &FileOptions { read_only: true, ..FileOptions::default() }).unwrap();
    let opened = Arc::new(OpenOptions::new().open(Arc::new(device)).unwrap());
    (opened.info().unwrap(), Volume::new(opened))
}

/// Makes both volumes and compares them, and checks ours.
fn compare(dir: &Path, size: u64, words: &str, options: &MakeOptions) {
    let what = format!("{size} bytes, mkfs.f2fs {words}");
    let Some(theirs) = theirs(dir, size, words) else { panic!("{what}: it fails") };
    let ours = ours(dir, size, options);
    let (mut left, right) = (comparable(blocks(&theirs)), comparable(blocks(&ours)));
    let zone = u64::from(options.section_segments * options.zone_sections);
    without_rest(&mut left, size / (2 * MIB) % zone);
    let places = |blocks: &Blocks| blocks.keys().copied().collect::<Vec<_>>();
    assert_eq!(places(&left), places(&right), "{what}: blocks that are not zeros, on the left of mkfs.f2fs");
    for (at, block) in &left {
        let different: Vec<_> = (0..BLOCK_SIZE).filter(|byte| block[*byte] != right[at][*byte]).take(40).collect();
        let bytes = |block: &Block| different.iter().map(|byte| block[*byte]).collect::<Vec<_>>();
        assert_eq!(bytes(block), bytes(&right[at]), "{what}: block {at}, bytes {different:?}");
    }
    check(&ours, &what, options);
}

/// Passes a volume of ours through `fsck.f2fs`, and reads it.
fn check(ours: &Path, what: &str, options: &MakeOptions) {
    let checked = command("fsck.f2fs").arg("--dry-run").arg(ours).output().unwrap();
    let text = text_of(&checked);
    assert!(checked.status.success() && !text.contains("[Fail]") && !text.contains("[ASSERT]"), "{what}: {text}");
    let (info, volume) = open(ours);
    let has_lost_found = options.features.contains(Features::LOST_FOUND);
    let has = |feature| options.features.contains(feature);
    let quotas = 2 * u32::from(has(Features::QUOTA_INO)) + u32::from(has(Features::PRJQUOTA));
    assert_eq!((info.is_clean, info.inodes), (true, 1 + u32::from(has_lost_found) + quotas), "{what}");
    assert_eq!(info.label, options.label);
    let names: Vec<_> = volume.read_dir("/").unwrap().map(|entry| entry.unwrap().file_name().to_owned()).collect();
    assert_eq!(names, if has_lost_found { vec!["lost+found"] } else { vec![] }, "{what}");
}

#[test]
fn volumes_of_all_sizes_are_those_of_mkfs() {
    let Some(dir) = tools() else { return };
    let sizes = [
        52 * MIB + 4096,
        64 * MIB,
        64 * MIB - 1,
        100 * MIB + 12_345,
        255 * MIB,
        500 * MIB,
        520 * MIB,
        530 * MIB,
        GIB,
        10 * GIB,
        100 * GIB + 777 * MIB,
        200 * GIB,
    ];
    for size in sizes {
        compare(dir.path(), size, "", &options());
    }
}

/// Volumes whose SIT version bitmap does not fit the first block of a checkpoint, and larger ones.
#[test]
fn large_volumes_are_those_of_mkfs() {
    let Some(dir) = tools() else { return };
    for size in [2 << 40, (7 << 40) + 5 * GIB] {
        compare(dir.path(), size, "", &options());
    }
}

#[test]
fn options_do_what_those_of_mkfs_do() {
    let Some(dir) = tools() else { return };
    let default = options();
    let with = |features| MakeOptions { features, ..options() };
    let extra = Features::EXTRA_ATTR;
    let cases = [
        ("-l Größe🙂", MakeOptions { label: "Größe🙂".to_owned(), ..default.clone() }),
        ("-o 7", MakeOptions { overprovision: Some(7.0), ..default.clone() }),
        ("-o 12.5", MakeOptions { overprovision: Some(12.5), ..default.clone() }),
        ("-s 2", MakeOptions { section_segments: 2, ..default.clone() }),
        ("-s 5 -z 3", MakeOptions { section_segments: 5, zone_sections: 3, ..default.clone() }),
        ("-z 4", MakeOptions { zone_sections: 4, ..default.clone() }),
        ("-R 1000:100", MakeOptions { owner: (1000, 100), ..default.clone() }),
        ("-O extra_attr", with(extra)),
        ("-O extra_attr,inode_checksum", with(extra | Features::INODE_CHKSUM)),
        ("-O extra_attr,inode_crtime", with(extra | Features::INODE_CRTIME)),
        ("-O extra_attr,flexible_inline_xattr", with(extra | Features::FLEXIBLE_INLINE_XATTR)),
        ("-O extra_attr,compression", with(extra | Features::COMPRESSION)),
        ("-O lost_found", with(Features::LOST_FOUND)),
        ("-O sb_checksum", with(Features::SB_CHKSUM)),
        ("-O encrypt,verity", with(Features::ENCRYPT | Features::VERITY)),
        ("-O casefold -C utf8", with(Features::CASEFOLD)),
        ("-C utf8:strict", MakeOptions { strict_names: true, ..with(Features::CASEFOLD) }),
        ("-O quota", with(Features::QUOTA_INO)),
        (
            "-O quota,extra_attr,project_quota,lost_found",
            with(extra | Features::QUOTA_INO | Features::PRJQUOTA | Features::LOST_FOUND),
        ),
        (
            "-O encrypt,extra_attr,inode_checksum,flexible_inline_xattr,inode_crtime,lost_found,verity,sb_checksum,\
             compression,quota,project_quota,casefold -C utf8",
            with(CAN_HAVE),
        ),
    ];
    for size in [300 * MIB, 5 * GIB] {
        for (words, options) in &cases {
            compare(dir.path(), size, words, options);
        }
    }
}

/// `mkfs.f2fs` puts the entry of an owner in the place of root's, and counts `lost+found` for it.
#[test]
fn quotas_of_an_owner_are_right() {
    let Some(dir) = tools() else { return };
    // For project numbers alone, in `mkfs.f2fs` the file's node names a next one two blocks further on.
    for features in [Features::QUOTA_INO, Features::EXTRA_ATTR | Features::PRJQUOTA, CAN_HAVE] {
        let options = MakeOptions { features, owner: (1000, 65_537), ..options() };
        check(&ours(dir.path(), 300 * MIB, &options), "quota", &options);
    }
}

/// The least size is that of `mkfs.f2fs`, for sections of several sizes.
#[test]
fn what_is_too_small_is_too_small_for_mkfs() {
    let Some(dir) = tools() else { return };
    let cases = [
        ("-s 1", MakeOptions { section_segments: 1, ..options() }),
        ("-s 3", MakeOptions { section_segments: 3, ..options() }),
        ("-o 20", MakeOptions { overprovision: Some(20.0), ..options() }),
        ("-z 2 -o 50", MakeOptions { zone_sections: 2, overprovision: Some(50.0), ..options() }),
    ];
    for (words, options) in cases {
        for size in (1..90).map(|segments| segments * 2 * MIB) {
            let made = options.check(size);
            assert_eq!(made.is_ok(), theirs(dir.path(), size, words).is_some(), "{size} {words}: {made:?}");
        }
    }
}

#[test]
fn the_same_options_make_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let options = MakeOptions { features: CAN_HAVE, label: "same".to_owned(), ..options() };
    let first = blocks(&ours(dir.path(), 100 * MIB, &options));
    assert_eq!(first, blocks(&ours(dir.path(), 100 * MIB, &options)));
    let other = MakeOptions { uuid: [7; 16], ..options };
    assert_ne!(first, blocks(&ours(dir.path(), 100 * MIB, &other)));
}

/// Blocks of an earlier volume have no effect on the new one.
#[test]
fn a_device_full_of_something_else_becomes_an_empty_volume() {
    let device = MemoryDevice::new(80 * MIB);
    for at in (0..80 * MIB).step_by(1 << 20) {
        device.write_at(at, &[&[0xa5; 1 << 20]]).unwrap();
    }
    make(&device, &options()).unwrap();
    let opened = Arc::new(OpenOptions::new().open(Arc::new(device)).unwrap());
    assert_eq!((opened.info().unwrap().recovered_files, opened.info().unwrap().inodes), (0, 1));
    assert_eq!(Volume::new(opened).read_dir("/").unwrap().count(), 0);
}

#[test]
fn what_cannot_be_made_is_refused_and_nothing_written() {
    let device = MemoryDevice::new(64 * MIB);
    device.write_at(1024, &[b"something else"]).unwrap();
    let wrong = [
        (MakeOptions { section_segments: 30, ..options() }, "too few"),
        (MakeOptions { section_segments: 0, ..options() }, "segments of a section: expected 1 to 4096, found 0"),
        (MakeOptions { zone_sections: 5000, ..options() }, "sections of a zone: expected 1 to 4096, found 5000"),
        (MakeOptions { overprovision: Some(100.0), ..options() }, "overprovision: expected more than 0"),
        (MakeOptions { overprovision: Some(f64::NAN), ..options() }, "found NaN"),
        (MakeOptions { features: Features::RO, ..options() }, "found ro"),
        (MakeOptions { strict_names: true, ..options() }, "casefold with strict names"),
        (MakeOptions { features: Features::INODE_CHKSUM, ..options() }, "expected extra_attr"),
        (MakeOptions { label: "x".repeat(512), ..options() }, "label: expected at most 511"),
        (MakeOptions { label: "a\0".to_owned(), ..options() }, "label: expected"),
        (MakeOptions { made_by: "x".repeat(256), ..options() }, "at most 255 bytes"),
    ];
    for (options, message) in wrong {
        let error = make(&device, &options).unwrap_err().to_string();
        assert!(error.contains(message), "{message}: {error}");
    }
    let mut head = [0; 14];
    device.read_at(1024, &mut head).unwrap();
    assert_eq!(&head, b"something else");
    for size in [0, 1, 4096, 10 * MIB, 30 * MIB] {
        assert!(matches!(options().check(size), Err(MakeError::TooSmall { .. })), "{size}");
    }
    for size in [16 << 40, u64::MAX] {
        assert!(matches!(options().check(size), Err(MakeError::TooLarge { .. })), "{size}");
    }
}
