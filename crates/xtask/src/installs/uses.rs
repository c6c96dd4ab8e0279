//! Installs the wheel, the static program and the Debian packages on systems without a compiler, and works with each.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::system::System;
use crate::system::text;

/// Longest time from nothing to the first listing.
const FIRST_LISTING: Duration = Duration::from_secs(30);

/// Ten lines of Python on an image of `mkfs.btrfs`: list, read, write, snapshot, check.
pub(super) const TEN_LINES: &str = "\
import spinney
with spinney.open('/site.img', writable=True) as volume:
    assert [path.name for path in volume.root.iterdir()] == ['docs']
    assert (volume / 'docs/page').read_text() == 'by mkfs.btrfs\\n'
    volume.create_subvolume('main')
    (volume / 'main/notes').write_text('by Python\\n')
    volume.snapshot('main', 'monday')
    assert (volume / 'monday' / 'notes').read_text() == 'by Python\\n'
assert spinney.check('/site.img', data=True)
print('spinney', spinney.__version__, 'works')
";

/// Lists the image, as the first thing that is done with an installed wheel.
const LIST: &str = "import spinney; print([str(path) for path in spinney.open('/site.img').root.rglob('*')])";

/// Uses the static program as the only program of a directory.
pub(super) fn static_program(dir: &Path, program: &Path) -> Result<()> {
    let system = System::empty(dir, "empty")?;
    system.make_image()?;
    system.take(program).context("`cargo xtask static` builds the program")?;
    let listed = system.run_within(FIRST_LISTING, "static program: first listing", &["/spinney", "ls", "/site.img"])?;
    ensure!(listed == "docs\n", "expected `docs`, listed `{listed}`");
    work(&system, "/spinney")?;
    println!("install: static program: used in a directory without other programs");
    Ok(())
}

/// Installs the wheel by pip, and runs the ten lines.
pub(super) fn wheel(dir: &Path, suite: &str, wheels: &Path) -> Result<()> {
    let system = System::debian(dir, suite, "python", &["python3-venv"])?;
    system.expect_no_compiler()?;
    system.make_image()?;
    let wheel = system.take(&only_file(wheels, ".whl").context("`cargo xtask wheel` makes the wheel")?)?;
    let script = format!(
        "python3 -m venv /env && /env/bin/pip install --quiet --no-index {wheel} && /env/bin/python -c \"{LIST}\""
    );
    let listed = system.run_within(FIRST_LISTING, "wheel: pip install and first listing", &["sh", "-c", &script])?;
    ensure!(listed.contains("/docs/page"), "expected `/docs/page`, listed `{listed}`");
    print!("install: wheel: {}", system.run(&["/env/bin/python", "-c", TEN_LINES])?);
    system.judge_image()?;
    if system.root().join("env/bin/spinney").exists() {
        system.make_image()?;
        work(&system, "/env/bin/spinney")?;
        println!("install: wheel: the program that it brings works");
    }
    Ok(())
}

/// Installs the packages by apt, uses the program, and then compiles the example in C against the headers.
pub(super) fn packages(dir: &Path, suite: &str, packages: &Path) -> Result<()> {
    let system = System::debian(dir, suite, "packages", &[])?;
    system.expect_no_compiler()?;
    system.make_image()?;
    let mut taken = Vec::new();
    for name in ["spinney_", "libspinney0_", "libspinney-dev_"] {
        let found = file_with(packages, |file| file.starts_with(name) && file.ends_with(".deb"));
        taken.push(system.take(&found.context("`cargo xtask deb` makes the packages")?)?);
    }
    let [program, runtime, development] = &*taken else { return Ok(()) };
    let script = format!("apt-get install -qq -y {program} > /dev/null && spinney ls /site.img");
    let listed = system.run_within(FIRST_LISTING, "packages: apt install and first listing", &["sh", "-c", &script])?;
    ensure!(listed == "docs\n", "expected `docs`, listed `{listed}`");
    work(&system, "spinney")?;
    println!("install: packages: the program works");
    let needs = "gcc libc6-dev pkg-config";
    let script = format!(
        "apt-get install -qq -y --no-install-recommends {runtime} {development} {needs} > /dev/null && \
         cc -Wall -Wextra -Werror -o /made /usr/share/doc/libspinney-dev/examples/make_image.c \
         $(pkg-config --cflags --libs spinney) && /made /made.img && spinney ls /made.img"
    );
    let said = system.run(&["sh", "-c", &script])?;
    ensure!(said.starts_with("7 inodes, 0 errors\n"), "the example printed `{said}`");
    println!("install: packages: the example in C was compiled against the installed headers, and works");
    Ok(())
}

/// Reads, writes, takes a snapshot and checks by the program.
fn work(system: &System, program: &str) -> Result<()> {
    let image = "/site.img";
    let page = system.run(&[program, "cat", image, "docs/page"])?;
    ensure!(page == "by mkfs.btrfs\n", "expected the page, read `{page}`");
    fs::write(system.root().join("notes"), "by the program\n")?;
    system.run(&[program, "subvolume", "create", image, "main"])?;
    system.run(&[program, "put", "-q", "/notes", "/site.img:/main/notes"])?;
    system.run(&[program, "subvolume", "snapshot", image, "main", "monday"])?;
    let notes = system.run(&[program, "cat", image, "monday/notes"])?;
    ensure!(notes == "by the program\n", "expected the notes, read `{notes}`");
    system.run(&[program, "check", "--data", image])?;
    system.judge_image()
}

/// The only file of a directory with this end.
fn only_file(dir: &Path, end: &str) -> Result<PathBuf> {
    file_with(dir, |name| name.ends_with(end))
}

/// The first file of a directory that fits.
pub(super) fn file_with(dir: &Path, fits: impl Fn(&str) -> bool) -> Result<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        if path.file_name().and_then(|name| name.to_str()).is_some_and(&fits) {
            found.push(path);
        }
    }
    found.sort();
    let first = found.into_iter().next().with_context(|| format!("{}: not there", dir.display()))?;
    text(&first)?;
    Ok(first)
}
