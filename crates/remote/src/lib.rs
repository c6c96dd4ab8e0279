//! A file system served by another process: commands use it to work on a mount, past the kernel.
//!
//! ```text
//!  command                                     server of a mount
//!  Volume -> Remote ==== wire, over a socket ==== Session -> Permitted -> FileSystem
//!            (client)                             (serve)    (crate access)
//! ```
//!
//! [`Remote`] is a [`vfs::FileSystem`] whose calls are messages; every command that works on a volume works on it. A
//! request and its answer are one message each, with contents of files behind them, so that a small file costs one
//! message, or a part of one that makes several, where a mount needs seven requests. A session has several streams, one
//! for each calling thread.
//!
//! Invariants
//! * A client may do everything that the kernel would permit its user on the mount: [`access::Permitted`] decides.
//! * A client can name only nodes and handles that it got: its session keeps the list, and releases all of them at the
//!   client's end.
//! * Changes are reported to [`Watch`], so that the kernel invalidates its caches; cleared privileges of a program
//!   before its contents change.
//! * Messages have a maximal length, a session a maximal number of nodes, openings and streams.
//!
//! Failure: a malformed request closes the client's stream, without other effects; the end of the mount does not wait
//! for a client that sends an endless message. Calls to a server that is gone fail with `EIO`. Callers: the server of a
//! mount, and the commands; they determine the user and the starting directory.

mod wire;

mod batch;
mod client;
mod descriptors;
mod dirs;
mod jobs;
mod list;
mod references;
mod serve;
mod streams;
mod subvolume_call;
mod watch;

pub use client::Remote;
pub use descriptors::{receive_descriptor, receive_hello, send_descriptor};
pub use jobs::{JobFailure, JobKind, Jobs};
pub use serve::Host;
pub use streams::STREAMS_MAX;
pub use watch::Watch;
