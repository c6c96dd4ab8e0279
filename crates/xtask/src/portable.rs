//! Compiles for other systems, without linking: `cargo xtask portable`.
//!
//! [`TARGETS`] says which packages each system has. Parts of these that need Linux are left out by `cfg`, or return an
//! error that says so. The C of dependencies is compiled, too. Fails with the first package that does not compile.
//! Called by `main`.

use std::path::Path;

use anyhow::{Context as _, Result};

use crate::cross::Cross;
use crate::system::run_command;

/// Options of the check.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only this target; may be given several times
    #[arg(long = "target")]
    targets: Vec<String>,
}

/// Targets, and the packages that have to compile for them with all that they depend on.
const TARGETS: &[(&str, &[&str])] = &[
    ("aarch64-unknown-linux-musl", &["spinney", "spinney-cli", "spinney-capi"]),
    // The program mounts, and closes itself in, by calls that only Linux has.
    ("aarch64-apple-darwin", &["spinney"]),
    ("x86_64-unknown-freebsd", &["spinney"]),
    // Names of files are bytes in the engines, which only Unix has.
    ("x86_64-pc-windows-gnu", &["spinney-btrfs-disk", "spinney-btrfs-stream", "spinney-checking", "spinney-f2fs-disk"]),
];

/// Checks the packages for each target.
///
/// # Errors
/// A missing tool, or a package that does not compile.
pub(crate) fn execute(root: &Path, options: &Options) -> Result<()> {
    for (target, packages) in TARGETS {
        if !options.targets.is_empty() && !options.targets.iter().any(|wanted| wanted == target) {
            continue;
        }
        let cross = Cross::prepare(root, target)?;
        // The C is not run, so it need not be fast.
        let mut words = vec!["check", "--quiet", "--config", "profile.dev.package.\"*\".opt-level=0"];
        words.extend(packages.iter().flat_map(|package| ["--package", package]));
        run_command(&mut cross.cargo(&words)).with_context(|| (*target).to_owned())?;
        println!("portable: {target}: {}", packages.join(", "));
    }
    Ok(())
}
