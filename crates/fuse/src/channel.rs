//! The way of messages between a kernel and a session: requests come, replies and notifications go.
//!
//! `/dev/fuse` is one (a descriptor); a queue of virtio-fs, or a test, brings its own. A message has a header, as in
//! the kernel's protocol. Failure: a message that the other side does not take is lost; the errors of the system.

use rustix::io::Errno;
use std::fmt::Debug;
use std::io;
use std::os::fd::OwnedFd;

/// A way of messages. Several threads may use it.
pub trait Channel: Debug + Send + Sync {
    /// Waits for a request, which comes whole, and returns its length in bytes; 0 when no more come.
    ///
    /// # Errors
    /// The system's. The channel can be used further.
    fn receive(&self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Sends a reply, or a notification, which has 0 for the number of its request.
    ///
    /// # Errors
    /// The system's: the other side did not take it.
    fn send(&self, message: &[u8]) -> io::Result<()>;
}

impl Channel for OwnedFd {
    fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match rustix::io::read(self, &mut *buffer) {
                // A signal; a request that was taken back; another thread was faster.
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
