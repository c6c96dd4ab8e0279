//! Transports requests and replies between a kernel and a service, on Linux.
//!
//! `connection` has the descriptors of a mount, `device` reads and writes `/dev/fuse`, `ring` is io_uring. Both lay
//! data out so that it is never copied, and answer syncs together; a transport that needs neither uses
//! [`Session`](crate::Session) with a [`Channel`](crate::Channel) of its own. Failure: a connection that is gone ends
//! the transport. Called by the server.

pub(crate) mod connection;
pub(crate) mod device;
mod processors;
pub(crate) mod ring;
