//! Serves devices: the handshake, then requests until the client leaves.
//!
//! `handshake` answers options, `transmission` requests. Each connection has one thread, and further ones while several
//! of its requests are under way: a thread that has read a request lets the next thread read, carries it out, and sends
//! the reply.
//!
//! Invariants: data passes in pieces of a limited size, and the number of threads is limited for all connections
//! together, which bounds the memory; a FLUSH covers all writes that were answered before, on every connection, so that
//! clients may use several.
//!
//! Failure: a client that breaks the protocol, or takes or gives nothing within a time limit, loses its connection. An
//! error of the device is the answer to its request. Caller: `serve nbd` of the program.

mod handshake;
mod transmission;

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use blockdev::Device;

use crate::stream::Stream;
use crate::wire::Malformed;

/// Time that a client has for the whole handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(30);
/// Time in which a client has to send the rest of a request, and to take some of a reply.
const STALL_MAX: Duration = Duration::from_secs(60);
/// Threads of a connection.
const THREADS_MAX: usize = 16;
/// Further threads of all connections together.
const SHARED_THREADS_MAX: usize = 256;

/// A device that clients can choose by its name.
#[derive(Debug, Clone)]
pub struct Export {
    /// Its name.
    pub name: String,
    /// A text for people.
    pub description: String,
    /// The device.
    pub device: Arc<dyn Device>,
    /// Changes are refused, even where the device would allow them.
    pub read_only: bool,
}

impl Export {
    fn is_read_only(&self) -> bool {
        self.read_only || self.device.is_read_only()
    }
}

/// Serves exports. Clones share them.
#[derive(Debug, Clone)]
pub struct Server {
    exports: Arc<[Export]>,
    /// Further threads that may be started.
    threads: Arc<AtomicUsize>,
}

impl Server {
    /// A server of these exports; a client that names none gets the first.
    #[must_use]
    pub fn new(exports: Vec<Export>) -> Self {
        Self { exports: exports.into(), threads: Arc::new(AtomicUsize::new(SHARED_THREADS_MAX)) }
    }

    /// The exports.
    #[must_use]
    pub fn exports(&self) -> &[Export] {
        &self.exports
    }

    /// Serves one connection to its end. Shutting the socket down ends it.
    ///
    /// # Errors
    /// The fault of the client, or the socket's error; only for a log.
    pub fn serve(&self, socket: Arc<OwnedFd>) -> Result<(), Ended> {
        let stream = Stream::new(socket);
        let Some(chosen) = handshake::run(self, &stream)? else { return Ok(()) };
        transmission::run(self, &stream, chosen)
    }

    fn find(&self, name: &str) -> Option<&Export> {
        let first = || self.exports.first().filter(|_| name.is_empty());
        self.exports.iter().find(|export| export.name == name).or_else(first)
    }

    /// Takes the right to start one more thread.
    fn take_thread(&self) -> Option<Seat> {
        let less = |left: usize| left.checked_sub(1);
        let taken = self.threads.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        taken.is_ok().then(|| Seat(Arc::clone(&self.threads)))
    }
}

/// The right to run a thread.
struct Seat(Arc<AtomicUsize>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The reason why a connection ended early.
#[derive(Debug)]
pub enum Ended {
    /// The client sent something that does not belong there.
    Malformed(Malformed),
    /// The socket failed, or the client was too slow.
    Socket(io::Error),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(error) => error.fmt(f),
            Self::Socket(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Ended {}

impl From<Malformed> for Ended {
    fn from(error: Malformed) -> Self {
        Self::Malformed(error)
    }
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        Self::Socket(error)
    }
}
