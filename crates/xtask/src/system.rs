//! Runs commands of the system, and knows where the source tree's results are. Called by the tasks.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// Runs a command to its end; its messages are part of the error.
pub(crate) fn run<S: AsRef<OsStr>>(program: &str, arguments: &[S]) -> Result<String> {
    run_command(Command::new(program).args(arguments))
}

/// Runs a command with an environment or a directory of its own to its end; its messages are part of the error.
pub(crate) fn run_command(command: &mut Command) -> Result<String> {
    let program = command.get_program().display().to_string();
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("{program} cannot be run; is it installed?"))?;
    if !output.status.success() {
        let words: Vec<&OsStr> = command.get_args().collect();
        let (said, told) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
        bail!("{program} {words:?}: {}: {}{}", output.status, said.trim(), told.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether a program can be started.
pub(crate) fn is_installed(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdin(Stdio::null()).output();
    found.is_ok()
}

/// Whether this process runs as root.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A path as an argument of a command.
pub(crate) fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{}: not UTF-8", path.display()))
}

/// Directory in which cargo builds.
pub(crate) fn target_dir(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

/// Makes an empty directory; what was there before is removed.
pub(crate) fn empty_dir(dir: &Path) -> Result<()> {
    if dir.exists() {
        std::fs::remove_dir_all(dir).with_context(|| dir.display().to_string())?;
    }
    std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())
}

/// The version of the workspace.
pub(crate) fn version(root: &Path) -> Result<String> {
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).context("Cargo.toml")?;
    let line = manifest.lines().find_map(|line| line.strip_prefix("version = \"")).context("Cargo.toml: no version")?;
    Ok(line.trim_end_matches('"').to_owned())
}

/// Seconds since 1970 that stand in packages instead of the present: `SOURCE_DATE_EPOCH`, else the time of the last
/// commit, so that equal sources give equal packages.
pub(crate) fn source_date(root: &Path) -> Result<String> {
    if let Ok(date) = std::env::var("SOURCE_DATE_EPOCH") {
        return Ok(date);
    }
    let dated = run_command(Command::new("git").current_dir(root).args(["log", "-1", "--format=%ct"]));
    Ok(dated.context("set SOURCE_DATE_EPOCH where there is no git repository")?.trim().to_owned())
}
