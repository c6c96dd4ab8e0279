//! Transports requests and replies over io_uring: one queue a processor, a request and a reply in one system call.
//!
//! The kernel puts a request into the queue of the processor on which the calling process runs. A queue belongs to one
//! thread, which stays on that processor and answers in order; its slots (memory for requests) limit the number of
//! requests it holds, and the kernel keeps the rest. A slot has a page of headers and a payload: a write's data is
//! there, page-aligned, and a read is answered there. Only replies to requests that have a payload of their own (names,
//! values) are first put into a buffer of the thread, and then copied over it.
//!
//! Forgotten nodes, interrupts and requests from before the queues were registered come through the FUSE device, so its
//! workers run all the same. If the kernel refuses a queue, everything comes through the device.
//!
//! Failure: every slot is returned with an error when the mount is gone.
//!
//! A call that waits (a sync) delays requests of other processes on the same processor; the device has no such
//! coupling. Which is better depends on the load; see docs/performance.md.
//!
//! Called by the server, which makes the queues before it negotiates their use with the kernel.

mod queue;

pub(crate) use queue::{Queue, make_queues};
