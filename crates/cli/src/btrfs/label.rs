//! `spinney label`

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;

use anyhow::Result;
use btrfs_disk::superblock::LABEL_SIZE;
use clap::Args;
use serde::Serialize;

use super::format;
use commands::failure::Failure;
use commands::image::ReadArgs;
use commands::names;
use commands::output::Output;

/// Show or change the label of an image
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "An image that is mounted is refused, and where it is mounted is said.\n\n",
    "Examples:\n",
    "  spinney label site.img              print it\n",
    "  spinney label site.img \"Site 2026\"  set it\n",
    "  spinney label site.img \"\"           take it away"
))]
pub(crate) struct Label {
    #[command(flatten)]
    image: ReadArgs,
    /// The new label: at most 255 bytes
    #[arg(conflicts_with_all = ["nologreplay", "generation"])]
    new: Option<OsString>,
    /// Report as JSON: {label}, as it is when the command ends
    #[arg(long)]
    json: bool,
}

/// A label in JSON.
#[derive(Serialize)]
struct Report {
    label: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    label_hex: Option<String>,
}

impl Label {
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        let label = match &self.new {
            Some(new) => self.set(new)?,
            None => format::open_read_only(&self.image)?.info()?.label,
        };
        if self.json {
            let bytes = label.as_bytes();
            let is_hex = std::str::from_utf8(bytes).is_err();
            return out.json(&Report {
                label: label.to_string_lossy().into_owned(),
                label_hex: is_hex.then(|| names::hex(bytes)),
            });
        }
        if self.new.is_none() {
            out.put_name(label.as_bytes())?;
            out.write_all(b"\n")?;
        }
        Ok(())
    }

    fn set(&self, new: &OsStr) -> Result<OsString> {
        // Before the image is opened, whose log that might replay.
        check("label", new.as_bytes())?;
        let volume = format::open_writable(&self.image.image)?;
        volume.set_label(new)?;
        let label = volume.info()?.label;
        volume.close()?;
        Ok(label)
    }
}

/// Refuses what no image can have as its label; `name` is that of the argument.
pub(super) fn check(name: &str, label: &[u8]) -> Result<()> {
    if label.len() < LABEL_SIZE && !label.contains(&0) {
        return Ok(());
    }
    Err(Failure::usage(format!("{name}: expected at most 255 bytes without NUL")).into())
}
