//! Tests reading: Spinney's walk of an image equals the kernel's.
//!
//! `kernel` walks the image through a read-only mount, `library` through the library; both fill the same
//! [`record::Record`] for each path of every subvolume: type, mode, owner, size, links, device, inode number, times in
//! nanoseconds, attributes, targets, contents (SHA-256), extents with their positions and flags, inode flags. `record`
//! lists the differences.
//!
//! Contents of files above [`record::LINEAR_BYTES_MAX`] are hashed by their blocks that are not zeros, so that sparse
//! files of petabytes can be compared too; both sides do the same.
//!
//! A walk stored beside the image (`NAME.walk`, see [`walk_file`]) replaces the kernel's: another kernel may have made
//! it, and the walk of an image whose power was cut is that of a recovered copy.
//!
//! Needs root, except for images with a stored walk. Fails with the error of the first file that cannot be read, on
//! either side. Called by `cargo trials diff-walk` and `.ci/run`.

mod content;
pub(crate) mod f2fs;
pub(crate) mod kernel;
pub(crate) mod library;
pub(crate) mod record;
pub(crate) mod walk_file;

use crate::system::Mount;
use anyhow::{Context, Result};
use record::Walk;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Walks each image both ways; prints up to `shown` differences of each, and the totals.
pub(crate) fn run(images: &[PathBuf], shown: usize) -> Result<ExitCode> {
    let mut failed = 0usize;
    let mut names = 0usize;
    for image in images {
        match compare(image, shown) {
            Ok(Outcome { name_count, difference_count }) => {
                names = names.saturating_add(name_count);
                failed = failed.saturating_add(usize::from(difference_count > 0));
            }
            Err(error) => {
                println!("{}: FAILED: {error:#}", image.display());
                failed = failed.saturating_add(1);
            }
        }
    }
    println!("diff-walk: {} images, {names} names, {failed} images differ", images.len());
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

struct Outcome {
    name_count: usize,
    difference_count: usize,
}

fn compare(image: &Path, shown: usize) -> Result<Outcome> {
    let start = Instant::now();
    let kept = walk_file::beside(image);
    let mut kernel = if kept.exists() { walk_file::read(&kept)? } else { walk_mounted(image).context("kernel")? };
    let kernel_seconds = start.elapsed().as_secs_f64();
    let start = Instant::now();
    let is_f2fs = f2fs::is_f2fs(image)?;
    let ours = if is_f2fs { f2fs::walk(image) } else { library::walk(image) };
    let mut ours = ours.context("Spinney")?;
    let ours_seconds = start.elapsed().as_secs_f64();
    if is_f2fs {
        f2fs::leave_comparable(f2fs::Leave::named(image), &mut kernel, &mut ours);
    }
    let differences = record::differences(&kernel, &ours);
    for difference in differences.iter().take(shown) {
        println!("  {difference}");
    }
    println!(
        "{}: {} names, {} differences (kernel {kernel_seconds:.1} s, Spinney {ours_seconds:.1} s)",
        image.display(),
        kernel.len(),
        differences.len()
    );
    Ok(Outcome { name_count: kernel.len(), difference_count: differences.len() })
}

/// The walk of this kernel.
fn walk_mounted(image: &Path) -> Result<Walk> {
    // Unmounted before our walk: the library refuses an image that the kernel has mounted.
    let mount = Mount::new(image, "ro,subvolid=5")?;
    let walk = kernel::walk(mount.path())?;
    mount.unmount()?;
    Ok(walk)
}

/// Prints the kernel's walk of a directory, in the form stored beside images.
pub(crate) fn print(folder: &Path) -> Result<()> {
    walk_file::write(&kernel::walk(folder)?, &mut std::io::stdout().lock())
}

/// Runs `one` for each path on all processors.
fn in_parallel<T: Send>(paths: &[Vec<u8>], one: impl Fn(&[u8]) -> Result<T> + Sync) -> Result<Vec<(Vec<u8>, T)>> {
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let next = std::sync::atomic::AtomicUsize::new(0);
    let worker = || -> Result<Vec<(Vec<u8>, T)>> {
        let mut done = Vec::new();
        while let Some(path) = paths.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
            let record = one(path).with_context(|| String::from_utf8_lossy(path).into_owned())?;
            done.push((path.clone(), record));
        }
        Ok(done)
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        let mut all = Vec::new();
        for worker in workers {
            all.extend(worker.join().unwrap_or_else(|_| anyhow::bail!("a worker panicked"))?);
        }
        Ok(all)
    })
}
