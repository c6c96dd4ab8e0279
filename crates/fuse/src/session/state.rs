//! State that the parts of a service share: features agreed on with the kernel, its caches, the answer to a request.
//!
//! The types of requests (`entry`, `attr`, ...) share these; the service that holds them is above. Nothing here can
//! fail.

use super::direct::DirectWriters;
use super::encode::Timeouts;
use super::lost::Lost;
use super::mappable::Mappable;
use super::room::Room;
use crate::ServedFile;
use crate::notify::Stale;
use crate::protocol::OwnedRequest;
use std::io;
use std::sync::Arc;
use vfs::file_system::{Errno, Handle, NodeId, Result, SyncTicket};

/// Other requests that are answered while syncs are put off.
pub(crate) const MEANWHILE_MAX: usize = 8;

/// Has the kernel write all that it keeps of the mount, and waits until it has. Called from any thread; the server goes
/// on answering meanwhile.
pub type WriteBack = Arc<dyn Fn() -> io::Result<()> + Send + Sync>;

/// A sync that waits for its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BegunSync {
    pub(super) node: NodeId,
    pub(super) handle: Handle,
    pub(super) ticket: SyncTicket,
}

/// The way in which a request is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// So many bytes of the reply buffer.
    Done(usize),
    /// The same, and something changed in a way that the kernel does not know.
    DoneStale(usize, Stale),
    /// An error.
    Failed(Errno),
    /// A sync that others may join: its answer is that of [`super::Service::end_sync`].
    Begun(BegunSync),
    /// To be answered by [`super::Service::serve_with_data`], on a thread that answers nothing else.
    Apart(OwnedRequest),
    /// The kernel expects no answer.
    Silent,
}

impl From<Result<usize>> for Answer {
    fn from(result: Result<usize>) -> Self {
        match result {
            Ok(len) => Self::Done(len),
            Err(error) => Self::Failed(error),
        }
    }
}

/// The features agreed on with the kernel, and how long it may cache replies.
#[derive(Debug, Clone, Copy)]
pub(super) struct Agreed {
    pub(super) timeouts: Timeouts,
    pub(super) zero_open: bool,
    pub(super) tells_each_reader: bool,
    pub(super) writeback: bool,
    pub(super) has_epochs: bool,
    pub(super) has_idmaps: bool,
    pub(super) is_read_only: bool,
}

/// Files with dirty pages that only the kernel has, and files whose pages it lost.
pub(super) struct Caches {
    pub(super) mappable: Mappable,
    pub(super) direct: DirectWriters,
    pub(super) lost: Lost,
    pub(super) room: Room,
}

/// Facts about the server that control operations on the mount return.
#[derive(Debug, Clone, Copy)]
pub(super) struct Own {
    pub(super) socket: Option<[u64; 2]>,
    pub(super) served: Option<ServedFile>,
}
