//! Fills f2fs's row in the table of formats: a `Face` with the commands and texts that the program has for f2fs alone.
//! `formats` lists it; `mkfs` names it.

use std::sync::Arc;

use super::{jobs, open};
use crate::commands::format::Face;

/// The face.
pub(crate) const FACE: Face = Face {
    name: "f2fs",
    report: open::report,
    warn: open::warn_of_cut,
    jobs: |volume| Some(Arc::new(jobs::OfVolume(Arc::clone(volume.f2fs()?)))),
    place: open::place,
    ..Face::PLAIN
};
