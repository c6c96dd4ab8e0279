//! Builds the programs of a benchmark, and runs it; the benchmark installs the programs of its workloads. Called by
//! `cargo xtask bench`.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, ensure};

use crate::system::is_root;

/// Which benchmark, with its options.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Arguments of `bench`, such as `seeds --quick`; `--help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    words: Vec<String>,
}

/// Where the program with the older ways is built.
const ABLATION: &str = "target/ablation";

/// Directory of the programs with lock statistics.
const LOCKS: &str = "target/lock-statistics";

/// Runs the benchmark.
///
/// # Errors
/// A program that cannot be built or run. The status of the benchmark is the result.
pub(crate) fn execute(root: &Path, options: &Options) -> Result<ExitCode> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let build = |words: &[&str]| -> Result<()> {
        let status =
            Command::new(&cargo).current_dir(root).args(["build", "--release", "--quiet"]).args(words).status()?;
        ensure!(status.success(), "cargo build {words:?}: {status}");
        Ok(())
    };
    let which = options.words.first().map_or("", String::as_str);
    let both = ["--package", "bench", "--package", "spinney-cli"];
    let target = if which == "pinned" {
        build(&[&both[..], &["--features", "ablation,lock-statistics", "--target-dir", LOCKS]].concat())?;
        root.join(LOCKS)
    } else {
        build(&both)?;
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
    };
    let mut bench = Command::new(target.join("release/bench"));
    bench.current_dir(root).args(&options.words);
    if matches!(which, "pinned" | "latency" | "ageing" | "snapshots" | "growth") {
        bench.arg("--program").arg(target.join("release/spinney"));
    }
    if matches!(which, "seeds" | "fs-mark") {
        build(&["--package", "spinney-cli", "--features", "ablation", "--target-dir", ABLATION])?;
        bench.arg("--program").arg(Path::new(ABLATION).join("release/spinney"));
    }
    if is_root() && matches!(which, "seeds" | "mount" | "pinned" | "latency") {
        bench.arg("--install");
    }
    let status = bench.status().context("the program `bench`")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
