//! Builds the program as one file that needs no library of the system: `cargo xtask static`. Then uses it in a
//! directory that holds nothing else, and mounts with it.
//!
//! Invariants that are checked: no interpreter, no shared library, no symbols, no path of this machine, at most
//! [`BYTES_MAX`] bytes. The program brings its allocator (mimalloc), so that musl's, which is slow for several threads,
//! serves only the C parts. Called by `main` and `release`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::cross::Cross;
use crate::system::{empty_dir, is_installed, is_root, run, run_command, target_dir, text};

/// Options of the static program.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Target: x86_64-unknown-linux-musl or aarch64-unknown-linux-musl; this machine's processor if none is given
    #[arg(long)]
    target: Option<String>,
    /// Check this program instead of building one
    #[arg(long, value_name = "PROGRAM")]
    check: Option<PathBuf>,
}

/// Most bytes of the program.
const BYTES_MAX: u64 = 16 << 20;

/// Builds the program, and checks it.
///
/// # Errors
/// A missing tool, a failing build, a program that breaks an invariant or does not work.
pub(crate) fn execute(root: &Path, options: &Options) -> Result<()> {
    let target = options.target.clone().unwrap_or_else(native_target);
    let program = match &options.check {
        Some(program) => program.clone(),
        None => build(root, &target)?,
    };
    check(root, &program, &target)
}

/// The target with musl for this machine's processor.
pub(crate) fn native_target() -> String {
    format!("{}-unknown-linux-musl", std::env::consts::ARCH)
}

/// Builds the program for a target; the result is its path.
pub(crate) fn build(root: &Path, target: &str) -> Result<PathBuf> {
    let mut cross = Cross::prepare(root, target)?;
    cross.add_flag("-Cforce-unwind-tables=no");
    let mut cargo = cross.cargo(&["rustc", "--profile", "static", "--package", "spinney-cli", "--bin", "spinney"]);
    cargo.arg("--");
    if cross.uses_rust_lld() {
        cargo.arg("-Clink-arg=--pack-dyn-relocs=relr");
    } else {
        let script = root.join("packaging/static.ld");
        cargo.args(["-Clink-arg=-Wl,-z,pack-relative-relocs", "-Clink-arg=-Wl,--no-eh-frame-hdr"]);
        cargo.arg(format!("-Clink-arg=-Wl,-T,{}", script.display()));
    }
    run_command(&mut cargo)?;
    Ok(path(root, target))
}

/// Where the program of a target is built.
pub(crate) fn path(root: &Path, target: &str) -> PathBuf {
    target_dir(root).join(target).join("static/spinney")
}

/// Checks the form of a program, and uses it where this machine can run it.
pub(crate) fn check(root: &Path, program: &Path, target: &str) -> Result<()> {
    let bytes = program.metadata().with_context(|| program.display().to_string())?.len();
    ensure!(bytes <= BYTES_MAX, "{}: {bytes} bytes; expected at most {BYTES_MAX}", program.display());
    let form = run("readelf", &["-lSdW", text(program)?])?;
    for (word, meaning) in [("INTERP", "an interpreter"), ("(NEEDED)", "a shared library"), (".symtab", "symbols")] {
        ensure!(!form.contains(word), "{}: has {meaning}", program.display());
    }
    let content = fs::read(program)?;
    let own = text(root)?.as_bytes();
    let has_path = content.windows(own.len()).any(|window| window == own);
    ensure!(!has_path, "{}: contains the path {}", program.display(), root.display());
    println!("static: {}, {bytes} bytes", program.display());
    if target != native_target() {
        return use_emulated(root, program, target);
    }
    let dir = std::path::absolute(target_dir(root).join("static-check"))?;
    empty_dir(&dir)?;
    use_alone(program, &dir)?;
    if Path::new("/dev/fuse").exists() {
        mount(&dir)?;
    } else {
        println!("static: SKIPPED: mounting needs /dev/fuse");
    }
    Ok(fs::remove_dir_all(&dir)?)
}

/// Makes, fills, reads and checks an image with a program for another processor, which `qemu-user-static` emulates.
fn use_emulated(root: &Path, program: &Path, target: &str) -> Result<()> {
    let architecture = target.split('-').next().unwrap_or(target);
    let emulator = format!("qemu-{architecture}-static");
    if !is_installed(&emulator) {
        println!("static: SKIPPED: running it needs another processor, or {emulator} (qemu-user-static)");
        return Ok(());
    }
    let dir = std::path::absolute(target_dir(root).join("static-emulated"))?;
    empty_dir(&dir)?;
    fs::create_dir(dir.join("site"))?;
    fs::write(dir.join("site/index.html"), "<h1>Welcome</h1>\n")?;
    let path = |name: &str| dir.join(name).display().to_string();
    let emulated = |words: &[&str]| run(&emulator, &[&[text(program)?], words].concat());
    for format in ["btrfs", "f2fs"] {
        let image = path(&format!("{format}.img"));
        emulated(&["mkfs", "-q", "-t", format, "--rootdir", &path("site"), "--size", "256M", &image])?;
        let listed = emulated(&["ls", &image])?;
        ensure!(listed.trim() == "index.html", "{format}: expected `index.html`, listed `{listed}`");
        emulated(&["put", "-q", text(program)?, &format!("{image}:/program")])?;
        emulated(&["get", "-q", &format!("{image}:/program"), &path("got")])?;
        ensure!(fs::read(dir.join("got"))? == fs::read(program)?, "{format}: a file came back changed");
        fs::remove_file(dir.join("got"))?;
        emulated(&["check", "--data", &image])?;
    }
    println!("static: made, filled, read and checked images of btrfs and f2fs under {emulator}");
    Ok(fs::remove_dir_all(&dir)?)
}

/// Makes, fills, reads and checks images with the program as the only file of its root.
fn use_alone(program: &Path, dir: &Path) -> Result<()> {
    fs::copy(program, dir.join("spinney"))?;
    fs::create_dir(dir.join("site"))?;
    fs::write(dir.join("site/index.html"), "<h1>Welcome</h1>\n")?;
    let alone = |words: &[&str]| -> Result<String> {
        let jail = [text(dir)?, "/spinney"];
        if is_root() {
            run("chroot", &[&jail[..], words].concat())
        } else {
            run("unshare", &[&["--user", "--map-root-user", "chroot"], &jail[..], words].concat())
        }
    };
    for format in ["btrfs", "f2fs"] {
        let image = format!("/{format}.img");
        alone(&["mkfs", "-q", "-t", format, "--rootdir", "/site", "--size", "256M", &image])?;
        let listed = alone(&["ls", &image])?;
        ensure!(listed.trim() == "index.html", "{format}: expected `index.html`, listed `{listed}`");
        alone(&["put", "-q", "/spinney", &format!("{image}:/program")])?;
        alone(&["get", "-q", &format!("{image}:/program"), "/got"])?;
        ensure!(fs::read(dir.join("got"))? == fs::read(program)?, "{format}: a file came back changed");
        fs::remove_file(dir.join("got"))?;
        alone(&["check", "--data", &image])?;
    }
    println!("static: made, filled, read and checked images of btrfs and f2fs in a root without other files");
    Ok(())
}

/// Mounts the image that was made, with the host's `fusermount3` or as root.
fn mount(dir: &Path) -> Result<()> {
    let (program, at) = (dir.join("spinney"), dir.join("mounted"));
    fs::create_dir(&at)?;
    run(text(&program)?, &["mount", text(&dir.join("btrfs.img"))?, text(&at)?])?;
    let written = fs::write(at.join("news"), "news\n").and_then(|()| fs::read(at.join("index.html")));
    run(text(&program)?, &["umount", text(&at)?])?;
    ensure!(written? == b"<h1>Welcome</h1>\n", "the mounted file has other contents");
    let news = run(text(&program)?, &["cat", &format!("{}:/news", text(&dir.join("btrfs.img"))?)])?;
    ensure!(news == "news\n", "the file written on the mount has other contents: `{news}`");
    println!("static: mounted, written and unmounted");
    Ok(())
}
