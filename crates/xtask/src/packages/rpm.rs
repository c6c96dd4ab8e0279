//! Makes the packages for Fedora and openSUSE with `rpmbuild`: `spinney`, and `libspinney0` with `spinney-devel` if the
//! C library was built. Then verifies, lists and unpacks them, and runs the unpacked program. Called by `main` and
//! `release`.
//!
//! `payload` prepares all files before `rpmbuild` runs, so the scripts of `rpmbuild` that strip, compress and
//! byte-compile files are switched off.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::payload::{self, Places, Sources, licences, place};
use crate::system::{empty_dir, run, run_command, source_date, text, version};

/// Options of the packages.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The program, built for release
    #[arg(long, default_value = "target/release/spinney")]
    program: PathBuf,
    /// The library for C as a static archive; if it exists, its packages are built, too
    #[arg(long, default_value = "target/library/libspinney_capi.a")]
    library: PathBuf,
    /// Directory of the packages
    #[arg(long, default_value = "target/rpm")]
    dir: PathBuf,
}

/// Macros that make `rpmbuild` pack the files unchanged, with the time of the sources.
const MACROS: &[&str] = &[
    "debug_package %{nil}",
    "__os_install_post %{nil}",
    "_build_id_links none",
    "_buildhost localhost",
    "use_source_date_epoch_as_buildtime 1",
    "clamp_mtime_to_source_date_epoch 1",
    "_binary_payload w6T1.xzdio",
];

/// Packages: name, summary, and further lines of the preamble.
const PACKAGES: &[(&str, &str, &str)] = &[
    ("spinney", "btrfs and f2fs images without root", "Recommends: fuse3\n"),
    ("libspinney0", "btrfs and f2fs images without root: library", ""),
    (
        "spinney-devel",
        "btrfs and f2fs images without root: development files",
        "Requires: libspinney0 = %{version}-%{release}\n",
    ),
];

const DESCRIPTION: &str = "\
Spinney makes, reads, changes, checks, repairs and mounts images of btrfs and
f2fs in user space, with code of its own: neither root nor a driver of the
kernel is needed.
";

/// Makes the packages, and checks them.
///
/// # Errors
/// A file or tool is missing, or a package fails its checks.
pub(crate) fn execute(root: &Path, options: &Options) -> Result<()> {
    let sources = Sources {
        root: root.to_path_buf(),
        program: options.program.clone(),
        archive: payload::find_archive("rpm", &options.library),
        version: version(root)?,
    };
    for package in make(&sources, &options.dir, &source_date(root)?)? {
        println!("rpm: {}, {} bytes", package.display(), package.metadata()?.len());
        check(&package, &options.dir.join("unpacked"))?;
    }
    Ok(())
}

/// Makes the packages; the program's is the first.
pub(crate) fn make(sources: &Sources, dir: &Path, date: &str) -> Result<Vec<PathBuf>> {
    let top = std::path::absolute(dir)?;
    let trees = top.join("trees");
    empty_dir(&trees)?;
    let places = Places {
        libdir: "lib64".to_owned(),
        completions: [
            ("bash", "usr/share/bash-completion/completions/spinney"),
            ("zsh", "usr/share/zsh/site-functions/_spinney"),
            ("fish", "usr/share/fish/vendor_completions.d/spinney.fish"),
        ],
    };
    payload::lay_out_program(sources, &places, &trees.join("spinney"))?;
    let mut packages = PACKAGES.get(..1).context("a package of the program")?;
    if sources.archive.is_some() {
        payload::lay_out_library(sources, &places, &trees.join("libspinney0"), &trees.join("spinney-devel"))?;
        packages = PACKAGES;
    }
    for (name, ..) in packages {
        let licence = place(&trees.join(name), &format!("usr/share/licenses/{name}/LICENSE"))?;
        fs::write(licence, licences(&sources.root)?)?;
        payload::settle(&trees.join(name), date)?;
    }
    let spec = top.join("spinney.spec");
    fs::write(&spec, write_spec(&sources.version, packages, &trees)?)?;
    let mut rpmbuild = Command::new("rpmbuild");
    rpmbuild.args(["-bb", "--quiet"]).env("SOURCE_DATE_EPOCH", date).env("LC_ALL", "C");
    rpmbuild.args(["--define", &format!("_topdir {}", top.join("build").display())]);
    rpmbuild.args(["--define", &format!("_rpmdir {}", top.display())]);
    rpmbuild.args(["--define", "_rpmfilename %{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm"]);
    for line in MACROS {
        rpmbuild.args(["--define", line]);
    }
    run_command(rpmbuild.arg(&spec))?;
    let architecture = std::env::consts::ARCH;
    Ok(packages.iter().map(|(name, ..)| dir.join(format!("{name}-{}-1.{architecture}.rpm", sources.version))).collect())
}

/// The spec file. It copies the prepared trees, and lists every file.
fn write_spec(version: &str, packages: &[(&str, &str, &str)], trees: &Path) -> Result<String> {
    let mut spec = String::new();
    let (mut files, mut copies) = (String::new(), String::new());
    for (name, summary, lines) in packages {
        let is_main = *name == "spinney";
        if is_main {
            writeln!(spec, "Name: spinney\nVersion: {version}\nRelease: 1\nLicense: MIT OR Apache-2.0")?;
        } else {
            writeln!(spec, "%package -n {name}")?;
        }
        writeln!(spec, "Summary: {summary}\n{lines}")?;
        writeln!(spec, "%description{}\n{DESCRIPTION}", if is_main { String::new() } else { format!(" -n {name}") })?;
        writeln!(copies, "cp -a {}/. %{{buildroot}}/", trees.join(name).display())?;
        writeln!(files, "%files{}", if is_main { String::new() } else { format!(" -n {name}") })?;
        files.push_str("%defattr(-,root,root,-)\n");
        files.push_str(&list_files(&trees.join(name))?);
        if *name == "libspinney0" {
            files.push_str("%post -n libspinney0 -p /sbin/ldconfig\n%postun -n libspinney0 -p /sbin/ldconfig\n");
        }
    }
    writeln!(spec, "%install\n{copies}\n{files}")?;
    Ok(spec)
}

/// The lines of the section `%files`, sorted by name.
fn list_files(tree: &Path) -> Result<String> {
    let mut lines = Vec::new();
    for entry in walkdir::WalkDir::new(tree).sort_by_file_name() {
        let entry = entry?;
        let path = entry.path().strip_prefix(tree)?;
        if !entry.file_type().is_dir() {
            let kind = match path.components().nth(2).and_then(|part| part.as_os_str().to_str()) {
                Some("licenses") => "%license ",
                Some("doc" | "man") => "%doc ",
                _ => "",
            };
            lines.push(format!("{kind}/{}\n", path.display()));
        }
    }
    for dir in ["usr/libexec/spinney"].iter().filter(|dir| tree.join(dir).is_dir()) {
        lines.push(format!("%dir /{dir}\n"));
    }
    Ok(lines.concat())
}

/// Verifies the digests of a package, lists and unpacks it, and runs its program if it has one.
fn check(package: &Path, dir: &Path) -> Result<()> {
    let verified = run("rpm", &["-K", "--nosignature", text(package)?])?;
    ensure!(verified.contains("digests OK"), "{verified}");
    let listed = run("rpm", &["-qpl", text(package)?])?;
    empty_dir(dir)?;
    let script = format!("rpm2cpio {} | cpio --quiet -idm -D {}", text(package)?, text(dir)?);
    run("sh", &["-c", &script])?;
    for line in listed.lines() {
        let path = dir.join(line.trim_start_matches('/'));
        ensure!(path.symlink_metadata().is_ok(), "{line} is listed and was not unpacked");
    }
    let program = dir.join("usr/bin/spinney");
    if program.exists() {
        let image = dir.join("site.img");
        run(text(&program)?, &["mkfs", "-q", "--rootdir", text(&dir.join("usr/share"))?, text(&image)?])?;
        let names = run(text(&program)?, &["ls", text(&image)?])?;
        ensure!(names.lines().any(|name| name == "man"), "expected `man`, listed `{names}`");
    }
    println!("rpm: {}: digests OK, {} files unpacked", package.display(), listed.lines().count());
    Ok(())
}
