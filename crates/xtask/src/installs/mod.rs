//! Installs what has been packaged on systems that have nothing else, and uses it there: `cargo xtask install`.
//!
//! `system` makes Debian systems of a few packages by `debootstrap`. `uses` installs the wheel, the static program and
//! the Debian packages on them, each followed by the same work: list, read, write, take a snapshot and check, on an
//! image that `mkfs.btrfs` made. `unit` boots a system with systemd and starts the unit that mounts an image.
//! `emulated` uses what was built for ARM. A time limit is part of the others: from nothing to the first listing.
//!
//! Needs root, debootstrap, mkfs.btrfs and a network; `unit` also systemd-nspawn and /dev/fuse. Without these a part
//! says SKIPPED. Fails with the first command that fails. Called by `main`.

mod emulated;
mod system;
mod unit;
mod uses;

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::system::{is_installed, is_root, target_dir};

/// Options of the installations.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only these parts
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// Directory with the wheel
    #[arg(long, default_value = "bindings/python/dist")]
    wheels: PathBuf,
    /// Directory with the wheel for ARM
    #[arg(long, default_value = "target/wheel-arm")]
    arm_wheels: PathBuf,
    /// The static program; `cargo xtask static` builds it
    #[arg(long)]
    program: Option<PathBuf>,
    /// Directory with the Debian packages
    #[arg(long, default_value = "target/deb")]
    packages: PathBuf,
    /// Directory of the systems
    #[arg(long, default_value = "target/install")]
    dir: PathBuf,
    /// Release of Debian
    #[arg(long, default_value = "bookworm")]
    suite: String,
}

/// A part of the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    Wheel,
    Static,
    Deb,
    Unit,
    Arm,
}

/// Installs and uses each package.
///
/// # Errors
/// A missing package, a command that fails, a time over the limit.
pub(crate) fn execute(root: &Path, options: &Options) -> Result<()> {
    if !is_root() || !["debootstrap", "mkfs.btrfs"].into_iter().all(is_installed) {
        println!("install: SKIPPED: needs root, debootstrap and mkfs.btrfs (btrfs-progs)");
        return Ok(());
    }
    let dir = std::path::absolute(&options.dir)?;
    std::fs::create_dir_all(&dir)?;
    let wants = |part| options.only.is_empty() || options.only.contains(&part);
    if wants(Part::Static) {
        let built = target_dir(root).join(format!("{}/static/spinney", crate::static_program::native_target()));
        uses::static_program(&dir, options.program.as_deref().unwrap_or(&built))?;
    }
    if wants(Part::Wheel) {
        uses::wheel(&dir, &options.suite, &options.wheels)?;
    }
    if wants(Part::Deb) {
        uses::packages(&dir, &options.suite, &options.packages)?;
    }
    if wants(Part::Unit) {
        unit::start(root, &dir, &options.suite, &options.packages)?;
    }
    if wants(Part::Arm) {
        emulated::start(&dir, &options.suite, &options.arm_wheels)?;
    }
    Ok(())
}
