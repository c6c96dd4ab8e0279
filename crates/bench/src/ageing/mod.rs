//! `bench ageing` measures the layout of data and free space after a file system was filled, halved and filled again,
//! several times. `main` calls it.
//!
//! Spinney, through its mount, and the kernel's btrfs do the same operations, drawn from a
//! seed ([`plan`]). After each round the image is unmounted and looked at ([`layout`]): files by a read-only mount of
//! the kernel's for both, free space by the library for both. "KiB a request" is the mean of contiguous pieces on disk
//! when each file is read from its start to its end: bytes of all files (that are not in trees), by the number of runs
//! in which they lie. A run ends where the next byte of the file is not the next one on the device; nothing is counted
//! across files. Failure: an operation that fails ends the run, and so does an image that `btrfs check` complains of.

mod chart;
mod layout;
mod plan;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use host::Env;
use serde::Serialize;
use spinney_cli::picture;

use crate::row::as_float;
use crate::table::append;
use layout::{Layout, class_kib};
use plan::{Op, Plan};

/// Options of the benchmark.
#[derive(Args)]
#[command(after_help = "\
As root. `cargo xtask bench` builds what it needs, and runs this:
  cargo xtask bench ageing                          2 GiB, five rounds, on Spinney and on the kernel's btrfs
  cargo xtask bench ageing --size 8 --rounds 10 --seed 3
  cargo xtask bench ageing --history bench/history/ageing.jsonl --chart docs/pictures/ageing.svg")]
pub(crate) struct Options {
    /// Size of each image, in GiB.
    #[arg(long, default_value_t = 2)]
    size: u64,
    /// Fill level in percent of the space that `df` reports on the system with less.
    #[arg(long, default_value_t = 80)]
    fill: u64,
    /// Times that half of the files go and others come.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Where the operations are drawn from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Directory on a memory file system for the images.
    #[arg(long, default_value = "/dev/shm/bench")]
    dir: PathBuf,
    /// The `spinney` program.
    #[arg(long, default_value = "target/release/spinney")]
    program: PathBuf,
    /// Options of Spinney's mount.
    #[arg(long, default_value = "allow_other")]
    options: String,
    /// Prints JSON instead of tables.
    #[arg(long)]
    json: bool,
    /// A picture of it, as SVG.
    #[arg(long, value_name = "FILE")]
    chart: Option<PathBuf>,
    /// File that a JSON line for each system is appended to.
    #[arg(long)]
    history: Option<PathBuf>,
    /// The images stay.
    #[arg(long)]
    keep: bool,
}

const SYSTEMS: [&str; 2] = ["spinney", "btrfs"];

/// Bytes of one write.
const WRITE_BYTES: usize = 128 << 10;

/// Tolerated difference for ours.
const SAME: f64 = 0.02;

/// Results of one system, round by round: the first is before any deletion.
#[derive(Debug, Serialize)]
struct Aged {
    system: &'static str,
    size_gib: u64,
    seed: u64,
    rounds: Vec<Layout>,
}

/// Runs everything, and returns tables.
///
/// # Errors
/// The first failure.
pub(crate) fn run(options: &Options) -> Result<String> {
    fs::create_dir_all(&options.dir)?;
    let sides = SYSTEMS.map(|system| Side::new(options, system));
    let mut available = u64::MAX;
    for side in &sides {
        side.make(options.size << 30).context(side.system)?;
        let mounted = side.mount().context(side.system)?;
        let stat = rustix::fs::statvfs(&side.dir)?;
        available = available.min(stat.f_bavail * stat.f_frsize);
        for number in plan::directories() {
            fs::create_dir(side.dir.join(format!("d{number}")))?;
        }
        drop(mounted);
    }
    let bytes = available / 100 * options.fill;
    let mut aged = Vec::new();
    for side in &sides {
        let rounds = side.age(options, bytes).context(side.system)?;
        aged.push(Aged { system: side.system, size_gib: options.size, seed: options.seed, rounds });
    }
    if !options.keep {
        sides.iter().try_for_each(|side| fs::remove_file(&side.image))?;
    }
    if let Some(path) = &options.history {
        append(path, &aged)?;
    }
    if let Some(path) = &options.chart {
        let both: Vec<(&str, &[Layout])> = aged.iter().map(|one| (one.system, one.rounds.as_slice())).collect();
        picture::write(path, &chart::draw(&both))?;
    }
    if options.json {
        return Ok(format!("{}\n", serde_json::to_string_pretty(&aged)?));
    }
    Ok(text(&aged))
}

/// One system with its image.
struct Side {
    system: &'static str,
    image: PathBuf,
    dir: PathBuf,
    program: PathBuf,
    options: String,
}

/// Something mounted, until this is dropped.
struct Mounted<'a> {
    side: &'a Side,
    is_ours: bool,
}

impl Side {
    fn new(options: &Options, system: &'static str) -> Self {
        let image = options.dir.join(format!("ageing-{system}.img"));
        let dir = options.dir.join(format!("ageing-{system}"));
        Self { system, image, dir, program: options.program.clone(), options: options.options.clone() }
    }

    fn is_ours(&self) -> bool {
        self.system == "spinney"
    }

    fn make(&self, bytes: u64) -> Result<()> {
        fs::create_dir_all(&self.dir)?;
        File::create(&self.image)?.set_len(bytes)?;
        match self.is_ours() {
            true => run_command(Command::new(&self.program).args(["mkfs", "-q", "-f"]).arg(&self.image)),
            false => run_command(Command::new("mkfs.btrfs").args(["-q", "-f", "-m", "dup"]).arg(&self.image)),
        }
    }

    fn mount(&self) -> Result<Mounted<'_>> {
        if self.is_ours() {
            let mut command = Command::new(&self.program);
            run_command(command.args(["mount", "-o", &self.options]).arg(&self.image).arg(&self.dir))?;
            return Ok(Mounted { side: self, is_ours: true });
        }
        self.mount_by_kernel("loop,noatime,nodiscard")
    }

    fn mount_by_kernel(&self, options: &str) -> Result<Mounted<'_>> {
        let mut command = Command::new("mount");
        run_command(command.args(["-t", "btrfs", "-o", options]).arg(&self.image).arg(&self.dir))?;
        Ok(Mounted { side: self, is_ours: false })
    }

    /// Everything that happens to it; how it is laid out after each round.
    fn age(&self, options: &Options, bytes: u64) -> Result<Vec<Layout>> {
        let mut plan = Plan::new(options.seed);
        let mut layouts = Vec::new();
        for round in 0..=options.rounds {
            let mounted = self.mount()?;
            if round > 0 {
                self.carry_out(&plan.halve())?;
            }
            self.carry_out(&plan.fill(bytes)).with_context(|| format!("round {round}"))?;
            drop(mounted);
            run_command(Command::new("btrfs").args(["check", "--readonly", "-q"]).arg(&self.image))?;
            let mut layout = Layout::default();
            layout.add_space(&self.image)?;
            let mounted = self.mount_by_kernel("loop,ro")?;
            plan.files().try_for_each(|file| layout.add_file(&self.path(file)))?;
            drop(mounted);
            eprintln!("round {round}: {}: {}", self.system, line_of(round, &layout).trim());
            layouts.push(layout);
        }
        Ok(layouts)
    }

    fn path(&self, file: u64) -> PathBuf {
        self.dir.join(format!("d{}/f{file}", plan::directory_of(file)))
    }

    fn carry_out(&self, ops: &[Op]) -> Result<()> {
        let mut data = vec![0; WRITE_BYTES];
        Env::seeded(1, (0, 0)).fill_random(&mut data);
        // Growing files are held open meanwhile, as by programs that write logs.
        let mut open: BTreeMap<u64, File> = BTreeMap::new();
        for (index, op) in ops.iter().enumerate() {
            match *op {
                Op::Append { file, bytes } => {
                    let grows = |other: &Op| matches!(other, Op::Append { file: other, .. } if *other == file);
                    let mut opened = match open.remove(&file) {
                        Some(opened) => opened,
                        None => OpenOptions::new().append(true).create(true).open(self.path(file))?,
                    };
                    let mut left = usize::try_from(bytes)?;
                    while left > 0 {
                        let len = left.min(data.len());
                        opened.write_all(data.get(..len).unwrap_or(&data))?;
                        left -= len;
                    }
                    if ops.iter().skip(index + 1).take(GROWS_WITHIN).any(grows) {
                        open.insert(file, opened);
                    }
                }
                Op::Delete { file } => fs::remove_file(self.path(file))?,
                Op::Sync => rustix::fs::syncfs(File::open(&self.dir)?)?,
            }
        }
        Ok(())
    }
}

/// Operations after which a file that grows is opened anew.
const GROWS_WITHIN: usize = 64;

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let dir = &self.side.dir;
        let ended = match self.is_ours {
            true => run_command(Command::new(&self.side.program).arg("umount").arg(dir)),
            false => run_command(Command::new("umount").arg(dir)),
        };
        if let Err(error) = ended {
            eprintln!("{}: {error:#}", self.side.system);
        }
    }
}

fn run_command(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}", said.trim());
    Ok(())
}

fn line_of(round: usize, layout: &Layout) -> String {
    format!(
        "| {round} | {} | {} | {:.2} | {:.0} | {} | {:.1} | {:.0} % | {:.1} | {} of {:.0} MiB |\n",
        layout.files,
        layout.extents,
        layout.runs_per_file(),
        layout.request_kib(),
        layout.free_runs,
        mib(layout.free_longest),
        layout.large_share() * 100.0,
        mib(layout.free_bytes),
        layout.metadata_free_runs,
        mib(layout.metadata_free_bytes),
    )
}

fn mib(bytes: u64) -> f64 {
    as_float(bytes) / 1_048_576.0
}

fn text(aged: &[Aged]) -> String {
    let mut text = String::new();
    for one in aged {
        let _ = writeln!(text, "\n{}\n", one.system);
        text.push_str("| round | files | extents | runs a file | KiB a request | free runs | longest, MiB |");
        text.push_str(" free in runs of 1 MiB and more | free, MiB | free runs of metadata |\n");
        text.push_str(&"|---".repeat(10));
        text.push_str("|\n");
        one.rounds.iter().enumerate().for_each(|(round, layout)| text.push_str(&line_of(round, layout)));
    }
    text.push_str("\nFree at the end, MiB in runs from so many KiB on\n\n| KiB |");
    let last: Vec<&Layout> = aged.iter().filter_map(|one| one.rounds.last()).collect();
    for one in aged {
        let _ = write!(text, " {} |", one.system);
    }
    let _ = writeln!(text, "\n|---{}|", "|---".repeat(aged.len()));
    for class in 0..last.first().map_or(0, |layout| layout.free_classes.len()) {
        let _ = write!(text, "| {} |", class_kib(class));
        let bytes = last.iter().map(|layout| layout.free_classes.get(class).copied().unwrap_or(0));
        for bytes in bytes {
            let _ = write!(text, " {:.1} |", mib(bytes));
        }
        text.push('\n');
    }
    if let [ours, theirs] = last.as_slice() {
        text.push('\n');
        text.push_str(&verdict(ours, theirs));
    }
    text
}

/// Whether ours is not worse at the end.
fn verdict(ours: &Layout, theirs: &Layout) -> String {
    let mut text = String::new();
    let mut tell = |what: &str, ours: f64, theirs: f64, is_less_better: bool| {
        let holds = if is_less_better { ours <= theirs * (1.0 + SAME) } else { ours >= theirs * (1.0 - SAME) };
        let word = if holds { "holds" } else { "DOES NOT HOLD" };
        let _ = writeln!(text, "{what}: {ours:.2}, the kernel's btrfs {theirs:.2}: not worse: {word}");
    };
    tell("runs a file", ours.runs_per_file(), theirs.runs_per_file(), true);
    tell("KiB a request", ours.request_kib(), theirs.request_kib(), false);
    tell("part of free bytes in runs of 1 MiB and more", ours.large_share(), theirs.large_share(), false);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_worse_is_told() {
        let ours = Layout { files: 10, runs: 20, bytes: 1 << 20, free_bytes: 100, ..Layout::default() };
        let theirs = Layout { runs: 15, ..ours.clone() };
        let text = verdict(&ours, &theirs);
        assert_eq!(text.matches("DOES NOT HOLD").count(), 2, "{text}");
        assert_eq!(verdict(&theirs, &ours).matches(": holds").count(), 3);
    }
}
