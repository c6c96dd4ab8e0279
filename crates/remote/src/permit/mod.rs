//! What a user may do, as the kernel decides it for a mount: the rules of `path_resolution(7)`, `acl(5)`, `chmod(2)`,
//! `chown(2)`, `unlink(2)`, `rename(2)` and `xattr(7)`.
//!
//! Every rule is applied to the user and the groups that the kernel reports for the socket; root may do anything.
//! `subvolumes` has the rules for subvolumes. Failure: the kernel's errno, before anything changes. Callers: sessions.

mod subvolumes;

use std::sync::Arc;

use vfs::FileSystem;
use vfs::acl::{self, Acl};
use vfs::file_system::{
    AllocateFlags, Answer, Attr, Caller, CopyRange, DirSink, EncodedData, Entry, Errno, Extent, Follow, Handle, Layout,
    NewNode, NodeFlags, NodeId, NodeKind, OpenFlags, RenameFlags, Seek, SetAttr, SetTime, Size, SyncWhat, Trim,
    VolumeStatus, WholeNode, WriteFlags, Written, XattrMode,
};
use vfs::privileges::{self, BareSetGroup};

use crate::who::{JobKind, Who};

const READ: u16 = 4;
const WRITE: u16 = 2;
const SEARCH: u16 = 1;

const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o010;
const GROUP_BITS: u32 = 0o070;
const STICKY: u32 = 0o1000;

/// A file system as one user may use it, from one directory on.
pub struct Permitted {
    fs: Arc<dyn FileSystem>,
    who: Who,
    /// Stands for the root.
    base: NodeId,
    is_read_only: bool,
}

impl std::fmt::Debug for Permitted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Permitted").field("who", &self.who).field("base", &self.base).finish_non_exhaustive()
    }
}

impl Permitted {
    /// What `who` may do beneath the directory `base`, and nothing that changes anything where that is read-only.
    #[must_use]
    pub fn new(fs: Arc<dyn FileSystem>, who: Who, base: NodeId, is_read_only: bool) -> Self {
        let is_read_only = is_read_only || fs.is_read_only();
        Self { fs, who, base, is_read_only }
    }

    pub(crate) fn inner(&self) -> &dyn FileSystem {
        &*self.fs
    }

    /// A job reads or writes everything, whatever the permissions are, unless it only tells what everybody may know.
    pub(crate) fn may_do(&self, kind: JobKind) -> Answer<()> {
        match kind {
            JobKind::Tells => Ok(()),
            JobKind::Reads => self.is_root_or_serves(),
            JobKind::Changes => self.writes().and_then(|()| self.is_root_or_serves()),
        }
    }

    /// The node that is meant: the root is the base.
    pub(crate) fn real(&self, node: NodeId) -> NodeId {
        if node == NodeId::ROOT { self.base } else { node }
    }

    fn caller(&self, asked: &Caller) -> Caller {
        if self.who.is_root() { *asked } else { Caller { uid: self.who.uid, gid: self.who.gid, pid: 0 } }
    }

    /// Refuses changes of what is only to be read.
    fn writes(&self) -> Answer<()> {
        if self.is_read_only { Err(Errno::EROFS.into()) } else { Ok(()) }
    }

    fn may(&self, node: NodeId, wanted: u16) -> Answer<()> {
        if self.who.is_root() {
            return Ok(());
        }
        let node = self.real(node);
        let attr = self.fs.attr(node)?;
        self.may_with(node, &attr, wanted)
    }

    fn may_with(&self, node: NodeId, attr: &Attr, wanted: u16) -> Answer<()> {
        let grants = |shift: u32| (attr.permissions >> shift) & u32::from(wanted) == u32::from(wanted);
        let may = if self.who.is_root() {
            true
        } else if self.who.uid == attr.uid {
            grants(6)
        } else {
            // Where the mask leaves nothing, no list is looked at.
            let list = if attr.permissions & GROUP_BITS == 0 { None } else { self.access_list(node)? };
            match list {
                Some(list) => list.grants(self.who.uid, attr.gid, |group| self.who.is_in(group), wanted),
                None if self.who.is_in(attr.gid) => grants(3),
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
        self.writes()?;
        self.may(dir, WRITE | SEARCH)
    }

    /// As [`Self::may_change_names`], for a name that is there: in a sticky directory it has to be one's own.
    fn may_remove(&self, dir: NodeId, name: &[u8]) -> Answer<()> {
        self.may_change_names(dir)?;
        if self.who.is_root() {
            return Ok(());
        }
        let dir = self.real(dir);
        let attr = self.fs.attr(dir)?;
        if attr.permissions & STICKY == 0 || attr.uid == self.who.uid {
            return Ok(());
        }
        let found = self.fs.lookup(dir, name)?;
        self.fs.forget(found.node, 1);
        if found.attr.uid == self.who.uid { Ok(()) } else { Err(Errno::EPERM.into()) }
    }

    fn owns(&self, attr: &Attr) -> Answer<()> {
        if self.who.is_root() || self.who.uid == attr.uid { Ok(()) } else { Err(Errno::EPERM.into()) }
    }

    fn is_root_or_serves(&self) -> Answer<()> {
        if self.who.is_root() || self.who.serves { Ok(()) } else { Err(Errno::EPERM.into()) }
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
        if self.who.is_root() {
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

    /// The changes that a user may make of what it asks for.
    fn permitted_changes(&self, node: NodeId, asked: &SetAttr) -> Answer<SetAttr> {
        let mut changes = *asked;
        if self.who.is_root() {
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
            if gid != attr.gid && !self.who.is_in(gid) {
                return Err(Errno::EPERM.into());
            }
        } else if changes.uid.is_some() {
            self.owns(&attr)?;
        }
        if let Some(permissions) = &mut changes.permissions {
            self.owns(&attr)?;
            if !self.who.is_in(changes.gid.unwrap_or(attr.gid)) {
                *permissions &= !SET_GROUP;
            }
        }
        match (changes.atime, changes.mtime) {
            (None, None) => {}
            // Who may write sets both to now, and nothing else.
            (Some(SetTime::Now), Some(SetTime::Now)) if self.owns(&attr).is_err() => {
                self.may_with(node, &attr, WRITE)?;
            }
            _ => self.owns(&attr)?,
        }
        // Who has it open for writing was asked then.
        if changes.size.is_some() && changes.handle.is_none() {
            self.may_with(node, &attr, WRITE)?;
        }
        Ok(changes)
    }

    /// Refuses what a user may not make: devices, files of others, privileged attributes.
    fn may_make_whole(&self, parent: NodeId, node: &WholeNode<'_>) -> Answer<()> {
        if self.who.is_root() {
            return Ok(());
        }
        self.may_make(node.kind)?;
        let dir = self.fs.attr(parent)?;
        let is_own_group = self.who.is_in(node.gid) || (dir.permissions & SET_GROUP != 0 && dir.gid == node.gid);
        if node.uid != self.who.uid || !is_own_group || node.ctime.is_some() || node.btime.is_some() {
            return Err(Errno::EPERM.into());
        }
        if node.permissions & SET_GROUP != 0 && !node.kind.is_dir() && !self.who.is_in(node.gid) {
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
        if is_device && !self.who.is_root() { Err(Errno::EPERM.into()) } else { Ok(()) }
    }

    /// A new program runs with the rights of a directory's group only where its maker is in that group.
    fn without_others_group<'a>(&self, parent: NodeId, new: &NewNode<'a>) -> Answer<NewNode<'a>> {
        const AS_GROUP: u32 = SET_GROUP | GROUP_EXECUTE;
        let mut new = *new;
        if self.who.is_root() || new.kind.is_dir() || new.permissions & AS_GROUP != AS_GROUP {
            return Ok(new);
        }
        let dir = self.fs.attr(self.real(parent))?;
        if dir.permissions & SET_GROUP != 0 && !self.who.is_in(dir.gid) {
            new.permissions &= !SET_GROUP;
        }
        Ok(new)
    }

    /// Takes the set-user and set-group bits from a file whose contents are about to be changed, unless root does it.
    /// True where there were any: who runs the file is to know that before it can find other contents.
    pub(crate) fn disarm(&self, node: NodeId) -> Answer<bool> {
        if self.who.is_root() || self.is_read_only {
            return Ok(false);
        }
        let node = self.real(node);
        let attr = self.fs.attr(node)?;
        let bare = if self.who.is_in(attr.gid) { BareSetGroup::Kept } else { BareSetGroup::Cleared };
        if privileges::cleared(attr.kind, attr.permissions, bare) == attr.permissions {
            return Ok(false);
        }
        self.may_with(node, &attr, WRITE)?;
        // Of several groups, the one that counts.
        let gid = if self.who.is_in(attr.gid) { attr.gid } else { self.who.gid };
        let changes = SetAttr { clear_privileges: true, ..SetAttr::default() };
        self.fs.set_attr(&Caller { uid: self.who.uid, gid, pid: 0 }, node, &changes)?;
        Ok(true)
    }

    fn for_writing(&self, node: NodeId) -> Answer<NodeId> {
        self.writes()?;
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

impl FileSystem for Permitted {
    fn lookup(&self, parent: NodeId, name: &[u8]) -> Answer<Entry> {
        let parent = self.real(parent);
        if name == b"." {
            return self.fs.lookup(parent, name);
        }
        self.may(parent, SEARCH)?;
        let name = if name == b".." && parent == self.base { b"." } else { name };
        self.fs.lookup(parent, name)
    }

    fn resolve(&self, path: &[u8], follow: Follow) -> Answer<Entry> {
        match self.who.is_root() && self.base == NodeId::ROOT {
            true => self.fs.resolve(path, follow),
            false => vfs::resolve(self, path, follow),
        }
    }

    fn attr_at(&self, path: &[u8], follow: Follow) -> Answer<Attr> {
        match self.who.is_root() && self.base == NodeId::ROOT {
            true => self.fs.attr_at(path, follow),
            false => {
                let entry = self.resolve(path, follow)?;
                self.forget(entry.node, 1);
                Ok(entry.attr)
            }
        }
    }

    fn forget(&self, node: NodeId, count: u64) {
        self.fs.forget(self.real(node), count);
    }

    fn attr(&self, node: NodeId) -> Answer<Attr> {
        self.fs.attr(self.real(node))
    }

    fn set_attr(&self, caller: &Caller, node: NodeId, changes: &SetAttr) -> Answer<Attr> {
        self.writes()?;
        let node = self.real(node);
        let changes = self.permitted_changes(node, changes)?;
        if !self.who.is_root() && (SetAttr { handle: None, ..changes }) == SetAttr::default() {
            // Nothing that a user may ask for; it would still be the last change.
            return self.fs.attr(node);
        }
        self.fs.set_attr(&self.caller(caller), node, &changes)
    }

    fn read_link(&self, node: NodeId) -> Answer<Vec<u8>> {
        self.fs.read_link(self.real(node))
    }

    fn create(&self, caller: &Caller, parent: NodeId, name: &[u8], new: &NewNode<'_>) -> Answer<Entry> {
        self.may_change_names(parent)?;
        self.may_make(new.kind)?;
        let (parent, new) = (self.real(parent), self.without_others_group(parent, new)?);
        self.fs.create(&self.caller(caller), parent, name, &new)
    }

    fn create_whole(&self, parent: NodeId, name: &[u8], node: &WholeNode<'_>) -> Answer<Attr> {
        self.may_change_names(parent)?;
        let parent = self.real(parent);
        self.may_make_whole(parent, node)?;
        self.fs.create_whole(parent, name, node)
    }

    fn create_unnamed(
        &self,
        caller: &Caller,
        parent: NodeId,
        new: &NewNode<'_>,
        flags: OpenFlags,
    ) -> Answer<(Entry, Handle)> {
        self.may_change_names(parent)?;
        self.may_make(new.kind)?;
        let (parent, new) = (self.real(parent), self.without_others_group(parent, new)?);
        self.fs.create_unnamed(&self.caller(caller), parent, &new, flags)
    }

    fn link(&self, node: NodeId, parent: NodeId, name: &[u8]) -> Answer<Entry> {
        self.may_change_names(parent)?;
        self.may_link(node)?;
        self.fs.link(self.real(node), self.real(parent), name)
    }

    fn unlink(&self, parent: NodeId, name: &[u8]) -> Answer<()> {
        self.may_remove(parent, name)?;
        self.fs.unlink(self.real(parent), name)
    }

    fn remove_dir(&self, parent: NodeId, name: &[u8]) -> Answer<()> {
        self.may_remove(parent, name)?;
        self.fs.remove_dir(self.real(parent), name)
    }

    fn rename(&self, caller: &Caller, from: (NodeId, &[u8]), to: (NodeId, &[u8]), flags: RenameFlags) -> Answer<()> {
        self.may_remove(from.0, from.1)?;
        self.may_change_names(to.0)?;
        let (from, to) = ((self.real(from.0), from.1), (self.real(to.0), to.1));
        if !self.who.is_root() {
            let moved = self.fs.lookup(from.0, from.1)?;
            self.fs.forget(moved.node, 1);
            if from.0 != to.0 && moved.attr.is_dir() {
                // Its `..` changes.
                self.may_with(moved.node, &moved.attr, WRITE)?;
            }
            match self.fs.lookup(to.0, to.1) {
                Ok(replaced) => {
                    self.fs.forget(replaced.node, 1);
                    self.may_remove(to.0, to.1)?;
                    let exchanges = flags.contains(RenameFlags::EXCHANGE) && from.0 != to.0;
                    if exchanges && replaced.attr.is_dir() {
                        self.may_with(replaced.node, &replaced.attr, WRITE)?;
                    }
                }
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
            if flags.contains(RenameFlags::WHITEOUT) {
                self.may_make(NodeKind::CharDevice)?;
            }
        }
        self.fs.rename(&self.caller(caller), from, to, flags)
    }

    fn open(&self, caller: &Caller, node: NodeId, flags: OpenFlags) -> Answer<Handle> {
        let changes = OpenFlags::WRITE | OpenFlags::APPEND | OpenFlags::TRUNCATE;
        if flags.intersects(changes) {
            self.for_writing(node)?;
        }
        if flags.contains(OpenFlags::READ) {
            self.may(node, READ)?;
        }
        let node = self.real(node);
        let mut flags = flags;
        if !self.who.is_root() {
            // For owners alone; who reads what others own is seen to have read it.
            let owns = self.owns(&self.fs.attr(node)?).is_ok();
            flags.set(OpenFlags::NO_ATIME, owns && flags.contains(OpenFlags::NO_ATIME));
            flags |= OpenFlags::CLEAR_PRIVILEGES;
        }
        self.fs.open(&self.caller(caller), node, flags)
    }

    fn release(&self, node: NodeId, handle: Handle) {
        self.fs.release(self.real(node), handle);
    }

    fn read(&self, node: NodeId, handle: Handle, offset: u64, buf: &mut [u8]) -> Answer<usize> {
        self.fs.read(self.real(node), handle, offset, buf)
    }

    fn write(&self, node: NodeId, handle: Handle, offset: u64, data: &[u8], flags: WriteFlags) -> Answer<Written> {
        self.writes()?;
        let (mut flags, node) = (flags, self.real(node));
        if !self.who.is_root() {
            flags &= WriteFlags::APPEND | WriteFlags::DATA_SYNC | WriteFlags::DIRECT;
            flags |= WriteFlags::CLEAR_PRIVILEGES;
            flags.set(WriteFlags::BY_MEMBER, self.who.is_in(self.fs.attr(node)?.gid));
        }
        self.fs.write(node, handle, offset, data, flags)
    }

    fn write_encoded(&self, node: NodeId, encoded: &EncodedData<'_>) -> Answer<bool> {
        self.writes()?;
        // The kernel asks for the right to administer the system.
        self.is_root_or_serves()?;
        self.fs.write_encoded(self.for_writing(node)?, encoded)
    }

    fn sync_file(&self, node: NodeId, handle: Handle, what: SyncWhat) -> Answer<()> {
        self.fs.sync_file(self.real(node), handle, what)
    }

    fn sync_fs(&self) -> Answer<()> {
        self.fs.sync_fs()
    }

    fn allocate(&self, node: NodeId, flags: AllocateFlags, offset: u64, len: u64) -> Answer<()> {
        let node = self.for_writing(node)?;
        self.disarm(node)?;
        self.fs.allocate(node, flags, offset, len)
    }

    fn seek(&self, node: NodeId, what: Seek, offset: u64) -> Answer<u64> {
        self.fs.seek(self.for_reading(node)?, what, offset)
    }

    fn copy_range(&self, range: &CopyRange) -> Answer<u64> {
        let range = self.copy(range)?;
        self.disarm(range.target)?;
        self.fs.copy_range(&range)
    }

    fn reflink(&self, range: &CopyRange) -> Answer<()> {
        let range = self.copy(range)?;
        self.disarm(range.target)?;
        self.fs.reflink(&range)
    }

    fn dedupe(&self, range: &CopyRange) -> Answer<bool> {
        let target = self.shared_into(range.target)?;
        self.fs.dedupe(&CopyRange { source: self.for_reading(range.source)?, target, ..*range })
    }

    fn defragment(&self, node: NodeId, wanted: &Layout<'_>) -> Answer<u64> {
        self.fs.defragment(self.for_writing(node)?, wanted)
    }

    fn trim(&self, wanted: &Trim, watch: &mut dyn FnMut(u64, u64)) -> Answer<u64> {
        self.writes()?;
        self.is_root_or_serves()?;
        self.fs.trim(wanted, watch)
    }

    fn resize(&self, size: Size) -> Answer<u64> {
        self.writes()?;
        self.is_root_or_serves()?;
        self.fs.resize(size)
    }

    fn read_dir(&self, node: NodeId, from: u64, with_nodes: bool, sink: &mut dyn DirSink) -> Answer<()> {
        let node = self.for_reading(node)?;
        let with_nodes = with_nodes && self.may(node, SEARCH).is_ok();
        self.fs.read_dir(node, from, with_nodes, sink)
    }

    fn get_xattr(&self, node: NodeId, name: &[u8]) -> Answer<Vec<u8>> {
        if name.starts_with(b"trusted.") && !self.who.is_root() {
            return Err(Errno::ENODATA.into());
        }
        let node = match name.starts_with(b"security.") || name.starts_with(b"system.") {
            true => self.real(node),
            false => self.for_reading(node)?,
        };
        self.fs.get_xattr(node, name)
    }

    fn list_xattrs(&self, node: NodeId) -> Answer<Vec<Vec<u8>>> {
        let mut names = self.fs.list_xattrs(self.real(node))?;
        names.retain(|name| self.who.is_root() || !name.starts_with(b"trusted."));
        Ok(names)
    }

    fn set_xattr(&self, node: NodeId, name: &[u8], value: &[u8], mode: XattrMode, clear_set_group: bool) -> Answer<()> {
        self.writes()?;
        let node = self.real(node);
        let attr = self.fs.attr(node)?;
        self.may_set_xattr(node, &attr, name)?;
        let is_stranger = !self.who.is_root() && !self.who.is_in(attr.gid) && name == acl::ACCESS_NAME;
        self.fs.set_xattr(node, name, value, mode, clear_set_group || is_stranger)
    }

    fn is_order(&self, name: &[u8]) -> bool {
        self.fs.is_order(name)
    }

    fn order(&self, name: &[u8], value: &[u8]) -> Answer<()> {
        self.writes()?;
        self.is_root_or_serves()?;
        self.fs.order(name, value)
    }

    fn remove_xattr(&self, node: NodeId, name: &[u8]) -> Answer<()> {
        self.writes()?;
        let node = self.real(node);
        self.may_set_xattr(node, &self.fs.attr(node)?, name)?;
        self.fs.remove_xattr(node, name)
    }

    fn flags(&self, node: NodeId) -> Answer<NodeFlags> {
        self.fs.flags(self.real(node))
    }

    fn set_flags(&self, caller: &Caller, node: NodeId, flags: NodeFlags) -> Answer<()> {
        self.writes()?;
        self.fs.set_flags(&self.caller(caller), self.real(node), flags)
    }

    fn flag_names(&self, node: NodeId) -> Answer<String> {
        self.fs.flag_names(self.real(node))
    }

    fn extents(&self, node: NodeId, offset: u64) -> Answer<Vec<Extent>> {
        self.fs.extents(self.for_reading(node)?, offset)
    }

    fn status(&self) -> Answer<VolumeStatus> {
        self.fs.status()
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn step(&self) -> std::time::Duration {
        std::time::Duration::MAX
    }
}
