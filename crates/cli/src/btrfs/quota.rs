//! `spinney quota`

use std::io::Write as _;

use anyhow::Result;
use clap::{Args, Subcommand};
use serde::Serialize;
use spinney::{QuotaChange, QuotaKind, Volume};

use super::format;
use commands::image::ImageArgs;
use commands::output::Output;

/// Turn quotas on or off, or count anew
///
/// With quotas on, it is counted what each subvolume refers to and what it holds alone; `spinney qgroup` shows that,
/// and limits it.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "An image that is mounted is refused, and where it is mounted is said.\n\n",
    "Examples:\n",
    "  spinney quota enable site.img\n",
    "  spinney quota rescan site.img"
))]
pub(crate) struct Quota {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Turn quotas on, and count what there is
    #[command(after_help = concat!(
        "Examples:\n",
        "  spinney quota enable site.img\n",
        "  spinney quota enable --simple site.img      count what each subvolume makes from now on (Linux 6.7)"
    ))]
    Enable {
        #[command(flatten)]
        change: Change,
        /// Simple quotas: an extent counts for the subvolume that made it, as long as anybody keeps it
        #[arg(long)]
        simple: bool,
    },
    /// Turn quotas off: groups and limits are forgotten
    #[command(after_help = "Example:\n  spinney quota disable site.img")]
    Disable(Change),
    /// Count everything anew
    #[command(after_help = "Example:\n  spinney quota rescan site.img")]
    Rescan(Change),
}

#[derive(Debug, Args)]
struct Change {
    #[command(flatten)]
    image: ImageArgs,
    /// Report as JSON: {enabled, inconsistent, groups}, groups being how many there are
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    enabled: bool,
    inconsistent: bool,
    groups: usize,
}

impl Quota {
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        match &self.command {
            Command::Enable { change, simple } => {
                let kind = if *simple { QuotaKind::Simple } else { QuotaKind::Shared };
                change.run(|volume| volume.enable_quotas(kind), out)
            }
            Command::Disable(change) => change.run(Volume::disable_quotas, out),
            Command::Rescan(change) => change.run(|volume| volume.change_quotas(QuotaChange::Rescan), out),
        }
    }
}

impl Change {
    fn run(&self, change: impl FnOnce(&Volume) -> spinney::Result<()>, out: &mut Output) -> Result<()> {
        let volume = format::open_writable(&self.image)?;
        change(&volume)?;
        let quotas = volume.quotas()?;
        volume.close()?;
        let groups = quotas.as_ref().map_or(0, |quotas| quotas.groups.len());
        let is_inconsistent = quotas.as_ref().is_some_and(spinney::QuotaReport::is_inconsistent);
        if self.json {
            return out.json(&Report { enabled: quotas.is_some(), inconsistent: is_inconsistent, groups });
        }
        if is_inconsistent {
            writeln!(out, "the numbers are inconsistent: not everything could be counted")?;
        }
        Ok(())
    }
}
