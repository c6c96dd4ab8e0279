//! Makes hostile images: their checksums are right, but the contents are not.
//!
//! [`Editor`] edits an image and corrects the checksums. [`trial`] mutates one of the [`bases`], and reads and changes
//! it. [`hostile_image`] makes small ones fast, also with lost or misplaced blocks and wrong checksums. Callers: the
//! tests of volumes on such images, and `cargo trials mutate-images` and `fuzz-images`.

mod base;
mod damage;
mod editor;
mod fields;
mod mutate;
mod small;
mod trial;
mod witness;

pub use base::{Base, bases};
pub use editor::{BlockAt, Editor, ItemAt};
pub use small::{HostileImage, SmallBase, hostile_image, small_bases};
pub use trial::{Outcome, mutated, trial};
