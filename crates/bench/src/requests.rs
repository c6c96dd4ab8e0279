//! `bench requests` measures the processor time of single requests, Spinney's beside that of an empty server. `main`
//! calls it.
//!
//! The empty server (`cargo build --release -p spinney-fuse --example empty`) speaks the same protocol and answers
//! from memory, so the difference is what the file system costs. Each operation is done many times by one thread;
//! counted is the processor time of the server and of this process, the kernel's part included, as `/proc` has it.
//! Neither server polls: that takes time in which nothing else is to be done.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::process;
use crate::row::as_float;
use crate::table::median;

/// Operations of one kind in a round.
const COUNT: u64 = 20_000;
/// Bytes of a read or write.
const BLOCK: usize = 4096;
/// Blocks of the file that is read and written.
const BLOCKS: u64 = 4096;
/// How long a server may take to mount.
const MOUNT_MAX: Duration = Duration::from_secs(10);
/// The operations, in the order in which they are done.
const OPERATIONS: [&str; 5] = ["create", "lookup", "write 4 KiB", "read 4 KiB", "unlink"];

/// Options of the benchmark.
#[derive(Args)]
#[command(after_help = "Example:\n  bench requests --rounds 5 --empty target/release/examples/empty")]
pub(crate) struct Options {
    /// The `spinney` program.
    #[arg(long, default_value = "target/release/spinney")]
    program: PathBuf,
    /// The empty server.
    #[arg(long, default_value = "target/release/examples/empty")]
    empty: PathBuf,
    /// Where image and mount are; on a memory file system.
    #[arg(long, default_value = "/dev/shm/spinney-requests")]
    dir: PathBuf,
    /// Rounds.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

/// Runs both in turn and gives a table of medians, in microseconds.
pub(crate) fn run(options: &Options) -> Result<String> {
    let mut spinney: [Vec<f64>; 5] = Default::default();
    let mut empty: [Vec<f64>; 5] = Default::default();
    for _ in 0..options.rounds {
        for (all, is_ours) in [(&mut spinney, true), (&mut empty, false)] {
            let server = Server::start(options, is_ours)?;
            for (values, value) in all.iter_mut().zip(measure(&server)?) {
                values.push(value);
            }
        }
    }
    let mut table = String::from("| request | Spinney | empty server | above |\n|---|---|---|---|\n");
    for ((name, ours), theirs) in OPERATIONS.iter().zip(spinney).zip(empty) {
        let (ours, theirs) = (median(ours), median(theirs));
        let _ = writeln!(table, "| {name} | {ours:.1} | {theirs:.1} | {:.1} |", ours - theirs);
    }
    Ok(table)
}

/// Microseconds for each operation.
fn measure(server: &Server) -> Result<[f64; 5]> {
    let dir = &server.dir;
    let name = |index: u64| dir.join(format!("file{index:06}"));
    let mut buffer = Aligned([0x5a; BLOCK]);
    let create = server.time(|index| File::create_new(name(index)).map(drop))?;
    // Names that are not there: each is asked for once, so that the kernel knows none of them.
    let lookup = server.time(|index| match fs::metadata(dir.join(format!("none{index:06}"))) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        _ => Err(std::io::Error::other("a file that cannot be")),
    })?;
    let direct = rustix::fs::OFlags::DIRECT.bits().cast_signed();
    let path = dir.join("blocks");
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false).custom_flags(direct).open(path)?;
    for index in 0..BLOCKS {
        file.write_all_at(&buffer.0, offset(index))?;
    }
    let write = server.time(|index| file.write_all_at(&buffer.0, offset(index)))?;
    file.sync_all()?;
    let read = server.time(|index| file.read_exact_at(&mut buffer.0, offset(index)))?;
    drop(file);
    let unlink = server.time(|index| fs::remove_file(name(index)))?;
    Ok([create, lookup, write, read, unlink])
}

/// Places all over the file, in no order.
fn offset(index: u64) -> u64 {
    index.wrapping_mul(2_654_435_761) % BLOCKS * 4096
}

/// A buffer as direct reads and writes want it.
#[repr(align(4096))]
struct Aligned([u8; BLOCK]);

struct Server {
    child: Child,
    /// The process that answers: the child, or its child.
    pid: u32,
    dir: PathBuf,
}

impl Server {
    fn start(options: &Options, is_ours: bool) -> Result<Self> {
        let dir = options.dir.join("mnt");
        fs::create_dir_all(&dir)?;
        let mut command = if is_ours {
            let image = options.dir.join("requests.img");
            let _ = fs::remove_file(&image);
            let mut make = Command::new(&options.program);
            ensure!(make.args(["mkfs", "-q", "--size", "2G"]).arg(&image).status()?.success(), "mkfs");
            let mut command = Command::new(&options.program);
            command.args(["mount", "--foreground", "-o", "nonear"]).arg(image).arg(&dir);
            command
        } else {
            let mut command = Command::new(&options.empty);
            command.arg(&dir).arg("nonear");
            command
        };
        let child = command.stdin(Stdio::null()).spawn().context("the server")?;
        let mut server = Self { pid: child.id(), child, dir };
        server.wait_until_mounted()?;
        if is_ours {
            let children = format!("/proc/{0}/task/{0}/children", server.pid);
            let text = fs::read_to_string(children)?;
            server.pid = text.split_whitespace().next().context("the server has ended")?.parse()?;
        }
        Ok(server)
    }

    fn wait_until_mounted(&self) -> Result<()> {
        let dir = self.dir.canonicalize()?;
        let start = Instant::now();
        while !fs::read_to_string("/proc/mounts")?.contains(&format!(" {} fuse", dir.display())) {
            ensure!(start.elapsed() < MOUNT_MAX, "the server does not mount");
            std::thread::sleep(Duration::from_millis(10));
        }
        // Waits for the first answer.
        fs::metadata(self.dir.join("none")).map(drop).or(Ok(()))
    }

    /// Microseconds of processor time that each of many calls takes, here and in the server.
    fn time(&self, mut operation: impl FnMut(u64) -> std::io::Result<()>) -> Result<f64> {
        let start = self.cpu_us()?;
        for index in 0..COUNT {
            operation(index)?;
        }
        Ok((self.cpu_us()? - start) / as_float(COUNT))
    }

    fn cpu_us(&self) -> Result<f64> {
        Ok(process::cpu_us("self")? + process::cpu_us(&self.pid.to_string())?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(&self.dir).status();
        if !unmounted.is_ok_and(|status| status.success()) {
            eprintln!("{} is left mounted", self.dir.display());
        }
        let _ = self.child.wait();
    }
}
