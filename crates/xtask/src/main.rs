//! Runs tasks on the source tree: `cargo xtask TASK`. The trials of the built program are `cargo trials`.

mod bench;
mod bindings_bench;
mod capi;
mod capi_fuzz;
mod cross;
mod installs;
mod packages;
mod portable;
mod release;
mod sbom;
mod static_program;
mod symbols;
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
    /// Make Debian packages of the program and the library, and as root install and use them. Needs dpkg-dev.
    Deb(packages::deb::Options),
    /// Make RPM packages of the program and the library, and unpack and use them. Needs rpm and cpio.
    Rpm(packages::rpm::Options),
    /// Build the program as one file without shared libraries, and use it in an empty root.
    Static(static_program::Options),
    /// Check the library for other systems by their compilers' rules. Needs rustup, and `ziglang` of pip.
    Portable(portable::Options),
    /// Compare the names that the library for C exports with those recorded.
    Symbols(symbols::Options),
    /// List the components of the program, with licences and checksums (CycloneDX).
    Sbom(sbom::Options),
    /// Make all files of a release in target/dist.
    Release(release::Options),
    /// Build the library for C, and lay it out below a prefix. Needs a C compiler.
    Capi(capi::Options),
    /// Install the wheel, the static program and the Debian packages on bare systems, and use them. Needs debootstrap.
    Install(installs::Options),
    /// Compare reads and stats through C and Python with those of the Rust library.
    BindingsBench(bindings_bench::Options),
    /// Make random sequences of calls to the library for C, also under a sanitizer (a nightly compiler).
    CapiFuzz(capi_fuzz::Options),
    /// Make the wheel of the Python package and use it. Needs maturin.
    Wheel(wheel::Options),
}

fn main() -> Result<ExitCode> {
    match Arguments::parse().task {
        Task::Tidy { bless } => tidy::run(&root(), bless),
        Task::Metrics(options) => tidy::metrics::run(&root(), &options).map(|()| ExitCode::SUCCESS),
        Task::Bench(options) => bench::execute(&root(), &options),
        Task::Deb(options) => packages::deb::execute(&root(), &options).map(|()| ExitCode::SUCCESS),
        Task::Rpm(options) => packages::rpm::execute(&root(), &options).map(|()| ExitCode::SUCCESS),
        Task::Static(options) => static_program::execute(&root(), &options).map(|()| ExitCode::SUCCESS),
        Task::Portable(options) => portable::execute(&root(), &options).map(|()| ExitCode::SUCCESS),
        Task::Symbols(options) => symbols::execute(&root(), &options).map(|()| ExitCode::SUCCESS),
        Task::Sbom(options) => sbom::execute(&root(), &options).map(|()| ExitCode::SUCCESS),
        Task::Release(options) => release::execute(&root(), &options).map(|()| ExitCode::SUCCESS),
        Task::Capi(options) => capi::execute(&root(), &options).map(|()| ExitCode::SUCCESS),
        Task::Install(options) => installs::execute(&root(), &options).map(|()| ExitCode::SUCCESS),
        Task::BindingsBench(options) => bindings_bench::execute(&root(), &options).map(|()| ExitCode::SUCCESS),
        Task::CapiFuzz(options) => capi_fuzz::execute(&root(), &options).map(|()| ExitCode::SUCCESS),
        Task::Wheel(options) => wheel::execute(&root(), &options).map(|()| ExitCode::SUCCESS),
    }
}

/// The top of the source tree: two folders above this crate.
fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).unwrap_or(own).to_path_buf()
}
