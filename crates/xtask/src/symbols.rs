//! Compares the names that the shared library for C exports with the list that was recorded: `cargo xtask symbols`.
//!
//! The list is `crates/capi/symbols.txt`, one `NAME@VERSION` a line, sorted. A name that is missing would break
//! programs that are linked with the library; a new one has to be recorded, by `--bless`. Called by `main`; `read` also
//! by the Debian package.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::system::{empty_dir, run, run_command, target_dir, text};

/// Options of the comparison.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The library for C as an archive
    #[arg(long, default_value = "target/library/libspinney_capi.a")]
    library: PathBuf,
    /// Record the present names
    #[arg(long)]
    bless: bool,
}

/// Name of the version itself, which no program calls.
const VERSION_ITSELF: &str = "SPINNEY_0";

/// Links the shared library as it is installed, and compares.
///
/// # Errors
/// A missing file, or a list that is not that of the library.
pub(crate) fn execute(root: &Path, options: &Options) -> Result<()> {
    let dir = std::path::absolute(target_dir(root).join("symbols"))?;
    empty_dir(&dir)?;
    let library = std::path::absolute(&options.library)?;
    ensure!(library.exists(), "{}: not found; `cargo xtask capi` builds it", library.display());
    run_command(Command::new(root.join("crates/capi/install.sh")).args([&library, &dir]))?;
    let present = read(&dir.join("lib/libspinney.so"))?;
    let list = root.join("crates/capi/symbols.txt");
    if options.bless {
        let text: String = present.iter().map(|name| format!("{name}\n")).collect();
        fs::write(&list, text)?;
    }
    let recorded = fs::read_to_string(&list).with_context(|| list.display().to_string())?;
    let recorded: BTreeSet<String> = recorded.lines().map(str::to_owned).collect();
    let gone: Vec<&String> = recorded.difference(&present).collect();
    ensure!(gone.is_empty(), "the library lacks {gone:?}, which programs may be linked with");
    let new: Vec<&String> = present.difference(&recorded).collect();
    ensure!(new.is_empty(), "{new:?} are not in {}: record them with `cargo xtask symbols --bless`", list.display());
    println!("symbols: {} names, as recorded", present.len());
    Ok(())
}

/// The names that a shared library exports, each as `NAME@VERSION`.
pub(crate) fn read(library: &Path) -> Result<BTreeSet<String>> {
    let listed = run("nm", &["-D", "--defined-only", "--with-symbol-versions", text(library)?])?;
    let names = listed.lines().filter_map(|line| line.split_whitespace().nth(2));
    let names = names.map(|name| name.replace("@@", "@")).filter(|name| !name.starts_with(VERSION_ITSELF));
    Ok(names.collect())
}
