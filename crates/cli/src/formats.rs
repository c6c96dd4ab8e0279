//! The formats of this program, one row each: what they are known by, how an image is opened and mounted, what an
//! error of theirs means. A further format adds its row here.

use crate::{btrfs, f2fs};
use commands::format::Format;

/// The formats of this program.
pub(crate) const FORMATS: &[Format] = &[btrfs::row::FORMAT, f2fs::row::FORMAT];
