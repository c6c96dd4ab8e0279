//! Implements the client's side: a file system whose calls are messages.
//!
//! Each calling thread has a stream of its own; released nodes and handles are sent with the next message. `subvolumes`
//! has the calls on subvolumes. Failure: a failed stream is not used again, and calls to a server that is gone fail
//! with `EIO`. Callers: commands, through [`vfs::Volume`].

mod maintenance;
mod subvolumes;

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use parking_lot::Mutex;
use vfs::file_system::{
    AllocateFlags, Answer, Attr, Caller, CopyRange, DirEntry, DirSink, EncodedData, Entry, Errno, Extent, Follow,
    Handle, KnownNode, NewNode, NodeAt, NodeFlags, NodeId, OpenFlags, RenameFlags, Seek, SetAttr, Subvolumes, SyncWhat,
    VolumeStatus, WholeNode, WriteFlags, Written, XattrMode,
};
use vfs::{Blame, Error, FileSystem, Maintenance};

use crate::batch;
use crate::descriptors::send_hello;
use crate::dirs::Dirs;
use crate::jobs::JobFailure;
use crate::wire::{Call, Copy, DATA_BYTES_MAX, Encoded, Gone, Inbox, Owner, Placed, Reply, Request, Wire};

/// Most releases that wait for the next message.
const GONE_MAX: usize = 256;
/// The exit status of a refusal by the server.
const STATUS_REFUSED: u8 = 1;
/// The exit status of a failure of the connection.
const STATUS_IO: u8 = 6;

/// The file system of a server, from a directory of it on.
pub struct Remote {
    /// New streams are asked for on this one.
    first: Mutex<Talk>,
    /// Unused streams.
    idle: Mutex<Vec<Talk>>,
    gone: Mutex<Vec<Gone>>,
    dirs: Mutex<Dirs>,
    is_read_only: bool,
    /// The directory that is the root: while it is open, the mount is in use.
    _root: OwnedFd,
}

/// A stream, and its last message.
#[derive(Debug)]
struct Talk {
    wire: Wire,
    inbox: Inbox,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote").field("is_read_only", &self.is_read_only).finish_non_exhaustive()
    }
}

/// The other process is gone, or sent a malformed message.
///
/// To do: unmount and mount again; what was synced is in the image.
#[derive(Debug, thiserror::Error)]
enum Broken {
    /// The server ended.
    #[error("the server of the mount is gone")]
    Gone,
    /// The connection to the server failed.
    #[error("the server of the mount: {0}")]
    Other(io::Error),
}

fn broken(error: io::Error) -> Error {
    use io::ErrorKind as K;
    let cause = match error.kind() {
        K::UnexpectedEof | K::BrokenPipe | K::ConnectionReset => Broken::Gone,
        _ => Broken::Other(error),
    };
    Error::new(Errno::EIO, Blame::Device, cause)
}

fn confused() -> Error {
    broken(io::ErrorKind::InvalidData.into())
}

impl Talk {
    fn new(stream: UnixStream) -> Self {
        Self { wire: Wire::new(stream), inbox: Inbox::default() }
    }

    /// Sends a call and waits for its answer; contents go to `into` where that is given. Returns how many came.
    fn call(
        &mut self,
        call: &Call<'_>,
        data: &[u8],
        descriptor: Option<BorrowedFd<'_>>,
        into: Option<&mut [u8]>,
    ) -> io::Result<(Reply, usize)> {
        self.wire.send(call, data, descriptor)?;
        let count = self.wire.receive(&mut self.inbox, into)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let reply = postcard::from_bytes(&self.inbox.header).map_err(io::Error::other)?;
        Ok((reply, count))
    }
}

impl Remote {
    /// Begins to talk to a server over a connected socket. `root` is an open directory of the mount, which is to be the
    /// root.
    ///
    /// # Errors
    /// The socket's; the server's, when it does not take this client.
    pub fn new(stream: UnixStream, root: impl Into<OwnedFd>) -> vfs::Result<Self> {
        let root = root.into();
        send_hello(&stream, root.as_fd()).map_err(broken)?;
        let mut remote = Self {
            first: Mutex::new(Talk::new(stream)),
            idle: Mutex::default(),
            gone: Mutex::default(),
            dirs: Mutex::default(),
            is_read_only: true,
            _root: root,
        };
        let call = Call { gone: Vec::new(), request: Request::Status };
        let (reply, _) = remote.first.get_mut().call(&call, &[], None, None).map_err(broken)?;
        match reply {
            Reply::Status { is_read_only, .. } => remote.is_read_only = is_read_only,
            reply => return Err(failure(reply)),
        }
        Ok(remote)
    }

    /// Asks the server to run a job of the format; the job reads from `stream`, or writes to it. Returns its report.
    /// The first stream is not used for other requests meanwhile.
    ///
    /// # Errors
    /// The error of the job, in its own words; the stream's.
    pub fn job(&self, words: Vec<String>, stream: UnixStream) -> Result<String, JobFailure> {
        let name = words.first().cloned().unwrap_or_default();
        let call = Call { gone: Vec::new(), request: Request::Job { words } };
        let answer = self.first.lock().call(&call, &[], Some(stream.as_fd()), None);
        drop(stream);
        let failed = |error: Error| JobFailure { status: STATUS_IO, text: error.to_string() };
        match answer.map_err(|error| failed(broken(error)))?.0 {
            Reply::Text(text) => Ok(text),
            Reply::JobFailed { status, text } => Err(JobFailure { status, text }),
            reply => {
                let error = failure(reply);
                let is_refusal = error.blame() == Blame::Caller;
                let text = match error.errno() {
                    Errno::EPERM => format!("{name}: {error}: of a mount, this takes root or the user who mounted it"),
                    _ => format!("{name}: {error}"),
                };
                Err(JobFailure { status: if is_refusal { STATUS_REFUSED } else { STATUS_IO }, text })
            }
        }
    }

    /// A stream for this thread alone.
    fn talk(&self) -> Answer<Talk> {
        if let Some(talk) = self.idle.lock().pop() {
            return Ok(talk);
        }
        let (ours, theirs) = UnixStream::pair().map_err(broken)?;
        let call = Call { gone: Vec::new(), request: Request::Join };
        let (reply, _) = self.first.lock().call(&call, &[], Some(theirs.as_fd()), None).map_err(broken)?;
        match reply {
            Reply::Done => Ok(Talk::new(ours)),
            reply => Err(failure(reply)),
        }
    }

    fn call(&self, request: Request<'_>) -> Answer<Reply> {
        self.call_with(request, &[], None).map(|(reply, _)| reply)
    }

    fn call_with(&self, request: Request<'_>, data: &[u8], into: Option<&mut [u8]>) -> Answer<(Reply, usize)> {
        let gone = std::mem::take(&mut *self.gone.lock());
        let mut talk = self.talk()?;
        // A stream that failed is not used again.
        let answer = talk.call(&Call { gone, request }, data, None, into).map_err(broken)?;
        self.idle.lock().push(talk);
        match answer {
            (Reply::Failed(refusal), _) => Err(refusal.into()),
            answer => Ok(answer),
        }
    }

    /// As [`Self::call`]; the contents that come with the answer are exchanged for `data`.
    fn call_taking(&self, request: Request<'_>, data: &mut Vec<u8>) -> Answer<Reply> {
        let gone = std::mem::take(&mut *self.gone.lock());
        let mut talk = self.talk()?;
        let (reply, _) = talk.call(&Call { gone, request }, &[], None, None).map_err(broken)?;
        std::mem::swap(data, &mut talk.inbox.data);
        self.idle.lock().push(talk);
        match reply {
            Reply::Failed(refusal) => Err(refusal.into()),
            reply => Ok(reply),
        }
    }

    fn done(&self, request: Request<'_>) -> Answer<()> {
        match self.call(request)? {
            Reply::Done => Ok(()),
            reply => Err(failure(reply)),
        }
    }

    fn entry(&self, request: Request<'_>) -> Answer<Entry> {
        match self.call(request)? {
            Reply::Entry(entry) => Ok(entry),
            reply => Err(failure(reply)),
        }
    }

    fn attr_of(&self, request: Request<'_>, data: &[u8]) -> Answer<Attr> {
        match self.call_with(request, data, None)?.0 {
            Reply::Attr(attr) => Ok(attr),
            reply => Err(failure(reply)),
        }
    }

    fn bytes(&self, request: Request<'_>) -> Answer<Vec<u8>> {
        match self.call(request)? {
            Reply::Bytes(bytes) => Ok(bytes),
            reply => Err(failure(reply)),
        }
    }

    fn count(&self, request: Request<'_>) -> Answer<u64> {
        match self.call(request)? {
            Reply::Count(count) => Ok(count),
            reply => Err(failure(reply)),
        }
    }

    fn is(&self, request: Request<'_>, data: &[u8]) -> Answer<bool> {
        match self.call_with(request, data, None)?.0 {
            Reply::Is(is) => Ok(is),
            reply => Err(failure(reply)),
        }
    }

    fn give_back(&self, gone: Gone) {
        let is_much = {
            let mut waiting = self.gone.lock();
            waiting.push(gone);
            waiting.len() > GONE_MAX
        };
        if is_much {
            // Without this message the server releases them when it notices that this client is gone.
            let _ = self.call(Request::Status);
        }
    }

    /// Paths may lead elsewhere now.
    fn forget_dirs(&self) {
        let unused = self.dirs.lock().forget_paths();
        self.give_all_back(unused);
    }

    fn give_all_back(&self, nodes: Vec<NodeId>) {
        nodes.into_iter().for_each(|node| self.give_back(Gone::Node(node, 1)));
    }
}

/// The error of an unexpected answer.
fn failure(reply: Reply) -> Error {
    match reply {
        Reply::Failed(refusal) => refusal.into(),
        _ => confused(),
    }
}

fn owner(caller: &Caller) -> Owner {
    Owner { uid: caller.uid, gid: caller.gid }
}

impl FileSystem for Remote {
    fn lookup(&self, parent: NodeId, name: &[u8]) -> Answer<Entry> {
        self.entry(Request::Lookup { parent, name })
    }

    fn resolve(&self, path: &[u8], follow: Follow) -> Answer<Entry> {
        self.entry(Request::Resolve { path, follow })
    }

    fn attr_at(&self, path: &[u8], follow: Follow) -> Answer<Attr> {
        self.attr_of(Request::AttrAt { path, follow }, &[])
    }

    fn known_at(&self, path: &[u8], follow: Follow, data_bytes_max: usize) -> Answer<KnownNode> {
        let data_bytes_max = u32::try_from(data_bytes_max.min(DATA_BYTES_MAX)).map_err(|_| confused())?;
        let mut data = Vec::new();
        let request = Request::KnownAt { path, follow, data_bytes_max };
        match self.call_taking(request, &mut data)? {
            Reply::Known { node, has_data } => Ok(KnownNode { data: has_data.then_some(data), ..node }),
            reply => Err(failure(reply)),
        }
    }

    fn node_at(&self, path: &[u8], follow: Follow) -> Answer<NodeAt> {
        if follow == Follow::Last
            && let Some(at) = self.dirs.lock().find(path)
        {
            return Ok(at);
        }
        let entry = self.resolve(path, follow)?;
        let at = NodeAt { node: entry.node, kind: entry.attr.kind, is_referenced: true };
        if follow == Follow::Last && entry.attr.is_dir() {
            let unused = self.dirs.lock().remember(path, at);
            self.give_all_back(unused);
        }
        Ok(at)
    }

    fn forget(&self, node: NodeId, count: u64) {
        let lent = if count == 1 { self.dirs.lock().give_back(node) } else { None };
        match lent {
            Some(unused) => self.give_all_back(unused),
            None => self.give_back(Gone::Node(node, count)),
        }
    }

    fn attr(&self, node: NodeId) -> Answer<Attr> {
        self.attr_of(Request::Attr { node }, &[])
    }

    fn set_attr(&self, caller: &Caller, node: NodeId, changes: &SetAttr) -> Answer<Attr> {
        self.attr_of(Request::SetAttr { owner: owner(caller), node, changes: *changes }, &[])
    }

    fn read_link(&self, node: NodeId) -> Answer<Vec<u8>> {
        self.bytes(Request::ReadLink { node })
    }

    fn create(&self, caller: &Caller, parent: NodeId, name: &[u8], new: &NewNode<'_>) -> Answer<Entry> {
        self.entry(Request::Create { owner: owner(caller), parent, name, new: *new })
    }

    fn create_whole(&self, parent: NodeId, name: &[u8], node: &WholeNode<'_>) -> Answer<Attr> {
        if node.data.len() > DATA_BYTES_MAX {
            return Err(Errno::E2BIG.into());
        }
        self.attr_of(Request::CreateWhole { parent, name, node: batch::whole(node) }, node.data)
    }

    fn create_many(&self, parent: NodeId, nodes: &[(&[u8], WholeNode<'_>)]) -> Vec<Answer<Attr>> {
        let made = batch::parts(nodes, batch::sizes).into_iter().flat_map(|part| match part {
            [(name, node)] => vec![self.create_whole(parent, name, node)],
            part => {
                let (request, data) = batch::request(parent, part);
                batch::made(part.len(), self.call_with(request, &data, None).map(|(reply, _)| reply), failure)
            }
        });
        made.collect()
    }

    fn known_many(&self, paths: &[&[u8]], follow: Follow, data_bytes_max: usize) -> Vec<Answer<KnownNode>> {
        let bytes_max = u32::try_from(data_bytes_max).unwrap_or(u32::MAX);
        let known = batch::parts(paths, |path| (path.len(), 0)).into_iter().flat_map(|part| {
            let mut data = Vec::new();
            let request = Request::KnownMany { paths: part.to_vec(), follow, data_bytes_max: bytes_max };
            let answer = self.call_taking(request, &mut data);
            batch::known(part.len(), answer.map(|reply| (reply, data)), failure)
        });
        known.collect()
    }

    fn at_once(&self) -> usize {
        batch::NODES_MAX
    }

    fn create_unnamed(
        &self,
        caller: &Caller,
        parent: NodeId,
        new: &NewNode<'_>,
        flags: OpenFlags,
    ) -> Answer<(Entry, Handle)> {
        match self.call(Request::CreateUnnamed { owner: owner(caller), parent, new: *new, flags })? {
            Reply::Unnamed(entry, handle) => Ok((entry, handle)),
            reply => Err(failure(reply)),
        }
    }

    fn link(&self, node: NodeId, parent: NodeId, name: &[u8]) -> Answer<Entry> {
        self.entry(Request::Link { node, parent, name })
    }

    fn unlink(&self, parent: NodeId, name: &[u8]) -> Answer<()> {
        self.forget_dirs();
        self.done(Request::Unlink { parent, name })
    }

    fn remove_dir(&self, parent: NodeId, name: &[u8]) -> Answer<()> {
        self.forget_dirs();
        self.done(Request::RemoveDir { parent, name })
    }

    fn rename(&self, caller: &Caller, from: (NodeId, &[u8]), to: (NodeId, &[u8]), flags: RenameFlags) -> Answer<()> {
        self.forget_dirs();
        self.done(Request::Rename { owner: owner(caller), from, to, flags })
    }

    fn open(&self, caller: &Caller, node: NodeId, flags: OpenFlags) -> Answer<Handle> {
        match self.call(Request::Open { owner: owner(caller), node, flags })? {
            Reply::Opened(handle) => Ok(handle),
            reply => Err(failure(reply)),
        }
    }

    fn release(&self, node: NodeId, handle: Handle) {
        self.give_back(Gone::Opening(node, handle));
    }

    fn read(&self, node: NodeId, handle: Handle, offset: u64, buf: &mut [u8]) -> Answer<usize> {
        let (mut done, mut at) = (0, offset);
        while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let want = rest.len().min(DATA_BYTES_MAX);
            let part = rest.get_mut(..want).unwrap_or_default();
            let len = u32::try_from(want).map_err(|_| confused())?;
            let (reply, count) = self.call_with(Request::Read { node, handle, offset: at, len }, &[], Some(part))?;
            if !matches!(reply, Reply::Data) {
                return Err(failure(reply));
            }
            done += count;
            at = at.saturating_add(u64::try_from(count).map_err(|_| confused())?);
            if count < want {
                break;
            }
        }
        Ok(done)
    }

    fn write(&self, node: NodeId, handle: Handle, offset: u64, data: &[u8], flags: WriteFlags) -> Answer<Written> {
        let (mut rest, mut at) = (data, offset);
        loop {
            let (now, later) = rest.split_at(rest.len().min(DATA_BYTES_MAX));
            let (reply, _) = self.call_with(Request::Write { node, handle, offset: at, flags }, now, None)?;
            let Reply::Written(written) = reply else { return Err(failure(reply)) };
            if written.missing > 0 || later.is_empty() {
                return Ok(Written { missing: written.missing.saturating_add(later.len()), ..written });
            }
            at = at.saturating_add(u64::try_from(now.len()).map_err(|_| confused())?);
            rest = later;
        }
    }

    fn write_encoded(&self, node: NodeId, encoded: &EncodedData<'_>) -> Answer<bool> {
        if encoded.data.len() > DATA_BYTES_MAX {
            return Ok(false);
        }
        let EncodedData { offset, len, extent_len, extent_offset, compression, data } = *encoded;
        let encoded = Encoded { offset, len, extent_len, extent_offset, compression };
        self.is(Request::WriteEncoded { node, encoded }, data)
    }

    fn sync_file(&self, node: NodeId, handle: Handle, what: SyncWhat) -> Answer<()> {
        self.done(Request::SyncFile { node, handle, what })
    }

    fn sync_fs(&self) -> Answer<()> {
        self.done(Request::SyncFs)
    }

    fn allocate(&self, node: NodeId, flags: AllocateFlags, offset: u64, len: u64) -> Answer<()> {
        self.done(Request::Allocate { node, flags, offset, len })
    }

    fn seek(&self, node: NodeId, what: Seek, offset: u64) -> Answer<u64> {
        self.count(Request::Seek { node, what, offset })
    }

    fn copy_range(&self, range: &CopyRange) -> Answer<u64> {
        self.count(Request::Copy { how: Copy::Range, range: *range })
    }

    fn reflink(&self, range: &CopyRange) -> Answer<()> {
        self.done(Request::Copy { how: Copy::Reflink, range: *range })
    }

    fn dedupe(&self, range: &CopyRange) -> Answer<bool> {
        self.is(Request::Copy { how: Copy::Dedupe, range: *range }, &[])
    }

    fn subvolumes(&self) -> Option<&dyn Subvolumes> {
        self.is(Request::HasSubvolumes, &[]).is_ok_and(|has| has).then_some(self)
    }

    fn read_dir(&self, node: NodeId, from: u64, with_nodes: bool, sink: &mut dyn DirSink) -> Answer<()> {
        let mut from = from;
        loop {
            let Reply::Listed { names, is_end } = self.call(Request::ReadDir { node, from, with_nodes })? else {
                return Err(confused());
            };
            let mut takes = true;
            let count = names.len();
            for listed in names {
                let entry = DirEntry { name: &listed.name, ino: listed.ino, kind: listed.kind, next: listed.next };
                takes = takes
                    && match with_nodes {
                        true => sink.add_with_node(&entry, listed.node.as_ref()),
                        false => sink.add(&entry),
                    };
                // The caller got no reference to an entry that it did not take.
                if !takes && let Some(node) = listed.node {
                    self.give_back(Gone::Node(node.node, 1));
                }
                from = listed.next;
            }
            if is_end || !takes || count == 0 {
                return Ok(());
            }
        }
    }

    fn get_xattr(&self, node: NodeId, name: &[u8]) -> Answer<Vec<u8>> {
        self.bytes(Request::GetXattr { node, name })
    }

    fn list_xattrs(&self, node: NodeId) -> Answer<Vec<Vec<u8>>> {
        match self.call(Request::ListXattrs { node })? {
            Reply::Names(names) => Ok(names),
            reply => Err(failure(reply)),
        }
    }

    fn set_xattr(&self, node: NodeId, name: &[u8], value: &[u8], mode: XattrMode, clear_set_group: bool) -> Answer<()> {
        self.done(Request::SetXattr { node, name, value, mode, clear_set_group })
    }

    fn remove_xattr(&self, node: NodeId, name: &[u8]) -> Answer<()> {
        self.done(Request::RemoveXattr { node, name })
    }

    fn flags(&self, node: NodeId) -> Answer<NodeFlags> {
        match self.call(Request::Flags { node })? {
            Reply::Flags(flags) => Ok(flags),
            reply => Err(failure(reply)),
        }
    }

    fn set_flags(&self, caller: &Caller, node: NodeId, flags: NodeFlags) -> Answer<()> {
        self.done(Request::SetFlags { owner: owner(caller), node, flags })
    }

    fn flag_names(&self, node: NodeId) -> Answer<String> {
        match self.call(Request::FlagNames { node })? {
            Reply::Text(text) => Ok(text),
            reply => Err(failure(reply)),
        }
    }

    fn extents(&self, node: NodeId, offset: u64) -> Answer<Vec<Extent>> {
        let (mut all, mut from) = (Vec::new(), offset);
        loop {
            let Reply::Extents(placed) = self.call(Request::Extents { node, offset: from })? else {
                return Err(confused());
            };
            // An extent that reaches behind its length, as inline data does in its sector, is told again.
            let is_new = |placed: &Placed| all.is_empty() || placed.offset >= from;
            let new: Vec<Placed> = placed.into_iter().filter(is_new).collect();
            let Some(last) = new.last() else { return Ok(all) };
            from = last.offset.saturating_add(last.len.max(1));
            all.extend(new.into_iter().map(Extent::from));
        }
    }

    fn status(&self) -> Answer<VolumeStatus> {
        match self.call(Request::Status)? {
            Reply::Status { status, .. } => Ok(status),
            reply => Err(failure(reply)),
        }
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn step(&self) -> Duration {
        Duration::MAX
    }

    fn maintenance(&self) -> Option<&dyn Maintenance> {
        Some(self)
    }
}
