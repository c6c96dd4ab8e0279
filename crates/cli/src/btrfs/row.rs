//! Fills btrfs's row in the table of formats: a `Face` with the commands and texts that the program has for btrfs
//! alone. `formats` lists it; `mkfs` and `check` name it.

use std::sync::Arc;

use super::{format, jobs, place, subvolume};
use crate::commands::format::Face;

/// The face.
pub(crate) const FACE: Face = Face {
    name: "btrfs",
    report: |volume, json, out| format::report(format::own(volume)?, json, out),
    warn: |volume| format::tell_of_cut(format::own(volume)?),
    status: format::status,
    advice: format::advice,
    jobs: |volume| Some(Arc::new(jobs::OfVolume::new(volume.btrfs()?.clone()))),
    chooses: place::chooses,
    place: place::find,
    check_place: place::check,
    is_rescued: true,
    shows_image: subvolume::shows_default,
};
