//! Implements `vfs::FileSystem` for `Permitted`: checks each call against the rules in `mod.rs`, then passes it on to
//! the file system below or refuses it. The server of the mount's socket (`remote::serve`) makes the calls.

use vfs::acl;
use vfs::file_system::{
    AllocateFlags, Answer, Attr, Caller, CopyRange, DirSink, EncodedData, Entry, Errno, Extent, Follow, Handle, Layout,
    NewNode, NodeFlags, NodeId, NodeKind, OpenFlags, RenameFlags, Seek, SetAttr, Size, Subvolumes, SyncWhat, Trim,
    VolumeStatus, WholeNode, WriteFlags, Written, XattrMode,
};
use vfs::{FileSystem, Maintenance};

use super::{Permitted, READ, SEARCH, WRITE};

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
        match self.user.is_root() && self.base == NodeId::ROOT {
            true => self.fs.resolve(path, follow),
            false => vfs::resolve(self, path, follow),
        }
    }

    fn attr_at(&self, path: &[u8], follow: Follow) -> Answer<Attr> {
        match self.user.is_root() && self.base == NodeId::ROOT {
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
        self.may_change()?;
        let node = self.real(node);
        let changes = self.permitted_changes(node, changes)?;
        if !self.user.is_root() && (SetAttr { handle: None, ..changes }) == SetAttr::default() {
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
        if !self.user.is_root() {
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
        if !self.user.is_root() {
            // As open(2): O_NOATIME is for the owner alone, else the access time is updated.
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
        self.may_change()?;
        let (mut flags, node) = (flags, self.real(node));
        if !self.user.is_root() {
            flags &= WriteFlags::APPEND | WriteFlags::DATA_SYNC | WriteFlags::DIRECT;
            flags |= WriteFlags::CLEAR_PRIVILEGES;
            flags.set(WriteFlags::BY_MEMBER, self.user.is_in(self.fs.attr(node)?.gid));
        }
        self.fs.write(node, handle, offset, data, flags)
    }

    fn write_encoded(&self, node: NodeId, encoded: &EncodedData<'_>) -> Answer<bool> {
        self.may_change()?;
        // The kernel asks for the right to administer the system.
        self.may_administer()?;
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
        self.clear_privileges(node)?;
        self.fs.allocate(node, flags, offset, len)
    }

    fn seek(&self, node: NodeId, what: Seek, offset: u64) -> Answer<u64> {
        self.fs.seek(self.for_reading(node)?, what, offset)
    }

    fn copy_range(&self, range: &CopyRange) -> Answer<u64> {
        let range = self.copy(range)?;
        self.clear_privileges(range.target)?;
        self.fs.copy_range(&range)
    }

    fn reflink(&self, range: &CopyRange) -> Answer<()> {
        let range = self.copy(range)?;
        self.clear_privileges(range.target)?;
        self.fs.reflink(&range)
    }

    fn dedupe(&self, range: &CopyRange) -> Answer<bool> {
        let target = self.shared_into(range.target)?;
        self.fs.dedupe(&CopyRange { source: self.for_reading(range.source)?, target, ..*range })
    }

    fn subvolumes(&self) -> Option<&dyn Subvolumes> {
        match self.fs.subvolumes() {
            Some(_) => Some(self),
            None => None,
        }
    }

    fn read_dir(&self, node: NodeId, from: u64, with_nodes: bool, sink: &mut dyn DirSink) -> Answer<()> {
        let node = self.for_reading(node)?;
        let with_nodes = with_nodes && self.may(node, SEARCH).is_ok();
        self.fs.read_dir(node, from, with_nodes, sink)
    }

    fn get_xattr(&self, node: NodeId, name: &[u8]) -> Answer<Vec<u8>> {
        if name.starts_with(b"trusted.") && !self.user.is_root() {
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
        names.retain(|name| self.user.is_root() || !name.starts_with(b"trusted."));
        Ok(names)
    }

    fn set_xattr(&self, node: NodeId, name: &[u8], value: &[u8], mode: XattrMode, clear_set_group: bool) -> Answer<()> {
        self.may_change()?;
        let node = self.real(node);
        let attr = self.fs.attr(node)?;
        self.may_set_xattr(node, &attr, name)?;
        let is_stranger = !self.user.is_root() && !self.user.is_in(attr.gid) && name == acl::ACCESS_NAME;
        self.fs.set_xattr(node, name, value, mode, clear_set_group || is_stranger)
    }

    fn remove_xattr(&self, node: NodeId, name: &[u8]) -> Answer<()> {
        self.may_change()?;
        let node = self.real(node);
        self.may_set_xattr(node, &self.fs.attr(node)?, name)?;
        self.fs.remove_xattr(node, name)
    }

    fn flags(&self, node: NodeId) -> Answer<NodeFlags> {
        self.fs.flags(self.real(node))
    }

    fn set_flags(&self, caller: &Caller, node: NodeId, flags: NodeFlags) -> Answer<()> {
        self.may_change()?;
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

    fn maintenance(&self) -> Option<&dyn Maintenance> {
        Some(self)
    }
}

impl Maintenance for Permitted {
    fn defragment(&self, node: NodeId, wanted: &Layout<'_>) -> Answer<u64> {
        let node = self.for_writing(node)?;
        self.fs.maintained()?.defragment(node, wanted)
    }

    fn trim(&self, wanted: &Trim, watch: &mut dyn FnMut(u64, u64)) -> Answer<u64> {
        self.may_change()?;
        self.may_administer()?;
        self.fs.maintained()?.trim(wanted, watch)
    }

    fn resize(&self, size: Size) -> Answer<u64> {
        self.may_change()?;
        self.may_administer()?;
        self.fs.maintained()?.resize(size)
    }

    fn is_order(&self, name: &[u8]) -> bool {
        self.fs.maintenance().is_some_and(|fs| fs.is_order(name))
    }

    fn order(&self, name: &[u8], value: &[u8]) -> Answer<()> {
        self.may_change()?;
        self.may_administer()?;
        self.fs.maintained()?.order(name, value)
    }
}
