//! What f2fs is to the program: its row in `formats`, how an image is made, opened and mounted, what `info` shows.
//!
//! What the engine does not change (devices of zones) is refused by name when an image is opened for
//! writing.
//!
//! Failure: as in the crate `commands`. Callers: `formats` and `mkfs`.

mod features;
mod info;
mod jobs;
pub(crate) mod mkfs;
mod open;
pub(crate) mod row;
