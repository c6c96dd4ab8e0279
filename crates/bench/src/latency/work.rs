//! Runs the threads of `bench latency`, each with its own kind of load, until they are stopped. Started by `latency`.
//!
//! Each pauses between operations: the systems should be busy, but not measured by the length of their queues. (With
//! pauses of 1 ms two processors are saturated, and the queue is measured.) Everything but the snapshots happens in one
//! subvolume, `live`, of which these are taken.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use host::Env;
use rustix::fs::Advice;

use super::asker::Asker;
use super::kind::{Kind, Times, named};

/// The work of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Load {
    /// Writes 4 to 64 KiB at random places of a file of its own.
    Write,
    /// Makes, writes, renames and removes small files in one directory with others.
    Names,
    /// The same, each file synced before it gets its name, as programs replace files.
    Replace,
    /// Reads 16 KiB at random places of a file, which the kernel is told to forget; looks at names and lists them.
    Read,
    /// Writes 4 KiB at random places, each write followed by fsync.
    Fsync,
    /// Syncs the whole file system.
    Syncfs,
    /// Takes snapshots, and deletes all but the latest.
    Snapshot,
    /// Balances everything, again and again.
    Balance,
}

/// Threads of each load.
pub(super) const LOADS: &[(Load, u64)] = &[
    (Load::Write, 2),
    (Load::Names, 2),
    (Load::Replace, 1),
    (Load::Read, 2),
    (Load::Fsync, 2),
    (Load::Syncfs, 1),
    (Load::Snapshot, 1),
    (Load::Balance, 1),
];

const FILE_BYTES: u64 = 64 << 20;
const COLD_BYTES: u64 = 128 << 20;
const WRITE_BYTES_MIN_LOG: u64 = 12;
const WRITE_BYTES_LOGS: u64 = 5;
const READ_BYTES: usize = 16 << 10;
const SYNCED_BYTES: usize = 4 << 10;
/// Names of each thread that are there at a time.
const NAMES_KEPT: usize = 500;
const SNAPSHOTS_KEPT: usize = 4;

const PAUSE_OF_SYNCFS: Duration = Duration::from_millis(250);
const PAUSE_OF_SNAPSHOTS: Duration = Duration::from_millis(500);

/// Directory and commands of a system.
#[derive(Debug)]
pub(super) struct Stand {
    pub(super) dir: PathBuf,
    pub(super) begin: Instant,
    pub(super) is_over: AtomicBool,
    /// Balances everything there, until that is done; words of a command line.
    pub(super) balance: Vec<String>,
    /// After every operation.
    pub(super) pause: Duration,
}

impl Stand {
    fn live(&self) -> PathBuf {
        self.dir.join("live")
    }

    /// Makes the files for the threads: a subvolume with a directory and a file that was not read yet.
    pub(super) fn prepare(&self) -> Result<()> {
        Asker::start()?.make(&self.live()).context("a subvolume")?;
        fs::create_dir(self.live().join("names"))?;
        let file = File::create(self.live().join("cold"))?;
        let bytes = data();
        let piece = u64::try_from(bytes.len())?;
        for at in 0..COLD_BYTES / piece {
            file.write_all_at(&bytes, at * piece)?;
        }
        rustix::fs::syncfs(File::open(&self.dir)?)?;
        Ok(())
    }

    /// Works until it is stopped; returns the times.
    pub(super) fn work(self: &Arc<Self>, load: Load, number: u64) -> Result<Times> {
        let mut worker = Worker {
            stand: Arc::clone(self),
            times: Times::new(self.begin),
            random: Env::seeded(0x9e37_79b9_7f4a_7c15 ^ (number + 1).wrapping_mul(0xd134_2543_de82_ef95), (0, 0)),
            number,
        };
        let done = match load {
            Load::Write => worker.write(),
            Load::Names => worker.names(false),
            Load::Replace => worker.names(true),
            Load::Read => worker.read(),
            Load::Fsync => worker.fsync(),
            Load::Syncfs => worker.syncfs(),
            Load::Snapshot => worker.snapshots(),
            Load::Balance => worker.balance(),
        };
        done.with_context(|| format!("{load:?} {number}"))?;
        Ok(worker.times)
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

/// The written data, which compresses little.
fn data() -> Vec<u8> {
    let mut bytes = vec![0; 1 << 20];
    Env::seeded(1, (0, 0)).fill_random(&mut bytes);
    bytes
}

struct Worker {
    stand: Arc<Stand>,
    times: Times,
    random: Env,
    number: u64,
}

impl Worker {
    fn below(&self, end: u64) -> u64 {
        self.random.random_u64() % end.max(1)
    }

    /// A part of `bytes` of random place and of the given length.
    fn part<'a>(&self, bytes: &'a [u8], len: usize) -> &'a [u8] {
        let end = u64::try_from(bytes.len().saturating_sub(len)).unwrap_or(0);
        let from = usize::try_from(self.below(end)).unwrap_or(0);
        bytes.get(from..from + len).unwrap_or(bytes)
    }

    fn file(&self, name: &str) -> Result<File> {
        let path = self.stand.live().join(format!("{name}-{}", self.number));
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.with_context(|| path.display().to_string())?;
        file.set_len(FILE_BYTES)?;
        Ok(file)
    }

    fn write(&mut self) -> Result<()> {
        let (file, data) = (self.file("written")?, data());
        while !self.stand.is_over() {
            let len = 1u64 << (WRITE_BYTES_MIN_LOG + self.below(WRITE_BYTES_LOGS));
            let at = self.below((FILE_BYTES - len) / 4096) * 4096;
            let part = self.part(&data, usize::try_from(len)?);
            self.times.time(Kind::Write, || file.write_all_at(part, at)).map_err(named(Kind::Write))?;
            sleep(self.stand.pause);
        }
        Ok(())
    }

    fn fsync(&mut self) -> Result<()> {
        let (file, data) = (self.file("synced")?, data());
        while !self.stand.is_over() {
            let at = self.below(FILE_BYTES / 4096 - 1) * 4096;
            let part = self.part(&data, SYNCED_BYTES);
            self.times.time(Kind::Write, || file.write_all_at(part, at)).map_err(named(Kind::Write))?;
            self.times.time(Kind::Fsync, || file.sync_all()).map_err(named(Kind::Fsync))?;
            sleep(self.stand.pause);
        }
        Ok(())
    }

    fn names(&mut self, is_synced: bool) -> Result<()> {
        let dir = self.stand.live().join("names");
        let data = data();
        let mut there: VecDeque<PathBuf> = VecDeque::new();
        for index in 0u64.. {
            if self.stand.is_over() {
                break;
            }
            let new = dir.join(format!("new-{}", self.number));
            let made = self.times.time(Kind::Create, || File::create_new(&new)).map_err(named(Kind::Create))?;
            let len = usize::try_from(self.below(16 << 10))?;
            let part = self.part(&data, len);
            self.times.time(Kind::Write, || made.write_all_at(part, 0)).map_err(named(Kind::Write))?;
            if is_synced {
                self.times.time(Kind::Fsync, || made.sync_all()).map_err(named(Kind::Fsync))?;
            }
            drop(made);
            // Every second one replaces a file that is there.
            let name = match there.front().filter(|_| index % 2 == 1) {
                Some(_) => there.pop_front().unwrap_or_default(),
                None => dir.join(format!("file-{}-{index}", self.number)),
            };
            self.times.time(Kind::Rename, || fs::rename(&new, &name)).map_err(named(Kind::Rename))?;
            there.push_back(name);
            if is_synced {
                let opened = File::open(&dir)?;
                self.times.time(Kind::Fsync, || opened.sync_all()).map_err(named(Kind::Fsync))?;
            }
            if there.len() > NAMES_KEPT
                && let Some(oldest) = there.pop_front()
            {
                self.times.time(Kind::Unlink, || fs::remove_file(&oldest)).map_err(named(Kind::Unlink))?;
            }
            sleep(self.stand.pause);
        }
        Ok(())
    }

    fn read(&mut self) -> Result<()> {
        let names = self.stand.live().join("names");
        let file = File::open(self.stand.live().join("cold"))?;
        let mut bytes = vec![0; READ_BYTES];
        let mut round = 0u64;
        while !self.stand.is_over() {
            let at = self.below(COLD_BYTES / 4096 - 4) * 4096;
            rustix::fs::fadvise(&file, at, None, Advice::DontNeed)?;
            self.times.time(Kind::Read, || file.read_exact_at(&mut bytes, at)).map_err(named(Kind::Read))?;
            let path = self.stand.live().join(if round.is_multiple_of(2) { "cold" } else { "names" });
            self.times.time(Kind::Stat, || fs::metadata(&path)).map_err(named(Kind::Stat))?;
            if round.is_multiple_of(64) {
                self.times.time(Kind::List, || list(&names)).map_err(named(Kind::List))?;
            }
            round += 1;
            sleep(self.stand.pause);
        }
        Ok(())
    }

    fn syncfs(&mut self) -> Result<()> {
        let dir = File::open(&self.stand.dir)?;
        while !self.stand.is_over() {
            self.times.time(Kind::Syncfs, || rustix::fs::syncfs(&dir)).context("syncfs")?;
            sleep(PAUSE_OF_SYNCFS);
        }
        Ok(())
    }

    fn snapshots(&mut self) -> Result<()> {
        let mut asker = Asker::start()?;
        let mut there = VecDeque::new();
        for index in 0u64.. {
            if self.stand.is_over() {
                break;
            }
            let to = self.stand.dir.join(format!("snapshot-{index}"));
            let from = Instant::now();
            let took = asker.snapshot(&self.stand.live(), &to).map_err(named(Kind::Snapshot))?;
            self.times.note(Kind::Snapshot, from, took);
            there.push_back(to);
            sleep(PAUSE_OF_SNAPSHOTS / 2);
            if there.len() > SNAPSHOTS_KEPT
                && let Some(oldest) = there.pop_front()
            {
                let from = Instant::now();
                let took = asker.remove(&oldest).map_err(named(Kind::Delete))?;
                self.times.note(Kind::Delete, from, took);
            }
            sleep(PAUSE_OF_SNAPSHOTS / 2);
        }
        Ok(())
    }

    fn balance(&mut self) -> Result<()> {
        let Some((program, words)) = self.stand.balance.split_first() else { return Ok(()) };
        // The others have something there first.
        sleep(PAUSE_OF_SNAPSHOTS);
        while !self.stand.is_over() {
            let from = Instant::now();
            let output = Command::new(program).args(words).output().with_context(|| program.clone())?;
            if output.status.success() {
                self.times.note(Kind::Balance, from, from.elapsed());
            } else {
                // Groups that there was no room for, say: the next one tries again.
                eprintln!("balance: {}", String::from_utf8_lossy(&output.stderr).trim());
                sleep(PAUSE_OF_SNAPSHOTS);
            }
        }
        Ok(())
    }
}

fn list(dir: &Path) -> std::io::Result<usize> {
    fs::read_dir(dir)?.try_fold(0, |count, entry| entry.map(|_| count + 1))
}
