//! Disks around file systems: the forms an image of a disk has, its partition table, and the description it is built
//! from.
//!
//! ```text
//!  SPEC.toml --Spec::read--> Spec --plan--> Layout --table--> gpt::Table --write--> raw file
//!                                              |                                        |
//!                                (file systems, swap areas) ------ placed into ---------+
//!                                                                                       |
//!                                                             containers::write --> qcow2, simg, zst, raw
//! ```
//!
//! * [`containers`] converts a finished raw image to another form, as a stream.
//! * [`gpt`] reads and writes GUID partition tables.
//! * [`swap`] writes the signature of a swap area.
//! * [`spec`] reads the description of a disk and plans where its partitions lie.
//!
//! Invariants
//! * The same image and options give the same bytes, whatever the number of threads and the kind of output.
//! * Planning touches no file, and every identifier that nobody gave follows from the description.
//! * No memory in proportion to a number that an input claims; named constants limit all of them.
//! * The crate knows no file system: formats, their options and sources are names that it hands on.
//!
//! Failure: one [`Error`] with what, where, expected and found; nothing is written before a plan is complete. Callers:
//! the program's commands that build and convert images.

pub mod containers;
mod error;
pub mod gpt;
mod number;
pub mod spec;
pub mod swap;

pub use error::{Error, Result};
