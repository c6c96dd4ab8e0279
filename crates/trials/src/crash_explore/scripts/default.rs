//! Implements a script of the default subvolume, which is chosen again and again, while subvolumes are made, renamed,
//! copied and deleted. `scripts` passes it to `crash_explorer`, which tries power cuts.

use super::open;
use anyhow::{Context as _, Result, ensure};
use blockdev::Device;
use btrfs::{TreeId, Volume};
use crash_explorer::{Form, Promises, Random, Script};
use parking_lot::Mutex;
use std::sync::Arc;
use vfs::SnapshotMode;

const ROUNDS: usize = 6;

/// The script.
pub(super) struct Default {
    name: String,
    form: Form,
    seed: u64,
    /// Each default subvolume, with the number of promises at its choice.
    chosen: Mutex<Vec<(usize, TreeId)>>,
}

impl Default {
    pub(super) fn new(name: String, seed: u64) -> Self {
        let form = if seed.is_multiple_of(3) { Form::Usual } else { Form::Small };
        Self { name, form, seed, chosen: Mutex::default() }
    }

    fn act(&self, volume: &Volume, random: &mut Random, names: &mut Vec<String>, round: usize) -> Result<()> {
        let old = random.pick(names).cloned().context("no subvolumes")?;
        let fresh = format!("s{}", random.number());
        match random.below(7) {
            0 => {
                volume.create_subvolume(&fresh)?;
                names.push(fresh);
            }
            1 => {
                volume.snapshot(&old, &fresh, SnapshotMode::ReadWrite)?;
                names.push(fresh);
            }
            2 => {
                volume.rename(&old, &fresh)?;
                names.retain(|name| *name != old);
                names.push(fresh);
            }
            3 if names.len() > 2 => {
                // The default subvolume cannot be deleted.
                if volume.delete_subvolume(&old).is_ok() {
                    names.retain(|name| *name != old);
                }
            }
            4 => {
                let file = vfs::File::create(volume, format!("{old}/file"))?;
                file.write_at(&random.content(3000), random.below(9000))?;
                file.sync_all()?;
            }
            _ => {
                let path = if random.one_in(4) { "/".to_owned() } else { old };
                volume.set_default_subvolume(&path)?;
                self.chosen.lock().push((round, volume.default_subvolume()?));
            }
        }
        Ok(())
    }
}

impl Script for Default {
    fn name(&self) -> &str {
        &self.name
    }

    fn form(&self) -> Form {
        self.form
    }

    fn prepare(&self, device: Arc<dyn Device>) -> Result<()> {
        let volume = open(self.form, device)?;
        for name in ["a", "b", "c"] {
            volume.create_subvolume(name)?;
            volume.write(format!("{name}/file"), name.repeat(100))?;
        }
        self.chosen.lock().push((0, volume.default_subvolume()?));
        Ok(volume.close()?)
    }

    fn run(&self, device: Arc<dyn Device>, promises: &Promises<'_>) -> Result<()> {
        let mut random = Random::new(self.seed);
        let volume = btrfs_crash::volume_options(self.form).subvolume_id(TreeId::FS).open_device(device)?;
        let mut names = ["a", "b", "c"].map(str::to_owned).to_vec();
        promises.made();
        for round in 1..=ROUNDS {
            for _ in 0..random.between(1, 5) {
                self.act(&volume, &mut random, &mut names, round)?;
            }
            volume.sync()?;
            promises.made();
        }
        Ok(volume.close()?)
    }

    fn judge(&self, device: Arc<dyn Device>, promised: usize) -> Result<()> {
        let volume = open(self.form, Arc::clone(&device))?;
        let found = volume.default_subvolume()?;
        let chosen = self.chosen.lock().clone();
        // Rounds are numbered by the promises before them.
        let kept = chosen.iter().rfind(|(round, _)| *round < promised.max(1)).map(|(_, id)| *id);
        let later = chosen.iter().filter(|(round, _)| *round == promised.max(1)).map(|(_, id)| *id);
        let legal: Vec<TreeId> = kept.into_iter().chain(later).collect();
        ensure!(legal.contains(&found), "the default subvolume is {found:?}, not one of {legal:?}");
        let all = volume.subvolumes()?;
        ensure!(found == TreeId::FS || all.iter().any(|one| one.id == found), "the default subvolume is not there");
        // The default subvolume is opened, and can be changed.
        volume.write("/after", "the crash")?;
        volume.close()?;
        let volume = btrfs_crash::volume_options(self.form).subvolume_id(found).open_device(device)?;
        ensure!(volume.read("/after")? == b"the crash", "another subvolume was opened than the default one");
        Ok(volume.close()?)
    }
}
