//! Executes a decoded request by calls of the file system, and encodes the reply.
//!
//! [`Service::serve`] answers one request into a buffer that the transport provides, from any thread; only a sync may
//! be answered later, so that one write to the device serves several. Requests of one kind are methods of one type
//! ([`Names`], [`Attributes`], [`Openings`], [`Contents`], [`Lists`], [`Xattrs`], [`Controls`]), which has the parts of
//! the service that they need.
//!
//! Failure: the error number of the file system; `EINVAL` for a malformed request, `ENOSYS` for those left to the
//! kernel: `ACCESS` and locks, `FLUSH` and `OPENDIR`, which have no effect here, and `INTERRUPT`, which comes too late
//! for calls that do not wait. The kernel does not send these again. Callers: the transports, and `Session`.

use super::SessionOptions;
use super::attr::Attributes;
use super::control::Controls;
use super::data::Contents;
use super::direct_writes::DirectWriters;
use super::encode::Timeouts;
use super::entry::Names;
use super::list::Lists;
use super::lost_writes::Lost;
use super::mmap_files::Mappable;
use super::nearly_full::Room;
use super::open::Openings;
use super::state::{Agreed, Answer, BegunSync, Caches, Own, WriteBack};
use super::xattr::Xattrs;
use crate::ServedFile;
use crate::protocol::requests::{BatchForgetIn, FSYNC_FDATASYNC, ForgetIn, ForgetOne, FsyncIn};
use crate::protocol::{Agreement, InitFlags, Request, opcode};
use crate::shutdown::Ending;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;
use vfs::FileSystem;
use vfs::file_system::{Errno, Handle, NodeId, Result, SyncWhat};
use zerocopy::FromBytes;

/// The callback that makes the kernel write its dirty pages, and the syncs that run on their own threads.
pub(super) struct Writing {
    pub(super) write_back: Option<WriteBack>,
    pub(super) writer: Arc<AtomicU32>,
    pub(super) syncs_apart: Arc<()>,
}

/// A served mount, without the transport.
pub(crate) struct Service {
    pub(super) fs: Arc<dyn FileSystem>,
    ending: Arc<Ending>,
    pub(super) agreed: Agreed,
    pub(super) caches: Caches,
    pub(super) writing: Writing,
    own: Own,
}

/// Options of a service.
#[derive(Clone)]
pub(crate) struct ServiceOptions {
    pub(crate) entry_timeout: Duration,
    pub(crate) attr_timeout: Duration,
    pub(crate) zero_open: bool,
    pub(crate) tells_each_reader: bool,
    pub(crate) writeback: bool,
    /// The kernel can be told to look up all names again.
    pub(crate) has_epochs: bool,
    /// The kernel passes the calling user only with requests that create a file.
    pub(crate) has_idmaps: bool,
    /// Makes the kernel write its dirty pages; without it, the kernel writes when it likes.
    pub(crate) write_back: Option<WriteBack>,
    /// The thread that makes it write; 0 while there is none.
    pub(crate) writer: Arc<AtomicU32>,
    /// Number of the socket for clients besides the kernel.
    pub(crate) socket: Option<[u64; 2]>,
    /// Identity of the image.
    pub(crate) served: Option<ServedFile>,
}

impl ServiceOptions {
    /// The options of a session with this agreement.
    pub(crate) fn new(options: &SessionOptions, agreement: &Agreement) -> Self {
        Self {
            entry_timeout: options.entry_timeout,
            attr_timeout: options.attr_timeout,
            tells_each_reader: options.tells_each_reader,
            zero_open: agreement.flags.contains(InitFlags::NO_OPEN_SUPPORT),
            writeback: agreement.flags.contains(InitFlags::WRITEBACK_CACHE),
            has_epochs: agreement.has_epochs(),
            has_idmaps: agreement.flags.contains(InitFlags::ALLOW_IDMAP),
            write_back: None,
            writer: Arc::default(),
            socket: None,
            served: None,
        }
    }
}

impl Service {
    /// Waits for a time, or until the kernel unmounts.
    pub(crate) fn pause(&self, at_most: Duration) {
        self.ending.pause(at_most);
    }

    pub(crate) fn new(fs: Arc<dyn FileSystem>, ending: Arc<Ending>, options: ServiceOptions) -> Self {
        let agreed = Agreed {
            timeouts: Timeouts { entry: options.entry_timeout, attr: options.attr_timeout },
            zero_open: options.zero_open,
            tells_each_reader: options.tells_each_reader,
            writeback: options.writeback,
            has_epochs: options.has_epochs,
            has_idmaps: options.has_idmaps,
            is_read_only: fs.is_read_only(),
        };
        let caches = Caches {
            mappable: Mappable::new(),
            direct: DirectWriters::default(),
            lost: Lost::default(),
            room: Room::new(options.writeback && !options.zero_open && options.write_back.is_some()),
        };
        let writing = Writing { write_back: options.write_back, writer: options.writer, syncs_apart: Arc::new(()) };
        let own = Own { socket: options.socket, served: options.served };
        Self { fs, ending, agreed, caches, writing, own }
    }

    fn names(&self) -> Names<'_> {
        Names { fs: &*self.fs, timeouts: self.agreed.timeouts }
    }

    fn attributes(&self) -> Attributes<'_> {
        Attributes { fs: &*self.fs, agreed: self.agreed, room: &self.caches.room }
    }

    fn openings(&self) -> Openings<'_> {
        Openings { fs: &*self.fs, agreed: self.agreed, caches: &self.caches }
    }

    fn contents(&self) -> Contents<'_> {
        Contents { fs: &*self.fs, agreed: self.agreed, caches: &self.caches }
    }

    fn lists(&self) -> Lists<'_> {
        Lists { fs: &*self.fs, timeouts: self.agreed.timeouts }
    }

    fn xattrs(&self) -> Xattrs<'_> {
        Xattrs { fs: &*self.fs, ending: &self.ending }
    }

    pub(super) fn controls(&self) -> Controls<'_> {
        Controls { fs: &*self.fs, agreed: self.agreed, lost: &self.caches.lost, own: self.own }
    }

    /// Answers a request into `out`.
    pub(crate) fn serve(&self, request: &Request<'_>, out: &mut [u8]) -> Answer {
        let answer = if self.waits_for_data(request) || self.attributes().waits_for_room(request) {
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

    /// Nodes whose attributes the kernel has to invalidate, on a thread that answers no requests: the notification may
    /// wait for an inode that is being dropped, which waits for a request.
    pub(crate) fn take_stale_nodes(&self) -> Option<Vec<NodeId>> {
        self.caches.room.take_stale_nodes()
    }

    pub(super) fn dispatch(&self, request: &Request<'_>, out: &mut [u8]) -> Answer {
        let result = match request.header.opcode {
            opcode::LOOKUP => self.names().lookup(request, out),
            opcode::FORGET => return self.forget(request),
            opcode::BATCH_FORGET => return self.batch_forget(request),
            opcode::GETATTR => return self.attributes().getattr(request, out).unwrap_or_else(Answer::Failed),
            opcode::STATX => self.attributes().statx(request, out),
            opcode::SETATTR => self.attributes().setattr(request, out),
            opcode::READLINK => self.names().readlink(request, out),
            opcode::SYMLINK => self.names().symlink(request, out),
            opcode::MKNOD => self.names().mknod(request, out),
            opcode::MKDIR => self.names().mkdir(request, out),
            opcode::UNLINK => self.names().unlink(request),
            opcode::RMDIR => self.names().rmdir(request),
            opcode::RENAME => self.names().rename(request),
            opcode::RENAME2 => self.names().rename2(request),
            opcode::LINK => self.names().link(request, out),
            opcode::OPEN => return self.openings().open(request, out).unwrap_or_else(Answer::Failed),
            opcode::CREATE => self.openings().create(request, out),
            opcode::TMPFILE => self.openings().tmpfile(request, out),
            opcode::RELEASE => self.openings().release(request),
            opcode::READ => self.contents().read(request, out),
            opcode::WRITE => return self.contents().write(request, out).unwrap_or_else(Answer::Failed),
            opcode::FSYNC => return self.fsync(request).unwrap_or_else(Answer::Failed),
            opcode::FSYNCDIR => self.fsyncdir(request),
            opcode::SYNCFS => self.sync_fs(request),
            opcode::DESTROY => {
                self.ending.ask_and_wait();
                Ok(0)
            }
            opcode::FALLOCATE => self.contents().fallocate(request),
            opcode::LSEEK => self.contents().lseek(request, out),
            opcode::COPY_FILE_RANGE => self.contents().copy_file_range(request, out),
            opcode::COPY_FILE_RANGE_64 => self.contents().copy_file_range_64(request, out),
            opcode::READDIR => self.lists().readdir(request, out),
            opcode::READDIRPLUS => self.lists().readdirplus(request, out),
            opcode::STATFS => self.attributes().statfs(out),
            opcode::GETXATTR => self.xattrs().getxattr(request, out),
            opcode::LISTXATTR => self.xattrs().listxattr(request, out),
            opcode::SETXATTR => self.xattrs().setxattr(request),
            opcode::REMOVEXATTR => self.xattrs().removexattr(request),
            opcode::IOCTL => return self.controls().ioctl(request, out),
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
        self.caches.direct.forgotten(node);
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

    /// A sync of a directory blocks other operations on it, so it is not deferred.
    fn fsyncdir(&self, request: &Request<'_>) -> Result<usize> {
        let args: FsyncIn = request.args()?;
        let (node, handle) = (request.node(), Handle(args.fh));
        self.fs.sync_file(node, handle, what_of(&args))?;
        Ok(0)
    }

    /// Ends a sync that [`Service::serve`] began.
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
