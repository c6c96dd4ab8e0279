//! Prints the report and warnings for an opened f2fs image, and finds the place of a second mount. The common commands
//! call it through `row`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use spinney::f2fs::F2fs;
use spinney::{Volume, VolumeOptions};

use super::info;
use crate::commands::failure::{Failure, Status};
use crate::commands::output::{Output, warn};

/// Mount options that choose the visible state.
const SKIPS_RECOVERY: &[&str] = &["norecovery", "disable_roll_forward"];

/// The volume as an f2fs volume.
fn own(volume: &Volume) -> Result<&Arc<F2fs>> {
    let name = volume.format().name();
    Ok(volume.f2fs().ok_or_else(|| Failure::new(Status::Unsupported, format!("a volume of {name}, not of f2fs")))?)
}

/// Prints the report of `info`.
pub(super) fn report(volume: &Volume, json: bool, out: &mut Output) -> Result<()> {
    let volume = own(volume)?;
    let found = volume.info().map_err(spinney::Error::from)?;
    let quotas = info::quotas(volume);
    if json { out.json(&info::report(&found, Some(&quotas))) } else { info::print(out, &found, Some(&quotas)) }
}

/// Warns of a truncated image.
pub(super) fn warn_of_cut(volume: &Volume) -> Result<()> {
    let missing = own(volume)?.missing_bytes();
    if missing > 0 {
        warn(&format!("warning: {missing} bytes are missing at the end of the image; data there cannot be read"));
    }
    Ok(())
}

/// The place for a further mount: the root, if both mounts show the same state.
pub(super) fn place(_root: &Path, first: &VolumeOptions, second: &VolumeOptions) -> Result<PathBuf> {
    let skips = |options: &VolumeOptions| options.own.iter().any(|(name, _)| SKIPS_RECOVERY.contains(&name.as_str()));
    if skips(first) == skips(second) {
        return Ok(PathBuf::new());
    }
    let text = "another state of the image is mounted there: `norecovery` is chosen by the first mount";
    Err(Failure::new(Status::Busy, text).into())
}
