//! What a mount of btrfs is, besides what every mount is.

use std::sync::Arc;

use anyhow::Result;
use blockdev::Device;
use btrfs_disk::TreeId;
use spinney::{BtrfsFs, FsOptions, Volume, VolumeOptions};
use vfs::FileSystem;

use crate::common::failure::Failure;
use crate::common::mount::{Request, number, unknown};

/// The options that only btrfs has; the first words of the lines are their names.
pub(crate) const OPTIONS_HELP: &str = "\
  subvol=PATH         the subvolume at PATH is the root of the mount
  subvolid=ID         the subvolume with this number is; 5 is the top level
  max_inline=BYTES    files up to this size are stored with their metadata; 2048, 0 for none
  nodatacow           new files are overwritten in place, and have no checksums
  nodatasum           new files have no checksums
  nologreplay         with ro: shows the last commit, without what a crash left in the log";

/// Names of the options in [`OPTIONS_HELP`], and their opposites.
const NAMES: &[&str] = &[
    "subvol",
    "subvolid",
    "max_inline",
    "nodatacow",
    "datacow",
    "nodatasum",
    "datasum",
    "nologreplay",
];

/// The largest legal `max_inline`; a leaf limits it further.
const MAX_INLINE_MAX: u64 = 64 << 10;
/// Metadata kept in memory unless asked for otherwise: the kernel keeps names, attributes and data of its
/// own, and the whole server is to stay below 384 MiB.
const CACHE_BYTES: usize = 96 << 20;

/// True for the name of an option that btrfs has.
pub(crate) fn is_option(name: &str) -> bool {
    NAMES.contains(&name)
}

/// Refuses what is no option, or has a wrong value.
pub(crate) fn check_options(request: &Request) -> Result<()> {
    volume_options(request).map(drop)
}

/// Opens a device for a mount.
pub(crate) fn open(device: Arc<dyn Device>, request: &Request) -> Result<Arc<dyn FileSystem>> {
    let volume = volume_options(request)?.open_device(device)?;
    let options = FsOptions {
        atime: request.atime,
        commit_interval: request.commit_interval,
        pin_known: request.keep_known,
    };
    Ok(BtrfsFs::new(&volume, options)?)
}

fn volume_options(request: &Request) -> Result<VolumeOptions> {
    let mut options = Volume::options().read_only(request.read_only);
    if let Some(bytes) = request.dirty_bytes {
        options = options.dirty_bytes(bytes);
    }
    options = options.cache_bytes(request.cache_bytes.unwrap_or(CACHE_BYTES));
    for (name, value) in &request.own {
        options = match (name.as_str(), value.as_deref()) {
            ("subvol", Some(path)) if !path.is_empty() => options.subvolume(path),
            ("subvolid", Some(id)) => options.subvolume_id(TreeId(number(name, id, 0, u64::MAX)?)),
            ("max_inline", Some(bytes)) => {
                let bytes = number(name, bytes, 0, MAX_INLINE_MAX)?;
                options.max_inline(u32::try_from(bytes)?)
            }
            ("nodatacow", None) => options.nodatacow(true),
            ("datacow", None) => options.nodatacow(false),
            ("nodatasum", None) => options.nodatasum(true),
            ("datasum", None) => options.nodatasum(false).nodatacow(false),
            ("nologreplay", None) => options.replay_log(false),
            (name, None) if matches!(name, "subvol" | "subvolid" | "max_inline") => {
                let text = format!("option `{name}` needs a value: {name}=VALUE");
                return Err(Failure::usage(text).into());
            }
            (name, Some(_)) if is_option(name) => {
                let text = format!("option `{name}` takes no value");
                return Err(Failure::usage(text).into());
            }
            (name, _) => return Err(unknown(name)),
        };
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::mount::Settings;

    fn check(list: &str) -> Result<()> {
        check_options(&Settings::parse(&[list])?.request)
    }

    #[test]
    fn own_options_are_known_and_others_refused_by_name() {
        check("subvol=/home,max_inline=0,nodatacow,datacow,nodatasum,datasum").unwrap();
        check("ro,subvolid=5,nologreplay").unwrap();
        for (list, word) in [
            ("foo", "`foo`"),
            ("compress=zstd", "`compress`"),
            ("subvol", "subvol=VALUE"),
            ("subvol=", "subvol"),
            ("nodatacow=1", "`nodatacow`"),
            ("max_inline=x", "max_inline=x"),
            ("subvolid=-1", "subvolid=-1"),
        ] {
            let error = check(list).unwrap_err().to_string();
            assert!(error.contains(word), "{list}: {error}");
        }
        let listed = |name: &&&str| OPTIONS_HELP.contains(&format!("  {name}"));
        assert_eq!(NAMES.iter().filter(listed).count(), 6);
    }
}
