//! Makes entries of JSON reports: names that a command made in an image, and paths. Called by `put`, `cp`, `ln`,
//! `mkdir`, `rm` and others.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use anyhow::Result;
use serde::Serialize;
use spinney::vfs::Volume;

use super::names::JsonPath;

/// A name made in an image.
#[derive(Debug, Serialize)]
pub(crate) struct Made {
    #[serde(flatten)]
    path: JsonPath,
    /// The subvolume that contains it; of a new subvolume its own number.
    subvolume: u64,
    ino: u64,
}

impl Made {
    /// The entry for the file at `path`.
    pub(crate) fn at(volume: &Volume, path: &Path) -> Result<Self> {
        let found = volume.symlink_metadata(path)?;
        Ok(Self { path: json_path(path), subvolume: found.home.subvolume, ino: found.home.ino })
    }
}

/// A path for JSON.
pub(crate) fn json_path(path: &Path) -> JsonPath {
    JsonPath(path.as_os_str().as_bytes().to_vec())
}
