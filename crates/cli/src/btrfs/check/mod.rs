//! Checks btrfs for `spinney check`: turns the report of `btrfs-check` into the form common to all formats. This module
//! checks images, `mount` checks mounts.
//!
//! Nothing is ever written. Failure: an error if the check cannot be done; faults of the file system are in the report.
//! Caller: `crate::check`, which parses the arguments and opens the devices.

mod marks;
pub(super) mod mount;

use std::path::Path;
use std::sync::Arc;

use anyhow::{Error, Result};
use spinney::CheckOptions;
use spinney::blockdev::Device;
use spinney::btrfs::check::{Marks, Options, check};
use spinney::btrfs::{check_options, report_of};

use crate::check_report::Checked;
use crate::commands::progress::{Bar, Progress};
use marks::MarkFile;

pub(crate) use marks::Holder;

/// The volume to check.
#[derive(Debug)]
pub(crate) enum Source<'a> {
    /// Devices, and the file or disk behind each.
    Devices(&'a [Arc<dyn Device>], &'a [Holder]),
    /// A directory of a mount.
    Mount(&'a Path),
}

/// The passes to run, and their options.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) source: Source<'a>,
    /// Names of passes, all of which the format has.
    pub(crate) passes: &'a [String],
    pub(crate) data: bool,
    /// True if reading the data continues where an earlier check was interrupted.
    pub(crate) resumes: bool,
    pub(crate) memory: u64,
    pub(crate) threads: usize,
    pub(crate) quiet: bool,
}

/// Runs the check; nothing is written.
pub(crate) fn run(wanted: &Wanted<'_>) -> Result<Checked> {
    let holders = match wanted.source {
        Source::Devices(_, holders) => holders,
        Source::Mount(_) => &[],
    };
    let asked = CheckOptions {
        passes: wanted.passes.to_vec(),
        data: wanted.data,
        memory: Some(wanted.memory),
        threads: Some(wanted.threads),
    };
    let marks = wanted.data.then(|| -> Arc<dyn Marks> { Arc::new(MarkFile::new(wanted.resumes, holders)) });
    let options = Options { marks, ..check_options(&asked) };
    let progress = Arc::new(Progress::default());
    let bar = Bar::new(&progress, !wanted.quiet);
    let report = match wanted.source {
        Source::Devices(devices, _) => check(devices, &options, &*progress).map_err(Error::from),
        Source::Mount(dir) => mount::check_mount(dir, &options, &*progress),
    };
    drop(bar);
    Ok(Checked(report_of(report?)))
}
