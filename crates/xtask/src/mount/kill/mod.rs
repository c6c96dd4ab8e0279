//! `kill -9` of the server while eight writers fsync, many times: nothing that was promised is lost.
//!
//! What the writers do and how they remember what they were promised is in `promises`.
//!
//! After each kill the image is judged twice: the kernel mounts it, and so replays our log with its
//! own code; and Spinney mounts a copy. Both times every file must have every byte that was promised
//! and no byte that was never written, with attributes that it had at the last fsync or later, under a name that it
//! may have; every snapshot must be there and have all that was written before it; and `btrfs check` must find
//! nothing, neither before nor after.
//!
//! Fails at the end, with the number of losses; the seed repeats what the writers do, though not the
//! moment of the kill. Needs root. Called by `cargo xtask kill-mount`.

use super::promises::{Clock, Diary, End, Ledger, Miss, Mounted, Writers, misses, print_histories};
use super::served::{Served, check, server_of};
use crate::system::{self, Mount};
use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testkit::Random;

const IMAGE_BYTES: u64 = 1 << 30;
/// How the mounts are, by turns.
const OPTIONS: &[&str] = &[
    "allow_other,user_subvol_ioctls",
    "allow_other,user_subvol_ioctls,commit=1",
    "allow_other,user_subvol_ioctls,writeback",
    "allow_other,user_subvol_ioctls,nodatacow",
    "allow_other,user_subvol_ioctls,commit=1,writeback",
    "allow_other,user_subvol_ioctls,compress-force=zstd:1",
];
/// Milliseconds from the first write to the kill.
const DELAY_MS: (u64, u64) = (5, 1500);
/// Losses that are printed.
const SHOWN: usize = 20;
/// How long a mount may stay after its server was killed.
const GONE_MAX: Duration = Duration::from_secs(10);

/// What is run.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  cargo xtask kill-mount --times 50 --seed 1")]
pub(crate) struct Options {
    /// How often the server is killed.
    #[arg(long, default_value_t = 50)]
    times: u64,
    /// What the writers do and the delays follow from it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Writers at the same time.
    #[arg(long, default_value_t = 8)]
    writers: u64,
    /// Where images and mounts are.
    #[arg(long, default_value = "/dev/shm/spinney-kill")]
    dir: PathBuf,
    /// The `spinney` program.
    #[arg(long, default_value = "target/release/spinney")]
    program: PathBuf,
}

#[derive(Debug, Default)]
struct Totals {
    kills: u64,
    syncs: u64,
    bytes: u64,
    files: u64,
    snapshots: u64,
    with_log: u64,
    losses: Vec<String>,
}

/// Kills and judges.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    ensure!(system::is_root(), "mounting as the kernel does needs root");
    std::fs::create_dir_all(&options.dir)?;
    let mut totals = Totals::default();
    let start = Instant::now();
    for round in 0..options.times {
        one(options, round, &mut totals).with_context(|| format!("round {round}"))?;
    }
    for loss in totals.losses.iter().take(SHOWN) {
        println!("LOST: {loss}");
    }
    println!(
        "kill-mount: {} kills, {} with a log, {} fsyncs of {} MiB in {} files, {} snapshots, {} losses, seed {}, {} s",
        totals.kills,
        totals.with_log,
        totals.syncs,
        totals.bytes >> 20,
        totals.files,
        totals.snapshots,
        totals.losses.len(),
        options.seed,
        start.elapsed().as_secs()
    );
    Ok(if totals.losses.is_empty() {
        std::fs::remove_dir_all(&options.dir)?;
        ExitCode::SUCCESS
    } else {
        println!("the images of the last round that lost something are in {}", options.dir.display());
        ExitCode::FAILURE
    })
}

fn one(options: &Options, round: u64, totals: &mut Totals) -> Result<()> {
    let mut random = Random::new(options.seed.wrapping_add(round.wrapping_mul(0x1_0001)));
    let mode = OPTIONS.get(usize::try_from(round)? % OPTIONS.len()).copied().unwrap_or_default();
    let image = options.dir.join("kill.img");
    let dir = options.dir.join("mnt");
    let served = Served::fresh(&options.program, &image, &dir, IMAGE_BYTES, mode)?;
    let is_killed = Arc::new(AtomicBool::new(false));
    let end = End::Killed(Arc::clone(&is_killed));
    let writers = Writers::start(&mut random, served.dir(), options.writers, &end, || Ok(Clock::None))?;
    thread::sleep(Duration::from_millis(random.between(DELAY_MS.0, DELAY_MS.1)));
    let server = server_of(&image).and_then(Pid::from_raw).context("there is no server")?;
    is_killed.store(true, Ordering::SeqCst);
    kill_process(server, Signal::KILL)?;
    let diaries = writers.join()?;
    let dir = served.dir().to_owned();
    served.given_up();
    wait_until_gone(&dir, &image)?;
    totals.kills += 1;
    let losses = judge(&options.program, &image, &diaries, totals).with_context(|| format!("-o {mode}"))?;
    println!(
        "round {round}: -o {mode}: {} fsyncs, {} losses",
        diaries.iter().map(|diary| diary.ledger.syncs).sum::<u64>(),
        losses.len()
    );
    for Diary { ledger, .. } in &diaries {
        totals.syncs += ledger.syncs;
        totals.bytes += ledger.synced_bytes;
        totals.files += u64::try_from(ledger.files.len())?;
        totals.snapshots += u64::try_from(ledger.snapshots.len())?;
    }
    if !losses.is_empty() {
        let kept = options.dir.join("lost.img");
        std::fs::rename(options.dir.join("kill.img.before"), kept)?;
    }
    totals.losses.extend(losses.into_iter().map(|loss| format!("round {round}: {loss}")));
    Ok(())
}

/// Waits until the mount is taken away and the image is free.
fn wait_until_gone(dir: &Path, image: &Path) -> Result<()> {
    let start = Instant::now();
    let line = format!(" {} fuse", dir.display());
    while std::fs::read_to_string("/proc/mounts")?.contains(&line) || server_of(image).is_some() {
        ensure!(start.elapsed() < GONE_MAX, "a dead mount stays at {}", dir.display());
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// What the kernel and Spinney miss on the image of a killed server.
fn judge(program: &Path, image: &Path, diaries: &[Diary], totals: &mut Totals) -> Result<Vec<String>> {
    let before = image.with_extension("img.before");
    let ours = image.with_extension("img.ours");
    for copy in [&before, &ours] {
        let words = ["--sparse=always", &image.to_string_lossy(), &copy.to_string_lossy()];
        system::run("cp", &words)?;
    }
    let mut losses = Vec::new();
    // Damage must never come before the kernel.
    if let Some(problem) = check(image)? {
        return Ok(vec![format!("btrfs check before any replay: {problem}")]);
    }
    totals.with_log += u64::from(has_log(image)?);
    let ledgers = || diaries.iter().map(|diary| &diary.ledger);
    let mount = Mount::new(image, "noatime")?;
    let missed = misses(ledgers(), &Mounted(mount.path()), "the kernel")?;
    losses.extend(told(ledgers(), &missed));
    mount.unmount()?;
    let mount = Mount::served(program, &ours, "noatime")?;
    let missed = misses(ledgers(), &Mounted(mount.path()), "Spinney")?;
    losses.extend(told(ledgers(), &missed));
    mount.unmount()?;
    for (who, image) in [("the kernel", image), ("Spinney", &ours)] {
        losses.extend(check(image)?.map(|problem| format!("btrfs check after {who}: {problem}")));
    }
    Ok(losses)
}

/// Misses as lines, after what led to them was printed.
fn told<'a>(ledgers: impl Iterator<Item = &'a Ledger>, missed: &[Miss]) -> Vec<String> {
    print_histories(ledgers, missed);
    missed.iter().map(ToString::to_string).collect()
}

fn has_log(image: &Path) -> Result<bool> {
    let words = ["inspect-internal", "dump-super", &image.to_string_lossy()];
    let said = system::run(&system::btrfs_program(), &words)?;
    Ok(said.lines().any(|line| {
        let mut words = line.split_whitespace();
        words.next() == Some("log_root") && words.next().is_some_and(|at| at != "0")
    }))
}
