//! What a power cut leaves of an image that somebody is writing: the image lies on a file system whose files can be
//! copied in no time (XFS, made for this in a file), and a copy is taken.

use crate::diff_walk::kernel;
use crate::diff_walk::record::{Walk, differences};
use crate::system::{Mount, btrfs_program, run as run_program};
use anyhow::{Result, ensure};
use std::path::{Path, PathBuf};

const HOST_BYTES: u64 = 8 << 30;

/// Runs something on such a file system, which is gone afterwards. Needs root, and mkfs.xfs.
pub(crate) fn on_host(dir: &Path, name: &str, work: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let folder = dir.join(format!("spinney-{name}-{}", std::process::id()));
    let host = Host::make(&folder)?;
    let ended = work(&host.top);
    drop(host);
    std::fs::remove_dir_all(&folder)?;
    ended
}

/// A file system whose files are copied in no time.
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

/// Copies an image as it is at this moment.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<()> {
    run_program("cp", &["--reflink=always", &from.to_string_lossy(), &to.to_string_lossy()]).map(drop)
}

/// What the kernel shows, but for where data is.
pub(crate) fn walk(top: &Path) -> Result<Walk> {
    let mut walk = kernel::walk(top)?;
    for record in walk.values_mut() {
        record.extents.clear();
        record.atime = (0, 0);
    }
    Ok(walk)
}

/// `btrfs check` finds no error, and the kernel walks these files.
pub(crate) fn check_same(image: &Path, expected: &Walk) -> Result<()> {
    run_program(&btrfs_program(), &["check", "--check-data-csum", &image.to_string_lossy()])?;
    let mount = Mount::new(image, "ro,noatime")?;
    let found = walk(mount.path())?;
    mount.unmount()?;
    let lines = differences(expected, &found);
    ensure!(lines.is_empty(), "{} differences, the first: {:?}", lines.len(), lines.first());
    Ok(())
}
