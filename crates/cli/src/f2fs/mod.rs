//! What f2fs is to the program: its row in `formats`, how an image is opened and mounted, what `info` shows of it.
//!
//! Images are read only so far: what would change one is refused before the image is touched.
//!
//! Failure: as in the crate `commands`. Caller: `formats`.

mod info;
mod open;
pub(crate) mod row;
