//! The client against our server, against other servers and against hostile ones; the server against hostile clients.

#![allow(clippy::unwrap_used, clippy::panic, clippy::as_conversions, missing_docs, reason = "tests fail by panicking")]

mod encrypted;
#[path = "../../../../fuzz/src/nbd.rs"]
#[allow(unreachable_pub, reason = "the fuzz targets are a crate of their own")]
mod fuzzed;
mod garbage;
mod harness;
mod hostile_clients;
mod hostile_servers;
mod nbdkit;
mod own_server;
