//! Checks the image of a cut: with `btrfs check`, the library and, for some, the kernel. Called by `power_cut`.

use super::super::promises::{Ledger, Miss, Mounted, misses};
use crate::formats::Kind;
use crate::system::{self, Mount};
use anyhow::Result;
use blockdev::Device;
use blockdev::backends::{FileDevice, FileOptions};
use btrfs::Volume;
use btrfs_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, UncheckedSuperblock};
use crash_explorer::{ImageDevice, store_device};
use std::path::Path;
use std::sync::Arc;

/// Faults of an image.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// Faults of the image as a whole.
    pub(super) problems: Vec<String>,
    /// Broken promises.
    pub(super) missed: Vec<Miss>,
    /// True if the kernel checked it, too.
    pub(super) by_kernel: bool,
    /// True if a log was replayed.
    pub(super) with_log: bool,
    /// The first superblock was torn.
    pub(super) is_torn: bool,
}

impl Verdict {
    /// All faults, a line each.
    pub(super) fn lines(&self) -> Vec<String> {
        self.problems.iter().cloned().chain(self.missed.iter().map(ToString::to_string)).collect()
    }
}

/// Checks an image, which stays unchanged. The kernel may be asked, on a copy.
///
/// # Errors
/// A tool cannot be run.
pub(super) fn judge(image: &Path, ledgers: &[&Ledger], ask_kernel: bool) -> Result<Verdict> {
    let options = FileOptions { read_only: true, ..FileOptions::default() };
    let below: Arc<dyn Device> = Arc::new(FileDevice::open(image, &options)?);
    let mut verdict = Verdict::default();
    let (is_whole, with_log) = superblock(&below)?;
    (verdict.with_log, verdict.is_torn) = (with_log, !is_whole);
    // `btrfs check` and the kernel need the first superblock. If a cut has torn it, Spinney uses a mirror.
    if is_whole {
        verdict
            .problems
            .extend(Kind::Btrfs.check(image)?.map(|problem| format!("btrfs check before any replay: {problem}")));
    }
    if !verdict.problems.is_empty() {
        // A damaged image must not be mounted by the kernel.
        return Ok(verdict);
    }
    let device: Arc<dyn Device> = Arc::new(ImageDevice::over(below));
    if let Err(error) = by_library(&device, ledgers, &mut verdict) {
        verdict.problems.push(format!("Spinney: {error:#}"));
        return Ok(verdict);
    }
    if ask_kernel || !is_whole {
        let copy = image.with_extension("img.ours");
        store_device(&device, &copy)?;
        verdict
            .problems
            .extend(Kind::Btrfs.check(&copy)?.map(|problem| format!("btrfs check after Spinney: {problem}")));
        std::fs::remove_file(copy)?;
    }
    if ask_kernel && is_whole {
        by_kernel(image, ledgers, &mut verdict)?;
    }
    Ok(verdict)
}

fn by_library(device: &Arc<dyn Device>, ledgers: &[&Ledger], verdict: &mut Verdict) -> Result<()> {
    let volume = Volume::options().open_device(Arc::clone(device))?;
    verdict.missed.extend(misses(ledgers.iter().copied(), volume.by_paths(), "Spinney")?);
    Ok(volume.close()?)
}

fn by_kernel(image: &Path, ledgers: &[&Ledger], verdict: &mut Verdict) -> Result<()> {
    let copy = image.with_extension("img.kernel");
    system::copy_sparse(image, &copy)?;
    verdict.by_kernel = true;
    let mount = Mount::new(&copy, "noatime")?;
    verdict.missed.extend(misses(ledgers.iter().copied(), &Mounted(mount.path()), "the kernel")?);
    mount.unmount()?;
    verdict
        .problems
        .extend(Kind::Btrfs.check(&copy)?.map(|problem| format!("btrfs check after the kernel: {problem}")));
    Ok(std::fs::remove_file(copy)?)
}

/// Whether the first superblock is whole, and whether it points at a log.
fn superblock(device: &Arc<dyn Device>) -> Result<(bool, bool)> {
    let mut bytes = vec![0; SUPERBLOCK_SIZE];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
    let found = UncheckedSuperblock::new(&bytes).and_then(|unchecked| unchecked.verify(SUPERBLOCK_OFFSET));
    Ok(found.map_or((false, false), |superblock| (true, superblock.fields().log_root.get() != 0)))
}
