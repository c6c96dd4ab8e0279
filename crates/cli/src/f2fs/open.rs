//! How images of f2fs are opened and mounted.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use blockdev::Device;
use f2fs::{BackgroundGc, F2fs, Mode, OpenOptions};
use vfs::Volume;

use super::info;
use commands::failure::{Failure, Status};
use commands::format::{About, OpenRequest, Opened, Request, Served};
use commands::mount::{takes_no_value, unknown};
use commands::output::Output;

/// The options that only f2fs has; the first words of the lines are their names.
pub(super) const OPTIONS_HELP: &str =
    "  background_gc=WHEN  on: segments that are mostly holes are emptied while nothing changes (as if not given);
                      sync: each with a checkpoint of its own; off: only where there is no other room
  discard             each checkpoint gives the room of what was deleted back to the host, or tells the disk;
                      without it fstrim(8) and `spinney trim` do that for everything at once
  nodiscard           the opposite
  mode=MODE           adaptive: where free segments are few, blocks go to the holes of others (as if not given);
                      lfs: never
  norecovery          with ro: shows the last checkpoint, without what was fsynced after it;
                      disable_roll_forward is the same";

/// Names of the options.
const NAMES: &[&str] = &["background_gc", "discard", "nodiscard", "mode", "norecovery", "disable_roll_forward"];

/// Of these, those that choose the state that is shown.
const SKIPS_RECOVERY: &[&str] = &["norecovery", "disable_roll_forward"];

#[derive(Debug)]
struct OfF2fs(Arc<F2fs>);

impl About for OfF2fs {
    fn report(&self, json: bool, out: &mut Output) -> Result<()> {
        let found = self.0.info().map_err(vfs::Error::from)?;
        if json { out.json(&info::report(&found)) } else { info::print(out, &found) }
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
            ("discard", None) => options.discard(true),
            ("nodiscard", None) => options.discard(false),
            ("background_gc", value) => options.background_gc(match value.as_deref() {
                Some("on") => BackgroundGc::On,
                Some("off") => BackgroundGc::Off,
                Some("sync") => BackgroundGc::Sync,
                _ => return Err(wrong_value("background_gc", value.as_deref(), "on, off or sync")),
            }),
            ("mode", value) => options.mode(match value.as_deref() {
                Some("adaptive") => Mode::Adaptive,
                Some("lfs") => Mode::Lfs,
                _ => return Err(wrong_value("mode", value.as_deref(), "adaptive or lfs")),
            }),
            (name, None) if SKIPS_RECOVERY.contains(&name) => options.skip_recovery(true),
            (name, Some(_)) if is_option(name) => return Err(takes_no_value(name)),
            (name, _) => return Err(unknown(name)),
        };
    }
    Ok(options)
}

fn wrong_value(name: &str, value: Option<&str>, expected: &str) -> anyhow::Error {
    Failure::usage(format!("{name}={}: {expected}", value.unwrap_or_default())).into()
}

/// Opens a device for a mount.
pub(super) fn mount(device: Arc<dyn Device>, request: &Request) -> Result<Served> {
    let options = wanted(request)?.writable(!request.read_only);
    let options = options.atime(request.atime).commit_interval(request.commit_interval);
    let file_system = Arc::new(options.open(device).map_err(vfs::Error::from)?);
    Ok(Served { file_system, jobs: None })
}

/// A further mount shows what the first one does, or nothing.
pub(super) fn place(_root: &Path, first: &Request, second: &Request) -> Result<PathBuf> {
    let skips = |request: &Request| request.own.iter().any(|(name, _)| SKIPS_RECOVERY.contains(&name.as_str()));
    if skips(first) == skips(second) {
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
        check("discard,nodiscard").unwrap();
        check("mode=lfs,mode=adaptive,background_gc=off,background_gc=sync").unwrap();
        assert!(check("background_gc=never").unwrap_err().to_string().contains("on, off or sync"));
        for wrong in ["mode", "mode=fragment:block"] {
            assert!(check(wrong).unwrap_err().to_string().contains("adaptive or lfs"), "{wrong}");
        }
        assert!(check("discard=async").unwrap_err().to_string().contains("takes no value"));
        assert!(check("ro,norecovery=1").unwrap_err().to_string().contains("takes no value"));
        assert!(check("ro,subvol=/a").unwrap_err().to_string().contains("`subvol`"));
        let listed = |name: &&&str| OPTIONS_HELP.contains(**name);
        assert_eq!(NAMES.iter().filter(listed).count(), NAMES.len());
    }
}
