//! `spinney device seed` marks a volume as a seed, and `mkfs --seed` makes a sprout of one. Called by `device` and
//! `mkfs`.
//!
//! A seed is a volume that is only read. A sprout is a new volume on a device of its own. It refers to the data of the
//! seed, so that it has the seed's contents without a copy.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use spinney::blockdev::{self, Access, Device, Locator};
use spinney::btrfs::pool::{Intent, Members, Mode};
use spinney::btrfs::{VolumeInfo, VolumeOptions};

use crate::commands::failure::Failure;
use crate::commands::image::{ImageArgs, open_devices};
use crate::commands::output::Output;

#[derive(Debug, Args)]
pub(super) struct Seed {
    #[command(flatten)]
    image: ImageArgs,
    /// `on` makes the volume a read-only seed, `off` an ordinary volume again
    #[arg(value_name = "on|off")]
    state: State,
    /// Take the mark away although sprouts may refer to the volume: the first write to it makes them unreadable
    #[arg(short, long)]
    force: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum State {
    On,
    Off,
}

impl Seed {
    pub(super) fn run(&self, out: &mut Output) -> Result<()> {
        let shown = self.image.image.display().to_string();
        if self.image.mounted_dir()?.is_some() {
            return Err(Failure::refused(format!(
                "{shown}: unmount it first: the mark of a seed can only be changed in the image"
            ))
            .into());
        }
        if self.state == State::Off && !self.force {
            let text = "expected --force: sprouts of it are lost with the first write to it";
            return Err(Failure::refused(format!("{shown}: {text}")).into());
        }
        let devices = open_devices(&self.image, &self.image.request())?;
        let members = || Members::read(&devices, Intent::ReadOnly, None, Mode::Strict);
        let is_seed = |members: &Members| {
            use spinney::btrfs::disk::flags::SuperFlags;
            members.counting().is_some_and(|(_, newest)| newest.fields().super_flags().contains(SuperFlags::SEEDING))
        };
        let wanted = self.state == State::On;
        if is_seed(&members().with_context(|| shown.clone())?) != wanted {
            if wanted {
                // Opening replays the log tree and deletes orphans. Once the volume is a seed, it can no longer be
                // changed.
                VolumeOptions::new().open_devices(devices.clone())?.close()?;
            }
            members().and_then(|members| members.mark_seed(wanted)).with_context(|| shown.clone())?;
        }
        let state = if wanted { "is a seed: it is only read" } else { "is no seed any more" };
        Ok(writeln!(out, "{shown} {state}")?)
    }
}

/// Opens the devices of a seed, that `seed` lists, for reading.
///
/// # Errors
/// Those of the devices.
pub(super) fn open(seed: &Path) -> Result<Vec<Arc<dyn Device>>> {
    let open = |locator: Locator| blockdev::open(&locator, Access::READ);
    Ok(Locator::parse_list(seed)?.into_iter().map(open).collect::<Result<_, _>>()?)
}

/// Makes a sprout on the device `new` of the volume on `seeds`, which `seed` names.
///
/// # Errors
/// Those of the devices; `Unsupported` if the volume is not a seed.
pub(super) fn sprout(seed: &Path, seeds: &[Arc<dyn Device>], new: Arc<dyn Device>) -> Result<VolumeInfo> {
    let volume = VolumeOptions::new().sprout(seeds.to_vec(), new).with_context(|| seed.display().to_string())?;
    let info = volume.info()?;
    volume.close()?;
    Ok(info)
}
