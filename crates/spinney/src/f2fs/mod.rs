//! Re-exports the operations that f2fs alone has: its volume, its facts, and the options of making one. The commands in
//! `cli/src/f2fs` use it, and programs.
//!
//! Opening and making by [`crate::open`] and [`crate::make`] need none of this.
//!
//! [`crate::Volume::f2fs`] gives the [`F2fs`] of one that was opened by [`crate::open`].

mod format;
mod options;

pub(crate) use format::Format as F2fsFormat;

pub use ::f2fs::*;

/// Checks a volume without writing to it.
pub mod check {
    pub use f2fs_check::*;
}
