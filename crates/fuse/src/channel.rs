//! Defines the channel between a kernel and a session: requests arrive, replies and notifications are sent. `session`
//! and `notify` use it.
//!
//! `/dev/fuse` is one (a descriptor); a queue of virtio-fs, or a test, brings its own. A message has a header, as in
//! the kernel's protocol. Failure: a message that the other side refuses is lost; errors of the system.

use rustix::io::Errno;
use std::fmt::Debug;
use std::io;
use std::os::fd::OwnedFd;

/// A channel for messages, usable by several threads.
pub trait Channel: Debug + Send + Sync {
    /// Waits for a whole request, and returns its length in bytes; 0 at the end.
    ///
    /// # Errors
    /// The system's. The channel remains usable.
    fn receive(&self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Sends a reply, or a notification, which has 0 for the number of its request.
    ///
    /// # Errors
    /// The system's: the other side refused it.
    fn send(&self, message: &[u8]) -> io::Result<()>;
}

impl Channel for OwnedFd {
    fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match rustix::io::read(self, &mut *buffer) {
                // A signal; a request that was cancelled; a request that another thread took.
                Err(Errno::INTR | Errno::NOENT | Errno::AGAIN) => {}
                Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(0),
                len => return Ok(len?),
            }
        }
    }

    fn send(&self, message: &[u8]) -> io::Result<()> {
        Ok(rustix::io::retry_on_intr(|| rustix::io::write(self, message)).map(drop)?)
    }
}
