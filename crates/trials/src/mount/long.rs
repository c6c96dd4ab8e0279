//! Tests long runs: fsx for hours in every mode, and a volume that stays full. Called by `cargo trials mount-long`.
//!
//! * fsx: two processes at once on one mount, each 200,000 operations of all kinds, memory mappings among them, on a
//!   file of its own; with direct I/O by `exercise`, which fsx lacks;
//! * stress-ng: every stressor for files that it has, one after the other, on a small image that is filled before and
//!   kept full, for ten minutes. An error of a stressor on a full volume is no failure; one that does not end, or an
//!   error found by `btrfs check`, is.

use super::checks::Mode;
use super::exercise;
use super::fresh_mount::Served;
use anyhow::{Context, Result, bail, ensure};
use rustix::io::Errno;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of the image that fsx works on.
const IMAGE_BYTES: u64 = 1 << 30;
/// Bytes of the image that is kept full.
const FULL_BYTES: u64 = 512 << 20;
/// Seconds for each stressor, and further seconds until it counts as hung.
const STRESSOR_SECONDS: u64 = 10;
const STRESSOR_END_SECONDS: u64 = 60;
/// Operations of fsx, with their weights.
const FSX_CONFIG: &str = "flen = 1048576\n[opsize]\nmax = 131072\nalign = 1\n[weights]\nclose_open = 1\nread = 10\n\
    write = 10\nmapread = 8\nmapwrite = 8\ninvalidate = 1\ntruncate = 4\nfsync = 1\nfdatasync = 1\npunch_hole = 3\n\
    posix_fallocate = 2\ncopy_file_range = 2\nsendfile = 1\nposix_fadvise = 1\n";
/// The stressors that work on files.
const STRESSORS: &str = "access aiol chattr chdir chmod chown copy-file dentry dir dirdeep dirmany fallocate fiemap \
    filename flock fpunch fsize fstat getdent hdd inode-flags io iomix link locka lockf lockofd metamix mknod msync \
    open readahead rename revio seek sendfile splice symlink sync-file touch utime xattr";

/// Options of the trial.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  cargo trials mount-long --only fsx --operations 20000")]
pub(crate) struct Options {
    /// Only parts with this in their name: fsx, direct, full
    #[arg(long, default_value = "")]
    only: String,
    /// Operations of each process of fsx.
    #[arg(long, default_value_t = 200_000)]
    operations: u64,
    /// Seconds on the full volume
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// First of the seeds.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The program fsx (crates.io), if not in PATH.
    #[arg(long, default_value = "fsx")]
    fsx: PathBuf,
    /// Directory for images and mounts
    #[arg(long, default_value = "/dev/shm/spinney-long")]
    dir: PathBuf,
    /// The `spinney` program.
    #[arg(long, default_value = "target/release/spinney")]
    program: PathBuf,
}

/// Runs the selected parts.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    std::fs::create_dir_all(&options.dir)?;
    let mut parts: Vec<(String, Mode, Part)> = Vec::new();
    for mode in [Mode::Default, Mode::Writeback, Mode::Nodatacow] {
        parts.push((format!("fsx {}", mode.name()), mode, two_fsx));
    }
    for mode in [Mode::Default, Mode::Nodatacow] {
        parts.push((format!("direct {}", mode.name()), mode, two_direct));
    }
    for mode in [Mode::Default, Mode::Writeback] {
        parts.push((format!("full {}", mode.name()), mode, full));
    }
    let mut failed = 0_u32;
    for (name, mode, part) in parts {
        if !name.contains(&options.only) {
            continue;
        }
        let start = Instant::now();
        let result = on_mount(options, &name, mode, part);
        let seconds = start.elapsed().as_secs();
        match result {
            Ok(line) => println!("{name}: {line}, check clean, {seconds} s"),
            Err(error) => {
                failed = failed.saturating_add(1);
                println!("{name}: FAILED after {seconds} s: {error:#}");
            }
        }
    }
    println!("mount-long: {failed} failed");
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

type Part = fn(&Options, &Path) -> Result<String>;

fn on_mount(options: &Options, name: &str, mode: Mode, part: Part) -> Result<String> {
    let is_full = name.starts_with("full");
    let bytes = if is_full { FULL_BYTES } else { IMAGE_BYTES };
    let image = options.dir.join("long.img");
    let dir = options.dir.join("mnt");
    let served = Served::fresh(&options.program, &image, &dir, bytes, &mode.options())?;
    let result = part(options, served.dir());
    let peak = served.peak_mib().unwrap_or_default();
    let lacks = match (is_full, mode) {
        (true, Mode::Writeback) => served.unmount_full_and_check(),
        _ => served.unmount_and_check().map(|()| false),
    };
    let line = result?;
    let told = if lacks? { ", files that lack data were told of" } else { "" };
    Ok(format!("{line}, {peak} MiB{told}"))
}

/// Two processes of fsx at once.
fn two_fsx(options: &Options, dir: &Path) -> Result<String> {
    let config = options.dir.join("fsx.toml");
    std::fs::write(&config, FSX_CONFIG)?;
    let mut children = Vec::new();
    for index in 0..2 {
        let seed = options.seed.wrapping_add(index);
        let log = options.dir.join(format!("fsx-{index}.log"));
        let child = Command::new(&options.fsx)
            .args(["-q", "-N", &options.operations.to_string(), "-S", &seed.to_string(), "-f"])
            .arg(&config)
            .arg("-P")
            .arg(&options.dir)
            .arg(dir.join(format!("file-{index}")))
            .stdout(Stdio::from(File::create(&log)?))
            .stderr(Stdio::from(File::options().append(true).open(&log)?))
            .spawn()
            .with_context(|| format!("{}: cargo install fsx", options.fsx.display()))?;
        children.push((child, log, seed));
    }
    for (mut child, log, seed) in children {
        let status = child.wait()?;
        if !status.success() {
            let said = std::fs::read_to_string(log).unwrap_or_default();
            let last: Vec<&str> = said.lines().rev().take(6).collect();
            bail!("fsx with seed {seed}: {status}: {last:?}");
        }
    }
    Ok(format!("2 x {} operations", options.operations))
}

/// The same with direct I/O.
fn two_direct(options: &Options, dir: &Path) -> Result<String> {
    let results: Vec<Result<()>> = thread::scope(|scope| {
        let run = |index: u64| {
            let file = dir.join(format!("file-{index}"));
            let seed = options.seed.wrapping_add(index);
            scope.spawn(move || exercise::run(&file, options.operations, seed))
        };
        let both: Vec<_> = (0..2).map(run).collect();
        both.into_iter().map(|one| one.join().unwrap_or_else(|_| bail!("it failed in a way of its own"))).collect()
    });
    results.into_iter().collect::<Result<()>>()?;
    Ok(format!("2 x {} operations", options.operations))
}

/// Stressors on a volume that is full.
fn full(options: &Options, dir: &Path) -> Result<String> {
    let ballast = dir.join("ballast");
    let work = dir.join("work");
    std::fs::create_dir(&work)?;
    let start = Instant::now();
    let (mut runs, mut refused) = (0_u32, 0_u32);
    for stressor in STRESSORS.split_whitespace().cycle() {
        if start.elapsed() >= Duration::from_secs(options.seconds) {
            break;
        }
        fill(&ballast)?;
        let log = options.dir.join("stress-ng.log");
        let mut child = Command::new("stress-ng")
            .args([&format!("--{stressor}"), "2", "-t", &STRESSOR_SECONDS.to_string()])
            .args(["--no-rand-seed", "--temp-path"])
            .arg(&work)
            .stdout(Stdio::null())
            .stderr(Stdio::from(File::create(&log)?))
            .spawn()
            .context("stress-ng")?;
        let limit = Duration::from_secs(STRESSOR_SECONDS + STRESSOR_END_SECONDS);
        let succeeded = wait_at_most(&mut child, limit).with_context(|| stressor.to_owned())?;
        runs = runs.saturating_add(1);
        refused = refused.saturating_add(u32::from(!succeeded));
        // A full volume can still delete.
        std::fs::remove_dir_all(&work).with_context(|| format!("files left by {stressor}"))?;
        std::fs::create_dir(&work)?;
    }
    std::fs::remove_file(&ballast)?;
    let note = dir.join("note");
    std::fs::write(&note, "room again")?;
    ensure!(std::fs::read(&note)? == b"room again", "the last write reads back wrong");
    // Data stored in mappings of holes found no space, which only a sync can report.
    match rustix::fs::syncfs(File::open(dir)?) {
        Ok(()) | Err(Errno::NOSPC) => {}
        Err(error) => return Err(error).context("in the end"),
    }
    Ok(format!("{runs} runs of stressors, {refused} of them gave up"))
}

/// Lets a file take the remaining space.
fn fill(ballast: &Path) -> Result<()> {
    let mut file = File::options().append(true).create(true).open(ballast)?;
    let piece = vec![0x5a; 64 << 10];
    let mut len = piece.len();
    while len >= 4096 {
        match file.write(piece.get(..len).unwrap_or_default()).and_then(|_| file.sync_data()) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::StorageFull => len /= 2,
            Err(error) => return Err(error).context("filling"),
        }
    }
    Ok(())
}

/// True if it succeeded; an error if it does not end.
fn wait_at_most(child: &mut Child, limit: Duration) -> Result<bool> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.success());
        }
        if start.elapsed() > limit {
            child.kill()?;
            bail!("it hangs");
        }
        thread::sleep(Duration::from_millis(50));
    }
}
