//! The formats that tasks work on: how Spinney makes an image of each, and which program judges it.

use crate::system;
use anyhow::Result;
use blockdev::backends::{FileDevice, FileOptions};
use crash_explorer::Format as _;
use std::path::Path;

/// What `mkfs -t f2fs` is told beyond its defaults: the tests look at births, and checksums find more.
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
    /// What the command line calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Btrfs => "btrfs",
            Self::F2fs => "f2fs",
        }
    }

    /// What `spinney mkfs` is told to make it.
    pub(crate) fn mkfs_words(self) -> &'static [&'static str] {
        match self {
            Self::Btrfs => &[],
            Self::F2fs => &["-t", "f2fs", "-O", F2FS_FEATURES],
        }
    }

    /// The program that judges images.
    pub(crate) fn judge(self) -> &'static str {
        match self {
            Self::Btrfs => "btrfs check",
            Self::F2fs => "fsck.f2fs",
        }
    }

    /// True where a directory can be a subvolume.
    pub(crate) fn has_subvolumes(self) -> bool {
        self == Self::Btrfs
    }

    /// What the format's own program finds wrong with an image, which stays as it is; of f2fs also what ours does.
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

/// `fsck.f2fs` may exit with 0 though it found something; and it may not have looked at an image that is clean.
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
