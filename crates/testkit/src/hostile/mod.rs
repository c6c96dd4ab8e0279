//! Images that lie: checksums are right, what they cover is not.
//!
//! [`Editor`] changes what an image says and makes the checksums right again. Callers: the tests of
//! what a volume does with such images, and `cargo xtask mutate-images`.

mod editor;

pub use editor::{BlockAt, Editor, ItemAt};
