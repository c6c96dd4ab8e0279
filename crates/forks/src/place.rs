//! Finds subvolumes by path, and their paths in an open volume. `fork` and `hidden` call it.

use std::path::{Component, Path, PathBuf};

use btrfs::{SubvolumeInfo, Volume};
use vfs::Errno;

use crate::error::{Error, Result};

/// A path from the root of the volume without a slash in front.
///
/// # Errors
/// `Dots` for a path with `..` in it.
pub(crate) fn plain(path: &Path) -> Result<PathBuf> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => plain.push(name),
            Component::ParentDir => return Err(Error::Dots(path.to_owned())),
            _ => {}
        }
    }
    Ok(plain)
}

/// A path as the methods of a volume take it: the root is `/`.
pub(crate) fn rooted(path: &Path) -> PathBuf {
    Path::new("/").join(path)
}

/// The subvolume whose root is at a path.
///
/// # Errors
/// `NotSubvolume`; those of looking up the path.
pub(crate) fn subvolume(volume: &Volume, path: &Path) -> Result<SubvolumeInfo> {
    let id = volume.subvolume_at(&rooted(path)).map_err(|error| match error.errno() {
        Errno::EINVAL => Error::NotSubvolume(path.to_owned()),
        _ => error.into(),
    })?;
    Ok(volume.subvolume_info(id)?)
}

/// The path of a subvolume from the root of the volume; `None` if it is outside of that.
pub(crate) fn seen_path(volume: &Volume, info: &SubvolumeInfo) -> Result<Option<PathBuf>> {
    let top = volume.subvolume_info(volume.subvolume_at(Path::new("/"))?)?;
    let path = Path::new(&info.path);
    // A deleted one has no name, and the top level an empty path.
    if info.parent.is_none() && info.id != top.id {
        return Ok(None);
    }
    Ok(path.strip_prefix(&top.path).ok().map(Path::to_owned))
}
