//! `spinney mv`

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Args;
use spinney::RenameFlags;

use super::failure::Failure;
use super::image::ImageArgs;

/// Move or rename files and directories
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  spinney mv site.img /draft.html /index.html\n  spinney mv site.img /a /b /archive"
)]
pub(crate) struct Mv {
    #[command(flatten)]
    image: ImageArgs,
    /// What to move, in the image
    #[arg(required = true, value_name = "SOURCE")]
    sources: Vec<PathBuf>,
    /// Where to, in the image: an existing directory, or a name
    dest: PathBuf,
    /// Do not replace an existing file
    #[arg(short, long)]
    no_clobber: bool,
    /// Swap the two names
    #[arg(long, conflicts_with = "no_clobber")]
    exchange: bool,
}

impl Mv {
    pub(crate) fn run(&self) -> Result<()> {
        let volume = self.image.open_writable()?;
        let flags = match (self.no_clobber, self.exchange) {
            (true, _) => RenameFlags::NoReplace,
            (_, true) => RenameFlags::Exchange,
            _ => RenameFlags::Replace,
        };
        let is_into = !self.exchange
            && volume
                .metadata(&self.dest)
                .is_ok_and(|found| found.is_dir());
        if self.sources.len() > 1 && !is_into {
            let text = format!(
                "{}: not a directory, and there are several files",
                self.dest.display()
            );
            return Err(Failure::refused(text).into());
        }
        for source in &self.sources {
            let name = source.file_name().context("the source has no name")?;
            let target = if is_into {
                self.dest.join(name)
            } else {
                self.dest.clone()
            };
            volume.rename_with(source, &target, flags)?;
        }
        Ok(volume.close()?)
    }
}
