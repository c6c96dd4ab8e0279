//! What f2fs is to the program: its row in `formats`, how an image is made, opened and mounted, what `info` shows.
//!
//! Images are made and read, not changed so far: what would change one is refused before the image is touched.
//!
//! Failure: as in the crate `commands`. Callers: `formats` and `mkfs`.

mod features;
mod info;
pub(crate) mod mkfs;
mod open;
pub(crate) mod row;
