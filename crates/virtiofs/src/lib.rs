//! A virtio-fs device over any [`vfs::FileSystem`]: a guest of QEMU or cloud-hypervisor mounts the file system as its
//! own, without a network.
//!
//! ```text
//!   guest    Guest: the connection of a virtual machine monitor (VMM), by the vhost-user protocol
//!   device   the queues of the device: takes requests from the guest's memory, and writes replies there
//!   mounted  the volume while the guest has it mounted: opened by the first request, durable after the last
//! ```
//!
//! The VMM passes the guest's memory and the queues; the messages in them are those of FUSE, which [`fuse::Session`]
//! answers. Requests that may wait for a commit or for other requests run on threads of their own, all others on the
//! thread of their queue.
//!
//! Invariants: one guest at a time, because the guest's kernel caches what it read and there is no way to tell it of
//! other changes; the volume is open while the guest has it mounted, and never twice. The guest's lengths and addresses
//! are checked by the crates that read the queues (`virtio-queue`, `vm-memory`); a request longer than a FUSE message
//! is answered by nothing, and a reply that does not fit the guest's buffers by an error.
//!
//! Failure: a guest that breaks the protocol loses its device, and what it had not synced. A VMM that shortens the file
//! behind the guest's memory kills the server: both belong to the same user. Caller: `serve virtiofs` of the program.

mod device;
mod guest;
mod mounted;

pub use guest::{Ender, Error, Guest, Result};
pub use mounted::OpenVolume;
