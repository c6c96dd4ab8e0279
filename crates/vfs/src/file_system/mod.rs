//! Defines the interface between servers and file systems of any format.
//!
//! A server (FUSE, or a test) calls a [`FileSystem`] from many threads at once. Nodes are identified by [`NodeId`];
//! every returned [`Entry`] counts as one reference to its node, and [`FileSystem::forget`] releases references. A node
//! stays usable while it is referred to or open, with or without names.
//!
//! Permissions
//! * Permission bits and access control lists are checked by the server's client before a request is sent (the kernel
//!   does it for a mount with `default_permissions`; a test calls as root).
//! * The file system itself enforces the rules that do not depend on the caller: immutable and append-only nodes,
//!   read-only volumes and subvolumes, set-user and set-group bits that a write clears, the group and the access
//!   control list that a new node inherits.
//!
//! A change of contents, size or owner removes `security.capability`, whichever caller makes it (except a write from
//! the kernel's page cache, which may be older than the attribute). Set-user and set-group bits are removed only where
//! the request asks for it, because that depends on the caller.
//!
//! Durability: after `sync_fs` has returned, every change made before its call survives a crash. After `sync_file` has
//! returned, the changes of that file do, and the names that lead to it.
//!
//! Failure: an [`Error`] with its [`Errno`], and nothing has changed. After a failed write of metadata every later
//! change fails alike (`EROFS` or `EIO`), and reads go on.

mod control;
mod layout;
mod maintenance;
mod resolve;
mod subvolumes;
mod types;
mod whole_node;

pub use crate::errno::{Errno, Result};
pub use control::{Control, ControlAnswer, Controls};
pub use layout::{DEDUPE_BYTES_MAX, EXTENT_BYTES_DEFAULT, Layout, Size, Trim, are_shared, extent_at};
pub use maintenance::Maintenance;
pub use resolve::resolve;
pub use subvolumes::{SnapshotMode, Subvolumes};
pub use types::{
    AllocateFlags, Attr, Caller, CopyRange, DirEntry, DirSink, EncodedData, Entry, Extent, ExtentKind, Follow, Handle,
    Home, NewNode, NodeAt, NodeFlags, NodeId, NodeKind, OpenFlags, RenameFlags, Seek, SetAttr, SetTime, SyncTicket,
    SyncWhat, Time, VolumeStatus, WholeNode, WriteFlags, Written, XattrMode,
};
pub use whole_node::{KnownNode, Xattrs};

use std::time::Duration;

use crate::error::Error;

/// Result of a file system: an error has the number for the client of a server, and the cause for people.
pub type Answer<T> = std::result::Result<T, Error>;

/// A file system with its nodes. All methods may be called from many threads at once. Operations that a format may lack
/// have a default that refuses them.
pub trait FileSystem: Send + Sync {
    /// The node that `name` leads to in the directory `parent`; `name` may be `..`.
    ///
    /// The name `.` leads to `parent` itself, whatever kind of node that is and whether or not the server refers to it
    /// (any more): so the kernel finds the node of a file handle again. The number may be one that an earlier server of
    /// the same file system gave out; the caller has to compare the generations.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENAMETOOLONG`; for `.`, `ESTALE` when no such node has a name.
    fn lookup(&self, parent: NodeId, name: &[u8]) -> Answer<Entry>;

    /// The node that a path leads to, from the root; it counts as one reference. Symbolic links are followed, the one
    /// at the end as `follow` says. A file system that knows a shorter way than name by name takes it.
    ///
    /// # Errors
    /// `ENOENT` (also for an empty path), `ENOTDIR`, `ELOOP`, `ENAMETOOLONG`.
    fn resolve(&self, path: &[u8], follow: Follow) -> Answer<Entry> {
        resolve::resolve(self, path, follow)
    }

    /// The attributes of the node of a path, without a reference to it: one call where a resolved node would take
    /// three.
    ///
    /// # Errors
    /// As [`FileSystem::resolve`].
    fn attr_at(&self, path: &[u8], follow: Follow) -> Answer<Attr> {
        let entry = self.resolve(path, follow)?;
        self.forget(entry.node, 1);
        Ok(entry.attr)
    }

    /// The node of a path, for a request that follows at once. A format whose numbers lead to their nodes without a
    /// reference takes none: one call less for each name that is made or removed by path.
    ///
    /// # Errors
    /// As [`FileSystem::resolve`].
    fn node_at(&self, path: &[u8], follow: Follow) -> Answer<NodeAt> {
        let entry = self.resolve(path, follow)?;
        Ok(NodeAt { node: entry.node, kind: entry.attr.kind, is_referenced: true })
    }

    /// All properties of the node of a path, in one step; contents of at most `data_bytes_max` bytes.
    ///
    /// # Errors
    /// As [`FileSystem::resolve`].
    fn known_at(&self, path: &[u8], follow: Follow, data_bytes_max: usize) -> Answer<KnownNode> {
        whole_node::read(self, path, follow, data_bytes_max)
    }

    /// Gives back `count` references to a node. Never fails: a count that is too large is cut.
    fn forget(&self, node: NodeId, count: u64);

    /// The attributes that `stat` reports.
    ///
    /// # Errors
    /// `ESTALE` for a node that has no names and to which the server has no reference.
    fn attr(&self, node: NodeId) -> Answer<Attr>;

    /// Changes attributes, all of them or none. A new permission mask changes the ACL alike. A size alone changes the
    /// times only where it is another one.
    ///
    /// # Errors
    /// `EPERM` for an immutable node, and an append-only one unless only times are set to now;
    /// `EROFS`, `EFBIG`, `EINVAL`, `ENOSPC`.
    fn set_attr(&self, caller: &Caller, node: NodeId, changes: &SetAttr) -> Answer<Attr>;

    /// Target of a symbolic link.
    ///
    /// # Errors
    /// `EINVAL` for another kind of node.
    fn read_link(&self, _node: NodeId) -> Answer<Vec<u8>> {
        Err(Errno::EINVAL.into())
    }

    /// Makes a node and gives it a name.
    ///
    /// # Errors
    /// `EEXIST`, `ENOENT` in a directory that was removed, `ENAMETOOLONG`, `ENOSPC`, `EPERM`,
    /// `EROFS`.
    fn create(&self, _caller: &Caller, _parent: NodeId, _name: &[u8], _new: &NewNode<'_>) -> Answer<Entry> {
        Err(Errno::EPERM.into())
    }

    /// Makes a node with all its properties and a name, in one step if the format can. It inherits only storage
    /// properties from the directory. Returns the attributes; the result is no reference.
    ///
    /// # Errors
    /// As [`FileSystem::create`], and for its data as [`FileSystem::write`]. Nothing is left then.
    fn create_whole(&self, parent: NodeId, name: &[u8], node: &WholeNode<'_>) -> Answer<Attr> {
        whole_node::create(self, parent, name, node)
    }

    /// Makes several nodes in a directory; the answers are in their order, each as [`FileSystem::create_whole`]'s.
    fn create_many(&self, parent: NodeId, nodes: &[(&[u8], WholeNode<'_>)]) -> Vec<Answer<Attr>> {
        nodes.iter().map(|(name, node)| self.create_whole(parent, name, node)).collect()
    }

    /// [`FileSystem::known_at`] for several paths; the answers are in their order.
    fn known_many(&self, paths: &[&[u8]], follow: Follow, data_bytes_max: usize) -> Vec<Answer<KnownNode>> {
        paths.iter().map(|path| self.known_at(path, follow, data_bytes_max)).collect()
    }

    /// With how many nodes at once [`FileSystem::create_many`] and [`FileSystem::known_many`] take less time than as
    /// many calls: 1 where they do not.
    fn at_once(&self) -> usize {
        1
    }

    /// Makes a regular file that is open and has no name. [`FileSystem::link`] may give it one.
    ///
    /// # Errors
    /// As [`FileSystem::create`].
    fn create_unnamed(
        &self,
        _caller: &Caller,
        _parent: NodeId,
        _new: &NewNode<'_>,
        _flags: OpenFlags,
    ) -> Answer<(Entry, Handle)> {
        Err(Errno::EOPNOTSUPP.into())
    }

    /// Gives a node one more name.
    ///
    /// # Errors
    /// `EEXIST`, `EMLINK`, `EXDEV`, `EPERM` for a directory or an immutable node, `ENOSPC`.
    fn link(&self, _node: NodeId, _parent: NodeId, _name: &[u8]) -> Answer<Entry> {
        Err(Errno::EPERM.into())
    }

    /// Takes away the name of something that is not a directory.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`, `EPERM`, `EROFS`.
    fn unlink(&self, _parent: NodeId, _name: &[u8]) -> Answer<()> {
        Err(Errno::EPERM.into())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENOTEMPTY`, `EPERM`, `EROFS`, `EBUSY`.
    fn remove_dir(&self, _parent: NodeId, _name: &[u8]) -> Answer<()> {
        Err(Errno::EPERM.into())
    }

    /// Moves a name. `caller` owns the whiteout, where one is asked for.
    ///
    /// # Errors
    /// `ENOENT`, `EEXIST`, `ENOTEMPTY`, `EISDIR`, `ENOTDIR`, `EINVAL` for a directory that would
    /// become its own ancestor, `EXDEV`, `EPERM`, `ENOSPC`.
    fn rename(
        &self,
        _caller: &Caller,
        _from: (NodeId, &[u8]),
        _to: (NodeId, &[u8]),
        _flags: RenameFlags,
    ) -> Answer<()> {
        Err(Errno::EPERM.into())
    }

    /// Opens a file or directory. The node stays until as many [`FileSystem::release`] came.
    ///
    /// # Errors
    /// `EPERM` for writing to an immutable node, or to an append-only one otherwise than at its
    /// end; `EISDIR`, `EROFS`, `ESTALE`.
    fn open(&self, caller: &Caller, node: NodeId, flags: OpenFlags) -> Answer<Handle>;

    /// Closes a handle of [`FileSystem::open`]. Never fails.
    fn release(&self, node: NodeId, handle: Handle);

    /// Reads at a position. Less than the whole buffer is filled only at the end of the file.
    ///
    /// # Errors
    /// `EISDIR`; `EIO` where no good copy is left.
    fn read(&self, node: NodeId, handle: Handle, offset: u64, buf: &mut [u8]) -> Answer<usize>;

    /// Writes at a position, all or nothing. Bytes from a shared mapping ([`WriteFlags::FROM_MAPPING`]) do not change
    /// existing bytes of an append-only file.
    ///
    /// # Errors
    /// `EFBIG`, `ENOSPC`, `EPERM`, `EROFS`, `EIO`.
    fn write(&self, node: NodeId, handle: Handle, offset: u64, data: &[u8], flags: WriteFlags) -> Answer<Written>;

    /// Writes bytes that are compressed already, as they are. False, and nothing has changed, where the file system
    /// cannot: then the caller writes them decompressed.
    ///
    /// # Errors
    /// As [`FileSystem::write`].
    fn write_encoded(&self, node: NodeId, encoded: &EncodedData<'_>) -> Answer<bool> {
        let _ = (node, encoded);
        Ok(false)
    }

    /// Makes a file durable, or a directory with its names.
    ///
    /// # Errors
    /// `EIO`, `ENOSPC`. A failure that stopped all writing is reported once to each handle that was open at the time,
    /// also to handles whose own requests did not fail; after that, and for handles opened later, the answer is
    /// `EROFS`. Calls with handle 0 count as one handle of their node.
    fn sync_file(&self, node: NodeId, handle: Handle, what: SyncWhat) -> Answer<()>;

    /// Begins a [`FileSystem::sync_file`], so that a server with several files to sync can wait for all of them at
    /// once: [`FileSystem::end_sync`] of one may make the others durable too. `None` if there is nothing to wait for.
    ///
    /// # Errors
    /// As [`FileSystem::sync_file`].
    fn begin_sync(&self, node: NodeId, handle: Handle, what: SyncWhat) -> Answer<Option<SyncTicket>> {
        self.sync_file(node, handle, what).map(|()| None)
    }

    /// Ends a sync that was begun with the same node and handle.
    ///
    /// # Errors
    /// As [`FileSystem::sync_file`].
    fn end_sync(&self, _node: NodeId, _handle: Handle, _begun: SyncTicket) -> Answer<()> {
        Ok(())
    }

    /// Makes everything durable.
    ///
    /// # Errors
    /// As [`FileSystem::sync_file`].
    fn sync_fs(&self) -> Answer<()>;

    /// The last call: the server drops all its references and makes no request after this one. Nodes without names that
    /// only references kept are removed, and everything is made durable.
    ///
    /// # Errors
    /// As [`FileSystem::sync_file`].
    fn finish(&self) -> Answer<()> {
        self.sync_fs()
    }

    /// Allocates space for a range, or gives it back.
    ///
    /// # Errors
    /// `EOPNOTSUPP`, `EFBIG`, `ENOSPC`, `EPERM`, `EROFS`, `EINVAL`.
    fn allocate(&self, _node: NodeId, _flags: AllocateFlags, _offset: u64, _len: u64) -> Answer<()> {
        Err(Errno::EOPNOTSUPP.into())
    }

    /// The next data or hole at or after an offset.
    ///
    /// # Errors
    /// `ENXIO` when there is none.
    fn seek(&self, _node: NodeId, _what: Seek, _offset: u64) -> Answer<u64> {
        Err(Errno::ENOSYS.into())
    }

    /// Copies within the volume, by sharing where that is possible. Returns the bytes copied,
    /// which may be fewer than asked for.
    ///
    /// # Errors
    /// `EINVAL` for ranges that overlap in one file; as [`FileSystem::write`].
    fn copy_range(&self, _range: &CopyRange) -> Answer<u64> {
        Err(Errno::EOPNOTSUPP.into())
    }

    /// Makes a range of one file share the space of a range of another, so that both hold the same bytes: all of the
    /// range or an error. A length of 0 means all up to the end of the source.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for a format that cannot; `EINVAL` for offsets that are not aligned, a length that is neither
    /// aligned nor up to the end of the source, and ranges that overlap or leave the source; as [`FileSystem::write`].
    fn reflink(&self, range: &CopyRange) -> Answer<()> {
        let _ = range;
        Err(Errno::EOPNOTSUPP.into())
    }

    /// As [`FileSystem::reflink`], where both ranges hold the same bytes; false, and nothing has changed, where they do
    /// not. The times of the target stay as they are.
    ///
    /// # Errors
    /// As [`FileSystem::reflink`]; `EINVAL` for more than [`DEDUPE_BYTES_MAX`], and where the range is not within
    /// the target.
    fn dedupe(&self, range: &CopyRange) -> Answer<bool> {
        let _ = range;
        Err(Errno::EOPNOTSUPP.into())
    }

    /// Operations on the volume as a whole, where the format has some.
    fn maintenance(&self) -> Option<&dyn Maintenance> {
        None
    }

    /// As [`FileSystem::maintenance`], for a caller that needs it.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for a format without.
    fn maintained(&self) -> Answer<&dyn Maintenance> {
        self.maintenance().ok_or_else(|| Errno::EOPNOTSUPP.into())
    }

    /// Control operations of the format's own, where it has some.
    fn controls(&self) -> Option<&dyn Controls> {
        None
    }

    /// The subvolumes of the volume, where the format has them.
    fn subvolumes(&self) -> Option<&dyn Subvolumes> {
        None
    }

    /// Lists the names of a directory behind the position `from` (0 for all), `.` and `..` too.
    /// With `with_nodes` every name comes with its node, and counts as a reference if taken.
    ///
    /// # Errors
    /// `ENOTDIR`, `EIO`.
    fn read_dir(&self, node: NodeId, from: u64, with_nodes: bool, sink: &mut dyn DirSink) -> Answer<()>;

    /// Value of an extended attribute.
    ///
    /// # Errors
    /// `ENODATA`, `EOPNOTSUPP` for a name that the file system does not keep.
    fn get_xattr(&self, _node: NodeId, _name: &[u8]) -> Answer<Vec<u8>> {
        Err(Errno::EOPNOTSUPP.into())
    }

    /// Names of all extended attributes.
    ///
    /// # Errors
    /// `EIO`.
    fn list_xattrs(&self, _node: NodeId) -> Answer<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }

    /// Sets an extended attribute. An ACL changes the permission bits alike; with
    /// `clear_set_group` it takes the set-group bit away.
    ///
    /// # Errors
    /// `EEXIST`, `ENODATA`, `EOPNOTSUPP`, `ERANGE`, `ENOSPC`, `EPERM`, `EROFS`, `EINVAL`.
    fn set_xattr(
        &self,
        _node: NodeId,
        _name: &[u8],
        _value: &[u8],
        _mode: XattrMode,
        _clear_set_group: bool,
    ) -> Answer<()> {
        Err(Errno::EOPNOTSUPP.into())
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// `ENODATA`, `EOPNOTSUPP`, `EPERM`, `EROFS`.
    fn remove_xattr(&self, _node: NodeId, _name: &[u8]) -> Answer<()> {
        Err(Errno::EOPNOTSUPP.into())
    }

    /// Flags of a node (`lsattr`).
    ///
    /// # Errors
    /// `EOPNOTSUPP` for a kind of node without flags.
    fn flags(&self, _node: NodeId) -> Answer<NodeFlags> {
        Err(Errno::EOPNOTSUPP.into())
    }

    /// Sets the flags of a node (`chattr`). The permission is checked here: owners may, and root for immutable and
    /// append-only.
    ///
    /// # Errors
    /// `EPERM`, `EOPNOTSUPP` for a flag that does not exist here, `EROFS`.
    fn set_flags(&self, _caller: &Caller, _node: NodeId, _flags: NodeFlags) -> Answer<()> {
        Err(Errno::EOPNOTSUPP.into())
    }

    /// The flags of a node by the names that the format has for them; `none` where there are none.
    ///
    /// # Errors
    /// As [`FileSystem::attr`].
    fn flag_names(&self, node: NodeId) -> Answer<String> {
        let flags = self.attr(node)?.flags;
        let names: Vec<&str> = flags.iter_names().map(|(name, _)| name).collect();
        Ok(if names.is_empty() { "none".to_owned() } else { names.join(", ") })
    }

    /// The extents of a file from `offset` on, in file order and at most about a million, as they are stored: dirty
    /// data is written first. Holes are not listed.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for a format that does not tell; `EISDIR`, `EINVAL` for a node that is no file; `EIO`, `ENOSPC`.
    fn extents(&self, node: NodeId, offset: u64) -> Answer<Vec<Extent>> {
        let _ = (node, offset);
        Err(Errno::EOPNOTSUPP.into())
    }

    /// The numbers that `statfs` reports.
    ///
    /// # Errors
    /// `EIO`.
    fn status(&self) -> Answer<VolumeStatus>;

    /// True when nothing can be changed.
    fn is_read_only(&self) -> bool;

    /// True if one name may be spelled in several ways: a cached result for one spelling is invalid once the file is
    /// created or removed under another.
    fn ignores_case(&self) -> bool {
        false
    }

    /// Does the background work that is due (the periodic commit, for example), and returns how long to
    /// wait before calling again. The server calls it from a thread of its own.
    fn step(&self) -> Duration;
}
