//! All procedures of the server, by a client of our own over a file system in memory; hostile clients; the fuzz
//! targets.

#![allow(clippy::unwrap_used, clippy::panic, clippy::as_conversions, missing_docs, reason = "tests fail by panicking")]

mod client;
mod contents;
#[path = "../../../../fuzz/src/nfs.rs"]
#[allow(unreachable_pub, reason = "the fuzz targets are a crate of their own")]
mod fuzzed;
mod garbage;
mod handles;
mod hostile_clients;
mod listing;
mod names;
mod repeated;
mod users;
