//! Kills servers of NBD while a volume behind them is written, and looks for lost fsyncs. Called by `nbd`.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use blockdev::{Device, Locator};
use crash_explorer::{Access, Form, Format as _, Random};

use crate::system;

/// Bytes of the disks.
const DISK_BYTES: u64 = 256 << 20;
/// Threads that fsync.
const WRITERS: u64 = 2;
/// Longest time in which a writer has to get its error, and a server has to start.
const ERROR_MAX: Duration = Duration::from_secs(30);
/// Milliseconds before a server is killed.
const KILL_MS: u64 = 600;

/// A program that serves a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Ours, over a file in an image: what was not flushed is in its memory.
    Own,
    /// `qemu-nbd` over a qcow2 image, whose tables are in its memory.
    Qemu,
}

/// Runs `rounds` rounds with each kind of server.
pub(super) fn run(program: &Path, rounds: u64, seed: u64) -> Result<()> {
    for kind in [Kind::Own, Kind::Qemu] {
        let has_qemu = || Command::new("qemu-nbd").arg("--version").output().is_ok();
        if kind == Kind::Qemu && !has_qemu() {
            println!("SKIPPED: qemu-nbd is not here");
            continue;
        }
        let mut random = Random::new(seed);
        let (mut kept, mut errors) = (0, 0);
        let begun = Instant::now();
        for round in 0..rounds {
            let result = Round::new(kind, program)?.run(random.below(KILL_MS));
            let (records, failed) = result.with_context(|| format!("{kind:?}, round {round}, seed {seed}"))?;
            kept += records;
            errors += failed;
        }
        let seconds = begun.elapsed().as_secs_f64();
        println!(
            "nbd-crash: {kind:?}: {rounds} servers killed, {kept} fsynced records, 0 lost, {errors} writers told, \
             {seconds:.0} s"
        );
    }
    Ok(())
}

/// One disk and its server.
struct Round<'a> {
    kind: Kind,
    program: &'a Path,
    dir: tempfile::TempDir,
}

/// A server; killed when it is dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl<'a> Round<'a> {
    fn new(kind: Kind, program: &'a Path) -> Result<Self> {
        Ok(Self { kind, program, dir: tempfile::tempdir()? })
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    fn spinney(&self, words: &[&str]) -> Result<String> {
        system::run(&self.program.display().to_string(), words)
    }

    fn locator(&self) -> String {
        format!("nbd+unix:///?socket={}&timeout=10", self.path("socket"))
    }

    /// Makes the image that holds the disk.
    fn make(&self) -> Result<()> {
        if self.kind == Kind::Qemu {
            let size = DISK_BYTES.to_string();
            return system::run("qemu-img", &["create", "-q", "-f", "qcow2", &self.path("disk"), &size]).map(drop);
        }
        File::create(self.path("disk"))?.set_len(DISK_BYTES)?;
        self.spinney(&["mkfs", "-q", "--size", "512M", &self.path("outer")])?;
        self.spinney(&["put", &self.path("outer"), &self.path("disk"), "/"]).map(drop)
    }

    fn serve(&self) -> Result<Server> {
        let socket = self.path("socket");
        // That of a killed server.
        let _ = std::fs::remove_file(&socket);
        let mut command = match self.kind {
            Kind::Own => {
                let mut command = Command::new(self.program);
                command.args(["serve", "nbd", "--socket", &socket, &format!("{}:/disk", self.path("outer"))]);
                command
            }
            Kind::Qemu => {
                let mut command = Command::new("qemu-nbd");
                command.args(["-t", "-e", "4", "-f", "qcow2", "--cache=writeback", "-k", &socket, &self.path("disk")]);
                command
            }
        };
        let server = Server(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?);
        let deadline = Instant::now() + ERROR_MAX;
        while std::os::unix::net::UnixStream::connect(&socket).is_err() {
            ensure!(Instant::now() < deadline, "the server does not start");
            thread::sleep(Duration::from_millis(5));
        }
        Ok(server)
    }

    fn open(&self, access: Access) -> Result<vfs::Volume> {
        let read_only = access == Access::ReadOnly;
        let how = blockdev::Access { read_only, ..blockdev::Access::WRITE };
        let device: Arc<dyn Device> = ::nbd::open(&Locator::parse(self.locator())?, how)?;
        btrfs_crash::Btrfs.open(Form::Usual, device, access)
    }

    /// Returns the number of records that were fsynced, and of writers that got an error.
    fn run(&self, kill_ms: u64) -> Result<(u64, u64)> {
        self.make()?;
        let server = self.serve()?;
        self.spinney(&["mkfs", "-q", &self.locator()])?;
        let volume = self.open(Access::ReadWrite)?;
        let is_over = AtomicBool::new(false);
        let (volume, is_over) = (&volume, &is_over);
        let written = thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS).map(|own| scope.spawn(move || write(volume, own, is_over))).collect();
            thread::sleep(Duration::from_millis(50 + kill_ms));
            drop(server);
            let deadline = Instant::now() + ERROR_MAX;
            while !writers.iter().all(thread::ScopedJoinHandle::is_finished) && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(5));
            }
            let hangs = !writers.iter().all(thread::ScopedJoinHandle::is_finished);
            is_over.store(true, Ordering::Relaxed);
            ensure!(!hangs, "a writer did not get its error within {ERROR_MAX:?}");
            let joined = writers.into_iter().map(|writer| writer.join().map_err(|_| anyhow::anyhow!("panicked")));
            joined.collect::<Result<Vec<_>>>()
        })?;
        ensure!(volume.sync().is_err(), "a sync succeeds although the server was killed with writes under way");
        let _server = self.serve()?;
        self.spinney(&["check", "--data", &self.locator()]).context("after the kill")?;
        let found = self.open(Access::ReadWrite)?;
        for (own, (count, _)) in (0..WRITERS).zip(&written) {
            for number in 0..*count {
                let path = name(own, number);
                let record = found.read(&path).with_context(|| format!("{path} is lost"))?;
                ensure!(record == contents(own, number), "{path} has other contents");
            }
        }
        let failed = written.iter().filter(|(_, error)| error.is_some()).count();
        Ok((written.iter().map(|(count, _)| count).sum(), u64::try_from(failed)?))
    }
}

fn name(own: u64, number: u64) -> String {
    format!("/record-{own}-{number}")
}

fn contents(own: u64, number: u64) -> Vec<u8> {
    let text = format!("record {number} of {own} ");
    text.repeat(usize::try_from(1 + number % 700).unwrap_or(1)).into_bytes()
}

/// Writes records until there is an error; returns how many were fsynced.
fn write(volume: &vfs::Volume, own: u64, is_over: &AtomicBool) -> (u64, Option<String>) {
    let mut number = 0;
    while !is_over.load(Ordering::Relaxed) {
        if let Err(error) = write_one(volume, own, number) {
            return (number, Some(error.to_string()));
        }
        number += 1;
    }
    (number, None)
}

fn write_one(volume: &vfs::Volume, own: u64, number: u64) -> Result<()> {
    let file = vfs::File::create(volume, name(own, number))?;
    file.write_at(&contents(own, number), 0)?;
    Ok(file.sync_all()?)
}
