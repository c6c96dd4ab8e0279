//! Runs commands of the system, attaches loop devices, and mounts images; loop devices and mounts need root. Called by
//! nearly all trials.

use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Most retries for a mount that is busy, 100 ms apart: ten seconds.
const UNMOUNT_RETRIES: usize = 100;

/// Runs a command to its end, and returns its output; if it fails, the error has its messages.
pub(crate) fn run<S: AsRef<OsStr>>(program: &str, arguments: &[S]) -> Result<String> {
    let words: Vec<&OsStr> = arguments.iter().map(AsRef::as_ref).collect();
    let output = Command::new(program)
        .args(&words)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{program} cannot be run; is it installed?"))?;
    if !output.status.success() {
        bail!("{program} {words:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Copies an image, with holes where it has zeros.
pub(crate) fn copy_sparse(image: &Path, to: &Path) -> Result<()> {
    run("cp", &[Path::new("--sparse=always"), image, to]).map(drop)
}

/// `btrfs`, or the program named by the environment variable BTRFS.
pub(crate) fn btrfs_program() -> String {
    std::env::var("BTRFS").unwrap_or_else(|_| "btrfs".to_owned())
}

/// `mkfs.btrfs`, or the program named by the environment variable MKFS_BTRFS.
pub(crate) fn mkfs_program() -> String {
    std::env::var("MKFS_BTRFS").unwrap_or_else(|_| "mkfs.btrfs".to_owned())
}

/// Makes an image of `bytes` bytes with `mkfs.btrfs`; `more` are further options of it.
pub(crate) fn make_image(image: &Path, bytes: u64, more: &[&str]) -> Result<()> {
    std::fs::File::create(image)?.set_len(bytes)?;
    run(&mkfs_program(), &[&["-q", "-f"], more, &[&*image.to_string_lossy()]].concat()).map(drop)
}

/// Whether the process may mount: it runs as root.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Most attempts to get a loop device: another process may take the free one first.
const LOOP_ATTEMPTS_MAX: usize = 10;

/// An empty directory to mount `image` at.
fn mount_point(image: &Path) -> Result<PathBuf> {
    let name = image.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let folder = std::env::temp_dir().join(format!("spinney-mount-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// A mounted image; unmounted when dropped.
#[derive(Debug)]
pub(crate) struct Mount {
    folder: PathBuf,
    /// The loop device to detach; `None` if Spinney reads the image itself, or the caller keeps the device.
    device: Option<String>,
    is_mounted: bool,
}

impl Mount {
    /// Mounts `image` with the kernel's btrfs; `options` are `mount -o`'s.
    pub(crate) fn new(image: &Path, options: &str) -> Result<Self> {
        if !is_root() {
            bail!("mounting {} needs root", image.display());
        }
        let read_only = options.split(',').any(|option| option == "ro");
        let device = attach(image, read_only)?;
        let mount = Self { folder: mount_point(image)?, device: Some(device.clone()), is_mounted: false };
        mount.at(&device, options)
    }

    /// Mounts a block device, which the caller keeps, with the kernel's btrfs.
    pub(crate) fn of_device(device: &str, options: &str) -> Result<Self> {
        let mount = Self { folder: mount_point(Path::new(device))?, device: None, is_mounted: false };
        mount.at(device, options)
    }

    fn at(mut self, device: &str, options: &str) -> Result<Self> {
        run("mount", &["-t", "btrfs", "-o", options, device, &self.folder.to_string_lossy()])?;
        self.is_mounted = true;
        Ok(self)
    }

    /// Mounts `image` with the command `mount` of `program`, a `spinney` that was built.
    pub(crate) fn served(program: &Path, image: &Path, options: &str) -> Result<Self> {
        let mut mount = Self { folder: mount_point(image)?, device: None, is_mounted: false };
        let image = image.to_string_lossy();
        let arguments = ["mount", &image, &mount.folder.to_string_lossy(), "-o", options];
        run(&program.to_string_lossy(), &arguments)?;
        mount.is_mounted = true;
        Ok(mount)
    }

    /// The mount point.
    pub(crate) fn path(&self) -> &Path {
        &self.folder
    }

    /// Unmounts, and returns an error if that fails; a drop cannot.
    pub(crate) fn unmount(mut self) -> Result<()> {
        let mut unmounted = run("umount", &[&self.folder]);
        // Another process that reads all mounts of the system may keep one busy for a moment.
        for _ in 0..UNMOUNT_RETRIES {
            if unmounted.is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
            unmounted = run("umount", &[&self.folder]);
        }
        unmounted?;
        self.is_mounted = false;
        Ok(())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let unmounted = !self.is_mounted || run("umount", &[&self.folder]).is_ok();
        let detached = match &self.device {
            Some(device) => run("losetup", &["-d", device]).map(drop),
            None => Ok(()),
        };
        if unmounted {
            // The folder is empty again; leaving it behind does no harm.
            let _ = std::fs::remove_dir(&self.folder);
        }
        if let Err(error) = detached {
            eprintln!("{error:#}");
        }
    }
}

/// A loop device for an image; the caller detaches it.
pub(crate) fn attach(image: &Path, read_only: bool) -> Result<String> {
    attach_with(image, if read_only { &["--read-only"] } else { &[] })
}

/// As [`attach`], for reading a part of an image: not every kernel reads tables of partitions.
pub(crate) fn attach_part(image: &Path, start: u64, bytes: u64) -> Result<String> {
    let (start, bytes) = (start.to_string(), bytes.to_string());
    attach_with(image, &["--read-only", "--offset", &start, "--sizelimit", &bytes])
}

fn attach_with(image: &Path, options: &[&str]) -> Result<String> {
    let path = image.to_string_lossy();
    let mut arguments = vec!["--find", "--show"];
    arguments.extend(options);
    arguments.push(&path);
    let mut attempt = 1;
    loop {
        match run("losetup", &arguments) {
            Ok(output) => return Ok(output.trim().to_owned()),
            Err(error) if attempt == LOOP_ATTEMPTS_MAX => return Err(error),
            Err(_) => attempt = attempt.saturating_add(1),
        }
    }
}
