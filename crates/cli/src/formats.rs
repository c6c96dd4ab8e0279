//! The faces of the formats: what the program says and does for one of them beyond what it does for all.

use crate::{btrfs, f2fs};
use commands::format::Face;

/// The faces.
pub(crate) const FACES: &[Face] = &[btrfs::row::FACE, f2fs::row::FACE];
