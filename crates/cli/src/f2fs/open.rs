//! How images of f2fs are opened and mounted.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use blockdev::Device;
use f2fs::{ActiveLogs, BackgroundGc, F2fs, FsyncMode, Mode, OpenOptions};
use vfs::Volume;

use super::info;
use super::jobs::OfVolume;
use commands::failure::{Failure, Status};
use commands::format::{About, OpenRequest, Opened, Request, Served};
use commands::mount::{takes_no_value, unknown};
use commands::output::{Output, warn};

/// The options that only f2fs has; the first words of the lines are their names.
pub(super) const OPTIONS_HELP: &str =
    "  active_logs=N       6, 4 or 2: how far blocks are kept apart that change at different times (6 if not given);
                      with 2 each fsync makes a checkpoint
  background_gc=WHEN  on: segments that are mostly holes are emptied while nothing changes (as if not given);
                      sync: each with a checkpoint of its own; off: only where there is no other room
  discard             each checkpoint gives the room of what was deleted back to the host, or tells the disk;
                      without it fstrim(8) and `spinney trim` do that for everything at once
  nodiscard           the opposite
  fsync_mode=MODE     posix (as if not given); strict: for a new file in a directory that lost names fsync makes a
                      checkpoint; nobarrier: it does not wait for the disk's cache, so that a power cut may take
                      what was synced
  inline_data         short contents lie in the inodes of new files, as if nothing were given; noinline_data: they
                      do not
  inline_dentry       few names lie in the inodes of new directories; noinline_dentry: they do not
  inline_xattr        attributes lie in new inodes; noinline_xattr: they do not
  mode=MODE           adaptive: where free segments are few, blocks go to the holes of others (as if not given);
                      lfs: never
  norecovery          with ro: shows the last checkpoint, without what was fsynced after it;
                      disable_roll_forward is the same";

/// Names of the options.
const NAMES: &[&str] = &[
    "active_logs",
    "background_gc",
    "discard",
    "nodiscard",
    "fsync_mode",
    "inline_data",
    "noinline_data",
    "inline_dentry",
    "noinline_dentry",
    "inline_xattr",
    "noinline_xattr",
    "mode",
    "norecovery",
    "disable_roll_forward",
    #[cfg(feature = "ablation")]
    "older",
];

/// Of these, those that choose the state that is shown.
const SKIPS_RECOVERY: &[&str] = &["norecovery", "disable_roll_forward"];

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
    let missing = opened.missing_bytes();
    if missing > 0 {
        warn(&format!("warning: {missing} bytes are missing at the end of the image; what lies there cannot be read"));
    }
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
            ("active_logs", value) => options.active_logs(match value.as_deref() {
                Some("2") => ActiveLogs::Two,
                Some("4") => ActiveLogs::Four,
                Some("6") => ActiveLogs::Six,
                _ => return Err(wrong_value("active_logs", value.as_deref(), "2, 4 or 6")),
            }),
            ("fsync_mode", value) => options.fsync_mode(match value.as_deref() {
                Some("posix") => FsyncMode::Posix,
                Some("strict") => FsyncMode::Strict,
                Some("nobarrier") => FsyncMode::Nobarrier,
                _ => return Err(wrong_value("fsync_mode", value.as_deref(), "posix, strict or nobarrier")),
            }),
            ("inline_data" | "noinline_data", None) => options.inline_data(name == "inline_data"),
            ("inline_dentry" | "noinline_dentry", None) => options.inline_dentry(name == "inline_dentry"),
            ("inline_xattr" | "noinline_xattr", None) => options.inline_xattr(name == "inline_xattr"),
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
            #[cfg(feature = "ablation")]
            ("older", Some(way)) if way == "apart" => {
                f2fs::ablation::set_places_in_turn(true);
                options
            }
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
    let jobs = Arc::new(OfVolume(Arc::clone(&file_system)));
    Ok(Served { file_system, jobs: Some(jobs) })
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
        check("active_logs=2,active_logs=4,active_logs=6,fsync_mode=strict,fsync_mode=nobarrier,fsync_mode=posix")
            .unwrap();
        check("noinline_data,noinline_dentry,noinline_xattr,inline_data,inline_dentry,inline_xattr").unwrap();
        for wrong in ["active_logs=3", "active_logs", "fsync_mode=lazy", "noinline_data=1", "atgc"] {
            let name = wrong.split('=').next().unwrap();
            assert!(check(wrong).unwrap_err().to_string().contains(name), "{wrong}");
        }
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
