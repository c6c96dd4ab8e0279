//! Images that lie: checksums are right, what they cover is not.
//!
//! [`Editor`] changes what an image says and makes the checksums right again. [`trial`] mutates one of
//! the [`bases`] and sees what reading and changing it comes to. [`hostile_image`] makes small ones fast, with blocks
//! lost or elsewhere and wrong checksums too. Callers: the tests of what a volume does with such images, and
//! `cargo trials mutate-images` and `fuzz-images`.

mod base;
mod editor;
mod fields;
mod mutate;
mod rough;
mod small;
mod trial;
mod witness;

pub use base::{Base, bases};
pub use editor::{BlockAt, Editor, ItemAt};
pub use small::{HostileImage, SmallBase, hostile_image, small_bases};
pub use trial::{Outcome, mutated, trial};
