//! Implements a script of deletions: deletes a subvolume of many tree blocks, a snapshot of it and a snapshot of that,
//! which share some of the blocks, one by one in a random order. `scripts` passes it to `crash_explorer`, which tries
//! power cuts.

use super::{Contents, contents, difference, open};
use anyhow::{Context as _, Result, ensure};
use blockdev::Device;
use btrfs::Volume;
use crash_explorer::{Form, Promises, Random, Script};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use vfs::SnapshotMode;

/// Files of the first one: some hundred tree blocks of 4 KiB, several steps of the deletion.
const FILES: u64 = 900;
const CHANGED: u64 = 120;
/// Bytes by which the root tree, the extent tree and the free-space tree may grow.
const SLACK: u64 = 512 << 10;

/// The script.
pub(super) struct Cleaning {
    name: String,
    seed: u64,
    /// The order of deletions.
    order: Vec<&'static str>,
    before: Mutex<BTreeMap<&'static str, Contents>>,
    free_bytes: Mutex<u64>,
}

impl Cleaning {
    pub(super) fn new(name: String, seed: u64) -> Self {
        let mut order = vec!["first", "second", "third"];
        let mut random = Random::new(seed);
        let len = order.len();
        order.swap(random.index(len), random.index(len));
        order.swap(random.index(len), 0);
        Self { name, seed, order, before: Mutex::default(), free_bytes: Mutex::default() }
    }
}

impl Script for Cleaning {
    fn name(&self) -> &str {
        &self.name
    }

    fn form(&self) -> Form {
        Form::Small
    }

    fn prepare(&self, device: Arc<dyn Device>) -> Result<()> {
        let mut random = Random::new(self.seed);
        let volume = open(self.form(), device)?;
        volume.create_dir("kept")?;
        volume.write("kept/file", random.content(20_000))?;
        volume.sync()?;
        *self.free_bytes.lock() = free_bytes(&volume)?;
        volume.create_subvolume("first")?;
        for number in 0..FILES {
            let len = if random.one_in(20) { 9000 } else { 300 };
            volume.write(format!("first/file{number}"), random.content(len))?;
        }
        for (source, target) in [("first", "second"), ("second", "third")] {
            volume.snapshot(source, target, SnapshotMode::ReadWrite)?;
            for _ in 0..CHANGED {
                volume.write(format!("{target}/file{}", random.below(FILES * 2)), random.content(400))?;
            }
        }
        for name in &self.order {
            self.before.lock().insert(name, contents(&volume, Path::new(name))?);
        }
        Ok(volume.close()?)
    }

    fn run(&self, device: Arc<dyn Device>, promises: &Promises<'_>) -> Result<()> {
        let volume = open(self.form(), device)?;
        for name in &self.order {
            volume.delete_subvolume(name)?;
            volume.sync()?;
            promises.made();
        }
        Ok(volume.close()?)
    }

    fn judge(&self, device: Arc<dyn Device>, promised: usize) -> Result<()> {
        let volume = open(self.form(), device)?;
        let mut is_gone_before = true;
        for (index, name) in self.order.iter().enumerate() {
            let is_there = volume.exists(name)?;
            ensure!(!(is_there && index < promised), "{name} was deleted, and is there");
            ensure!(is_there || index <= promised, "{name} is gone, and its deletion had not begun");
            ensure!(is_there || is_gone_before, "{name} is gone, but one deleted before it exists");
            is_gone_before &= !is_there;
            if is_there {
                let expected = self.before.lock().get(name).cloned().context("no contents")?;
                let found = contents(&volume, Path::new(name))?;
                if let Some(difference) = difference(&found, &expected) {
                    anyhow::bail!("{name}: {difference}");
                }
                volume.delete_subvolume(name)?;
            }
        }
        // Begun deletions are finished, and all the space is free again.
        volume.sync()?;
        volume.sync()?;
        let (free, before) = (free_bytes(&volume)?, *self.free_bytes.lock());
        ensure!(free + SLACK >= before, "{free} bytes are free after all deletions, {before} before");
        ensure!(volume.read("kept/file")?.len() == 20_000, "a file that was not deleted is damaged");
        Ok(volume.close()?)
    }
}

fn free_bytes(volume: &Volume) -> Result<u64> {
    let status = volume.status()?;
    Ok(status.blocks_free.saturating_mul(u64::from(status.block_bytes)))
}
