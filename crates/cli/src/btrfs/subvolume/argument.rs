//! Opens the argument of a `subvolume` command as a `Place`: an image, or a directory of a mount. Called by
//! `subvolume`.

use anyhow::Result;

use super::super::format;
use super::mount::Mounted;
use super::place::Place;
use crate::commands::image::{ImageArgs, ReadArgs};

/// Opens an image, or a directory of a mount, to change something.
pub(super) fn open(image: &ImageArgs) -> Result<Box<dyn Place>> {
    Ok(match image.mounted_dir()? {
        Some(dir) => Box::new(Mounted::open(dir)?),
        None => Box::new(format::open_writable(image)?),
    })
}

/// As [`open`], for reading only.
pub(super) fn open_to_read(image: &ReadArgs) -> Result<Box<dyn Place>> {
    Ok(match image.mounted_dir()? {
        Some(dir) => Box::new(Mounted::open(dir)?),
        None => Box::new(format::open_read_only(image)?),
    })
}

/// As [`open_to_read`], for a command that may change something as well.
pub(super) fn open_to_look(image: &ImageArgs) -> Result<Box<dyn Place>> {
    Ok(match image.mounted_dir()? {
        Some(dir) => Box::new(Mounted::open(dir)?),
        None => Box::new(format::open_as(image, &image.request().read_only(true))?),
    })
}
