//! `spinney umount`

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use blockdev::backends::{FileDevice, FileOptions};
use clap::Args;

use super::table::{self, Row};
use crate::common::failure::Failure;
use crate::common::output;

/// How long a server may take for what was written last before this is said and not waited for.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Between two looks at whether it has ended.
const WAIT_STEP: Duration = Duration::from_millis(5);

/// Unmount, and wait until the image is complete
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  spinney umount /mnt/site\n  spinney umount --lazy /mnt/site",
    after_long_help = "\
This command waits until the image is complete and can be used by others. So does umount(8) where
root mounted; of a mount of anybody else, it and fusermount3 -u return while the server still
writes what it has in memory.

Examples:
  spinney umount /mnt/site
  spinney umount --lazy /mnt/site     now, even if files are open; it ends when they are closed"
)]
pub(crate) struct Umount {
    /// Directory that an image is mounted on
    dir: PathBuf,
    /// Let the mount disappear at once; it ends when nobody uses it any more
    #[arg(short, long)]
    lazy: bool,
}

impl Umount {
    pub(crate) fn run(&self) -> Result<()> {
        let shown = self.dir.display();
        // Only what is above the mount is looked at: its own server may be stuck.
        let dir = resolve(&self.dir).with_context(|| shown.to_string())?;
        let row = table::find(&dir)?.filter(Row::is_ours);
        let Some(row) = row else {
            let text = format!("{shown}: no image is mounted here by spinney");
            return Err(Failure::refused(text).into());
        };
        fuse::unmount(&dir, self.lazy)?;
        // Where the kernel waits for the server, that is done.
        if !self.lazy && !row.read_only && !row.is_synced() {
            wait_for(&row.source);
        }
        Ok(())
    }
}

/// The absolute path of a directory, without asking the file system that is mounted on it.
fn resolve(dir: &Path) -> Result<PathBuf> {
    let absolute = std::path::absolute(dir)?;
    if table::find(&absolute)?.is_some_and(|row| row.is_ours()) {
        return Ok(absolute);
    }
    match (absolute.parent(), absolute.file_name()) {
        (Some(parent), Some(name)) => {
            let candidate = parent.canonicalize()?.join(name);
            if table::find(&candidate)?.is_some_and(|row| row.is_ours()) {
                return Ok(candidate);
            }
            Ok(absolute.canonicalize()?)
        }
        _ => Ok(absolute.canonicalize()?),
    }
}

/// Waits until nobody holds the image for writing.
fn wait_for(image: &Path) {
    let options = FileOptions {
        read_only: true,
        ..FileOptions::default()
    };
    let start = Instant::now();
    while start.elapsed() < WAIT_MAX {
        match FileDevice::open(image, &options) {
            Err(blockdev::Error::Locked { .. }) => std::thread::sleep(WAIT_STEP),
            // Free; or it cannot be asked, and there is nothing to wait for.
            _ => return,
        }
    }
    output::warn(&format!("{} is still being written", image.display()));
}
