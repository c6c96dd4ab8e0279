//! A subvolume of an open volume, used by paths below its root that never lead through a symbolic link or into another
//! subvolume. `merge` and `patch` read and change subvolumes with it.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use portable::OsStrExt as _;
use vfs::file_system::{NodeKind, SetAttr, SetTime, WholeNode, XattrMode};
use vfs::{Errno, File, FileOptions, Result, Volume};

use crate::node::{Attributes, Node, Xattrs};

/// Bytes that are compared or copied at once.
const PIECE_BYTES: usize = 256 << 10;
/// Names that are tried for a copy beside a file.
const NAMES_MAX: u32 = 10_000;

/// A subvolume, by the path of its root in a volume.
pub(crate) struct Tree<'v> {
    volume: &'v Volume,
    root: PathBuf,
    subvolume: u64,
    /// Directories of which it is known that they are no symbolic links.
    plain: RefCell<BTreeSet<PathBuf>>,
}

impl<'v> Tree<'v> {
    pub(crate) fn open(volume: &'v Volume, root: &Path) -> Result<Self> {
        let subvolume = volume.symlink_metadata(root)?.home.subvolume;
        Ok(Self { volume, root: root.to_owned(), subvolume, plain: RefCell::default() })
    }

    /// The path in the volume.
    pub(crate) fn at(&self, path: &Path) -> PathBuf {
        if path.as_os_str().is_empty() { self.root.clone() } else { self.root.join(path) }
    }

    /// True if `path` is a directory of this subvolume, and no symbolic link is on the way.
    pub(crate) fn is_plain_dir(&self, path: &Path) -> Result<bool> {
        if path.as_os_str().is_empty() || self.plain.borrow().contains(path) {
            return Ok(true);
        }
        let Some(parent) = path.parent() else { return Ok(false) };
        if !self.is_plain_dir(parent)? {
            return Ok(false);
        }
        let is_dir = match self.volume.symlink_metadata(self.at(path)) {
            Ok(attr) => attr.is_dir() && attr.home.subvolume == self.subvolume,
            Err(error) if error.is_not_found() => false,
            Err(error) => return Err(error),
        };
        if is_dir {
            self.plain.borrow_mut().insert(path.to_owned());
        }
        Ok(is_dir)
    }

    /// The node at a path; `None` where there is none, and where a symbolic link or another subvolume is on the way.
    pub(crate) fn node(&self, path: &Path) -> Result<Option<Node>> {
        if let Some(parent) = path.parent()
            && !self.is_plain_dir(parent)?
        {
            return Ok(None);
        }
        let at = self.at(path);
        let attr = match self.volume.symlink_metadata(&at) {
            Err(error) if error.is_not_found() => return Ok(None),
            found => found?,
        };
        // The root of another subvolume counts as nothing: subvolumes are not merged.
        if attr.home.subvolume != self.subvolume {
            return Ok(None);
        }
        let target = match attr.kind {
            NodeKind::Symlink => self.volume.read_link(&at)?.into_os_string().as_bytes().to_vec(),
            _ => Vec::new(),
        };
        Ok(Some(Node::new(&attr, target, self.xattrs(&at)?)))
    }

    fn xattrs(&self, at: &Path) -> Result<Xattrs> {
        let mut all = Xattrs::new();
        for name in self.volume.list_xattrs(at)? {
            if let Some(value) = self.volume.get_xattr(at, name.as_bytes())? {
                all.insert(name.as_bytes().to_vec(), value);
            }
        }
        Ok(all)
    }

    pub(crate) fn is_empty_dir(&self, path: &Path) -> Result<bool> {
        self.volume.read_dir(self.at(path))?.next().transpose().map(|first| first.is_none())
    }

    /// The names in a directory.
    pub(crate) fn names(&self, path: &Path) -> Result<Vec<(OsString, NodeKind)>> {
        let entries = self.volume.read_dir(self.at(path))?;
        entries.map(|entry| entry.map(|entry| (entry.file_name().to_owned(), entry.file_type()))).collect()
    }

    /// All of a file.
    pub(crate) fn read(&self, path: &Path) -> Result<Vec<u8>> {
        self.volume.read(self.at(path))
    }

    /// True if two files have the same contents. Files that share all extents are not read.
    pub(crate) fn has_same_data(&self, path: &Path, other: &Tree<'_>, other_path: &Path) -> Result<bool> {
        let (one, two) = (self.open_file(path)?, other.open_file(other_path)?);
        let size = one.metadata()?.size;
        if size != two.metadata()?.size {
            return Ok(false);
        }
        let (extents, others) = (one.extents()?, two.extents()?);
        // The address of a compressed extent does not tell which part of it the file has.
        let is_known = extents.iter().all(|extent| extent.logical.is_some() && extent.compression.is_none());
        if is_known && extents == others {
            return Ok(true);
        }
        let (mut left, mut right) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
        let mut at = 0;
        while at < size {
            let count = one.read_at(&mut left, at)?;
            if count == 0 || two.read_at(&mut right, at)? != count || left.get(..count) != right.get(..count) {
                return Ok(false);
            }
            at = at.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
        }
        Ok(true)
    }

    fn open_file(&self, path: &Path) -> Result<File> {
        File::open(self.volume, self.at(path))
    }

    /// Makes the node `node` of `from`, with its contents; a directory without its entries.
    pub(crate) fn place(&self, path: &Path, from: &Tree<'_>, from_path: &Path, node: &Node) -> Result<()> {
        let Attributes { permissions, uid, gid, xattrs } = &node.attributes;
        let xattrs: Vec<(&[u8], &[u8])> = xattrs.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        let whole = WholeNode {
            kind: node.kind,
            permissions: *permissions,
            uid: *uid,
            gid: *gid,
            rdev: node.rdev,
            target: &node.target,
            xattrs: &xattrs,
            mtime: Some(node.mtime),
            ..WholeNode::default()
        };
        self.volume.create_node(self.at(path), &whole)?;
        if node.kind.is_file() && node.size > 0 {
            self.set_data(path, from, from_path, node)?;
        }
        Ok(())
    }

    /// Makes a copy of a node of this tree, with another name.
    pub(crate) fn place_own(&self, from: &Path, to: &Path, node: &Node) -> Result<()> {
        self.place(to, self, from, node)
    }

    /// Gives a file the contents of another, which it shares, and its time.
    pub(crate) fn set_data(&self, path: &Path, from: &Tree<'_>, from_path: &Path, node: &Node) -> Result<()> {
        let source = from.open_file(from_path)?;
        let target = FileOptions::new().write(true).truncate(true).open(self.volume, self.at(path))?;
        let mut done = 0;
        while done < node.size {
            let count = target.copy_range(&source, done, done, node.size - done)?;
            if count == 0 {
                return Err(Errno::EIO.into());
            }
            done = done.saturating_add(count);
        }
        drop(target);
        self.after_data(path, node)
    }

    /// Gives a file new contents. `node` has the time and the permissions it gets.
    pub(crate) fn set_bytes(&self, path: &Path, bytes: &[u8], node: &Node) -> Result<()> {
        let target = FileOptions::new().write(true).truncate(true).open(self.volume, self.at(path))?;
        for (index, piece) in bytes.chunks(PIECE_BYTES).enumerate() {
            target.write_at(piece, u64::try_from(index * PIECE_BYTES).unwrap_or(u64::MAX))?;
        }
        drop(target);
        self.after_data(path, node)
    }

    /// Writing clears set-user and set-group bits, and changes the time.
    fn after_data(&self, path: &Path, node: &Node) -> Result<()> {
        let permissions = Some(node.attributes.permissions);
        let changes = SetAttr { permissions, mtime: Some(SetTime::To(node.mtime)), ..SetAttr::default() };
        self.volume.set_attributes(self.at(path), &changes)
    }

    /// Changes the attributes of a node from `old` to `new`.
    pub(crate) fn set_attributes(&self, path: &Path, kind: NodeKind, old: &Attributes, new: &Attributes) -> Result<()> {
        let at = self.at(path);
        for name in old.xattrs.keys().filter(|name| !new.xattrs.contains_key(*name)) {
            match self.volume.remove_xattr(&at, name) {
                Err(error) if error.errno() == Errno::ENODATA => {}
                removed => removed?,
            }
        }
        // The owner first: it clears set-user and set-group bits.
        if (old.uid, old.gid) != (new.uid, new.gid) {
            self.volume.set_owner(&at, Some(new.uid), Some(new.gid))?;
        }
        for (name, value) in new.xattrs.iter().filter(|(name, value)| old.xattrs.get(*name) != Some(*value)) {
            self.volume.set_xattr(&at, name, value, XattrMode::Either)?;
        }
        if kind != NodeKind::Symlink {
            let changes = SetAttr { permissions: Some(new.permissions), ..SetAttr::default() };
            self.volume.set_attributes(&at, &changes)?;
        }
        Ok(())
    }

    pub(crate) fn remove(&self, path: &Path, node: &Node) -> Result<()> {
        self.forget(path);
        if node.is_dir() { self.volume.remove_dir(self.at(path)) } else { self.volume.remove_file(self.at(path)) }
    }

    pub(crate) fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.forget(from);
        self.volume.rename(self.at(from), self.at(to))
    }

    pub(crate) fn link(&self, from: &Path, to: &Path) -> Result<()> {
        self.volume.hard_link(self.at(from), self.at(to))
    }

    /// Forgets what is known of a path and below.
    fn forget(&self, path: &Path) {
        self.plain.borrow_mut().retain(|dir| !dir.starts_with(path));
    }

    /// A path beside `path` that is free: NAME`suffix`, or NAME`suffix`.1 and so on.
    pub(crate) fn free_beside(&self, path: &Path, suffix: &str) -> Result<Option<PathBuf>> {
        let Some(name) = path.file_name() else { return Ok(None) };
        for number in 0..NAMES_MAX {
            let mut new = name.to_owned();
            new.push(suffix);
            if number > 0 {
                new.push(format!(".{number}"));
            }
            let beside = path.with_file_name(new);
            match self.volume.symlink_metadata(self.at(&beside)) {
                Err(error) if error.is_not_found() => return Ok(Some(beside)),
                Err(error) if error.errno() == Errno::ENAMETOOLONG => return Ok(None),
                found => found?,
            };
        }
        Ok(None)
    }
}
