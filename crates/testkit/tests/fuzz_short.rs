//! A short form of `fuzz/`: its functions, called with its seeds and with random changes of them, for a moment each.
//! Without coverage it finds only faults near the seeds; it needs no nightly compiler and no cargo-fuzz. Each day has
//! other changes: their seed is printed.
//!
//! `SPINNEY_FUZZ_MS` is the time of each target in milliseconds, `SPINNEY_SEED` the seed, and `SPINNEY_FUZZ` selects
//! targets by a part of their names.

#![allow(clippy::panic, clippy::unwrap_used, missing_docs, reason = "tests fail by panicking")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use btrfs_disk::key::item_type as t;
use testkit::Random;

#[allow(
    clippy::all,
    clippy::as_conversions,
    clippy::allow_attributes_without_reason,
    unreachable_pub,
    dead_code,
    reason = "it is a crate of its own, with rules of its own"
)]
#[path = "../../../fuzz/src/lib.rs"]
mod spinney_fuzz;

/// An input that takes longer is a failure.
const SECONDS_MAX: u64 = 20;
/// No input is longer: that of a block of the largest size, and a little.
const BYTES_MAX: usize = 70_000;

/// The kinds of items that a target of `fuzz/fuzz_targets` tries, by its name.
const ITEMS: &[(&str, &[u8])] = &[
    ("item_block_group", &[t::BLOCK_GROUP_ITEM]),
    ("item_chunk", &[t::CHUNK_ITEM]),
    ("item_csum", &[t::EXTENT_CSUM]),
    ("item_device", &[t::DEV_ITEM, t::DEV_EXTENT, t::PERSISTENT_ITEM]),
    ("item_dir", &[t::DIR_ITEM, t::DIR_INDEX, t::XATTR_ITEM]),
    (
        "item_extent",
        &[
            t::EXTENT_ITEM,
            t::METADATA_ITEM,
            t::EXTENT_DATA_REF,
            t::TREE_BLOCK_REF,
            t::SHARED_BLOCK_REF,
            t::SHARED_DATA_REF,
        ],
    ),
    ("item_file_extent", &[t::EXTENT_DATA]),
    ("item_free_space", &[t::FREE_SPACE_INFO, t::FREE_SPACE_EXTENT, t::FREE_SPACE_BITMAP]),
    ("item_inode", &[t::INODE_ITEM]),
    ("item_inode_ref", &[t::INODE_REF, t::INODE_EXTREF]),
    ("item_root", &[t::ROOT_ITEM, t::ROOT_REF, t::ROOT_BACKREF]),
    (
        "item_small",
        &[
            t::ORPHAN_ITEM,
            t::DIR_LOG_INDEX,
            t::UUID_KEY_SUBVOL,
            t::UUID_KEY_RECEIVED_SUBVOL,
            t::QGROUP_STATUS,
            t::QGROUP_INFO,
            t::QGROUP_LIMIT,
            t::QGROUP_RELATION,
            t::VERITY_DESC_ITEM,
            t::RAID_STRIPE,
            t::TEMPORARY_ITEM,
        ],
    ),
];

/// Gives bytes to a target.
fn call(target: &str, data: &[u8]) {
    match target {
        "superblock" => spinney_fuzz::superblock(data),
        "block" => spinney_fuzz::block(data),
        "leaf" => spinney_fuzz::leaf(data),
        "stream" => {
            spinney_fuzz::stream(data);
        }
        "f2fs_superblock" => spinney_fuzz::f2fs::superblock(data),
        "f2fs_checkpoint" => spinney_fuzz::f2fs::checkpoint(data),
        "f2fs_tables" => spinney_fuzz::f2fs::tables(data),
        "f2fs_node" => spinney_fuzz::f2fs::node(data),
        "f2fs_inode" => spinney_fuzz::f2fs::inode(data),
        "f2fs_dentry" => spinney_fuzz::f2fs::dentry(data),
        "f2fs_xattr" => spinney_fuzz::f2fs::xattr(data),
        "f2fs_summary" => spinney_fuzz::f2fs::summary(data),
        "f2fs_orphan" => spinney_fuzz::f2fs::orphan(data),
        "f2fs_packed" => spinney_fuzz::f2fs::packed(data),
        "f2fs_image" => spinney_fuzz::f2fs_image(data),
        "apply" => spinney_fuzz::apply(data),
        "names" => spinney_fuzz::names(data),
        "image" => spinney_fuzz::image(data),
        "check" => spinney_fuzz::check(data),
        "rescue" => spinney_fuzz::rescue(data),
        "repair" => spinney_fuzz::repair(data),
        "nbd_replies" => spinney_fuzz::nbd_replies(data),
        "nbd_requests" => spinney_fuzz::nbd_requests(data),
        "nbd_wire" => spinney_fuzz::nbd_wire(data),
        "backup_manifest" => spinney_fuzz::backup_manifest(data),
        "nfs_calls" => spinney_fuzz::nfs_calls(data),
        "nfs_wire" => spinney_fuzz::nfs_wire(data),
        "web_range" => spinney_fuzz::web_range(data),
        "web_request" => spinney_fuzz::web_request(data),
        "web_settings" => spinney_fuzz::web_settings(data),
        _ => {
            let kinds = ITEMS.iter().find(|(name, _)| *name == target);
            let (_, kinds) = kinds.unwrap_or_else(|| panic!("no target is named {target}"));
            spinney_fuzz::item(kinds, data);
        }
    }
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}

/// Makes one of a few kinds of changes.
fn change(data: &mut Vec<u8>, seeds: &[Vec<u8>], random: &mut Random) {
    const TELLING: [u64; 8] = [0, 1, 0x7f, 0xff, 0x1000, 0xffff_ffff, 1 << 63, u64::MAX];
    let at = random.index(data.len().max(1));
    match random.below(6) {
        0 if !data.is_empty() => data[at] ^= 1 << random.below(8),
        1 if !data.is_empty() => data[at] = u8::try_from(random.below(256)).unwrap(),
        2 => {
            let value = TELLING[random.index(TELLING.len())].to_le_bytes();
            let len = [1, 2, 4, 8][random.index(4)].min(data.len() - at.min(data.len()));
            data[at..at + len].copy_from_slice(&value[..len]);
        }
        3 => data.truncate(at),
        4 => {
            let count = random.index(40);
            let new: Vec<u8> = (0..count).map(|_| u8::try_from(random.below(256)).unwrap()).collect();
            data.splice(at..at, new);
        }
        _ => {
            let other = &seeds[random.index(seeds.len())];
            let from = random.index(other.len().max(1));
            let piece = &other[from..(from + random.index(64)).min(other.len())];
            let end = (at + piece.len()).min(data.len());
            data.splice(at..end, piece.iter().copied());
        }
    }
    data.truncate(BYTES_MAX);
}

/// Calls a target repeatedly and returns the number of calls; a panic is reported with its input.
fn fuzz(target: &str, folder: &Path, seed: u64) -> u64 {
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let seeds: Vec<Vec<u8>> = paths.iter().map(|path| std::fs::read(path).unwrap()).collect();
    assert!(!seeds.is_empty(), "{target} has no seeds");
    let time = Duration::from_millis(variable("SPINNEY_FUZZ_MS").unwrap_or(600));
    let (start, mut random, mut count) = (Instant::now(), Random::new(seed), 0);
    while start.elapsed() < time || count < u64::try_from(seeds.len()).unwrap() {
        let mut data = seeds[usize::try_from(count).unwrap() % seeds.len()].clone();
        if count >= u64::try_from(seeds.len()).unwrap() {
            for _ in 0..=random.below(6) {
                change(&mut data, &seeds, &mut random);
            }
        }
        let began = Instant::now();
        let ended = catch_unwind(AssertUnwindSafe(|| call(target, &data)));
        if ended.is_err() || began.elapsed() > Duration::from_secs(SECONDS_MAX) {
            let path = std::env::temp_dir().join(format!("spinney-fuzz-{target}"));
            std::fs::write(&path, &data).unwrap();
            panic!("{target}: seed {seed}, input {count} took {:?}, kept in {}", began.elapsed(), path.display());
        }
        count += 1;
    }
    count
}

#[test]
fn what_is_near_the_seeds_is_refused_or_kept() {
    let today = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() / 86_400;
    let seed = variable("SPINNEY_SEED").unwrap_or(today);
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let mut targets: Vec<_> = std::fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
    targets.sort();
    assert_eq!(targets.len(), ITEMS.len() + 30, "a target without seeds, or seeds without a target");
    for folder in targets {
        let target = folder.file_name().unwrap().to_str().unwrap();
        if !target.contains(&std::env::var("SPINNEY_FUZZ").unwrap_or_default()) {
            continue;
        }
        eprintln!("{target}: {} inputs, seed {seed}", fuzz(target, &folder, seed));
    }
}
