//! Mounts a server of NFS with a kernel's client, in a guest: `cargo trials nfs-guest`.
//!
//! The guest (`suites/guest-files.sh`, `suites/nfs-guest.sh`) makes, moves, links and removes files, as two users and
//! by programs that sync (git, SQLite, where they are here). Then it syncs files one by one while the server is killed
//! with SIGKILL and started again at the same port. Afterwards `spinney check` finds nothing in the image, and every
//! synced file has the contents that the guest saw. Needs the programs that `suites/f2fs-guest/run.sh` needs.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use testkit::Random;

use crate::formats::Kind;
use crate::guest_client::{Client, said};
use crate::system::run as run_program;

/// The name in front of what the guest says.
const NAME: &str = "nfs-guest";
/// Longest time for a server to start.
const START_MAX: Duration = Duration::from_secs(20);

/// Options of the trial.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  cargo trials nfs-guest --format f2fs --storm 60")]
pub(crate) struct Options {
    /// Format of the image
    #[arg(long, value_enum, default_value_t = Kind::Btrfs)]
    format: Kind,
    /// Number of small files
    #[arg(long, default_value_t = 2000)]
    files: u32,
    /// Seconds for which the server is killed again and again
    #[arg(long, default_value_t = 20)]
    storm: u64,
    /// Directory for the guest's kernel
    #[arg(long, default_value = "target/f2fs-guest")]
    cache: PathBuf,
    /// Directory for the image
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
    /// Longest time of the guest, in seconds.
    #[arg(long, default_value_t = 500)]
    seconds: u64,
    /// Seed of the times at which the server is killed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The `spinney` program
    #[arg(long, default_value = "target/release/spinney")]
    program: PathBuf,
}

/// A server, which is killed when it is dropped.
struct Served {
    child: Child,
    port: u16,
}

impl Served {
    fn start(program: &Path, dir: &Path, port: u16) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(["serve", "nfs", "--no-root-squash", "--listen", &port.to_string(), "--key", "key", "nfs.img"]);
        let mut child = command.current_dir(dir).stdout(Stdio::piped()).spawn().context("the server")?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("no output")?).read_line(&mut line)?;
        let port = line.trim_end().rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        let served = Self { child, port: port.unwrap_or_default() };
        ensure!(port.is_some(), "the server does not start: {line}");
        Ok(served)
    }

    /// Kills it, and starts another one at the same port.
    fn replace(self, program: &Path, dir: &Path) -> Result<Self> {
        let port = self.port;
        drop(self);
        let deadline = Instant::now() + START_MAX;
        loop {
            match Self::start(program, dir, port) {
                Err(_) if Instant::now() < deadline => thread::sleep(Duration::from_millis(100)),
                started => return started,
            }
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the guest, and compares what is in the image with what it saw.
pub(crate) fn run(root: &Path, options: &Options) -> Result<ExitCode> {
    let folder = tempfile::Builder::new().prefix("spinney-nfs-").tempdir_in(&options.dir)?;
    let dir = folder.path();
    let program = std::path::absolute(&options.program)?;
    let spinney = |words: &[&str]| run_program(&program.to_string_lossy(), words);
    let image = dir.join("nfs.img").to_string_lossy().into_owned();
    spinney(&["mkfs", "-q", "-t", options.format.name(), "--size", "1500M", &image])?;
    let served = Served::start(&program, dir, 0)?;
    let control = TcpListener::bind("127.0.0.1:0")?;
    let (port, control_port) = (served.port, control.local_addr()?.port());
    let has_ended = Arc::new(AtomicBool::new(false));
    let storm = Storm {
        program: program.clone(),
        dir: dir.to_owned(),
        seconds: options.storm,
        random: Random::new(options.seed),
        has_ended: Arc::clone(&has_ended),
    };
    let storm = thread::spawn(move || storm.wait(&control, served));
    let guest = guest(root, options, &dir.join("results"), (port, control_port));
    has_ended.store(true, Ordering::Release);
    // Ends the wait, where the guest did not get so far.
    drop(TcpStream::connect(("127.0.0.1", control_port)));
    let (mut served, kills) = storm.join().map_err(|_| anyhow::anyhow!("the storm panicked"))??;
    let console = std::fs::read_to_string(dir.join("results/console")).unwrap_or_default();
    guest.with_context(|| said(&console, NAME).join("\n"))?;
    rustix::process::kill_process(rustix::process::Pid::from_child(&served.child), rustix::process::Signal::TERM)?;
    ensure!(served.child.wait()?.success(), "the server failed");
    spinney(&["check", "--data", &image])?;
    let synced = std::fs::read_to_string(dir.join("results/synced")).context("the guest synced nothing")?;
    compare(&spinney, &image, dir, &synced)?;
    for line in said(&console, NAME) {
        println!("{line}");
    }
    println!("nfs-guest: {} synced files are there after {kills} kills", synced.lines().count());
    Ok(ExitCode::SUCCESS)
}

/// Compares the sums of files in the image with those that the guest left: `SUM NAME` a line.
fn compare(spinney: &dyn Fn(&[&str]) -> Result<String>, image: &str, dir: &Path, synced: &str) -> Result<()> {
    let files = dir.join("files").to_string_lossy().into_owned();
    spinney(&["get", "-q", image, "/storm", &files])?;
    for line in synced.lines() {
        let (sum, name) = line.split_once(' ').context("a sum and a name")?;
        let found = run_program("md5sum", &[Path::new(&files).join(name)])?;
        ensure!(found.starts_with(sum), "storm/{name}: expected {sum}, found {found}");
    }
    Ok(())
}

/// Kills the server again and again.
struct Storm {
    program: PathBuf,
    dir: PathBuf,
    seconds: u64,
    random: Random,
    has_ended: Arc<AtomicBool>,
}

impl Storm {
    /// Waits until the guest says that it begins; returns the last server, and how many were killed.
    fn wait(mut self, control: &TcpListener, mut served: Served) -> Result<(Served, u32)> {
        let (mut guest, _) = control.accept()?;
        let mut word = String::new();
        guest.set_read_timeout(Some(Duration::from_secs(5)))?;
        let _ = guest.read_to_string(&mut word);
        drop(guest);
        let end = Instant::now() + Duration::from_secs(self.seconds);
        let mut kills = 0;
        while Instant::now() < end && !self.has_ended.load(Ordering::Acquire) {
            thread::sleep(Duration::from_millis(self.random.below(3000).saturating_add(200)));
            served = served.replace(&self.program, &self.dir)?;
            kills += 1;
        }
        Ok((served, kills))
    }
}

fn guest(root: &Path, options: &Options, results: &Path, (port, control): (u16, u16)) -> Result<()> {
    let Options { files, storm, .. } = options;
    let client = Client {
        root,
        cache: &options.cache,
        results,
        seconds: options.seconds,
        name: NAME,
        suite: "nfs-guest.sh",
        variables: format!("PORT={port} CONTROL={control} FILES={files} STORM={storm}"),
        options: vec!["--net".into()],
    };
    client.run()
}
