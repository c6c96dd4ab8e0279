//! Tests the `spinney` program on damaged images. Called by `cargo trials damaged`.
//!
//! - `commands`: every read-only command on each image. An error is fine; a panic, a hang or unbounded memory is not.
//! - `compare` (`--compare`): the errors that `btrfs check` and `spinney check` find in each image, before and after
//!   either repair, as a table (`table`).
//!
//! The images (`images`) are some of those of `mutate-images`, which tests only the library; or those of directories
//! such as the tests of btrfs-progs. They are never mounted, and programs run on copies, under limits (`process`).

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

/// Options of the trial.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  cargo trials damaged --compare --btrfs ../progs/btrfs ../progs/tests/fsck-tests")]
pub(crate) struct Options {
    /// Directories of images, packed or not
    dirs: Vec<PathBuf>,
    /// Number of images made as by `mutate-images`
    #[arg(long, default_value_t = 0)]
    mutated: u64,
    /// Seed of these images
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The program, if not target/release/spinney.
    #[arg(long)]
    program: Option<PathBuf>,
    /// Compare checks and repairs with those of btrfs-progs, instead of running the read-only commands.
    #[arg(long)]
    compare: bool,
    /// The `btrfs` to compare with, if not the installed one
    #[arg(long)]
    btrfs: Option<PathBuf>,
    /// The `btrfs-image` that unpacks dumps, if not the one beside `btrfs`.
    #[arg(long)]
    btrfs_image: Option<PathBuf>,
    /// With `--compare`: keep dumps as `btrfs-image` restores them: with a mark in the superblock, for which `spinney
    /// repair` refuses them, and without mirrors
    #[arg(long)]
    as_restored: bool,
    /// With `--compare`: only images with this in their name.
    #[arg(long)]
    only: Option<String>,
    /// With `--compare`: seconds after which a program hangs.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// With `--compare`: write the results to this file, one line of JSON an image
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

/// Runs the trial on all images.
pub(crate) fn run(root: &Path, options: &Options) -> Result<ExitCode> {
    let program = options.program.clone().unwrap_or_else(|| root.join("target/release/spinney"));
    let scratch = tempfile::Builder::new().prefix("spinney-damaged-").tempdir()?;
    match options.compare {
        true => compare::run(&program, options, scratch.path()),
        false => commands::run(&program, options, scratch.path()),
    }
}
