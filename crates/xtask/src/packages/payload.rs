//! Copies the files of each package into a directory of its own. [`Places`] has the paths that depend on the
//! distribution. Called by `deb`, `rpm` and `archive`.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::system::{run, run_command, text};

/// The inputs: source tree, built program and built library.
pub(crate) struct Sources {
    /// The top of the source tree.
    pub(crate) root: PathBuf,
    /// The program, built for release.
    pub(crate) program: PathBuf,
    /// The C library as a static archive, if it was built.
    pub(crate) archive: Option<PathBuf>,
    /// Version of the workspace.
    pub(crate) version: String,
}

/// Directories that distributions name differently.
pub(crate) struct Places {
    /// Directory of libraries below `usr`.
    pub(crate) libdir: String,
    /// Shells, and the path of the completion file of each.
    pub(crate) completions: [(&'static str, &'static str); 3],
}

/// Names under which `mount(8)` looks for the helpers of the types `fuse.spinney` and `spinney`.
pub(crate) const MOUNT_LINKS: [&str; 2] = ["mount.fuse.spinney", "mount.spinney"];

/// Directory of the links `mkfs.btrfs`, `mkfs.f2fs` and `sload.f2fs` to the program. It is not in the search path,
/// where these names belong to btrfs-progs and f2fs-tools.
pub(crate) const OTHER_NAMES: &str = "usr/libexec/spinney";

/// Files of `packaging`: source, path in the package, mode.
const FILES: &[(&str, &str, u32)] = &[
    ("spinney-mount@.service", "usr/lib/systemd/system/spinney-mount@.service", 0o644),
    ("spinney-image.desktop", "usr/share/applications/spinney-image.desktop", 0o644),
    ("spinney-image.xml", "usr/share/mime/packages/spinney-image.xml", 0o644),
    ("spinney-open-image", "usr/bin/spinney-open-image", 0o755),
    ("spinney-open-image.1", "usr/share/man/man1/spinney-open-image.1", 0o644),
];

/// Copies the program, its manual pages, completions, links and desktop files.
pub(crate) fn lay_out_program(sources: &Sources, places: &Places, tree: &Path) -> Result<()> {
    let name = text(&sources.program)?;
    let installed = place(tree, "usr/bin/spinney")?;
    fs::copy(&sources.program, &installed)
        .with_context(|| format!("{name}: build it with `cargo build --release -p spinney-cli`"))?;
    run("strip", &["--strip-unneeded", "--remove-section=.comment", text(&installed)?])?;
    set_mode(&installed, 0o755)?;
    for (file, at, mode) in FILES {
        let to = place(tree, at)?;
        fs::copy(sources.root.join("packaging").join(file), &to).with_context(|| (*file).to_owned())?;
        set_mode(&to, *mode)?;
    }
    for link in MOUNT_LINKS {
        symlink("../bin/spinney", place(tree, &format!("usr/sbin/{link}"))?)?;
        symlink("../man1/spinney-mount.1.gz", place(tree, &format!("usr/share/man/man8/{link}.8.gz"))?)?;
    }
    for link in ["mkfs.btrfs", "mkfs.f2fs", "sload.f2fs"] {
        symlink("../../bin/spinney", place(tree, &format!("{OTHER_NAMES}/{link}"))?)?;
    }
    let manual = tree.join("usr/share/man/man1");
    run(name, &["man", "--dir", text(&manual)?])?;
    compress_pages(&manual)?;
    for (shell, at) in places.completions {
        fs::write(place(tree, at)?, run(name, &["completions", shell])?)?;
    }
    Ok(())
}

/// Copies the library: the shared library to `runtime`; headers, static library and examples to `development`.
pub(crate) fn lay_out_library(sources: &Sources, places: &Places, runtime: &Path, development: &Path) -> Result<()> {
    let archive = sources.archive.as_deref().context("no library for C")?;
    let script = sources.root.join("crates/capi/install.sh");
    let tree = std::path::absolute(development)?;
    let words = [text(archive)?, "/usr", &places.libdir];
    run_command(Command::new(&script).args(words).env("DESTDIR", &tree))?;
    let libdir = tree.join("usr").join(&places.libdir);
    run("strip", &["--strip-debug", "--remove-section=.comment", "-D", text(&libdir.join("libspinney.a"))?])?;
    set_mode(&libdir.join("libspinney.a"), 0o644)?;
    compress_pages(&tree.join("usr/share/man/man3"))?;
    let examples = sources.root.join("crates/capi/examples");
    for entry in fs::read_dir(&examples)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "c") {
            let name = path.file_name().context("a file has a name")?.to_string_lossy().into_owned();
            let to = place(&tree, &format!("usr/share/doc/{}/examples/{name}", name_of(development)?))?;
            fs::copy(&path, &to)?;
            set_mode(&to, 0o644)?;
        }
    }
    for entry in fs::read_dir(&libdir)? {
        let path = entry?.path();
        let name = path.file_name().context("a file has a name")?.to_string_lossy().into_owned();
        if name.starts_with("libspinney.so.") {
            let to = place(runtime, &format!("usr/{}/{name}", places.libdir))?;
            fs::rename(&path, &to)?;
            if !to.is_symlink() {
                run("strip", &["--strip-unneeded", "--remove-section=.comment", text(&to)?])?;
                set_mode(&to, 0o644)?;
            }
        }
    }
    Ok(())
}

/// Joins the licences to one text.
pub(crate) fn licences(root: &Path) -> Result<String> {
    let mit = fs::read_to_string(root.join("LICENSE-MIT"))?;
    let apache = fs::read_to_string(root.join("LICENSE-APACHE"))?;
    Ok(format!("{mit}\n{apache}"))
}

/// Returns the path of a file in a tree, and makes its directories.
pub(crate) fn place(tree: &Path, path: &str) -> Result<PathBuf> {
    let path = tree.join(path);
    fs::create_dir_all(path.parent().context("a place in the tree")?)?;
    Ok(path)
}

/// Sets the mode of a file independently of the umask.
pub(crate) fn set_mode(path: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).with_context(|| path.display().to_string())
}

/// Writes a text with gzip, without a time stamp, so that it is reproducible.
pub(crate) fn write_compressed(path: &Path, content: &str) -> Result<()> {
    fs::write(path, content)?;
    run("gzip", &["-9nf", text(path)?])?;
    Ok(())
}

/// Sets the mode of all directories in a tree to 0755, and the time of all its files and directories to `date`.
pub(crate) fn settle(tree: &Path, date: &str) -> Result<()> {
    let all = text(tree)?;
    run("find", &[all, "-type", "d", "-exec", "chmod", "755", "{}", "+"])?;
    run("find", &[all, "-exec", "touch", "--no-dereference", "--date", &format!("@{date}"), "{}", "+"])?;
    Ok(())
}

/// The name of a package: its directory has the same name.
pub(crate) fn name_of(tree: &Path) -> Result<String> {
    let name = tree.file_name().context("a directory of a package")?;
    Ok(name.to_string_lossy().into_owned())
}

/// Returns the path of the static library if it was built; otherwise prints that it is missing.
pub(crate) fn find_archive(who: &str, path: &Path) -> Option<PathBuf> {
    if !path.exists() {
        println!("{who}: without the library for C: {}: not found; `cargo xtask capi` builds it", path.display());
        return None;
    }
    Some(path.to_path_buf())
}

fn compress_pages(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        ensure!(path.extension().is_some_and(|extension| extension != "gz"), "{}: compressed", path.display());
        set_mode(&path, 0o644)?;
        run("gzip", &["-9nf", text(&path)?])?;
    }
    Ok(())
}
