//! `bench mount` runs the same workloads on mounts of several systems, one after the other. `main` calls it; `seeds`,
//! `latency` and `pinned` use its `Place` and `Run`.
//!
//! The workloads are scripts (`workload.sh NAME DIR`, which prints `NAME value unit`), and so are the systems to
//! compare with (`systems.sh up|down NAME`); both list missing programs (`--lacks NAME`) before anything runs. Every
//! round runs every workload on every system, so that load on the machine affects all of them; consecutive workloads on
//! the same files share a file system, the others have one of their own. Spinney's image is a file in memory, as is the
//! file below the loop device of the others.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use serde::Serialize;

use crate::library;
use crate::process;
use crate::table::{append, median};

/// Options of the benchmark.
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct Options {
    /// Systems: those of systems.sh, and spinney, spinney-writeback, spinney-io_uring, spinney-OPTION.
    #[arg(long, value_delimiter = ',', default_values = [
        "spinney", "spinney-writeback", "spinney-io_uring", "fuse-ll", "btrfs", "fuse2fs", "ntfs-3g",
    ])]
    system: Vec<String>,
    /// Workloads, by their names in workload.sh.
    #[arg(long, value_delimiter = ',', default_values = [
        "seqwrite", "seqread_cold", "seqread_warm", "randread_cold", "randread_warm", "randread_dio", "randwrite_buf",
        "fsync_randwrite", "snap_randwrite", "snap_randwrite_dio", "uring_randwrite", "uring_randwrite_nocow", "fsmark",
        "trees", "meta_create", "meta_stat", "meta_stat_cold", "meta_unlink", "smallfiles", "smallfiles_fsync",
        "git_checkout", "git_status", "untar", "cptree", "readtree_cold", "readtree_warm", "find_cold", "find_warm",
        "lsr", "du_cold", "rmtree",
    ])]
    workload: Vec<String>,
    /// Rounds.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    #[command(flatten)]
    place: Place,
}

/// The systems, and their directories.
#[derive(Args)]
pub(crate) struct Place {
    /// Folder with workload.sh and systems.sh.
    #[arg(long, default_value = "crates/bench/workloads")]
    scripts: PathBuf,
    /// The `spinney` program.
    #[arg(long, default_value = "target/release/spinney")]
    program: PathBuf,
    /// Size of every image, in MiB.
    #[arg(long, default_value_t = 6144)]
    size_mib: u64,
    /// Where Spinney's image is; on a memory file system, as that of the others.
    #[arg(long, default_value = "/dev/shm/bench")]
    dir: PathBuf,
    /// Where images are that are on a disk: the file system of a disk.
    #[arg(long, default_value = "/var/tmp/bench")]
    disk: PathBuf,
    /// File that a JSON line for each run is appended to.
    #[arg(long)]
    history: Option<PathBuf>,
    /// Installs what is missing, from Debian, as root.
    #[arg(long)]
    install: bool,
}

impl Place {
    pub(crate) fn history(&self) -> Option<&Path> {
        self.history.as_deref()
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn program(&self) -> &Path {
        &self.program
    }
}

const HELP: &str = "\
The whole table (hours; as root; nothing else should run):
  cargo build --release -p spinney-cli -p bench
  apt-get install fio fsmark git fuse2fs ntfs-3g btrfs-progs linux-source-6.1
  export PASSTHROUGH=/usr/local/bin/passthrough_ll               an example of libfuse, built from its source
  echo Y > /sys/module/fuse/parameters/enable_uring              for spinney-io_uring
  target/release/bench mount --history bench/history/mount.jsonl

Spinney is mounted as `spinney mount -o allow_other` does it: in its sandbox, with a channel for
each worker. A system spinney-OPTION is mounted with that option. fuse-ll is the passthrough over
tmpfs, btrfs the kernel's. After a system that is slow, the next one finds memory that a virtual
machine's host has taken back: put one behind it that does not count. File systems are just made;
rows that work on the same files (of one big file, of a tree, ...) share one where they follow each
other. A row that a system cannot do has no figure; where that is Spinney, the run fails at its end.
Nothing runs where a tool is missing. RUNTIME (seconds), NMETA (files) and BENCH_TAR (another tree)
in the environment make rows shorter: see workload.sh.

Example:
  bench mount --workload seqwrite,meta_create --system spinney,btrfs --rounds 3";

/// Whether the kernel offers FUSE over io_uring.
const RING_SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// One run.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Run {
    workload: String,
    system: String,
    pub(crate) value: f64,
    pub(crate) unit: String,
    /// Peak memory of Spinney's server, MiB.
    peak_mib: Option<i64>,
}

/// Runs everything and gives a table of medians.
pub(crate) fn run(options: &Options) -> Result<String> {
    let workloads: Vec<&str> = options.workload.iter().map(String::as_str).collect();
    let systems: Vec<&str> = options.system.iter().map(String::as_str).collect();
    check_tools(&options.place, &workloads, &systems)?;
    let (mut runs, mut failed) = (Vec::new(), Vec::new());
    // The system that comes first finds memory that the machine may have given away meanwhile: not always the same one.
    let mut systems = options.system.clone();
    for round in 0..options.rounds {
        for group in options.workload.chunk_by(|one, next| files_of(one).is_some() && files_of(one) == files_of(next)) {
            for system in &systems {
                let up = Up::new(&options.place, Medium::Memory, system);
                for workload in group {
                    match up.as_ref().map_err(|error| anyhow!("{error:#}")).and_then(|up| up.run(workload, None)) {
                        Ok(run) => {
                            eprintln!("round {round}: {workload:<18} {system:<18} {} {}", run.value, run.unit);
                            if let Some(path) = options.place.history() {
                                append(path, [&run])?;
                            }
                            runs.push(run);
                        }
                        // A system that cannot do a workload has no figure; the others go on.
                        Err(error) => {
                            eprintln!("round {round}: {workload:<18} {system:<18} FAILED: {error:#}");
                            failed.push((workload, system.clone()));
                        }
                    }
                }
            }
        }
        systems.rotate_left(1);
    }
    let ours: Vec<String> = failed
        .iter()
        .filter(|(_, system)| system.starts_with("spinney"))
        .map(|(workload, system)| format!("{workload} on {system}"))
        .collect();
    let table = markdown(options, &runs);
    ensure!(ours.is_empty() && !runs.is_empty(), "{table}\nfailed: {}", ours.join(", "));
    Ok(table)
}

/// Fails where something is missing that a workload or a system needs, after it was installed if that is wanted.
pub(crate) fn check_tools(place: &Place, workloads: &[&str], systems: &[&str]) -> Result<()> {
    let program = &place.program;
    ensure!(program.is_file(), "{}: build it first: cargo build --release -p spinney-cli", program.display());
    let mut lacking = lacking(place, workloads, systems)?;
    if place.install && !lacking.is_empty() {
        eprintln!("installing {}", lacking.join(" "));
        check(Command::new("apt-get").args(["update", "-qq"]))?;
        let install = ["install", "-y", "-qq", "--no-install-recommends"];
        check(Command::new("apt-get").env("DEBIAN_FRONTEND", "noninteractive").args(install).args(&lacking))?;
        lacking = self::lacking(place, workloads, systems)?;
    }
    let lacking = lacking.join(" ");
    ensure!(lacking.is_empty(), "missing: {lacking} (Debian: apt-get install); or choose by --workload and --system");
    Ok(())
}

/// The Debian packages that are missing, each once.
fn lacking(place: &Place, workloads: &[&str], systems: &[&str]) -> Result<Vec<String>> {
    let mut lacking = BTreeSet::new();
    let workloads = workloads.iter().map(|name| ("workload.sh", name));
    let systems = systems.iter().filter(|name| !name.starts_with("spinney")).map(|name| ("systems.sh", name));
    for (script, name) in workloads.chain(systems) {
        let said = check(Command::new("bash").arg(place.scripts.join(script)).args(["--lacks", name]))?;
        lacking.extend(said.lines().map(ToOwned::to_owned));
    }
    Ok(lacking.into_iter().collect())
}

/// Where an image is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Medium {
    Memory,
    Disk,
}

/// Runs one workload on a file system of its own; one limited by time runs for `seconds`.
pub(crate) fn run_one(
    place: &Place,
    medium: Medium,
    system: &str,
    workload: &str,
    seconds: Option<&str>,
) -> Result<Run> {
    if system == library::SYSTEM {
        return through_library(place, medium, workload, seconds);
    }
    Up::new(place, medium, system)?.run(workload, seconds)
}

fn through_library(place: &Place, medium: Medium, workload: &str, seconds: Option<&str>) -> Result<Run> {
    let seconds = seconds.map(str::parse).transpose()?;
    let source = place.dir.join("library-tree");
    if workload == "trees" && !source.is_dir() {
        let tar = std::env::var_os("BENCH_TAR").map_or_else(|| place.dir.join("linux.tar"), PathBuf::from);
        std::fs::create_dir_all(&source)?;
        check(Command::new("tar").arg("-xf").arg(tar).arg("-C").arg(&source))?;
    }
    let image = image(place, medium);
    let run = library::Run { image: &image, image_bytes: place.size_mib << 20, source: &source, seconds };
    let (value, unit) = run.run(workload)?;
    let (workload, system, unit) = (workload.to_owned(), library::SYSTEM.to_owned(), unit.to_owned());
    Ok(Run { workload, system, value, unit, peak_mib: None })
}

/// The files that a workload leaves for others, and takes over from them.
fn files_of(workload: &str) -> Option<&str> {
    match workload {
        "seqread_cold" | "seqread_warm" | "randread_cold" | "randread_warm" | "randread_dio" | "randwrite_buf" => {
            Some("big file")
        }
        "meta_create" | "meta_stat" | "meta_stat_cold" | "meta_unlink" => Some("directory"),
        "git_checkout" | "git_status" => Some("checkout"),
        "untar" | "cptree" | "readtree_cold" | "readtree_warm" | "find_cold" | "find_warm" | "lsr" | "du_cold"
        | "rmtree" => Some("tree"),
        _ => None,
    }
}

/// A system that is mounted; unmounted when dropped.
pub(crate) struct Up<'a> {
    place: &'a Place,
    medium: Medium,
    system: &'a str,
    dir: PathBuf,
}

impl<'a> Up<'a> {
    pub(crate) fn new(place: &'a Place, medium: Medium, system: &'a str) -> Result<Self> {
        let dir = match system.strip_prefix("spinney") {
            Some(option) => spinney(place, medium, option.trim_start_matches('-'))?,
            None => {
                let text = script(place, medium, "up", system)?;
                PathBuf::from(text.lines().last().unwrap_or_default())
            }
        };
        Ok(Self { place, medium, system, dir })
    }

    /// Where it is mounted.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    fn run(&self, workload: &str, seconds: Option<&str>) -> Result<Run> {
        let script = self.place.scripts.join("workload.sh");
        let mut command = Command::new("bash");
        command.env("BENCH", std::env::current_exe()?).envs(seconds.map(|seconds| ("RUNTIME", seconds)));
        let output = command.arg(script).arg(workload).arg(&self.dir).output()?;
        let text = String::from_utf8(output.stdout)?;
        let line = text.lines().last().unwrap_or_default();
        let [_, value, unit] = line.split(' ').collect::<Vec<_>>()[..] else {
            bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
        };
        ensure!(output.status.success(), "{}", output.status);
        Ok(Run {
            workload: workload.to_owned(),
            system: self.system.to_owned(),
            value: value.parse().with_context(|| line.to_owned())?,
            unit: unit.to_owned(),
            peak_mib: self.peak_mib(),
        })
    }

    fn peak_mib(&self) -> Option<i64> {
        let image = image(self.place, self.medium).to_string_lossy().into_owned();
        let server = std::fs::read_dir("/proc").ok()?.flatten().find(|entry| {
            let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
            words.contains(&b"server".as_slice()) && words.contains(&image.as_bytes())
        })?;
        Some(process::peak_kib(server.file_name().to_str()?) / 1024)
    }
}

impl Drop for Up<'_> {
    fn drop(&mut self) {
        let result = if self.system.starts_with("spinney") {
            check(Command::new(&self.place.program).arg("umount").arg(&self.dir)).map(drop)
        } else {
            script(self.place, self.medium, "down", self.system).map(drop)
        };
        if let Err(error) = result {
            eprintln!("{}: {error:#}", self.system);
        }
    }
}

fn image(place: &Place, medium: Medium) -> PathBuf {
    match medium {
        Medium::Memory => place.dir.join("spinney.img"),
        Medium::Disk => place.disk.join("spinney.img"),
    }
}

fn spinney(place: &Place, medium: Medium, option: &str) -> Result<PathBuf> {
    if option.contains("io_uring") {
        // The device would be measured under another name.
        let is_on = std::fs::read_to_string(RING_SWITCH).is_ok_and(|text| text.starts_with('Y'));
        ensure!(is_on, "{RING_SWITCH} is not Y");
    }
    let dir = PathBuf::from("/mnt/bench-spinney");
    std::fs::create_dir_all(&dir)?;
    let image = image(place, medium);
    crate::row::touch_bytes(&image, place.size_mib << 20)?;
    check(Command::new(&place.program).args(["mkfs", "-q", "-f", "-K"]).arg(&image))?;
    let mut mount = Command::new(&place.program);
    mount.args(["mount", "-o", "allow_other"]);
    if !option.is_empty() {
        mount.args(["-o", option]);
    }
    check(mount.arg(&image).arg(&dir))?;
    Ok(dir)
}

fn script(place: &Place, medium: Medium, action: &str, system: &str) -> Result<String> {
    let script = place.scripts.join("systems.sh");
    let mut command = Command::new("bash");
    command.env("SIZE_MB", place.size_mib.to_string());
    if medium == Medium::Disk {
        command.env("BENCH_DISK", &place.disk);
    }
    check(command.arg(script).args([action, system]))
}

fn check(command: &mut Command) -> Result<String> {
    let output = command.output()?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Medians; a row for each workload, a column for each system.
fn markdown(options: &Options, runs: &[Run]) -> String {
    let mut cells: BTreeMap<(&str, &str), Vec<f64>> = BTreeMap::new();
    let mut peaks: BTreeMap<&str, i64> = BTreeMap::new();
    let mut units: BTreeMap<&str, &str> = BTreeMap::new();
    for run in runs {
        cells.entry((&run.workload, &run.system)).or_default().push(run.value);
        units.insert(&run.workload, &run.unit);
        let peak = peaks.entry(&run.workload).or_default();
        *peak = (*peak).max(run.peak_mib.unwrap_or_default());
    }
    let mut table = format!("| workload | unit | {} | peak MiB |\n", options.system.join(" | "));
    table.push_str(&"|---".repeat(options.system.len() + 3));
    table.push_str("|\n");
    for workload in &options.workload {
        let unit = units.get(workload.as_str()).copied().unwrap_or_default();
        let _ = write!(table, "| {workload} | {unit} |");
        for system in &options.system {
            match cells.get(&(workload.as_str(), system.as_str())) {
                Some(values) => {
                    let value = median(values.clone());
                    let digits = if value < 100.0 { 2 } else { 0 };
                    let _ = write!(table, " {value:.digits$} |");
                }
                None => table.push_str(" \u{2013} |"),
            }
        }
        let _ = writeln!(table, " {} |", peaks.get(workload.as_str()).copied().unwrap_or_default());
    }
    table
}
