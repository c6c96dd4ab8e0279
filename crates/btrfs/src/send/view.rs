//! Reads a subvolume for the sender: inodes, names and attributes from the items of one committed tree. Used by the
//! sender and by reports of differences.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use btrfs_disk::hash::name_hash;
use btrfs_disk::items::{DirEntry, FileKind, InodeExtrefEntry, InodeItem, OnDisk};
use btrfs_disk::key::item_type;
use btrfs_disk::{At, Detail, InodeNo, Key, TreeId};
use btrfs_store::hash::NumberMap;
use btrfs_store::{Scan, Tree};

use crate::error::{Result, corrupt_inode};
use crate::inode::{InodeFlags, ROOT_DIR_INO, Timestamp, time_from_disk};

/// Directories whose names are cached.
const DIRS_MAX: usize = 4096;
/// Longest path of a stream, in bytes: a longer path to the top is a loop.
const PATH_BYTES_MAX: usize = 4095;

/// The fields of the item of an inode that has a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) generation: u64,
    pub(super) kind: FileKind,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) size: u64,
    pub(super) rdev: u64,
    pub(super) has_csums: bool,
    pub(super) atime: Timestamp,
    pub(super) mtime: Timestamp,
    pub(super) ctime: Timestamp,
    pub(super) otime: Timestamp,
}

impl Facts {
    pub(super) fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// True where both are of one inode: a number may be reused, but not within one transaction.
    pub(super) fn is_same_as(&self, other: &Self) -> bool {
        self.generation == other.generation && self.kind == other.kind
    }
}

/// A name of an inode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) dir: u64,
    pub(super) name: Vec<u8>,
}

/// A directory's generation and name.
#[derive(Debug)]
pub(super) struct Dir {
    pub(super) generation: u64,
    /// `None` for the root directory.
    pub(super) name: Option<Name>,
}

/// A subvolume in a committed state.
#[derive(Debug)]
pub(super) struct View {
    pub(super) tree: Arc<Tree>,
    pub(super) id: TreeId,
    dirs: RefCell<NumberMap<u64, Option<Rc<Dir>>>>,
}

impl View {
    pub(super) fn new(tree: Arc<Tree>) -> Self {
        Self { id: tree.id(), tree, dirs: RefCell::default() }
    }

    /// The fields of an inode; `None` where there is none with this number, or it has no name.
    pub(super) fn facts(&self, ino: u64) -> Result<Option<Facts>> {
        let key = Key::new(ino, item_type::INODE_ITEM, 0);
        let Some(item) = self.tree.get_with(&key, |bytes| InodeItem::parse(bytes).copied())? else { return Ok(None) };
        let item = item.map_err(|error| error.at(At::Key(self.id, key)))?;
        if item.nlink.get() == 0 {
            return Ok(None);
        }
        let Some(kind) = item.kind() else {
            let found = Detail::Octal(u64::from(item.mode.get()));
            let expected = Detail::Text("the type bits of a kind of file");
            return Err(corrupt_inode(self.id, InodeNo(ino), "inode mode", expected, found));
        };
        Ok(Some(Facts {
            generation: item.generation.get(),
            kind,
            mode: item.mode.get(),
            uid: item.uid.get(),
            gid: item.gid.get(),
            size: item.size.get(),
            rdev: item.rdev.get(),
            has_csums: !item.inode_flags().contains(InodeFlags::NODATASUM),
            atime: time_from_disk(item.atime),
            mtime: time_from_disk(item.mtime),
            ctime: time_from_disk(item.ctime),
            otime: time_from_disk(item.otime),
        }))
    }

    /// The names of an inode, in the order of their items.
    pub(super) fn names(&self, ino: u64) -> Result<Vec<Name>> {
        let (from, to) = (Key::new(ino, item_type::INODE_REF, 0), Key::new(ino, item_type::INODE_EXTREF, u64::MAX));
        let mut names = Vec::new();
        self.tree.scan(&from, &to, |key, bytes| {
            for entry in InodeExtrefEntry::iter_either(key, bytes) {
                let entry = entry?;
                names.push(Name { dir: entry.parent.0, name: entry.name.to_vec() });
            }
            Ok(Scan::Continue)
        })?;
        Ok(names)
    }

    /// A directory; `None` where there is none with this number.
    pub(super) fn dir(&self, ino: u64) -> Result<Option<Rc<Dir>>> {
        if let Some(known) = self.dirs.borrow().get(&ino) {
            return Ok(known.clone());
        }
        let found = match self.facts(ino)? {
            Some(facts) if facts.is_dir() => {
                let name = if ino == ROOT_DIR_INO.0 { None } else { self.names(ino)?.into_iter().next() };
                Some(Rc::new(Dir { generation: facts.generation, name }))
            }
            _ => None,
        };
        let mut dirs = self.dirs.borrow_mut();
        if dirs.len() >= DIRS_MAX {
            dirs.clear();
        }
        dirs.insert(ino, found.clone());
        Ok(found)
    }

    /// The path of a directory from the root of the subvolume, according to the tree.
    pub(super) fn path_of_dir(&self, ino: u64) -> Result<Vec<u8>> {
        let mut path = PathUp::default();
        let mut at = ino;
        while at != ROOT_DIR_INO.0 {
            let name = self.name_of_dir(at)?;
            path.push(self, at, &name.name)?;
            at = name.dir;
        }
        Ok(path.finish())
    }

    /// The name of a directory that contains names.
    ///
    /// # Errors
    /// `Corrupt` where there is none.
    pub(super) fn name_of_dir(&self, ino: u64) -> Result<Name> {
        let dir = self.dir(ino)?;
        let name = dir.and_then(|dir| dir.name.clone());
        name.ok_or_else(|| {
            let (expected, found) = (Detail::Text("a directory with a name"), Detail::Text("none"));
            corrupt_inode(self.id, InodeNo(ino), "directory", expected, found)
        })
    }

    /// The path of a name.
    pub(super) fn path(&self, name: &Name) -> Result<Vec<u8>> {
        Ok(join(&self.path_of_dir(name.dir)?, &name.name))
    }

    /// Whether a directory has an entry of this name, of whatever kind.
    pub(super) fn has_entry(&self, dir: u64, name: &[u8]) -> Result<bool> {
        let key = Key::new(dir, item_type::DIR_ITEM, name_hash(name));
        let found =
            self.tree.get_with(&key, |bytes| Ok::<_, btrfs_disk::Corrupt>(DirEntry::find(bytes, name)?.is_some()));
        Ok(found?.transpose()?.unwrap_or(false))
    }

    /// The value of an attribute.
    pub(super) fn xattr(&self, ino: u64, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let key = Key::new(ino, item_type::XATTR_ITEM, name_hash(name));
        let value = self.tree.get_with(&key, |bytes| {
            Ok::<_, btrfs_disk::Corrupt>(DirEntry::find(bytes, name)?.map(|(entry, _)| entry.data.to_vec()))
        })?;
        Ok(value.transpose()?.flatten())
    }

    /// All attributes of an inode.
    pub(super) fn xattrs(&self, ino: u64) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
        let (from, to) = (Key::new(ino, item_type::XATTR_ITEM, 0), Key::new(ino, item_type::XATTR_ITEM, u64::MAX));
        let mut all = BTreeMap::new();
        self.tree.scan(&from, &to, |_, bytes| {
            for entry in DirEntry::iter(bytes) {
                let entry = entry?;
                all.insert(entry.name.to_vec(), entry.data.to_vec());
            }
            Ok(Scan::Continue)
        })?;
        Ok(all)
    }
}

/// A path that is built from its end.
#[derive(Debug, Default)]
pub(super) struct PathUp {
    names: Vec<Vec<u8>>,
    bytes: usize,
}

impl PathUp {
    /// Adds a name in front.
    ///
    /// # Errors
    /// `Corrupt` for a path that is too long for a stream: a loop, or one that no program can have made.
    pub(super) fn push(&mut self, view: &View, ino: u64, name: &[u8]) -> Result<()> {
        self.bytes = self.bytes.saturating_add(name.len()).saturating_add(1);
        if self.bytes > PATH_BYTES_MAX {
            let (expected, found) = (Detail::Text("a path of at most 4095 bytes"), Detail::Text("a longer one"));
            return Err(corrupt_inode(view.id, InodeNo(ino), "path", expected, found));
        }
        self.names.push(name.to_vec());
        Ok(())
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.names.reverse();
        self.names.join(&b'/')
    }
}

/// A name in a directory.
pub(super) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() { name.to_vec() } else { [dir, b"/", name].concat() }
}
