//! Compiles for other systems, without linking: `cargo xtask portable`. With `--run` the examples of the library are
//! also built for Windows, and used under wine.
//!
//! [`TARGETS`] says which packages each system has. Parts of these that need Linux are left out by `cfg`, or return an
//! error that says so. The C of dependencies is compiled, too. Fails with the first package that does not compile.
//! Called by `main`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::cross::Cross;
use crate::system::{empty_dir, is_installed, run_command, target_dir};

/// Options of the check.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only this target; may be given several times
    #[arg(long = "target")]
    targets: Vec<String>,
    /// Also use the library for Windows under wine. Needs wine and mingw-w64
    #[arg(long)]
    run: bool,
}

/// Targets, and the packages that have to compile for them with all that they depend on.
const TARGETS: &[(&str, &[&str])] = &[
    ("aarch64-unknown-linux-musl", &["spinney", "spinney-cli", "spinney-capi"]),
    // The program lacks mounts, servers and `run` there.
    ("aarch64-apple-darwin", &["spinney", "spinney-cli"]),
    ("x86_64-unknown-freebsd", &["spinney", "spinney-cli"]),
    // The program works with files of the host as Unix has them.
    (WINDOWS, &["spinney"]),
];

const WINDOWS: &str = "x86_64-pc-windows-gnu";
const WINDOWS_LINKER: &str = "x86_64-w64-mingw32-gcc";
const WINE: &str = "wine64";

/// Examples of the library that are run on Windows, with their arguments, and a part of what each prints.
const EXAMPLES: &[(&str, &[&str], &str)] = &[
    ("make_image", &["example.img"], "588890 bytes of numbers"),
    ("list", &["example.img"], "letters"),
    ("snapshot", &["example.img"], "the clone is equal to it: true"),
    ("backup", &["example.img", "work", "copy.img", "restored"], "restored to"),
    ("check", &["copy.img"], "0 errors, "),
    ("test_fixture", &[], ""),
];

/// Checks the packages for each target.
///
/// # Errors
/// A missing tool, or a package that does not compile.
pub(crate) fn execute(root: &Path, options: &Options) -> Result<()> {
    for (target, packages) in TARGETS {
        if !options.targets.is_empty() && !options.targets.iter().any(|wanted| wanted == target) {
            continue;
        }
        let cross = Cross::prepare(root, target)?;
        // The C is not run, so it need not be fast.
        let mut words = vec!["check", "--quiet", "--config", "profile.dev.package.\"*\".opt-level=0"];
        words.extend(packages.iter().flat_map(|package| ["--package", package]));
        run_command(&mut cross.cargo(&words)).with_context(|| (*target).to_owned())?;
        println!("portable: {target}: {}", packages.join(", "));
    }
    if options.run { run_on_windows(root) } else { Ok(()) }
}

/// Builds examples for Windows, and uses them under wine.
fn run_on_windows(root: &Path) -> Result<()> {
    if !is_installed(WINE) || !is_installed(WINDOWS_LINKER) {
        println!("portable: SKIPPED: running needs {WINE} (wine64) and {WINDOWS_LINKER} (gcc-mingw-w64-x86-64)");
        return Ok(());
    }
    let mut cross = Cross::prepare(root, WINDOWS)?;
    cross.add_linker(WINDOWS_LINKER);
    let mut words = vec!["build", "--quiet", "--package", "spinney"];
    words.extend(EXAMPLES.iter().flat_map(|(example, ..)| ["--example", example]));
    run_command(&mut cross.cargo(&words))?;
    let built = std::path::absolute(target_dir(root).join(WINDOWS).join("debug/examples"))?;
    let dir = std::path::absolute(target_dir(root).join("wine"))?;
    empty_dir(&dir)?;
    for (example, words, expected) in EXAMPLES {
        let mut wine = Command::new(WINE);
        wine.arg(built.join(format!("{example}.exe"))).args(*words).current_dir(&dir);
        wine.env("WINEPREFIX", dir.join("prefix")).env("WINEDEBUG", "-all");
        let said = run_command(&mut wine)?;
        ensure!(said.contains(expected), "{example}: expected `{expected}`, said `{said}`");
        println!("portable: {WINDOWS}: {example}: {}", said.lines().last().unwrap_or_default().trim_end());
    }
    Ok(std::fs::remove_dir_all(&dir)?)
}
