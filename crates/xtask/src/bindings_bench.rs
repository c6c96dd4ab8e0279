//! Compares reads and stats through Python and through C with those of the Rust library, in one run: `cargo xtask
//! bindings-bench`.
//!
//! One program for each language (`crates/capi/examples/speed.rs`, `bindings/bench/speed.c` and `speed.py`) has the
//! same image open. They take turns: in each round each does the work once, in an order that changes, so that slow
//! moments of the machine reach all. Medians are compared. Fails if a ratio is worse than its limit, unless told to
//! only measure. Called by `main`.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

use crate::system::{empty_dir, run, run_command, target_dir, text};

/// Options of the comparison.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Rounds, of which the median counts
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Profile of cargo
    #[arg(long, default_value = "library")]
    profile: String,
    /// Directory of the image (1.1 GiB)
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
    /// Only measure: a ratio that is worse than its limit is no failure
    #[arg(long)]
    measure: bool,
}

/// Least rate of reading through C and through Python, relative to Rust.
const C_RATE_MIN: f64 = 0.95;
const PYTHON_RATE_MIN: f64 = 0.8;
/// Most microseconds that a stat through Python takes longer than one of Rust.
const PYTHON_STAT_US_MAX: f64 = 3.0;
/// Stats in one piece of work.
const STATS: f64 = 100_000.0;

/// A language, and the work that its program knows.
const PROGRAMS: [(&str, &[&str]); 3] =
    [("Rust", &["read", "stat"]), ("C", &["read", "stat"]), ("Python", &["read", "readinto", "stat"])];

/// A running program.
struct Program {
    language: &'static str,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// The times of one kind of work in one language.
#[derive(Debug)]
struct Row {
    language: &'static str,
    work: &'static str,
    seconds: Vec<f64>,
}

/// Builds the programs, and compares.
///
/// # Errors
/// A missing tool, a failing program, a ratio worse than its limit.
pub(crate) fn execute(root: &Path, options: &Options) -> Result<()> {
    let commands = build(root, &options.profile)?;
    let image = options.dir.join(format!("spinney-bindings-{}.img", std::process::id()));
    let measured = measure(commands, &image, options.rounds.max(1));
    let _ = fs::remove_file(&image);
    let rows = measured?;
    for row in &rows {
        println!(
            "bindings-bench: {}: {}: median {:.4} s of {} rounds",
            row.language,
            row.work,
            median(row),
            options.rounds
        );
    }
    let read = |language| find(&rows, "Rust", "read").and_then(|rust| Ok(rust / find(&rows, language, "read")?));
    let (c, python) = (read("C")?, read("Python")?);
    let into = find(&rows, "Rust", "read")? / find(&rows, "Python", "readinto")?;
    let slower = |language| {
        Ok::<f64, anyhow::Error>((find(&rows, language, "stat")? - find(&rows, "Rust", "stat")?) / STATS * 1e6)
    };
    let (c_stat, python_stat) = (slower("C")?, slower("Python")?);
    println!(
        "bindings-bench: reading 1 GiB in pieces of 1 MiB: C {c:.3} of Rust, Python {python:.3} (readinto {into:.3})"
    );
    println!("bindings-bench: a stat, above Rust's: C {c_stat:+.2} us, Python {python_stat:+.2} us");
    if options.measure {
        return Ok(());
    }
    ensure!(c >= C_RATE_MIN, "reading through C has {c:.3} of the rate of Rust; expected {C_RATE_MIN} or more");
    ensure!(python >= PYTHON_RATE_MIN, "reading through Python has {python:.3}; expected {PYTHON_RATE_MIN} or more");
    ensure!(python_stat <= PYTHON_STAT_US_MAX, "a stat through Python takes {python_stat:.2} us more than Rust's");
    Ok(())
}

/// Builds the three programs; the commands that run them.
fn build(root: &Path, profile: &str) -> Result<[Command; 3]> {
    let words = ["--package", "spinney-capi", "--package", "spinney-python", "--lib", "--example", "speed"];
    run_command(Command::new("cargo").current_dir(root).args(["build", "--locked", "--profile", profile]).args(words))?;
    let built = target_dir(root).join(profile);
    let dir = std::path::absolute(target_dir(root).join("bindings-bench"))?;
    empty_dir(&dir)?;
    let prefix = dir.join("prefix");
    let archive = built.join("libspinney_capi.a");
    run_command(Command::new(root.join("crates/capi/install.sh")).args([&archive, &prefix]))?;
    let program = dir.join("speed");
    let libraries = format!("-L{}/lib", text(&prefix)?);
    let found_at = format!("-Wl,-rpath,{}/lib", text(&prefix)?);
    let headers = format!("-I{}/include", text(&prefix)?);
    let source = root.join("bindings/bench/speed.c");
    let flags = ["-std=c11", "-D_DEFAULT_SOURCE", "-O2", "-o", text(&program)?, text(&source)?];
    run("cc", &[&flags[..], &[&*headers, &libraries, &found_at, "-lspinney"]].concat())?;
    let package = dir.join("package/spinney");
    fs::create_dir_all(&package)?;
    for entry in fs::read_dir(root.join("bindings/python/spinney"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|kind| kind == "py") {
            symlink(&path, package.join(path.file_name().context("a file has a name")?))?;
        }
    }
    let module = std::path::absolute(built.join("lib_spinney.so"))?;
    symlink(&module, package.join("_spinney.abi3.so")).with_context(|| module.display().to_string())?;
    let mut python = Command::new("python3");
    python.arg(root.join("bindings/bench/speed.py")).env("PYTHONPATH", dir.join("package"));
    Ok([Command::new(built.join("examples/speed")), Command::new(program), python])
}

/// Has the programs take turns.
fn measure(commands: [Command; 3], image: &Path, rounds: usize) -> Result<Vec<Row>> {
    let mut programs = Vec::new();
    for ((language, _), command) in PROGRAMS.iter().zip(commands) {
        let mut program = start(language, command, image)?;
        // The first makes the image; each reads it once before the times count.
        program.work("read")?;
        programs.push(program);
    }
    let new_row = |(language, works): &(&'static str, &'static [&'static str])| {
        let language = *language;
        works.iter().map(move |work| Row { language, work, seconds: Vec::new() }).collect::<Vec<_>>()
    };
    let mut rows: Vec<Row> = PROGRAMS.iter().flat_map(new_row).collect();
    for round in 0..rounds {
        for work in ["read", "readinto", "stat"] {
            for turn in 0..programs.len() {
                let index = (round + turn) % programs.len();
                let program = programs.get_mut(index).context("a program for each turn")?;
                let language = program.language;
                let Some(row) = rows.iter_mut().find(|row| row.language == language && row.work == work) else {
                    continue;
                };
                row.seconds.push(program.work(work)?);
            }
        }
    }
    for program in programs {
        program.end()?;
    }
    Ok(rows)
}

fn start(language: &'static str, mut command: Command, image: &Path) -> Result<Program> {
    command.arg(image).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("the program in {language}"))?;
    let (input, output) = (child.stdin.take().context("its input")?, child.stdout.take().context("its output")?);
    Ok(Program { language, child, input, output: BufReader::new(output) })
}

impl Program {
    /// Has the work done once; the seconds that it took.
    fn work(&mut self, work: &str) -> Result<f64> {
        writeln!(self.input, "{work}")?;
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            bail!("the program in {} ended: {}", self.language, self.child.wait()?);
        }
        line.trim().parse().with_context(|| format!("the program in {} said `{line}`", self.language))
    }

    fn end(mut self) -> Result<()> {
        drop(self.input);
        let status = self.child.wait()?;
        ensure!(status.success(), "the program in {}: {status}", self.language);
        Ok(())
    }
}

fn find(rows: &[Row], language: &str, work: &str) -> Result<f64> {
    let row = rows.iter().find(|row| row.language == language && row.work == work);
    Ok(median(row.with_context(|| format!("{work} in {language} was not measured"))?))
}

fn median(row: &Row) -> f64 {
    let mut sorted = row.seconds.clone();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}
