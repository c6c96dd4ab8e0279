//! Makes the wheel of the Python package, and uses it from an environment without a compiler. Called by `cargo xtask
//! wheel` and `release`.
//!
//! With `--program` it brings the program too, so that `pipx install spinney` installs the command `spinney`.
//!
//! Needs `maturin`, and for wheels that run on all hosts since glibc 2.17 also `ziglang`: both are packages of pip.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::packages::payload::{place, set_mode};
use crate::system::{empty_dir, run, run_command, source_date, text};

/// Options of the wheel.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The target, such as `x86_64-unknown-linux-gnu`: the wheel is built by zig for hosts since glibc 2.17. Without it
    /// the wheel is for this host and those with its glibc.
    #[arg(long)]
    target: Option<String>,
    /// A static program (`cargo xtask static`) that the wheel brings as the command `spinney`
    #[arg(long)]
    program: Option<PathBuf>,
    /// Profile of cargo, instead of the package's
    #[arg(long)]
    profile: Option<String>,
    /// Where the wheel goes.
    #[arg(long, default_value = "bindings/python/dist")]
    dir: PathBuf,
}

/// The folder of the package.
const PACKAGE: &str = "bindings/python";

/// Most bytes of a wheel, without and with the program.
const WHEEL_BYTES_MAX: u64 = 10 << 20;
const WITH_PROGRAM_BYTES_MAX: u64 = 20 << 20;

/// Directory, named after the module, whose `scripts` maturin installs as commands.
const DATA: &str = "spinney._spinney.data";

/// Ten lines of Python: list, read, write, snapshot, check.
const TEN_LINES: &str = "\
import spinney, sys
with spinney.make(sys.argv[1], size=128 << 20) as volume:
    volume.create_subvolume('data')
    (volume / 'data/file').write_text('hello')
    volume.snapshot('data', 'snap')
with spinney.open(sys.argv[1]) as volume:
    assert [path.name for path in (volume / 'snap').iterdir()] == ['file']
    assert (volume / 'snap/file').read_text() == 'hello'
assert spinney.check(sys.argv[1], data=True)
print('wheel:', spinney.__version__, 'works')
";

/// Makes the wheel, installs it into an environment of its own and uses it there.
///
/// # Errors
/// A missing tool, a failing build, a wheel that is too large or does not work.
pub(crate) fn execute(root: &Path, options: &Options) -> Result<()> {
    let dir = std::path::absolute(&options.dir)?;
    let mut words = Vec::new();
    if let Some(target) = &options.target {
        words.extend(["--zig", "--target", target, "--compatibility", "manylinux2014"]);
    }
    if let Some(profile) = &options.profile {
        words.extend(["--profile", profile]);
    }
    let wheel = build(root, options.program.as_deref(), &dir, (&words, &source_date(root)?))?;
    let bytes = wheel.metadata()?.len();
    println!("wheel: {}, {bytes} bytes", wheel.display());
    let most = if options.program.is_some() { WITH_PROGRAM_BYTES_MAX } else { WHEEL_BYTES_MAX };
    ensure!(bytes <= most, "the wheel has {bytes} bytes: expected at most {most}");
    use_it(&wheel, &dir.join("environment"), options)
}

/// Makes the wheel for this machine, with the program.
pub(crate) fn make(root: &Path, program: &Path, dir: &Path, date: &str) -> Result<PathBuf> {
    build(root, Some(program), &std::path::absolute(dir)?, (&[], date))
}

/// Builds by maturin, with `words` as further options and `date` as the time of all files.
fn build(root: &Path, program: Option<&Path>, dir: &Path, (words, date): (&[&str], &str)) -> Result<PathBuf> {
    empty_dir(dir)?;
    let package = root.join(PACKAGE);
    let data = package.join(DATA);
    if data.exists() {
        fs::remove_dir_all(&data)?;
    }
    if let Some(program) = program {
        let script = place(&data, "scripts/spinney")?;
        fs::copy(program, &script).with_context(|| program.display().to_string())?;
        set_mode(&script, 0o755)?;
    }
    let mut maturin = Command::new("maturin");
    maturin.current_dir(&package).args(["build", "--out", text(dir)?]).args(words);
    let built = run_command(maturin.env("SOURCE_DATE_EPOCH", date));
    if data.exists() {
        fs::remove_dir_all(&data)?;
    }
    built?;
    Ok(fs::read_dir(dir)?.next().context("maturin made no wheel")??.path())
}

/// Installs the wheel, and runs the ten lines with nothing else in the search path.
fn use_it(wheel: &Path, dir: &Path, options: &Options) -> Result<()> {
    if options.target.as_ref().is_some_and(|target| !target.starts_with(std::env::consts::ARCH)) {
        println!("wheel: SKIPPED: running it needs another machine");
        return Ok(());
    }
    run("python3", &["-m", "venv", text(dir)?])?;
    let (bin, image) = (dir.join("bin"), dir.join("disk.img"));
    run(text(&bin.join("pip"))?, &["install", "--quiet", "--no-index", text(wheel)?])?;
    let path = format!("PATH={}", bin.display());
    print!("{}", run("env", &["-i", &path, "python", "-c", TEN_LINES, text(&image)?])?);
    if options.program.is_some() {
        let listed = run("env", &["-i", &path, "spinney", "ls", text(&image)?])?;
        ensure!(listed.contains("snap"), "expected the snapshot `snap`, listed `{listed}`");
        println!("wheel: the command `spinney` works");
    }
    fs::remove_dir_all(dir)?;
    Ok(())
}
