//! Lists the `Face` of each format: the commands and texts that the program has for one format alone. `run` in `lib`
//! registers the list.

use crate::commands::format::Face;
use crate::{btrfs, f2fs};

/// The faces.
pub(crate) const FACES: &[Face] = &[btrfs::row::FACE, f2fs::row::FACE];
