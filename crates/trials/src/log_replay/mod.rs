//! Tests log replay: Spinney replays as the kernel does. Called by `cargo trials log-replay`.
//!
//! The kernel makes dirty images: a random workload with fsyncs runs on a mounted image ([`workload`]), and right after
//! an fsync the backing file is copied. Of each copy that has a log ([`dirty_image`]) the kernel mounts one copy, which
//! replays the log, and Spinney opens another. Afterwards:
//!
//! - Spinney's walk of the dirty image, opened read-only, equals the result of the kernel's replay, and the file is
//!   unchanged;
//! - `btrfs check --check-data-csum` finds no error after Spinney's replay, and the kernel's walk equals that of its
//!   own replay;
//! - a crash at any moment of Spinney's replay leaves an image that replays to the same ([`crash`]);
//! - a log with wrong values and right checksums is refused, or replayed, without a panic ([`hostile`]).
//!
//! Times that replay sets to the moment of the replay count as equal. Needs root. Fails with the first image that
//! differs, which is kept.

mod crash;
mod dirty_image;
mod hostile;
mod workload;

use crate::diff_walk::record::{Record, Walk, differences};
use crate::diff_walk::{kernel, library};
use crate::system::{Mount, btrfs_program, is_root, run as run_program};
use anyhow::{Context, Result, ensure};
use btrfs::Volume;
use dirty_image::Dirty;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Options of the trial.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Number of dirty images
    #[arg(long, default_value_t = 40)]
    count: usize,
    /// Seed of the first workload; the next ones follow
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of crashes tried during each image's replay
    #[arg(long, default_value_t = 6)]
    crashes: u64,
    /// The program that writes the logs, instead of the kernel: its own `mount` serves the images
    #[arg(long, value_name = "SPINNEY")]
    writer: Option<PathBuf>,
    /// Number of logs with wrong values tried for each image
    #[arg(long, default_value_t = 10)]
    hostile: u64,
    /// Directory for the images
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
    /// Dirty images to test, instead of new ones
    images: Vec<PathBuf>,
    /// Keep all images
    #[arg(long)]
    keep: bool,
}

/// Runs all images.
pub(crate) fn run(options: &Options) -> Result<()> {
    if !is_root() {
        println!("log-replay: skipped, mounting needs root");
        return Ok(());
    }
    let start = Instant::now();
    let folder = options.dir.join(format!("spinney-log-replay-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let mut totals = Totals::default();
    for image in &options.images {
        let dirty = Dirty::copy(image, &folder.join("given.img"), "given".to_owned())?
            .with_context(|| format!("{} has no log", image.display()))?;
        judge(&dirty, options, &mut totals)?;
    }
    let mut seed = options.seed;
    while options.images.is_empty() && totals.images < options.count {
        for dirty in workload::run(seed, &folder, options.writer.as_deref())? {
            if totals.images < options.count {
                judge(&dirty, options, &mut totals)?;
            }
            if !options.keep {
                std::fs::remove_file(&dirty.path)?;
            }
        }
        seed = seed.wrapping_add(1);
    }
    if !options.keep {
        std::fs::remove_dir_all(&folder)?;
    }
    println!(
        "log-replay: {} dirty images (seeds {}..{seed}), {} names, {} crashes, 0 differences, \
         {} of {} wrong logs refused, {:.0} s",
        totals.images,
        options.seed,
        totals.names,
        totals.crashes,
        totals.refused,
        totals.hostile,
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

#[derive(Debug, Default)]
struct Totals {
    images: usize,
    names: usize,
    crashes: u64,
    hostile: u64,
    refused: u64,
}

fn judge(dirty: &Dirty, options: &Options, totals: &mut Totals) -> Result<()> {
    let story = || format!("{}: {} (kept)", dirty.story, dirty.path.display());
    let expected = by_kernel(dirty).with_context(story)?;
    let shown = read_only(dirty).with_context(story)?;
    same(&expected, &shown, dirty.made, "opened to read").with_context(story)?;
    let replayed = by_spinney(dirty).with_context(story)?;
    same(&expected, &replayed, dirty.made, "replayed").with_context(story)?;
    let crashes = crash::run(dirty, &expected, options.crashes).with_context(story)?;
    let refused = hostile::run(dirty, options.hostile).with_context(story)?;
    totals.hostile = totals.hostile.saturating_add(options.hostile);
    totals.refused = totals.refused.saturating_add(refused);
    totals.images = totals.images.saturating_add(1);
    totals.names = totals.names.saturating_add(expected.len());
    totals.crashes = totals.crashes.saturating_add(crashes);
    println!(
        "{}: {} names, {crashes} crashes, {refused} of {} wrong logs refused",
        dirty.story,
        expected.len(),
        options.hostile
    );
    Ok(())
}

/// The kernel's walk after its own replay.
fn by_kernel(dirty: &Dirty) -> Result<Walk> {
    let copy = dirty.path.with_extension("kernel");
    std::fs::copy(&dirty.path, &copy)?;
    let walk = mount_and_walk(&copy, "noatime,subvolid=5");
    std::fs::remove_file(copy)?;
    walk.context("the kernel's replay")
}

fn by_spinney(dirty: &Dirty) -> Result<Walk> {
    let copy = dirty.path.with_extension("spinney");
    std::fs::copy(&dirty.path, &copy)?;
    Volume::open(&copy)?.close()?;
    ensure!(!dirty_image::has_log(&copy)?, "the log is still there");
    let path = copy.to_string_lossy().into_owned();
    let said = run_program(&btrfs_program(), &["check", "--check-data-csum", &path])?;
    ensure!(said.contains("no error found"), "btrfs check: {said}");
    let walk = mount_and_walk(&copy, "ro,subvolid=5");
    std::fs::remove_file(copy)?;
    walk
}

fn mount_and_walk(image: &Path, options: &str) -> Result<Walk> {
    let mount = Mount::new(image, options)?;
    let walk = kernel::walk(mount.path())?;
    mount.unmount()?;
    Ok(walk)
}

fn read_only(dirty: &Dirty) -> Result<Walk> {
    let before = dirty_image::hash(&dirty.path)?;
    let walk = library::walk(&dirty.path)?;
    ensure!(dirty_image::hash(&dirty.path)? == before, "a read-only open wrote to the image");
    let options = Volume::options().read_only(true).replay_log(false);
    ensure!(options.open(&dirty.path)?.is_read_only(), "opened to write without the log");
    Ok(walk)
}

/// Fails if two walks differ in more than times set by the replay.
fn same(expected: &Walk, found: &Walk, made: SystemTime, what: &str) -> Result<()> {
    let (expected, found) = (with_replay_times(expected, made)?, with_replay_times(found, made)?);
    let lines = differences(&expected, &found);
    for line in lines.iter().take(20) {
        println!("  {line}");
    }
    ensure!(lines.is_empty(), "{what}: {} differences", lines.len());
    Ok(())
}

/// Marks times later than the image as set by its replay.
fn with_replay_times(walk: &Walk, made: SystemTime) -> Result<Walk> {
    let made = made.duration_since(UNIX_EPOCH)?;
    let made = (i64::try_from(made.as_secs())?, made.subsec_nanos());
    let late = |time| if time > made { (i64::MAX, 0) } else { time };
    let of_image = |record: &Record| {
        let mut record = record.clone();
        (record.mtime, record.ctime) = (late(record.mtime), late(record.ctime));
        record.atime = late(record.atime);
        record
    };
    Ok(walk.iter().map(|(path, record)| (path.clone(), of_image(record))).collect())
}
