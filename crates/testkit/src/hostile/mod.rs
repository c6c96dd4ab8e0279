//! Images that lie: checksums are right, what they cover is not.
//!
//! [`Editor`] changes what an image says and makes the checksums right again. [`trial`] mutates one of
//! the [`bases`] and sees what reading and changing it comes to. Callers: the tests of
//! what a volume does with such images, and `cargo xtask mutate-images`.

mod base;
mod editor;
mod fields;
mod mutate;
mod trial;

pub use base::{Base, bases};
pub use editor::{BlockAt, Editor, ItemAt};
pub use trial::{Outcome, mutated, trial};
