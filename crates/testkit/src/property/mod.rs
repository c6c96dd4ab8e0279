//! Random operations on a volume and on the model, compared one by one and as whole trees.
//!
//! `generate` invents operations that are mostly sensible for the present tree; `drive` does one on a
//! [`spinney::Volume`]; `compare` walks both trees; `run` puts them together with commits, re-opens and full volumes,
//! and asks `btrfs check` about what is left.
//!
//! Invariants: an operation that the model allows succeeds on the volume with the same effect, and one that it
//! forbids fails with the same caller's error, without effect. The one exception is NoSpace, accepted only when the
//! volume is nearly full, and only if nothing changed (of a write, a part may have been done: each byte is then the
//! old or the new one, and the model takes over what it finds).
//!
//! A failure names the seed and the operation, and gives the last operations. Called by the tests of this crate.

mod compare;
mod drive;
mod generate;
mod image;
mod run;
mod threads;

pub(crate) use compare::compare_content;
pub use compare::compare_trees;
pub(crate) use drive::drive;
pub use generate::Generator;
pub(crate) use image::make as make_image;
pub use run::{Report, Settings, run};
pub use threads::run_threads;
