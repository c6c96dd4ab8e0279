//! Uses the wheel and the static program for ARM on a Debian system for ARM, whose processor `qemu-user-static`
//! emulates. Nothing is installed there by its own tools: packages and wheel are unpacked.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use super::system::System;
use super::uses::{TEN_LINES, file_with};
use crate::system::{is_installed, run, text};

const EMULATOR: &str = "qemu-aarch64-static";
/// The emulator, inside.
const INSIDE: &str = "/qemu";

/// Runs the ten lines of Python, and the program that the wheel brings.
pub(super) fn start(dir: &Path, suite: &str, wheels: &Path) -> Result<()> {
    if !is_installed(EMULATOR) {
        println!("install: arm: SKIPPED: needs {EMULATOR} (qemu-user-static)");
        return Ok(());
    }
    let wheel = file_with(wheels, |name| name.ends_with("aarch64.whl"));
    let Ok(wheel) = wheel else {
        println!("install: arm: SKIPPED: `cargo xtask wheel --target aarch64-unknown-linux-gnu` makes the wheel");
        return Ok(());
    };
    let system = System::unpacked(dir, suite, "arm64", &["python3"])?;
    let emulator = run("sh", &["-c", &format!("command -v {EMULATOR}")])?;
    fs::copy(emulator.trim(), system.root().join("qemu")).context(EMULATOR)?;
    run("python3", &["-m", "zipfile", "-e", text(&wheel)?, text(&system.root().join("wheel"))?])?;
    system.make_image()?;
    let python = [INSIDE, "-E", "PYTHONPATH=/wheel", "-E", "PYTHONDONTWRITEBYTECODE=1", "/usr/bin/python3"];
    print!("install: arm: {}", system.run(&[&python[..], &["-c", TEN_LINES]].concat())?);
    system.judge_image()?;
    let parts = fs::read_dir(system.root().join("wheel"))?.filter_map(Result::ok);
    let program = parts.map(|part| part.path().join("scripts/spinney")).find(|path| path.exists());
    let Some(program) = program else { return Ok(()) };
    fs::copy(program, system.root().join("spinney"))?;
    let listed = system.run(&[INSIDE, "/spinney", "ls", "/site.img"])?;
    ensure!(listed.contains("monday"), "expected the snapshot `monday`, listed `{listed}`");
    println!("install: arm: the program of the wheel works");
    Ok(())
}
