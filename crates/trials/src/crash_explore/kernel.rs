//! Passes crash states of btrfs through `btrfs check` and the kernel. Called by `crash_explore`, as a witness of
//! `crash_explorer`.

use crate::diff_walk::record::{Walk, differences};
use crate::diff_walk::{kernel, library};
use crate::system::Mount;
use anyhow::{Context, Result, bail, ensure};
use blockdev::Device;
use btrfs::{TreeId, Volume};
use btrfs_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, UncheckedSuperblock};
use crash_explorer::{Judgement, Witness, store_device};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Directories for images, in order of preference: memory first.
const FOLDERS: &[&str] = &["/dev/shm", "/tmp"];

/// A witness that mounts the image.
#[derive(Debug)]
pub(super) struct Kernel {
    folder: PathBuf,
    number: AtomicU64,
    btrfs: PathBuf,
}

impl Kernel {
    pub(super) fn new(btrfs: Option<PathBuf>) -> Result<Self> {
        let parent = FOLDERS.iter().map(Path::new).find(|folder| folder.is_dir()).context("no folder for images")?;
        let folder = parent.join(format!("spinney-crash-explore-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let btrfs = btrfs.unwrap_or_else(|| testkit::reference::btrfs_program().into());
        Ok(Self { folder, number: AtomicU64::new(0), btrfs })
    }

    /// The kernel's walk of an image, which is mounted only if `btrfs check` finds no error.
    fn by_kernel(&self, image: &Path) -> Result<Walk> {
        self.check(image).context("btrfs check of the state")?;
        let mount = Mount::new(image, "noatime,subvolid=5").context("the kernel's mount")?;
        let walk = kernel::walk(mount.path())?;
        mount.unmount()?;
        Ok(walk)
    }

    /// Spinney's walk of it, followed by `btrfs check` of the image.
    fn by_spinney(&self, device: Arc<dyn Device>, image: &Path) -> Result<Walk> {
        let options = Volume::options().subvolume_id(TreeId::FS);
        options.open_device(Arc::clone(&device))?.close()?;
        store_device(&device, image)?;
        self.check(image).context("btrfs check after the replay")?;
        let volume = options.read_only(true).open_device(device)?;
        library::walk_volume(&volume)
    }

    fn check(&self, image: &Path) -> Result<()> {
        testkit::reference::check_with(&self.btrfs, image)?;
        Ok(())
    }
}

impl Witness for Kernel {
    fn judge(&self, _: &str, device: Arc<dyn Device>) -> Result<Judgement> {
        if !has_whole_superblock(&device)? {
            return Ok(Judgement::CannotSay);
        }
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let image = self.folder.join(format!("{number}.img"));
        store_device(&device, &image)?;
        let kernel = without_times(self.by_kernel(&image)?);
        let ours = without_times(self.by_spinney(device, &image)?);
        let lines = differences(&kernel, &ours);
        if !lines.is_empty() {
            bail!("the kernel shows something else: {}", lines.join("; "));
        }
        ensure!(!kernel.is_empty(), "the kernel shows nothing");
        std::fs::remove_file(&image)?;
        Ok(Judgement::Agrees)
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // Images of failures are kept elsewhere.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The kernel mounts by the primary superblock alone.
fn has_whole_superblock(device: &Arc<dyn Device>) -> Result<bool> {
    let mut bytes = vec![0; SUPERBLOCK_SIZE];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
    Ok(UncheckedSuperblock::new(&bytes).is_ok_and(|unchecked| unchecked.verify(SUPERBLOCK_OFFSET).is_ok()))
}

/// Log replay sets times to the moment of the replay.
fn without_times(mut walk: Walk) -> Walk {
    for record in walk.values_mut() {
        (record.atime, record.mtime, record.ctime) = Default::default();
    }
    walk
}
