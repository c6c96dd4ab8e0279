//! Follows the advice of each finding of `spinney check`, on an image with the damage: advice that does not work is
//! worse than none.

use std::collections::BTreeSet;
use std::os::unix::fs::FileExt as _;

use spinney::btrfs::check::{Code, CodeTable as _};
use spinney::codec::checksum::{ChecksumType, checksum};

use crate::harness::{Bench, pattern};

const NODE_BYTES: usize = 16 << 10;
const SUPERBLOCKS: [usize; 2] = [64 << 10, 64 << 20];
const SUPERBLOCK_BYTES: usize = 4096;

/// A kind of damage, and the commands that its advice names.
struct Row {
    code: Code,
    /// Rows for the image [`Bench::filled_image`].
    damage: fn(&Bench),
    follow: fn(&Bench),
    /// More words for `check`.
    check: &'static str,
}

/// Codes whose advice has no image here, with the reason.
const NOT_SHOWN: &[(Code, &str)] = &[
    (Code::ExtentStripe, "only kernels before 3.16 and conversions wrote such blocks"),
    (Code::FileSymlink, "a link is made anew with `ln -s`: it has no contents that could be lost"),
    (Code::LogBlock, "a log is what a crash leaves: see `damage_to_a_log_is_left_behind`"),
];

const ROWS: &[Row] = &[
    Row { code: Code::BlockMirror, damage: one_copy, follow: scrub, check: "" },
    Row { code: Code::BlockChecksum, damage: every_copy, follow: get_past_damage, check: "" },
    Row { code: Code::DeviceSmall, damage: cut, follow: get_and_repair, check: "" },
    Row { code: Code::SuperTotalBytes, damage: other_size, follow: repair, check: "" },
    Row { code: Code::FreeSpaceCount, damage: other_count_of_free_ranges, follow: repair, check: "" },
    Row { code: Code::QuotaReferenced, damage: other_quota, follow: rescan, check: "" },
    Row { code: Code::CsumMissing, damage: no_checksums, follow: rescue_and_repair, check: "" },
    Row { code: Code::FileExtentOverlap, damage: overlapping_extents, follow: rescue_what_overlaps, check: "" },
    Row { code: Code::SuperMirror, damage: other_mirror, follow: repair, check: "" },
    Row { code: Code::SuperFlags, damage: unfinished_conversion, follow: write_nothing, check: "" },
    Row { code: Code::DataChecksum, damage: rotten_data, follow: put_again, check: "--data" },
];

#[test]
fn every_advice_can_be_followed() {
    let advice = |code: Code| code.info().unwrap().advice;
    let shown = ROWS.iter().map(|row| row.code).chain(NOT_SHOWN.iter().map(|(code, _)| *code)).map(advice);
    let shown: BTreeSet<&str> = shown.collect();
    let all: BTreeSet<&str> = Code::all().iter().map(|info| info.advice).collect();
    assert_eq!(shown, all, "each advice needs an image that shows it");
    let bench = Bench::in_memory();
    bench.fill("src");
    std::fs::write(bench.path("src/data"), data()).unwrap();
    bench.ok("mkfs -q --size 96M --rootdir src whole.img");
    for row in ROWS {
        std::fs::copy(bench.path("whole.img"), bench.path("a.img")).unwrap();
        (row.damage)(&bench);
        let run = bench.run(format!("check {} a.img", row.check).trim());
        let out = String::from_utf8_lossy(&run.out);
        assert_eq!(run.status, 4, "{}: {out}{}", row.code, run.err);
        assert!(out.contains(&format!("{} (", row.code)) && out.contains(advice(row.code)), "{}: {out}", row.code);
        (row.follow)(&bench);
    }
}

/// A row of [`ROWS`] for a volume with a log, left by a program that was killed after an fsync.
#[test]
fn damage_to_a_log_is_left_behind() {
    let bench = Bench::in_memory();
    bench.filled_image();
    let volume = spinney::btrfs::Volume::open(bench.path("a.img")).unwrap();
    volume.write("synced", b"by fsync").unwrap();
    spinney::File::open(volume.by_paths(), "synced").unwrap().sync_all().unwrap();
    std::fs::copy(bench.path("a.img"), bench.path("b.img")).unwrap();
    drop(volume);
    std::fs::rename(bench.path("b.img"), bench.path("a.img")).unwrap();
    let log_root = number(&std::fs::read(bench.path("a.img")).unwrap(), SUPERBLOCKS[0] + 96);
    assert!(log_root != 0, "no log");
    for at in nodes(&bench, |node| number(node, 48) == log_root) {
        bench.rot("a.img", at);
    }
    let run = bench.run("check a.img");
    let out = String::from_utf8_lossy(&run.out);
    assert!(
        run.status == 4 && out.contains("log-block (") && out.contains(Code::LogBlock.info().unwrap().advice),
        "{} {out}",
        run.status
    );
    assert_eq!(bench.ok("cat --nologreplay a.img /a.txt"), "hello\n");
    repair(&bench);
}

/// Contents with a unique beginning.
fn data() -> Vec<u8> {
    pattern(200_000).iter().map(|byte| byte ^ 0x5a).collect()
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// The offsets of the tree blocks that match.
fn nodes(bench: &Bench, is_wanted: impl Fn(&[u8]) -> bool) -> Vec<u64> {
    let bytes = std::fs::read(bench.path("a.img")).unwrap();
    let fsid = bytes[SUPERBLOCKS[0] + 32..][..16].to_vec();
    let all = (0_u64..).step_by(NODE_BYTES).zip(bytes.chunks_exact(NODE_BYTES));
    all.filter(|(_, node)| node[32..48] == fsid && is_wanted(node)).map(|(at, _)| at).collect()
}

/// Changes bytes of a block, and makes its checksum right.
fn change(bench: &Bench, at: usize, len: usize, change: impl FnOnce(&mut [u8])) {
    let file = std::fs::File::options().read(true).write(true).open(bench.path("a.img")).unwrap();
    let (at, mut block) = (u64::try_from(at).unwrap(), vec![0; len]);
    file.read_exact_at(&mut block, at).unwrap();
    change(&mut block);
    let sum = checksum(ChecksumType::Crc32c, &block[32..]);
    block[..4].copy_from_slice(&sum[..4]);
    file.write_all_at(&block, at).unwrap();
}

/// Changes the items of this type in every leaf of a tree, by their keys.
fn change_items(bench: &Bench, tree: u64, item_type: u8, change_one: impl Fn((u64, u64), &mut [u8])) {
    const HEADER: usize = 101;
    let places = nodes(bench, |node| number(node, 88) == tree && node[100] == 0);
    assert!(!places.is_empty(), "tree {tree}");
    for at in places {
        change(bench, usize::try_from(at).unwrap(), NODE_BYTES, |node| {
            let count = usize::try_from(u32::from_le_bytes(node[96..100].try_into().unwrap())).unwrap();
            for item in (0..count).map(|slot| HEADER + slot * 25) {
                if node[item + 8] == item_type {
                    let offset = u32::from_le_bytes(node[item + 17..item + 21].try_into().unwrap());
                    let key = (number(node, item), number(node, item + 9));
                    change_one(key, &mut node[HEADER + usize::try_from(offset).unwrap()..]);
                }
            }
        });
    }
}

fn add(bytes: &mut [u8], count: u64) {
    let sum = number(bytes, 0).wrapping_add(count);
    bytes[..8].copy_from_slice(&sum.to_le_bytes());
}

fn leaves_of_files(bench: &Bench) -> Vec<u64> {
    nodes(bench, |node| number(node, 88) == 5 && node[100] == 0)
}

fn one_copy(bench: &Bench) {
    let bytes = std::fs::read(bench.path("a.img")).unwrap();
    let mut seen = BTreeSet::new();
    // Blocks of earlier states are among them, which are no longer read.
    for at in leaves_of_files(bench) {
        if seen.insert(number(&bytes, usize::try_from(at).unwrap() + 48)) {
            bench.rot("a.img", at);
        }
    }
}

/// The leaf with the names of a directory other than the first.
fn every_copy(bench: &Bench) {
    let bytes = std::fs::read(bench.path("a.img")).unwrap();
    let leaves = leaves_of_files(bench);
    let logical = |at: &u64| number(&bytes[usize::try_from(*at).unwrap()..], 48);
    let last = leaves.iter().map(logical).max().unwrap();
    for at in leaves.iter().filter(|at| logical(at) == last) {
        bench.rot("a.img", *at);
    }
}

fn cut(bench: &Bench) {
    let file = std::fs::File::options().write(true).open(bench.path("a.img")).unwrap();
    file.set_len(92 << 20).unwrap();
}

fn other_size(bench: &Bench) {
    for at in SUPERBLOCKS {
        change(bench, at, SUPERBLOCK_BYTES, |block| add(&mut block[112..], 4096_u64.wrapping_neg()));
    }
}

fn other_count_of_free_ranges(bench: &Bench) {
    change_items(bench, 10, 198, |_, info| info[0] ^= 1);
}

fn other_quota(bench: &Bench) {
    bench.ok("quota enable a.img");
    change_items(bench, 8, 242, |_, info| add(&mut info[8..], 4096));
}

fn no_checksums(bench: &Bench) {
    for at in nodes(bench, |node| number(node, 88) == 7 && node[100] == 0) {
        change(bench, usize::try_from(at).unwrap(), NODE_BYTES, |node| node[96..100].fill(0));
    }
}

/// Makes an overwritten part of an extent visible again, so that it overlaps the extent that replaced it.
fn overlapping_extents(bench: &Bench) {
    let volume = spinney::btrfs::Volume::open(bench.path("a.img")).unwrap();
    volume.write("data", pattern(16_384)).unwrap();
    volume.sync().unwrap();
    let file = spinney::OpenOptions::new().read(true).write(true).open(volume.by_paths(), "data").unwrap();
    file.write_at(&[9; 4096], 4096).unwrap();
    let ino = file.metadata().unwrap().home.ino;
    drop(file);
    volume.close().unwrap();
    change_items(bench, 5, 108, |key, extent| {
        if key == (ino, 0) && (number(extent, 8), number(extent, 45)) == (16_384, 4096) {
            extent[45..53].copy_from_slice(&8192_u64.to_le_bytes());
        }
    });
}

fn other_mirror(bench: &Bench) {
    change(bench, SUPERBLOCKS[1], SUPERBLOCK_BYTES, |block| add(&mut block[120..], 4096));
}

fn unfinished_conversion(bench: &Bench) {
    for at in SUPERBLOCKS {
        change(bench, at, SUPERBLOCK_BYTES, |block| add(&mut block[56..], 1 << 38));
    }
}

fn rotten_data(bench: &Bench) {
    bench.rot("a.img", bench.sectors_of("a.img", &data()[..4096])[0]);
}

fn assert_clean(bench: &Bench) {
    bench.ok("check --data a.img");
    bench.check("a.img");
}

fn scrub(bench: &Bench) {
    bench.ok("scrub start -q a.img");
    assert_clean(bench);
}

fn get_past_damage(bench: &Bench) {
    let run = bench.run("get a.img / out-past");
    assert!(run.status == 3 && run.err.contains("could not be copied"), "{} {}", run.status, run.err);
    assert_eq!(std::fs::read(bench.path("out-past/a.txt")).unwrap(), b"hello\n");
}

fn get_and_repair(bench: &Bench) {
    bench.ok("get a.img / out-cut");
    assert_eq!(std::fs::read(bench.path("out-cut/data")).unwrap(), data());
    repair(bench);
}

fn repair(bench: &Bench) {
    let before = std::fs::read(bench.path("a.img")).unwrap();
    let shown = bench.run("repair a.img");
    assert!(String::from_utf8_lossy(&shown.out).contains("a check finds no errors afterwards"), "{}", shown.err);
    assert!(std::fs::read(bench.path("a.img")).unwrap() == before, "showing writes nothing");
    let run = bench.run("repair --apply a.img");
    assert!(run.status <= 1, "{} {}", run.status, run.err);
    assert_clean(bench);
    // And can be undone.
    bench.ok("repair --undo a.img.undo a.img");
    assert!(std::fs::read(bench.path("a.img")).unwrap() == before);
    std::fs::remove_file(bench.path("a.img.undo")).unwrap();
}

fn rescan(bench: &Bench) {
    bench.ok("quota rescan a.img");
    assert_clean(bench);
}

fn rescue_and_repair(bench: &Bench) {
    let run = bench.run("rescue get --quiet a.img out-unsummed");
    assert!(run.status <= 1, "{} {}", run.status, run.err);
    assert_eq!(std::fs::read(bench.path("out-unsummed/data")).unwrap(), data());
    repair(bench);
}

fn rescue_what_overlaps(bench: &Bench) {
    let run = bench.run("rescue get --quiet a.img out-overlap");
    assert!(run.status <= 1, "{} {}", run.status, run.err);
    assert_eq!(std::fs::read(bench.path("out-overlap/data")).unwrap().len(), 16_384);
    repair(bench);
}

fn write_nothing(bench: &Bench) {
    let run = bench.run("put a.img src/a.txt /new");
    assert!(run.status != 0, "{}", run.err);
}

fn put_again(bench: &Bench) {
    bench.ok("put -f a.img src/data /data");
    assert_clean(bench);
}
