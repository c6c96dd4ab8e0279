//! Sets random owners, modes, times and attributes of the files in the images. Called by `populate`, `common` and the
//! scenes.

use anyhow::Result;
use rustix::fs::{AtFlags, CWD, Mode, Timespec, Timestamps, XattrFlags};
use std::path::Path;
use testkit::Random;

/// Owner, mode and times at random. Times reach back before 1970 and past 2038, in nanoseconds.
pub(super) fn set_random_metadata(path: &Path, random: &mut Random) -> Result<()> {
    let owner = rustix::fs::Uid::from_raw(u32::try_from(random.below(70_000))?);
    let group = rustix::fs::Gid::from_raw(u32::try_from(random.below(70_000))?);
    rustix::fs::chownat(CWD, path, Some(owner), Some(group), AtFlags::SYMLINK_NOFOLLOW)?;
    let mode = Mode::from_raw_mode(u32::try_from(random.below(0o10_000))?);
    if !path.is_symlink() {
        rustix::fs::chmodat(CWD, path, mode, AtFlags::empty())?;
    }
    let mut time = || -> Result<Timespec> {
        let tv_sec = i64::try_from(random.below(6_000_000_000))?.saturating_sub(1_000_000_000);
        Ok(Timespec { tv_sec, tv_nsec: i64::try_from(random.below(1_000_000_000))? })
    };
    let times = Timestamps { last_access: time()?, last_modification: time()? };
    Ok(rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

pub(super) fn set_xattr(path: &Path, name: &str, value: &[u8]) -> Result<()> {
    Ok(rustix::fs::lsetxattr(path, name, value, XattrFlags::empty())?)
}
