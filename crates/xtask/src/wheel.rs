//! Makes the wheel of the Python package, and uses it from an environment without a
//! compiler. Called by `cargo xtask wheel`.
//!
//! Needs `maturin`, and for wheels that run on all hosts since glibc 2.17 also `ziglang`: both are packages of pip.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::system::run;

/// Options of the wheel.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The target, such as `x86_64-unknown-linux-gnu`: the wheel is built by zig for hosts since glibc 2.17. Without it
    /// the wheel is for this host and those with its glibc.
    #[arg(long)]
    target: Option<String>,
    /// Where the wheel goes.
    #[arg(long, default_value = "bindings/python/dist")]
    dir: PathBuf,
}

/// The folder of the package.
const PACKAGE: &str = "bindings/python";

/// Most bytes of a wheel.
const WHEEL_BYTES_MAX: u64 = 10 << 20;

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
    std::env::set_current_dir(root)?;
    let dir = std::path::absolute(&options.dir)?;
    if dir.exists() {
        fs::remove_dir_all(&dir)?;
    }
    let mut words = vec!["build", "--out", text(&dir)?];
    if let Some(target) = &options.target {
        words.extend(["--zig", "--target", target, "--compatibility", "manylinux2014"]);
    }
    std::env::set_current_dir(PACKAGE)?;
    run("maturin", &words)?;
    let wheel = fs::read_dir(&dir)?.next().context("maturin made no wheel")??.path();
    let bytes = wheel.metadata()?.len();
    println!("wheel: {}, {bytes} bytes", wheel.display());
    ensure!(bytes <= WHEEL_BYTES_MAX, "the wheel has {bytes} bytes: expected at most {WHEEL_BYTES_MAX}");
    use_it(&wheel, &dir.join("environment"), options)
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
    fs::remove_dir_all(dir)?;
    Ok(())
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{}: not UTF-8", path.display()))
}
