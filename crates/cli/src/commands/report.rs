//! What commands that change an image, or copy out of one, report as JSON.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use anyhow::Result;
use serde::Serialize;
use spinney::vfs::Volume;

use super::names::JsonPath;

/// A name that was made in an image.
#[derive(Debug, Serialize)]
pub(crate) struct Made {
    #[serde(flatten)]
    path: JsonPath,
    /// The subvolume that it is in; of a new subvolume the one that it is.
    subvolume: u64,
    ino: u64,
}

impl Made {
    /// What is at `path`.
    pub(crate) fn at(volume: &Volume, path: &Path) -> Result<Self> {
        let found = volume.symlink_metadata(path)?;
        Ok(Self { path: json_path(path), subvolume: found.home.subvolume, ino: found.home.ino })
    }
}

/// A path as JSON has it.
pub(crate) fn json_path(path: &Path) -> JsonPath {
    JsonPath(path.as_os_str().as_bytes().to_vec())
}
