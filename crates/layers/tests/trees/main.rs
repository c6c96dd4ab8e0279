//! The tests of the crate in one program, which links faster than one for each: container images, manifests and owners, beside the tools of others.

mod common;
mod difference;
mod images;
mod manifests;
mod whiteouts;
