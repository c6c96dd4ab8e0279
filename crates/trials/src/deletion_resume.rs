//! Tests deletions of subvolumes that the kernel began, and Spinney has to finish. Called by
//! `cargo trials deletion-resume`.
//!
//! Copies of an image ([`crate::interruption`]) are taken while the kernel deletes snapshots that share most of their
//! trees with each other and with some deleted before. Spinney opens each copy, which finishes the deletion. Afterwards
//! no deleted subvolume is left, `btrfs check` finds no error, and the kernel walks the same files as after its own
//! deletion. Needs root, and mkfs.xfs.

use crate::diff_walk::record::Walk;
use crate::interruption::{self, Options, check_same, copy, walk};
use crate::system::{Mount, btrfs_program, make_image, run as run_program};
use anyhow::{Context, Result, ensure};
use btrfs::Volume;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use testkit::Random;

const IMAGE_BYTES: u64 = 2 << 30;
const FILES: u64 = 60_000;
const SNAPSHOTS: u64 = 6;
/// Files rewritten between two snapshots: at first, and at most, if a faster kernel finishes the deletion before a copy
/// can be taken.
const CHANGED_MIN: u64 = 400;
const CHANGED_MAX: u64 = 25_600;
/// Rounds without a copy after which the trial gives up.
const EMPTY_ROUNDS_MAX: u32 = 20;
/// Deleted before copies are taken, so that their blocks are counted by address.
const GONE_BEFORE: [u64; 2] = [0, 3];
/// Deleted while copies are taken.
const DELETED: [u64; 3] = [1, 2, 4];
/// Copies that are taken of one deletion.
const COPIES_MAX: u64 = 10;
/// Copies between two checks whether the deletion has ended.
const COPIES_BETWEEN: usize = 20;
/// Longest time of a deletion by the kernel.
const DELETION_MAX: Duration = Duration::from_secs(120);

/// Takes the copies and finishes each.
pub(crate) fn run(options: &Options) -> Result<()> {
    interruption::on_host(options, "deletion-resume", |top| finish_all(options, top))
}

fn finish_all(options: &Options, top: &Path) -> Result<()> {
    let start = Instant::now();
    let (mut count, mut names) = (0u64, 0);
    let (mut changed, mut empty) = (CHANGED_MIN, 0);
    for round in 0.. {
        let base = top.join("base.img");
        make(&base, options.seed + round, changed)?;
        let (cut, expected) = cut_short_deletions(&base, top, options.count - count)?;
        eprintln!("round {round}: {} copies in which the kernel had begun, {changed} files changed", cut.len());
        if cut.is_empty() {
            empty += 1;
            changed = (changed * 2).min(CHANGED_MAX);
            ensure!(empty < EMPTY_ROUNDS_MAX, "the kernel deletes faster than it can be cut short");
        }
        for image in &cut {
            let volume = Volume::open(image)?;
            volume.close()?;
            let image_name = || format!("seed {}, {}", options.seed + round, image.display());
            ensure!(dead(image)?.is_empty(), "deletions are left: {}", image_name());
            check_same(image, &expected).with_context(image_name)?;
            std::fs::remove_file(image)?;
            count += 1;
        }
        names = expected.len();
        if count >= options.count {
            break;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("deletion-resume: {count} that the kernel began, {names} names, 0 differences, {seconds:.0} s");
    Ok(())
}

fn subvolume(action: &str, paths: &[&Path]) -> Result<()> {
    let mut words = vec!["subvolume".to_owned(), action.to_owned()];
    words.extend(paths.iter().map(|path| path.to_string_lossy().into_owned()));
    run_program(&btrfs_program(), &words).map(drop)
}

/// An image with snapshots whose trees have three levels.
fn make(image: &Path, seed: u64, changed: u64) -> Result<()> {
    // Existing data must not end up in the image.
    let _ = std::fs::remove_file(image);
    make_image(image, IMAGE_BYTES, &["-n", "4096"])?;
    let mount = Mount::new(image, "noatime,commit=1")?;
    let top = mount.path().to_path_buf();
    let sub = top.join("sub");
    subvolume("create", &[&sub])?;
    let mut random = Random::new(seed);
    let write = |number: u64, random: &mut Random| -> Result<()> {
        let len = if number.is_multiple_of(8) { 9_000 } else { 100 + random.index(700) };
        let byte = u8::try_from(random.below(256)).unwrap_or(0);
        Ok(std::fs::write(sub.join(number.to_string()), vec![byte; len])?)
    };
    for number in 0..FILES {
        write(number, &mut random)?;
    }
    for number in 0..SNAPSHOTS {
        subvolume("snapshot", &[&sub, &top.join(format!("snapshot-{number}"))])?;
        // A part of the tree, so that the rest stays shared in large pieces.
        let first = random.below(FILES - changed);
        for number in first..first + changed {
            write(number, &mut random)?;
        }
    }
    let gone: Vec<PathBuf> = GONE_BEFORE.iter().map(|number| top.join(format!("snapshot-{number}"))).collect();
    for path in gone.iter().chain([&sub]) {
        subvolume("delete", &[path])?;
    }
    subvolume("sync", &[&top])?;
    mount.unmount()
}

/// Copies taken while the kernel deletes, and its walk after the deletion.
fn cut_short_deletions(base: &Path, top: &Path, count: u64) -> Result<(Vec<PathBuf>, Walk)> {
    let mut copies = Vec::new();
    let mount = Mount::new(base, "noatime,commit=1")?;
    let folder = mount.path().to_path_buf();
    for number in DELETED {
        subvolume("delete", &[&folder.join(format!("snapshot-{number}"))])?;
    }
    let begin = Instant::now();
    let mut all = Vec::new();
    // A commit makes the kernel save its progress. The progress is read later, since that takes too long now.
    while all.len() % COPIES_BETWEEN != 0 || is_under_way(&folder)? {
        let to = top.join(format!("cut-{}.img", all.len()));
        run_program("sync", &["-f", &folder.to_string_lossy()])?;
        copy(base, &to)?;
        all.push(to);
        ensure!(begin.elapsed() < DELETION_MAX, "the kernel's deletion did not end");
    }
    for to in all {
        let is_wanted = u64::try_from(copies.len())? < count.min(COPIES_MAX);
        match is_wanted && dead(&to)?.contains(&true) {
            true => copies.push(to),
            false => std::fs::remove_file(&to)?,
        }
    }
    let expected = walk(&folder)?;
    mount.unmount()?;
    Ok((copies, expected))
}

fn is_under_way(folder: &Path) -> Result<bool> {
    let list = run_program(&btrfs_program(), &["subvolume", "list", "-d", &folder.to_string_lossy()])?;
    Ok(!list.trim().is_empty())
}

/// The deleted subvolumes that are left, each with whether its deletion had begun.
fn dead(image: &Path) -> Result<Vec<bool>> {
    let text =
        run_program(&btrfs_program(), &["inspect-internal", "dump-tree", "-t", "root", &image.to_string_lossy()])?;
    let items = text.split("\titem ").filter(|item| item.contains(" ROOT_ITEM "));
    let dead = items.filter(|item| item.contains("refs 0\n") || item.contains("refs 0 "));
    Ok(dead.map(|item| !item.contains("drop_progress key (0 UNKNOWN.0 0)")).collect())
}
