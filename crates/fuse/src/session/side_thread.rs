//! Answers requests that need the kernel's dirty pages flushed first, on their own threads.
//!
//! A snapshot must hold the data that programs wrote before it. With a writeback cache, and always for shared mappings,
//! the newest data is in the kernel's page cache only. The kernel writes it back when another process syncs the mount
//! (a [`super::WriteBack`] makes one do it), and each write-back is a request to this server. A worker that waited for
//! them would block the server, so such a request gets a thread of its own. (A notification could flush too, but its
//! sender waits uninterruptibly.)
//!
//! Syncs of everything have threads of their own too, some at a time: they take as long as a commit, and with several
//! of them, and a few syncs of files, no worker would be left for requests that wait for nothing. Called by the workers
//! of the transports.

use super::service::Service;
use super::state::Answer;
use crate::notify::Stale;
use crate::protocol::requests::IoctlIn;
use crate::protocol::{OwnedRequest, Request, opcode};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::file_system::{Control, Errno, NodeFlags, Result};

/// Most syncs of everything with a thread of their own at a time.
const SYNCS_APART_MAX: usize = 4;

/// Room for the answer of such a request.
const REPLY_BYTES_MAX: usize = 128 * 1024;

impl Service {
    /// True if the kernel may have newer data than the file system, and the request needs the file's data.
    pub(super) fn waits_for_data(&self, request: &Request<'_>) -> bool {
        if request.header.opcode != opcode::IOCTL || self.writing.write_back.is_none() || self.agreed.is_read_only {
            return false;
        }
        self.may_keep_data() && self.takes_data(request)
    }

    /// A slot among the syncs of everything with threads of their own, if the request is such a sync and a slot is
    /// free.
    pub(super) fn syncs_apart(&self, request: &Request<'_>) -> Option<Arc<()>> {
        let is_sync = request.header.opcode == opcode::SYNCFS && !self.is_own_sync(request);
        // The service holds one reference, too.
        (is_sync && Arc::strong_count(&self.writing.syncs_apart) <= SYNCS_APART_MAX)
            .then(|| Arc::clone(&self.writing.syncs_apart))
    }

    /// True for a sync that only serves to make the kernel write its dirty pages.
    pub(super) fn is_own_sync(&self, request: &Request<'_>) -> bool {
        let writer = self.writing.writer.load(Ordering::Relaxed);
        writer != 0 && request.header.pid == writer
    }

    fn may_keep_data(&self) -> bool {
        self.agreed.writeback || self.agreed.zero_open || self.caches.mappable.is_any()
    }

    fn takes_data(&self, request: &Request<'_>) -> bool {
        let Ok(args) = request.args::<IoctlIn>() else {
            return false;
        };
        let (node, input) = (request.node(), request.data());
        match self.controls().flags_to_set(node, args.cmd, input) {
            // Data written before the file became immutable belongs to it.
            Some(Ok(flags)) => flags.intersects(NodeFlags::IMMUTABLE | NodeFlags::APPEND),
            Some(Err(_)) => false,
            None => self.fs.controls().is_some_and(|fs| {
                fs.control_takes_data(&Control {
                    caller: request.caller(),
                    owns_device: false,
                    node,
                    command: args.cmd,
                    input,
                    output_bytes_max: 0,
                })
            }),
        }
    }

    /// Answers a request once the kernel has written its dirty pages; a sync of everything at once.
    pub(crate) fn serve_with_data(&self, request: &OwnedRequest) -> Apart {
        if request.borrow().header.opcode == opcode::SYNCFS {
            let reply = self.fs.sync_fs().map(|()| Vec::new()).map_err(Errno::from);
            return Apart { reply, stale: None };
        }
        let mut out = vec![0; REPLY_BYTES_MAX];
        let mut kept = self.write_kept();
        if request.borrow().header.opcode == opcode::GETATTR {
            self.caches.room.all_written(&*self.fs);
            // A write-back error of another file is reported by a sync of that one.
            kept = Ok(());
        }
        let answer = kept.map(|()| self.dispatch(&request.borrow(), &mut out));
        let (result, stale) = match answer {
            Ok(Answer::Done(len)) => (Ok(len), None),
            Ok(Answer::DoneStale(len, stale)) => (Ok(len), Some(stale)),
            Ok(Answer::Failed(error)) | Err(error) => (Err(error), None),
            // Control operations have no other answers.
            Ok(Answer::Begun(_) | Answer::Apart(_) | Answer::Silent) => (Err(Errno::EIO), None),
        };
        let reply = result.map(|len| {
            out.truncate(len);
            out
        });
        Apart { reply, stale }
    }

    fn write_kept(&self) -> Result<()> {
        let written = self.writing.write_back.as_ref().map_or(Ok(()), |write_back| write_back());
        written.map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno))
    }
}

/// The answer of a request with a thread of its own.
#[derive(Debug)]
pub(crate) struct Apart {
    pub(crate) reply: Result<Vec<u8>>,
    pub(crate) stale: Option<Stale>,
}
