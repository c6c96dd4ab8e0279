//! Checks rules of the source tree that the compiler does not know: `cargo xtask tidy`.
//!
//! `source` reads and parses every Rust file once; every other file here is one family of rules: pure functions
//! from a [`source::SourceFile`] (or all files of a crate) to [`Problem`]s, each with unit tests on failing samples.
//!
//! Not checked: names made by a macro's expansion, and the items that a folder's own `mod.rs` defines for its children
//! (a child may use its parent's types, and the parent calls the child; only siblings are kept free of cycles). Paths
//! written inside a macro call are checked.
//!
//! Fails by printing every problem as `path:line: text`, with status 1; a file that cannot be read or parsed is a
//! problem, never skipped. Called by `main`; `test.sh` runs it.

mod api;
mod cycles;
mod errors;
mod facade;
mod graph;
mod layers;
mod licences;
mod links;
pub(crate) mod metrics;
mod paths;
mod prose;
mod size;
mod source;
mod spread;
mod text;
mod words;

use anyhow::{Context, Result};
use serde_json::Value;
use source::SourceFile;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::process::{Command, ExitCode};

/// One broken rule at one place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Problem {
    path: String,
    line: usize,
    text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.text)
    }
}

/// Checks the tree under `root` and prints the problems. `blesses` records the present public interface, and lowers the
/// limits on prose.
pub(crate) fn run(root: &Path, blesses: bool) -> Result<ExitCode> {
    let layers_text = std::fs::read_to_string(root.join("layers.toml")).context("layers.toml")?;
    let layers = layers::Layers::parse(&layers_text)?;
    let texts = source::read_texts(root)?;
    let mut problems = Vec::new();
    for file in &texts {
        problems.extend(text::check(file));
        problems.extend(words::check(file));
    }
    let (files, broken) = source::parse_all(&texts);
    problems.extend(broken);
    problems.extend(size::check_docs(&texts));
    problems.extend(links::check(root, &texts));
    let file_count = texts.len();
    for (name, files) in by_crate(&files) {
        for file in &files {
            problems.extend(size::check(file));
            problems.extend(words::check_unsafe(file));
        }
        problems.extend(layers.check(name, &files));
        problems.extend(cycles::check(name, &files));
    }
    problems.extend(api::check(root, &files, blesses)?);
    problems.extend(errors::check(root, &files, blesses)?);
    let crates = files.iter().map(|file| file.crate_name.as_str()).collect();
    problems.extend(facade::check(&texts, &crates));
    let architecture = std::fs::read_to_string(root.join("ARCHITECTURE.md")).context("ARCHITECTURE.md")?;
    problems.extend(spread::check(&architecture, &files));
    let metadata = metadata(root)?;
    problems.extend(licences::check(root, &metadata)?);
    problems.extend(graph::check(root, &metadata)?);
    let (found, summary) = prose::check(root, &texts, &files, blesses)?;
    problems.extend(found);
    problems.sort();
    for problem in &problems {
        println!("{problem}");
    }
    println!("tidy: {summary}");
    println!("tidy: {file_count} files, {} problems", problems.len());
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// `cargo metadata` of the workspace and its dependencies.
fn metadata(root: &Path) -> Result<Value> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(root)
        .output()?;
    anyhow::ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn by_crate(files: &[SourceFile]) -> BTreeMap<&str, Vec<&SourceFile>> {
    let mut crates: BTreeMap<&str, Vec<&SourceFile>> = BTreeMap::new();
    for file in files {
        crates.entry(&file.crate_name).or_default().push(file);
    }
    crates
}
