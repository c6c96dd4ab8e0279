//! Shows or resets the device's error counters: `spinney scrub stats`. Called by `scrub`, and by `jobs` in the server
//! of a mount.

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

/// Arguments of `scrub stats`.
#[derive(Debug, Args)]
pub(crate) struct Stats {
    #[command(flatten)]
    image: ImageArgs,
    /// Set them to zero after showing them
    #[arg(short = 'z', long)]
    reset: bool,
    /// Report as JSON: {device, write, read, flush, corruption, generation}
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

    pub(super) fn run(&self, out: &mut Output) -> Result<()> {
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
        let DeviceErrors { device, write, read, flush, corruption, generation } = errors;
        if self.json {
            out.json(&Counters { device, write, read, flush, corruption, generation })?;
        } else {
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
        }
        out.flush()?;
        if write.max(read).max(flush).max(corruption).max(generation) > 0 {
            return Err(Failure::new(Status::Corrupt, format!("device {device} has had errors")).into());
        }
        Ok(())
    }
}
