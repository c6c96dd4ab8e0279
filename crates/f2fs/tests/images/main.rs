//! Images that `mkfs.f2fs` and `sload.f2fs` make of a tree of files, read and compared with that tree; damaged and
//! edited images.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "tests fail by panicking"
)]
#![allow(clippy::arithmetic_side_effects, reason = "so do sums that overflow")]

mod edit;
mod hostile;
mod loaded;
mod protected;
mod recovered;
mod tool;
mod walk;
