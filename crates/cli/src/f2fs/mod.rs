//! Holds the program's part for f2fs: its face, `mkfs`, `info`, and the jobs of a mount.
//!
//! Unsupported features (zoned devices) are refused by name when an image is opened for writing.
//!
//! Failure: as in `commands`. Callers: `formats` and `mkfs`.

mod features;
mod info;
mod jobs;
pub(crate) mod mkfs;
mod open;
pub(crate) mod row;
