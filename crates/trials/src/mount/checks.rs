//! Runs foreign test suites on fresh mounts. Called by `cargo trials mount-checks`.
//!
//! A suite is a script `NAME.sh DIR` whose last line is `NAME: N passed, N failed`. Each runs on an image of its own in
//! each mode, and the image is checked after unmounting. The environment limits the duration of a suite: the values set
//! here keep a whole run below an hour, and `--thorough` makes it as long as before a release.

use super::exclusions::{self, Exclusion};
use super::fresh_mount::Served;
use crate::formats::Kind;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

/// Default directory of the scripts: beside the source tree.
const SCRIPTS: &str = "../shared/checks";
/// Begins a suite's line about a failed test.
const FAILED: &str = "FAILED: ";
/// Directory of the scripts in the source tree: fewer, and shorter.
const OWN_SCRIPTS: &str = "crates/trials/suites";
/// Default size of an image in bytes.
const IMAGE_BYTES: u64 = 3 << 30;
/// Options of every mount: suites act as several users, make devices and run set-user programs.
const COMMON_OPTIONS: &str = "allow_other,suid,dev";

/// Options of the mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Mode {
    /// No options.
    Default,
    /// The kernel collects writes.
    Writeback,
    /// Data is overwritten in place.
    Nodatacow,
    /// Compressible data is compressed.
    Compress,
    /// Files are opened without a request.
    ZeroOpen,
    /// Requests come over a ring.
    IoUring,
}

impl Mode {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Writeback => "writeback",
            Self::Nodatacow => "nodatacow",
            Self::Compress => "compress-force=zstd:1",
            Self::ZeroOpen => "zero_open",
            Self::IoUring => "io_uring",
        }
    }

    pub(super) fn options(self) -> String {
        match self {
            Self::Default => COMMON_OPTIONS.to_owned(),
            other => format!("{COMMON_OPTIONS},{}", other.name()),
        }
    }
}

/// Options of the trial.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  cargo trials mount-checks\n  \
    cargo trials mount-checks --only fsx --mode writeback --thorough 4294967296")]
pub(crate) struct Options {
    /// Sizes of the images in bytes; each suite runs on each.
    #[arg(default_values_t = [IMAGE_BYTES])]
    sizes: Vec<u64>,
    /// Only suites with this in their name; may be given several times.
    #[arg(long)]
    only: Vec<String>,
    /// The format of the images.
    #[arg(long, value_enum, default_value_t = Kind::Btrfs)]
    format: Kind,
    /// Modes: default, writeback and, of btrfs, nodatacow if not given
    #[arg(long, value_delimiter = ',')]
    mode: Vec<Mode>,
    /// Directory of the suites' scripts, each `NAME.sh DIR`. Those in the source tree are pjdfstest, fsx (`cargo
    /// install --locked pjdfstest fsx`), git and containers (buildah, podman, runc, uidmap, busybox-static)
    #[arg(long)]
    checks: Option<PathBuf>,
    /// Directory of programs that the suites need, besides those in PATH
    #[arg(long)]
    tools: Option<PathBuf>,
    /// As long as before a release: 200,000 operations of fsx, a minute for each client program
    #[arg(long)]
    thorough: bool,
    /// Directory for images and mounts
    #[arg(long, default_value = "/dev/shm/spinney-checks")]
    dir: PathBuf,
    /// The `spinney` program.
    #[arg(long, default_value = "target/release/spinney")]
    program: PathBuf,
}

/// A suite and its settings: variable, value, value when thorough.
struct Suite {
    name: &'static str,
    variables: &'static [(&'static str, &'static str, &'static str)],
}

const SUITES: &[Suite] = &[
    Suite { name: "pjdfstest", variables: &[] },
    Suite {
        name: "fsx",
        variables: &[("FSX_OPS", "10000", "200000"), ("FSX_SEEDS", "1 2", "1 2 3 4"), ("FSX_TIMEOUT", "300", "3600")],
    },
    Suite { name: "git", variables: &[] },
    Suite { name: "containers", variables: &[] },
    Suite { name: "sqlite", variables: &[] },
    Suite { name: "dbench", variables: &[("DBENCH_SECS", "5", "60")] },
    Suite { name: "stress-ng", variables: &[("STRESS_SECS", "2", "10")] },
    Suite { name: "fio", variables: &[("FIO_DIRECT", "1", "1")] },
    Suite { name: "tree", variables: &[] },
];

/// Runs the suites: those of a directory, or the few in the source tree.
pub(crate) fn run(root: &Path, options: &Options) -> Result<ExitCode> {
    let given = std::env::var_os("SPINNEY_CHECKS").map(PathBuf::from);
    let scripts = options
        .checks
        .clone()
        .or(given)
        .or_else(|| Some(root.join(SCRIPTS)).filter(|scripts| scripts.is_dir()))
        .unwrap_or_else(|| root.join(OWN_SCRIPTS));
    let scripts = scripts.canonicalize().with_context(|| scripts.display().to_string())?;
    let exclusions = exclusions::read(root)?;
    let is_wanted =
        |suite: &&Suite| options.only.is_empty() || options.only.iter().any(|part| suite.name.contains(part.as_str()));
    std::fs::create_dir_all(&options.dir)?;
    for suite in SUITES.iter().filter(is_wanted).filter(|suite| !has_script(&scripts, suite)) {
        println!("{}: no script for it in {}", suite.name, scripts.display());
    }
    let (mut passed, mut failed) = (0_u32, 0_u32);
    let modes = match options.mode.as_slice() {
        [] if options.format == Kind::Btrfs => [Mode::Default, Mode::Writeback, Mode::Nodatacow].as_slice(),
        [] => &[Mode::Default, Mode::Writeback],
        given => given,
    };
    for bytes in &options.sizes {
        for mode in modes {
            for suite in SUITES.iter().filter(is_wanted).filter(|suite| has_script(&scripts, suite)) {
                let start = Instant::now();
                let result = one(options, &scripts, &exclusions, suite, *mode, *bytes);
                let seconds = start.elapsed().as_secs();
                let name = format!("{} {} {} MiB", suite.name, mode.name(), bytes >> 20);
                match result {
                    Ok(line) => {
                        passed = passed.saturating_add(1);
                        println!("{name}: {line}, check clean, {seconds} s");
                    }
                    Err(error) => {
                        failed = failed.saturating_add(1);
                        println!("{name}: FAILED after {seconds} s: {error:#}");
                    }
                }
            }
        }
    }
    println!("mount-checks: {passed} passed, {failed} failed");
    Ok(if failed == 0 && passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn has_script(scripts: &Path, suite: &Suite) -> bool {
    scripts.join(format!("{}.sh", suite.name)).exists()
}

/// Runs one suite on one mount; returns its last line, and the server's peak memory.
fn one(
    options: &Options,
    scripts: &Path,
    exclusions: &[Exclusion],
    suite: &Suite,
    mode: Mode,
    bytes: u64,
) -> Result<String> {
    let image = options.dir.join("checks.img");
    let dir = options.dir.join("mnt");
    let kind = options.format;
    let served = Served::fresh_of(kind, &options.program, &image, &dir, bytes, &mode.options())?;
    let script = scripts.join(format!("{}.sh", suite.name));
    let mut command = Command::new("bash");
    command.arg(&script).arg(served.dir());
    command.env("REMOUNT", served.remount_line());
    if let Some(tools) = &options.tools {
        command.env("TOOLS", tools);
    }
    for (name, short, long) in suite.variables {
        command.env(name, if options.thorough { long } else { short });
    }
    if let Some((name, value)) = left_out(suite.name, (mode, kind), exclusions, &script)? {
        command.env(name, value);
    }
    let output = command.output().context("bash")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let last = text.lines().last().unwrap_or_default().to_owned();
    let peak = served.peak_mib().unwrap_or_default();
    // The check of the image matters whether the suite passed or not.
    let checked = served.unmount_and_check();
    let is_known = |line: &str| {
        let known = exclusions.iter().filter(|row| row.is_of(suite.name, mode.name(), kind));
        known.map(|row| row.test.as_str()).any(|test| line.starts_with(test))
    };
    let mut failures = text.lines().filter_map(|line| line.strip_prefix(FAILED)).peekable();
    // A suite that died does not count its failures.
    let counted = counted(&last).with_context(|| format!("it did not count its tests: {}", text.trim_end()))?;
    ensure!(counted.0 > 0, "no test passed: {}", text.trim_end());
    let told = text.lines().filter(|line| line.starts_with(FAILED)).count();
    let is_excused = counted.1 == told && failures.peek().is_some() && failures.all(is_known);
    ensure!(output.status.success() || is_excused, "{}", text.trim_end());
    checked?;
    Ok(format!("{last}, {peak} MiB"))
}

/// Numbers of passed and failed tests in the last line of a suite: `NAME: N passed, N failed`.
fn counted(last: &str) -> Option<(usize, usize)> {
    let (passed, failed) = last.rsplit_once(": ")?.1.split_once(", ")?;
    let number = |text: &str, what: &str| text.strip_suffix(what)?.trim().parse().ok();
    Some((number(passed, " passed")?, number(failed, " failed")?))
}

/// The setting that tells a suite which tests to leave out.
fn left_out(
    suite: &str,
    (mode, kind): (Mode, Kind),
    exclusions: &[Exclusion],
    script: &Path,
) -> Result<Option<(&'static str, String)>> {
    let rows = exclusions.iter().filter(|row| row.is_of(suite, mode.name(), kind));
    let tests: Vec<&str> = rows.map(|row| row.test.as_str()).collect();
    Ok(match suite {
        _ if tests.is_empty() => None,
        // These are run, and have to fail.
        "pjdfstest" => Some(("PJD_EXPECT", tests.join(" "))),
        "stress-ng" => Some(("STRESS", all_but(&list_in(script, "all='")?, &tests))),
        "fsx" => {
            let all = "basic mmap fallocate punch copy aligned big";
            Some(("FSX_CONFIGS", all_but(all, &tests)))
        }
        _ => None,
    })
}

fn all_but(all: &str, left_out: &[&str]) -> String {
    let kept = all.split_whitespace().filter(|name| !left_out.contains(name));
    kept.collect::<Vec<_>>().join(" ")
}

/// The words of the list that begins with `start` in a script and ends at the next quote.
fn list_in(script: &Path, start: &str) -> Result<String> {
    let text = std::fs::read_to_string(script)?;
    let list = text.split_once(start).and_then(|(_, rest)| rest.split_once('\''));
    Ok(list.context("the list of tests")?.0.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite_that_died_has_counted_nothing() {
        assert_eq!(counted("pjdfstest: 382 passed, 1 failed"), Some((382, 1)));
        for line in ["", "FAILED: rename", "pjdfstest: SKIPPED (not installed)", "pjdfstest: 12 passed"] {
            assert_eq!(counted(line), None, "{line}");
        }
    }
}
