//! `bench snapshots` measures the cost of a snapshot, for small and large sources, and of a thousand of them. `main`
//! calls it.
//!
//! The first table is of the library: snapshots of a subvolume with one file, and of one with many, on one image, each
//! with its commit; medians, and the quotient. The second is of programs: a thousand snapshots made through a mount,
//! and deleted, one call after the other, by Spinney and by the kernel's btrfs. One program calls both; the kernel
//! takes the source as a descriptor, Spinney its number. "Space" is the time after the last call until their space was
//! free: `btrfs subvolume sync` of the kernel, a sync and an unmounting of Spinney.
//!
//! Failure: an error ends the run, and so does an image in which `btrfs check` finds errors.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use btrfs::{MakeOptions, Volume};
use clap::Args;
use vfs::SnapshotMode;

use crate::process;

/// Options of the benchmark.
#[derive(Args)]
#[command(after_help = "\
The second part as root, with python3 and mkfs.btrfs. `cargo xtask bench` builds what it needs, and runs this:
  cargo xtask bench snapshots                       one file against 1,000,000; 1,000 snapshots
  cargo xtask bench snapshots --files 10000 --snapshots 50")]
pub(crate) struct Options {
    /// Files of the larger subvolume.
    #[arg(long, default_value_t = 1_000_000)]
    files: u32,
    /// Snapshots of each subvolume that are timed.
    #[arg(long, default_value_t = 25)]
    rounds: usize,
    /// Snapshots that are made and deleted through mounts; 0 for none.
    #[arg(long, default_value_t = 1000)]
    snapshots: u32,
    /// Directory on a memory file system for the images.
    #[arg(long, default_value = "/dev/shm/bench")]
    dir: PathBuf,
    /// The `spinney` program.
    #[arg(long, default_value = "target/release/spinney")]
    program: PathBuf,
}

/// Files of a directory.
const DIR_FILES: u32 = 10_000;
/// Bytes that an inode and its names take, with room for copies.
const FILE_BYTES: u64 = 1200;
const IMAGE_BYTES_MIN: u64 = 1 << 30;

/// `PROGRAM DIR COUNT kernel|spinney PID` makes snapshots of DIR/source, deletes them, and prints the seconds of both,
/// and the memory of a process, in MiB, before, between and after (zeros without a number).
const PROGRAM: &str = r#"
import fcntl, os, struct, sys, time
base, count, system, pid = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
def memory():
    if pid == "0":
        return 0
    lines = open("/proc/" + pid + "/status").read().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS"))
top, source = os.open(base, os.O_RDONLY), os.open(base + "/source", os.O_RDONLY)
args = bytearray(4096)
args[8:16] = struct.pack("<Q", 256)
fcntl.ioctl(source, 0xd0009412, args, True)
number, = struct.unpack_from("<Q", args)
flags = 16 if system == "spinney" else 0
head = struct.pack("<qQQ", source, number if flags else 0, flags).ljust(56, b"\0")
before, start = memory(), time.monotonic()
for n in range(count):
    fcntl.ioctl(top, 0x50009417, bytearray(head + (b"s%d" % n).ljust(4040, b"\0")))
made, between = time.monotonic(), memory()
for n in range(count):
    fcntl.ioctl(top, 0x5000940f, bytearray(8) + (b"s%d" % n).ljust(4088, b"\0"))
print(made - start, time.monotonic() - made, before, between, memory())
"#;

/// Runs both parts.
///
/// # Errors
/// The first failure.
pub(crate) fn run(options: &Options) -> Result<String> {
    std::fs::create_dir_all(&options.dir)?;
    let mut text = by_size(options)?;
    if options.snapshots > 0 {
        // The second part takes long, and may fail.
        println!("{text}");
        text = through_mounts(options)?;
    }
    Ok(text)
}

fn by_size(options: &Options) -> Result<String> {
    let image = options.dir.join("snapshots.img");
    let size = u64::from(options.files).saturating_mul(FILE_BYTES * 4).max(IMAGE_BYTES_MIN);
    let _ = std::fs::remove_file(&image);
    let volume = Volume::make(&image, &MakeOptions { size: Some(size), ..MakeOptions::default() })?;
    fill(&volume, "one", 1)?;
    fill(&volume, "many", options.files)?;
    volume.sync()?;
    let (mut one, mut many) = (Vec::new(), Vec::new());
    for round in 0..options.rounds.max(1) {
        one.push(snapshot(&volume, "one", round)?);
        many.push(snapshot(&volume, "many", round)?);
    }
    volume.close()?;
    std::fs::remove_file(&image)?;
    let (one, many) = (median(&mut one), median(&mut many));
    let mut text = "| files in the subvolume | a snapshot, ms |\n|---|---|\n".to_owned();
    writeln!(text, "| 1 | {:.3} |\n| {} | {:.3} |", one * 1e3, options.files, many * 1e3)?;
    writeln!(text, "\n{:.2} times as long", many / one)?;
    Ok(text)
}

fn fill(volume: &Volume, name: &str, files: u32) -> Result<()> {
    volume.create_subvolume(name)?;
    for first in (0..files).step_by(usize::try_from(DIR_FILES)?) {
        let dir = format!("{name}/d{first}");
        volume.create_dir(&dir)?;
        for number in first..files.min(first.saturating_add(DIR_FILES)) {
            volume.write(format!("{dir}/f{number}"), b"x")?;
        }
    }
    Ok(())
}

/// Seconds of one, with its commit. A file is changed before, as between any two useful snapshots.
fn snapshot(volume: &Volume, name: &str, round: usize) -> Result<f64> {
    volume.write(format!("{name}/d0/f0"), format!("{round}"))?;
    volume.sync()?;
    let start = Instant::now();
    volume.snapshot(name, format!("{name}-{round}"), SnapshotMode::ReadOnly)?;
    volume.sync()?;
    Ok(start.elapsed().as_secs_f64())
}

fn median(seconds: &mut [f64]) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds.get(seconds.len() / 2).copied().unwrap_or(f64::NAN)
}

fn through_mounts(options: &Options) -> Result<String> {
    let mut text = "| system | snapshots | made, s | deleted, s | space, s |\n|---|---|---|---|---|\n".to_owned();
    let mut memory = String::new();
    for system in ["spinney", "kernel"] {
        let (rounds, space) = thousand(options, system).with_context(|| format!("on {system}"))?;
        let Some(first) = rounds.first() else { continue };
        writeln!(text, "| {system} | {} | {:.2} | {:.2} | {space:.2} |", options.snapshots, first.made, first.deleted)?;
        for (number, round) in rounds.iter().enumerate().filter(|_| system == "spinney") {
            let [before, between, after] = round.memory;
            writeln!(memory, "| {} | {before} | {between} | {after} |", number + 1)?;
        }
    }
    writeln!(text, "\n| round | the server before, MiB | all made | all deleted |\n|---|---|---|---|\n{memory}")?;
    Ok(text)
}

/// Snapshots made and deleted once.
struct Round {
    /// Seconds.
    made: f64,
    /// Seconds.
    deleted: f64,
    /// MiB of the server: before, when all were made, when all were deleted.
    memory: [u64; 3],
}

/// Makes and deletes them, Spinney twice, and waits for the space; seconds of the latter.
fn thousand(options: &Options, system: &str) -> Result<(Vec<Round>, f64)> {
    let (image, dir) = (options.dir.join("thousand.img"), options.dir.join("mnt"));
    std::fs::create_dir_all(&dir)?;
    std::fs::File::create(&image)?.set_len(IMAGE_BYTES_MIN)?;
    done(Command::new("mkfs.btrfs").arg("-q").arg("-f").arg(&image))?;
    {
        let volume = Volume::open(&image)?;
        fill(&volume, "source", 2000)?;
        volume.close()?;
    }
    let is_ours = system == "spinney";
    match is_ours {
        true => done(Command::new(&options.program).args(["mount", "-o", "user_subvol_ioctls"]).args([&image, &dir]))?,
        false => done(Command::new("mount").args(["-o", "loop"]).args([&image, &dir]))?,
    };
    let server = if is_ours { process::serving(&image)? } else { 0 };
    let rounds: Result<Vec<Round>> =
        (0..if is_ours { 2 } else { 1 }).map(|_| round(options, system, &dir, server)).collect();
    let start = Instant::now();
    let freed = match (&rounds, is_ours) {
        (Ok(_), false) => done(Command::new("btrfs").args(["subvolume", "sync", "-s", "1"]).arg(&dir)).map(drop),
        _ => Ok(()),
    };
    unmount(options, &dir, is_ours)?;
    let space = start.elapsed().as_secs_f64();
    freed?;
    let rounds = rounds?;
    done(Command::new("btrfs").args(["check", "--readonly", "--force"]).arg(&image))?;
    std::fs::remove_file(&image)?;
    Ok((rounds, space))
}

fn round(options: &Options, system: &str, dir: &Path, server: u32) -> Result<Round> {
    let (count, server) = (options.snapshots.to_string(), server.to_string());
    let printed = done(Command::new("python3").args(["-c", PROGRAM]).arg(dir).args([&count, system, &server]))?;
    let words: Vec<&str> = printed.split_whitespace().collect();
    let [made, deleted, memory @ ..] = words.as_slice() else { anyhow::bail!("python3 printed {printed:?}") };
    let memory: Vec<u64> = memory.iter().map(|word| word.parse()).collect::<Result<_, _>>()?;
    let memory = memory.try_into().map_err(|_| anyhow::anyhow!("python3 printed {printed:?}"))?;
    Ok(Round { made: made.parse()?, deleted: deleted.parse()?, memory })
}

fn unmount(options: &Options, dir: &Path, is_ours: bool) -> Result<()> {
    match is_ours {
        true => done(Command::new(&options.program).arg("umount").arg(dir)).map(drop),
        false => done(Command::new("umount").arg(dir)).map(drop),
    }
}

/// The output of a command.
fn done(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}", told.trim_end());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
