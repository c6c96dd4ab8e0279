//! Tests interrupted balances: Spinney resumes balances that the kernel began, and the kernel those of Spinney.
//!
//! The trial copies an image with snapshots ([`crate::interruption`]) while the kernel balances it, mounted, and
//! between the steps of Spinney's balance. Spinney opens each copy of the first kind, drops the kernel's unfinished
//! relocation trees, and resumes the balance; the kernel mounts each copy of the second kind, and resumes by itself.
//! Afterwards `btrfs check` finds no error, and the kernel walks the same files as before. Needs root, and mkfs.xfs.
//! Called by `cargo trials balance-resume`.

use crate::diff_walk::record::Walk;
use crate::interruption::{self, Options, check_same, copy, walk};
use crate::system::{Mount, btrfs_program, make_image, run as run_program};
use anyhow::{Context, Result, bail, ensure};
use btrfs::{BalanceEnd, BalanceSpec, Volume};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use testkit::Random;

const IMAGE_BYTES: u64 = 1 << 30;
const SNAPSHOTS: u64 = 20;
const FILES: u64 = 800;
/// Interval of the copies of an image that the kernel balances.
const COPY_INTERVAL: Duration = Duration::from_millis(120);
/// Longest time that a balance may take.
const BALANCE_MAX: Duration = Duration::from_secs(300);

/// Runs both directions.
pub(crate) fn run(options: &Options) -> Result<()> {
    interruption::on_host(options, "balance-resume", |top| both(options, top))
}

fn both(options: &Options, top: &Path) -> Result<()> {
    let start = Instant::now();
    let base = top.join("base.img");
    let expected = make(&base, options.seed)?;
    let kernels = cut_kernels(&base, top, options.count)?;
    let mut with_trees = 0u64;
    for (number, image) in kernels.iter().enumerate() {
        with_trees += u64::from(has_relocation_trees(image)?);
        resume_here(image).with_context(|| format!("a balance of the kernel's, {number}"))?;
        judge(image, &expected).with_context(|| format!("a balance of the kernel's, {number}"))?;
        std::fs::remove_file(image)?;
    }
    println!("{} balances of the kernel's resumed here, {with_trees} with trees of a relocation", kernels.len());
    let ours = cut_ours(&base, top, options.count)?;
    for (number, image) in ours.iter().enumerate() {
        resume_there(image).with_context(|| format!("a balance of ours, {number}"))?;
        judge(image, &expected).with_context(|| format!("a balance of ours, {number}"))?;
        std::fs::remove_file(image)?;
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "balance-resume: {} of the kernel's, {} of ours, {} names, 0 differences, {seconds:.0} s",
        kernels.len(),
        ours.len(),
        expected.len()
    );
    let count = usize::try_from(options.count)?;
    ensure!(kernels.len() >= count && ours.len() >= count, "fewer than {count} balances were cut short");
    Ok(())
}

/// An image with files that snapshots share, and the kernel's walk of it.
fn make(image: &Path, seed: u64) -> Result<Walk> {
    make_image(image, IMAGE_BYTES, &[])?;
    let mount = Mount::new(image, "noatime")?;
    let sub = mount.path().join("sub");
    run_program(&btrfs_program(), &["subvolume", "create", &sub.to_string_lossy()])?;
    let mut random = Random::new(seed);
    let write = |number: u64, len: usize, random: &mut Random| -> Result<()> {
        let bytes: Vec<u8> =
            std::iter::repeat_with(|| u8::try_from(random.below(256)).unwrap_or(0)).take(len).collect();
        Ok(std::fs::write(sub.join(number.to_string()), bytes)?)
    };
    for number in 0..FILES {
        let len = [700, 5_000, 40_000, 250_000].get(random.index(4)).copied().unwrap_or(700);
        write(number, len, &mut random)?;
    }
    for number in 0..SNAPSHOTS {
        let to = mount.path().join(format!("snapshot-{number}"));
        run_program(&btrfs_program(), &["subvolume", "snapshot", "-r", &sub.to_string_lossy(), &to.to_string_lossy()])?;
        for _ in 0..15 {
            write(random.below(FILES), 6_000, &mut random)?;
        }
    }
    run_program("sync", &["-f", &sub.to_string_lossy()])?;
    let walk = walk(mount.path())?;
    mount.unmount()?;
    Ok(walk)
}

/// Copies of the image, each taken in the middle of a balance by the kernel.
fn cut_kernels(base: &Path, top: &Path, count: u64) -> Result<Vec<PathBuf>> {
    let mut copies = Vec::new();
    while u64::try_from(copies.len())? < count {
        let image = top.join("kernel.img");
        copy(base, &image)?;
        let mount = Mount::new(&image, "noatime")?;
        let folder = mount.path().to_path_buf();
        let mut balance = Command::new(btrfs_program())
            .args(["balance", "start", "--full-balance"])
            .arg(&folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        while balance.try_wait()?.is_none() && u64::try_from(copies.len())? < count {
            std::thread::sleep(COPY_INTERVAL);
            let to = top.join(format!("kernel-{}.img", copies.len()));
            copy(&image, &to)?;
            match is_paused(&to)? {
                true => copies.push(to),
                false => std::fs::remove_file(&to)?,
            }
        }
        // It fails if the balance has ended.
        let _ = run_program(&btrfs_program(), &["balance", "cancel", &folder.to_string_lossy()]);
        balance.wait()?;
        mount.unmount()?;
        std::fs::remove_file(&image)?;
    }
    Ok(copies)
}

fn is_paused(image: &Path) -> Result<bool> {
    let volume = Volume::options().read_only(true).replay_log(false).open(image)?;
    Ok(volume.paused_balance()?.is_some())
}

fn has_relocation_trees(image: &Path) -> Result<bool> {
    let text =
        run_program(&btrfs_program(), &["inspect-internal", "dump-tree", "-t", "root", &image.to_string_lossy()])?;
    Ok(text.contains("TREE_RELOC ROOT_ITEM"))
}

fn resume_here(image: &Path) -> Result<()> {
    let volume = Volume::open(image)?;
    let ended = volume.resume_balance(&mut |_| ControlFlow::Continue(()))?;
    ensure!(matches!(ended, BalanceEnd::Done(_)), "{ended:?}");
    volume.close()?;
    ensure!(!has_relocation_trees(image)?, "trees of a relocation are left");
    Ok(())
}

/// Copies of the image, each taken between two steps of a balance by Spinney.
fn cut_ours(base: &Path, top: &Path, count: u64) -> Result<Vec<PathBuf>> {
    let mut copies: Vec<PathBuf> = Vec::new();
    let image = top.join("ours.img");
    while u64::try_from(copies.len())? < count {
        copy(base, &image)?;
        let volume = Volume::open(&image)?;
        let mut failure = None;
        volume.balance(BalanceSpec::all(), &mut |_| {
            let to = top.join(format!("ours-{}.img", copies.len()));
            match copy(&image, &to) {
                Ok(()) => copies.push(to),
                Err(error) => failure = Some(error),
            }
            let is_enough = failure.is_some() || u64::try_from(copies.len()).is_ok_and(|len| len >= count);
            if is_enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        volume.close()?;
        std::fs::remove_file(&image)?;
        if let Some(error) = failure {
            return Err(error);
        }
    }
    Ok(copies)
}

/// Mounts the image, so that the kernel resumes its balance, and waits for the end.
fn resume_there(image: &Path) -> Result<()> {
    ensure!(is_paused(image)?, "there is no balance in {}", image.display());
    let mount = Mount::new(image, "noatime")?;
    let begin = Instant::now();
    loop {
        let status = Command::new(btrfs_program()).args(["balance", "status"]).arg(mount.path()).output()?;
        let text = String::from_utf8_lossy(&status.stdout);
        if text.contains("No balance") {
            break;
        }
        if begin.elapsed() > BALANCE_MAX {
            bail!("the kernel's balance did not end: {text}");
        }
        std::thread::sleep(COPY_INTERVAL);
    }
    mount.unmount()
}

fn judge(image: &Path, expected: &Walk) -> Result<()> {
    ensure!(!is_paused(image)?, "the balance has not ended");
    check_same(image, expected)
}
