//! Holds the state that the parts of a service share: negotiated features, the kernel's caches, the answer to a
//! request.
//!
//! The types of requests (`entry`, `attr`, ...) share these; the service that holds them is above. Nothing here can
//! fail.

use super::direct_writes::DirectWriters;
use super::encode::Timeouts;
use super::lost_writes::Lost;
use super::mmap_files::Mappable;
use super::nearly_full::Room;
use crate::ServedFile;
use crate::notify::Stale;
use crate::protocol::OwnedRequest;
use std::io;
use std::sync::Arc;
use vfs::file_system::{Errno, Handle, NodeId, Result, SyncTicket};

/// Most other requests that are answered while syncs are deferred.
pub(crate) const MEANWHILE_MAX: usize = 8;

/// Makes the kernel write all dirty pages of the mount, and waits for that. Called from any thread; the server goes on
/// answering meanwhile.
pub type WriteBack = Arc<dyn Fn() -> io::Result<()> + Send + Sync>;

/// A deferred sync.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BegunSync {
    pub(super) node: NodeId,
    pub(super) handle: Handle,
    pub(super) ticket: SyncTicket,
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The reply has this many bytes in the buffer.
    Done(usize),
    /// The same, and the kernel's caches became stale.
    DoneStale(usize, Stale),
    /// An error.
    Failed(Errno),
    /// A sync that others may join: its answer is that of [`super::Service::end_sync`].
    Begun(BegunSync),
    /// The request is answered by [`super::Service::serve_with_data`], on a thread of its own.
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

/// The negotiated features, and how long the kernel may cache replies.
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

/// Files with dirty pages that only the kernel has, and files with write-back errors.
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
