//! Answers the calls of clients of NFS and MOUNT.
//!
//! ```text
//!  connection  threads of one connection: receive a record, answer it, send the reply
//!    record    fragments become records, within time and memory (socket, budget)
//!    dispatch  a call becomes a procedure, or a refusal; replies that are kept (replies)
//!    session   what one call works with: the user's view (users), nodes, order, durability
//!    mount, attributes, contents, names, list      the procedures
//! ```
//!
//! Invariants
//! * Each call holds references to the nodes it uses and gives them back; none are kept between calls, so that a
//!   removed file is free at once.
//! * Changes of one node take turns (order), so that the attributes before and after a change that a client is told
//!   belong together.
//! * The number of threads and the bytes of long records and replies are limited for all connections together.
//!
//! Failure: a client that breaks RPC, or takes or gives nothing within a time limit, loses its connection; all else is
//! a status. Caller: `serve nfs` of the program.

mod attributes;
mod budget;
mod connection;
mod contents;
mod dispatch;
mod list;
mod mount;
mod names;
mod order;
mod record;
mod replies;
mod session;
mod socket;
mod users;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use vfs::file_system::{Errno, Follow};
use vfs::{FileSystem, NodeId};

use crate::handle::{Handles, KEY_BYTES};
use crate::wire::Malformed;
use budget::Budget;
use order::Order;
use replies::Replies;
use socket::Socket;
pub use users::{NOBODY, Squash};

/// The port of NFS.
pub const DEFAULT_PORT: u16 = 2049;

/// Time in which a client has to send a record, and to take some of a reply.
const STALL_MAX: Duration = Duration::from_secs(60);
/// Time that a connection may be without a call. Clients close theirs earlier, and connect again when they need to.
const IDLE_MAX: Duration = Duration::from_secs(15 * 60);
/// Time for the first record of a connection.
const FIRST_MAX: Duration = Duration::from_secs(60);
/// Threads of a connection.
const THREADS_MAX: usize = 16;
/// Further threads of all connections together.
const SHARED_THREADS_MAX: usize = 256;
/// Bytes of all long records and replies that are in memory.
const LONG_BYTES_MAX: usize = 96 << 20;

/// How a directory is exported.
#[derive(Debug, Clone)]
pub struct Options {
    /// Path of the directory.
    pub path: Vec<u8>,
    /// The UUID of the volume.
    pub uuid: [u8; 16],
    /// The secret of the handles: another one makes all handles stale.
    pub key: [u8; KEY_BYTES],
    /// The users for whom clients act.
    pub squash: Squash,
    /// Refuse every change.
    pub read_only: bool,
}

/// The other end of a connection. A client that connects again from its address may repeat a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Peer {
    /// An address of TCP.
    Address(SocketAddr),
    /// A connection without an address.
    Nameless(u64),
}

/// The state of a server.
struct Shared {
    fs: Arc<dyn FileSystem>,
    /// The exported directory, to which this holds a reference.
    base: NodeId,
    handles: Handles,
    squash: Squash,
    read_only: bool,
    /// Another number tells clients that writes which they did not commit may be lost.
    verifier: AtomicU64,
    order: Order,
    replies: Replies,
    budget: Budget,
    /// Further threads that may be started.
    threads: AtomicUsize,
    /// Numbers for connections without an address.
    connections: AtomicU64,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.fs.forget(self.base, 1);
    }
}

/// Serves one directory of a file system. Clones share it.
#[derive(Clone)]
pub struct Server(Arc<Shared>);

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("base", &self.0.base).field("squash", &self.0.squash).finish_non_exhaustive()
    }
}

impl Server {
    /// A server of a directory.
    ///
    /// # Errors
    /// Those of its path; `ENOTDIR`; `EIO` where the system has no random numbers.
    pub fn new(fs: Arc<dyn FileSystem>, options: &Options) -> vfs::Result<Self> {
        let base = fs.resolve(&options.path, Follow::Last)?;
        if !base.attr.is_dir() {
            fs.forget(base.node, 1);
            return Err(Errno::ENOTDIR.into());
        }
        let verifier = getrandom::u64().map_err(|_| Errno::EIO)?;
        let read_only = options.read_only || fs.is_read_only();
        Ok(Self(Arc::new(Shared {
            fs,
            base: base.node,
            handles: Handles::new(&options.key, &options.uuid, base.attr.home),
            squash: options.squash,
            read_only,
            verifier: AtomicU64::new(verifier),
            order: Order::default(),
            replies: Replies::default(),
            budget: Budget::new(LONG_BYTES_MAX),
            threads: AtomicUsize::new(SHARED_THREADS_MAX),
            connections: AtomicU64::new(0),
        })))
    }

    /// Serves one connection to its end; `address` is the other end's. Shutting the socket down ends it.
    ///
    /// # Errors
    /// The fault of the client, or the socket's error; only for a log.
    pub fn serve(&self, socket: Arc<OwnedFd>, address: Option<SocketAddr>) -> Result<(), Ended> {
        let number = || Peer::Nameless(self.0.connections.fetch_add(1, Ordering::Relaxed));
        let peer = address.map_or_else(number, Peer::Address);
        connection::run(&self.0, &Socket::new(socket), peer)
    }
}

impl Shared {
    /// Takes the right to start one more thread.
    fn take_thread(&self) -> Option<Seat<'_>> {
        let less = |left: usize| left.checked_sub(1);
        let taken = self.threads.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        taken.is_ok().then(|| Seat(&self.threads))
    }

    fn verifier(&self) -> u64 {
        self.verifier.load(Ordering::Acquire)
    }

    /// Tells clients that writes may be lost.
    fn change_verifier(&self) {
        self.verifier.fetch_add(1, Ordering::AcqRel);
    }
}

/// The right to run a thread.
struct Seat<'a>(&'a AtomicUsize);

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The reason why a connection ended early.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    /// The client sent something that does not belong there.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The socket failed, or the client was too slow.
    #[error(transparent)]
    Socket(#[from] io::Error),
}
