//! Builds what a benchmark needs, installs what its workloads call, and runs it.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, ensure};

use crate::system::{is_root, run};

/// Which benchmark, with its options.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// What `bench` gets: `seeds --quick`, say; `--help` tells.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    words: Vec<String>,
}

/// Programs, and the Debian packages that they are in.
const NEEDED: &[(&str, &str)] = &[
    ("fio", "fio"),
    ("fs_mark", "fsmark"),
    ("mkfs.btrfs", "btrfs-progs"),
    ("mkfs.ext4", "e2fsprogs"),
    ("mkfs.xfs", "xfsprogs"),
    ("python3", "python3"),
    ("xz", "xz-utils"),
];
/// The source tree that is unpacked.
const SOURCE: (&str, &str) = ("/usr/src", "linux-source");
/// Where the program with the older ways is built.
const ABLATION: &str = "target/ablation";

/// Does it.
///
/// # Errors
/// What cannot be built, and what cannot be run. A benchmark that fails is the answer.
pub(crate) fn execute(root: &Path, options: &Options) -> Result<ExitCode> {
    install()?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let build = |words: &[&str]| -> Result<()> {
        let status =
            Command::new(&cargo).current_dir(root).args(["build", "--release", "--quiet"]).args(words).status()?;
        ensure!(status.success(), "cargo build {words:?}: {status}");
        Ok(())
    };
    build(&["--package", "bench", "--package", "spinney-cli"])?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let mut bench = Command::new(target.join("release/bench"));
    bench.current_dir(root).args(&options.words);
    if options.words.first().is_some_and(|word| word == "seeds") {
        build(&["--package", "spinney-cli", "--features", "ablation", "--target-dir", ABLATION])?;
        bench.arg("--program").arg(Path::new(ABLATION).join("release/spinney"));
    }
    let status = bench.status().context("the program `bench`")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Installs what is missing, as root on Debian; elsewhere the benchmark says what it lacks.
fn install() -> Result<()> {
    let has = |program: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
        std::env::split_paths(&path).chain(system).any(|dir| dir.join(program).exists())
    };
    let mut missing: Vec<&str> =
        NEEDED.iter().filter(|(program, _)| !has(program)).map(|(_, package)| *package).collect();
    let (folder, package) = SOURCE;
    let has_source = std::fs::read_dir(folder)
        .is_ok_and(|entries| entries.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with(package)));
    if !has_source {
        missing.push(package);
    }
    if missing.is_empty() || !is_root() || !has("apt-get") {
        return Ok(());
    }
    eprintln!("installing {}", missing.join(" "));
    run("apt-get", &["update", "-qq"])?;
    run("apt-get", &[&["install", "-y", "-qq", "--no-install-recommends"], missing.as_slice()].concat())?;
    Ok(())
}
