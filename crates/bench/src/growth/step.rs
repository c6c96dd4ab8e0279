//! Defines a step of a dimension: one operation, its bound, and what it works on; and runs commands of the program in
//! this process. The files of the dimensions list their steps, `growth` runs them.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use btrfs::Volume;
use serde::Serialize;

use crate::process;
use crate::row::as_float;

/// How the time of an operation may grow with the count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Growth {
    /// The operation goes over everything: n log n.
    Whole,
    /// The operation concerns a fixed number of things: log n.
    Single,
    /// It only prepares others, and is not measured.
    Prepares,
}

/// One operation.
pub(super) struct Step {
    pub(super) name: &'static str,
    pub(super) growth: Growth,
    pub(super) act: fn(&At<'_>) -> Result<Outcome>,
    /// The largest count at which it is measured.
    pub(super) most: u64,
}

impl Step {
    pub(super) const fn prepares(name: &'static str, act: fn(&At<'_>) -> Result<Outcome>) -> Self {
        Self { name, growth: Growth::Prepares, act, most: u64::MAX }
    }

    pub(super) const fn whole(name: &'static str, act: fn(&At<'_>) -> Result<Outcome>) -> Self {
        Self { name, growth: Growth::Whole, act, most: u64::MAX }
    }

    pub(super) const fn single(name: &'static str, act: fn(&At<'_>) -> Result<Outcome>) -> Self {
        Self { name, growth: Growth::Single, act, most: u64::MAX }
    }

    /// The same, not measured beyond a count: it would take hours.
    pub(super) const fn up_to(self, most: u64) -> Self {
        Self { most, ..self }
    }

    pub(super) fn is_of_mount(&self) -> bool {
        self.name.contains("mount")
    }

    /// True for those that were asked for, and those whose results others use: these make images or snapshots.
    pub(super) fn is_wanted(&self, only: &str) -> bool {
        self.growth == Growth::Prepares || self.name.contains(only) || self.name.starts_with("make")
    }
}

/// Result of a step.
pub(super) struct Outcome {
    /// Of the measured part.
    pub(super) seconds: f64,
    /// Peak memory of a mount's server, for a step on a mount.
    pub(super) server_kib: Option<i64>,
}

impl From<f64> for Outcome {
    fn from(seconds: f64) -> Self {
        Self { seconds, server_kib: None }
    }
}

impl From<Duration> for Outcome {
    fn from(time: Duration) -> Self {
        time.as_secs_f64().into()
    }
}

/// The place and the count that a step works with.
pub(super) struct At<'a> {
    /// A directory that all steps of a count share.
    pub(super) dir: &'a Path,
    pub(super) count: u64,
    /// The `spinney` program.
    pub(super) program: &'a Path,
}

impl At<'_> {
    pub(super) fn image(&self) -> PathBuf {
        self.dir.join("image")
    }

    /// The image, opened for writing.
    pub(super) fn volume(&self) -> Result<Volume> {
        Ok(Volume::options().open(self.image())?)
    }

    /// The image, opened for reading.
    pub(super) fn to_read(&self) -> Result<Volume> {
        Ok(Volume::options().read_only(true).open(self.image())?)
    }
}

/// Times that one operation is repeated, where it is too short to be measured once.
const REPEATED: u32 = 20;

/// Opens and closes the image several times; the mean.
pub(super) fn open(at: &At<'_>) -> Result<Outcome> {
    let start = Instant::now();
    for _ in 0..REPEATED {
        let volume = at.to_read()?;
        ensure!(volume.metadata("/")?.ino != 0, "a root");
        volume.close()?;
    }
    Ok((start.elapsed() / REPEATED).into())
}

/// Opens it for writing, and closes it; the mean.
pub(super) fn open_to_write(at: &At<'_>) -> Result<Outcome> {
    let start = Instant::now();
    for _ in 0..REPEATED {
        at.volume()?.close()?;
    }
    Ok((start.elapsed() / REPEATED).into())
}

/// Runs a command of the program in this process.
///
/// # Errors
/// If it ends with another status than 0; what it says goes to the standard error.
pub(super) fn command(words: &[&OsStr]) -> Result<Outcome> {
    let words: Vec<OsString> =
        std::iter::once(OsStr::new("spinney")).chain(words.iter().copied()).map(Into::into).collect();
    let shown = words.join(OsStr::new(" "));
    let start = Instant::now();
    let status = spinney_cli::run_with(words);
    let time = start.elapsed();
    ensure!(status == ExitCode::SUCCESS, "{}: it failed", shown.display());
    Ok(time.into())
}

/// Runs a command on the image: `name` and words behind the image.
pub(super) fn on_image(at: &At<'_>, before: &[&str], behind: &[&OsStr]) -> Result<Outcome> {
    let image = at.image();
    let words: Vec<&OsStr> =
        before.iter().map(OsStr::new).chain([image.as_os_str()]).chain(behind.iter().copied()).collect();
    command(&words)
}

/// Checks the image, with the memory that the command uses by default.
pub(super) fn check(at: &At<'_>) -> Result<Outcome> {
    on_image(at, &["check", "-q"], &[])
}

/// Reads everything, and verifies its checksums.
pub(super) fn scrub(at: &At<'_>) -> Result<Outcome> {
    on_image(at, &["scrub", "start", "--readonly", "-q"], &[])
}

/// Shows the use of space.
pub(super) fn usage(at: &At<'_>) -> Result<Outcome> {
    on_image(at, &["usage"], &[])
}

/// A mount of the image, for one step.
pub(super) struct Mount<'a> {
    program: &'a Path,
    pub(super) dir: PathBuf,
    image: PathBuf,
}

impl<'a> Mount<'a> {
    pub(super) fn new(at: &At<'a>) -> Result<Self> {
        let (dir, image) = (at.dir.join("mount"), at.image());
        std::fs::create_dir_all(&dir)?;
        done(Command::new(at.program).arg("mount").args([&image, &dir]))?;
        Ok(Self { program: at.program, dir, image })
    }

    /// The outcome of a step on it, with the peak memory of its server.
    pub(super) fn outcome(&self, time: Duration) -> Result<Outcome> {
        let server = process::serving(&self.image)?;
        Ok(Outcome { seconds: time.as_secs_f64(), server_kib: Some(process::peak_kib(&server.to_string())) })
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        if let Err(error) = done(Command::new(self.program).arg("umount").arg(&self.dir)) {
            eprintln!("{error:#}");
        }
    }
}

fn done(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim_end());
    Ok(())
}

/// Seconds for each of `count` operations.
pub(super) fn each(time: Duration, count: u64) -> Outcome {
    (time.as_secs_f64() / as_float(count.max(1))).into()
}
