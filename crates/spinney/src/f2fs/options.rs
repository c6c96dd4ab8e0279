//! Parses the options of f2fs by name, those of `mount -o`. Called by `format`.

use ::f2fs::{ActiveLogs, BackgroundGc, FsyncMode, Mode, OpenOptions};
use formats::options::{takes_no_value, unknown};
use formats::{OptionError, VolumeOptions};
use vfs::{Error, Result};

/// The options that only f2fs has; the first words of the lines are their names.
pub(super) const OPTIONS_HELP: &str =
    "  active_logs=N       6, 4 or 2: how far blocks are kept apart that change at different times (6 if not given);
                      with 2 each fsync makes a checkpoint
  background_gc=WHEN  on: segments that are mostly holes are emptied while nothing changes (as if not given);
                      sync: each with a checkpoint of its own; off: only where there is no other room
  discard             each checkpoint returns freed space: it punches holes into an image file, or discards the
                      blocks of a disk; without it fstrim(8) and `spinney trim` do that for all free space at once
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
  norecovery, disable_roll_forward, nologreplay
                      with ro: shows the last checkpoint, without what was fsynced after it
  super=COPY          opens the volume by this copy of the superblock: 0 at byte 1024, 1 at byte 5120";

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
    "nologreplay",
    "super",
    #[cfg(feature = "ablation")]
    "older",
];

/// Of these, those that choose the state that is shown.
pub(crate) const SKIPS_RECOVERY: &[&str] = &["norecovery", "disable_roll_forward", "nologreplay"];

/// True for the name of an option that f2fs has.
pub(super) fn is_option(name: &str) -> bool {
    NAMES.contains(&name)
}

/// Refuses unknown mount options and values.
pub(super) fn check_options(request: &VolumeOptions) -> Result<()> {
    wanted(request).map(drop)
}

pub(super) fn wanted(request: &VolumeOptions) -> Result<OpenOptions> {
    let mut options = OpenOptions::new().writable(!request.read_only).atime(request.atime);
    options = options.commit_interval(request.commit_interval);
    for (name, value) in &request.own {
        let value = formats::options::text(name, value.as_deref())?;
        options = match (name.as_str(), value) {
            ("discard", None) => options.discard(true),
            ("nodiscard", None) => options.discard(false),
            ("active_logs", value) => options.active_logs(match value {
                Some("2") => ActiveLogs::Two,
                Some("4") => ActiveLogs::Four,
                Some("6") => ActiveLogs::Six,
                _ => return Err(wrong_value("active_logs", value, "2, 4 or 6")),
            }),
            ("fsync_mode", value) => options.fsync_mode(match value {
                Some("posix") => FsyncMode::Posix,
                Some("strict") => FsyncMode::Strict,
                Some("nobarrier") => FsyncMode::Nobarrier,
                _ => return Err(wrong_value("fsync_mode", value, "posix, strict or nobarrier")),
            }),
            ("inline_data" | "noinline_data", None) => options.inline_data(name == "inline_data"),
            ("inline_dentry" | "noinline_dentry", None) => options.inline_dentry(name == "inline_dentry"),
            ("inline_xattr" | "noinline_xattr", None) => options.inline_xattr(name == "inline_xattr"),
            ("background_gc", value) => options.background_gc(match value {
                Some("on") => BackgroundGc::On,
                Some("off") => BackgroundGc::Off,
                Some("sync") => BackgroundGc::Sync,
                _ => return Err(wrong_value("background_gc", value, "on, off or sync")),
            }),
            ("mode", value) => options.mode(match value {
                Some("adaptive") => Mode::Adaptive,
                Some("lfs") => Mode::Lfs,
                _ => return Err(wrong_value("mode", value, "adaptive or lfs")),
            }),
            #[cfg(feature = "ablation")]
            ("older", Some(way)) if way == "apart" => {
                ::f2fs::ablation::set_places_in_turn(true);
                options
            }
            ("super", Some(copy)) => match copy {
                "0" => options.superblock(Some(0)),
                "1" => options.superblock(Some(1)),
                _ => return Err(wrong_value("super", value, "0, at byte 1024, or 1, at byte 5120")),
            },
            ("subvol" | "subvolid", _) => return Err(absent(name, "subvolumes")),
            ("generation", _) => return Err(absent(name, "earlier generations")),
            ("compress", _) => return Err(absent(name, "compression of new contents")),
            (name, None) if SKIPS_RECOVERY.contains(&name) && !request.read_only => {
                let text = format!("option `{name}` needs `ro`: the first checkpoint would discard what was fsynced");
                return Err(OptionError::wrong(text).into());
            }
            (name, None) if SKIPS_RECOVERY.contains(&name) => options.skip_recovery(true),
            (name, Some(_)) if is_option(name) => return Err(takes_no_value(name)),
            (name, _) => return Err(unknown(name)),
        };
    }
    Ok(options)
}

/// The refusal of an option of btrfs that is for something that f2fs has not.
fn absent(name: &str, what: &str) -> Error {
    OptionError::unsupported(format!("option `{name}`: f2fs images have no {what}")).into()
}

fn wrong_value(name: &str, value: Option<&str>, expected: &str) -> Error {
    OptionError::wrong(format!("{name}={}: {expected}", value.unwrap_or_default())).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::option_list;

    fn check(list: &str) -> Result<()> {
        check_options(&option_list::parse(list))
    }

    #[test]
    fn own_options_are_known_and_others_refused_by_name() {
        check("ro,norecovery").unwrap();
        check("ro,disable_roll_forward,noatime").unwrap();
        check("ro,nologreplay").unwrap();
        for name in SKIPS_RECOVERY {
            assert!(is_option(name), "{name}");
            assert!(check(name).unwrap_err().to_string().contains("needs `ro`"), "{name}");
        }
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
