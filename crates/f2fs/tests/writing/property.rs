//! Random operations on a volume and on the model.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};
use crash_explorer::Random;
use f2fs::{F2fs, MakeOptions};
use f2fs_disk::flags::Features;
use vfs::Volume;
use vfs_conformance::model::Operation;
use vfs_conformance::property::{Settings, Subject, run, run_threads};

use crate::{WITH_EXTRA, is_checked, make, open};

/// ENOSPC is acceptable with so many bytes left: the cleaner's reserve, and the most that an operation reserves.
const LEFT_BYTES: u64 = 12 << 20;

/// Logs that filled holes when volumes were closed.
static LOGS_IN_HOLES: AtomicU64 = AtomicU64::new(0);

struct OfF2fs;

#[derive(Clone)]
struct Opened(Volume, Arc<F2fs>);

impl AsRef<Volume> for Opened {
    fn as_ref(&self) -> &Volume {
        &self.0
    }
}

fn opened(path: &Path) -> Opened {
    let opened = open(path);
    Opened(Volume::new(Arc::<F2fs>::clone(&opened)), opened)
}

impl Subject for OfF2fs {
    type Opened = Opened;

    fn make(&self, path: &Path, size_bytes: u64, random: &mut Random) -> Result<(Opened, String)> {
        let features = if random.one_in(2) { WITH_EXTRA } else { Features::empty() };
        let section_segments = if random.one_in(4) { 2 } else { 1 };
        make(path, size_bytes, &MakeOptions { features, section_segments, ..MakeOptions::default() });
        let form = format!("features {}, sections of {section_segments}", features.names().join(","));
        Ok((opened(path), form))
    }

    fn open(&self, path: &Path, _random: &mut Random) -> Result<Opened> {
        Ok(opened(path))
    }

    fn check_full(&self, opened: &Opened, operation: &Operation) -> Result<()> {
        // All attributes of an inode share a limited space.
        if matches!(operation, Operation::SetXattr { .. }) {
            return Ok(());
        }
        let status = vfs::FileSystem::status(&*opened.1)?;
        let left = status.blocks_available.saturating_mul(u64::from(status.block_bytes));
        let wanted = match operation {
            Operation::Write { len, .. } | Operation::Allocate { len, .. } => *len,
            _ => 0,
        };
        ensure!(left < LEFT_BYTES.saturating_add(wanted), "ENOSPC with {left} bytes left");
        Ok(())
    }

    fn check(&self, path: &Path) -> Result<bool> {
        keep(path)?;
        let filled = f2fs::OpenOptions::new().open(crate::device(path))?.info()?.ssr_logs;
        LOGS_IN_HOLES.fetch_add(u64::from(filled), Ordering::Relaxed);
        is_checked(path).map_err(anyhow::Error::msg)
    }

    /// True for operations that the format supports.
    fn can(&self, operation: &Operation) -> bool {
        let shares = matches!(operation, Operation::Reflink { .. } | Operation::Defragment { .. });
        let is_of_subvolumes = matches!(
            operation,
            Operation::CreateSubvolume { .. } | Operation::Snapshot { .. } | Operation::DeleteSubvolume { .. }
        );
        !shares && !is_of_subvolumes
    }
}

/// Copies an image to the directory named by `SPINNEY_KEEP`, for a kernel to check.
pub(crate) fn keep(path: &Path) -> Result<()> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let Some(folder) = std::env::var_os("SPINNEY_KEEP") else { return Ok(()) };
    std::fs::create_dir_all(&folder)?;
    let name = format!("property-{}.img", NUMBER.fetch_add(1, Ordering::Relaxed));
    let mut command = std::process::Command::new("cp");
    let status = command.arg("--sparse=always").arg(path).arg(Path::new(&folder).join(name)).status()?;
    ensure!(status.success(), "cp: {status}");
    Ok(())
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// Runs each seed; prints the totals.
fn run_seeds(what: &str, seeds: u64, one: impl Fn(u64, &Path) -> Result<vfs_conformance::property::Report>) {
    let folder = tempfile::tempdir().unwrap();
    let first = number("SPINNEY_SEED", 0);
    let (mut done, mut refused, mut no_space) = (0, 0, 0);
    for seed in first..first + seeds {
        let report = one(seed, folder.path()).unwrap_or_else(|error| panic!("{what}: {error:?}"));
        (done, refused, no_space) = (done + report.done, refused + report.refused, no_space + report.no_space);
    }
    eprintln!("{what}: {seeds} seeds, {done} operations done, {refused} refused alike, {no_space} without space");
    assert!(done > 0 || seeds == 0);
}

#[test]
fn random_operations_equal_the_model() {
    let settings = Settings { operations: number("SPINNEY_OPERATIONS", 2000), ..Settings::default() };
    run_seeds("one thread", number("SPINNEY_SEEDS", 4), |seed, folder| run(&OfF2fs, seed, &settings, folder));
}

/// Small volumes, so that holes are filled.
#[test]
fn random_operations_on_small_volumes_equal_the_model() {
    let operations = number("SPINNEY_OPERATIONS", 2000);
    let settings = Settings { operations, image_bytes: 96 << 20, ..Settings::default() };
    run_seeds("small volumes", number("SPINNEY_SEEDS", 4), |seed, folder| run(&OfF2fs, seed, &settings, folder));
    let filled = LOGS_IN_HOLES.load(Ordering::Relaxed);
    eprintln!("{filled} logs filled holes");
    assert!(filled > 0 || operations < 2000);
}

#[test]
fn four_threads_equal_their_models() {
    let operations = number("SPINNEY_OPERATIONS", 2000) / 2;
    let settings = Settings { operations, image_bytes: 512 << 20, ..Settings::default() };
    let seeds = number("SPINNEY_SEEDS", 4).div_ceil(4);
    run_seeds("four threads", seeds, |seed, folder| run_threads(&OfF2fs, seed, 4, &settings, folder));
}
