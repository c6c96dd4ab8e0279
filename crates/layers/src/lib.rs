//! Fills a [`transfer::Tree`] from what describes the contents of an image: container images, manifests, a directory of
//! the host with the saved state of fakeroot; and changes the owners in it.
//!
//! ```text
//!  host directory --host::read_into--\
//!  container image --oci::Image------> Tree --owners::apply--> --manifest::apply--> transfer::Transfer --> image
//! ```
//!
//! Invariants
//! * Whatever comes later wins: manifest over owner rules over archives and fakeroot over the host (see [`owners`]).
//! * Nothing is written to the host. Contents stay where they are, or in unnamed temporary files, until a copy reads
//!   them.
//! * All input is untrusted: lengths, counts and depths have named limits, digests and sizes are verified.
//!
//! Failure: [`Error`] names the file, line, blob or path, what is expected there and what was found. A failed step may
//! have changed a part of the tree, which is of no use then. Callers: commands that make and fill images.

mod content;
mod error;
mod fakeroot;
pub mod host;
mod line;
mod listing;
pub mod manifest;
mod number;
pub mod oci;
pub mod owners;

pub use error::{Error, Result};
pub use fakeroot::{FakerootState, STATE_FILES_MAX};
