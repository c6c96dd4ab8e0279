//! `spinney rm` removes files and directories in an image or a mount. Called by `args`.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use spinney::vfs::{Errno, Volume};

use super::failure::Failure;
use super::failures::Failures;
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
pub(crate) struct Rm {
    #[command(flatten)]
    image: ImageArgs,
    /// Files and directories in the image; of a symbolic link the link itself
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Directories with their contents
    #[arg(short, long)]
    recursive: bool,
    /// No failure if a file does not exist
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
    /// The number of names that could not be removed, or the only failure; `failure::status_of` gives its status.
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        let volume = self.image.open_writable()?;
        let mut removed = Vec::new();
        let failures = Failures::default();
        for path in &self.paths {
            let left = failures.count();
            match self.remove(&volume, path, &failures) {
                Err(error) if self.force && error.errno() == Errno::ENOENT => {}
                Err(error) if error.errno() == Errno::EINVAL => {
                    let shown = path.display();
                    let text = format!("{shown}: the root directory of an image stays, and so do `.` and `..`");
                    failures.note::<()>(Err(Failure::refused(text).into()), false)?;
                }
                result => {
                    let is_removed = failures.note(result.map_err(Into::into), false)?.is_some();
                    if is_removed && failures.count() == left {
                        removed.push(json_path(path));
                    }
                }
            }
        }
        volume.close()?;
        let count = u64::try_from(removed.len())?;
        if self.json {
            out.json(&Report { removed })?;
        }
        failures.tell(count, "removed")
    }

    fn remove(&self, volume: &Volume, path: &PathBuf, failures: &Failures) -> spinney::vfs::Result<()> {
        if self.recursive && volume.symlink_metadata(path)?.is_dir() {
            volume.remove_dir_tree(path, |error| {
                // `note` returns only signals and full disks, which a removal does not cause.
                let _ = failures.note::<()>(Err(error.into()), false);
            })
        } else {
            volume.remove_file(path)
        }
    }
}
