//! Answers requests: a session without a transport, and the parts of the service that answers them.
//!
//! [`Session`] turns a request into a reply, and needs no `/dev/fuse`: a [`Channel`] moves messages. The transports of
//! this crate negotiate with the kernel themselves, and use [`Service`] directly.
//!
//! It keeps no state between requests except the negotiated features, the nodes that are open for reading and writing,
//! and write-back errors, so threads share little but the file system itself.
//!
//! Division of decisions
//! * The kernel: permissions, locks, offsets of appending writes (it holds the node's lock and knows the size),
//!   caching.
//! * The file system: the rest of the trait. Set-user and set-group bits are cleared at the kernel's request, and
//!   always when the owner changes.
//!
//! The files: `entry` names and nodes, `attr` attributes, `open` opening and closing, `data` contents, `seek` data and
//! holes, `list` directories, `xattr` extended attributes, `control` ioctls, `side_thread` requests that wait for a
//! flush of the kernel's pages, `mmap_files` files with possible mmap pages, `direct_writes` files written with
//! O_DIRECT, `lost_writes` write-back errors, `nearly_full` writers on a nearly full volume. Failure: a malformed
//! message is answered with an errno, one without a whole header with nothing. Callers: `server`, and front ends with
//! a channel of their own.

mod attr;
mod control;
mod data;
mod direct_writes;
mod encode;
mod entry;
mod list;
mod lost_writes;
mod mmap_files;
mod nearly_full;
mod open;
mod seek;
mod service;
mod side_thread;
mod state;
mod xattr;

#[cfg(test)]
mod tests;

pub(crate) use service::{Service, ServiceOptions};
pub(crate) use side_thread::Apart;
pub use state::WriteBack;
pub(crate) use state::{Answer, BegunSync, MEANWHILE_MAX};

use crate::channel::Channel;
use crate::notify::{self, Notifier};
use crate::protocol::replies::OutHeader;
use crate::protocol::requests::InHeader;
use crate::protocol::{Agreement, InitFlags, Request, Wish, opcode};
use crate::shutdown::{Done, Ending};
use crate::steps::Steps;
use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use vfs::FileSystem;
use vfs::file_system::{Errno, Result};
use zerocopy::IntoBytes;

/// Default of the largest read or write: the kernel's maximum.
pub(crate) const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// Smallest useful size.
pub(crate) const REQUEST_BYTES_MIN: u32 = 4096;
/// Most background requests of the kernel, for which no process waits (read-ahead, write-back). Unprivileged mounts get
/// fewer.
const BACKGROUND_MAX: u16 = 64;
/// How long the kernel may cache replies, if it makes all changes or is told of them.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);
/// Bytes of a message besides the data of a read or write: names, values of attributes.
const MESSAGE_BYTES_MIN: usize = 128 * 1024;

/// Options of a session.
#[derive(Debug, Clone)]
pub struct SessionOptions {
    /// Ask for the kernel's writeback cache: `write(2)` returns before the data reaches the server.
    pub writeback: bool,
    /// Answer OPEN with `ENOSYS`, so that the kernel opens and closes files without requests.
    pub zero_open: bool,
    /// Permit idmapped mounts; ignored if the file system needs to know the caller.
    pub idmap: bool,
    /// Drop the cached pages of a file at every open.
    pub tells_each_reader: bool,
    /// Largest read or write in bytes.
    pub request_bytes_max: u32,
    /// How long the kernel may cache names.
    pub entry_timeout: Duration,
    /// How long the kernel may cache attributes.
    pub attr_timeout: Duration,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            writeback: false,
            zero_open: false,
            idmap: false,
            tells_each_reader: false,
            request_bytes_max: REQUEST_BYTES_MAX,
            entry_timeout: TIMEOUT,
            attr_timeout: TIMEOUT,
        }
    }
}

impl SessionOptions {
    /// Largest read or write, within what kernels allow.
    fn data_bytes_max(&self) -> u32 {
        self.request_bytes_max.clamp(REQUEST_BYTES_MIN, REQUEST_BYTES_MAX)
    }

    /// The features that the session asks the kernel for; `has_ring` if requests come through rings too.
    pub(crate) fn wish(&self, fs: &dyn FileSystem, has_ring: bool) -> Wish {
        Wish {
            writeback: self.writeback,
            zero_open: self.zero_open,
            ring: has_ring,
            idmap: self.idmap && !fs.controls().is_some_and(|fs| fs.needs_callers()),
            request_bytes_max: self.data_bytes_max(),
            page_bytes: u32::try_from(rustix::param::page_size()).unwrap_or(u32::MAX),
            background_max: BACKGROUND_MAX,
        }
    }
}

/// The sort of a request, as far as a transport has to know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// `INIT`: the kernel mounts the file system.
    Start,
    /// `DESTROY`: the kernel has unmounted it.
    End,
    /// A request that may wait for a commit, or takes long.
    MayWait,
    /// Any other request, or none.
    Other,
}

/// A file system served to a kernel, from the first request (`INIT`) on.
///
/// All methods may be called from many threads. Each request is answered when it is done; a sync takes as long as the
/// file system needs for it.
pub struct Session {
    fs: Arc<dyn FileSystem>,
    options: SessionOptions,
    ending: Arc<Ending>,
    started: OnceLock<Started>,
}

/// A session after its first request.
struct Started {
    service: Service,
    agreement: Agreement,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Session {
    /// A session that waits for its first request.
    #[must_use]
    pub fn new(fs: Arc<dyn FileSystem>, options: SessionOptions) -> Self {
        let ending = Arc::new(Ending::default());
        // DESTROY is answered at once, since no other thread waits for the end.
        drop(Done(Arc::clone(&ending)));
        Self { fs, options, ending, started: OnceLock::new() }
    }

    /// Starts the periodic work of the file system, which requests can hasten. Stop it before [`Session::finish`].
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start_steps(&self) -> crate::Result<Steps> {
        Steps::start(Arc::clone(&self.fs), Arc::clone(&self.ending))
    }

    /// Size of a buffer for any request, and of one for any reply.
    #[must_use]
    pub fn message_bytes_max(&self) -> usize {
        Self::message_bytes_max_of(&self.options)
    }

    /// The same for a session with these options.
    #[must_use]
    pub fn message_bytes_max_of(options: &SessionOptions) -> usize {
        let data_bytes = usize::try_from(options.data_bytes_max()).unwrap_or(usize::MAX);
        data_bytes.saturating_add(MESSAGE_BYTES_MIN)
    }

    /// The sort of a request.
    #[must_use]
    pub fn sort(request: &[u8]) -> Sort {
        match Request::header(request).map(|header| header.opcode) {
            Some(opcode::INIT) => Sort::Start,
            Some(opcode::DESTROY) => Sort::End,
            Some(opcode) if opcode::may_wait(opcode) => Sort::MayWait,
            _ => Sort::Other,
        }
    }

    /// Answers a request with an error (`EIO`), without a session. Returns the length of the reply, or 0 if the request
    /// gets none.
    pub fn refuse(request: &[u8], reply: &mut [u8]) -> usize {
        let Some(header) = Request::header(request).filter(|header| !opcode::is_forget(header.opcode)) else {
            return 0;
        };
        let header = OutHeader::new(header.unique, Err(Errno::EIO));
        if header.write_to_prefix(reply).is_err() {
            return 0;
        }
        usize::try_from(header.len).unwrap_or(0)
    }

    /// Executes one request. Returns the length of the reply in `reply`, or 0 if the request gets none. If the reply
    /// would leave the kernel's caches stale, notifications are sent through `channel` first.
    pub fn process(&self, request: &[u8], reply: &mut [u8], channel: &Arc<dyn Channel>) -> usize {
        let (Some(header), Some((front, out))) =
            (Request::header(request), reply.split_at_mut_checked(size_of::<OutHeader>()))
        else {
            tracing::warn!(len = request.len(), "a request without header, or no room for a reply");
            return 0;
        };
        let result = match (header.opcode, self.started.get()) {
            (opcode::INIT, None) => self.start(request, out),
            (_, None) => Err(Errno::EIO),
            (_, Some(started)) => match Request::parse(header, request) {
                Ok(request) => match started.answer(&request, out, channel) {
                    Some(result) => result,
                    None => return 0,
                },
                Err(_) if opcode::is_forget(header.opcode) => return 0,
                Err(error) => Err(error),
            },
        };
        let header = OutHeader::new(header.unique, result);
        if header.write_to_prefix(front).is_err() {
            return 0;
        }
        usize::try_from(header.len).unwrap_or(0)
    }

    /// Executes all requests of a channel on this thread, until its end.
    ///
    /// # Errors
    /// Those of receiving a request.
    pub fn run(&self, channel: &Arc<dyn Channel>) -> io::Result<()> {
        let (mut request, mut reply) = (vec![0; self.message_bytes_max()], vec![0; self.message_bytes_max()]);
        loop {
            let len = channel.receive(&mut request)?;
            if len == 0 {
                return Ok(());
            }
            let len = self.process(request.get(..len).unwrap_or_default(), &mut reply, channel);
            let reply = reply.get(..len).filter(|reply| !reply.is_empty());
            if let Some(Err(error)) = reply.map(|reply| channel.send(reply)) {
                // The calling process may be gone.
                tracing::debug!(%error, "a reply was not taken");
            }
        }
    }

    /// Notifies the kernel behind `channel` of changes that it did not request; `None` before the first request.
    #[must_use]
    pub fn notifier(&self, channel: Arc<dyn Channel>) -> Option<Notifier> {
        let agreement = &self.started.get()?.agreement;
        Some(Notifier::new(channel, agreement.flags.contains(InitFlags::WRITEBACK_CACHE), agreement.has_epochs()))
    }

    /// Makes everything durable, after the last request.
    ///
    /// # Errors
    /// As [`FileSystem::finish`].
    pub fn finish(&self) -> vfs::Result<()> {
        if self.fs.is_read_only() { Ok(()) } else { self.fs.finish() }
    }

    /// Answers the first request.
    fn start(&self, request: &[u8], out: &mut [u8]) -> Result<usize> {
        let body = request.get(size_of::<InHeader>()..).unwrap_or_default();
        let wish = self.options.wish(&*self.fs, false);
        let (len, agreement) = wish.answer_into(body, out).map_err(|_| Errno::EIO)?;
        let options = ServiceOptions::new(&self.options, &agreement);
        let service = Service::new(Arc::clone(&self.fs), Arc::clone(&self.ending), options);
        self.started.set(Started { service, agreement }).map_err(|_| Errno::EIO)?;
        Ok(len)
    }
}

impl Started {
    /// The length of a reply in `out`; `None` for a request that gets none.
    fn answer(&self, request: &Request<'_>, out: &mut [u8], channel: &Arc<dyn Channel>) -> Option<Result<usize>> {
        let result = match self.service.serve(request, out) {
            Answer::Done(len) => Ok(len),
            Answer::DoneStale(len, stale) => {
                notify::send_stale(channel, stale);
                Ok(len)
            }
            Answer::Failed(error) => Err(error),
            Answer::Begun(begun) => self.service.end_sync(&begun),
            Answer::Apart(request) => {
                let Apart { reply, stale } = self.service.serve_with_data(&request);
                if let Some(stale) = stale {
                    notify::send_stale(channel, stale);
                }
                reply.and_then(|bytes| encode::put_bytes(out, &bytes))
            }
            Answer::Silent => return None,
        };
        if let Some(nodes) = self.service.take_stale_nodes() {
            notify::send_stale_attributes(channel, nodes);
        }
        Some(result)
    }
}
