//! Makes systems in directories: each begins as a copy of one that `debootstrap` made, and is removed when it is
//! dropped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::system::{empty_dir, run, run_command, text};

/// A root directory with a small system.
#[derive(Debug)]
pub(super) struct System {
    root: PathBuf,
}

impl System {
    /// A fresh copy of Debian with some packages besides those that are required.
    ///
    /// # Errors
    /// Those of debootstrap, which needs the archive of Debian.
    pub(super) fn debian(dir: &Path, suite: &str, name: &str, packages: &[&str]) -> Result<Self> {
        let base = dir.join(format!("base-{suite}-{name}"));
        if !base.exists() {
            // A system that was begun has another name: it would be taken for a whole one the next time.
            let begun = dir.join(format!("begun-{suite}-{name}"));
            empty_dir(&begun)?;
            let include = format!("--include={}", [&["ca-certificates"], packages].concat().join(","));
            run("debootstrap", &["--variant=minbase", &include, suite, text(&begun)?])?;
            // The list of packages is fetched here, not in the time that is measured.
            fs::copy("/etc/resolv.conf", begun.join("etc/resolv.conf"))?;
            run("chroot", &[text(&begun)?, "apt-get", "update", "-qq"])?;
            fs::rename(&begun, &base)?;
        }
        Self::copied(dir, &base, name)
    }

    fn copied(dir: &Path, base: &Path, name: &str) -> Result<Self> {
        let root = dir.join(name);
        empty_dir(&root)?;
        run("cp", &["-a", "--reflink=auto", &format!("{}/.", text(base)?), text(&root)?])?;
        Ok(Self { root })
    }

    /// Debian for another processor, of which nothing has been run: its packages are unpacked.
    ///
    /// # Errors
    /// Those of debootstrap, which needs the archive of Debian.
    pub(super) fn unpacked(dir: &Path, suite: &str, architecture: &str, packages: &[&str]) -> Result<Self> {
        let base = dir.join(format!("base-{suite}-{architecture}"));
        if !base.exists() {
            let begun = dir.join(format!("begun-{suite}-{architecture}"));
            empty_dir(&begun)?;
            let (include, which) = (format!("--include={}", packages.join(",")), format!("--arch={architecture}"));
            run("debootstrap", &["--foreign", "--variant=minbase", &which, &include, suite, text(&begun)?])?;
            for entry in fs::read_dir(begun.join("var/cache/apt/archives"))? {
                let package = entry?.path();
                if package.extension().is_some_and(|kind| kind == "deb") {
                    // A directory of a package must not replace a link such as /lib.
                    let script = "dpkg-deb --fsys-tarfile \"$0\" | tar -C \"$1\" --keep-directory-symlink -xf -";
                    run("sh", &["-c", script, text(&package)?, text(&begun)?])?;
                }
            }
            fs::rename(&begun, &base)?;
        }
        Self::copied(dir, &base, architecture)
    }

    /// An empty directory.
    ///
    /// # Errors
    /// Those of the host.
    pub(super) fn empty(dir: &Path, name: &str) -> Result<Self> {
        let root = dir.join(name);
        empty_dir(&root)?;
        Ok(Self { root })
    }

    /// Its root on the host.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Copies a file of the host to the top.
    pub(super) fn take(&self, file: &Path) -> Result<String> {
        let name = file.file_name().context("a file has a name")?;
        fs::copy(file, self.root.join(name)).with_context(|| file.display().to_string())?;
        Ok(format!("/{}", name.to_string_lossy()))
    }

    /// Runs a command inside, with nothing of the host's environment.
    pub(super) fn run(&self, words: &[&str]) -> Result<String> {
        let mut command = Command::new("chroot");
        command.env_clear().env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.envs([("DEBIAN_FRONTEND", "noninteractive"), ("LC_ALL", "C.UTF-8"), ("HOME", "/root")]);
        run_command(command.arg(&self.root).args(words))
    }

    /// Runs a command inside, and fails if it needs more than `most`.
    pub(super) fn run_within(&self, most: Duration, what: &str, words: &[&str]) -> Result<String> {
        let begun = Instant::now();
        let said = self.run(words)?;
        let taken = begun.elapsed();
        println!("install: {what}: {:.1} s", taken.as_secs_f64());
        ensure!(taken <= most, "{what}: {:.1} s; expected at most {} s", taken.as_secs_f64(), most.as_secs());
        Ok(said)
    }

    /// Fails if there is a compiler.
    pub(super) fn expect_no_compiler(&self) -> Result<()> {
        for compiler in ["cc", "gcc", "clang", "tcc", "rustc"] {
            ensure!(!self.root.join("usr/bin").join(compiler).exists(), "{compiler} is installed");
        }
        Ok(())
    }

    /// Makes an image with a file at the top by `mkfs.btrfs`.
    pub(super) fn make_image(&self) -> Result<()> {
        let source = self.root.join("source");
        fs::create_dir_all(source.join("docs"))?;
        fs::write(source.join("docs/page"), "by mkfs.btrfs\n")?;
        let image = self.root.join("site.img");
        run("truncate", &["-s", "256M", text(&image)?])?;
        run("mkfs.btrfs", &["-q", "--rootdir", text(&source)?, text(&image)?])?;
        Ok(fs::remove_dir_all(&source)?)
    }

    /// Has the programs of the host judge the image that was changed inside.
    pub(super) fn judge_image(&self) -> Result<()> {
        let image = self.root.join("site.img");
        run("btrfs", &["check", "--check-data-csum", text(&image)?]).map(|_| ())
    }
}

impl Drop for System {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}
