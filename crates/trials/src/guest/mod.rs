//! Tests f2fs images that Spinney wrote: a kernel with f2fs, in a guest, checks them.
//!
//! Images are given, or made here ([`make`]): empty ones, and trees stored by `mkfs --rootdir` and by `put`. The
//! property test, `kill-mount` and `crash-explore` keep images for this trial (`SPINNEY_KEEP`, `--keep`,
//! `--keep-states`). A copy of each goes into a guest (`suites/f2fs-guest/run.sh`; many disks a boot, as booting takes
//! as long as checking). There [`inside`] mounts it, which recovers fsynced files, walks it, changes it and walks it
//! again. This module compares the first walk with Spinney's of the same image, and the second with Spinney's of the
//! changed image, in which `fsck.f2fs` must find nothing.
//!
//! Needs the programs that `run.sh` needs; root to make images with devices in them. A failing image is kept, and the
//! others are still tried. Called by `cargo trials f2fs-guest`.

pub(crate) mod inside;
mod make;

use crate::diff_walk::f2fs::{self, Leave};
use crate::diff_walk::record::{Walk, differences};
use crate::diff_walk::walk_file;
use crate::formats::Kind;
use crate::system;
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

/// Most disks of one boot: the emulated bus has no more slots besides the one for results.
const DISKS_MAX: usize = 22;
/// Most differences of an image that are printed.
const SHOWN: usize = 8;

/// Options of the trial.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  cargo trials f2fs-guest --make\n  cargo trials f2fs-guest --make --small\n  \
    cargo trials crash-explore --format f2fs --judge-every 200 --keep-states states; cargo trials f2fs-guest states/*")]
pub(crate) struct Options {
    /// Images, which stay as they are.
    images: Vec<PathBuf>,
    /// Also check images that the program makes: empty, by `mkfs --rootdir` and by `put`
    #[arg(long)]
    make: bool,
    /// Make few and small ones: a run of a minute
    #[arg(long, requires = "make")]
    small: bool,
    /// Seed of the made images, and of the guest's changes
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The guest changes nothing.
    #[arg(long)]
    only_walk: bool,
    /// Number of images per boot
    #[arg(long, default_value_t = DISKS_MAX)]
    per_boot: usize,
    /// Longest time of one boot, in seconds.
    #[arg(long, default_value_t = 900)]
    seconds: u64,
    /// Directory for the guest's kernel
    #[arg(long, default_value = "target/f2fs-guest")]
    cache: PathBuf,
    /// Directory for copies of the images
    #[arg(long, default_value = "/dev/shm/spinney-f2fs-guest")]
    dir: PathBuf,
    /// The `spinney` program.
    #[arg(long, default_value = "target/release/spinney")]
    program: PathBuf,
}

/// Has the guest check each image.
pub(crate) fn run(root: &Path, options: &Options) -> Result<ExitCode> {
    std::fs::create_dir_all(&options.dir)?;
    let mut images = options.images.clone();
    if options.make {
        let scale = if options.small { make::Scale::SMALL } else { make::Scale::WHOLE };
        images.extend(make::all(&options.program, &options.dir.join("made"), options.seed, scale)?);
    }
    ensure!(!images.is_empty(), "no images: name some, or --make");
    let start = Instant::now();
    let (mut names, mut recovered, mut failed, mut boots) = (0usize, 0usize, 0usize, 0usize);
    for (boot, part) in images.chunks(options.per_boot.clamp(1, DISKS_MAX)).enumerate() {
        let dir = options.dir.join(format!("boot-{boot}"));
        boots = boots.saturating_add(1);
        let judged = judge(root, options, part, &dir)?;
        let mut has_failed = false;
        for (image, judged) in part.iter().zip(judged) {
            match judged {
                Ok(seen) => {
                    names = names.saturating_add(seen.names);
                    recovered = recovered.saturating_add(usize::from(seen.is_recovered));
                }
                Err(error) => {
                    println!("{}: FAILED: {error:#}", image.display());
                    failed = failed.saturating_add(1);
                    has_failed = true;
                }
            }
        }
        match has_failed {
            true => println!("results of the guest are in {}", dir.display()),
            false => std::fs::remove_dir_all(dir)?,
        }
    }
    println!(
        "f2fs-guest: {} images in {boots} boots, {recovered} with something to recover, {names} names, {failed} \
         failed, {} s",
        images.len(),
        start.elapsed().as_secs()
    );
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Counts for an image.
struct Seen {
    names: usize,
    is_recovered: bool,
}

/// An image to be checked by the guest.
struct Subject {
    copy: PathBuf,
    /// The guest's name for its disk.
    disk: String,
    /// Spinney's walk, before the guest gets it.
    ours: Result<(Walk, Leave)>,
}

/// Checks as many images as there are disks.
fn judge(root: &Path, options: &Options, images: &[PathBuf], dir: &Path) -> Result<Vec<Result<Seen>>> {
    std::fs::create_dir_all(dir)?;
    let mut subjects = Vec::new();
    for (index, (image, letter)) in images.iter().zip('b'..='z').enumerate() {
        let copy = dir.join(format!("{index}.img"));
        system::copy_sparse(image, &copy)?;
        let ours = f2fs::walk(&copy).and_then(|walk| Ok((walk, Leave::of(&copy)?))).context("Spinney reads it");
        subjects.push(Subject { copy, disk: format!("vd{letter}"), ours });
    }
    let results = dir.join("results");
    boot(root, options, &subjects, &results)?;
    Ok(subjects.iter().map(|subject| compared(options, subject, &results)).collect())
}

fn boot(root: &Path, options: &Options, subjects: &[Subject], results: &Path) -> Result<()> {
    let mut command = Command::new(root.join("crates/trials/suites/f2fs-guest/run.sh"));
    command.args(["--seconds", &options.seconds.to_string(), "--cache"]).arg(&options.cache);
    for subject in subjects {
        command.arg("--disk").arg(&subject.copy);
    }
    let own = std::env::current_exe()?;
    let name = own.file_name().context("this program has no name")?.to_owned();
    command.arg("--program").arg(own).arg("--results").arg(results);
    command.arg("--").arg(name).args(["f2fs-judge", "--seed", &options.seed.to_string()]);
    if options.only_walk {
        command.arg("--only-walk");
    }
    command.args(subjects.iter().map(|subject| format!("/dev/{}", subject.disk)));
    let status = command.stdin(Stdio::null()).status()?;
    ensure!(status.success(), "the guest: {status}; see {}", results.join("console").display());
    Ok(())
}

/// Compares the guest's walks and the changed image with Spinney's walks.
fn compared(options: &Options, subject: &Subject, results: &Path) -> Result<Seen> {
    let left = |kind: &str| results.join(format!("{}.{kind}", subject.disk));
    if let Ok(said) = std::fs::read_to_string(left("failed")) {
        bail!("the guest: {said}");
    }
    let (ours, leave) = match &subject.ours {
        Ok(ours) => ours,
        Err(error) => bail!("{error:#}"),
    };
    let kernel = walk_file::read(&left("walk"))?;
    let mut names = kernel.len();
    same("as Spinney left it", kernel, ours.clone(), *leave)?;
    if let Some(problem) = Kind::F2fs.check(&subject.copy)? {
        bail!("fsck.f2fs, after the guest: {problem}");
    }
    if !options.only_walk {
        let changed = walk_file::read(&left("changed"))?;
        names = names.saturating_add(changed.len());
        let ours = f2fs::walk(&subject.copy).context("reading the image that the guest changed")?;
        same("as the guest left it", changed, ours, Leave::Nothing)?;
    }
    Ok(Seen { names, is_recovered: *leave == Leave::Recovered })
}

fn same(when: &str, mut kernel: Walk, mut ours: Walk, leave: Leave) -> Result<()> {
    f2fs::leave_comparable(leave, &mut kernel, &mut ours);
    let found = differences(&kernel, &ours);
    let shown: Vec<&str> = found.iter().take(SHOWN).map(String::as_str).collect();
    ensure!(found.is_empty(), "{when}: {} differences:\n  {}", found.len(), shown.join("\n  "));
    Ok(())
}
