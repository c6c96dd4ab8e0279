//! A kernel with f2fs as the judge of images that Spinney wrote.
//!
//! Images are given, or made here ([`make`]): empty ones, and trees stored by `mkfs --rootdir` and by `put`. Those that
//! the property test, `kill-mount` and `crash-explore` leave are kept by them (`SPINNEY_KEEP`, `--keep`,
//! `--keep-states`) and given here. Of each a copy goes into a guest (`suites/f2fs-guest/run.sh`; many disks a boot, as
//! booting takes as long as judging). There [`inside`] mounts it, which recovers what was fsynced, walks it, changes
//! it and walks it again. Here the first walk is compared with Spinney's of the same image, and the second with
//! Spinney's of what the kernel left, in which `fsck.f2fs` has to find nothing.
//!
//! Needs what `run.sh` needs; root to make images with devices in them. An image that fails is kept, and the others
//! have their turn. Called by `cargo trials f2fs-guest`.

pub(crate) mod inside;
mod make;

use crate::diff_walk::f2fs::{self, Leave};
use crate::diff_walk::record::{Walk, differences};
use crate::diff_walk::stored;
use crate::formats::Kind;
use crate::system;
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

/// Disks of one boot: so many fit beside the results on the bus of the machine that qemu is.
const DISKS_MAX: usize = 22;
/// Differences of an image that are printed.
const SHOWN: usize = 8;

/// What is judged.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  cargo trials f2fs-guest --make\n  cargo trials f2fs-guest --make --small\n  \
    cargo trials crash-explore --format f2fs --judge-every 200 --keep-states states; cargo trials f2fs-guest states/*")]
pub(crate) struct Options {
    /// Images, which stay as they are.
    images: Vec<PathBuf>,
    /// Also images that the program makes: empty, by `mkfs --rootdir` and by `put`.
    #[arg(long)]
    make: bool,
    /// Make few and small ones: a run of a minute.
    #[arg(long, requires = "make")]
    small: bool,
    /// What is made, and what the guest changes, follow from it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The guest changes nothing.
    #[arg(long)]
    only_walk: bool,
    /// Images of one boot.
    #[arg(long, default_value_t = DISKS_MAX)]
    per_boot: usize,
    /// Longest time of one boot, in seconds.
    #[arg(long, default_value_t = 900)]
    seconds: u64,
    /// Where the guest's kernel is kept.
    #[arg(long, default_value = "target/f2fs-guest")]
    cache: PathBuf,
    /// Where copies of the images are.
    #[arg(long, default_value = "/dev/shm/spinney-f2fs-guest")]
    dir: PathBuf,
    /// The `spinney` program.
    #[arg(long, default_value = "target/release/spinney")]
    program: PathBuf,
}

/// Has the guest judge each image.
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
            true => println!("what the guest left is in {}", dir.display()),
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

/// What was seen of an image.
struct Seen {
    names: usize,
    is_recovered: bool,
}

/// An image on its way through the guest.
struct Subject {
    copy: PathBuf,
    /// The guest's name of its disk.
    disk: String,
    /// What Spinney sees in it, before the guest has it.
    ours: Result<(Walk, Leave)>,
}

/// Judges as many images as there are disks.
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

/// What the guest saw and left, compared with what Spinney sees.
fn compared(options: &Options, subject: &Subject, results: &Path) -> Result<Seen> {
    let left = |kind: &str| results.join(format!("{}.{kind}", subject.disk));
    if let Ok(said) = std::fs::read_to_string(left("failed")) {
        bail!("the guest: {said}");
    }
    let (ours, leave) = match &subject.ours {
        Ok(ours) => ours,
        Err(error) => bail!("{error:#}"),
    };
    let kernel = stored::read(&left("walk"))?;
    let mut names = kernel.len();
    same("as Spinney left it", kernel, ours.clone(), *leave)?;
    if let Some(problem) = Kind::F2fs.check(&subject.copy)? {
        bail!("fsck.f2fs, after the guest: {problem}");
    }
    if !options.only_walk {
        let changed = stored::read(&left("changed"))?;
        names = names.saturating_add(changed.len());
        let ours = f2fs::walk(&subject.copy).context("Spinney reads what the guest wrote")?;
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
