//! Tests `kill -9` of the server while eight writers fsync, many times: no promised data is lost.
//!
//! `promises` has the writers; it records each fsync that returned as a promise of the data written before.
//!
//! After each kill the image is checked twice: the kernel mounts it, and so replays our log with its own code; and
//! Spinney mounts a copy. Both times every file must have all promised bytes and no others than were written, with
//! attributes of the last fsync or later, under one of its possible names; every snapshot must exist with the data
//! written before it; and `btrfs check` must find no error, before and after. Images of
//! f2fs are checked by Spinney and `fsck.f2fs` alone, because this kernel may lack f2fs, and they have no snapshots;
//! `--keep` keeps the images as the kills left them, for another kernel (`cargo trials f2fs-guest`).
//!
//! Fails at the end, with the number of losses; the seed repeats the writers' operations, though not the moment of the
//! kill. Needs root. Called by `cargo trials kill-mount`.

pub(super) mod judge;

use super::fresh_mount::{Served, server_of, wait_until_gone};
use super::promises::{Clock, Diary, End, Writers};
use crate::formats::Kind;
use crate::system;
use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testkit::Random;

const IMAGE_BYTES: u64 = 1 << 30;
/// Mount options of f2fs; each round uses the next.
const F2FS_OPTIONS: &[&str] = &[
    "allow_other",
    "allow_other,commit=1",
    "allow_other,writeback",
    "allow_other,commit=1,writeback",
    "allow_other,noatime",
];
/// Mount options of btrfs; each round uses the next.
const OPTIONS: &[&str] = &[
    "allow_other,user_subvol_ioctls",
    "allow_other,user_subvol_ioctls,commit=1",
    "allow_other,user_subvol_ioctls,writeback",
    "allow_other,user_subvol_ioctls,nodatacow",
    "allow_other,user_subvol_ioctls,commit=1,writeback",
    "allow_other,user_subvol_ioctls,compress-force=zstd:1",
];
/// Range of milliseconds from the first write to the kill.
const DELAY_MS: (u64, u64) = (5, 1500);
/// Most losses that are printed.
const SHOWN: usize = 20;

/// Options of the trial.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  cargo trials kill-mount --times 50 --seed 1")]
pub(crate) struct Options {
    /// The format of the images.
    #[arg(long, value_enum, default_value_t = Kind::Btrfs)]
    format: Kind,
    /// Number of kills
    #[arg(long, default_value_t = 50)]
    times: u64,
    /// Seed of the writers' operations and of the delays
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Writers at the same time.
    #[arg(long, default_value_t = 8)]
    writers: u64,
    /// Directory for images and mounts
    #[arg(long, default_value = "/dev/shm/spinney-kill")]
    dir: PathBuf,
    /// The `spinney` program.
    #[arg(long, default_value = "target/release/spinney")]
    program: PathBuf,
    /// A directory in which each image is kept as the kill left it, `kill-ROUND.img`
    #[arg(long)]
    keep: Option<PathBuf>,
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

/// Kills the server `times` times, checks the image after each kill, and prints the losses.
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
    let kind = options.format;
    let modes = if kind == Kind::F2fs { F2FS_OPTIONS } else { OPTIONS };
    let mode = modes.get(usize::try_from(round)? % modes.len()).copied().unwrap_or_default();
    let image = options.dir.join("kill.img");
    let dir = options.dir.join("mnt");
    let served = Served::fresh_of(kind, &options.program, &image, &dir, IMAGE_BYTES, mode)?;
    let is_killed = Arc::new(AtomicBool::new(false));
    let end = End::Killed(Arc::clone(&is_killed));
    let writers = Writers::start(kind, &mut random, served.dir(), options.writers, &end, || Ok(Clock::None))?;
    thread::sleep(Duration::from_millis(random.between(DELAY_MS.0, DELAY_MS.1)));
    let server = server_of(&image).and_then(Pid::from_raw).context("there is no server")?;
    is_killed.store(true, Ordering::SeqCst);
    kill_process(server, Signal::KILL)?;
    let diaries = writers.join()?;
    let dir = served.dir().to_owned();
    served.given_up();
    wait_until_gone(&dir, &image)?;
    totals.kills += 1;
    if let Some(keep) = &options.keep {
        std::fs::create_dir_all(keep)?;
        system::copy_sparse(&image, &keep.join(format!("kill-{round}.img")))?;
    }
    let before = image.with_extension("img.before");
    system::copy_sparse(&image, &before)?;
    let judged = match kind {
        Kind::Btrfs => judge::btrfs(&options.program, &image, &diaries),
        Kind::F2fs => judge::f2fs(&options.program, &image, &diaries),
    };
    let (had_log, losses) = judged.with_context(|| format!("-o {mode}"))?;
    totals.with_log += u64::from(had_log);
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
        std::fs::rename(before, kept)?;
    }
    totals.losses.extend(losses.into_iter().map(|loss| format!("round {round}: {loss}")));
    Ok(())
}
