//! Shows or resets the devices' error counters: `spinney device stats`, or `scrub stats`. Called by `device` and
//! `scrub`, and by `jobs` in the server of a mount.

use std::io::Write as _;

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use spinney::btrfs::{DeviceErrors, Volume};

use super::format;
use crate::commands::failure::{Failure, Status};
use crate::commands::image::ImageArgs;
use crate::commands::on_mount::OnMount;
use crate::commands::output::Output;

/// Arguments of `device stats` and `scrub stats`.
#[derive(Debug, Args)]
pub(crate) struct Stats {
    #[command(flatten)]
    image: ImageArgs,
    /// Set them to zero after showing them
    #[arg(short = 'z', long)]
    reset: bool,
    /// Report as JSON: {device, write, read, flush, corruption, generation}, or a list of these for several devices
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Counters {
    device: u64,
    write: u64,
    read: u64,
    flush: u64,
    corruption: u64,
    generation: u64,
}

impl Stats {
    /// The name of the job on a mount.
    pub(in crate::btrfs) const JOB: &str = "scrub-stats";

    pub(in crate::btrfs) fn run(&self, out: &mut Output) -> Result<()> {
        if let Some(dir) = self.image.mounted_dir()? {
            let mut words = vec![dir.display().to_string()];
            words.extend(self.reset.then(|| "--reset".to_owned()));
            words.extend(self.json.then(|| "--json".to_owned()));
            return OnMount::connect(&dir)?.run(Self::JOB, words, out);
        }
        let volume =
            if self.reset { format::open_writable(&self.image)? } else { format::open_image_as(&self.image, true)? };
        self.run_on(&volume, out)
    }

    /// Shows the counters of a volume that is open.
    pub(in crate::btrfs) fn run_on(&self, volume: &Volume, out: &mut Output) -> Result<()> {
        let errors = if self.reset { volume.reset_device_errors()? } else { volume.device_errors()? };
        let counters: Vec<Counters> = errors.iter().map(Counters::from).collect();
        match counters.as_slice() {
            // As it was before volumes had several devices.
            [only] if self.json => out.json(only)?,
            all if self.json => out.json(&all)?,
            all => all.iter().try_for_each(|counters| counters.print(out))?,
        }
        out.flush()?;
        match counters.iter().find(|counters| counters.has_errors()) {
            Some(Counters { device, .. }) => {
                Err(Failure::new(Status::Corrupt, format!("device {device} has had errors")).into())
            }
            None => Ok(()),
        }
    }
}

impl From<&DeviceErrors> for Counters {
    fn from(errors: &DeviceErrors) -> Self {
        let DeviceErrors { device, write, read, flush, corruption, generation } = *errors;
        Self { device, write, read, flush, corruption, generation }
    }
}

impl Counters {
    fn has_errors(&self) -> bool {
        let Self { write, read, flush, corruption, generation, .. } = self;
        [write, read, flush, corruption, generation].into_iter().any(|count| *count > 0)
    }

    fn print(&self, out: &mut Output) -> Result<()> {
        let Self { device, write, read, flush, corruption, generation } = self;
        let lines = [
            ("write_io_errs", write),
            ("read_io_errs", read),
            ("flush_io_errs", flush),
            ("corruption_errs", corruption),
            ("generation_errs", generation),
        ];
        for (name, count) in lines {
            writeln!(out, "[devid {device}].{name:<17}{count}")?;
        }
        Ok(())
    }
}
