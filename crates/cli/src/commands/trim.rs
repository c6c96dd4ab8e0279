//! `spinney trim` returns free space in an image to the host, by punching holes or discarding blocks. Called by `args`.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::Result;
use clap::Args;
use serde::Serialize;

use super::human;
use super::image::ImageArgs;
use super::output::Output;
use super::progress::{Bar, Progress};

/// Return free space in an image to the host (punch holes)
///
/// Deleted data stays in an image file until it is overwritten, or until this command punches a hole there; on a disk
/// the blocks are discarded. No file changes. On a mount fstrim(8) does the same.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney trim site.img\n",
    "  spinney trim -m 1M site.img                  only runs of 1 MiB and more: fewer holes\n",
    "  spinney trim --json site.img | jq .bytes"
))]
pub(crate) struct Trim {
    #[command(flatten)]
    image: ImageArgs,
    /// Skip shorter runs of free space
    #[arg(short, long, value_name = "SIZE", value_parser = human::parse_bytes, default_value_t = 0,
        hide_default_value = true)]
    minimum: u64,
    /// No progress bar and no summary
    #[arg(short, long)]
    quiet: bool,
    /// Report as JSON: {bytes}
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    /// Bytes of free space; each counts once, however many copies the format keeps.
    bytes: u64,
}

impl Trim {
    /// Runs the command.
    ///
    /// # Errors
    /// The first failure; `failure::status_of` gives its status.
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        let volume = self.image.open_writable()?;
        let progress = Arc::new(Progress::default());
        let bar = Bar::new(&progress, !self.quiet);
        let wanted = spinney::vfs::Trim { bytes_min: self.minimum, ..spinney::vfs::Trim::default() };
        let told = volume.trim(&wanted, &mut |seen, all| {
            progress.bytes.store(seen, Ordering::Relaxed);
            progress.bytes_total.store(all, Ordering::Relaxed);
        });
        drop(bar);
        let bytes = told?;
        volume.close()?;
        if self.json {
            return out.json(&Report { bytes });
        }
        if !self.quiet {
            writeln!(out, "{} free, given back", human::bytes(bytes))?;
        }
        Ok(())
    }
}
