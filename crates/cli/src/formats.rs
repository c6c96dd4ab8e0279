//! The faces of the formats: the commands and texts that the program has for one format alone.

use crate::commands::format::Face;
use crate::{btrfs, f2fs};

/// The faces.
pub(crate) const FACES: &[Face] = &[btrfs::row::FACE, f2fs::row::FACE];
