//! `spinney info` shows the file system of an image or a mount, in its format's words. Called by `args`, and by the
//! jobs of a mount.

use anyhow::{Context as _, Result};
use clap::Args;

use super::format;
use super::image::ReadArgs;
use super::on_mount::OnMount;
use super::output::Output;

/// Name of the job on a mount.
pub(crate) const NAME: &str = "info";

/// Show the properties of an image, and how full it is
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney info site.img\n",
    "  spinney info ./mnt                     of what is mounted there\n",
    "  spinney info --json site.img | jq .uuid"
))]
pub(crate) struct Info {
    #[command(flatten)]
    image: ReadArgs,
    /// Report as JSON: {label, uuid, generation, total_bytes, used_bytes, features, devices, ...}
    #[arg(long)]
    json: bool,
}

impl Info {
    /// Runs the command.
    ///
    /// # Errors
    /// The first failure; `failure::status_of` gives its status.
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        if let Some(dir) = self.image.mounted_dir()? {
            let json = self.json.then(|| "--json".to_owned());
            return OnMount::connect(&dir)?.run(NAME, json.into_iter().chain(["IMAGE".to_owned()]).collect(), out);
        }
        let opened = self.image.open()?;
        let volume = opened.own.context("info: not an image")?;
        (format::face(volume.format()).report)(&volume, self.json, out)
    }

    /// True if the report is JSON.
    #[must_use]
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }
}
