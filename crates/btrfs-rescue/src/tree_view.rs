//! Presents a state as a read-only file system ([`vfs::FileSystem`]), so that all reading commands work on it.
//!
//! Node numbers combine the index of the tree and the inode. `lost+found` at the top holds what has no path:
//! `subvol-N/top` for a subvolume without a place, `subvol-N/inode-M` for a file without a name. It exists only if it
//! has entries.
//!
//! Lost ranges read as zeros without an error, and [`Losses`] records them. Callers: `rescue` makes it for a volume,
//! and `undelete`.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use btrfs_disk::TreeId;
use btrfs_disk::convert::{to_u64, to_usize};
use btrfs_disk::items::link_target;
use vfs::file_system::{
    Answer, Attr, Caller, DirEntry, DirSink, Entry, FileSystem, Handle, Home, NodeFlags, NodeKind, OpenFlags, Seek,
    SetAttr, SyncWhat, VolumeStatus, WriteFlags, Written,
};
use vfs::{Blame, Errno, NodeId};

use crate::contents::Layout;
use crate::data::Kept;
use crate::inode::{self, File, Inode};
use crate::listing::{Listing, Listings, Target, parent};
use crate::locks::lock;
use crate::losses::Losses;
use crate::state::State;

/// Bits of a node number that hold the inode.
const INODE_BITS: u32 = 44;
/// Limit on cached layouts.
const LAYOUTS_MAX: usize = 16;
/// Name of the directory of orphans.
pub(crate) const LOST: &[u8] = b"lost+found";
/// Limit on the target of a symbolic link.
const TARGET_MAX: u64 = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    /// The top, even if its tree is lost.
    Root,
    /// `lost+found`.
    Lost,
    /// An empty directory in place of a subvolume that is placed elsewhere.
    Empty,
    /// Orphans of a tree.
    LostOf(u64),
    File(File),
}

/// Node numbers outside all trees.
const LOST_NUMBER: u64 = 2;
const EMPTY_NUMBER: u64 = 3;
const LOST_OF_FIRST: u64 = 16;

/// Error for a name whose inode is lost.
///
/// To do: try an older root: `spinney rescue roots IMAGE`, then `--root`.
#[derive(Debug, thiserror::Error)]
#[error("lost: a name leads to it, and no block with its inode can be read")]
struct Gone;

/// A state as a file system.
pub(crate) struct TreeView {
    pub(crate) state: State,
    pub(crate) listings: Listings,
    pub(crate) losses: Losses,
    kept: Kept,
    layouts: Mutex<HashMap<File, Arc<Layout>>>,
    trees: Vec<u64>,
    lost: OnceLock<BTreeMap<u64, Listing>>,
}

impl TreeView {
    pub(crate) fn new(state: State) -> Self {
        let trees = state.subvolumes();
        let (listings, losses, kept) = (Listings::new(), Losses::default(), Kept::default());
        Self { state, listings, losses, kept, layouts: Mutex::default(), trees, lost: OnceLock::new() }
    }

    fn number(&self, node: Node) -> Option<NodeId> {
        let index = |tree: u64| self.trees.binary_search(&tree).ok().map(to_u64);
        let number = match node {
            Node::Root => NodeId::ROOT.0,
            Node::Lost => LOST_NUMBER,
            Node::Empty => EMPTY_NUMBER,
            Node::LostOf(tree) => index(tree)? + LOST_OF_FIRST,
            Node::File(file) if Some(file) == self.top() => NodeId::ROOT.0,
            Node::File((tree, ino)) if ino >> INODE_BITS == 0 => ((index(tree)? + 1) << INODE_BITS) | ino,
            Node::File(_) => return None,
        };
        Some(NodeId(number))
    }

    fn node(&self, number: NodeId) -> Answer<Node> {
        let (index, ino) = (number.0 >> INODE_BITS, number.0 & ((1 << INODE_BITS) - 1));
        let tree = |index: u64| self.trees.get(to_usize(index)).copied();
        let node = match (index.checked_sub(1), ino) {
            (Some(index), ino) => tree(index).map(|tree| Node::File((tree, ino))),
            (None, 1) => Some(Node::Root),
            (None, LOST_NUMBER) => Some(Node::Lost),
            (None, EMPTY_NUMBER) => Some(Node::Empty),
            (None, ino) => ino.checked_sub(LOST_OF_FIRST).and_then(tree).map(Node::LostOf),
        };
        node.ok_or_else(|| Errno::ESTALE.into())
    }

    /// The top directory of the top-level subvolume.
    fn top(&self) -> Option<File> {
        let tree = TreeId::FS.0;
        self.state.infos.get(&tree).map(|info| (tree, info.top))
    }

    /// Orphans that have no path to the top, by tree.
    fn lost(&self) -> &BTreeMap<u64, Listing> {
        self.lost.get_or_init(|| {
            let mut lost = BTreeMap::new();
            for tree in &self.trees {
                let mut listing = Listing::default();
                let Some(info) = self.state.infos.get(tree) else { continue };
                let is_placed = info.place.is_some_and(|(parent, _)| self.state.infos.contains_key(&parent));
                if *tree != TreeId::FS.0 && !is_placed {
                    listing.add(b"top", Target::File((*tree, info.top)), NodeKind::Directory);
                }
                for ino in &self.listings.orphans(&self.state, *tree).nameless {
                    if let Ok(inode) = self.inode((*tree, *ino)) {
                        listing.add(format!("inode-{ino}").as_bytes(), Target::File((*tree, *ino)), inode.kind);
                    }
                }
                if !listing.names.is_empty() {
                    lost.insert(*tree, listing);
                }
            }
            lost
        })
    }

    fn inode(&self, file: File) -> Answer<Inode> {
        if let Some(inode) = inode::read(&self.state, file) {
            return Ok(inode);
        }
        let orphans = self.listings.orphans(&self.state, file.0);
        let is_dir = orphans.extra.contains_key(&file.1) || self.state.placed.contains_key(&file);
        let is_top = self.state.infos.get(&file.0).is_some_and(|info| info.top == file.1);
        if is_dir || is_top {
            return Ok(inode::made_up(NodeKind::Directory, 0));
        }
        self.losses.note(file, |loss| loss.is_gone = true);
        Err(vfs::Error::new(Errno::EIO, Blame::Image, Gone))
    }

    fn attr_of(&self, node: Node) -> Answer<Attr> {
        let number = self.number(node).ok_or(Errno::EOVERFLOW)?;
        let file = match node {
            Node::File(file) => Some(file),
            Node::Root => self.top(),
            _ => None,
        };
        let (inode, home) = match file {
            Some((tree, ino)) => {
                let home = Home { subvolume: tree, ino, generation: 0 };
                (self.inode((tree, ino))?, home)
            }
            None => (inode::made_up(NodeKind::Directory, 0), Home { subvolume: 0, ino: number.0, generation: 0 }),
        };
        let [atime, mtime, ctime, btime] = inode.times;
        Ok(Attr {
            ino: number.0,
            kind: inode.kind,
            permissions: inode.permissions,
            nlink: inode.nlink,
            uid: inode.uid,
            gid: inode.gid,
            rdev: inode.rdev,
            size: inode.size,
            blocks: inode.size.div_ceil(512),
            block_bytes: 4096,
            atime,
            mtime,
            ctime,
            btime,
            flags: NodeFlags::empty(),
            home,
        })
    }

    fn entry(&self, node: Node) -> Answer<Entry> {
        let attr = self.attr_of(node)?;
        Ok(Entry { node: NodeId(attr.ino), generation: 0, attr })
    }

    fn layout(&self, file: File) -> Answer<Arc<Layout>> {
        if let Some(layout) = lock(&self.layouts).get(&file) {
            return Ok(Arc::clone(layout));
        }
        let inode = self.inode(file)?;
        let layout = Arc::new(Layout::read(&self.state, file, &inode, &self.losses));
        let mut layouts = lock(&self.layouts);
        if layouts.len() >= LAYOUTS_MAX {
            layouts.clear();
        }
        layouts.insert(file, Arc::clone(&layout));
        Ok(layout)
    }

    fn file(&self, number: NodeId) -> Answer<File> {
        match self.node(number)? {
            Node::File(file) => Ok(file),
            Node::Root => self.top().ok_or_else(|| Errno::EISDIR.into()),
            _ => Err(Errno::EISDIR.into()),
        }
    }

    fn find(&self, dir: Node, name: &[u8]) -> Answer<Node> {
        let file = match dir {
            Node::File(file) => file,
            Node::Root if name == LOST && !self.lost().is_empty() => return Ok(Node::Lost),
            Node::Root => self.top().ok_or(Errno::ENOENT)?,
            Node::Lost => {
                let tree =
                    name.strip_prefix(b"subvol-").and_then(|number| std::str::from_utf8(number).ok()?.parse().ok());
                let tree = tree.filter(|tree| self.lost().contains_key(tree)).ok_or(Errno::ENOENT)?;
                return Ok(Node::LostOf(tree));
            }
            Node::LostOf(tree) => {
                let found = self.lost().get(&tree).and_then(|listing| listing.find(name));
                return found.map(|named| of_target(named.target)).ok_or_else(|| Errno::ENOENT.into());
            }
            Node::Empty => return Err(Errno::ENOENT.into()),
        };
        if !self.inode(file)?.kind.is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        let listing = self.listings.list(&self.state, file);
        listing.find(name).map(|named| of_target(named.target)).ok_or_else(|| Errno::ENOENT.into())
    }

    fn above(&self, node: Node) -> Node {
        let Node::File((tree, ino)) = node else {
            return if matches!(node, Node::LostOf(_)) { Node::Lost } else { Node::Root };
        };
        let info = self.state.infos.get(&tree);
        if info.is_some_and(|info| info.top == ino) {
            return info.and_then(|info| info.place).map_or(Node::LostOf(tree), Node::File);
        }
        let orphans = self.listings.orphans(&self.state, tree);
        parent(&self.state, (tree, ino), &orphans).map_or(Node::LostOf(tree), |dir| Node::File((tree, dir)))
    }
}

fn of_target(target: Target) -> Node {
    match target {
        Target::File(file) => Node::File(file),
        Target::Empty => Node::Empty,
    }
}

impl TreeView {
    /// Passes names to a sink, in a stable order.
    fn give(&self, names: &[(Vec<u8>, Node, NodeKind)], from: u64, with_nodes: bool, sink: &mut dyn DirSink) {
        for (next, (name, node, kind)) in (1..).zip(names) {
            if next <= from {
                continue;
            }
            let ino = self.number(*node).map_or(u64::MAX, |node| node.0);
            let entry = DirEntry { name, ino, kind: *kind, next };
            let taken = match with_nodes && name != b"." && name != b".." {
                true => sink.add_with_node(&entry, self.entry(*node).ok().as_ref()),
                false => sink.add(&entry),
            };
            if !taken {
                return;
            }
        }
    }

    fn names(&self, node: Node) -> Answer<Vec<(Vec<u8>, Node, NodeKind)>> {
        let dir = NodeKind::Directory;
        let mut names = vec![(b".".to_vec(), node, dir), (b"..".to_vec(), self.above(node), dir)];
        let listed = |listing: &Listing, names: &mut Vec<(Vec<u8>, Node, NodeKind)>| {
            names.extend(listing.names.iter().map(|named| (named.name.clone(), of_target(named.target), named.kind)));
        };
        let file = match node {
            Node::Root => {
                if !self.lost().is_empty() {
                    names.push((LOST.to_vec(), Node::Lost, dir));
                }
                self.top()
            }
            Node::File(file) => Some(file),
            Node::Lost => {
                let trees = self.lost().keys();
                names.extend(trees.map(|tree| (format!("subvol-{tree}").into_bytes(), Node::LostOf(*tree), dir)));
                None
            }
            Node::LostOf(tree) => {
                if let Some(listing) = self.lost().get(&tree) {
                    listed(listing, &mut names);
                }
                None
            }
            Node::Empty => None,
        };
        if let Some(file) = file {
            if !self.inode(file)?.kind.is_dir() {
                return Err(Errno::ENOTDIR.into());
            }
            listed(&self.listings.list(&self.state, file), &mut names);
        }
        Ok(names)
    }
}

impl FileSystem for TreeView {
    fn lookup(&self, parent: NodeId, name: &[u8]) -> Answer<Entry> {
        let dir = self.node(parent)?;
        match name {
            b"." => self.entry(dir),
            b".." => self.entry(self.above(dir)),
            name => self.entry(self.find(dir, name)?),
        }
    }

    fn forget(&self, _node: NodeId, _count: u64) {}

    fn attr(&self, node: NodeId) -> Answer<Attr> {
        self.attr_of(self.node(node)?)
    }

    fn set_attr(&self, _caller: &Caller, _node: NodeId, _changes: &SetAttr) -> Answer<Attr> {
        Err(Errno::EROFS.into())
    }

    fn read_link(&self, node: NodeId) -> Answer<Vec<u8>> {
        let file = self.file(node)?;
        let inode = self.inode(file)?;
        if !inode.kind.is_symlink() {
            return Err(Errno::EINVAL.into());
        }
        let mut target = vec![0; to_usize(inode.size.min(TARGET_MAX))];
        self.layout(file)?.fill((&self.state, &self.kept, &self.losses), file, 0, &mut target);
        target.truncate(link_target(&target, inode.size).len());
        if target.is_empty() {
            self.losses.note(file, |loss| loss.is_gone = true);
            return Err(vfs::Error::new(Errno::EIO, Blame::Image, Gone));
        }
        Ok(target)
    }

    fn open(&self, _caller: &Caller, node: NodeId, flags: OpenFlags) -> Answer<Handle> {
        self.node(node)?;
        if flags.intersects(OpenFlags::WRITE | OpenFlags::TRUNCATE) {
            return Err(Errno::EROFS.into());
        }
        Ok(Handle(0))
    }

    fn release(&self, _node: NodeId, _handle: Handle) {}

    fn read(&self, node: NodeId, _handle: Handle, offset: u64, buf: &mut [u8]) -> Answer<usize> {
        let file = self.file(node)?;
        let inode = self.inode(file)?;
        if inode.kind.is_dir() {
            return Err(Errno::EISDIR.into());
        }
        let len = to_u64(buf.len()).min(inode.size.saturating_sub(offset));
        let part = buf.get_mut(..to_usize(len)).unwrap_or_default();
        self.layout(file)?.fill((&self.state, &self.kept, &self.losses), file, offset, part);
        Ok(to_usize(len))
    }

    fn write(&self, _: NodeId, _: Handle, _: u64, _: &[u8], _: WriteFlags) -> Answer<Written> {
        Err(Errno::EROFS.into())
    }

    fn sync_file(&self, _node: NodeId, _handle: Handle, _what: SyncWhat) -> Answer<()> {
        Ok(())
    }

    fn sync_fs(&self) -> Answer<()> {
        Ok(())
    }

    fn seek(&self, node: NodeId, what: Seek, offset: u64) -> Answer<u64> {
        let file = self.file(node)?;
        let size = self.inode(file)?.size;
        if offset >= size {
            return Err(Errno::ENXIO.into());
        }
        let layout = self.layout(file)?;
        match what {
            Seek::Data => layout.data_from(offset).filter(|at| *at < size).ok_or_else(|| Errno::ENXIO.into()),
            Seek::Hole => Ok(layout.hole_from(offset).min(size)),
        }
    }

    fn read_dir(&self, node: NodeId, from: u64, with_nodes: bool, sink: &mut dyn DirSink) -> Answer<()> {
        let names = self.names(self.node(node)?)?;
        self.give(&names, from, with_nodes, sink);
        Ok(())
    }

    fn get_xattr(&self, node: NodeId, name: &[u8]) -> Answer<Vec<u8>> {
        let Ok(file) = self.file(node) else { return Err(Errno::ENODATA.into()) };
        let found = inode::xattrs(&self.state, file).into_iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value).ok_or_else(|| Errno::ENODATA.into())
    }

    fn list_xattrs(&self, node: NodeId) -> Answer<Vec<Vec<u8>>> {
        let Ok(file) = self.file(node) else { return Ok(Vec::new()) };
        Ok(inode::xattrs(&self.state, file).into_iter().map(|(name, _)| name).collect())
    }

    fn status(&self) -> Answer<VolumeStatus> {
        let bytes: u64 = self.state.blocks.media.disks.iter().map(|disk| disk.total_bytes).fold(0, u64::saturating_add);
        let block_bytes = 4096;
        Ok(VolumeStatus {
            block_bytes,
            blocks: bytes / u64::from(block_bytes),
            name_bytes_max: 255,
            ..VolumeStatus::default()
        })
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn step(&self) -> Duration {
        Duration::from_secs(3600)
    }
}
