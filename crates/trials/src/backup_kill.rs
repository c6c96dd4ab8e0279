//! Kills `spinney backup` with SIGKILL at random moments, resumes it, restores and compares: `cargo trials
//! backup-kill`.
//!
//! ```text
//! change files -> backup, killed -> backup, to its end -> verify all objects -> restore -> compare with the source
//! ```
//!
//! The place is a directory, or with `--moto` a bucket of `moto_server`. At the end two backups write at once, of which
//! the second one has to be told so; and there is no object that no state needs. Fails in the round that lost
//! something; the seed repeats the changes, though not the moments.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use testkit::Random;

use crate::system;

/// Longest time for a server to start.
const START_MAX: Duration = Duration::from_secs(30);
/// Bytes of a new file: (fewest, most).
const FILE_BYTES: (u64, u64) = (100_000, 2_000_000);
/// Files of the tree.
const FILES: u64 = 8;
/// Exit status of a backup that meets another one.
const BUSY: i32 = 7;

/// Options of the trial.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  cargo trials backup-kill 50 --moto --seed 1")]
pub(crate) struct Options {
    /// Number of kills
    #[arg(default_value_t = 50)]
    times: u64,
    /// Seed of the changes and of the moments
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Back up to a bucket of `moto_server` (PyPI: the package moto with its server) instead of a directory
    #[arg(long)]
    moto: bool,
    /// Directory for images and objects
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
    /// The `spinney` program
    #[arg(long, default_value = "target/release/spinney")]
    program: PathBuf,
}

/// A bucket of a server of S3.
#[derive(Debug, Clone)]
struct Bucket {
    /// As `http://127.0.0.1:PORT`.
    endpoint: String,
    key: String,
    secret: String,
}

impl Bucket {
    const NAME: &str = "trial";

    /// Sends a signed request, and returns the body of the answer.
    fn curl(&self, method: &str, path: &str) -> Result<String> {
        let (user, url) = (format!("{}:{}", self.key, self.secret), format!("{}/{}{path}", self.endpoint, Self::NAME));
        let words = ["-sSf", "--aws-sigv4", "aws:amz:us-east-1:s3", "--user", &user, "-X", method, &url];
        system::run("curl", &words)
    }
}

/// The place that backups go to.
#[derive(Debug)]
enum Place {
    Directory(PathBuf),
    Bucket(Bucket),
}

impl Place {
    fn url(&self) -> String {
        match self {
            Self::Directory(dir) => format!("file://{}", dir.display()),
            Self::Bucket(_) => format!("s3://{}/site", Bucket::NAME),
        }
    }

    fn make(&self) -> Result<()> {
        match self {
            Self::Directory(dir) => Ok(std::fs::create_dir(dir)?),
            Self::Bucket(bucket) => bucket.curl("PUT", "").map(drop),
        }
    }

    /// The number of objects.
    fn count(&self) -> Result<u64> {
        let count = match self {
            Self::Directory(dir) => {
                let names = std::fs::read_dir(dir)?.collect::<std::io::Result<Vec<_>>>()?;
                names.iter().filter(|name| name.file_name() != ".lock").count()
            }
            Self::Bucket(bucket) => bucket.curl("GET", "?list-type=2&max-keys=1000")?.matches("<Key>").count(),
        };
        Ok(u64::try_from(count)?)
    }
}

/// A server of S3 in Python; killed when it is dropped.
struct Moto(Child);

impl Drop for Moto {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start_moto(dir: &Path) -> Result<Option<(Moto, Bucket)>> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let log = std::fs::File::create(dir.join("moto.log"))?;
    let mut command = Command::new("moto_server");
    command.args(["-H", "127.0.0.1", "-p", &port.to_string()]).stdin(Stdio::null());
    let Ok(child) = command.stdout(log.try_clone()?).stderr(log).spawn() else { return Ok(None) };
    let moto = Moto(child);
    let deadline = Instant::now() + START_MAX;
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        ensure!(Instant::now() < deadline, "moto_server does not start");
        thread::sleep(Duration::from_millis(50));
    }
    let (key, secret) = ("TRIALKEY".to_owned(), "trial-secret".to_owned());
    Ok(Some((moto, Bucket { endpoint: format!("http://127.0.0.1:{port}"), key, secret })))
}

/// Runs the trial.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let folder = tempfile::Builder::new().prefix("spinney-backup-").tempdir_in(&options.dir)?;
    let server = if options.moto { start_moto(folder.path())? } else { None };
    let place = match &server {
        None if options.moto => {
            println!("SKIPPED: moto_server is not here (pip install 'moto[server]')");
            return Ok(ExitCode::SUCCESS);
        }
        None => Place::Directory(folder.path().join("objects")),
        Some((_, bucket)) => Place::Bucket(bucket.clone()),
    };
    Trial::new(&options.program, folder.path(), place, options.seed)?.run(options.times)?;
    Ok(ExitCode::SUCCESS)
}

/// An image, and the place that it is backed up to.
struct Trial {
    program: PathBuf,
    dir: PathBuf,
    place: Place,
    random: Random,
    seed: u64,
    /// Seconds since 1970 of the last backup.
    time: u64,
    files: u64,
}

impl Trial {
    fn new(program: &Path, dir: &Path, place: Place, seed: u64) -> Result<Self> {
        place.make()?;
        let (program, dir) = (std::path::absolute(program)?, dir.to_owned());
        Ok(Self { program, dir, place, random: Random::new(seed), seed, time: 1_795_564_800, files: 0 })
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words).current_dir(&self.dir).stdin(Stdio::null());
        if let Place::Bucket(bucket) = &self.place {
            command.env("AWS_ENDPOINT_URL", &bucket.endpoint).env("AWS_REGION", "us-east-1");
            command.env("AWS_ACCESS_KEY_ID", &bucket.key).env("AWS_SECRET_ACCESS_KEY", &bucket.secret);
        }
        command
    }

    fn output(&self, words: &[&str]) -> Result<Output> {
        self.command(words).output().context("spinney")
    }

    /// Runs the program, which has to succeed.
    fn spinney(&self, words: &[&str]) -> Result<String> {
        let output = self.output(words)?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{words:?}: {}: {}", output.status, said.trim());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs all rounds, and lets two backups meet.
    fn run(mut self, times: u64) -> Result<()> {
        self.spinney(&["mkfs", "-q", "--size", "1G", "site.img"])?;
        self.spinney(&["subvolume", "create", "site.img", "/home"])?;
        for _ in 0..FILES {
            self.change()?;
        }
        let begun = Instant::now();
        self.back_up(true)?;
        let mut longest = begun.elapsed();
        let (start, mut killed, mut round) = (Instant::now(), 0u64, 0u64);
        // Some end before they are killed.
        while killed < times && round < times.saturating_mul(4) {
            longest = self.round(longest, &mut killed).with_context(|| format!("round {round}, seed {}", self.seed))?;
            round += 1;
        }
        self.meet()?;
        self.spinney(&["check", "--data", "site.img"])?;
        println!(
            "backup-kill: {}: {round} backups, {killed} of them killed before their end, all resumed and restored, 0 \
             differences, seed {}, {} s",
            self.place.url(),
            self.seed,
            start.elapsed().as_secs()
        );
        Ok(())
    }

    /// Writes a file of random bytes, in the place of an older one.
    fn change(&mut self) -> Result<()> {
        let len = self.random.between(FILE_BYTES.0, FILE_BYTES.1);
        let bytes: Vec<u8> = (0..len / 8).flat_map(|_| self.random.number().to_le_bytes()).collect();
        let name = format!("file-{}", self.files % FILES);
        std::fs::write(self.dir.join(&name), bytes)?;
        if self.files >= FILES {
            self.spinney(&["rm", "site.img", &format!("/home/{name}")])?;
        }
        self.files += 1;
        self.spinney(&["put", "-q", "site.img", &name, "/home"]).map(drop)
    }

    fn words(&mut self, is_full: bool) -> Vec<String> {
        self.time += 60;
        let time = self.time.to_string();
        let mut words: Vec<String> =
            ["backup", "-q", "--object-size", "64K", "--keep", "last=3", "--time", &time].map(str::to_owned).to_vec();
        if is_full {
            words.push("--full".to_owned());
        }
        words.extend(["site.img".to_owned(), "/home".to_owned(), self.place.url()]);
        words
    }

    fn back_up(&mut self, is_full: bool) -> Result<()> {
        let words = self.words(is_full);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.spinney(&words).map(drop)
    }

    /// Kills a backup, and runs one to its end. Returns the time that this took.
    fn round(&mut self, longest: Duration, killed: &mut u64) -> Result<Duration> {
        self.change()?;
        let is_full = self.random.one_in(3);
        let words = self.words(is_full);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut child = self.command(&words).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let most = u64::try_from(longest.as_millis())? + 1;
        thread::sleep(Duration::from_millis(self.random.below(most)));
        child.kill()?;
        *killed += u64::from(!child.wait()?.success());
        let begun = Instant::now();
        self.back_up(false).context("after the kill")?;
        let taken = begun.elapsed();
        self.compare()?;
        Ok(taken)
    }

    /// Verifies all objects, restores the newest state, and compares it with the source.
    fn compare(&self) -> Result<()> {
        let url = self.place.url();
        let found: Value = serde_json::from_str(&self.spinney(&["restore", "-q", "--verify=100", "--json", &url])?)?;
        let number = |name: &str| found.get(name).and_then(Value::as_u64).context("a number");
        let needed = number("objects")? + number("states")? + 1;
        let there = self.place.count()?;
        ensure!(there == needed, "{there} objects, of which {needed} are needed");
        let _ = std::fs::remove_file(self.dir.join("back.img"));
        self.spinney(&["mkfs", "-q", "--size", "1G", "back.img"])?;
        self.spinney(&["restore", "-q", &url, "back.img", "/home"])?;
        for (image, out) in [("site.img", "expected"), ("back.img", "found")] {
            let _ = std::fs::remove_dir_all(self.dir.join(out));
            self.spinney(&["get", "-q", image, "/home", out])?;
        }
        let dirs = ["expected", "found"].map(|name| self.dir.join(name));
        system::run("diff", &[Path::new("-r"), &dirs[0], &dirs[1]]).map(drop)
    }

    /// Starts a second backup, of a copy of the image, while a first one runs: it is told so, and does no harm.
    fn meet(&mut self) -> Result<()> {
        for _ in 0..FILES {
            self.change()?;
        }
        std::fs::copy(self.dir.join("site.img"), self.dir.join("copy.img"))?;
        let mut first = self.words(true);
        let mut second = first.clone();
        for word in second.iter_mut().filter(|word| *word == "site.img") {
            "copy.img".clone_into(word);
        }
        let as_words = |words: &mut Vec<String>| self.command(&words.iter().map(String::as_str).collect::<Vec<_>>());
        let mut running = as_words(&mut first).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        // Until the first one has its claim.
        thread::sleep(Duration::from_millis(300));
        let other = as_words(&mut second).output()?;
        let was_running = running.try_wait()?.is_none();
        let status = running.wait()?;
        let said = String::from_utf8_lossy(&other.stderr).into_owned();
        ensure!(status.success(), "the first of two backups: {status}");
        if was_running {
            ensure!(other.status.code() == Some(BUSY) && said.contains("another backup"), "the second one: {said}");
            println!("backup-kill: the second of two is told: {}", said.trim());
        }
        self.compare()
    }
}
