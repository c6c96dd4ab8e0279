//! io_uring as a transport: one queue a processor, a request and a reply in one system call.
//!
//! The kernel puts a request into the queue of the processor that the asking process runs on. A
//! queue belongs to one thread, which stays on that processor and answers in turn; its slots (the
//! memory that requests lie in) bound how many requests it holds, and the kernel keeps the rest.
//! A slot has a page of headers and a payload: a write's data is there, page-aligned, and a read
//! is answered there. Only answers to requests that come with a payload of their own (names,
//! values) are first put into a buffer of the thread, and then copied over it.
//!
//! Forgotten nodes, interrupts and requests from before the queues were registered come through
//! the FUSE device, so its workers run all the same. When the kernel refuses a queue, everything
//! comes through the device.
//!
//! How it ends: every slot comes back with an error when the mount is gone.
//!
//! A call that waits (a sync) holds up what other processes on the same processor ask for; the
//! device has no such ties. Which is better depends on the load; see docs/performance.md.
//!
//! Called by the server, which makes the queues before it agrees with the kernel to use them.

mod processors;
mod queue;

pub(crate) use queue::{Queue, make_queues};
