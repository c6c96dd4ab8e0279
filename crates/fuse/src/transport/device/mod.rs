//! The FUSE device as a transport: one request a `read(2)`, one reply a `write(2)`.
//!
//! A worker owns a channel (a descriptor of the connection, usually a clone, so that the kernel keeps its pending
//! requests on a separate list) and two buffers that it uses for every request. Both are laid out so that data begins
//! at a page border: in the request buffer the two structures before the data of a write end there, in the reply buffer
//! the header does. So data is never copied here, and a request costs two system calls and no allocation.
//!
//! A sync is answered when the channel has no further request, together with all that came since: meanwhile the channel
//! does not block. A worker that waited for each would delay requests that could have joined.
//!
//! While requests follow each other quickly, one thread takes them near the asker (`intake`, `seat`).
//!
//! Failure: the kernel answers `ENODEV` when the mount is gone. A reply to an abandoned request (`ENOENT`) is dropped.
//! Any other reply that the kernel refuses is replaced by `EIO`, so that no process waits for ever.
//!
//! Called by the server, which starts a thread for each worker.

mod buffer;
mod intake;
mod seat;
mod worker;

pub(crate) use intake::Intake;
pub(crate) use worker::{Worker, initialize};
