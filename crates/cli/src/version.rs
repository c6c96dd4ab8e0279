//! `spinney version` prints the version and, with `--verbose` or `--json`, the facts about the machine that a bug
//! report needs. Called by `args`.

use std::io::Write as _;

use anyhow::Result;
use clap::Args;
use serde::Serialize;

use crate::commands::output::Output;

/// Says whether the kernel lets FUSE servers use io_uring.
const RING_SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// Print the version, and with --verbose what a report of an error needs
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  spinney version\n  spinney version --verbose    to put into a report")]
pub(crate) struct Version {
    /// Also print the formats, the kernel, and whether FUSE and its helper can be used
    #[arg(short, long)]
    verbose: bool,
    /// Report everything as JSON: {version, formats, profile, kernel, machine, processors, page_bytes, fuse_device,
    /// fuse_io_uring, fusermount3}
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    version: &'static str,
    formats: Vec<&'static str>,
    profile: &'static str,
    kernel: String,
    machine: String,
    processors: usize,
    page_bytes: usize,
    fuse_device: String,
    fuse_io_uring: String,
    fusermount3: String,
}

impl Report {
    fn new() -> Self {
        let system = rustix::system::uname();
        let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
        Self {
            version: env!("CARGO_PKG_VERSION"),
            formats: spinney::formats().iter().map(|format| format.name()).collect(),
            profile: if cfg!(debug_assertions) { "checked" } else { "release" },
            kernel: format!("{} {}", system.sysname().to_string_lossy(), system.release().to_string_lossy()),
            machine: system.machine().to_string_lossy().into_owned(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            page_bytes: rustix::param::page_size(),
            fuse_device: device.map_or_else(|error| error.to_string(), |_| "usable".to_owned()),
            fuse_io_uring: std::fs::read_to_string(RING_SWITCH)
                .map_or_else(|_| "not in this kernel".to_owned(), |text| on_or_off(text.trim()).to_owned()),
            fusermount3: crate::commands::kernel::mount_helper()
                .map_or_else(|error| error.to_string(), |path| path.display().to_string()),
        }
    }
}

fn on_or_off(switch: &str) -> &str {
    match switch {
        "Y" => "on",
        "N" => "off",
        other => other,
    }
}

impl Version {
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        if self.json {
            return out.json(&Report::new());
        }
        writeln!(out, "spinney {}", env!("CARGO_PKG_VERSION"))?;
        if self.verbose {
            let report = Report::new();
            writeln!(out, "Formats:      {}", report.formats.join(", "))?;
            writeln!(out, "Build:        {}, {}", report.profile, std::env::consts::ARCH)?;
            writeln!(out, "Kernel:       {}, {}", report.kernel, report.machine)?;
            writeln!(out, "Processors:   {}, pages of {} bytes", report.processors, report.page_bytes)?;
            writeln!(out, "/dev/fuse:    {}", report.fuse_device)?;
            writeln!(out, "FUSE io_uring: {}", report.fuse_io_uring)?;
            writeln!(out, "fusermount3:  {}", report.fusermount3)?;
        }
        Ok(())
    }
}
