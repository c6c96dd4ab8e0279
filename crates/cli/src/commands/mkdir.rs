//! `spinney mkdir` makes directories in an image or a mount. Called by `args`.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use serde::Serialize;

use super::image::ImageArgs;
use super::output::Output;
use super::report::Made;

/// Make directories
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney mkdir site.img:/backup\n",
    "  spinney mkdir site.img /backup\n",
    "  spinney mkdir -p -m 750 site.img /srv/www/site\n",
    "  spinney mkdir --json site.img /new | jq .made[].ino"
))]
pub(crate) struct Mkdir {
    #[command(flatten)]
    image: ImageArgs,
    /// Directories in the image
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Make missing parents too; no failure if a directory exists
    #[arg(short, long)]
    parents: bool,
    /// Permission bits of the new directories, in octal
    #[arg(short, long, value_name = "MODE", value_parser = parse_mode)]
    mode: Option<u32>,
    /// Report as JSON: {made: [{path, subvolume, ino}]}, those above included
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    made: Vec<Made>,
}

impl Mkdir {
    /// Runs the command.
    ///
    /// # Errors
    /// The first failure; `failure::status_of` gives its status.
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        let volume = self.image.open_writable()?;
        let mut made = Vec::new();
        for path in &self.paths {
            let above = path.ancestors().filter(|above| !above.as_os_str().is_empty());
            let missing: Vec<&Path> = above.take_while(|above| volume.symlink_metadata(above).is_err()).collect();
            let is_new = volume.symlink_metadata(path).is_err();
            if self.parents {
                volume.create_dir_all(path)?;
            } else {
                volume.create_dir(path)?;
            }
            if let Some(mode) = self.mode.filter(|_| is_new) {
                volume.set_permissions(path, mode)?;
            }
            for path in missing.iter().rev().filter(|_| self.json) {
                made.push(Made::at(&volume, path)?);
            }
        }
        volume.close()?;
        if self.json { out.json(&Report { made }) } else { Ok(()) }
    }
}

fn parse_mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err(format!("`{text}` is no mode; write it in octal, for instance 755")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal() {
        assert_eq!(parse_mode("1755"), Ok(0o1755));
        assert!(parse_mode("888").is_err());
        assert!(parse_mode("17777").is_err());
    }
}
