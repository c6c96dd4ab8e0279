//! Network block devices (NBD): a client that is a [`blockdev::Device`], and a server of one.
//!
//! The protocol is that of `doc/proto.md` of <https://github.com/NetworkBlockDevice/nbd>: the fixed newstyle handshake,
//! simple and structured replies, and the metadata context `base:allocation`, which says where a device has holes.
//!
//! ```text
//!   wire        bytes to values and back; pure
//!   tls         encryption of a connection
//!   stream      a socket, encrypted or not, with time limits
//!   address     nbd://HOST:PORT/EXPORT, nbd+unix:///EXPORT?socket=PATH; with TLS nbds:// and nbds+unix://
//!   client      NbdDevice: requests under way together, read-ahead, reconnecting
//!   server      Server: a device for clients
//! ```
//!
//! Promises of the client
//! - A write that was answered is durable after a [`blockdev::Device::flush`] that began later. A connection that is
//!   lost while a write is unanswered or unflushed fails the device for writing: the server may have been restarted,
//!   and nothing is known of those writes. No write is ever sent a second time.
//! - Reads go on after reconnecting, if the export still has its size. The number of attempts is bounded.
//! - A server that does not answer within the time limit gives an error.
//!
//! Invariants: memory is bounded whatever the other side sends; a length, cookie or type that does not belong where it
//! stands ends the connection, and no other. Failure: [`blockdev::Error`], with the locator as the device's name.
//! Callers: the library `spinney`, which registers the schemes, and `serve nbd` of the program.

mod address;
mod client;
mod inbox;
mod number;
mod server;
mod stream;
mod tls;
pub mod wire;

pub use address::{Address, DEFAULT_PORT, Dialer, dial, dial_by};
#[doc(hidden)]
pub use client::replay_replies;
pub use client::{NbdDevice, SCHEMES, open};
pub use server::{Export, Server};
