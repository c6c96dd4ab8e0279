//! The client: an export of a server as a [`blockdev::Device`].
//!
//! ```text
//!   device       NbdDevice: checks, alignment, pieces of requests
//!   windows      read-ahead: what will probably be read, asked for early
//!   connections  which connection a request takes; reconnecting; what a lost connection means for writes
//!   link         one connection: requests under way, replies
//!   handshake    options, until the export is chosen
//! ```
//!
//! No thread runs here. Of the callers that wait for replies, one at a time receives, for itself and the others: so a
//! single request costs no change of threads, and a device that is opened before a sandbox is entered has nothing that
//! would be in its way.
//!
//! Failure: [`blockdev::Error`] with the locator as the device's name. Callers: [`blockdev::open`], by the schemes that
//! the library `spinney` registers.

mod connections;
mod device;
mod handshake;
mod link;
mod replay;
mod windows;

pub use device::{NbdDevice, SCHEMES, open};

/// Gives a client bytes in place of a server's replies. For the fuzz target `nbd_replies`.
#[doc(hidden)]
pub fn replay_replies(bytes: &[u8]) {
    replay::replay(bytes);
}
