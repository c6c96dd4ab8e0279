//! The FUSE device as a transport: one request a `read(2)`, one reply a `write(2)`.
//!
//! A worker owns a channel (a descriptor of the connection, usually a clone, so that the kernel
//! keeps its requests under way on a list of their own) and two buffers that it uses for every
//! request. Both are laid out so that data lies on a page border: in the request buffer the two
//! structures before the data of a write end there, in the reply buffer the header does. So data
//! is never copied here, and a request costs two system calls and no allocation.
//!
//! A sync is answered when the channel has no request at hand, together with all that came since:
//! meanwhile the channel does not block. A worker who waited for each would keep requests waiting
//! that could have joined.
//!
//! Where requests come fast, a worker looks for the next one for a while before it sleeps (`pace`).
//!
//! How it ends: the kernel answers `ENODEV` when the mount is gone. A reply that nobody waits for
//! any more (`ENOENT`) is dropped. What the kernel does not take otherwise is replaced by `EIO`,
//! so that no process waits for ever.
//!
//! Called by the server, which starts a thread for each worker.

mod buffer;
mod pace;
mod worker;

pub(crate) use pace::{POLL, Pace};
pub(crate) use worker::{Worker, initialize};
