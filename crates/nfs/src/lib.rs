//! A server of NFS version 3 (RFC 1813) with MOUNT, over any [`vfs::FileSystem`]: machines without FUSE, and others in
//! the network, mount an image.
//!
//! ```text
//!   wire     bytes to values and back; pure
//!   handle   file handles, with a seal
//!   server   Server: connections, procedures, the replies that are kept
//! ```
//!
//! Promises to clients
//! - A handle stays valid over restarts of the server, as long as its node exists and the key is the same.
//! - Before the reply to a procedure that changes names or attributes, the change is durable. A WRITE is durable as it
//!   asks for, and at the latest when COMMIT was answered. The verifier of both changes with each start of the server
//!   and with each failure to make something durable, so that a client sends again what may be lost.
//! - A procedure that is sent again on the same address, because its reply was lost, is not carried out twice as long
//!   as this server runs.
//!
//! Invariants: no handle leads out of the exported directory; the rules of [`access::Permitted`] apply to each user,
//! whose number is believed: the protocol has no proof of it; memory is bounded whatever clients send.
//!
//! Failure: the status of RFC 1813, or the end of the connection of a client that breaks the protocol or stalls. There
//! are no locks (NLM): clients mount with `nolock`. Caller: `serve nfs` of the program.

mod handle;
mod number;
mod server;
pub mod wire;

pub use handle::{HANDLE_BYTES, KEY_BYTES};
pub use server::{DEFAULT_PORT, Ended, NOBODY, Options, Peer, Server, Squash};
