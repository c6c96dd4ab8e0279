//! What requests mean: from a decoded request to calls of the file system, and to reply bytes.
//!
//! [`Session::serve`] answers one request into a buffer that the transport provides, from any
//! thread; only a sync may be answered later, so that one write to the device does for many. It
//! keeps no state between requests apart from what was agreed on at the start, which nodes are
//! open for reading and writing, and which lost data that the kernel had taken, so workers share
//! little here but the file system itself.
//!
//! Who decides what
//! * The kernel: permissions, locks, where an appending write goes (it holds the node's lock and
//!   knows the size), what is cached.
//! * The file system: everything that the trait says. Set-user and set-group bits go when the
//!   kernel says that the caller may not keep them, and always when the owner changes.
//!
//! A request that makes no sense is `EINVAL`, one that nobody answers `ENOSYS` (the kernel then
//! does not ask again): `ACCESS` and locks are the kernel's, `FLUSH` and `OPENDIR` would be told
//! for nothing, `INTERRUPT` comes too late for calls that do not wait.
//!
//! Called by the transports. The files: `entry` names and nodes, `attr` attributes, `open` files
//! being opened and closed, `data` contents, `seek` data and holes, `list` directories, `xattr`,
//! `control`, `apart` what first needs the kernel's data, `mappable` who may change what only the kernel
//! sees, `direct` who writes around it, `lost` what was refused later, `room` who is told of that.

mod apart;
mod attr;
mod control;
mod data;
mod direct;
mod encode;
mod entry;
mod list;
mod lost;
mod mappable;
mod open;
mod room;
mod seek;
mod xattr;

#[cfg(test)]
mod tests;

pub(crate) use apart::Apart;
pub use apart::WriteBack;

use crate::ServedFile;
use crate::ending::Ending;
use crate::protocol::requests::{BatchForgetIn, FSYNC_FDATASYNC, ForgetIn, ForgetOne, FsyncIn};
use crate::protocol::{OwnedRequest, Request, opcode};
use direct::DirectWriters;
use encode::Timeouts;
use lost::Lost;
use mappable::Mappable;
use room::Room;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;
use vfs::FileSystem;
use vfs::file_system::{Errno, Handle, NodeId, Result, SyncTicket, SyncWhat};
use zerocopy::FromBytes;

/// Other requests that are answered while syncs are put off.
pub(crate) const MEANWHILE_MAX: usize = 8;

/// What the kernel must not believe any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stale {
    /// The node whose attributes changed.
    pub(crate) node: NodeId,
    /// Names that now lead, or no longer lead, to something; each with its directory.
    pub(crate) names: Vec<(NodeId, Vec<u8>)>,
    /// The kernel can forget all names without waiting for anybody.
    pub(crate) has_epochs: bool,
}

impl Stale {
    /// Attributes alone.
    pub(crate) const fn attributes(node: NodeId) -> Self {
        Self { node, names: Vec::new(), has_epochs: true }
    }
}

/// A sync that waits for its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BegunSync {
    node: NodeId,
    handle: Handle,
    ticket: SyncTicket,
}

/// What becomes of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// So many bytes of the reply buffer.
    Done(usize),
    /// The same, and something changed in a way that the kernel does not know.
    DoneStale(usize, Stale),
    /// An error.
    Failed(Errno),
    /// A sync that others may join: its answer is that of [`Session::end_sync`].
    Begun(BegunSync),
    /// To be answered by [`Session::serve_with_data`], on a thread that answers nothing else.
    Apart(OwnedRequest),
    /// Nobody waits for an answer.
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

/// A mount being served, as far as the meaning of requests goes.
pub(crate) struct Session {
    fs: Arc<dyn FileSystem>,
    ending: Arc<Ending>,
    mappable: Mappable,
    direct: DirectWriters,
    lost: Lost,
    room: Room,
    timeouts: Timeouts,
    zero_open: bool,
    tells_each_reader: bool,
    writeback: bool,
    has_epochs: bool,
    has_idmaps: bool,
    is_read_only: bool,
    write_back: Option<WriteBack>,
    writer: Arc<AtomicU32>,
    /// Syncs of everything that are under way on threads of their own.
    syncs_apart: Arc<()>,
    socket: Option<[u64; 2]>,
    served: Option<ServedFile>,
}

/// How a session differs from others.
#[derive(Clone)]
pub(crate) struct SessionOptions {
    pub(crate) entry_timeout: Duration,
    pub(crate) attr_timeout: Duration,
    pub(crate) zero_open: bool,
    pub(crate) tells_each_reader: bool,
    pub(crate) writeback: bool,
    /// The kernel can be told to look up all names anew.
    pub(crate) has_epochs: bool,
    /// The kernel tells who asks only of requests that create something.
    pub(crate) has_idmaps: bool,
    /// What makes the kernel write; without it, it writes when it likes.
    pub(crate) write_back: Option<WriteBack>,
    /// The thread that makes it write; 0 while there is none.
    pub(crate) writer: Arc<AtomicU32>,
    /// Where clients besides the kernel are taken.
    pub(crate) socket: Option<[u64; 2]>,
    /// The image.
    pub(crate) served: Option<ServedFile>,
}

impl Session {
    /// Waits for so long, or until the kernel unmounts.
    pub(crate) fn pause(&self, at_most: Duration) {
        self.ending.pause(at_most);
    }

    pub(crate) fn new(fs: Arc<dyn FileSystem>, ending: Arc<Ending>, options: SessionOptions) -> Self {
        let is_read_only = fs.is_read_only();
        Self {
            fs,
            ending,
            mappable: Mappable::new(),
            direct: DirectWriters::default(),
            lost: Lost::default(),
            room: Room::new(options.writeback && !options.zero_open && options.write_back.is_some()),
            timeouts: Timeouts { entry: options.entry_timeout, attr: options.attr_timeout },
            zero_open: options.zero_open,
            tells_each_reader: options.tells_each_reader,
            writeback: options.writeback,
            has_epochs: options.has_epochs,
            has_idmaps: options.has_idmaps,
            is_read_only,
            write_back: options.write_back,
            writer: options.writer,
            syncs_apart: Arc::new(()),
            socket: options.socket,
            served: options.served,
        }
    }

    /// Answers a request into `out`.
    pub(crate) fn serve(&self, request: &Request<'_>, out: &mut [u8]) -> Answer {
        let answer = if self.waits_for_data(request) || self.waits_for_room(request) {
            Answer::Apart(request.keep())
        } else if let Some(one) = self.syncs_apart(request) {
            Answer::Apart(request.keep().counted(one))
        } else {
            self.dispatch(request, out)
        };
        if tracing::enabled!(tracing::Level::TRACE) {
            let header = &request.header;
            tracing::trace!(op = opcode::name(header.opcode), unique = header.unique, node = header.nodeid, ?answer);
        }
        answer
    }

    /// Nodes whose attributes the kernel is to be told are old, on a thread that answers nothing: it may wait for an
    /// inode that goes, and that for a request.
    pub(crate) fn take_news(&self) -> Option<Vec<NodeId>> {
        self.room.take_news()
    }

    pub(super) fn dispatch(&self, request: &Request<'_>, out: &mut [u8]) -> Answer {
        let result = match request.header.opcode {
            opcode::LOOKUP => self.lookup(request, out),
            opcode::FORGET => return self.forget(request),
            opcode::BATCH_FORGET => return self.batch_forget(request),
            opcode::GETATTR => return self.getattr(request, out).unwrap_or_else(Answer::Failed),
            opcode::STATX => self.statx(request, out),
            opcode::SETATTR => self.setattr(request, out),
            opcode::READLINK => self.readlink(request, out),
            opcode::SYMLINK => self.symlink(request, out),
            opcode::MKNOD => self.mknod(request, out),
            opcode::MKDIR => self.mkdir(request, out),
            opcode::UNLINK => self.unlink(request),
            opcode::RMDIR => self.rmdir(request),
            opcode::RENAME => self.rename(request),
            opcode::RENAME2 => self.rename2(request),
            opcode::LINK => self.link(request, out),
            opcode::OPEN => return self.open(request, out).unwrap_or_else(Answer::Failed),
            opcode::CREATE => self.create(request, out),
            opcode::TMPFILE => self.tmpfile(request, out),
            opcode::RELEASE => self.release(request),
            opcode::READ => self.read(request, out),
            opcode::WRITE => return self.write(request, out).unwrap_or_else(Answer::Failed),
            opcode::FSYNC => return self.fsync(request).unwrap_or_else(Answer::Failed),
            opcode::FSYNCDIR => self.fsyncdir(request),
            opcode::SYNCFS => self.sync_fs(request),
            opcode::DESTROY => {
                self.ending.ask_and_wait();
                Ok(0)
            }
            opcode::FALLOCATE => self.fallocate(request),
            opcode::LSEEK => self.lseek(request, out),
            opcode::COPY_FILE_RANGE => self.copy_file_range(request, out),
            opcode::COPY_FILE_RANGE_64 => self.copy_file_range_64(request, out),
            opcode::READDIR => self.readdir(request, out),
            opcode::READDIRPLUS => self.readdirplus(request, out),
            opcode::STATFS => self.statfs(out),
            opcode::GETXATTR => self.getxattr(request, out),
            opcode::LISTXATTR => self.listxattr(request, out),
            opcode::SETXATTR => self.setxattr(request),
            opcode::REMOVEXATTR => self.removexattr(request),
            opcode::IOCTL => return self.ioctl(request, out),
            opcode::RELEASEDIR => Ok(0),
            opcode::INIT => Err(Errno::EIO),
            opcode::OPENDIR | opcode::FLUSH | opcode::INTERRUPT => Err(Errno::ENOSYS),
            _ => Err(Errno::ENOSYS),
        };
        result.into()
    }

    fn forget(&self, request: &Request<'_>) -> Answer {
        if let Ok(args) = request.args::<ForgetIn>() {
            self.forget_node(request.node(), args.nlookup);
        }
        Answer::Silent
    }

    fn forget_node(&self, node: NodeId, count: u64) {
        self.direct.forgotten(node);
        self.fs.forget(node, count);
    }

    fn batch_forget(&self, request: &Request<'_>) -> Answer {
        let count = request.args::<BatchForgetIn>().map_or(0, |args| args.count);
        let mut rest = request.data();
        for _ in 0..count {
            let Ok((one, behind)) = ForgetOne::read_from_prefix(rest) else {
                break;
            };
            self.forget_node(NodeId(one.nodeid), one.nlookup);
            rest = behind;
        }
        Answer::Silent
    }

    fn fsync(&self, request: &Request<'_>) -> Result<Answer> {
        let args: FsyncIn = request.args()?;
        let (node, handle) = (request.node(), Handle(args.fh));
        let begun = self.fs.begin_sync(node, handle, what_of(&args))?;
        Ok(begun.map_or(Answer::Done(0), |ticket| Answer::Begun(BegunSync { node, handle, ticket })))
    }

    /// A sync of a directory keeps others from it meanwhile, so it is not put off.
    fn fsyncdir(&self, request: &Request<'_>) -> Result<usize> {
        let args: FsyncIn = request.args()?;
        let (node, handle) = (request.node(), Handle(args.fh));
        self.fs.sync_file(node, handle, what_of(&args))?;
        Ok(0)
    }

    /// Ends a sync that [`Session::serve`] began.
    pub(crate) fn end_sync(&self, begun: &BegunSync) -> Result<usize> {
        let BegunSync { node, handle, ticket } = *begun;
        self.fs.end_sync(node, handle, ticket)?;
        Ok(0)
    }

    fn sync_fs(&self, request: &Request<'_>) -> Result<usize> {
        if !self.is_own_sync(request) {
            self.fs.sync_fs()?;
        }
        Ok(0)
    }
}

fn what_of(args: &FsyncIn) -> SyncWhat {
    if args.fsync_flags & FSYNC_FDATASYNC == 0 { SyncWhat::All } else { SyncWhat::Data }
}
