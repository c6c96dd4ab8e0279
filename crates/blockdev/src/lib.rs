//! Block devices and the request queue: the only crate that touches a device.
//!
//! A [`Device`] is a range of bytes that can be read, written and flushed; everything above works on `dyn Device` and
//! cannot tell a disk from an image file, memory, or a simulated disk that loses writes. The crate knows no on-disk
//! format.
//!
//! Promises of a device:
//! - A read or write is whole or an error. No operation is silently short, and a read past the end is
//!   [`Error::UnexpectedEnd`].
//! - Writes that returned are visible to later reads, from any thread.
//! - Writes are durable only after a [`Device::flush`] that began after they returned. Between flushes the medium may
//!   keep any subset of them, in any order.
//! - After a failed flush the state of earlier writes is unknown; retrying it proves nothing. The caller has to stop
//!   writing.
//!
//! Callers: the engines (all I/O), the front ends ([`open`], by a [`Locator`]), the test kit (wrapping). [`queue`]
//! merges adjacent requests before they are submitted, which makes small blocks fast on real disks; [`trace`] counts
//! requests for tests, [`recording`] records them with their purpose ([`tagged`]), for pictures.

pub mod backends;
pub mod buffer;
mod convert;
mod device;
mod error;
mod identity;
pub mod locator;
pub mod queue;
pub mod recording;
mod tag;
pub mod trace;

pub use device::{Device, Holes, Write, check_range, check_writable, parts_len};
pub use error::{Error, Op, Result};
pub use identity::{Holder, Identity};
pub use locator::{Access, Locator, open};
pub use tag::{Kind, Tag, tag, tagged};
