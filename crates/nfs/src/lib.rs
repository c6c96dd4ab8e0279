//! Server for NFS version 3 and MOUNT (RFC 1813) over any [`vfs::FileSystem`], so that machines without FUSE, and other
//! machines in the network, can mount an image.
//!
//! ```text
//!   wire     encodes and decodes messages, without I/O
//!   handle   file handles, signed with a secret key
//!   server   Server: connections, procedures, the duplicate request cache
//! ```
//!
//! Guarantees to clients
//! - A handle stays valid when the server restarts, as long as its node exists and the key is the same.
//! - Changes of names and attributes are durable before the reply. A WRITE is durable as its `stable_how` demands, and
//!   at the latest after the reply to COMMIT. The write verifier changes with each start of the server and with each
//!   failed sync, so that clients send again the writes that may be lost.
//! - If a reply is lost and the client repeats the call from the same address, the server does not carry it out twice,
//!   unless it was restarted in between.
//!
//! Invariants: no handle leads out of the exported directory, unless a node was moved out of it (see `handle`).
//! [`access::Permitted`] checks the permissions of the user that the client names; the server has to trust that name,
//! because AUTH_SYS has no proof. Memory use is bounded whatever clients send.
//!
//! Failure: procedures fail with a status of RFC 1813; a client that breaks the protocol or stalls loses its
//! connection. There is no lock manager (NLM): clients mount with `nolock`. Caller: `serve nfs` of the program.

mod handle;
mod number;
mod server;
pub mod wire;

pub use handle::{HANDLE_BYTES, KEY_BYTES};
pub use server::{DEFAULT_PORT, Ended, NOBODY, Options, Peer, Server, Squash};
