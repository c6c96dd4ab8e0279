//! Spinney and the kernel each make a sprout of one seed, and write both sprouts in turns. The seed must never change.
//!
//! After each turn both walks have to be equal, and `btrfs check` and our own check of all data must find no error.

use super::{Attached, Trial, digests, fill};
use crate::system::{btrfs_program, mkfs_program, run as run_program};
use anyhow::{Context as _, Result, ensure};
use std::path::PathBuf;

const SEED_BYTES: u64 = 300 << 20;
const NEW_BYTES: u64 = 400 << 20;

impl Trial<'_> {
    /// Tests seeds and sprouts; independent of the layout.
    pub(super) fn sprouts(&self, seed: u64) -> Result<()> {
        let [base, ours, kernels] = ["base.img", "ours.img", "kernels.img"].map(|name| self.folder.join(name));
        let shown = |path: &PathBuf| path.display().to_string();
        std::fs::File::create(&base)?.set_len(SEED_BYTES)?;
        run_program(&mkfs_program(), &["-q", "-f", &shown(&base)])?;
        self.fill_by_kernel(std::slice::from_ref(&base), "rw", "seed", seed)?;
        self.program(&["device", "seed", &shown(&base), "on"].map(str::to_owned))?;
        let before = digests(std::slice::from_ref(&base))?;
        let refused = self.program(&["mkdir", &shown(&base), "/new"].map(str::to_owned)).err();
        let refused = refused.context("a seed was written")?.to_string();
        ensure!(refused.contains("seeding"), "{refused}");

        let size = NEW_BYTES.to_string();
        let words = ["mkfs", "-q", "--seed", &shown(&base), "--size", &size, &shown(&ours)];
        self.program(&words.map(str::to_owned))?;
        std::fs::File::create(&kernels)?.set_len(NEW_BYTES)?;
        self.kernels_sprout(&[base.clone(), kernels.clone()]).context("the kernel's sprout")?;
        for (new, name) in [(ours, "ours"), (kernels, "the kernel's")] {
            let pair = [new, base.clone()];
            let turns = || -> Result<()> {
                self.same_by_both(&pair, "rw").context("new")?;
                self.fill_by_library(&pair, false, "first", seed + 1)?;
                self.same_by_both(&pair, "rw").context("written by us")?;
                self.fill_by_kernel(&pair, "rw", "kernel", seed + 2)?;
                self.same_by_both(&pair, "rw").context("written by the kernel")?;
                self.fill_by_library(&pair, false, "second", seed + 3)?;
                self.same_by_both(&pair, "rw").context("written by us again")?;
                // The seed leaves.
                let list = super::joined(&pair).display().to_string();
                self.program(&["device", "remove", &list, &shown(&base)].map(str::to_owned))?;
                let [new, _] = &pair;
                let alone = std::slice::from_ref(new);
                self.same_by_both(alone, "rw").context("without the seed")?;
                self.fill_by_kernel(alone, "rw", "alone", seed + 4)?;
                self.same_by_both(alone, "rw").context("written without the seed")
            };
            turns().with_context(|| format!("the sprout that is {name}"))?;
        }
        ensure!(digests(&[base])? == before, "a seed was changed");
        println!("seeds: 2 sprouts of one seed, 0 differences");
        Ok(())
    }

    /// Makes a sprout with the kernel: the first image is the seed, the second its new device.
    fn kernels_sprout(&self, images: &[PathBuf; 2]) -> Result<()> {
        let [base, new] = images;
        let seed = Attached::new(std::slice::from_ref(base))?;
        let added = Attached::new(std::slice::from_ref(new))?;
        let device = added.0.first().context("a device")?.clone();
        let mount = seed.mount("subvolid=5")?;
        let top = mount.path().to_string_lossy().into_owned();
        run_program(&btrfs_program(), &["device", "add", "-f", &device, &top])?;
        run_program("mount", &["-o", "remount,rw", &top])?;
        let dir = mount.path().join("sprout");
        run_program(&btrfs_program(), &["subvolume", "create", &dir.to_string_lossy()])?;
        fill(&dir, 9)?;
        mount.unmount()
    }
}
