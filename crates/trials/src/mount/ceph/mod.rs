//! Tests a mount whose disk is an image in Ceph, behind `qemu-nbd`, while daemons are killed: no promised data is lost.
//!
//! ```text
//! fsyncs --> mount --> client of NBD --> qemu-nbd rbd: --> three OSDs, two of which acknowledge each write
//! ```
//!
//! In each round an image is made with a tree in it, and mounted. While [`records`] and the writers of `promises`
//! fsync, one OSD is killed (the fsyncs go on), then a second one (they wait, and go on when both are started again).
//! Then `qemu-nbd` is killed: every writer gets an error, and so does each later write. Afterwards the image that Ceph
//! has is exported and judged as `kill` judges: by `btrfs check`, by the kernel and by Spinney. At last it is mounted
//! through a new `qemu-nbd`, compared with the tree, and checked again.
//!
//! [`cluster`] starts and kills the daemons. Needs root and the packages of Ceph; without them the trial says that it
//! is skipped. Fails at the end of the round that lost something. Called by `cargo trials ceph`.

mod cluster;
mod records;

use super::fresh_mount::{self, Served};
use super::kill::judge;
use super::promises::{Clock, Diary, End, Mounted, Writers, misses};
use crate::formats::Kind;
use crate::system;
use anyhow::{Context, Result, ensure};
use cluster::{Cluster, Server};
use records::Records;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testkit::Random;

const IMAGE_BYTES: u64 = 1 << 30;
const OSDS: u64 = 3;
/// Writers of `promises`, beside the records.
const WRITERS: u64 = 4;
/// Files of records.
const RECORD_FILES: u64 = 2;
/// Range of milliseconds between two kills.
const DELAY_MS: (u64, u64) = (300, 2000);
/// Longest time until fsyncs go on after one OSD was killed, or after both were started again.
const RESUME_MAX: Duration = Duration::from_secs(120);
/// Time for the requests that were under way when the second OSD was killed.
const SETTLE: Duration = Duration::from_secs(2);
/// Time in which no fsync may return while only one OSD runs.
const STALL: Duration = Duration::from_secs(3);
/// Longest time until each writer has its error after the server was killed.
const ERROR_MAX: Duration = Duration::from_secs(60);
/// Mount options; each round uses the next.
const OPTIONS: [&str; 3] = [
    "allow_other,user_subvol_ioctls",
    "allow_other,user_subvol_ioctls,commit=1",
    "allow_other,user_subvol_ioctls,writeback",
];

/// Options of the trial.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  cargo trials ceph 20 --seed 1")]
pub(crate) struct Options {
    /// Number of rounds
    #[arg(default_value_t = 1)]
    rounds: u64,
    /// Seed of the writers' operations, of the OSDs that are killed and of the delays
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Directory for the cluster, the exported images and the mount
    #[arg(long, default_value = "/tmp/spinney-ceph")]
    dir: PathBuf,
    /// The `spinney` program
    #[arg(long, default_value = "target/release/spinney")]
    program: PathBuf,
}

#[derive(Debug, Default)]
struct Totals {
    records: u64,
    syncs: u64,
    snapshots: u64,
    with_log: u64,
    losses: Vec<String>,
}

/// Runs the rounds in one cluster.
pub(crate) fn run(root: &Path, options: &Options) -> Result<ExitCode> {
    ensure!(system::is_root(), "mounting as the kernel does needs root");
    if let Some(missing) = cluster::missing() {
        println!("SKIPPED: {missing} is not here (Debian: ceph-mon ceph-osd ceph-mgr ceph-common qemu-block-extra)");
        return Ok(ExitCode::SUCCESS);
    }
    // An ended trial may have left it.
    let _ = std::fs::remove_dir_all(&options.dir);
    std::fs::create_dir_all(&options.dir)?;
    let start = Instant::now();
    let cluster = Cluster::start(root, &options.dir, OSDS)?;
    println!("ceph: {OSDS} OSDs run after {} s", start.elapsed().as_secs());
    let mut totals = Totals::default();
    for round in 0..options.rounds {
        Round::new(root, options, &cluster, round).run(&mut totals).with_context(|| format!("round {round}"))?;
        for loss in &totals.losses {
            println!("LOST: {loss}");
        }
        ensure!(totals.losses.is_empty(), "round {round} lost data, seed {}", options.seed);
    }
    drop(cluster);
    std::fs::remove_dir_all(&options.dir)?;
    println!(
        "ceph: {} rounds, {} records and {} other fsyncs, {} snapshots, {} with a log, 0 lost, seed {}, {} s",
        options.rounds,
        totals.records,
        totals.syncs,
        totals.snapshots,
        totals.with_log,
        options.seed,
        start.elapsed().as_secs()
    );
    Ok(ExitCode::SUCCESS)
}

/// One image, from its making to its judgement.
struct Round<'a> {
    program: &'a Path,
    cluster: &'a Cluster,
    /// A tree that is put into the image.
    tree: PathBuf,
    dir: PathBuf,
    number: u64,
    options: &'static str,
    random: Random,
}

impl<'a> Round<'a> {
    fn new(root: &Path, options: &'a Options, cluster: &'a Cluster, number: u64) -> Self {
        let index = usize::try_from(number).unwrap_or_default() % OPTIONS.len();
        Self {
            program: &options.program,
            cluster,
            tree: root.join("docs"),
            dir: options.dir.clone(),
            number,
            options: OPTIONS.get(index).copied().unwrap_or_default(),
            random: Random::new(options.seed.wrapping_add(number.wrapping_mul(0x1_0001))),
        }
    }

    fn spinney(&self, words: &[&str]) -> Result<String> {
        system::run(&self.program.display().to_string(), words)
    }

    fn run(mut self, totals: &mut Totals) -> Result<()> {
        let name = format!("site{}", self.number);
        self.cluster.create(&name, IMAGE_BYTES)?;
        let server = self.cluster.serve(&name)?;
        // Longer than Ceph needs to get two OSDs back.
        let locator = format!("{}&timeout=600", server.locator());
        self.spinney(&["mkfs", "-q", &locator])?;
        self.spinney(&["put", "-q", &locator, &self.tree.display().to_string(), "/tree"])?;
        let mut served =
            Served::of(Kind::Btrfs, self.program, Path::new(&locator), &self.dir.join("mnt"), self.options)?;
        let is_killed = Arc::new(AtomicBool::new(false));
        let end = End::Killed(Arc::clone(&is_killed));
        let writers = Writers::start(Kind::Btrfs, &mut self.random, served.dir(), WRITERS, &end, || Ok(Clock::None))?;
        let records = Records::start(served.dir(), RECORD_FILES)?;
        self.kill_osds(&records).context("with the OSDs")?;
        self.pause();
        is_killed.store(true, Ordering::SeqCst);
        drop(server);
        let promised = records.join(ERROR_MAX)?;
        let diaries = writers.join()?;
        refuses(served.dir())?;
        // It says that unwritten data is lost.
        let complaint = served.unmount().err().map(|error| error.to_string());
        if let Some(text) = &complaint {
            let _ = Command::new("umount").arg("-l").arg(served.dir()).output();
            ensure!(!text.contains("panicked"), "the server of the mount: {text}");
        }
        fresh_mount::wait_until_gone(served.dir(), Path::new(&locator))?;
        self.judge(&name, &promised, &diaries, totals)?;
        self.judge_again(&name, &promised, &diaries, totals)?;
        self.cluster.remove(&name)?;
        let syncs: u64 = diaries.iter().map(|diary| diary.ledger.syncs).sum();
        let kept: u64 = promised.iter().sum();
        let losses = totals.losses.len();
        println!("round {}: -o {}: {kept} records, {syncs} other fsyncs, {losses} losses", self.number, self.options);
        totals.records += kept;
        totals.syncs += syncs;
        let snapshots: usize = diaries.iter().map(|diary| diary.ledger.snapshots.len()).sum();
        totals.snapshots += u64::try_from(snapshots)?;
        Ok(())
    }

    fn pause(&mut self) {
        thread::sleep(Duration::from_millis(self.random.between(DELAY_MS.0, DELAY_MS.1)));
    }

    /// Kills one OSD and then another, and starts both again.
    fn kill_osds(&mut self, records: &Records) -> Result<()> {
        self.cluster.wait_until_clean()?;
        records.wait_for_more(RESUME_MAX).context("before anything is killed")?;
        self.pause();
        let first = self.random.below(OSDS);
        let second = (first + 1 + self.random.below(OSDS - 1)) % OSDS;
        self.cluster.kill(first)?;
        let begun = Instant::now();
        records.wait_for_more(RESUME_MAX).with_context(|| format!("without osd.{first}"))?;
        let resumed = begun.elapsed();
        self.pause();
        self.cluster.kill(second)?;
        thread::sleep(SETTLE);
        let before = records.count();
        thread::sleep(STALL);
        let after = records.count();
        ensure!(before == after, "{} fsyncs returned with one OSD of {OSDS}", after - before);
        for osd in [second, first] {
            self.cluster.revive(osd)?;
        }
        let begun = Instant::now();
        records.wait_for_more(RESUME_MAX).context("after both were started again")?;
        println!(
            "round {}: went on {:.1} s after osd.{first} was killed, waited without osd.{second}, went on {:.1} s \
             after both were started",
            self.number,
            resumed.as_secs_f64(),
            begun.elapsed().as_secs_f64()
        );
        Ok(())
    }

    /// Judges the image as the killed server left it.
    fn judge(&self, name: &str, promised: &[u64], diaries: &[Diary], totals: &mut Totals) -> Result<()> {
        let image = self.dir.join("left.img");
        self.cluster.export(name, &image)?;
        let (had_log, losses) = judge::btrfs(self.program, &image, diaries)?;
        totals.with_log += u64::from(had_log);
        totals.losses.extend(losses.into_iter().map(|loss| format!("round {}: {loss}", self.number)));
        if totals.losses.is_empty() {
            let mount = system::Mount::new(&image, "ro,noatime")?;
            totals.losses.extend(records::lost(mount.path(), promised)?);
            mount.unmount()?;
        }
        Ok(())
    }

    /// Mounts the image in the cluster again, and compares it with what was promised.
    fn judge_again(&self, name: &str, promised: &[u64], diaries: &[Diary], totals: &mut Totals) -> Result<()> {
        let server: Server = self.cluster.serve(name)?;
        let locator = format!("{}&timeout=600", server.locator());
        self.spinney(&["check", "--data", &locator])?;
        // Reading changes no times, which are compared.
        let options = format!("{},noatime", self.options);
        let mut served = Served::of(Kind::Btrfs, self.program, Path::new(&locator), &self.dir.join("mnt"), &options)?;
        totals.losses.extend(records::lost(served.dir(), promised)?);
        let ledgers = diaries.iter().map(|diary| &diary.ledger);
        let missed = misses(ledgers, &Mounted(served.dir()), "Spinney, through qemu-nbd")?;
        totals.losses.extend(missed.iter().map(ToString::to_string));
        system::run("diff", &[Path::new("-r"), &self.tree, &served.dir().join("tree")])?;
        served.unmount()?;
        fresh_mount::wait_until_gone(served.dir(), Path::new(&locator))?;
        server.end()?;
        let image = self.dir.join("after.img");
        self.cluster.export(name, &image)?;
        if let Some(problem) = Kind::Btrfs.check(&image)? {
            totals.losses.push(format!("btrfs check after the second mount: {problem}"));
        }
        Ok(())
    }
}

/// Fails if a write to the mount succeeds although its device failed.
fn refuses(dir: &Path) -> Result<()> {
    let tried = std::fs::File::create(dir.join("too-late")).and_then(|file| file.sync_all());
    ensure!(tried.is_err(), "an fsync succeeds although the server was killed with writes under way");
    Ok(())
}
