//! Runs writers in a mount on a recorded disk, from mkfs to unmounting. Called by `power_cut`.

use super::super::fresh_mount::{Served, make_image};
use super::super::promises::{Clock, Diary, End, Writers};
use super::disk;
use super::record::Record;
use crate::formats::Kind;
use crate::system;
use anyhow::{Context as _, Result, bail, ensure};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use testkit::Random;

/// Bytes of the disk.
pub(super) const DISK_BYTES: u64 = 1 << 30;
/// Longest time for the disk to appear and disappear: the loop device of a mount closes its file some time later.
const WAIT_MAX: Duration = Duration::from_secs(20);
const WAIT_STEP: Duration = Duration::from_millis(5);

/// The work of a session.
#[derive(Debug, Clone)]
pub(super) struct Work {
    pub(super) program: PathBuf,
    /// Options of the mount.
    pub(super) options: String,
    pub(super) seed: u64,
    pub(super) writers: u64,
    /// Operations of each writer.
    pub(super) operations: u64,
}

/// The results of a session.
#[derive(Debug)]
pub(super) struct Recorded {
    pub(super) record: Record,
    /// Position in the record at which mkfs had returned.
    pub(super) made: u64,
    pub(super) diaries: Vec<Diary>,
}

impl Recorded {
    /// Works in `dir`, which should be in memory.
    ///
    /// # Errors
    /// Something that should work does not.
    pub(super) fn of(work: &Work, dir: &Path) -> Result<Self> {
        let disk = Disk::start(dir)?;
        make_image(Kind::Btrfs, &work.program, &disk.image(), DISK_BYTES)?;
        let made = std::fs::metadata(&disk.record)?.len();
        let mut served = Served::of(Kind::Btrfs, &work.program, &disk.image(), &dir.join("mnt"), &work.options)?;
        let mut random = Random::new(work.seed);
        let clock = || Ok(Clock::Record(File::open(&disk.record)?));
        let end = End::After(work.operations);
        let writers = Writers::start(Kind::Btrfs, &mut random, served.dir(), work.writers, &end, clock)?;
        let diaries = writers.join()?;
        served.unmount()?;
        let record = Record::open(&disk.end()?)?;
        Ok(Self { record, made, diaries })
    }

    /// Number of calls that returned and promised durability.
    pub(super) fn promises(&self) -> u64 {
        let of_one = |diary: &Diary| diary.ledger.syncs + u64::try_from(diary.ledger.snapshots.len()).unwrap_or(0);
        self.diaries.iter().map(of_one).sum()
    }
}

/// The disk, served by another process. Dropping it removes it, even if it is in use.
struct Disk {
    process: Child,
    dir: PathBuf,
    record: PathBuf,
    is_mounted: bool,
}

impl Disk {
    fn start(dir: &Path) -> Result<Self> {
        let (backing, record, own) = (dir.join("backing"), dir.join("record"), dir.join("disk"));
        std::fs::create_dir_all(&own)?;
        File::create(&backing)?.set_len(DISK_BYTES)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("power-cut-disk").arg(backing).arg(&record).arg(&own).stdin(Stdio::null());
        let process = command.spawn().context("the disk's process")?;
        let mut disk = Self { process, dir: own, record, is_mounted: true };
        let start = Instant::now();
        while std::fs::metadata(disk.image()).is_err() {
            if let Some(status) = disk.process.try_wait()? {
                disk.is_mounted = false;
                bail!("the disk's process: {status}");
            }
            ensure!(start.elapsed() < WAIT_MAX, "there is no disk at {}", disk.dir.display());
            thread::sleep(WAIT_STEP);
        }
        Ok(disk)
    }

    fn image(&self) -> PathBuf {
        self.dir.join(disk::NAME)
    }

    /// Ends the disk; returns its record.
    fn end(mut self) -> Result<PathBuf> {
        let start = Instant::now();
        while let Err(error) = system::run("umount", &[&self.dir]) {
            ensure!(start.elapsed() < WAIT_MAX, "the disk is in use: {error:#}");
            thread::sleep(WAIT_STEP);
        }
        self.is_mounted = false;
        let status = self.process.wait()?;
        ensure!(status.success(), "the disk's process: {status}");
        Ok(self.record.clone())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.is_mounted {
            // Already an error: these may fail as well.
            let _ = system::run("umount", &[Path::new("-l"), &self.dir]);
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}
