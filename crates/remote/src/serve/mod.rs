//! Implements the server's side: a session for each client, a thread for each of its streams.
//!
//! A session keeps a list of the nodes and handles of its client, executes calls that [`Permitted`] allows, and reports
//! changes to [`Watch`]; `subvolumes` has the changes of subvolumes. Failure: a malformed request closes the client's
//! stream. Caller: the client socket of a mount, in `cli`.

mod subvolumes;

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;

use access::Permitted;
use parking_lot::{Mutex, RwLock};
use rustix::net::{AddressFamily, SocketType, sockopt};
use vfs::FileSystem as _;
use vfs::file_system::{
    Answer, Caller, EncodedData, Entry, Errno, Follow, Handle, Layout, NodeId, OpenFlags, SetAttr, Trim, WholeNode,
    WriteFlags,
};

use crate::batch;
use crate::jobs::{JobFailure, JobKind, Jobs};
use crate::list::List;
use crate::references::Held;
use crate::streams::Streams;
use crate::watch::Watch;
use crate::wire::{
    Call, Copy, DATA_BYTES_MAX, EXTENTS_MAX, Encoded, Gone, Inbox, Named, Owner, Placed, Refusal, Reply, Request,
    Whole, Wire,
};

/// Serves clients until it is closed.
pub struct Host {
    watch: Arc<dyn Watch>,
    jobs: Mutex<Option<Arc<dyn Jobs>>>,
    /// Held while a request is carried out.
    state: RwLock<State>,
    streams: Arc<Streams>,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").finish_non_exhaustive()
    }
}

/// State of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Requests are executed.
    Serving,
    /// Requests are refused; sessions that end release the references of their clients.
    Ending,
    /// Requests are refused, and nothing is released any more: the file system has ended.
    Over,
}

impl Host {
    /// A host without clients.
    #[must_use]
    pub fn new(watch: Arc<dyn Watch>, jobs: Option<Arc<dyn Jobs>>) -> Arc<Self> {
        let (jobs, state) = (Mutex::new(jobs), RwLock::new(State::Serving));
        Arc::new(Self { watch, jobs, state, streams: Arc::default() })
    }

    /// Runs `greet` for a client that is not yet identified, so that [`Host::close`] ends it.
    ///
    /// # Errors
    /// `ResourceBusy` if there are too many clients or the host is closed; errors of `greet`.
    pub fn greeting<T, E: From<io::Error>>(
        self: &Arc<Self>,
        stream: &UnixStream,
        uid: u32,
        greet: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let _ended = self.streams.register(stream, uid)?;
        greet()
    }

    /// Serves a client of the user `uid`, on threads of its own.
    ///
    /// # Errors
    /// `ResourceBusy` if there are too many clients or the host is closed; errors of the system.
    pub fn serve(self: &Arc<Self>, stream: UnixStream, permitted: Permitted, uid: u32) -> io::Result<()> {
        let (host, held) = (Arc::clone(self), Mutex::default());
        let session = Arc::new(Session { host, permitted, held, uid });
        self.add(stream, session)
    }

    fn add(self: &Arc<Self>, stream: UnixStream, session: Arc<Session>) -> io::Result<()> {
        let ended = self.streams.register(&stream, session.uid)?;
        let run = move || {
            let _ended = ended;
            if let Err(error) = session.run(stream) {
                tracing::debug!(%error, "a client lost its stream");
            }
            drop(session);
        };
        let spawned = thread::Builder::new().name("remote".to_owned()).spawn(run);
        spawned.map(drop)
    }

    /// Ends all streams, and waits for them for a limited time; each session releases what its client holds. Afterwards
    /// the host executes no request and releases nothing: the references of a client whose stream did not end stay.
    pub fn close(&self) {
        self.streams.close();
        *self.state.write() = State::Ending;
        // Their volume is closed with it.
        self.jobs.lock().take();
        let left = self.streams.wait_for_end();
        if left > 0 {
            tracing::warn!("{left} streams of clients do not end");
        }
        *self.state.write() = State::Over;
    }
}

/// One client, which may have several streams.
struct Session {
    host: Arc<Host>,
    permitted: Permitted,
    held: Mutex<Held>,
    uid: u32,
}

impl Drop for Session {
    fn drop(&mut self) {
        let state = self.host.state.read();
        if *state == State::Over {
            return;
        }
        let (held, fs) = (std::mem::take(self.held.get_mut()), self.permitted.inner());
        for ((node, handle), (_, count)) in held.openings {
            (0..count).for_each(|_| fs.release(node, handle));
        }
        for (node, count) in held.nodes {
            fs.forget(node, count);
        }
    }
}

/// The family of a socket.
#[cfg(not(target_vendor = "apple"))]
fn family_of(socket: &OwnedFd) -> rustix::io::Result<AddressFamily> {
    sockopt::socket_domain(socket)
}

/// The family of a socket.
#[cfg(target_vendor = "apple")]
fn family_of(socket: &OwnedFd) -> rustix::io::Result<AddressFamily> {
    Ok(rustix::net::getsockname(socket)?.address_family())
}

/// A stream socket that a client sent. Another descriptor could not be shut down, and the server might wait for ever.
fn stream_of(descriptor: OwnedFd) -> Option<UnixStream> {
    let is_stream = family_of(&descriptor) == Ok(AddressFamily::UNIX)
        && sockopt::socket_type(&descriptor) == Ok(SocketType::STREAM);
    is_stream.then(|| UnixStream::from(descriptor))
}

impl Session {
    fn run(self: &Arc<Self>, stream: UnixStream) -> io::Result<()> {
        let (mut wire, mut inbox, mut data) = (Wire::new(stream), Inbox::default(), Vec::new());
        while wire.receive(&mut inbox, None)?.is_some() {
            let call: Call<'_> = postcard::from_bytes(&inbox.header).map_err(io::Error::other)?;
            data.clear();
            let given_back = self.while_serving(|| call.gone.iter().for_each(|gone| self.give_back(*gone)));
            // An unexpected descriptor is closed while no lock is held: closing can take for ever.
            let reply = given_back.and_then(|()| match (&call.request, inbox.descriptor.take()) {
                (Request::Join, Some(other)) => Some(self.join(other)),
                (Request::Job { words }, Some(stream)) => self.while_serving(|| self.job(words, stream)),
                (request, _) => {
                    self.while_serving(|| self.answer(request, &inbox.data, &mut data).unwrap_or_else(Reply::from))
                }
            });
            let Some(reply) = reply else { return Ok(()) };
            wire.send(&reply, &data, None)?;
        }
        Ok(())
    }

    /// Calls `act` if the host still serves, and keeps it from ending meanwhile; `None` if it does not.
    fn while_serving<T>(&self, act: impl FnOnce() -> T) -> Option<T> {
        let state = self.host.state.read();
        (*state == State::Serving).then(act)
    }

    /// Adds a stream to this session.
    fn join(self: &Arc<Self>, other: OwnedFd) -> Reply {
        let Some(other) = stream_of(other) else { return vfs::Error::from(Errno::EINVAL).into() };
        let joined = self.host.add(other, Arc::clone(self));
        joined.map_or_else(|_| Reply::from(vfs::Error::from(Errno::EAGAIN)), |()| Reply::Done)
    }

    fn may_do(&self, kind: JobKind) -> Answer<()> {
        match kind {
            JobKind::Tells => Ok(()),
            JobKind::Reads => self.permitted.may_administer(),
            JobKind::Changes => self.permitted.may_change().and_then(|()| self.permitted.may_administer()),
        }
    }

    fn job(&self, words: &[String], stream: OwnedFd) -> Reply {
        let Some(stream) = stream_of(stream) else { return vfs::Error::from(Errno::EINVAL).into() };
        let Some(jobs) = self.host.jobs.lock().clone() else { return vfs::Error::from(Errno::EOPNOTSUPP).into() };
        if let Err(error) = self.may_do(jobs.kind(words)) {
            return error.into();
        }
        let Ok(_ended) = self.host.streams.register(&stream, self.uid) else {
            return vfs::Error::from(Errno::EAGAIN).into();
        };
        let mut changed = Vec::new();
        let done = jobs.run(words, stream, &mut changed);
        for path in changed {
            let end = path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
            let (dir, name) = path.split_at(end);
            let dir = if dir.is_empty() { b"/" } else { dir };
            if let Ok(entry) = self.permitted.inner().resolve(dir, Follow::Last) {
                self.host.watch.name(entry.node, name);
                self.host.watch.contents(entry.node);
                self.permitted.inner().forget(entry.node, 1);
            }
        }
        match done {
            Ok(text) => Reply::Text(text),
            Err(JobFailure { status, text }) => Reply::JobFailed { status, text },
        }
    }

    fn give_back(&self, gone: Gone) {
        let fs = self.permitted.inner();
        match gone {
            Gone::Node(node, count) => {
                let node = self.permitted.real(node);
                let count = self.held.lock().drop_node(node, count);
                if count > 0 {
                    fs.forget(node, count);
                }
            }
            Gone::Opening(node, handle) => {
                let node = self.permitted.real(node);
                let is_held = self.held.lock().drop_opening(node, handle);
                if is_held {
                    fs.release(node, handle);
                }
            }
        }
    }

    /// Refuses a node that this client was not given.
    fn known(&self, node: NodeId) -> Answer<NodeId> {
        let real = self.permitted.real(node);
        let is_known = real == self.permitted.real(NodeId::ROOT) || self.held.lock().has_node(real);
        if is_known { Ok(real) } else { Err(Errno::ESTALE.into()) }
    }

    /// Writes down that the client has one more reference.
    fn keep(&self, entry: &Entry) -> Answer<()> {
        let is_kept = self.held.lock().add_node(entry.node);
        if !is_kept {
            self.permitted.inner().forget(entry.node, 1);
            return Err(Errno::ENOMEM.into());
        }
        Ok(())
    }

    fn keep_open(&self, node: NodeId, handle: Handle, flags: OpenFlags) -> Answer<()> {
        let is_kept = self.held.lock().add_opening(node, handle, flags);
        if !is_kept {
            self.permitted.inner().release(node, handle);
            return Err(Errno::ENOMEM.into());
        }
        Ok(())
    }

    /// Refuses a handle that was not opened for this.
    fn opened(&self, node: NodeId, handle: Handle, wanted: OpenFlags) -> Answer<NodeId> {
        let node = self.known(node)?;
        // Root need not have opened the file: it may pass the handle 0.
        if self.uid == 0 && handle == Handle::default() {
            return Ok(node);
        }
        let flags = self.held.lock().flags_of(node, handle);
        if flags.is_some_and(|flags| flags.intersects(wanted)) { Ok(node) } else { Err(Errno::EBADF.into()) }
    }

    /// Clears the privileges of a file that is about to be changed, and tells the kernel before its contents change.
    fn clear_privileges(&self, node: NodeId) -> Answer<()> {
        if self.permitted.clear_privileges(node)? {
            self.host.watch.attributes(node);
        }
        Ok(())
    }

    fn given(&self, entry: Entry) -> Answer<Reply> {
        self.keep(&entry)?;
        Ok(Reply::Entry(entry))
    }

    fn answer(&self, request: &Request<'_>, data: &[u8], out: &mut Vec<u8>) -> Answer<Reply> {
        let fs = &self.permitted;
        Ok(match request {
            Request::Join | Request::Job { .. } => return Err(Errno::EINVAL.into()),
            Request::Lookup { parent, name } => return self.given(fs.lookup(self.known(*parent)?, name)?),
            Request::Resolve { path, follow } => return self.given(fs.resolve(path, *follow)?),
            Request::AttrAt { path, follow } => Reply::Attr(fs.attr_at(path, *follow)?),
            Request::KnownAt { path, follow, data_bytes_max } => {
                let bytes_max = usize::try_from(*data_bytes_max).unwrap_or(usize::MAX).min(DATA_BYTES_MAX);
                let mut node = fs.known_at(path, *follow, bytes_max)?;
                let data = node.data.take();
                let has_data = data.is_some();
                *out = data.unwrap_or_default();
                Reply::Known { node, has_data }
            }
            Request::KnownMany { paths, follow, data_bytes_max } if paths.len() <= batch::NODES_MAX => {
                let bytes_max = usize::try_from(*data_bytes_max).unwrap_or(usize::MAX);
                Reply::KnownMany(batch::look(fs, paths, (*follow, bytes_max), out))
            }
            Request::Attr { node } => Reply::Attr(fs.attr(self.known(*node)?)?),
            Request::ReadLink { node } => Reply::Bytes(fs.read_link(self.known(*node)?)?),
            Request::Open { owner, node, flags } => {
                let node = self.known(*node)?;
                if flags.contains(OpenFlags::TRUNCATE) {
                    // If the user may not do this, `open` fails as well.
                    self.clear_privileges(node).unwrap_or_default();
                }
                let handle = fs.open(&caller(*owner), node, *flags)?;
                if flags.contains(OpenFlags::TRUNCATE) {
                    self.host.watch.contents(node);
                }
                self.keep_open(node, handle, *flags)?;
                Reply::Opened(handle)
            }
            Request::Read { node, handle, offset, len } => {
                let node = self.opened(*node, *handle, OpenFlags::READ)?;
                let len = usize::try_from(*len).unwrap_or(usize::MAX).min(DATA_BYTES_MAX);
                out.resize(len, 0);
                let count = fs.read(node, *handle, *offset, out);
                out.truncate(count.as_ref().map_or(0, |count| *count));
                count.map(|_| Reply::Data)?
            }
            Request::SyncFile { node, handle, what } => {
                let node = self.known(*node)?;
                // A failure is reported once to each handle: to its client.
                let is_own = self.held.lock().flags_of(node, *handle).is_some();
                fs.sync_file(node, if is_own { *handle } else { Handle::default() }, *what)?;
                Reply::Done
            }
            Request::SyncFs => {
                fs.sync_fs()?;
                Reply::Done
            }
            Request::Seek { node, what, offset } => Reply::Count(fs.seek(self.known(*node)?, *what, *offset)?),
            Request::ReadDir { node, from, with_nodes } => return self.list(*node, *from, *with_nodes),
            Request::GetXattr { node, name } => Reply::Bytes(fs.get_xattr(self.known(*node)?, name)?),
            Request::ListXattrs { node } => Reply::Names(fs.list_xattrs(self.known(*node)?)?),
            Request::IsOrder { name } => Reply::Is(fs.maintenance().is_some_and(|fs| fs.is_order(name))),
            Request::Flags { node } => Reply::Flags(fs.flags(self.known(*node)?)?),
            Request::FlagNames { node } => Reply::Text(fs.flag_names(self.known(*node)?)?),
            Request::Extents { node, offset } => {
                let extents = fs.extents(self.known(*node)?, *offset)?;
                Reply::Extents(extents.iter().take(EXTENTS_MAX).map(Placed::from).collect())
            }
            Request::Status => Reply::Status { status: fs.status()?, is_read_only: fs.is_read_only() },
            request => return self.change_names(request, data),
        })
    }

    /// Changes of names.
    fn change_names(&self, request: &Request<'_>, data: &[u8]) -> Answer<Reply> {
        let (fs, watch) = (&self.permitted, &self.host.watch);
        Ok(match request {
            Request::Create { owner, parent, name, new } => {
                let parent = self.known(*parent)?;
                let entry = fs.create(&caller(*owner), parent, name, new)?;
                watch.name(parent, name);
                return self.given(entry);
            }
            Request::CreateWhole { parent, name, node } => {
                let parent = self.known(*parent)?;
                let attr = fs.create_whole(parent, name, &whole(node, data))?;
                watch.name(parent, name);
                Reply::Attr(attr)
            }
            Request::CreateMany { parent, nodes } if nodes.len() <= batch::NODES_MAX => {
                let parent = self.known(*parent)?;
                let (mut rest, mut made) = (data, Vec::new());
                for Named { name, node, len } in nodes {
                    let len = usize::try_from(*len).unwrap_or(usize::MAX);
                    let (own, others) = rest.split_at_checked(len).ok_or(Errno::EINVAL)?;
                    rest = others;
                    let one = fs.create_whole(parent, name, &whole(node, own));
                    made.push(one.inspect(|_| watch.name(parent, name)).map_err(Refusal::from));
                }
                Reply::Many(made)
            }
            Request::CreateUnnamed { owner, parent, new, flags } => {
                let (entry, handle) = fs.create_unnamed(&caller(*owner), self.known(*parent)?, new, *flags)?;
                self.keep(&entry).inspect_err(|_| fs.release(entry.node, handle))?;
                self.keep_open(entry.node, handle, *flags)?;
                Reply::Unnamed(entry, handle)
            }
            Request::Link { node, parent, name } => {
                let (node, parent) = (self.known(*node)?, self.known(*parent)?);
                let entry = fs.link(node, parent, name)?;
                watch.name(parent, name);
                watch.attributes(node);
                return self.given(entry);
            }
            Request::Unlink { parent, name } => {
                let parent = self.known(*parent)?;
                self.losing(parent, name, || fs.unlink(parent, name))?;
                watch.name(parent, name);
                Reply::Done
            }
            Request::RemoveDir { parent, name } => {
                let parent = self.known(*parent)?;
                fs.remove_dir(parent, name)?;
                watch.name(parent, name);
                Reply::Done
            }
            Request::Rename { owner, from, to, flags } => {
                let (from, to) = ((self.known(from.0)?, from.1), (self.known(to.0)?, to.1));
                self.losing(to.0, to.1, || fs.rename(&caller(*owner), from, to, *flags))?;
                watch.name(from.0, from.1);
                watch.name(to.0, to.1);
                Reply::Done
            }
            request => return self.change_contents(request, data),
        })
    }

    /// Removes a name of a node, whose attributes the kernel may have cached by another name.
    fn losing(&self, parent: NodeId, name: &[u8], change: impl FnOnce() -> Answer<()>) -> Answer<()> {
        let loser = self.permitted.inner().lookup(parent, name);
        let done = change();
        if let Ok(loser) = loser {
            if done.is_ok() && loser.attr.nlink > 1 {
                self.host.watch.attributes(loser.node);
            }
            self.permitted.inner().forget(loser.node, 1);
        }
        done
    }

    /// Changes of a node.
    fn change_contents(&self, request: &Request<'_>, data: &[u8]) -> Answer<Reply> {
        let fs = &self.permitted;
        let changed = |node: NodeId, reply: Reply| {
            self.host.watch.contents(node);
            Ok(reply)
        };
        match request {
            Request::SetAttr { owner, node, changes } => {
                let node = self.known(*node)?;
                let is_open = |handle: Handle| self.opened(node, handle, OpenFlags::WRITE).is_ok();
                let handle = changes.handle.filter(|handle| is_open(*handle));
                if changes.size.is_some() {
                    // If this fails, `set_attr` fails as well, or clears the privileges itself.
                    self.clear_privileges(node).unwrap_or_default();
                }
                let attr = fs.set_attr(&caller(*owner), node, &SetAttr { handle, ..*changes })?;
                match changes.size {
                    Some(_) => self.host.watch.contents(node),
                    None => self.host.watch.attributes(node),
                }
                Ok(Reply::Attr(attr))
            }
            Request::Write { node, handle, offset, flags } => {
                let node = self.opened(*node, *handle, OpenFlags::WRITE | OpenFlags::APPEND)?;
                self.clear_privileges(node).unwrap_or_default();
                let written = fs.write(node, *handle, *offset, data, self.write_flags(node, *handle, *flags))?;
                changed(node, Reply::Written(written))
            }
            Request::WriteEncoded { node, encoded } => {
                let node = self.known(*node)?;
                let Encoded { offset, len, extent_len, extent_offset, compression } = *encoded;
                let encoded = EncodedData { offset, len, extent_len, extent_offset, compression, data };
                let is_written = fs.write_encoded(node, &encoded)?;
                changed(node, Reply::Is(is_written))
            }
            Request::Allocate { node, flags, offset, len } => {
                let node = self.known(*node)?;
                self.clear_privileges(node)?;
                fs.allocate(node, *flags, *offset, *len)?;
                changed(node, Reply::Done)
            }
            Request::Copy { how, range } => {
                let target = self.known(range.target)?;
                let range = vfs::file_system::CopyRange { source: self.known(range.source)?, target, ..*range };
                if *how != Copy::Dedupe {
                    self.clear_privileges(target)?;
                }
                let reply = match how {
                    Copy::Range => Reply::Count(fs.copy_range(&range)?),
                    Copy::Reflink => fs.reflink(&range).map(|()| Reply::Done)?,
                    Copy::Dedupe => Reply::Is(fs.dedupe(&range)?),
                };
                changed(target, reply)
            }
            Request::Defragment { node, range, extent_bytes, compression } => {
                let node = self.known(*node)?;
                let layout = Layout { range: range.clone(), extent_bytes: *extent_bytes, compression: *compression };
                let moved = fs.maintained()?.defragment(node, &layout)?;
                changed(node, Reply::Count(moved))
            }
            request => self.change_rest(request),
        }
    }

    fn change_rest(&self, request: &Request<'_>) -> Answer<Reply> {
        let (fs, watch) = (&self.permitted, &self.host.watch);
        match request {
            Request::SetXattr { node, name, value, mode, clear_set_group } => {
                let node = self.known(*node)?;
                fs.set_xattr(node, name, value, *mode, *clear_set_group)?;
                watch.attributes(node);
            }
            Request::RemoveXattr { node, name } => {
                let node = self.known(*node)?;
                fs.remove_xattr(node, name)?;
                watch.attributes(node);
            }
            Request::SetFlags { owner, node, flags } => {
                let node = self.known(*node)?;
                fs.set_flags(&caller(*owner), node, *flags)?;
                watch.attributes(node);
            }
            Request::Order { name, value } => fs.maintained()?.order(name, value)?,
            Request::Trim { range, bytes_min } => {
                let wanted = Trim { range: range.clone(), bytes_min: *bytes_min };
                return Ok(Reply::Count(fs.maintained()?.trim(&wanted, &mut |_, _| {})?));
            }
            Request::Resize { size } => return Ok(Reply::Count(fs.maintained()?.resize(*size)?)),
            Request::HasSubvolumes => return Ok(Reply::Is(fs.subvolumes().is_some())),
            Request::Subvolume(call) => self.change_subvolumes(call)?,
            _ => return Err(Errno::EINVAL.into()),
        }
        Ok(Reply::Done)
    }

    /// The flags of a write, with `APPEND` if the file was opened only for appending.
    fn write_flags(&self, node: NodeId, handle: Handle, asked: WriteFlags) -> WriteFlags {
        let flags = self.held.lock().flags_of(node, handle).unwrap_or(OpenFlags::empty());
        match flags.contains(OpenFlags::WRITE) || !flags.contains(OpenFlags::APPEND) {
            true => asked,
            false => asked | WriteFlags::APPEND,
        }
    }

    fn list(&self, node: NodeId, from: u64, with_nodes: bool) -> Answer<Reply> {
        let mut list = List::default();
        let listed = self.permitted.read_dir(self.known(node)?, from, with_nodes, &mut list);
        let mut kept = Ok(());
        for entry in list.names.iter().filter_map(|listed| listed.node.as_ref()) {
            match kept {
                Ok(()) => kept = self.keep(entry),
                Err(_) => self.permitted.inner().forget(entry.node, 1),
            }
        }
        kept.and(listed).map(|()| Reply::Listed { is_end: !list.is_full, names: list.names })
    }
}

fn caller(owner: Owner) -> Caller {
    Caller { uid: owner.uid, gid: owner.gid, pid: 0 }
}

fn whole<'a>(node: &'a Whole<'a>, data: &'a [u8]) -> WholeNode<'a> {
    let [atime, mtime, ctime, btime] = node.times;
    WholeNode {
        kind: node.kind,
        permissions: node.permissions,
        uid: node.owner.uid,
        gid: node.owner.gid,
        atime,
        mtime,
        ctime,
        btime,
        rdev: node.rdev,
        target: node.target,
        xattrs: &node.xattrs,
        data,
    }
}
