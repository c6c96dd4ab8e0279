//! `spinney trace` records the requests to a device, and draws them.
//!
//! [`watch`] records this process, `read` parses a recording, `summary` counts, `plot` draws.
//!
//! Failure: a recording that cannot be written fails the recorded command at its end; of a mount it is logged. A
//! malformed recording is refused with the line. Callers: `args`; of [`watch::watched`] the functions that open a
//! device.

mod plot;
mod read;
mod summary;
pub(crate) mod watch;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, Subcommand};
use serde::Serialize;

use crate::commands::human;
use crate::commands::number::to_float;
use crate::commands::output::Output;
use crate::commands::picture;
use plot::Recording;
use summary::Summary;

/// Record the requests to a device, and draw them
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney trace record -o put.trace put site.img ./src /\n",
    "  spinney mount -o trace=mount.trace site.img /mnt/site\n",
    "  spinney trace plot put.trace mount.trace -o both.svg"
))]
pub(crate) struct Trace {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a command, and record each request to its devices
    ///
    /// A line for each request: start and duration in microseconds, operation, first byte on the device, bytes, purpose
    /// (data, metadata, log, superblock), copy, and thread.
    #[command(after_help = concat!(
        "Examples:\n",
        "  spinney trace record -o put.trace put site.img ./src /\n",
        "  spinney trace record -o make.trace mkfs --rootdir ./site site.img"
    ))]
    Record {
        /// File for the recording; it is overwritten
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// A command of this program with its arguments; for mounts there is -o trace=FILE
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
        words: Vec<OsString>,
    },
    /// Draw recordings as SVG, side by side and with the same scales
    #[command(after_help = concat!(
        "Examples:\n",
        "  spinney trace plot put.trace -o put.svg\n",
        "  spinney trace plot before.trace after.trace -o both.svg\n",
        "  spinney trace plot --json put.trace | jq .recordings[].seeks"
    ))]
    Plot {
        /// Recordings
        #[arg(required = true, num_args = 1..=4, value_name = "FILE")]
        recordings: Vec<PathBuf>,
        /// The picture; without it, a summary is printed
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Report as JSON: {recordings: [{file, duration_us, reads, writes, writes_by_kind, flushes, seeks, ...}]}
        #[arg(long)]
        json: bool,
    },
}

#[derive(Serialize)]
struct Report {
    recordings: Vec<Entry>,
}

#[derive(Serialize)]
struct Entry {
    file: String,
    #[serde(flatten)]
    summary: Summary,
    data_run_bytes: u64,
}

impl Trace {
    /// Runs the command; `run` is the whole program, for the command to record.
    ///
    /// # Errors
    /// The first failure; `failure::status_of` gives its status.
    pub(crate) fn run(&self, out: &mut Output, run: impl FnOnce(&[OsString], &mut Output) -> Result<()>) -> Result<()> {
        match &self.command {
            Command::Record { output, words } => {
                watch::begin(output)?;
                let done = run(words, out);
                let finished = watch::finish();
                done.and(finished)
            }
            Command::Plot { recordings, output, json } => plot(recordings, output.as_deref(), *json, out),
        }
    }
}

fn plot(files: &[PathBuf], output: Option<&Path>, json: bool, out: &mut Output) -> Result<()> {
    let mut recordings = Vec::with_capacity(files.len());
    for file in files {
        let requests = read::read(file)?;
        let summary = Summary::of(&requests);
        let name = file.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        recordings.push(Recording { name, requests, summary });
    }
    if let Some(path) = output {
        picture::write(path, &plot::draw(&recordings))?;
    }
    if json {
        let entries = recordings.into_iter().map(|Recording { name, summary, .. }| Entry {
            file: name,
            data_run_bytes: summary.data_run_bytes(),
            summary,
        });
        return out.json(&Report { recordings: entries.collect() });
    }
    if output.is_some() {
        return Ok(());
    }
    for Recording { name, summary, .. } in &recordings {
        tell(name, summary, out)?;
    }
    Ok(())
}

fn tell(name: &str, summary: &Summary, out: &mut Output) -> Result<()> {
    let seconds = to_float(summary.duration_us) / 1e6;
    writeln!(out, "{}: {seconds:.2} s", crate::commands::names::escaped_text(name))?;
    for (what, count) in [("writes", summary.writes), ("reads", summary.reads), ("discards", summary.discards)] {
        writeln!(out, "  {what:<9} {:>9}  {:>10}", count.requests, human::bytes(count.bytes))?;
    }
    for (kind, count) in &summary.writes_by_kind {
        writeln!(out, "    {kind:<10} {:>6}  {:>10}", count.requests, human::bytes(count.bytes))?;
    }
    writeln!(out, "  flushes   {:>9}", summary.flushes)?;
    writeln!(out, "  seeks     {:>9}", summary.seeks)?;
    let each = human::bytes(summary.data_run_bytes());
    writeln!(out, "  data runs {:>9}  {each:>10} on average", summary.data_runs)?;
    Ok(())
}
