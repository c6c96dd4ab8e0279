//! `spinney mv` moves or renames files and directories within an image or a mount. Called by `args`.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use spinney::vfs::Errno;
use spinney::vfs::file_system::RenameFlags;

use super::dest::Dest;
use super::failure::Failure;
use super::image::ImageArgs;
use super::names::JsonPath;
use super::output::Output;
use super::report::json_path;

/// Move or rename files and directories
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney mv site.img:/draft.html site.img:/index.html\n",
    "  spinney mv site.img /draft.html /index.html\n",
    "  spinney mv site.img /a /b /archive\n",
    "  spinney mv --json site.img /a /archive | jq -r .moved[].to.path"
))]
pub(crate) struct Mv {
    #[command(flatten)]
    image: ImageArgs,
    /// Files and directories in the image
    #[arg(required = true, value_name = "SOURCE")]
    sources: Vec<PathBuf>,
    /// Destination in the image: an existing directory, or a name
    dest: PathBuf,
    /// Do not replace an existing file
    #[arg(short, long)]
    no_clobber: bool,
    /// Swap the two names
    #[arg(long, conflicts_with = "no_clobber")]
    exchange: bool,
    /// Report as JSON: {moved: [{from: {path}, to: {path}}]}
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    moved: Vec<Moved>,
}

#[derive(Serialize)]
struct Moved {
    from: JsonPath,
    to: JsonPath,
}

impl Mv {
    /// Runs the command.
    ///
    /// # Errors
    /// The first failure; `failure::status_of` gives its status.
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        let volume = self.image.open_writable()?;
        let flags = match (self.no_clobber, self.exchange) {
            (true, _) => RenameFlags::NO_REPLACE,
            (_, true) => RenameFlags::EXCHANGE,
            _ => RenameFlags::empty(),
        };
        let is_into = !self.exchange && volume.metadata(&self.dest).is_ok_and(|found| found.is_dir());
        let dest = Dest::new(&self.dest, is_into, self.sources.len())?;
        let mut all = Vec::new();
        for source in &self.sources {
            let is_dir = volume.symlink_metadata(source)?.is_dir();
            let target = dest.target(source, is_dir)?;
            let moved = volume.rename_with(source, &target, flags);
            moved.map_err(|error| match error.errno() {
                Errno::EINVAL if is_dir => {
                    let (from, to) = (source.display(), target.display());
                    Failure::refused(format!("{from}: a directory cannot move to {to}, which is in itself")).into()
                }
                _ => anyhow::Error::from(error),
            })?;
            all.push(Moved { from: json_path(source), to: json_path(&target) });
        }
        volume.close()?;
        if self.json { out.json(&Report { moved: all }) } else { Ok(()) }
    }
}
