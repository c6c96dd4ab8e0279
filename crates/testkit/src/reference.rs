//! Runs the reference tools: `btrfs check` and `mkfs.btrfs`. Called by `property`, `crash`, `lineage` and other tests.

use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::{Command, Stdio};

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checked {
    /// `btrfs check --check-data-csum` found nothing.
    Clean,
    /// There is no `btrfs` program here.
    NotInstalled,
}

/// `btrfs`, or the program named by the environment variable BTRFS.
#[must_use]
pub fn btrfs_program() -> String {
    std::env::var("BTRFS").unwrap_or_else(|_| "btrfs".to_owned())
}

/// `mkfs.btrfs`, or the program named by the environment variable MKFS_BTRFS.
#[must_use]
pub fn mkfs_program() -> String {
    std::env::var("MKFS_BTRFS").unwrap_or_else(|_| "mkfs.btrfs".to_owned())
}

/// Whether the tools can be called.
#[must_use]
pub fn is_installed() -> bool {
    let version =
        |program: String| Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    version(btrfs_program()).is_ok() && version(mkfs_program()).is_ok()
}

/// Checks trees, references and data checksums of an unmounted image.
///
/// # Errors
/// The errors found by `btrfs check`, or the reason why it could not be run.
pub fn check(image: &Path) -> Result<Checked> {
    check_with(Path::new(&btrfs_program()), image)
}

/// As [`check`], with a program of the caller's choice.
///
/// # Errors
/// As [`check`].
pub fn check_with(program: &Path, image: &Path) -> Result<Checked> {
    let output = Command::new(program)
        .args(["check", "--readonly", "--force", "--check-data-csum"])
        .arg(image)
        .stdin(Stdio::null())
        .output();
    let output = match output {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(Checked::NotInstalled);
        }
        output => output.context("btrfs check cannot be run")?,
    };
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let complains = |line: &str| {
        let is_total = line.starts_with("found ") || line.contains("no error found");
        !is_total && ["ERROR", "WARNING", "mismatch", "errors ", "are different"].iter().any(|word| line.contains(word))
    };
    if !output.status.success() || text.lines().any(complains) {
        bail!("btrfs check of {} ({}):\n{text}", image.display(), output.status);
    }
    Ok(Checked::Clean)
}

/// Makes an empty volume with `mkfs.btrfs`.
///
/// # Errors
/// Its messages.
pub fn mkfs(image: &Path, size_bytes: u64, options: &[&str]) -> Result<()> {
    std::fs::File::create(image)?.set_len(size_bytes)?;
    let output = Command::new(mkfs_program()).arg("--quiet").args(options).arg(image).output()?;
    if !output.status.success() {
        bail!("mkfs.btrfs {options:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
