//! Lists the formats of the trials: how Spinney makes an image of each, and which program checks it. `mount`,
//! `round_trip`, `guest` and others use it.

use crate::system;
use anyhow::Result;
use blockdev::backends::{FileDevice, FileOptions};
use crash_explorer::Format as _;
use std::path::Path;

/// Features beyond the defaults of `mkfs -t f2fs`: trials compare birth times, and checksums find more errors.
const F2FS_FEATURES: &str = "extra_attr,inode_checksum,inode_crtime,flexible_inline_xattr,sb_checksum";

/// A format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// Judged by `btrfs check` and by this kernel.
    Btrfs,
    /// Judged by `fsck.f2fs`, and by the kernel of a guest.
    F2fs,
}

impl Kind {
    /// Name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Btrfs => "btrfs",
            Self::F2fs => "f2fs",
        }
    }

    /// Arguments of `spinney mkfs`.
    pub(crate) fn mkfs_words(self) -> &'static [&'static str] {
        match self {
            Self::Btrfs => &[],
            Self::F2fs => &["-t", "f2fs", "-O", F2FS_FEATURES],
        }
    }

    /// The program that checks images.
    pub(crate) fn judge(self) -> &'static str {
        match self {
            Self::Btrfs => "btrfs check",
            Self::F2fs => "fsck.f2fs",
        }
    }

    /// True if directories can be subvolumes.
    pub(crate) fn has_subvolumes(self) -> bool {
        self == Self::Btrfs
    }

    /// Errors that the format's own checker finds in an image, which it does not change; of f2fs also those that ours
    /// finds.
    ///
    /// # Errors
    /// The program cannot be run.
    pub(crate) fn check(self, image: &Path) -> Result<Option<String>> {
        match self {
            Self::Btrfs => Ok(check_btrfs(image)),
            Self::F2fs => match check_f2fs(image)? {
                None => check_f2fs_by_ours(image),
                found => Ok(found),
            },
        }
    }
}

fn check_btrfs(image: &Path) -> Option<String> {
    let words = ["check", "--readonly", "--force", "--check-data-csum", &image.to_string_lossy()];
    match system::run(&system::btrfs_program(), &words) {
        Ok(said) if said.contains("no error found") => None,
        Ok(said) => Some(said),
        Err(error) => Some(format!("{error:#}")),
    }
}

fn check_f2fs_by_ours(image: &Path) -> Result<Option<String>> {
    let device = FileDevice::open(image, &FileOptions { read_only: true, ..FileOptions::default() })?;
    Ok(f2fs_crash::F2fs.check(&device).err().map(|error| format!("spinney check: {error:#}")))
}

/// `fsck.f2fs` may exit with 0 although it found errors; and it may skip a clean image.
fn check_f2fs(image: &Path) -> Result<Option<String>> {
    let output = std::process::Command::new("fsck.f2fs").args(["-f", "--dry-run"]).arg(image).output()?;
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    let is_wrong = |line: &&str| line.contains("[Fail]") || line.contains("[ASSERT]");
    let wrong: Vec<&str> = said.lines().filter(is_wrong).collect();
    let has_looked = said.contains("[Ok..]");
    Ok(match output.status.success() && wrong.is_empty() && has_looked {
        true => None,
        false if wrong.is_empty() => Some(format!("{}: {}", output.status, said.trim())),
        false => Some(format!("{}: {}", output.status, wrong.join("; "))),
    })
}
