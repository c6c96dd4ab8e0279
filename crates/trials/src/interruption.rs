//! Copies images as a power cut leaves them while they are written: the image lies on a file system that copies files
//! instantly (XFS with reflinks, made in a file), and a copy is taken. Called by `balance_resume` and
//! `deletion_resume`.

use crate::diff_walk::kernel;
use crate::diff_walk::record::{Walk, differences};
use crate::system::{Mount, btrfs_program, is_root, run as run_program};
use anyhow::{Result, ensure};
use std::path::{Path, PathBuf};

const HOST_BYTES: u64 = 8 << 30;

/// Options of the trials.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Number of interruptions, of each kind if there are several
    #[arg(long, default_value_t = 20)]
    pub(crate) count: u64,
    /// Seed of the image's files
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Directory for the images
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
}

/// Runs `work` on such a file system, and removes it. Needs root, and mkfs.xfs; skipped without root.
pub(crate) fn on_host(options: &Options, name: &str, work: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if !is_root() {
        println!("{name}: skipped, mounting needs root");
        return Ok(());
    }
    let folder = options.dir.join(format!("spinney-{name}-{}", std::process::id()));
    let host = Host::make(&folder)?;
    let ended = work(&host.top);
    drop(host);
    std::fs::remove_dir_all(&folder)?;
    ended
}

/// A file system that copies files instantly.
struct Host {
    top: PathBuf,
}

impl Host {
    fn make(folder: &Path) -> Result<Self> {
        let top = folder.join("host");
        std::fs::create_dir_all(&top)?;
        let file = folder.join("host.img");
        std::fs::File::create(&file)?.set_len(HOST_BYTES)?;
        run_program("mkfs.xfs", &["-q", "-m", "reflink=1", &file.to_string_lossy()])?;
        run_program("mount", &["-o", "loop", &file.to_string_lossy(), &top.to_string_lossy()])?;
        Ok(Self { top })
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Err(error) = run_program("umount", &[&self.top]) {
            eprintln!("{error:#}");
        }
    }
}

/// Copies an image at this moment.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<()> {
    run_program("cp", &["--reflink=always", &from.to_string_lossy(), &to.to_string_lossy()]).map(drop)
}

/// The kernel's walk, without the positions of data.
pub(crate) fn walk(top: &Path) -> Result<Walk> {
    let mut walk = kernel::walk(top)?;
    for record in walk.values_mut() {
        record.extents.clear();
        record.atime = (0, 0);
    }
    Ok(walk)
}

/// Asserts that `btrfs check` finds no error, and the kernel walks these files.
pub(crate) fn check_same(image: &Path, expected: &Walk) -> Result<()> {
    run_program(&btrfs_program(), &["check", "--check-data-csum", &image.to_string_lossy()])?;
    let mount = Mount::new(image, "ro,noatime")?;
    let found = walk(mount.path())?;
    mount.unmount()?;
    let lines = differences(expected, &found);
    ensure!(lines.is_empty(), "{} differences, the first: {:?}", lines.len(), lines.first());
    Ok(())
}
