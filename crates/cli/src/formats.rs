//! The formats of this program, one row each: what they are known by, how an image is opened and mounted, what an
//! error of theirs means. A second format adds its row here.

use crate::btrfs;
use commands::format::Format;

/// The formats of this program.
pub(crate) const FORMATS: &[Format] = &[btrfs::row::FORMAT];
