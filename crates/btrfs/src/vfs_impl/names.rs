//! Carries out requests on names: look-up, creation, removal, rename. Called by `file_system`.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use btrfs_disk::TreeId;
use portable::OsStrExt as _;
use vfs::NodeId;
use vfs::acl::{self, Acl};
use vfs::file_system::{Caller, Entry, Follow, NewNode, NodeAt, NodeKind, RenameFlags};

use super::nodes::Place;
use super::{BtrfsFs, stale};
use crate::dir::{self, Found, NewInode, Unlink};
use crate::error::{CallerError, Error, Result};
use crate::inode::{
    Absent, COMPRESSION_NAME, EMPTY_SUBVOL_INO, FileType, Inode, InodeFlags, MODE_PERMISSION_MASK, ROOT_DIR_INO,
};
use crate::subvol;

/// Permission bits of a symlink, which are never checked.
const SYMLINK_PERMISSIONS: u32 = 0o777;

/// Nesting of subvolumes that is searched: of a path of 4,096 bytes, every other one.
const SUBVOLUME_DEPTH_MAX: u32 = 2048;

/// The attributes that a new node inherits.
#[derive(Debug, Default)]
pub(super) struct Inherited {
    pub(super) permissions: u32,
    pub(super) xattrs: Vec<(&'static [u8], Vec<u8>)>,
}

impl BtrfsFs {
    pub(super) fn lookup_entry(&self, parent: NodeId, name: &[u8]) -> Result<Entry> {
        match name {
            b"." => return self.lookup_again(parent),
            b".." => return self.lookup_above(parent),
            _ => {}
        }
        let (tree, dir) = self.locate(parent)?;
        let found = self
            .namespace()
            .find_then((tree, dir), name, |found, inode| self.entry(Place::of(found, tree, dir, name), inode));
        found.map_err(stale)?.ok_or_else(|| CallerError::NotFound.into())
    }

    /// A node by its number alone, which may come from an earlier server, or be made up. An inode without names is
    /// refused: a node that is in use is not looked up this way.
    fn lookup_again(&self, node: NodeId) -> Result<Entry> {
        let place = self.named_place(node)?;
        let (tree, ino) = place.inode();
        let inode = self.core().inode(tree, ino).map_err(stale)?;
        if inode.is_nameless() || inode.root.is_deleted() {
            return Err(CallerError::Stale.into());
        }
        self.entry(place, &inode)
    }

    /// The directory above a directory, whose number may be made up, too.
    fn lookup_above(&self, node: NodeId) -> Result<Entry> {
        let place = self.above(self.named_place(node)?)?;
        let (tree, ino) = place.inode();
        let inode = self.core().inode(tree, ino).map_err(stale)?;
        if !inode.kind().is_dir() {
            return Err(CallerError::NotADirectory.into());
        }
        self.entry(place, &inode)
    }

    /// The place of a node that can be reached from the root of the mount, as far as its number shows.
    fn named_place(&self, node: NodeId) -> Result<Place> {
        let place = self.nodes.place(node).ok_or(CallerError::Stale)?;
        if self.nodes.is_in_table(node) {
            return Ok(place);
        }
        let (tree, _) = self.nodes.lasting(node).ok_or(CallerError::Stale)?;
        if !self.is_beneath(tree)? {
            return Err(CallerError::Stale.into());
        }
        Ok(place)
    }

    /// True for the mounted subvolume, and those in it at any depth: a number must not lead where no path does.
    fn is_beneath(&self, tree: TreeId) -> Result<bool> {
        let mut at = tree;
        for _ in 0..SUBVOLUME_DEPTH_MAX {
            if at == self.nodes.top() {
                return Ok(true);
            }
            match self.namespace().root_links.of(at)? {
                Some(link) => at = link.parent,
                None => return Ok(false),
            }
        }
        // Deeper than a path can be, or an image with a cycle of subvolumes.
        Ok(false)
    }

    /// The directory that holds a directory; the root holds itself.
    pub(super) fn above(&self, place: Place) -> Result<Place> {
        let (tree, ino) = match place {
            Place::StandIn(tree, dir, _) => return Ok(Place::Inode(tree, dir)),
            Place::Inode(tree, ino) => (tree, ino),
        };
        if (tree, ino) == (self.nodes.top(), ROOT_DIR_INO) {
            return Ok(place);
        }
        let dir = self.core().inode(tree, ino).map_err(stale)?;
        if !dir.kind().is_dir() {
            return Err(CallerError::NotADirectory.into());
        }
        if dir.is_nameless() {
            return Err(CallerError::NotFound.into());
        }
        if let Some(above) = self.namespace().back_refs.parent_dir(&dir)? {
            return Ok(Place::Inode(tree, above));
        }
        let link = self.namespace().root_links.of(tree)?;
        Ok(link.map_or(place, |link| Place::Inode(link.parent, link.dir)))
    }

    pub(super) fn create_entry(
        &self,
        caller: &Caller,
        parent: NodeId,
        name: &[u8],
        new: &NewNode<'_>,
    ) -> Result<Entry> {
        let dir = self.inode(parent)?;
        let kind = new.kind;
        let inherited = self.inherited(&dir, new)?;
        let xattrs: Vec<(&[u8], &[u8])> =
            inherited.xattrs.iter().map(|(name, value)| (*name, value.as_slice())).collect();
        let new = NewInode {
            kind,
            permissions: inherited.permissions,
            uid: caller.uid,
            gid: caller.gid,
            inherit_group: true,
            rdev: u64::from(new.rdev),
            target: new.target,
            xattrs: &xattrs,
            ..NewInode::default()
        };
        let made = self
            .namespace()
            .create_then(&dir, name, &new, |inode| self.entry(Place::Inode(inode.tree_id(), inode.ino()), inode))?;
        self.handed_out(made, &dir)
    }

    /// The entry at a path; `None` for the stand-in of a nested subvolume, whose number depends on its place.
    pub(super) fn resolve_path(&self, path: &[u8], follow: Follow) -> Result<Option<Entry>> {
        self.volume.walker().find_then(Path::new(OsStr::from_bytes(path)), follow, |inode| match inode.ino() {
            EMPTY_SUBVOL_INO => Ok(None),
            ino => self.entry(Place::Inode(inode.tree_id(), ino), inode).map(Some),
        })
    }

    /// The number of the node at a path; `None` for a node whose number needs a reference.
    pub(super) fn node_of_path(&self, path: &[u8], follow: Follow) -> Result<Option<NodeAt>> {
        let found = self.volume.walker().find(Path::new(OsStr::from_bytes(path)), follow)?;
        let number = self.nodes.number(found.tree, found.ino);
        Ok(number.map(|number| NodeAt { node: NodeId(number), kind: found.kind, is_referenced: false }))
    }

    /// The inode at a path, and the number that `stat` shows; `None` for a node whose number needs a reference. The
    /// inode is returned because attributes are large: they are copied once, at the end.
    pub(super) fn inode_at(&self, path: &[u8], follow: Follow) -> Result<(Arc<Inode>, Option<u64>)> {
        let path = Path::new(OsStr::from_bytes(path));
        let inode = self.volume.walker().find_then(path, follow, |inode| Ok(Arc::clone(inode)))?;
        let number = self.nodes.number(inode.tree_id(), inode.ino());
        Ok((inode, number.map(|number| self.nodes.shown(NodeId(number)))))
    }

    /// Returns the entry of a node after a name for it was added to `dir`.
    fn handed_out(&self, entry: Entry, dir: &Arc<Inode>) -> Result<Entry> {
        let synced = self.sync_marked(dir);
        if synced.is_err() {
            self.forget_node(entry.node, 1);
        }
        synced.map(|()| entry)
    }

    /// Creates a file without a name, which counts as open.
    pub(super) fn create_unnamed_entry(&self, caller: &Caller, parent: NodeId, new: &NewNode<'_>) -> Result<Entry> {
        if new.kind != NodeKind::File {
            return Err(CallerError::InvalidArgument.into());
        }
        let dir = self.inode(parent)?;
        let inherited = self.inherited(&dir, new)?;
        let xattrs: Vec<(&[u8], &[u8])> =
            inherited.xattrs.iter().map(|(name, value)| (*name, value.as_slice())).collect();
        let new = NewInode {
            permissions: inherited.permissions,
            uid: caller.uid,
            gid: caller.gid,
            inherit_group: true,
            xattrs: &xattrs,
            ..NewInode::default()
        };
        let inode = self.namespace().create_unnamed(&dir, &new)?;
        self.entry(Place::Inode(inode.tree_id(), inode.ino()), &inode)
    }

    /// The attributes of a new node that follow from the directory's default list, its compression property or the
    /// caller's mask.
    pub(super) fn inherited(&self, dir: &Inode, new: &NewNode<'_>) -> Result<Inherited> {
        if new.kind == NodeKind::Symlink {
            return Ok(Inherited { permissions: SYMLINK_PERMISSIONS, xattrs: Vec::new() });
        }
        let mut inherited = Inherited::default();
        let requested = new.permissions & MODE_PERMISSION_MASK;
        match self.default_list(dir)? {
            None => inherited.permissions = acl::without_default(requested, new.umask),
            Some(list) => {
                let access = list.inherit(requested);
                inherited.permissions = access.permissions;
                if let Some(access) = access.access {
                    inherited.xattrs.push((acl::ACCESS_NAME, access.to_bytes()));
                }
                if new.kind == NodeKind::Directory {
                    inherited.xattrs.push((acl::DEFAULT_NAME, list.to_bytes()));
                }
            }
        }
        let may_compress = InodeFlags::COMPRESS | InodeFlags::NOCOMPRESS;
        let is_compressed = dir.state().flags.intersects(may_compress);
        if is_compressed && matches!(new.kind, NodeKind::File | NodeKind::Directory) {
            let property = self.namespace().get_xattr(dir, COMPRESSION_NAME)?;
            inherited.xattrs.extend(property.map(|value| (COMPRESSION_NAME, value)));
        }
        Ok(inherited)
    }

    /// The default list of a directory, for new nodes.
    fn default_list(&self, dir: &Inode) -> Result<Option<Acl>> {
        if dir.absent.contains(Absent::DefaultAcl) || !dir.kind().is_dir() {
            return Ok(None);
        }
        let _names = dir.read_names();
        let value = self.namespace().get_xattr(dir, acl::DEFAULT_NAME)?;
        if value.is_none() {
            dir.absent.insert(Absent::DefaultAcl);
        }
        Ok(value.and_then(|value| Acl::parse(&value).ok().flatten()))
    }

    pub(super) fn link_entry(&self, node: NodeId, parent: NodeId, name: &[u8]) -> Result<Entry> {
        let inode = self.live_inode(node)?;
        let dir = self.inode(parent)?;
        // A taken name is reported before any fault of the node.
        if inode.kind().is_dir() && self.namespace().lookup(&dir, name)?.is_some() {
            return Err(CallerError::Exists.into());
        }
        self.namespace().link(&inode, &dir, name)?;
        let entry = self.entry(Place::Inode(inode.tree_id(), inode.ino()), &inode)?;
        self.handed_out(entry, &dir)
    }

    pub(super) fn unlink_name(&self, parent: NodeId, name: &[u8]) -> Result<()> {
        let dir = self.inode(parent)?;
        self.namespace().unlink(&dir, name, Unlink::File)?;
        self.sync_marked(&dir)
    }

    /// Removes an empty directory, or a subvolume with an empty root directory.
    pub(super) fn remove_dir_name(&self, parent: NodeId, name: &[u8]) -> Result<()> {
        let dir = self.inode(parent)?;
        match self.namespace().unlink(&dir, name, Unlink::Directory) {
            Err(error) if error.caller_error() == Some(CallerError::Busy) => {
                self.remove_subvolume(&dir, name, Removable::Empty)
            }
            result => result.and_then(|()| self.sync_marked(&dir)),
        }
    }

    pub(super) fn remove_subvolume(&self, dir: &Arc<Inode>, name: &[u8], what: Removable) -> Result<()> {
        let found = self.find(dir, name)?;
        if !found.is_subvolume_root() || found.tree == dir.tree_id() {
            return Err(CallerError::InvalidArgument.into());
        }
        if found.tree == self.nodes.top() {
            return Err(CallerError::Busy.into());
        }
        if what == Removable::Empty && self.namespace().inode(found)?.state().size > 0 {
            return Err(CallerError::NotEmpty.into());
        }
        let deleted = subvol::delete(self.namespace(), dir, name);
        deleted.map_err(|error| match error.caller_error() {
            // The kernel answers that the default subvolume may not be deleted.
            Some(CallerError::Busy) => CallerError::NotPermitted.into(),
            _ => error,
        })?;
        self.sync_marked(dir)
    }

    /// The inode that a name in `dir` leads to.
    pub(super) fn find(&self, dir: &Inode, name: &[u8]) -> Result<Found> {
        let found = self.namespace().lookup(dir, name)?;
        found.ok_or_else(|| CallerError::NotFound.into())
    }

    pub(super) fn rename_name(
        &self,
        caller: &Caller,
        from: (NodeId, &[u8]),
        to: (NodeId, &[u8]),
        flags: RenameFlags,
    ) -> Result<()> {
        check_rename_flags(flags)?;
        let (from_dir, to_dir) = (self.inode(from.0)?, self.inode(to.0)?);
        if to_dir.ino() == EMPTY_SUBVOL_INO {
            return Err(CallerError::NotPermitted.into());
        }
        let source = dir::Place { dir: &from_dir, name: from.1 };
        let target = dir::Place { dir: &to_dir, name: to.1 };
        if !flags.contains(RenameFlags::EXCHANGE) {
            self.write_out_replacement(source, target);
        }
        let whiteout = NewInode::whiteout(caller.uid, caller.gid);
        let renamed = self.namespace().rename(source, target, flags, &whiteout);
        renamed.map_err(|error: Error| match error.caller_error() {
            // The kernel does not replace a subvolume, and answers as if it were never empty.
            Some(CallerError::Busy) => CallerError::NotEmpty.into(),
            _ => error,
        })?;
        self.sync_marked(&to_dir)?;
        self.sync_marked(&from_dir)
    }

    /// Writes the data of a file that replaces another to disk before the rename: a commit with the new name has the
    /// new contents.
    fn write_out_replacement(&self, source: dir::Place<'_>, target: dir::Place<'_>) {
        let file_at = |place: dir::Place<'_>| {
            let found = self.namespace().lookup(place.dir, place.name).ok()??;
            self.namespace().inode(found).ok().filter(|inode| inode.kind().is_file())
        };
        // Most renames do not replace a file.
        if let Some(replaced) = file_at(target)
            && replaced.state().size > 0
            && let Some(new) = file_at(source)
        {
            self.write_out(&new);
        }
    }

    pub(super) fn link_target(&self, node: NodeId) -> Result<Vec<u8>> {
        let inode = self.inode(node)?;
        let target = self.namespace().read_link(&inode)?;
        self.touch(&inode);
        Ok(target)
    }
}

/// Subvolumes that a request may remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Removable {
    /// Only an empty subvolume.
    Empty,
    /// Any subvolume.
    Any,
}

/// Refuses flags that are unknown, or that exclude each other.
fn check_rename_flags(flags: RenameFlags) -> Result<()> {
    let is_alone = flags == RenameFlags::EXCHANGE || !flags.contains(RenameFlags::EXCHANGE);
    match RenameFlags::all().contains(flags) && is_alone {
        true => Ok(()),
        false => Err(CallerError::InvalidArgument.into()),
    }
}

/// True for kinds that `open` accepts.
pub(super) fn is_openable(kind: FileType) -> bool {
    matches!(kind, FileType::File | FileType::Directory)
}
