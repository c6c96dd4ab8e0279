//! The context of one call: the files as its user may use them, the nodes of its handles, attributes for the reply, and
//! syncs. The procedures are in `attributes`, `contents`, `names`, `list` and `mount`.

use std::sync::Arc;

use access::{Permitted, User};
use vfs::file_system::{Attr, Caller, Entry, Errno, Handle, SetAttr, SetTime, SyncWhat, Time};
use vfs::{FileSystem, NodeId};

use super::Shared;
use crate::handle::Place;
use crate::wire::{Credential, NfsTime, SetAttributes, Status, TimeChange, Writer, put_attributes, put_wcc};

/// Permission bits of a mode.
pub(super) const PERMISSIONS: u32 = 0o7777;
/// Set-user and set-group.
const SET_IDS: u32 = 0o6000;
const NANOSECONDS: u32 = 1_000_000_000;

/// The result of a part of a procedure; an error is the status of the reply.
pub(super) type Outcome<T> = Result<T, Status>;

/// Attributes of a node before and after a change, as far as they are known.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Wcc {
    pub(super) before: Option<Attr>,
    pub(super) after: Option<Attr>,
}

/// A node with a reference, which is dropped with this value.
pub(super) struct Held<'a> {
    fs: &'a dyn FileSystem,
    pub(super) node: NodeId,
    pub(super) attr: Attr,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.fs.forget(self.node, 1);
    }
}

/// One call.
pub(super) struct Session<'a> {
    pub(super) shared: &'a Shared,
    /// The files as the user may use them; requests that need no permission go to [`Shared::fs`].
    pub(super) view: Permitted,
    pub(super) caller: Caller,
}

impl<'a> Session<'a> {
    pub(super) fn new(shared: &'a Shared, credential: &Credential) -> Self {
        let user: User = shared.squash.user(credential);
        let caller = Caller { uid: user.uid, gid: user.gid, pid: 0 };
        let view = Permitted::new(Arc::clone(&shared.fs), user, shared.base, shared.read_only);
        Self { shared, view, caller }
    }

    pub(super) fn is_root(&self) -> bool {
        self.caller.uid == 0
    }

    /// Takes over the reference of an entry.
    pub(super) fn hold(&self, entry: Entry) -> Held<'a> {
        Held { fs: &*self.shared.fs, node: entry.node, attr: entry.attr }
    }

    /// The node of a handle.
    ///
    /// # Errors
    /// `BADHANDLE`; `STALE` if the node was removed, or if another node has its number now.
    pub(super) fn node(&self, handle: &[u8]) -> Outcome<Held<'a>> {
        let place = self.shared.handles.verify(handle)?;
        let held = self.hold(self.shared.fs.lookup(place.node, b".").map_err(stale)?);
        if held.attr.home == place.home { Ok(held) } else { Err(Status::STALE) }
    }

    /// As [`Self::node`], for a directory.
    ///
    /// # Errors
    /// Also `NOTDIR`.
    pub(super) fn dir(&self, handle: &[u8]) -> Outcome<Held<'a>> {
        let held = self.node(handle)?;
        if held.attr.is_dir() { Ok(held) } else { Err(Status::NOTDIR) }
    }

    pub(super) fn handle_of(&self, node: NodeId, attr: &Attr) -> Vec<u8> {
        self.shared.handles.make(Place { node, home: attr.home })
    }

    /// The current attributes of a node; `None` if it was removed.
    pub(super) fn attr(&self, node: NodeId) -> Option<Attr> {
        self.shared.fs.attr(node).ok()
    }

    /// Syncs nodes. Starts all syncs before it waits for the first, so that they can share a flush.
    ///
    /// # Errors
    /// Those of the file system. After an error the write verifier changes, so that clients send writes again.
    pub(super) fn sync(&self, nodes: &[NodeId], what: SyncWhat) -> Outcome<()> {
        let fs = &self.shared.fs;
        let mut begun = Vec::with_capacity(nodes.len());
        let mut done = Ok(());
        for node in nodes {
            match fs.begin_sync(*node, Handle::default(), what) {
                Ok(Some(ticket)) => begun.push((*node, ticket)),
                Ok(None) => {}
                Err(error) => done = Err(error),
            }
        }
        for (node, ticket) in begun {
            if let Err(error) = fs.end_sync(node, Handle::default(), ticket) {
                done = Err(error);
            }
        }
        done.map_err(|error| {
            self.shared.change_verifier();
            tracing::debug!(%error, "a change may be lost");
            error.into()
        })
    }

    /// Sets attributes of a node; `attr` are its current ones.
    pub(super) fn apply(&self, node: NodeId, attr: &Attr, changes: &SetAttributes) -> Outcome<()> {
        let mut set = SetAttr {
            permissions: changes.mode.map(|mode| mode & PERMISSIONS),
            uid: changes.uid,
            gid: changes.gid,
            size: changes.size,
            atime: time(changes.atime)?,
            mtime: time(changes.mtime)?,
            ..SetAttr::default()
        };
        if set == SetAttr::default() {
            return Ok(());
        }
        if (set.uid.is_some() || set.gid.is_some()) && !attr.is_dir() {
            // As chown(2) does, even for root: a set-user-ID program must not get the rights of its new owner.
            set.clear_privileges = true;
            set.permissions = set.permissions.map(|permissions| permissions & !SET_IDS);
        }
        // Clients check write permission when they open a file. The owner may truncate an open file although its mode
        // has changed since.
        if set.size.is_some() && self.owns(attr) {
            set.handle = Some(Handle::default());
        }
        vfs::FileSystem::set_attr(&self.view, &self.caller, node, &set)?;
        Ok(())
    }

    /// True for root and the owner.
    pub(super) fn owns(&self, attr: &Attr) -> bool {
        self.is_root() || attr.uid == self.caller.uid
    }

    /// `post_op_attr`.
    pub(super) fn put_attr(&self, out: &mut Writer, attr: Option<&Attr>) {
        out.optional(attr, |out, attr| put_attributes(out, attr, self.shared.handles.volume()));
    }

    /// `post_op_fh3`.
    pub(super) fn put_handle(&self, out: &mut Writer, node: Option<(NodeId, &Attr)>) {
        out.optional(node, |out, (node, attr)| out.opaque(&self.handle_of(node, attr)));
    }

    pub(super) fn put_wcc(&self, out: &mut Writer, wcc: &Wcc) {
        put_wcc(out, wcc.before.as_ref(), wcc.after.as_ref(), self.shared.handles.volume());
    }
}

/// Maps an unknown node number to STALE: the node was removed.
fn stale(error: vfs::Error) -> Status {
    if error.is_not_found() { Status::STALE } else { error.into() }
}

/// Writes the status of a result, and returns the result.
pub(super) fn put_status<T>(out: &mut Writer, outcome: Outcome<T>) -> Option<T> {
    match outcome {
        Ok(value) => {
            out.u32(Status::OK.0);
            Some(value)
        }
        Err(status) => {
            out.u32(status.0);
            None
        }
    }
}

/// Converts a time of SETATTR.
fn time(change: TimeChange) -> Outcome<Option<SetTime>> {
    match change {
        TimeChange::Keep => Ok(None),
        TimeChange::Now => Ok(Some(SetTime::Now)),
        TimeChange::To(NfsTime { nanoseconds, .. }) if nanoseconds >= NANOSECONDS => Err(Errno::EINVAL.into()),
        TimeChange::To(NfsTime { seconds, nanoseconds }) => {
            Ok(Some(SetTime::To(Time::new(i64::from(seconds), nanoseconds))))
        }
    }
}
