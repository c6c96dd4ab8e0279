//! Has a guest mount a virtio-fs device of the server: `cargo trials virtiofs-guest`.
//!
//! The guest (`suites/guest-files.sh`, `suites/virtiofs-guest.sh`) makes, moves, links and removes files, as two users
//! and by programs, runs pjdfstest where it is here, unmounts and mounts again. Then it syncs files one by one, until
//! the machine is killed, or the server, or neither. Afterwards `spinney check` finds nothing in the image, and every
//! file that the guest had synced is there with its contents. Needs the programs that `suites/f2fs-guest/run.sh` needs.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum as _;

use crate::formats::Kind;
use crate::guest_client::{Client, said};
use crate::system::run as run_program;

/// The name in front of what the guest says.
const NAME: &str = "virtiofs-guest";
/// Most files that are synced.
const FILES_SYNCED_MAX: u32 = 400;
/// A kill comes when this many files are synced.
const SYNCED_AT_KILL: u32 = 40;
/// Longest time for the server to start.
const START_MAX: Duration = Duration::from_secs(20);

/// The process that is killed while the guest syncs files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Killed {
    Nothing,
    Machine,
    Server,
}

/// Options of the trial.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  cargo trials virtiofs-guest --format f2fs --kill server")]
pub(crate) struct Options {
    /// Format of the image
    #[arg(long, value_enum, default_value_t = Kind::Btrfs)]
    format: Kind,
    /// Number of small files
    #[arg(long, default_value_t = 2000)]
    files: u32,
    /// The process to kill while the guest syncs files; all in turn by default
    #[arg(long, value_enum)]
    kill: Option<Killed>,
    /// Directory for the guest's kernel
    #[arg(long, default_value = "target/f2fs-guest")]
    cache: PathBuf,
    /// Directory for the image
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
    /// Longest time of a guest, in seconds.
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// The `spinney` program
    #[arg(long, default_value = "target/release/spinney")]
    program: PathBuf,
}

/// A server, which is killed when it is dropped.
struct Served(Child);

impl Served {
    fn start(program: &Path, dir: &Path) -> Result<Self> {
        let words = ["serve", "virtiofs", "--socket", "vm.sock", "fs.img"];
        let child = Command::new(program).args(words).current_dir(dir).stdout(Stdio::null()).spawn();
        let served = Self(child.context("the server")?);
        let deadline = Instant::now() + START_MAX;
        while !dir.join("vm.sock").exists() {
            ensure!(Instant::now() < deadline, "the server does not start");
            thread::sleep(Duration::from_millis(50));
        }
        Ok(served)
    }

    /// Ends it as a user does.
    fn end(mut self) -> Result<()> {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.0), rustix::process::Signal::TERM)?;
        ensure!(self.0.wait()?.success(), "the server failed");
        Ok(())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a guest for each kind of end.
pub(crate) fn run(root: &Path, options: &Options) -> Result<ExitCode> {
    let all = Killed::value_variants();
    for kill in all.iter().copied().filter(|kill| options.kill.is_none_or(|wanted| wanted == *kill)) {
        one(root, options, kill).with_context(|| format!("killed: {kill:?}"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn one(root: &Path, options: &Options, kill: Killed) -> Result<()> {
    let folder = tempfile::Builder::new().prefix("spinney-virtiofs-").tempdir_in(&options.dir)?;
    let dir = folder.path();
    let program = std::path::absolute(&options.program)?;
    let spinney = |words: &[&str]| run_program(&program.to_string_lossy(), words);
    let image = dir.join("fs.img").to_string_lossy().into_owned();
    spinney(&["mkfs", "-q", "-t", options.format.name(), "--size", "1500M", &image])?;
    let served = Served::start(&program, dir)?;
    let console = dir.join("console");
    // A directory of btrfs has one link.
    let expected = if options.format == Kind::Btrfs { r#""rename::updates_link_parent""# } else { "" };
    let client = Client {
        root,
        cache: &options.cache,
        results: &dir.join("results"),
        seconds: options.seconds,
        name: NAME,
        suite: "virtiofs-guest.sh",
        variables: format!("FILES={} STORM={FILES_SYNCED_MAX} EXPECTED='{expected}'", options.files),
        options: vec!["--virtiofs".into(), dir.join("vm.sock").into(), "--console".into(), console.clone().into()],
    };
    let guest = match kill {
        Killed::Nothing => client.run().and_then(|()| served.end()),
        Killed::Machine => cut_power(&client, &console).and_then(|()| served.end()),
        // The guest hangs then.
        Killed::Server => until_synced(&client, &console).and_then(|guest| {
            drop(served);
            end(guest)
        }),
    };
    let console = std::fs::read_to_string(&console).unwrap_or_default();
    guest.with_context(|| said(&console, NAME).join("\n"))?;
    spinney(&["check", "--data", &image])?;
    let count = compare(&spinney, &image, dir, &console)?;
    for line in said(&console, NAME).iter().filter(|line| line.contains("facts")) {
        println!("{line}");
    }
    println!("{NAME}: {count} synced files are there, killed: {kill:?}");
    Ok(())
}

fn cut_power(client: &Client<'_>, console: &Path) -> Result<()> {
    until_synced(client, console).and_then(end)
}

/// Boots the guest, and waits until it has synced some files.
fn until_synced(client: &Client<'_>, console: &Path) -> Result<Child> {
    let mut guest = client.start()?;
    let wanted = format!("{NAME}: synced {SYNCED_AT_KILL}");
    loop {
        thread::sleep(Duration::from_millis(50));
        if std::fs::read(console).is_ok_and(|text| String::from_utf8_lossy(&text).contains(&wanted)) {
            return Ok(guest);
        }
        let ended = guest.try_wait()?;
        ensure!(ended.is_none(), "the guest ended before it had synced files: {ended:?}");
    }
}

/// Cuts the power of a guest.
fn end(mut guest: Child) -> Result<()> {
    rustix::process::kill_process(rustix::process::Pid::from_child(&guest), rustix::process::Signal::TERM)?;
    guest.wait()?;
    Ok(())
}

/// Compares the files that the guest said it had synced with what they are made of; returns their number.
fn compare(spinney: &dyn Fn(&[&str]) -> Result<String>, image: &str, dir: &Path, console: &str) -> Result<usize> {
    let files = dir.join("files");
    spinney(&["get", "-q", image, "/storm", &files.to_string_lossy()])?;
    let numbers: Vec<u64> = said(console, NAME)
        .iter()
        .filter_map(|line| line.rsplit_once(": synced ")?.1.trim_end().parse().ok())
        .collect();
    ensure!(!numbers.is_empty(), "the guest synced nothing");
    for number in &numbers {
        let mut wanted = String::new();
        for line in *number..=number.saturating_add(number * 7919 % 30011) {
            writeln!(wanted, "{line}")?;
        }
        let found = std::fs::read_to_string(files.join(number.to_string()));
        ensure!(found.with_context(|| format!("storm/{number}"))? == wanted, "storm/{number} has other contents");
    }
    Ok(numbers.len())
}
