//! The devices of a volume change while Spinney has it mounted and programs write to it; and volumes with parity are
//! converted to other profiles. Afterwards the kernel's walk and ours have to be equal, and both checks find nothing.

use super::{Trial, joined};
use crate::system::{btrfs_program, run as run_program};
use anyhow::{Context as _, Result, ensure};
use std::path::{Path, PathBuf};
use testkit::Random;

/// Size of new devices.
const NEW_BYTES: u64 = 1 << 30;

/// Files that are written while devices change.
const FILES: u64 = 120;
const FILE_BYTES_MAX: u64 = 1 << 20;

fn write_files(dir: &Path, seed: u64) -> Result<()> {
    let mut random = Random::new(seed);
    std::fs::create_dir_all(dir)?;
    for number in 0..FILES {
        let len = usize::try_from(random.below(FILE_BYTES_MAX))?;
        std::fs::write(dir.join(format!("f{}", number % 50)), random.noise(len))?;
    }
    Ok(())
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

impl Trial<'_> {
    /// Replaces a device, adds one, changes its size, and removes another, while files are written.
    pub(super) fn changed_while_mounted(&self, images: &[PathBuf], seed: u64) -> Result<()> {
        let point = self.folder.join("mnt");
        std::fs::create_dir_all(&point)?;
        let [new, further] = ["mounted-new.img", "mounted-further.img"].map(|name| self.folder.join(name));
        let mnt = shown(&point);
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        self.program(&words(&["mount", &shown(&joined(images)), &mnt, "-o", "subvolid=5"]))?;
        let changed = (|| -> Result<Vec<PathBuf>> {
            let filling = std::thread::scope(|scope| {
                let writer = scope.spawn(|| write_files(&point.join("beside"), seed));
                let last = images.last().context("a device")?;
                self.program(&words(&["device", "replace", "-q", &mnt, &shown(last), &shown(&new)]))?;
                let size = NEW_BYTES.to_string();
                self.program(&words(&["device", "add", &mnt, &shown(&further), "--size", &size]))?;
                let id = (images.len() + 1).to_string();
                self.program(&words(&["resize", "-q", &format!("{id}:+64M"), &mnt]))?;
                let first = images.first().context("a device")?;
                self.program(&words(&["device", "remove", &mnt, &shown(first)]))?;
                writer.join().ok().context("the writer")
            })?;
            filling?;
            let kept = images.iter().skip(1).take(images.len().saturating_sub(2)).cloned();
            Ok(kept.chain([new.clone(), further.clone()]).collect())
        })();
        self.program(&words(&["umount", &mnt]))?;
        let now = changed?;
        self.same_by_both(&now, "rw")?;
        self.fill_by_kernel(&now, "rw", "kernel-on-changed", seed + 1)?;
        self.same_by_both(&now, "rw")?;
        for image in [new, further] {
            std::fs::remove_file(image)?;
        }
        Ok(())
    }

    /// Converts a volume with parity to another profile; the old block groups are never written.
    pub(super) fn left_parity(&self, images: &[PathBuf], seed: u64) -> Result<()> {
        let list = shown(&joined(images));
        for image in images {
            let file = std::fs::File::options().write(true).open(image)?;
            file.set_len(file.metadata()?.len().saturating_mul(2))?;
        }
        // The file system has to have the room for the other profile.
        let attached = super::Attached::new(images)?;
        let mount = attached.mount("subvolid=5")?;
        for id in 1..=images.len() {
            run_program(&btrfs_program(), &["filesystem", "resize", &format!("{id}:max"), &shown(mount.path())])?;
        }
        mount.unmount()?;
        let some = ["balance", "start", "-f", "-dconvert=raid1", &list].map(str::to_owned);
        if self.layout.data == self.layout.metadata {
            let refused = self.program(&some).err().context("metadata with parity was written")?.to_string();
            ensure!(refused.contains("block groups"), "{refused}");
        }
        let all = ["balance", "start", "-f", "-dconvert=raid1", "-mconvert=raid1", &list].map(str::to_owned);
        self.program(&all)?;
        self.same_by_both(images, "rw").context("converted")?;
        self.fill_by_library(images, false, "converted", seed)?;
        self.same_by_both(images, "rw").context("written")
    }
}
