//! A file system that another process serves: how commands use what is mounted, past the kernel.
//!
//! ```text
//!  command                                     server of a mount
//!  Volume -> Remote ==== wire, over a socket ==== Session -> Permitted -> FileSystem
//!            (client)                             (serve)    (crate access)
//! ```
//!
//! [`Remote`] is a [`vfs::FileSystem`] whose calls are messages; every command that works on a volume works on it.
//! A request and its answer are one message each, contents of files behind them, so that a small file costs one
//! message, or a part of one that makes several, where a mount makes seven requests of it. A session has several
//! streams, one for each thread that asks.
//!
//! Invariants
//! * A client may do what the kernel would permit its user on the mount: [`access::Permitted`] decides.
//! * A node or handle that a client names is one that it was given: its session keeps the list, and gives all of it
//!   back when the client goes.
//! * What changed is told to [`Watch`], so that the kernel does not go on believing what it knew; that a program has
//!   lost its privileges, before its contents change.
//! * A message has a longest length, a session a largest number of nodes, openings and streams.
//!
//! Failure: a client that makes no sense loses its stream, and nothing else happens; nobody waits for one at the end
//! that sent what does not end. Who waits for a server that is gone gets `EIO`. Callers: the server of a mount, and the
//! commands; who the user is and where it may begin is theirs to find out.

mod wire;

mod client;
mod dirs;
mod held;
mod jobs;
mod list;
mod many;
mod serve;
mod streams;
mod subvolume_call;
mod watch;

pub use client::Remote;
pub use jobs::{JobFailure, JobKind, Jobs};
pub use serve::Host;
pub use streams::STREAMS_MAX;
pub use watch::Watch;
pub use wire::receive_hello;
