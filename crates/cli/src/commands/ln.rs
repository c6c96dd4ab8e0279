//! `spinney ln` gives a file in an image or a mount one more name, or makes a symbolic link. Called by `args`.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use serde::Serialize;

use super::dest::Dest;
use super::failure::Failure;
use super::image::ImageArgs;
use super::names::JsonTarget;
use super::output::Output;
use super::report::Made;

/// Give a file one more name, or make a symbolic link
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney ln -s ../share/doc site.img:/usr/doc\n",
    "  spinney ln site.img /index.html /default.html\n",
    "  spinney ln -s site.img ../share/doc /usr/doc\n",
    "  spinney ln --json site.img /a /b | jq .ino"
))]
pub(crate) struct Ln {
    #[command(flatten)]
    image: ImageArgs,
    /// File in the image, or with --symbolic any text
    target: PathBuf,
    /// The new name in the image, or a directory for it
    link: PathBuf,
    /// Make a symbolic link
    #[arg(short, long)]
    symbolic: bool,
    /// Replace an existing file
    #[arg(short, long)]
    force: bool,
    /// Report as JSON: {path, target, symbolic, subvolume, ino}
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    made: Made,
    #[serde(flatten)]
    target: JsonTarget,
    symbolic: bool,
}

impl Ln {
    /// Runs the command.
    ///
    /// # Errors
    /// The first failure; `failure::status_of` gives its status.
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        let volume = self.image.open_writable()?;
        let is_into = volume.metadata(&self.link).is_ok_and(|found| found.is_dir());
        let link = Dest::new(&self.link, is_into, 1)?.target(&self.target, false)?;
        if self.force && volume.symlink_metadata(&link).is_ok() {
            volume.remove_file(&link)?;
        }
        let made = self.make(&volume, &link);
        made.map_err(|error| match volume.symlink_metadata(&self.target) {
            Ok(found) if found.is_dir() && !self.symbolic => {
                let text = format!("{}: a directory has one name only; --symbolic makes a link", self.target.display());
                Failure::refused(text).into()
            }
            _ => anyhow::Error::from(error),
        })?;
        let made = Made::at(&volume, &link)?;
        volume.close()?;
        if !self.json {
            return Ok(());
        }
        let target = JsonTarget(self.target.as_os_str().as_bytes().to_vec());
        out.json(&Report { made, target, symbolic: self.symbolic })
    }

    fn make(&self, volume: &spinney::vfs::Volume, link: &Path) -> spinney::vfs::Result<()> {
        if self.symbolic { volume.symlink(&self.target, link) } else { volume.hard_link(&self.target, link) }
    }
}
