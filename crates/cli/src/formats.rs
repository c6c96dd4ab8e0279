//! The faces of the formats: what the program says and does for one of them beyond what it does for all.

use crate::commands::format::Face;
use crate::{btrfs, f2fs};

/// The faces.
pub(crate) const FACES: &[Face] = &[btrfs::row::FACE, f2fs::row::FACE];
