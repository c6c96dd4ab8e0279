//! Images on servers that behave and misbehave, a bucket that wants signatures, and the server for browsers.

#![allow(clippy::unwrap_used, clippy::panic, clippy::as_conversions, missing_docs, reason = "tests fail by panicking")]

mod caching;
mod fake;
mod misbehaving;
mod objects;
mod reading;
mod s3;
mod serving;
mod support;
