//! `spinney mkfs -t f2fs`

use std::sync::Arc;

use anyhow::Result;
use blockdev::Device;
use clap::Args;
use f2fs::{Info, MakeError, MakeOptions, OpenOptions};
use host::Env;

use super::{features, info};
use crate::target::{Common, Target};
use commands::failure::{Failure, Status};
use commands::output::Output;

/// The options that other formats do not have.
#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct Own {
    /// Percent of the segments that are kept for cleaning; if not given, what leaves the most room for files
    #[arg(short, long, value_name = "PERCENT")]
    overprovision: Option<f64>,
    /// Segments of a section, the unit of cleaning: 1 if not given
    #[arg(short = 's', long, value_name = "COUNT")]
    section_segments: Option<u32>,
    /// Sections of a zone, in which no two logs write: 1 if not given
    #[arg(short, long, value_name = "COUNT")]
    zone_sections: Option<u32>,
}

impl Own {
    /// One of these options that was given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let all = [
            (self.overprovision.is_some(), "--overprovision"),
            (self.section_segments.is_some(), "--section-segments"),
            (self.zone_sections.is_some(), "--zone-sections"),
        ];
        all.into_iter().find(|(is_given, _)| *is_given).map(|(_, name)| name)
    }

    /// Makes the file system.
    pub(crate) fn run(&self, common: &Common, out: &mut Output) -> Result<()> {
        if features::asks_for_list(&common.features) {
            return features::print_list(out);
        }
        let make = self.make_options(common)?;
        let target = common.target()?;
        let size = common.size(&target)?;
        target.check_size(size)?;
        // Known before anything is overwritten.
        make.check(size).map_err(|error| explain(&target, size, &make, error))?;
        let info = match write(&target, size, &make) {
            Ok(info) => info,
            Err(error) => {
                target.remove_new();
                return Err(error);
            }
        };
        if common.json {
            out.json(&info::report(&info))
        } else if common.quiet {
            Ok(())
        } else {
            info::print(out, &info)
        }
    }

    fn make_options(&self, common: &Common) -> Result<MakeOptions> {
        let env = Env::system();
        let default = MakeOptions::default();
        Ok(MakeOptions {
            label: common.label.clone(),
            uuid: common.uuid.unwrap_or_else(|| env.uuid()),
            features: features::parse(&common.features)?,
            overprovision: self.overprovision,
            section_segments: self.section_segments.unwrap_or(default.section_segments),
            zone_sections: self.zone_sections.unwrap_or(default.zone_sections),
            owner: common.owner.unwrap_or_default(),
            time: u64::try_from(env.now().0).unwrap_or(0),
            made_by: format!("spinney {}", env!("CARGO_PKG_VERSION")),
        })
    }
}

fn write(target: &Target, size: u64, make: &MakeOptions) -> Result<Info> {
    let device: Arc<dyn Device> = target.open(size)?;
    f2fs::make(&device, make).map_err(|error| explain(target, size, make, error))?;
    let opened = OpenOptions::new().open(device).map_err(vfs::Error::from)?;
    Ok(opened.info().map_err(vfs::Error::from)?)
}

/// The failure with its status; of a size that is too small, with the least one.
fn explain(target: &Target, size: u64, make: &MakeOptions, error: MakeError) -> anyhow::Error {
    let least = || target.too_small(size, |size| make.check(size).is_ok());
    let status = match &error {
        MakeError::TooSmall { .. } => match least() {
            Some(failure) => return failure,
            None => Status::NoSpace,
        },
        MakeError::Option { .. } => Status::Usage,
        MakeError::Io(_) => return target.with_size(size, error),
        _ => Status::Unsupported,
    };
    Failure::new(status, format!("{}: {error}", target.path.display())).into()
}
