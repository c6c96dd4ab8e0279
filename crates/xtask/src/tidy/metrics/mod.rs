//! `cargo xtask metrics` prints numbers about the source tree.
//!
//! Each row of the table is one count, once for the crates that users run and once for the crates that only test or
//! measure them. Tests inside a crate count for neither. The rows that have a rule (file and function lengths, import
//! cycles) are computed again here from the same syntax trees, so that the table also describes trees that break the
//! rule, such as an older commit: `cargo xtask metrics --root DIR`.
//!
//! Fails only where a file cannot be read or parsed. Called from `main`; people compare two tables in a review.

mod code;
mod duplicates;
mod locks;
mod rows;

use super::source;
use anyhow::{Result, ensure};
use clap::Args;
use rows::Row;
use std::path::{Path, PathBuf};

/// Print numbers about the source tree.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The tree; this one when none is given.
    #[arg(long)]
    root: Option<PathBuf>,
    /// As JSON, with all places.
    #[arg(long)]
    json: bool,
    /// Name the places behind each number.
    #[arg(long)]
    places: bool,
}

/// Measures the tree and prints the table.
///
/// # Errors
///
/// A file that cannot be read or parsed.
pub(crate) fn run(own_root: &Path, options: &Options) -> Result<()> {
    let root = options.root.as_deref().unwrap_or(own_root);
    let texts = source::read_texts(root)?;
    let (files, broken) = source::parse_all(&texts);
    ensure!(broken.is_empty(), "{} files do not parse", broken.len());
    let rows = rows::measure(&files);
    if options.json {
        let rows: Vec<_> = rows.iter().map(Row::to_json).collect();
        println!("{}", serde_json::to_string_pretty(&rows)?);
        return Ok(());
    }
    println!("{:<66} {:>8} {:>8}", "", "product", "tools");
    for row in &rows {
        println!("{:<66} {:>8} {:>8}", row.name, row.product, row.tools);
        for place in row.places.iter().filter(|_| options.places) {
            println!("    {}:{}: {}", place.path, place.line, place.text);
        }
    }
    Ok(())
}
