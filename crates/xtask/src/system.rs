//! Runs commands of the system. Called by `deb` and `bench`.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// Runs a command to its end; its messages are part of the error.
pub(crate) fn run<S: AsRef<OsStr>>(program: &str, arguments: &[S]) -> Result<String> {
    let words: Vec<&OsStr> = arguments.iter().map(AsRef::as_ref).collect();
    let output = Command::new(program)
        .args(&words)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{program} cannot be run; is it installed?"))?;
    if !output.status.success() {
        bail!("{program} {words:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether this process runs as root.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
