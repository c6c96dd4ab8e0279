//! The tests of the crate in one program, which links faster than one for each: container images, manifests and
//! owners, beside the tools of others.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "tests fail by panicking")]

mod common;
mod difference;
mod images;
mod manifests;
mod whiteouts;
