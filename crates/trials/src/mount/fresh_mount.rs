//! Makes a fresh image, has the program mount it, and checks it after unmounting. Called by `checks`, `kill`, `tree`
//! and the other trials of mounts.

use crate::formats::Kind;
use crate::system;
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// Message of `spinney umount` if the volume has no space for data that the kernel had taken.
const LACKS_ROOM: &str = "unmounted, but not everything written there is in the image: No space left on device";

/// Longest time for a mount to disappear after its server was killed.
const GONE_MAX: Duration = Duration::from_secs(10);

/// A mount by `spinney mount`. Dropping it unmounts in any state.
#[derive(Debug)]
pub(super) struct Served {
    program: PathBuf,
    kind: Kind,
    image: PathBuf,
    dir: PathBuf,
    options: String,
    is_mounted: bool,
}

impl Served {
    /// Makes a btrfs image of `bytes` and mounts it on `dir`, which is created if it is missing.
    pub(super) fn fresh(program: &Path, image: &Path, dir: &Path, bytes: u64, options: &str) -> Result<Self> {
        Self::fresh_of(Kind::Btrfs, program, image, dir, bytes, options)
    }

    /// The same for an image of any format.
    pub(super) fn fresh_of(
        kind: Kind,
        program: &Path,
        image: &Path,
        dir: &Path,
        bytes: u64,
        options: &str,
    ) -> Result<Self> {
        let _ = std::fs::remove_file(image);
        make_image(kind, program, image, bytes)?;
        Self::of(kind, program, image, dir, options)
    }

    /// Mounts an image on `dir`, which is created if it is missing.
    pub(super) fn of(kind: Kind, program: &Path, image: &Path, dir: &Path, options: &str) -> Result<Self> {
        ensure!(system::is_root(), "mounting with all options needs root");
        std::fs::create_dir_all(dir)?;
        let mut served = Self {
            program: found(program)?,
            kind,
            image: image.to_owned(),
            dir: dir.canonicalize()?,
            options: options.to_owned(),
            is_mounted: false,
        };
        served.mount()?;
        Ok(served)
    }

    fn mount(&mut self) -> Result<()> {
        run(&mut self.mount_command())?;
        self.is_mounted = true;
        Ok(())
    }

    fn mount_command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["mount", "-o", &self.options]);
        command.arg(&self.image).arg(&self.dir);
        command
    }

    /// The mount point.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Its image.
    pub(super) fn image(&self) -> &Path {
        &self.image
    }

    /// A line for a shell that unmounts and mounts again.
    pub(super) fn remount_line(&self) -> String {
        format!(
            "'{p}' umount '{d}' && '{p}' mount -o '{o}' '{i}' '{d}'",
            p = self.program.display(),
            d = self.dir.display(),
            o = self.options,
            i = self.image.display(),
        )
    }

    /// The server's peak memory in MiB.
    pub(super) fn peak_mib(&self) -> Option<u64> {
        let server = server_of(&self.image)?;
        let status = std::fs::read_to_string(format!("/proc/{server}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        let kib: u64 = line.trim().trim_end_matches(" kB").trim().parse().ok()?;
        Some(kib / 1024)
    }

    /// Unmounts, and runs the checker of the format on the image.
    pub(super) fn unmount_and_check(mut self) -> Result<()> {
        self.unmount()?;
        self.check()
    }

    /// The same if the kernel may have taken data without space: true if `spinney umount` says so, as it should.
    pub(super) fn unmount_full_and_check(mut self) -> Result<bool> {
        let lacks = match self.unmount() {
            Err(error) if error.to_string().contains(LACKS_ROOM) => true,
            unmounted => unmounted.map(|()| false)?,
        };
        self.check()?;
        Ok(lacks)
    }

    fn check(&self) -> Result<()> {
        match self.kind.check(&self.image)? {
            None => Ok(()),
            Some(problem) => bail!("after unmounting: {}: {problem}", self.kind.judge()),
        }
    }

    /// The mount is gone already, or being removed.
    pub(super) fn given_up(mut self) {
        self.is_mounted = false;
    }

    /// Unmounts and waits for the image.
    pub(super) fn unmount(&mut self) -> Result<()> {
        self.is_mounted = false;
        run(Command::new(&self.program).arg("umount").arg(&self.dir))
    }
}

/// Makes a file system of `bytes` in a file, which is created if it is missing.
pub(super) fn make_image(kind: Kind, program: &Path, image: &Path, bytes: u64) -> Result<()> {
    let size = bytes.to_string();
    let mut command = Command::new(found(program)?);
    run(command.args(["mkfs", "-q", "--size", &size]).args(kind.mkfs_words()).arg(image))
}

fn found(program: &Path) -> Result<PathBuf> {
    program.canonicalize().with_context(|| format!("{}: build it first", program.display()))
}

/// The process that serves an image.
pub(super) fn server_of(image: &Path) -> Option<i32> {
    let image = image.to_string_lossy();
    let server = std::fs::read_dir("/proc").ok()?.flatten().find(|entry| {
        let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
        words.contains(&b"server".as_slice()) && words.contains(&image.as_bytes())
    })?;
    server.file_name().to_str()?.parse().ok()
}

/// Waits until the mount is gone and the image is free.
pub(super) fn wait_until_gone(dir: &Path, image: &Path) -> Result<()> {
    let start = Instant::now();
    let line = format!(" {} fuse", dir.display());
    while std::fs::read_to_string("/proc/mounts")?.contains(&line) || server_of(image).is_some() {
        ensure!(start.elapsed() < GONE_MAX, "{} is still mounted after its server was killed", dir.display());
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

impl Drop for Served {
    fn drop(&mut self) {
        if self.is_mounted {
            // A failed program may still use it, or the server may be dead.
            let _ = run(Command::new("umount").arg("-l").arg(&self.dir));
        }
    }
}

/// Runs a command to its end; its output is the error.
pub(super) fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("{:?} cannot be run", command.get_program()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        bail!("{command:?}: {}: {}", output.status, said.trim());
    }
    Ok(())
}
