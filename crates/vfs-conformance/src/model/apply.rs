//! Applies each operation to the model. Called by `property/run`, `property/threads` and `lineage` of `testkit`.

use super::{Content, Directory, Kind, Model, Node, NodeId, Operation, PAGE_BYTES, Place, Role};
use crate::number::to_usize;
use crash_explorer::Random;
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use vfs::file_system::{AllocateFlags, NodeKind, RenameFlags, XattrMode};
use vfs::{Errno, SnapshotMode};

type Outcome = Result<(), Errno>;

impl Operation {
    /// The bytes that a write or an attribute gets.
    #[must_use]
    pub fn data(&self) -> Vec<u8> {
        match self {
            Self::Write { len, seed, .. } => Random::new(*seed).content(to_usize(*len)),
            Self::SetXattr { len, seed, .. } => Random::new(*seed).content(*len),
            _ => Vec::new(),
        }
    }
}

impl Model {
    /// Does the operation, or returns the error and leaves everything as it was.
    ///
    /// # Errors
    /// The error that a volume has to return too.
    pub fn apply(&mut self, operation: &Operation) -> Outcome {
        use Operation as O;
        match operation {
            O::Create { path } => self.create(path, Kind::File(Content::default())),
            O::CreateDir { path } => self.create(path, Kind::Directory(Directory::default())),
            O::Symlink { target, path } => self.create(path, Kind::Symlink(target.as_os_str().as_bytes().to_vec())),
            O::Node { path, kind, rdev } => match *kind {
                NodeKind::File => self.create(path, Kind::File(Content::default())),
                kind @ (NodeKind::CharDevice | NodeKind::BlockDevice) => self.create(path, Kind::Special(kind, *rdev)),
                kind => self.create(path, Kind::Special(kind, 0)),
            },
            O::Link { original, path } => self.link(original, path),
            O::Rename { from, to, flags } => self.rename(from, to, *flags),
            O::Remove { path } => self.remove(path),
            O::RemoveDir { path } => self.remove_dir(path),
            O::RemoveAll { path } => self.remove_all(path),
            O::Write { path, offset, .. } => {
                let data = operation.data();
                self.change_file(path, |content| {
                    content.write(*offset, &data);
                    true
                })
            }
            O::SetLen { path, len } => self.change_file(path, |content| {
                content.set_len(*len);
                true
            }),
            O::Allocate { path, mode, offset, len } => self.allocate(path, *mode, *offset, *len),
            O::Reflink { source, source_offset, path, offset, len } => {
                self.reflink(source, *source_offset, path, *offset, *len)
            }
            // The bytes stay, and so do the times.
            O::Defragment { path, .. } => match self.change_file(path, |_| false) {
                Err(Errno::EOPNOTSUPP) => Err(Errno::EINVAL),
                outcome => outcome,
            },
            O::SetMode { path, mode } => self.change_node(path, |node| node.mode = Some(*mode)),
            O::SetOwner { path, uid, gid } => self.change_node(path, |node| node.owner = Some((*uid, *gid))),
            O::SetTime { path, mtime } => self.change_node(path, |node| node.mtime = Some(*mtime)),
            O::SetXattr { path, name, mode, .. } => self.set_xattr(path, name, operation.data(), *mode),
            O::RemoveXattr { path, name } => self.remove_xattr(path, name),
            O::CreateSubvolume { path } => {
                let directory = Directory { role: Role::Subvolume, ..Directory::default() };
                self.create(path, Kind::Directory(directory))
            }
            O::Snapshot { source, path, mode } => self.snapshot(source, path, *mode),
            O::DeleteSubvolume { path } => self.delete_subvolume(path),
        }
    }

    /// Replaces the content of a file by the volume's: after a write that ended early for lack of space.
    pub fn replace_content(&mut self, path: &Path, content: Content) -> Outcome {
        self.change_file(path, |old| {
            *old = content;
            true
        })
    }

    /// Closes the subvolume at a path to changes, or opens it.
    ///
    /// # Errors
    /// `EINVAL` where something else is there.
    pub fn set_frozen(&mut self, path: &Path, frozen: bool) -> Outcome {
        let (_, id) = self.existing(path)?;
        if !self.is_subvolume(id) {
            return Err(Errno::EINVAL);
        }
        self.directory_mut(id)?.role = if frozen { Role::Frozen } else { Role::Subvolume };
        Ok(())
    }

    fn directory_mut(&mut self, id: NodeId) -> Result<&mut Directory, Errno> {
        match self.nodes.get_mut(&id).map(|node| &mut node.kind) {
            Some(Kind::Directory(directory)) => Ok(directory),
            _ => Err(Errno::ENOTDIR),
        }
    }

    fn node_mut(&mut self, id: NodeId) -> Result<&mut Node, Errno> {
        self.nodes.get_mut(&id).ok_or(Errno::ENOENT)
    }

    fn insert(&mut self, node: Node) -> NodeId {
        let id = self.next;
        self.next = id.saturating_add(1);
        self.nodes.insert(id, node);
        id
    }

    /// The subvolume of the place can be changed.
    fn writable(&self, place: &Place) -> Outcome {
        if self.role(place.subvolume) == Role::Frozen { Err(Errno::EROFS) } else { Ok(()) }
    }

    fn existing(&self, path: &Path) -> Result<(Place, NodeId), Errno> {
        let place = self.place(path)?;
        let id = place.node.ok_or(Errno::ENOENT)?;
        Ok((place, id))
    }

    /// A node whose own attributes or content are to change: a subvolume's root belongs to the subvolume.
    fn changeable(&self, path: &Path) -> Result<NodeId, Errno> {
        let (place, id) = self.existing(path)?;
        match self.role(id) {
            Role::Frozen => return Err(Errno::EROFS),
            Role::Subvolume => {}
            _ => self.writable(&place)?,
        }
        Ok(id)
    }

    fn touch(&mut self, directory: NodeId) {
        if let Some(node) = self.nodes.get_mut(&directory) {
            node.mtime = None;
        }
    }

    fn create(&mut self, path: &Path, kind: Kind) -> Outcome {
        let place = self.place(path)?;
        if place.node.is_some() {
            return Err(Errno::EEXIST);
        }
        self.writable(&place)?;
        let id = self.insert(Node::new(kind));
        self.directory_mut(place.parent)?.entries.insert(place.name, id);
        self.touch(place.parent);
        Ok(())
    }

    fn link(&mut self, original: &Path, path: &Path) -> Outcome {
        let (source, id) = self.existing(original)?;
        let place = self.place(path)?;
        if place.node.is_some() {
            return Err(Errno::EEXIST);
        }
        if self.node(id).and_then(Node::directory).is_some() {
            return Err(Errno::EPERM);
        }
        self.writable(&place)?;
        if source.subvolume != place.subvolume {
            return Err(Errno::EXDEV);
        }
        let node = self.node_mut(id)?;
        node.links = node.links.saturating_add(1);
        self.directory_mut(place.parent)?.entries.insert(place.name, id);
        self.touch(place.parent);
        Ok(())
    }

    fn rename(&mut self, from: &Path, to: &Path, flags: RenameFlags) -> Outcome {
        let (source, id) = self.existing(from)?;
        let target = self.place(to)?;
        if target.trail.contains(&id) {
            return Err(Errno::EINVAL);
        }
        match (flags, target.node) {
            (RenameFlags::EXCHANGE, None) => return Err(Errno::ENOENT),
            (flags, Some(_)) if flags.contains(RenameFlags::NO_REPLACE) => return Err(Errno::EEXIST),
            _ => {}
        }
        self.writable(&source)?;
        self.writable(&target)?;
        // Of subvolumes it is the name alone that moves.
        let moves_alone = match target.node {
            Some(other) if flags == RenameFlags::EXCHANGE => self.is_subvolume(id) && self.is_subvolume(other),
            _ => self.is_subvolume(id),
        };
        if source.subvolume != target.subvolume && !moves_alone {
            return Err(Errno::EXDEV);
        }
        if target.node == Some(id) {
            return Ok(());
        }
        if flags == RenameFlags::EXCHANGE {
            return self.exchange(&source, &target);
        }
        if let Some(old) = target.node {
            self.check_replaceable(id, old, &source)?;
            self.drop_link(old);
        }
        self.directory_mut(source.parent)?.entries.remove(&source.name);
        self.directory_mut(target.parent)?.entries.insert(target.name, id);
        if flags.contains(RenameFlags::WHITEOUT) {
            let mut whiteout = Node::new(Kind::Special(NodeKind::CharDevice, 0));
            whiteout.mode = Some(0);
            let whiteout = self.insert(whiteout);
            self.directory_mut(source.parent)?.entries.insert(source.name, whiteout);
        }
        self.touch(source.parent);
        self.touch(target.parent);
        Ok(())
    }

    fn exchange(&mut self, source: &Place, target: &Place) -> Outcome {
        let (Some(first), Some(second)) = (source.node, target.node) else {
            return Err(Errno::ENOENT);
        };
        if source.trail.contains(&second) {
            return Err(Errno::EINVAL);
        }
        self.directory_mut(source.parent)?.entries.insert(source.name.clone(), second);
        self.directory_mut(target.parent)?.entries.insert(target.name.clone(), first);
        self.touch(source.parent);
        self.touch(target.parent);
        Ok(())
    }

    fn check_replaceable(&self, new: NodeId, old: NodeId, source: &Place) -> Outcome {
        let new = self.node(new).and_then(Node::directory);
        match (new, self.node(old).and_then(Node::directory)) {
            (None, None) => Ok(()),
            (Some(_), None) => Err(Errno::ENOTDIR),
            (_, Some(_)) if source.trail.contains(&old) => Err(Errno::ENOTEMPTY),
            (None, Some(_)) => Err(Errno::EISDIR),
            (Some(_), Some(directory)) if directory.entries.is_empty() => Ok(()),
            (Some(_), Some(_)) => Err(Errno::ENOTEMPTY),
        }
    }

    fn drop_link(&mut self, id: NodeId) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.links = node.links.saturating_sub(1);
            if node.links == 0 {
                self.nodes.remove(&id);
            }
        }
    }

    fn unlink(&mut self, place: &Place, id: NodeId) -> Outcome {
        self.directory_mut(place.parent)?.entries.remove(&place.name);
        self.touch(place.parent);
        self.drop_link(id);
        Ok(())
    }

    fn remove(&mut self, path: &Path) -> Outcome {
        let (place, id) = self.existing(path)?;
        self.writable(&place)?;
        if self.node(id).and_then(Node::directory).is_some() {
            return Err(Errno::EISDIR);
        }
        self.unlink(&place, id)
    }

    fn remove_dir(&mut self, path: &Path) -> Outcome {
        let (place, id) = self.existing(path)?;
        self.writable(&place)?;
        let directory = self.node(id).and_then(Node::directory).ok_or(Errno::ENOTDIR)?;
        if !directory.entries.is_empty() {
            return Err(Errno::ENOTEMPTY);
        }
        self.unlink(&place, id)
    }

    fn remove_all(&mut self, path: &Path) -> Outcome {
        let (place, id) = self.existing(path)?;
        self.writable(&place)?;
        self.unlink(&place, id)?;
        self.sweep();
        Ok(())
    }

    /// Drops nodes without names, and recounts the names of the rest.
    fn sweep(&mut self) {
        let mut names: BTreeMap<NodeId, u32> = BTreeMap::new();
        for (_, id) in self.walk() {
            let count = names.entry(id).or_default();
            *count = count.saturating_add(1);
        }
        self.nodes.retain(|id, node| {
            node.links = names.get(id).copied().unwrap_or(0);
            node.links > 0
        });
    }

    /// Runs `change` on a file's content; it says whether it changed anything.
    fn change_file(&mut self, path: &Path, change: impl FnOnce(&mut Content) -> bool) -> Outcome {
        let id = self.changeable(path)?;
        let node = self.node_mut(id)?;
        match &mut node.kind {
            Kind::File(content) => {
                if change(content) {
                    node.mtime = None;
                }
                Ok(())
            }
            Kind::Directory(_) => Err(Errno::EISDIR),
            Kind::Symlink(_) | Kind::Special(..) => Err(Errno::EOPNOTSUPP),
        }
    }

    fn change_node(&mut self, path: &Path, change: impl FnOnce(&mut Node)) -> Outcome {
        let id = self.changeable(path)?;
        change(self.node_mut(id)?);
        Ok(())
    }

    fn allocate(&mut self, path: &Path, mode: AllocateFlags, offset: u64, len: u64) -> Outcome {
        self.change_file(path, |content| {
            let end = offset.saturating_add(len);
            if mode.intersects(AllocateFlags::PUNCH_HOLE | AllocateFlags::ZERO_RANGE) {
                content.zero(offset, len);
            }
            if !mode.contains(AllocateFlags::KEEP_SIZE) {
                content.set_len(content.len().max(end));
            }
            true
        })
    }

    fn reflink(&mut self, source: &Path, source_offset: u64, path: &Path, offset: u64, len: u64) -> Outcome {
        let (_, from) = self.existing(source)?;
        let content = match &self.nodes.get(&from).ok_or(Errno::ENOENT)?.kind {
            Kind::File(content) => content.clone(),
            Kind::Directory(_) => return Err(Errno::EISDIR),
            _ => return Err(Errno::EOPNOTSUPP),
        };
        let to = self.changeable(path)?;
        let target_len = self.nodes.get(&to).and_then(Node::content).map_or(0, Content::len);
        let (source_end, end) = (source_offset.saturating_add(len), offset.saturating_add(len));
        let is_aligned = |position: u64| position.is_multiple_of(PAGE_BYTES);
        let at_ends = source_end == content.len() && end >= target_len;
        let overlaps = from == to && source_offset < end && offset < source_end;
        if !is_aligned(source_offset) || !is_aligned(offset) || !(is_aligned(len) || at_ends) || overlaps {
            return Err(Errno::EINVAL);
        }
        if source_end > content.len() {
            return Err(Errno::EINVAL);
        }
        self.change_file(path, |target| {
            target.clone_range(&content, source_offset, offset, len);
            true
        })
    }

    fn set_xattr(&mut self, path: &Path, name: &str, value: Vec<u8>, mode: XattrMode) -> Outcome {
        let id = self.changeable(path)?;
        let xattrs = &mut self.node_mut(id)?.xattrs;
        match (mode, xattrs.contains_key(name.as_bytes())) {
            (XattrMode::Create, true) => return Err(Errno::EEXIST),
            (XattrMode::Replace, false) => return Err(Errno::ENODATA),
            _ => {}
        }
        xattrs.insert(name.as_bytes().to_vec(), value);
        Ok(())
    }

    fn remove_xattr(&mut self, path: &Path, name: &str) -> Outcome {
        let id = self.changeable(path)?;
        let removed = self.node_mut(id)?.xattrs.remove(name.as_bytes());
        removed.map(|_| ()).ok_or(Errno::ENODATA)
    }

    fn snapshot(&mut self, source: &Path, path: &Path, mode: SnapshotMode) -> Outcome {
        let (_, from) = self.existing(source)?;
        if !matches!(self.role(from), Role::Subvolume | Role::Frozen) {
            return Err(Errno::EINVAL);
        }
        let place = self.place(path)?;
        if place.node.is_some() {
            return Err(Errno::EEXIST);
        }
        self.writable(&place)?;
        let role = match mode {
            SnapshotMode::ReadWrite => Role::Subvolume,
            SnapshotMode::ReadOnly => Role::Frozen,
        };
        let copy = self.copy_tree(from, role, &mut BTreeMap::new());
        self.directory_mut(place.parent)?.entries.insert(place.name, copy);
        self.touch(place.parent);
        Ok(())
    }

    /// Copies a directory; a file with several names stays one file.
    fn copy_tree(&mut self, id: NodeId, role: Role, copies: &mut BTreeMap<NodeId, NodeId>) -> NodeId {
        if let Some(copy) = copies.get(&id) {
            return *copy;
        }
        let mut node = self.nodes.get(&id).cloned().unwrap_or_else(|| Node::new(Kind::Symlink(Vec::new())));
        if let Kind::Directory(directory) = &mut node.kind {
            directory.role = role;
            let entries = std::mem::take(&mut directory.entries);
            for (name, child) in entries {
                let copy = match self.role(child) {
                    Role::Plain => self.copy_tree(child, Role::Plain, copies),
                    _ => {
                        let stub = Directory { role: Role::Stub, ..Directory::default() };
                        self.insert(Node::new(Kind::Directory(stub)))
                    }
                };
                directory.entries.insert(name, copy);
            }
        }
        let copy = self.insert(node);
        copies.insert(id, copy);
        copy
    }

    fn delete_subvolume(&mut self, path: &Path) -> Outcome {
        let (place, id) = self.existing(path)?;
        if !matches!(self.role(id), Role::Subvolume | Role::Frozen) {
            return Err(Errno::EINVAL);
        }
        self.writable(&place)?;
        if self.holds_real_subvolumes(id) {
            return Err(Errno::ENOTEMPTY);
        }
        self.unlink(&place, id)?;
        self.sweep();
        Ok(())
    }

    fn holds_real_subvolumes(&self, id: NodeId) -> bool {
        let Some(directory) = self.node(id).and_then(Node::directory) else {
            return false;
        };
        directory.entries.values().any(|child| match self.role(*child) {
            Role::Subvolume | Role::Frozen => true,
            Role::Stub => false,
            Role::Plain => self.holds_real_subvolumes(*child),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Operation as O;

    fn path(text: &str) -> std::path::PathBuf {
        text.into()
    }

    fn model(operations: &[Operation]) -> Model {
        let mut model = Model::new();
        for operation in operations {
            model.apply(operation).unwrap();
        }
        model
    }

    #[test]
    fn names_and_links_are_counted() {
        let mut model = model(&[
            O::CreateDir { path: path("d") },
            O::Create { path: path("d/f") },
            O::Link { original: path("d/f"), path: path("g") },
        ]);
        assert_eq!(model.lookup(&path("g")).unwrap().links, 2);
        assert_eq!(model.apply(&O::RemoveDir { path: path("d") }), Err(Errno::ENOTEMPTY));
        assert_eq!(model.apply(&O::Remove { path: path("d") }), Err(Errno::EISDIR));
        assert_eq!(model.apply(&O::RemoveAll { path: path("d") }), Ok(()));
        assert_eq!(model.lookup(&path("g")).unwrap().links, 1);
        assert_eq!(model.node_count(), 2);
    }

    #[test]
    fn snapshots_are_copies_with_stubs() {
        let mut model = model(&[
            O::CreateSubvolume { path: path("s") },
            O::CreateSubvolume { path: path("s/inner") },
            O::Create { path: path("s/f") },
            O::Link { original: path("s/f"), path: path("s/g") },
            O::Snapshot { source: path("s"), path: path("t"), mode: SnapshotMode::ReadOnly },
            O::Write { path: path("s/f"), offset: 0, len: 10, seed: 1 },
        ]);
        assert_eq!(model.role(model.place(&path("t/inner")).unwrap().node.unwrap()), Role::Stub);
        assert_eq!(model.lookup(&path("t/f")).unwrap().links, 2);
        assert_eq!(model.lookup(&path("t/f")).unwrap().content().unwrap().len(), 0);
        assert_eq!(model.apply(&O::Create { path: path("t/x") }), Err(Errno::EROFS));
        assert_eq!(model.apply(&O::DeleteSubvolume { path: path("s") }), Err(Errno::ENOTEMPTY));
        assert_eq!(model.apply(&O::DeleteSubvolume { path: path("t") }), Ok(()));
    }

    #[test]
    fn renames_follow_posix() {
        let mut model = model(&[
            O::CreateDir { path: path("d") },
            O::CreateDir { path: path("d/e") },
            O::Create { path: path("f") },
        ]);
        let mut rename = |from: &str, to: &str| {
            model.apply(&O::Rename { from: path(from), to: path(to), flags: RenameFlags::empty() })
        };
        assert_eq!(rename("d", "d/e/x"), Err(Errno::EINVAL));
        assert_eq!(rename("f", "d"), Err(Errno::EISDIR));
        assert_eq!(rename("d", "f"), Err(Errno::ENOTDIR));
        assert_eq!(rename("d/e", "d"), Err(Errno::ENOTEMPTY));
        assert_eq!(rename("f", "d/e/f"), Ok(()));
        assert_eq!(rename("d/e", "e"), Ok(()));
    }
}
