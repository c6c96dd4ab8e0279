//! Images on web servers and in S3, as devices that can be read; and objects there, which can be written too.
//!
//! ```text
//!  device --> reader --> blocks (memory, what is in flight) --> window (how much is fetched)
//!                |-----> disk (blocks in files)
//!                +-----> origin (one pinned file) --> transport --> dial (connections)
//!                        objects (below an address) ------^
//! ```
//!
//! Invariants
//! * A device shows one version of the file: an answer about another one is an error.
//! * Bytes that are fetched stay below about twice those that are read.
//! * Servers are hostile: heads, bodies, redirects and time are bounded; no more memory is used than the caches may.
//! * Opening starts no thread, so that a process may restrict itself afterwards.
//!
//! Failure: [`crate::Error`] as the cause of an error of the device; a changed file is [`blockdev::Error::Gone`].
//! Callers: [`blockdev::open`], by the schemes that [`crate::register`] registers.

mod address;
mod blocks;
mod device;
mod dial;
mod disk;
mod objects;
mod origin;
mod reader;
mod transport;
mod window;

pub use device::{WebDevice, open};
pub use dial::{Dialer, addresses, dial, dial_by};
pub use objects::{Condition, Objects, Put};
