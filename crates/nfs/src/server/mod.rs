//! Answers the calls of clients of NFS and MOUNT.
//!
//! ```text
//!  connection  threads of one connection: receive a record, answer it, send the reply
//!    record    joins fragments to records, with limits of time (socket) and memory (budget)
//!    dispatch  decodes the call, runs its procedure or rejects it; duplicate request cache (replies)
//!    session   context of one call: the user's view (users), nodes, locks (order), syncs
//!    mount, attributes, contents, names, list      the procedures
//! ```
//!
//! Invariants
//! * Each call holds references to the nodes that it uses, and drops them at its end. The server keeps none between
//!   calls, so that a removed file is freed at once.
//! * Changes of one node are serialized (order), so that no other change falls between the attributes before and after
//!   a change that a reply reports (`wcc_data`).
//! * The number of threads and the memory of long records and replies are limited for all connections together.
//!
//! Failure: a client that breaks RPC, or that neither sends nor receives within a time limit, loses its connection;
//! every other failure is a status in the reply. Caller: `serve nfs` of the program.

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

/// Longest time to receive a record; also the longest time without progress while a reply is sent.
const STALL_MAX: Duration = Duration::from_secs(60);
/// Idle timeout of a connection. Clients close idle connections earlier, and reconnect when they need to.
const IDLE_MAX: Duration = Duration::from_secs(15 * 60);
/// Longest wait for the first record of a connection.
const FIRST_MAX: Duration = Duration::from_secs(60);
/// Most threads of one connection.
const THREADS_MAX: usize = 16;
/// Most threads of all connections together, beside the first thread of each.
const SHARED_THREADS_MAX: usize = 256;
/// Most bytes of long records and replies in memory, for all connections together.
const LONG_BYTES_MAX: usize = 96 << 20;

/// Settings of an export.
#[derive(Debug, Clone)]
pub struct Options {
    /// Path of the directory.
    pub path: Vec<u8>,
    /// The UUID of the volume.
    pub uuid: [u8; 16],
    /// Secret key of the handles: with another key all existing handles are stale.
    pub key: [u8; KEY_BYTES],
    /// Mapping of client users to users of the volume.
    pub squash: Squash,
    /// Refuse every change.
    pub read_only: bool,
}

/// Identifies a client in the duplicate request cache: it may repeat a call after it reconnects from the same address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Peer {
    /// Address and port of a TCP client.
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
    /// Write verifier: when it changes, clients send the writes again that they have not committed.
    verifier: AtomicU64,
    order: Order,
    replies: Replies,
    budget: Budget,
    /// Number of threads that may still start.
    threads: AtomicUsize,
    /// Number of the next connection without an address.
    connections: AtomicU64,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.fs.forget(self.base, 1);
    }
}

/// Serves one directory of a file system. Clones share one state.
#[derive(Clone)]
pub struct Server(Arc<Shared>);

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("base", &self.0.base).field("squash", &self.0.squash).finish_non_exhaustive()
    }
}

impl Server {
    /// Makes a server for a directory.
    ///
    /// # Errors
    /// Those of resolving the path; `ENOTDIR`; `EIO` if the system has no random numbers.
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

    /// Serves one connection until it ends; `address` is the client's. To stop it, shut the socket down.
    ///
    /// # Errors
    /// A protocol error of the client, or an error of the socket. Callers only log it.
    pub fn serve(&self, socket: Arc<OwnedFd>, address: Option<SocketAddr>) -> Result<(), Ended> {
        let number = || Peer::Nameless(self.0.connections.fetch_add(1, Ordering::Relaxed));
        let peer = address.map_or_else(number, Peer::Address);
        connection::run(&self.0, &Socket::new(socket), peer)
    }
}

impl Shared {
    /// Reserves one of the shared threads; `None` if all are in use.
    fn take_thread(&self) -> Option<Seat<'_>> {
        let less = |left: usize| left.checked_sub(1);
        let taken = self.threads.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        taken.is_ok().then(|| Seat(&self.threads))
    }

    fn verifier(&self) -> u64 {
        self.verifier.load(Ordering::Acquire)
    }

    /// Changes the write verifier, so that clients send uncommitted writes again.
    fn change_verifier(&self) {
        self.verifier.fetch_add(1, Ordering::AcqRel);
    }
}

/// A reserved thread; dropping it releases the reservation.
struct Seat<'a>(&'a AtomicUsize);

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The reason for which the server closed a connection.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    /// The client broke the protocol.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The socket failed, or the client was too slow.
    #[error(transparent)]
    Socket(#[from] io::Error),
}
