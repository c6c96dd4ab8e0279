//! Spinney and the kernel write one volume in turns: with all devices; with as many devices missing as the profile
//! tolerates, which are then resynced; and after a device was replaced, added or removed.
//!
//! After each turn both walks have to be equal, and `btrfs check` and our own check of all data must find no error.

use super::{Attached, Trial, compare, fill, joined, lost_sets, walk};
use crate::diff_walk::kernel;
use crate::diff_walk::record::Walk;
use crate::system::{btrfs_program, run as run_program};
use anyhow::{Context as _, Result, ensure};
use btrfs::{TreeId, Volume};
use std::path::{Path, PathBuf};
use testkit::Random;
use vfs::SnapshotMode;

/// Number of sets of missing devices that are tested for each layout.
const LOST_SETS: usize = 3;
/// Size of a replacing device, and of an added one.
const NEW_BYTES: u64 = 1 << 30;

impl Trial<'_> {
    /// Makes a new volume with `spinney mkfs`, and runs all turns on it.
    pub(super) fn written(&self, images: &[PathBuf], seed: u64) -> Result<()> {
        let mut words = vec!["mkfs".to_owned(), "-q".to_owned(), "-f".to_owned()];
        words.extend(["-d", self.layout.data, "-m", self.layout.metadata].map(str::to_owned));
        words.extend(images.iter().map(|image| image.display().to_string()));
        for image in images {
            // Twice the size, so that a device can take over the data of another.
            let file = std::fs::File::options().write(true).open(image)?;
            file.set_len(file.metadata()?.len().saturating_mul(2))?;
        }
        self.program(&words)?;
        self.fill_by_library(images, false, "first", seed)?;
        self.same_by_both(images, "rw")?;
        self.fill_by_kernel(images, "rw", "kernel", seed + 1)?;
        self.same_by_both(images, "rw")?;
        self.fill_by_library(images, false, "second", seed + 2)?;
        self.same_by_both(images, "rw")?;
        let sets = lost_sets(images.len()).filter(|lost| lost.len() <= self.layout.may_lose);
        for (turn, lost) in (10u64..).step_by(10).zip(sets.take(LOST_SETS)) {
            self.lost_and_back(images, &lost, seed + turn).with_context(|| format!("without {lost:?}"))?;
        }
        self.changed_set(images, seed + 100).context("with another set of devices")
    }

    /// Spinney and the kernel write while some devices are missing; then these are resynced.
    fn lost_and_back(&self, images: &[PathBuf], lost: &[usize], seed: u64) -> Result<()> {
        let left: Vec<PathBuf> =
            (0..).zip(images).filter(|(n, _)| !lost.contains(n)).map(|(_, path)| path.clone()).collect();
        self.fill_by_library(&left, true, &format!("ours-{seed}"), seed)?;
        self.fill_by_kernel(&left, "degraded", &format!("kernels-{seed}"), seed + 1)?;
        self.fill_by_library(&left, true, &format!("ours-again-{seed}"), seed + 2)?;
        let refused = Volume::options().open(joined(images)).err().context("devices that missed commits are taken")?;
        ensure!(format!("{refused:?}").contains("Stale"), "{refused}");
        let mut present = left;
        for index in lost {
            let back = images.get(*index).context("a device")?;
            let words =
                ["device", "resync", "-q", &joined(&present).display().to_string(), &back.display().to_string()];
            self.program(&words.map(str::to_owned))?;
            present.push(back.clone());
        }
        self.same_by_both(images, "rw")
    }

    /// Replaces a device, adds one, balances the volume, and removes the first device.
    fn changed_set(&self, images: &[PathBuf], seed: u64) -> Result<()> {
        let (new, further) = (self.folder.join("new.img"), self.folder.join("further.img"));
        let path = |path: &Path| path.display().to_string();
        let list = joined(images);
        let last = images.last().context("a device")?;
        self.program(&["device", "replace", "-q", &path(&list), &path(last), &path(&new)].map(str::to_owned))?;
        let mut now: Vec<PathBuf> = images.iter().filter(|image| *image != last).cloned().collect();
        now.push(new);
        self.same_by_both(&now, "rw")?;
        let size = NEW_BYTES.to_string();
        let words = ["device", "add", &path(&joined(&now)), &path(&further), "--size", &size].map(str::to_owned);
        self.program(&words)?;
        now.push(further);
        let balanced = self.program(&["balance", "start", &path(&joined(&now))].map(str::to_owned));
        self.same_by_both(&now, "rw")?;
        // With four copies of everything, these devices have no free space for a balance.
        let is_full = |error: &anyhow::Error| format!("{error:#}").contains("no space");
        if self.layout.may_lose >= 3 && balanced.as_ref().is_err_and(is_full) {
            return Ok(());
        }
        balanced?;
        self.fill_by_kernel(&now, "rw", "kernel-on-more", seed)?;
        let first = now.remove(0);
        let mut all = vec![first.clone()];
        all.extend(now.iter().cloned());
        self.program(&["device", "remove", &path(&joined(&all)), &path(&first)].map(str::to_owned))?;
        self.same_by_both(&now, "rw")?;
        now.iter().skip(images.len() - 1).chain(now.iter().rev().take(2)).for_each(|image| {
            // The next layout makes these files again.
            let _ = std::fs::remove_file(image);
        });
        Ok(())
    }

    pub(super) fn program(&self, words: &[String]) -> Result<()> {
        run_program(&self.program.to_string_lossy(), words).map(drop)
    }

    /// Writes files with the library, makes a snapshot, and removes some of the files.
    pub(super) fn fill_by_library(&self, images: &[PathBuf], degraded: bool, name: &str, seed: u64) -> Result<()> {
        let volume = Volume::options().degraded(degraded).subvolume_id(TreeId::FS).open(joined(images))?;
        let mut random = Random::new(seed);
        volume.create_dir_all(name)?;
        for number in 0..40u64 {
            let len = usize::try_from(random.below(1 << 19))?;
            volume.write(format!("{name}/f{number}"), random.noise(if number % 4 == 0 { len / 300 } else { len }))?;
        }
        volume.snapshot("/", format!("snapshot-{name}"), SnapshotMode::ReadOnly)?;
        for number in (0..40u64).step_by(3) {
            volume.remove_file(format!("{name}/f{number}"))?;
        }
        Ok(volume.close()?)
    }

    pub(super) fn fill_by_kernel(&self, images: &[PathBuf], options: &str, name: &str, seed: u64) -> Result<()> {
        let mount = Attached::new(images)?.mount(&format!("{options},subvolid=5"))?;
        let dir = mount.path().join(name);
        run_program(&btrfs_program(), &["subvolume", "create", &dir.to_string_lossy()])?;
        fill(&dir, seed)?;
        mount.unmount()
    }

    /// Asserts that the kernel's walk and ours are the same, and that both checks find nothing.
    pub(super) fn same_by_both(&self, images: &[PathBuf], options: &str) -> Result<()> {
        self.check(images)?;
        let attached = Attached::new(images)?;
        let first = attached.0.first().context("a device")?.clone();
        run_program(&btrfs_program(), &["device", "scan", &first])?;
        run_program(&btrfs_program(), &["check", "--readonly", &first])?;
        let mount = attached.mount(&format!("ro,{options},subvolid=5").replace("ro,rw", "ro"))?;
        let expected: Walk = kernel::walk(mount.path())?;
        mount.unmount()?;
        compare(&expected, &walk(&joined(images), false)?)
    }
}
