//! `spinney mkdir`

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use super::image::ImageArgs;

/// Make directories
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney mkdir site.img /backup\n",
    "  spinney mkdir -p -m 750 site.img /srv/www/site"
))]
pub(crate) struct Mkdir {
    #[command(flatten)]
    image: ImageArgs,
    /// Directories in the image
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Make those above as well; no failure when a directory exists
    #[arg(short, long)]
    parents: bool,
    /// Permission bits of the new directories, in octal
    #[arg(short, long, value_name = "MODE", value_parser = parse_mode)]
    mode: Option<u32>,
}

impl Mkdir {
    pub(crate) fn run(&self) -> Result<()> {
        let volume = self.image.open_writable()?;
        for path in &self.paths {
            let is_new = volume.symlink_metadata(path).is_err();
            if self.parents {
                volume.create_dir_all(path)?;
            } else {
                volume.create_dir(path)?;
            }
            if let Some(mode) = self.mode.filter(|_| is_new) {
                volume.set_permissions(path, mode)?;
            }
        }
        Ok(volume.close()?)
    }
}

fn parse_mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err(format!(
            "`{text}` is no mode; write it in octal, for instance 755"
        )),
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
