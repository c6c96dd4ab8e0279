//! `spinney mkfs -t f2fs` makes an f2fs file system, empty or with the contents of a directory. Called by
//! `crate::mkfs`, as an implementation of `make::Make`.

use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use spinney::blockdev::Device;
use spinney::f2fs::{F2fs, Info, MakeError, MakeOptions, OpenOptions, Quotas};
use spinney::vfs::Volume;

use super::{features, info};
use crate::commands::failure::{Failure, Status};
use crate::commands::output::Output;
use crate::job::Job;
use crate::late_super::LateSuper;
use crate::make::Make;
use crate::target::{Common, Target};
use spinney::Contents;
use spinney::transfer::Totals;

/// Estimated bytes of an inode and its name.
const ENTRY_BYTES: u64 = 4200;
/// Bytes for the metadata areas, and for cleaning.
const SPARE_BYTES: u64 = 100 << 20;
/// Bytes at the beginning of the device that have the two superblocks, and nothing else.
const HEAD_BYTES: usize = 8192;
const SEGMENT_BYTES: u64 = 2 << 20;

/// The options that other formats do not have.
#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct Own {
    /// Percent of the segments reserved for cleaning (default: the value that leaves the most space for files)
    #[arg(short, long, value_name = "PERCENT")]
    overprovision: Option<f64>,
    /// Segments per section, the unit of cleaning (default: 1)
    #[arg(short = 's', long, value_name = "COUNT")]
    section_segments: Option<u32>,
    /// Sections per zone, in which no two logs write (default: 1)
    #[arg(short, long, value_name = "COUNT")]
    zone_sections: Option<u32>,
    /// Refuse names that are not UTF-8 in directories that ignore case; needs -O casefold
    #[arg(long)]
    strict_names: bool,
}

impl Make for Own {
    fn given(&self) -> Option<&'static str> {
        let all = [
            (self.overprovision.is_some(), "--overprovision"),
            (self.section_segments.is_some(), "--section-segments"),
            (self.zone_sections.is_some(), "--zone-sections"),
            (self.strict_names, "--strict-names"),
        ];
        all.into_iter().find(|(is_given, _)| *is_given).map(|(_, name)| name)
    }

    fn run(&self, common: &Common, out: &mut Output) -> Result<()> {
        if features::asks_for_list(&common.features) {
            return features::print_list(out);
        }
        let job = Job::new(common)?;
        let make = self.make_options(&job)?;
        let made = match &job.contents {
            Some(contents) => Filling { job: &job, make: &make }.fill_grown(contents),
            None => {
                let size = common.size(&job.target)?;
                check_size(&job.target, size, &make)?;
                write(&job.target, size, &make)
            }
        };
        let made = match made {
            Ok(made) => made,
            Err(error) => {
                job.target.remove_new();
                return Err(error);
            }
        };
        if common.json {
            out.json(&info::report(&made.info, Some(&made.quotas)))
        } else if !common.reports() {
            Ok(())
        } else {
            info::print(out, &made.info, Some(&made.quotas))?;
            common.print_owner(out)
        }
    }
}

impl Own {
    fn make_options(&self, job: &Job<'_>) -> Result<MakeOptions> {
        let (common, env) = (job.common, job.env());
        let default = MakeOptions::default();
        Ok(MakeOptions {
            label: common.label.clone(),
            uuid: job.uuid().unwrap_or_else(|| env.uuid()),
            features: features::parse(&common.features)?,
            overprovision: self.overprovision,
            section_segments: self.section_segments.unwrap_or(default.section_segments),
            zone_sections: self.zone_sections.unwrap_or(default.zone_sections),
            strict_names: self.strict_names,
            owner: common.top_owner(),
            time: u64::try_from(env.now().0).unwrap_or(0),
            made_by: format!("spinney {}", env!("CARGO_PKG_VERSION")),
        })
    }
}

/// The new volume.
struct Made {
    info: Info,
    quotas: spinney::f2fs::Result<Quotas>,
}

/// A volume with contents.
struct Filling<'a> {
    job: &'a Job<'a>,
    make: &'a MakeOptions,
}

impl Filling<'_> {
    /// Fills the volume; an image without a fixed size grows until the contents fit.
    fn fill_grown(&self, contents: &Contents) -> Result<Made> {
        let size_of = |totals: &Totals| {
            let entries = totals.names.saturating_mul(ENTRY_BYTES);
            totals
                .bytes
                .saturating_add(totals.bytes / 8)
                .saturating_add(entries)
                .saturating_add(SPARE_BYTES)
                .next_multiple_of(SEGMENT_BYTES)
        };
        self.job.make_filled(contents, size_of, is_full, |size, bytes_total| self.fill(size, bytes_total))
    }

    fn fill(&self, size: u64, bytes_total: u64) -> Result<Made> {
        let target = &self.job.target;
        check_size(target, size, self.make)?;
        let late = Arc::new(LateSuper::new(target.open_bare(size)?, &[0], HEAD_BYTES)?);
        let device: Arc<dyn Device> = Arc::<LateSuper>::clone(&late);
        spinney::f2fs::make(&device, self.make).map_err(|error| explain(target, size, self.make, error))?;
        let opened = OpenOptions::new().writable(true).env(self.job.env());
        let opened = Arc::new(opened.open(device).map_err(spinney::vfs::Error::from)?);
        let volume = Volume::new(Arc::<F2fs>::clone(&opened));
        self.job.copy_in(&volume, bytes_total)?;
        spinney::vfs::FileSystem::finish(&*opened)?;
        late.finish()?;
        made(&opened)
    }
}

/// True if a larger image would have helped.
fn is_full(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<spinney::vfs::Error>().is_some_and(|cause| cause.blame() == spinney::vfs::Blame::Space)
    })
}

/// Refuses a size before anything is overwritten.
fn check_size(target: &Target, size: u64, make: &MakeOptions) -> Result<()> {
    target.check_size(size)?;
    make.check(size).map_err(|error| explain(target, size, make, error))
}

fn write(target: &Target, size: u64, make: &MakeOptions) -> Result<Made> {
    let late = Arc::new(LateSuper::new(target.open_bare(size)?, &[0], HEAD_BYTES)?);
    let device: Arc<dyn Device> = Arc::<LateSuper>::clone(&late);
    spinney::f2fs::make(&device, make).map_err(|error| explain(target, size, make, error))?;
    late.finish()?;
    let opened = OpenOptions::new().open(device).map_err(spinney::vfs::Error::from)?;
    made(&opened)
}

fn made(opened: &F2fs) -> Result<Made> {
    Ok(Made { info: opened.info().map_err(spinney::vfs::Error::from)?, quotas: info::quotas(opened) })
}

/// The failure with its status; for a size that is too small, with the least one.
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
