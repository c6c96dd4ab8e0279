//! The `spinney` program on damaged images.
//!
//! - `commands`: every read-only command on each image. An error is fine; a panic, a hang or memory without bound is
//!   not.
//! - `compare` (`--compare`): what `btrfs check` and `spinney check` find in each image, and what is left of it after
//!   either repair, as a table (`table`).
//!
//! The images (`images`) are some of those that `mutate-images` tries, which gives them to the library only; or those
//! of folders, as the tests of btrfs-progs have them. They are never mounted, and programs run on copies, under limits
//! (`process`).

mod commands;
mod compare;
mod images;
mod process;
mod table;

use crate::system;
use anyhow::Result;
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Which images, and what is done with them.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  cargo trials damaged --compare --btrfs ../progs/btrfs ../progs/tests/fsck-tests")]
pub(crate) struct Options {
    /// Folders of images, packed or not.
    dirs: Vec<PathBuf>,
    /// So many images of those that `mutate-images` tries, made here.
    #[arg(long, default_value_t = 0)]
    mutated: u64,
    /// Which of them: the numbers follow from it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The program, if not target/release/spinney.
    #[arg(long)]
    program: Option<PathBuf>,
    /// Compare checks and repairs with those of btrfs-progs, instead of running the read-only commands.
    #[arg(long)]
    compare: bool,
    /// The `btrfs` to compare with, if not the one that is installed.
    #[arg(long)]
    btrfs: Option<PathBuf>,
    /// The `btrfs-image` that unpacks dumps, if not the one beside `btrfs`.
    #[arg(long)]
    btrfs_image: Option<PathBuf>,
    /// With `--compare`: leave dumps as `btrfs-image` restores them: with a mark in the superblock, for which
    /// `spinney repair` refuses them, and without its mirrors.
    #[arg(long)]
    as_restored: bool,
    /// With `--compare`: only images with this in their name.
    #[arg(long)]
    only: Option<String>,
    /// With `--compare`: seconds after which a program hangs.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// With `--compare`: write what was found to this file, one line of JSON an image.
    #[arg(long)]
    json: Option<PathBuf>,
}

impl Options {
    fn btrfs(&self) -> PathBuf {
        self.btrfs.clone().unwrap_or_else(|| system::btrfs_program().into())
    }

    fn btrfs_image(&self) -> PathBuf {
        let beside = self.btrfs().with_file_name("btrfs-image");
        match &self.btrfs_image {
            Some(program) => program.clone(),
            None if beside.is_file() => beside,
            None => "btrfs-image".into(),
        }
    }
}

/// Runs what is wanted on all images.
pub(crate) fn run(root: &Path, options: &Options) -> Result<ExitCode> {
    let program = options.program.clone().unwrap_or_else(|| root.join("target/release/spinney"));
    let scratch = tempfile::Builder::new().prefix("spinney-damaged-").tempdir()?;
    match options.compare {
        true => compare::run(&program, options, scratch.path()),
        false => commands::run(&program, options, scratch.path()),
    }
}
