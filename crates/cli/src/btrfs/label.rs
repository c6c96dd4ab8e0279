//! `spinney label` shows or changes the label of an image or a mount. Called by `args`, and by `jobs` in the server of
//! a mount; `mkfs` checks a new label with it.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use spinney::btrfs::Volume;
use spinney::btrfs::disk::superblock::LABEL_SIZE;

use super::format;
use crate::commands::failure::{Failure, Status};
use crate::commands::image::ReadArgs;
use crate::commands::names;
use crate::commands::on_mount::OnMount;
use crate::commands::output::Output;

/// Show or change the label of an image or a mount
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Any user may read the label of a mount; root, and the user who mounted it, may change it.\n\n",
    "Examples:\n",
    "  spinney label site.img              print it\n",
    "  spinney label site.img \"Site 2026\"  set it\n",
    "  spinney label site.img \"\"           take it away\n",
    "  spinney label ./mnt \"Site 2027\"     of what is mounted there"
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
        // Checked before the image is opened, since opening may replay its log.
        self.new.as_ref().map_or(Ok(()), |new| check("label", new.as_bytes()))?;
        if let Some(dir) = self.image.mounted_dir()? {
            return OnMount::connect(&dir)?.run("label", self.words()?, out);
        }
        if !self.changes() {
            return self.run_on(&format::open_read_only(&self.image)?, out);
        }
        let volume = format::open_writable(&self.image.image)?;
        self.run_on(&volume, out)?;
        Ok(volume.close()?)
    }

    /// The command line for the server of a mount.
    fn words(&self) -> Result<Vec<String>> {
        let mut words: Vec<String> = self.json.then(|| "--json".to_owned()).into_iter().collect();
        words.extend(["--".to_owned(), "IMAGE".to_owned()]);
        if let Some(new) = &self.new {
            let new = new.to_str().ok_or_else(|| Failure::new(Status::Unsupported, "label: not UTF-8"))?;
            words.push(new.to_owned());
        }
        Ok(words)
    }

    pub(super) const fn changes(&self) -> bool {
        self.new.is_some()
    }

    /// Shows or changes the label of a volume.
    pub(super) fn run_on(&self, volume: &Volume, out: &mut Output) -> Result<()> {
        if let Some(new) = &self.new {
            check("label", new.as_bytes())?;
            volume.set_label(new)?;
        }
        let label = volume.info()?.label;
        if self.json {
            let bytes = label.as_bytes();
            let is_hex = std::str::from_utf8(bytes).is_err();
            return out.json(&Report {
                label: label.to_string_lossy().into_owned(),
                label_hex: is_hex.then(|| names::hex(bytes)),
            });
        }
        if !self.changes() {
            out.put_name(label.as_bytes())?;
            out.write_all(b"\n")?;
        }
        Ok(())
    }
}

/// Refuses a label that is too long or malformed; `name` is the argument's name.
pub(super) fn check(name: &str, label: &[u8]) -> Result<()> {
    if label.len() < LABEL_SIZE && !label.contains(&0) {
        return Ok(());
    }
    Err(Failure::usage(format!("{name}: expected at most 255 bytes without NUL")).into())
}
