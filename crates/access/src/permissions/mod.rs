//! Presents a file system to one user ([`Permitted`]), and holds the permission rules, which `file_system` and
//! `subvolumes` apply to each call.
//!
//! They are those of `path_resolution(7)`, `acl(5)`, `chmod(2)`, `chown(2)`, `unlink(2)`, `rename(2)` and `xattr(7)`.
//! Root may do everything that the file system does.
//!
//! Failure: the errno that the kernel would return, before anything changes. The `mount` command makes one for each
//! client of its socket (`client_socket`); `remote::serve` calls it.

mod file_system;
mod subvolumes;

use std::sync::Arc;

use vfs::FileSystem;
use vfs::acl::{self, Acl};
use vfs::file_system::{
    Answer, Attr, Caller, CopyRange, Errno, NewNode, NodeId, NodeKind, SetAttr, SetTime, WholeNode,
};
use vfs::privileges::{self, BareSetGroup};

use crate::user::User;

const READ: u16 = 4;
const WRITE: u16 = 2;
const SEARCH: u16 = 1;

const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o010;
const GROUP_BITS: u32 = 0o070;
const STICKY: u32 = 0o1000;

/// A right on a node, which permission bits and access control lists grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right {
    /// To read contents, or to list names.
    Read,
    /// To change contents, or names.
    Write,
    /// To look names up in a directory, or to run a program.
    Search,
}

/// A file system as one user may use it, from one directory on.
pub struct Permitted {
    fs: Arc<dyn FileSystem>,
    user: User,
    /// The directory that stands for the root.
    base: NodeId,
    is_read_only: bool,
}

impl std::fmt::Debug for Permitted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Permitted").field("user", &self.user).field("base", &self.base).finish_non_exhaustive()
    }
}

impl Permitted {
    /// The view that `user` has of `fs` below the directory `base`. With `is_read_only` every change is refused, as
    /// on a read-only mount.
    #[must_use]
    pub fn new(fs: Arc<dyn FileSystem>, user: User, base: NodeId, is_read_only: bool) -> Self {
        let is_read_only = is_read_only || fs.is_read_only();
        Self { fs, user, base, is_read_only }
    }

    /// The file system without the rules: for a server that releases nodes and handles which it has given out.
    #[must_use]
    pub fn inner(&self) -> &dyn FileSystem {
        &*self.fs
    }

    /// Permits operations on the whole volume to root and to the user who runs the server.
    ///
    /// # Errors
    /// `EPERM` for all others.
    pub fn may_administer(&self) -> Answer<()> {
        if self.user.is_root() || self.user.serves { Ok(()) } else { Err(Errno::EPERM.into()) }
    }

    /// Refuses changes where the view is read-only.
    ///
    /// # Errors
    /// `EROFS`.
    pub fn may_change(&self) -> Answer<()> {
        if self.is_read_only { Err(Errno::EROFS.into()) } else { Ok(()) }
    }

    /// The node of the inner file system: the root of the view is its base.
    #[must_use]
    pub fn real(&self, node: NodeId) -> NodeId {
        if node == NodeId::ROOT { self.base } else { node }
    }

    /// Whether the user has a right on a node with these attributes: for a server whose clients do not open files, and
    /// so are not checked then.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn grants(&self, node: NodeId, attr: &Attr, right: Right) -> Answer<bool> {
        let wanted = match right {
            Right::Read => READ,
            Right::Write => WRITE,
            Right::Search => SEARCH,
        };
        match self.may_with(self.real(node), attr, wanted) {
            Ok(()) => Ok(true),
            Err(error) if error.errno() == Errno::EACCES => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn caller(&self, asked: &Caller) -> Caller {
        if self.user.is_root() { *asked } else { Caller { uid: self.user.uid, gid: self.user.gid, pid: 0 } }
    }

    fn may(&self, node: NodeId, wanted: u16) -> Answer<()> {
        if self.user.is_root() {
            return Ok(());
        }
        let node = self.real(node);
        let attr = self.fs.attr(node)?;
        self.may_with(node, &attr, wanted)
    }

    fn may_with(&self, node: NodeId, attr: &Attr, wanted: u16) -> Answer<()> {
        let grants = |shift: u32| (attr.permissions >> shift) & u32::from(wanted) == u32::from(wanted);
        let may = if self.user.is_root() {
            true
        } else if self.user.uid == attr.uid {
            grants(6)
        } else {
            // Where the mask leaves nothing, no list is looked at.
            let list = if attr.permissions & GROUP_BITS == 0 { None } else { self.access_list(node)? };
            match list {
                Some(list) => list.grants(self.user.uid, attr.gid, |group| self.user.is_in(group), wanted),
                None if self.user.is_in(attr.gid) => grants(3),
                None => grants(0),
            }
        };
        if may { Ok(()) } else { Err(Errno::EACCES.into()) }
    }

    fn access_list(&self, node: NodeId) -> Answer<Option<Acl>> {
        match self.fs.get_xattr(node, acl::ACCESS_NAME) {
            Ok(value) => Ok(Acl::parse(&value)?),
            Err(error) if matches!(error.errno(), Errno::ENODATA | Errno::EOPNOTSUPP) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Names may be made and removed in a directory.
    fn may_change_names(&self, dir: NodeId) -> Answer<()> {
        self.may_change()?;
        self.may(dir, WRITE | SEARCH)
    }

    /// As [`Self::may_change_names`], for a name that is there: in a sticky directory it has to be one's own.
    fn may_remove(&self, dir: NodeId, name: &[u8]) -> Answer<()> {
        self.may_change_names(dir)?;
        if self.user.is_root() {
            return Ok(());
        }
        let dir = self.real(dir);
        let attr = self.fs.attr(dir)?;
        if attr.permissions & STICKY == 0 || attr.uid == self.user.uid {
            return Ok(());
        }
        let found = self.fs.lookup(dir, name)?;
        self.fs.forget(found.node, 1);
        if found.attr.uid == self.user.uid { Ok(()) } else { Err(Errno::EPERM.into()) }
    }

    fn owns(&self, attr: &Attr) -> Answer<()> {
        if self.user.is_root() || self.user.uid == attr.uid { Ok(()) } else { Err(Errno::EPERM.into()) }
    }

    fn owns_node(&self, node: NodeId) -> Answer<()> {
        self.owns(&self.fs.attr(self.real(node))?)
    }

    /// A user may link to what it owns, and to plain files that it may read and write (`fs.protected_hardlinks`).
    fn may_link(&self, node: NodeId) -> Answer<()> {
        let attr = self.fs.attr(self.real(node))?;
        if self.owns(&attr).is_ok() {
            return Ok(());
        }
        let is_program = attr.permissions & SET_USER != 0
            || attr.permissions & (SET_GROUP | GROUP_EXECUTE) == SET_GROUP | GROUP_EXECUTE;
        if !attr.is_file() || is_program || self.may_with(self.real(node), &attr, READ | WRITE).is_err() {
            return Err(Errno::EPERM.into());
        }
        Ok(())
    }

    /// Whether an attribute of this name may be written, on a node that is there.
    fn may_set_xattr(&self, node: NodeId, attr: &Attr, name: &[u8]) -> Answer<()> {
        if self.user.is_root() {
            return Ok(());
        }
        let is_user = name.starts_with(b"user.");
        if name.starts_with(b"trusted.") || name.starts_with(b"security.") {
            return Err(Errno::EPERM.into());
        }
        if name.starts_with(b"system.") {
            return self.owns(attr);
        }
        if is_user && !attr.is_file() && !attr.is_dir() {
            return Err(Errno::EPERM.into());
        }
        if is_user && attr.is_dir() && attr.permissions & STICKY != 0 {
            self.owns(attr)?;
        }
        self.may_with(node, attr, WRITE)
    }

    /// The part of the requested changes that the user may make.
    fn permitted_changes(&self, node: NodeId, asked: &SetAttr) -> Answer<SetAttr> {
        let mut changes = *asked;
        if self.user.is_root() {
            return Ok(changes);
        }
        let attr = self.fs.attr(node)?;
        changes.clear_privileges = changes.size.is_some() || changes.uid.is_some() || changes.gid.is_some();
        if changes.ctime.is_some() || changes.btime.is_some() {
            return Err(Errno::EPERM.into());
        }
        if changes.uid.is_some_and(|uid| uid != attr.uid) {
            return Err(Errno::EPERM.into());
        }
        if let Some(gid) = changes.gid {
            self.owns(&attr)?;
            if gid != attr.gid && !self.user.is_in(gid) {
                return Err(Errno::EPERM.into());
            }
        } else if changes.uid.is_some() {
            self.owns(&attr)?;
        }
        if let Some(permissions) = &mut changes.permissions {
            self.owns(&attr)?;
            if !self.user.is_in(changes.gid.unwrap_or(attr.gid)) {
                *permissions &= !SET_GROUP;
            }
        }
        match (changes.atime, changes.mtime) {
            (None, None) => {}
            // Write permission suffices to set both to now.
            (Some(SetTime::Now), Some(SetTime::Now)) if self.owns(&attr).is_err() => {
                self.may_with(node, &attr, WRITE)?;
            }
            _ => self.owns(&attr)?,
        }
        // For a file open for writing, permission was checked by the open.
        if changes.size.is_some() && changes.handle.is_none() {
            self.may_with(node, &attr, WRITE)?;
        }
        Ok(changes)
    }

    /// Refuses nodes that a user may not make: devices, files of others, privileged attributes.
    fn may_make_whole(&self, parent: NodeId, node: &WholeNode<'_>) -> Answer<()> {
        if self.user.is_root() {
            return Ok(());
        }
        self.may_make(node.kind)?;
        let dir = self.fs.attr(parent)?;
        let is_own_group = self.user.is_in(node.gid) || (dir.permissions & SET_GROUP != 0 && dir.gid == node.gid);
        if node.uid != self.user.uid || !is_own_group || node.ctime.is_some() || node.btime.is_some() {
            return Err(Errno::EPERM.into());
        }
        if node.permissions & SET_GROUP != 0 && !node.kind.is_dir() && !self.user.is_in(node.gid) {
            return Err(Errno::EPERM.into());
        }
        let is_privileged = |name: &[u8]| name.starts_with(b"trusted.") || name.starts_with(b"security.");
        if node.xattrs.iter().any(|(name, _)| is_privileged(name)) {
            return Err(Errno::EPERM.into());
        }
        Ok(())
    }

    fn may_make(&self, kind: NodeKind) -> Answer<()> {
        let is_device = matches!(kind, NodeKind::CharDevice | NodeKind::BlockDevice);
        if is_device && !self.user.is_root() { Err(Errno::EPERM.into()) } else { Ok(()) }
    }

    /// A new program runs with the rights of a directory's group only where its maker is in that group.
    fn without_others_group<'a>(&self, parent: NodeId, new: &NewNode<'a>) -> Answer<NewNode<'a>> {
        const AS_GROUP: u32 = SET_GROUP | GROUP_EXECUTE;
        let mut new = *new;
        if self.user.is_root() || new.kind.is_dir() || new.permissions & AS_GROUP != AS_GROUP {
            return Ok(new);
        }
        let dir = self.fs.attr(self.real(parent))?;
        if dir.permissions & SET_GROUP != 0 && !self.user.is_in(dir.gid) {
            new.permissions &= !SET_GROUP;
        }
        Ok(new)
    }

    /// Clears the set-user and set-group bits of a file whose contents are about to be changed, unless root changes
    /// them. True where there were any: a server tells the kernel before the contents change, so that no program with
    /// these bits runs with other contents.
    ///
    /// # Errors
    /// `EACCES` where the user may not write the file; those of the file system.
    pub fn clear_privileges(&self, node: NodeId) -> Answer<bool> {
        if self.user.is_root() || self.is_read_only {
            return Ok(false);
        }
        let node = self.real(node);
        let attr = self.fs.attr(node)?;
        let bare = if self.user.is_in(attr.gid) { BareSetGroup::Kept } else { BareSetGroup::Cleared };
        if privileges::cleared(attr.kind, attr.permissions, bare) == attr.permissions {
            return Ok(false);
        }
        self.may_with(node, &attr, WRITE)?;
        // Of several groups, the one that counts.
        let gid = if self.user.is_in(attr.gid) { attr.gid } else { self.user.gid };
        let changes = SetAttr { clear_privileges: true, ..SetAttr::default() };
        self.fs.set_attr(&Caller { uid: self.user.uid, gid, pid: 0 }, node, &changes)?;
        Ok(true)
    }

    /// A file that extents may be shared into. Sharing changes no contents, so the owner needs no write permission, and
    /// a read-only subvolume does not refuse it.
    fn shared_into(&self, node: NodeId) -> Answer<NodeId> {
        self.may_change()?;
        if self.owns_node(node).is_err() {
            self.may(node, WRITE)?;
        }
        Ok(self.real(node))
    }

    fn for_writing(&self, node: NodeId) -> Answer<NodeId> {
        self.may_change()?;
        self.may(node, WRITE)?;
        Ok(self.real(node))
    }

    fn for_reading(&self, node: NodeId) -> Answer<NodeId> {
        self.may(node, READ)?;
        Ok(self.real(node))
    }

    fn copy(&self, range: &CopyRange) -> Answer<CopyRange> {
        Ok(CopyRange { source: self.for_reading(range.source)?, target: self.for_writing(range.target)?, ..*range })
    }
}
