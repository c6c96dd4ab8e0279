//! How images of f2fs are opened and mounted.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use blockdev::Device;
use f2fs::{F2fs, OpenOptions};
use vfs::Volume;

use super::info;
use super::jobs::OfVolume;
use commands::failure::{Failure, Status};
use commands::format::{About, OpenRequest, Opened, Request, Served};
use commands::mount::{takes_no_value, unknown};
use commands::output::Output;

/// The options that only f2fs has; the first words of the lines are their names.
pub(super) const OPTIONS_HELP: &str =
    "  norecovery          with ro: shows the last checkpoint, without what was fsynced after it;
                      disable_roll_forward is the same";

/// Names of the options.
const NAMES: &[&str] = &["norecovery", "disable_roll_forward"];

#[derive(Debug)]
struct OfF2fs(Arc<F2fs>);

impl About for OfF2fs {
    fn report(&self, json: bool, out: &mut Output) -> Result<()> {
        let found = self.0.info().map_err(vfs::Error::from)?;
        let quotas = info::quotas(&self.0);
        if json { out.json(&info::report(&found, Some(&quotas))) } else { info::print(out, &found, Some(&quotas)) }
    }
}

/// Opens an image for the commands on files and directories.
pub(super) fn open(device: Arc<dyn Device>, request: &OpenRequest) -> Result<Opened> {
    let absent = [
        (request.subvolume.is_some() || request.subvolume_id.is_some(), "subvolumes"),
        (request.generation.is_some(), "earlier generations"),
        (request.compression.is_some(), "compression of new contents"),
    ];
    if let Some((_, what)) = absent.into_iter().find(|(is_asked, _)| *is_asked) {
        return Err(Failure::new(Status::Unsupported, format!("f2fs images have no {what}")).into());
    }
    let copy = request.superblock.map(u64::try_from).transpose()?;
    if copy.is_some_and(|copy| copy > 1) {
        return Err(Failure::usage("--super: f2fs has the copies 0, at byte 1024, and 1, at byte 5120").into());
    }
    let options = OpenOptions::new().superblock(copy).skip_recovery(request.skips_log).writable(!request.read_only);
    let opened = Arc::new(options.open(device).map_err(vfs::Error::from)?);
    Ok(Opened { volume: Volume::new(Arc::<F2fs>::clone(&opened)), about: Box::new(OfF2fs(opened)) })
}

/// A copy of the superblock that is wrong is passed over without being asked, so there is nothing more to try.
pub(super) fn remedies(_device: &dyn Device) -> Vec<String> {
    Vec::new()
}

/// True for the name of an option that f2fs has.
pub(super) fn is_option(name: &str) -> bool {
    NAMES.contains(&name)
}

/// Refuses unknown mount options and values.
pub(super) fn check_options(request: &Request) -> Result<()> {
    wanted(request).map(drop)
}

fn wanted(request: &Request) -> Result<OpenOptions> {
    let mut options = OpenOptions::new();
    for (name, value) in &request.own {
        options = match (name.as_str(), value) {
            (name, None) if is_option(name) => options.skip_recovery(true),
            (name, Some(_)) if is_option(name) => return Err(takes_no_value(name)),
            (name, _) => return Err(unknown(name)),
        };
    }
    Ok(options)
}

/// Opens a device for a mount.
pub(super) fn mount(device: Arc<dyn Device>, request: &Request) -> Result<Served> {
    let options = wanted(request)?.writable(!request.read_only);
    let options = options.atime(request.atime).commit_interval(request.commit_interval);
    let file_system = Arc::new(options.open(device).map_err(vfs::Error::from)?);
    let jobs = Arc::new(OfVolume(Arc::clone(&file_system)));
    Ok(Served { file_system, jobs: Some(jobs) })
}

/// A further mount shows what the first one does, or nothing.
pub(super) fn place(_root: &Path, first: &Request, second: &Request) -> Result<PathBuf> {
    if first.own.is_empty() == second.own.is_empty() {
        return Ok(PathBuf::new());
    }
    let text = "another state of the image is mounted there: `norecovery` is chosen by the first mount";
    Err(Failure::new(Status::Busy, text).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use commands::mount::Settings;

    fn check(list: &str) -> Result<()> {
        check_options(&Settings::parse(&[list])?.request)
    }

    #[test]
    fn own_options_are_known_and_others_refused_by_name() {
        check("ro,norecovery").unwrap();
        check("ro,disable_roll_forward,noatime").unwrap();
        assert!(check("ro,norecovery=1").unwrap_err().to_string().contains("takes no value"));
        assert!(check("ro,subvol=/a").unwrap_err().to_string().contains("`subvol`"));
        let listed = |name: &&&str| OPTIONS_HELP.contains(**name);
        assert_eq!(NAMES.iter().filter(listed).count(), NAMES.len());
    }
}
