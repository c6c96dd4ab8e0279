//! Volumes that are changed: the conformance suite, and random operations compared with the model; `fsck.f2fs` checks
//! the results.
//!
//! `SPINNEY_SEEDS` (default 4), `SPINNEY_OPERATIONS` (2000) and `SPINNEY_SEED` (first seed, 0) set the length of a run;
//! `SPINNEY_KEEP` names a directory in which the images of random operations are kept.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod background;
mod folding;
mod fsync;
mod holes;
mod in_place;
mod life;
mod options;
mod prepared;
mod property;
mod quotas;
mod suite;
mod together;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use blockdev::backends::{FileDevice, FileOptions};
use blockdev::trace::TracingDevice;
use f2fs::{F2fs, MakeOptions, OpenOptions};
use f2fs_disk::flags::Features;
use tempfile::NamedTempFile;
use vfs::Volume;

/// Features of a volume in the tests: all that change the layout of inodes, or none.
const WITH_EXTRA: Features = Features::EXTRA_ATTR
    .union(Features::QUOTA_INO)
    .union(Features::INODE_CHKSUM)
    .union(Features::INODE_CRTIME)
    .union(Features::FLEXIBLE_INLINE_XATTR)
    .union(Features::PRJQUOTA)
    .union(Features::SB_CHKSUM);

fn device(path: &Path) -> Arc<FileDevice> {
    Arc::new(FileDevice::open(path, &FileOptions::default()).unwrap())
}

/// An empty volume.
fn make(path: &Path, size_bytes: u64, options: &MakeOptions) {
    std::fs::File::create(path).unwrap().set_len(size_bytes).unwrap();
    f2fs::make(&*device(path), options).unwrap();
}

fn open(path: &Path) -> Arc<F2fs> {
    Arc::new(OpenOptions::new().writable(true).open(device(path)).unwrap())
}

/// A volume open for writing, its image, and a device that counts its requests.
struct Traced {
    image: NamedTempFile,
    device: Arc<TracingDevice<Arc<FileDevice>>>,
    fs: Arc<F2fs>,
    volume: Volume,
}

impl Traced {
    fn open(image: NamedTempFile, options: OpenOptions) -> Self {
        let device = Arc::new(TracingDevice::counting(device(image.path())));
        let fs = options.writable(true).open(Arc::<TracingDevice<Arc<FileDevice>>>::clone(&device)).unwrap();
        let fs = Arc::new(fs);
        let volume = Volume::new(Arc::<F2fs>::clone(&fs));
        Self { image, device, fs, volume }
    }
}

/// Passes an image through `fsck.f2fs`; false if that is not installed.
fn is_checked(path: &Path) -> Result<bool, String> {
    let Ok(output) = Command::new("fsck.f2fs").arg("--dry-run").arg(path).output() else {
        eprintln!("fsck.f2fs is not installed: skipped (Debian: apt-get install f2fs-tools)");
        return Ok(false);
    };
    let said = String::from_utf8_lossy(&output.stdout);
    let is_wrong = |line: &str| line.contains("[Fail]") || line.contains("[ASSERT]") || line.contains("ERR");
    match output.status.success() && !said.lines().any(is_wrong) {
        true => Ok(true),
        false => Err(format!("fsck.f2fs of {} ({}):\n{said}", path.display(), output.status)),
    }
}

fn check(path: &Path) {
    is_checked(path).unwrap();
}
