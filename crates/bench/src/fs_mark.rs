//! `bench fs-mark` measures how fast many threads create files and fsync each of them, on mounts of several systems.
//! `main` calls it.
//!
//! As the program fs_mark does with `-S 1`: each thread has a directory of its own, and creates, writes, fsyncs and
//! closes its files one after the other. Every system is on a loop device over a file in memory, and so what the device
//! counted is the same for all: write requests, bytes, flushes. Every round has every system, each in another order.
//!
//! `f2fs-apart` is f2fs as it was before its mechanism: the pages of files that are written together get their blocks
//! in turn, and requests are cut there (mount option `older=apart`, of a program with the feature `ablation`).
//!
//! Failure: an error ends the run, and nothing stays mounted.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use serde::Serialize;

use crate::row::as_float;
use crate::table::{append, median, shuffled};

/// Options of the benchmark.
#[derive(Args)]
#[command(after_help = "\
As root. `cargo xtask bench` builds what it needs, and runs this:
  cargo xtask bench fs-mark                          16 threads, 250 files of 16 KiB each
  cargo xtask bench fs-mark --systems f2fs,f2fs-apart --bytes 65536")]
pub(crate) struct Options {
    /// Systems: f2fs, f2fs-apart and btrfs are Spinney's, ext4 is the kernel's; fuse-ll is libfuse's passthrough_ll,
    /// which PASSTHROUGH in the environment names.
    #[arg(long, value_delimiter = ',', default_values = USUAL)]
    systems: Vec<String>,
    /// Threads.
    #[arg(long, default_value_t = 16)]
    threads: u32,
    /// Files of each thread.
    #[arg(long, default_value_t = 250)]
    files: u32,
    /// Bytes of a file.
    #[arg(long, default_value_t = 16 << 10)]
    bytes: usize,
    /// Rounds.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Bytes of the devices.
    #[arg(long, default_value_t = 2 << 30)]
    size: u64,
    /// Directory on a memory file system for the images.
    #[arg(long, default_value = "/dev/shm/bench-fs-mark")]
    dir: PathBuf,
    /// File that a JSON line for each run is appended to.
    #[arg(long)]
    history: Option<PathBuf>,
    /// The `spinney` program.
    #[arg(long, default_value = "target/release/spinney")]
    program: PathBuf,
}

/// The default systems.
const USUAL: &[&str] = &["f2fs", "f2fs-apart", "btrfs", "ext4", "fuse2fs"];
/// The systems, in the order of the table.
const SYSTEMS: &[&str] = &["f2fs", "f2fs-apart", "btrfs", "ext4", "fuse2fs", "fuse-ll"];
/// Directory of the files passed through, beside the image.
const BELOW: &str = "below";
/// How long a server may take to let its device go.
const GONE_MAX: Duration = Duration::from_secs(60);

/// One run.
#[derive(Debug, Clone, Serialize)]
struct Run {
    system: &'static str,
    threads: u32,
    files: u32,
    bytes: usize,
    seconds: f64,
    writes: u64,
    bytes_written: u64,
    flushes: u64,
}

/// Runs every system in every round, and gives a table of medians.
///
/// # Errors
/// The first failure.
pub(crate) fn run(options: &Options) -> Result<String> {
    std::fs::create_dir_all(options.dir.join("mnt"))?;
    let is_wanted = |system: &&str| options.systems.iter().any(|wanted| wanted == system);
    let systems: Vec<&'static str> = SYSTEMS.iter().copied().filter(|system| is_wanted(system)).collect();
    ensure!(systems.len() == options.systems.len(), "the systems are {}", SYSTEMS.join(", "));
    let mut runs: BTreeMap<&str, Vec<Run>> = BTreeMap::new();
    for round in 0..options.rounds {
        for system in shuffled(&systems, round) {
            let run = one(options, system).with_context(|| system.to_owned())?;
            eprintln!("round {round}: {system}: {:.2} s, {} writes", run.seconds, run.writes);
            if let Some(path) = &options.history {
                append(path, [&run])?;
            }
            runs.entry(system).or_default().push(run);
        }
    }
    Ok(table(options, &systems, &runs))
}

fn table(options: &Options, systems: &[&str], runs: &BTreeMap<&str, Vec<Run>>) -> String {
    let mut text = format!(
        "{} threads, each {} files of {} bytes, with an fsync each; medians of {} rounds\n\n\
         | system | s | files/s | writes | KiB a write | MiB written | flushes |\n|---|---|---|---|---|---|---|\n",
        options.threads, options.files, options.bytes, options.rounds
    );
    let files = f64::from(options.threads) * f64::from(options.files);
    for system in systems {
        let all = runs.get(system).map_or(&[][..], Vec::as_slice);
        let middle = |of: fn(&Run) -> f64| median(all.iter().map(of).collect());
        let (seconds, writes) = (middle(|run| run.seconds), middle(|run| as_float(run.writes)));
        let bytes = middle(|run| as_float(run.bytes_written));
        let flushes = middle(|run| as_float(run.flushes));
        let _ = writeln!(
            text,
            "| {system} | {seconds:.2} | {:.0} | {writes:.0} | {:.1} | {:.0} | {flushes:.0} |",
            files / seconds,
            bytes / 1024.0 / writes.max(1.0),
            bytes / 1_048_576.0
        );
    }
    text
}

fn one(options: &Options, system: &'static str) -> Result<Run> {
    let up = Up::new(options, system)?;
    let before = up.counts()?;
    let start = Instant::now();
    let workers: Vec<_> = (0..options.threads)
        .map(|number| {
            let (dir, files, bytes) = (up.point.join(format!("thread-{number}")), options.files, options.bytes);
            thread::spawn(move || mark(&dir, files, bytes))
        })
        .collect();
    for worker in workers {
        worker.join().unwrap_or_else(|_| bail!("a thread panicked"))?;
    }
    let seconds = start.elapsed().as_secs_f64();
    let after = up.counts()?;
    let (threads, files, bytes) = (options.threads, options.files, options.bytes);
    let [writes, bytes_written, flushes] = [0, 1, 2].map(|index| after[index].saturating_sub(before[index]));
    up.down()?;
    Ok(Run { system, threads, files, bytes, seconds, writes, bytes_written, flushes })
}

/// The work of one thread.
fn mark(dir: &Path, files: u32, bytes: usize) -> Result<()> {
    std::fs::create_dir(dir)?;
    let contents = vec![0x5a; bytes];
    for number in 0..files {
        let mut file = File::create_new(dir.join(format!("file-{number:05}")))?;
        file.write_all(&contents)?;
        file.sync_all()?;
    }
    Ok(())
}

/// A system that is mounted on a loop device; taken down when dropped.
struct Up {
    program: PathBuf,
    system: &'static str,
    point: PathBuf,
    image: PathBuf,
    device: String,
    is_mounted: bool,
}

impl Up {
    fn new(options: &Options, system: &'static str) -> Result<Self> {
        let image = options.dir.join("image");
        let program = options.program.canonicalize().context("the program `spinney`: build it first")?;
        let _ = std::fs::remove_file(&image);
        // Pages that are there already: the first touch of memory costs more than all that is measured.
        let mut file = File::create(&image)?;
        let zeros = vec![0; 1 << 20];
        for _ in 0..options.size >> 20 {
            file.write_all(&zeros)?;
        }
        let device = said(Command::new("losetup").args(["--find", "--show"]).arg(&image))?.trim().to_owned();
        let mut up = Self { program, system, point: options.dir.join("mnt"), image, device, is_mounted: false };
        let spinney = || Command::new(&up.program);
        let (point, device) = (&up.point, &up.device);
        match system {
            "f2fs" | "f2fs-apart" => said(spinney().args(["mkfs", "-q", "-t", "f2fs", device]))?,
            "btrfs" => said(spinney().args(["mkfs", "-q", device]))?,
            "fuse-ll" => String::new(),
            _ => said(Command::new("mkfs.ext4").args(["-q", "-E", "nodiscard", device]))?,
        };
        match system {
            "f2fs" | "btrfs" => said(spinney().args(["mount", "-o", "allow_other", device]).arg(point))?,
            "f2fs-apart" => said(spinney().args(["mount", "-o", "allow_other,older=apart", device]).arg(point))?,
            "ext4" => said(Command::new("mount").args(["-t", "ext4", device]).arg(point))?,
            "fuse-ll" => pass_through(options, point)?,
            _ => said(Command::new("fuse2fs").arg(device).arg(point).args(["-o", "allow_other"]))?,
        };
        up.is_mounted = true;
        Ok(up)
    }

    /// Requests to write, bytes written and flushes that the device has seen.
    fn counts(&self) -> Result<[u64; 3]> {
        let name = self.device.trim_start_matches("/dev/");
        let text = std::fs::read_to_string(format!("/sys/block/{name}/stat"))?;
        let fields: Vec<u64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        let field = |index: usize| fields.get(index).copied().unwrap_or(0);
        Ok([field(4), field(6).saturating_mul(512), field(15)])
    }

    fn down(mut self) -> Result<()> {
        self.take_down()
    }

    fn take_down(&mut self) -> Result<()> {
        if self.is_mounted {
            self.is_mounted = false;
            match self.system {
                "ext4" | "fuse2fs" | "fuse-ll" => said(Command::new("umount").arg(&self.point))?,
                _ => said(Command::new(&self.program).arg("umount").arg(&self.point))?,
            };
        }
        let _ = std::fs::remove_dir_all(self.image.with_file_name(BELOW));
        // A server goes on for a moment.
        let start = Instant::now();
        while let Err(error) = said(Command::new("losetup").args(["-d", &self.device])) {
            ensure!(start.elapsed() < GONE_MAX, "{error:#}");
            thread::sleep(Duration::from_millis(50));
        }
        Ok(std::fs::remove_file(&self.image)?)
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        if self.image.exists()
            && let Err(error) = self.take_down()
        {
            eprintln!("{error:#}");
        }
    }
}

/// The upper limit for any server of a mount: libfuse's example over the memory file system, where an fsync does
/// nothing.
fn pass_through(options: &Options, point: &Path) -> Result<String> {
    let program = std::env::var_os("PASSTHROUGH").context("PASSTHROUGH is to say where passthrough_ll is")?;
    let below = options.dir.join(BELOW);
    std::fs::create_dir(&below)?;
    let source = format!("source={},cache=always,allow_other,default_permissions,timeout=86400", below.display());
    said(Command::new(program).args(["-o", &source]).arg(point))
}

/// The output of a command; its error output is the error.
fn said(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{:?} cannot be run", command.get_program()))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
