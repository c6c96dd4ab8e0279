//! `spinney info`

use anyhow::Result;
use clap::Args;

use super::image::ReadArgs;
use super::output::Output;

/// Show what an image is and how full it is
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney info site.img\n",
    "  spinney info --json site.img | jq .uuid"
))]
pub struct Info {
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
    /// The first failure; [`crate::failure::status_of`] says of what kind it is.
    pub fn run(&self, out: &mut Output) -> Result<()> {
        self.image.open()?.about.report(self.json, out)
    }
}
