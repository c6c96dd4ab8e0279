//! Runs tasks on the source tree: `cargo xtask TASK`. The trials of the built program are `cargo trials`.

mod bench;
mod capi;
mod deb;
mod system;
mod tidy;
mod wheel;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Tasks on the source tree.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Check the rules of the source tree that the compiler does not know.
    Tidy {
        /// Record the present public interface in its list, and lower the limits on prose.
        #[arg(long)]
        bless: bool,
    },
    /// Print numbers about the source tree: lengths, locks, duplicates, documentation.
    Metrics(tidy::metrics::Options),
    /// Build a benchmark and run it: `cargo xtask bench seeds --quick`. Most need root.
    Bench(bench::Options),
    /// Make a Debian package of the program, and as root install and use it. Needs dpkg-deb.
    Deb(deb::Options),
    /// Build the library for C, and lay it out below a prefix. Needs a C compiler.
    Capi(capi::Options),
    /// Make the wheel of the Python package and use it. Needs maturin.
    Wheel(wheel::Options),
}

fn main() -> Result<ExitCode> {
    match Arguments::parse().task {
        Task::Tidy { bless } => tidy::run(&root(), bless),
        Task::Metrics(options) => tidy::metrics::run(&root(), &options).map(|()| ExitCode::SUCCESS),
        Task::Bench(options) => bench::execute(&root(), &options),
        Task::Deb(options) => deb::execute(&root(), &options).map(|()| ExitCode::SUCCESS),
        Task::Capi(options) => capi::execute(&root(), &options).map(|()| ExitCode::SUCCESS),
        Task::Wheel(options) => wheel::execute(&root(), &options).map(|()| ExitCode::SUCCESS),
    }
}

/// The top of the source tree: two folders above this crate.
fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).unwrap_or(own).to_path_buf()
}
