//! `spinney rm`

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use vfs::{Errno, Volume};

use super::failure::Failure;
use super::image::ImageArgs;
use super::names::JsonPath;
use super::output::Output;
use super::report::json_path;

/// Remove files and directories
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney rm site.img:/etc/motd\n",
    "  spinney rm site.img /etc/motd\n",
    "  spinney rm -r site.img /var/cache /tmp\n",
    "  spinney rm -f --json site.img /a /b | jq -r .removed[].path"
))]
pub struct Rm {
    #[command(flatten)]
    image: ImageArgs,
    /// What to remove, in the image; a symbolic link is removed itself
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Directories and all below
    #[arg(short, long)]
    recursive: bool,
    /// No failure when there is nothing to remove
    #[arg(short, long)]
    force: bool,
    /// Report as JSON: {removed: [{path}]}
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    removed: Vec<JsonPath>,
}

impl Rm {
    /// Runs the command.
    ///
    /// # Errors
    /// The first failure; [`crate::failure::status_of`] says of what kind it is.
    pub fn run(&self, out: &mut Output) -> Result<()> {
        let volume = self.image.open_writable()?;
        let mut removed = Vec::new();
        for path in &self.paths {
            match self.remove(&volume, path) {
                Err(error) if self.force && error.errno() == Errno::ENOENT => {}
                Err(error) if error.errno() == Errno::EINVAL => {
                    let shown = path.display();
                    let text = format!("{shown}: the root directory of an image stays, and so do `.` and `..`");
                    return Err(Failure::refused(text).into());
                }
                result => {
                    result?;
                    removed.push(json_path(path));
                }
            }
        }
        volume.close()?;
        if self.json { out.json(&Report { removed }) } else { Ok(()) }
    }

    fn remove(&self, volume: &Volume, path: &PathBuf) -> vfs::Result<()> {
        if self.recursive && volume.symlink_metadata(path)?.is_dir() {
            volume.remove_dir_all(path)
        } else {
            volume.remove_file(path)
        }
    }
}
