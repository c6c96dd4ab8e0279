//! `spinney quota` turns quotas on or off, or recounts them. Called by `args`, and by `jobs` in the server of a mount.

use std::io::Write as _;

use anyhow::Result;
use clap::{Args, Subcommand};
use serde::Serialize;
use spinney::btrfs::{QuotaChange, QuotaKind, Volume};

use super::format;
use crate::commands::image::ImageArgs;
use crate::commands::on_mount::OnMount;
use crate::commands::output::Output;

/// Turn quotas on or off, or recount them
///
/// With quotas on, btrfs counts the bytes that each subvolume refers to, and those that it holds exclusively; `spinney
/// qgroup` shows and limits them.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Of a mount root, and the user who mounted it, may do so.\n\n",
    "Examples:\n",
    "  spinney quota enable site.img\n",
    "  spinney quota enable ./mnt                  of what is mounted there\n",
    "  spinney quota rescan site.img"
))]
pub(crate) struct Quota {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Turn quotas on, and count the existing data
    #[command(after_help = concat!(
        "Examples:\n",
        "  spinney quota enable site.img\n",
        "  spinney quota enable --simple site.img      count what each subvolume makes from now on (Linux 6.7)"
    ))]
    Enable {
        #[command(flatten)]
        change: Change,
        /// Simple quotas: an extent counts for the subvolume that wrote it, as long as any subvolume refers to it
        #[arg(long)]
        simple: bool,
    },
    /// Turn quotas off: groups and limits are forgotten
    #[command(after_help = "Example:\n  spinney quota disable site.img")]
    Disable(Change),
    /// Recount all groups
    #[command(after_help = "Example:\n  spinney quota rescan site.img")]
    Rescan(Change),
}

#[derive(Debug, Args)]
struct Change {
    #[command(flatten)]
    image: ImageArgs,
    /// Report as JSON: {enabled, inconsistent, groups}, groups being their number
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
        let image = &self.parts().2.image;
        if let Some(dir) = image.mounted_dir()? {
            return OnMount::connect(&dir)?.run("quota", self.words(), out);
        }
        let volume = format::open_writable(image)?;
        self.run_on(&volume, out)?;
        Ok(volume.close()?)
    }

    /// Name, option, and the arguments common to all.
    fn parts(&self) -> (&'static str, Option<&'static str>, &Change) {
        match &self.command {
            Command::Enable { change, simple } => ("enable", simple.then_some("--simple"), change),
            Command::Disable(change) => ("disable", None, change),
            Command::Rescan(change) => ("rescan", None, change),
        }
    }

    /// The command line for the server of a mount.
    fn words(&self) -> Vec<String> {
        let (name, option, change) = self.parts();
        let words = [name].into_iter().chain(option).chain(change.json.then_some("--json")).chain(["IMAGE"]);
        words.map(str::to_owned).collect()
    }

    /// Makes a durable change, and reports the result.
    pub(super) fn run_on(&self, volume: &Volume, out: &mut Output) -> Result<()> {
        match &self.command {
            Command::Enable { simple: true, .. } => volume.enable_quotas(QuotaKind::Simple)?,
            Command::Enable { .. } => volume.enable_quotas(QuotaKind::Shared)?,
            Command::Disable(_) => volume.disable_quotas()?,
            Command::Rescan(_) => volume.change_quotas(QuotaChange::Rescan)?,
        }
        volume.sync()?;
        let quotas = volume.quotas()?;
        let groups = quotas.as_ref().map_or(0, |quotas| quotas.groups.len());
        let is_inconsistent = quotas.as_ref().is_some_and(spinney::btrfs::QuotaReport::is_inconsistent);
        if self.parts().2.json {
            return out.json(&Report { enabled: quotas.is_some(), inconsistent: is_inconsistent, groups });
        }
        if is_inconsistent {
            writeln!(out, "the numbers are inconsistent: not everything could be counted")?;
        }
        Ok(())
    }
}
