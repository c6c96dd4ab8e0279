//! `bench growth` measures how time and memory of operations grow with the work: files, snapshots, extents of a file,
//! bytes of an image, dirty files. `main` calls it.
//!
//! Each [`Dimension`] has a list of steps ([`Step`]), which run one after the other on the same image, at each power
//! of ten. Each runs in a process of its own (`bench grown`), so that its peak memory is its own. A step calls the
//! library, or a command of the program in the same process; those with "mount" in their name use a real mount, and
//! count the memory of its server. [`series`] computes exponents and says which series grow faster than they may,
//! [`chart`] draws them.
//!
//! Failure: a step that fails ends the run. The run fails at its end if a series grows faster than it may.

mod chart;
mod dirty;
mod extents;
mod files;
mod series;
mod sizes;
mod snapshots;
mod step;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, ValueEnum};
use serde::Serialize;
use spinney_cli::picture;

use crate::process;
use crate::table::append;
use series::{Point, Series};
use step::{At, Growth, Step};

/// Options of the benchmark.
#[derive(Args)]
#[command(after_help = "\
As root, for the steps on a mount. `cargo xtask bench` builds what it needs, and runs this:
  cargo xtask bench growth                                 to 1,000,000 files and 10,000 snapshots; half an hour
  cargo xtask bench growth --max 10000                     a minute
  cargo xtask bench growth --max 10000000 --dimension snapshots    to 100,000 snapshots
  cargo xtask bench growth --history bench/history/growth.txt --chart docs/pictures/growth.svg")]
pub(crate) struct Options {
    /// Most files. There are a hundredth as many snapshots, and as many extents, but at most 1,000,000
    #[arg(long, default_value_t = 1_000_000)]
    max: u64,
    /// Only these dimensions
    #[arg(long, value_delimiter = ',')]
    dimension: Vec<Dimension>,
    /// Only steps with this in their name; what others prepare is made all the same
    #[arg(long, default_value = "")]
    only: String,
    /// How much larger an exponent may be than the bound's: 0.3 is twice the time at ten times the work
    #[arg(long, default_value_t = 0.3)]
    margin: f64,
    /// No steps on a mount, which need root
    #[arg(long)]
    no_mount: bool,
    /// Directory on a memory file system for the images
    #[arg(long, default_value = "/dev/shm/bench")]
    dir: PathBuf,
    /// The `spinney` program, for mounts
    #[arg(long, default_value = "target/release/spinney")]
    program: PathBuf,
    /// A picture of it, as SVG
    #[arg(long, value_name = "FILE")]
    chart: Option<PathBuf>,
    /// File that a JSON line for each series is appended to
    #[arg(long)]
    history: Option<PathBuf>,
}

/// One step, in a process that `bench growth` starts for it.
#[derive(Args)]
pub(crate) struct Grown {
    #[arg(long)]
    dimension: Dimension,
    #[arg(long)]
    step: String,
    #[arg(long)]
    count: u64,
    #[arg(long)]
    dir: PathBuf,
    #[arg(long)]
    program: PathBuf,
    /// File for the result: seconds and KiB.
    #[arg(long)]
    result: PathBuf,
}

/// The work that grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Dimension {
    /// Files of one directory.
    Directory,
    /// Files, a thousand in each directory.
    Directories,
    /// Snapshots of a thousand files, one of which is changed before each.
    Snapshots,
    /// Extents of a sparse file of 1 TiB.
    Extents,
    /// Bytes of a sparse image, in GiB.
    Size,
    /// Files with unwritten data.
    Dirty,
}

/// Most extents.
const EXTENTS_MAX: u64 = 1_000_000;
/// Most files with unwritten data.
const DIRTY_MAX: u64 = 1000;

impl Dimension {
    fn name(self) -> &'static str {
        match self {
            Self::Directory => "directory",
            Self::Directories => "directories",
            Self::Snapshots => "snapshots",
            Self::Extents => "extents",
            Self::Size => "size",
            Self::Dirty => "dirty",
        }
    }

    /// The title of its table and its picture.
    fn title(self) -> &'static str {
        match self {
            Self::Directory => "files in one directory",
            Self::Directories => "files, a thousand in a directory",
            Self::Snapshots => "snapshots of 1,000 files",
            Self::Extents => "extents of a sparse file of 1 TiB",
            Self::Size => "GiB of a sparse image",
            Self::Dirty => "files with 64 KiB of unwritten data",
        }
    }

    fn counts(self, max: u64) -> Vec<u64> {
        let tens = |from: u64, to: u64| {
            std::iter::successors(Some(from), |count| count.checked_mul(10)).take_while(|count| *count <= to).collect()
        };
        match self {
            Self::Directory | Self::Directories => tens(1000, max),
            Self::Snapshots => tens(10, max / 100),
            Self::Extents => tens(1000, max.min(EXTENTS_MAX)),
            Self::Size => vec![1, 1 << 5, 1 << 10, 1 << 15, 1 << 20],
            Self::Dirty => tens(1, DIRTY_MAX),
        }
    }

    fn steps(self) -> &'static [Step] {
        match self {
            Self::Directory => files::IN_ONE,
            Self::Directories => files::IN_MANY,
            Self::Snapshots => snapshots::STEPS,
            Self::Extents => extents::STEPS,
            Self::Size => sizes::STEPS,
            Self::Dirty => dirty::STEPS,
        }
    }
}

/// Measures all dimensions.
///
/// # Errors
/// The first failure of a step; the names of series that grow too fast, after their tables were printed.
pub(crate) fn run(options: &Options) -> Result<String> {
    let all = Dimension::value_variants();
    let wanted = if options.dimension.is_empty() { all } else { &options.dimension };
    let mut measured: Vec<(Dimension, Vec<Series>)> = Vec::new();
    for dimension in wanted {
        let found = measure(options, *dimension).with_context(|| dimension.name())?;
        print!("{}", series::markdown(dimension.title(), &found, options.margin));
        if let Some(path) = &options.history {
            append(path, found.iter().map(|one| one.line(dimension.name(), options.margin)))?;
        }
        measured.push((*dimension, found));
    }
    if let Some(path) = &options.chart {
        let titled: Vec<(&str, &[Series])> = measured.iter().map(|(of, found)| (of.title(), &found[..])).collect();
        picture::write(path, &chart::draw(&titled))?;
    }
    let is_worse = |one: &&Series| one.is_worse(options.margin);
    let worse: Vec<String> = measured
        .iter()
        .flat_map(|(of, found)| found.iter().filter(is_worse).map(|one| format!("{} of {}", one.step, of.name())))
        .collect();
    ensure!(worse.is_empty(), "these grow faster than they may: {}", worse.join(", "));
    Ok("No series grows faster than it may.\n".to_owned())
}

/// Runs the steps of a dimension at each of its counts.
fn measure(options: &Options, dimension: Dimension) -> Result<Vec<Series>> {
    let mut all: Vec<Series> = Vec::new();
    for count in dimension.counts(options.max) {
        let dir = options.dir.join("growth");
        clear(&dir)?;
        for step in dimension.steps() {
            let is_left_out = count > step.most || (step.is_of_mount() && options.no_mount);
            if is_left_out || !step.is_wanted(&options.only) {
                continue;
            }
            let point =
                one(options, dimension, step, count, &dir).with_context(|| format!("{} at {count}", step.name))?;
            eprintln!("{} {count}: {:<20} {:.4} s, {} KiB", dimension.name(), step.name, point.seconds, point.peak_kib);
            if step.growth == Growth::Prepares || !step.name.contains(&options.only) {
                continue;
            }
            match all.iter_mut().find(|one| one.step == step.name) {
                Some(one) => one.points.push(point),
                None => all.push(Series { step: step.name, growth: step.growth, points: vec![point] }),
            }
        }
        clear(&dir)?;
    }
    Ok(all)
}

/// An empty directory in place of what an earlier run left.
fn clear(dir: &Path) -> Result<()> {
    if dir.exists() {
        std::fs::remove_dir_all(dir).with_context(|| dir.display().to_string())?;
    }
    Ok(std::fs::create_dir_all(dir)?)
}

/// One step in a process of its own.
fn one(options: &Options, dimension: Dimension, step: &Step, count: u64, dir: &Path) -> Result<Point> {
    let result = dir.join("result");
    let output = Command::new(std::env::current_exe()?)
        .args(["grown", "--dimension", dimension.name(), "--step", step.name, "--count", &count.to_string()])
        .arg("--dir")
        .arg(dir)
        .arg("--program")
        .arg(&options.program)
        .arg("--result")
        .arg(&result)
        .stdout(std::process::Stdio::null())
        .output()?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim_end());
    }
    let text = std::fs::read_to_string(&result)?;
    let (seconds, peak_kib) = text.trim().split_once(' ').with_context(|| format!("{text:?}"))?;
    Ok(Point { count, seconds: seconds.parse()?, peak_kib: peak_kib.parse()? })
}

/// Runs one step in this process, and writes its result to the file.
///
/// # Errors
/// Those of the step.
pub(crate) fn grown(grown: &Grown) -> Result<()> {
    let steps = grown.dimension.steps();
    let step = steps.iter().find(|step| step.name == grown.step).with_context(|| grown.step.clone())?;
    let outcome = (step.act)(&At { dir: &grown.dir, count: grown.count, program: &grown.program })?;
    let peak_kib = outcome.server_kib.unwrap_or_else(|| process::peak_kib("self"));
    std::fs::write(&grown.result, format!("{} {peak_kib}", outcome.seconds))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_end_at_the_maximum() {
        assert_eq!(Dimension::Directory.counts(100_000), [1000, 10_000, 100_000]);
        assert_eq!(Dimension::Snapshots.counts(1_000_000), [10, 100, 1000, 10_000]);
        assert_eq!(Dimension::Extents.counts(10_000_000).last(), Some(&EXTENTS_MAX));
        assert_eq!(Dimension::Dirty.counts(1_000_000), [1, 10, 100, 1000]);
    }

    #[test]
    fn the_steps_of_a_dimension_have_different_names() {
        for dimension in Dimension::value_variants() {
            let mut names: Vec<&str> = dimension.steps().iter().map(|step| step.name).collect();
            names.sort_unstable();
            let count = names.len();
            names.dedup();
            assert_eq!(names.len(), count, "{}", dimension.name());
        }
    }

    #[test]
    fn a_small_run_measures_each_step() {
        let dir = std::env::temp_dir().join(format!("growth-{}", std::process::id()));
        for dimension in [Dimension::Directory, Dimension::Snapshots, Dimension::Dirty] {
            clear(&dir).unwrap();
            for step in dimension.steps().iter().filter(|step| !step.is_of_mount()) {
                let at = At { dir: &dir, count: 20, program: Path::new("none") };
                let outcome = (step.act)(&at).expect(step.name);
                assert!(outcome.seconds >= 0.0);
            }
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
