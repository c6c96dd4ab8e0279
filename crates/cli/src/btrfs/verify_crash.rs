//! `spinney verify-crash` tests the states that a power cut can leave of a workload, on a copy of an image, with
//! `crash_explorer`. Called by `args`.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, Result, bail};
use clap::Args;
use serde::Serialize;
use spinney::blockdev::{self, Access, Locator};
use spinney::btrfs::crash::explorer::{self as crash, Config, Progress, Report as Explored};

use crate::commands::failure::Failure;
use crate::commands::image::explain;
use crate::commands::names;
use crate::commands::output::Output;

/// Longest workload, in bytes.
const WORKLOAD_BYTES_MAX: u64 = 4 << 20;
const PROGRESS: &str = "{bar:30} {pos} of {len} states, {per_sec}, {eta} left";
const STATES: u64 = 2000;

/// Test the states that a power cut can leave of a workload, on a copy of an image
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  spinney verify-crash site.img --workload rename.txt",
    after_long_help = LONG_HELP
)]
pub(crate) struct VerifyCrash {
    /// Image file or unmounted block device; it is copied into memory piece by piece, never written
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    /// The operations, one a line; --help describes the language
    #[arg(long, value_name = "FILE")]
    workload: PathBuf,
    /// Most states that are tried, each once
    #[arg(long, value_name = "N", default_value_t = STATES)]
    states: u64,
    /// Seed of the random choice of states
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Try only this state, as a failure names it
    #[arg(long, value_name = "NAME")]
    state: Option<String>,
    /// Save the images of wrong states in DIR
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Report as JSON: {states, failure_count, failures: [{state, reason, story}], seed, ...}
    #[arg(long)]
    json: bool,
}

const LONG_HELP: &str = "\
Example:
  cat > rename.txt << END
  write A/new 0 4096
  fsync A/new
  rename A/new A/settings      # the old settings, or these: never none
  fsync A
  END
  spinney mkdir site.img /A
  spinney verify-crash site.img --workload rename.txt

The workload runs on a copy of the image in memory. All its writes and flushes are recorded,
and states are made that a power cut could have left: what was flushed is there, of the rest
any part of 512 bytes may be. Each is opened, read, and compared with what had been promised:

  sync       everything that was done before is there
  fsync      the same for one file, its names and attributes included, or for a directory and
             its entries
  fdatasync  a file's contents, under a name that it has or had

Nothing may be there that was never written, and a rename has happened or not. The exit status
is 1 when a state is wrong.

Workload, one operation a line; what follows a '#' is ignored:
  creat PATH                   mkdir PATH               sync
  write PATH OFFSET LEN        unlink PATH              fsync PATH
  dwrite PATH OFFSET LEN       rmdir PATH               fdatasync PATH
  mmapwrite PATH OFFSET LEN    rename OLD NEW           truncate PATH LEN
  falloc PATH OFFSET LEN [keep-size | punch | zero]     link OLD NEW
  setxattr PATH NAME VALUE     removexattr PATH NAME    symlink TARGET PATH
  chmod PATH MODE              chown PATH UID GID       utimes PATH ATIME MTIME
  chattr PATH =[AdS]           exchange OLD NEW         tmpfile PATH LEN
  reflink SOURCE OFFSET PATH OFFSET LEN                 hold PATH
  copy SOURCE OFFSET PATH OFFSET LEN                    release
  subvol PATH                  snapshot SOURCE PATH     delsubvol PATH
  defrag PATH [zlib | lzo | zstd]                       trim
  resize min | BYTES

write does not make the file: creat does, and does nothing where there is one. dwrite goes to
the device at once, mmapwrite is a write over bytes that are there. tmpfile makes a file without a
name, fills it and links it; hold keeps a file open until release. Times are seconds. Paths start
at the top of the default subvolume; blanks and others are written as \\x20.";

#[derive(Serialize)]
struct Report {
    states: u64,
    states_with_log: u64,
    failure_count: u64,
    failures: Vec<Failed>,
    seed: u64,
    seconds: f64,
}

#[derive(Serialize)]
struct Failed {
    state: String,
    reason: String,
    story: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<String>,
}

impl VerifyCrash {
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        out.outlive_reader();
        let steps = self.steps()?;
        let opened = Locator::parse(&self.image).and_then(|image| blockdev::open(&image, Access::READ));
        let device = opened.map_err(|error| explain(&self.image, error.into()))?;
        let progress = Arc::new(Progress::default());
        let config = Config {
            states: self.states,
            seed: self.seed,
            state: self.state.clone(),
            keep: self.keep.clone(),
            progress: Some(Arc::clone(&progress)),
            ..Config::new(Arc::new(spinney::btrfs::crash::Btrfs))
        };
        let start = Instant::now();
        let explored =
            crash::watched(&progress, self.states, PROGRESS, || crash::explore_given(&config, &device, &steps));
        let explored = explored.map_err(|error| self.blame(error))?;
        let report = self.report(&explored, start.elapsed());
        if self.json {
            out.json(&report)?;
        } else {
            print(out, &report)?;
        }
        match report.failure_count {
            0 => Ok(()),
            count => bail!(Failure::refused(format!("{count} states break a promise of durability"))),
        }
    }

    fn steps(&self) -> Result<Vec<(usize, crash::Step)>> {
        let name = self.workload.display().to_string();
        let len = std::fs::metadata(&self.workload).with_context(|| name.clone())?.len();
        if len > WORKLOAD_BYTES_MAX {
            bail!(Failure::usage(format!("{name}: has {len} bytes, which is too long for a workload")));
        }
        let text = std::fs::read(&self.workload).with_context(|| name.clone())?;
        let steps = crash::parse(&text).map_err(|error| Failure::usage(format!("{name}: {error}")))?;
        if steps.is_empty() {
            bail!(Failure::usage(format!("{name}: no operation in it")));
        }
        Ok(steps)
    }

    /// The error, as a fault of the image or of the workload.
    fn blame(&self, error: Error) -> Error {
        match error.to_string().starts_with("line ") {
            true => error.context(self.workload.display().to_string()),
            false => explain(&self.image, error),
        }
    }

    fn report(&self, explored: &Explored, took: Duration) -> Report {
        let failures = explored.failures.iter().map(|failure| Failed {
            state: failure.state.rsplit('/').next().unwrap_or_default().to_owned(),
            reason: failure.reason.clone(),
            story: failure.story.lines().map(|line| line.trim_end().to_owned()).collect(),
            image: failure.image.as_ref().map(|path| path.display().to_string()),
        });
        Report {
            states: explored.states,
            states_with_log: explored.replayed,
            failure_count: explored.failure_count,
            failures: failures.collect(),
            seed: self.seed,
            seconds: took.as_secs_f64(),
        }
    }
}

fn print(out: &mut Output, report: &Report) -> Result<()> {
    for failure in &report.failures {
        let reason = names::escaped(failure.reason.as_bytes());
        writeln!(out, "State {}: {reason}", failure.state)?;
        for line in &failure.story {
            writeln!(out, "{}", names::escaped(line.as_bytes()))?;
        }
        if let Some(image) = &failure.image {
            writeln!(out, "Saved as {}", names::escaped(image.as_bytes()))?;
        }
        writeln!(out)?;
    }
    writeln!(
        out,
        "{} states, {} of them with a log to replay, {} wrong, {:.1} s, seed {}",
        report.states, report.states_with_log, report.failure_count, report.seconds, report.seed
    )?;
    Ok(())
}
