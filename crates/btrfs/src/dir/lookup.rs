//! Looks names up: from a name to an inode. Called by path resolution and all operations on names.

use std::sync::Arc;

use btrfs_disk::hash::name_hash;
use btrfs_disk::items::DirEntry as DiskEntry;
use btrfs_disk::key::item_type;
use btrfs_disk::{At, Corrupt, Detail, InodeNo, Key, TreeId};

use super::{NAME_BYTES_MAX, Namespace, check_is_dir};
use crate::error::{CallerError, Error, Result, corrupt_inode};
use crate::inode::{EMPTY_SUBVOL_INO, FileType, Inode, ROOT_DIR_INO, kind_of};

/// The inode that a name leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    /// The inode's subvolume.
    pub(crate) tree: TreeId,
    pub(crate) ino: InodeNo,
    pub(crate) kind: FileType,
}

impl Found {
    /// True for the root directory of a subvolume.
    pub(crate) fn is_subvolume_root(self) -> bool {
        self.ino == ROOT_DIR_INO
    }
}

/// An entry as the directory stores it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stored {
    pub(crate) location: Key,
    pub(crate) kind: FileType,
}

impl Namespace {
    /// The inode that `name` in the directory (tree, ino) leads to. A cached name needs no inode in memory.
    ///
    /// # Errors
    /// `NotADirectory`, `NotFound` (the directory), `NameTooLong`, or when a tree cannot be read.
    pub(crate) fn lookup_in(&self, tree: TreeId, ino: InodeNo, name: &[u8]) -> Result<Option<Found>> {
        if let Some(found) = self.dentries.get(tree, ino, name) {
            return Ok(Some(found));
        }
        self.search(&*self.core.inode(tree, ino)?, name)
    }

    /// The inode that `name` in `dir` leads to.
    ///
    /// # Errors
    /// As [`Namespace::lookup_in`].
    pub(crate) fn lookup(&self, dir: &Inode, name: &[u8]) -> Result<Option<Found>> {
        if let Some(found) = self.dentries.get(dir.tree_id(), dir.ino(), name) {
            return Ok(Some(found));
        }
        self.search(dir, name)
    }

    fn search(&self, dir: &Inode, name: &[u8]) -> Result<Option<Found>> {
        check_can_have(dir, name)?;
        let _names = dir.read_names();
        self.lookup_locked(dir, name)
    }

    /// Calls `then` with the inode that `name` in the directory (tree, ino) leads to; `None` when there is no such
    /// name. `then` fails with `Stale` for an inode that is being removed, and is then called again with the inode that
    /// has the name now. It must not take a `names` lock.
    ///
    /// # Errors
    /// As [`Namespace::lookup_in`]; those of reading the inode, and of `then`.
    pub(crate) fn find_then<R>(
        &self,
        (tree, ino): (TreeId, InodeNo),
        name: &[u8],
        then: impl Fn(Found, &Arc<Inode>) -> Result<R>,
    ) -> Result<Option<R>> {
        if let Some(found) = self.dentries.get(tree, ino, name) {
            match self.inode(found).and_then(|inode| then(found, &inode)) {
                Err(error) if has_gone(&error) => {}
                answer => return answer.map(Some),
            }
        }
        self.find_locked_then(&*self.core.inode(tree, ino)?, name, then)
    }

    /// As [`Namespace::find_then`], under the directory's lock, so that the name cannot change meanwhile.
    ///
    /// # Errors
    /// As [`Namespace::find_then`].
    pub(crate) fn find_locked_then<R>(
        &self,
        dir: &Inode,
        name: &[u8],
        then: impl FnOnce(Found, &Arc<Inode>) -> Result<R>,
    ) -> Result<Option<R>> {
        check_can_have(dir, name)?;
        let _names = dir.read_names();
        let Some(found) = self.lookup_locked(dir, name)? else {
            return Ok(None);
        };
        then(found, &self.inode(found)?).map(Some)
    }

    /// The inode that `name` in `dir` leads to. Other threads may have replaced the name by now.
    ///
    /// # Errors
    /// As [`Namespace::find_then`].
    pub(crate) fn find_inode(&self, dir: &Inode, name: &[u8]) -> Result<Option<(Found, Arc<Inode>)>> {
        let both = |found, inode: &Arc<Inode>| Ok((found, Arc::clone(inode)));
        self.find_then((dir.tree_id(), dir.ino()), name, both)
    }

    /// As [`Namespace::find_inode`], under the directory's lock: waits for a running change.
    ///
    /// # Errors
    /// As [`Namespace::find_then`].
    pub(crate) fn find_inode_locked(&self, dir: &Inode, name: &[u8]) -> Result<Option<(Found, Arc<Inode>)>> {
        self.find_locked_then(dir, name, |found, inode| Ok((found, Arc::clone(inode))))
    }

    /// As [`Namespace::lookup`], with the directory's `names` lock held by the caller.
    pub(crate) fn lookup_locked(&self, dir: &Inode, name: &[u8]) -> Result<Option<Found>> {
        if let Some(found) = self.dentries.get(dir.tree_id(), dir.ino(), name) {
            return Ok(Some(found));
        }
        let Some(stored) = stored(dir, name)? else {
            return Ok(None);
        };
        let found = self.resolve(dir, name, stored)?;
        self.check_place(dir, found)?;
        self.dentries.insert(dir.tree_id(), dir.ino(), name, found);
        Ok(Some(found))
    }

    /// The inode of a stored entry.
    ///
    /// In a snapshot, the entry of a subvolume that is nested in the source does not lead to that subvolume, because
    /// its `ROOT_REF` names one place only. The kernel shows an empty directory there, and so does Spinney.
    pub(crate) fn resolve(&self, dir: &Inode, name: &[u8], stored: Stored) -> Result<Found> {
        let (tree, kind) = (dir.tree_id(), stored.kind);
        match stored.location.item_type {
            item_type::INODE_ITEM => Ok(Found { tree, ino: InodeNo(stored.location.objectid), kind }),
            item_type::ROOT_ITEM => {
                let id = TreeId(stored.location.objectid);
                let link = self.root_links.get(tree, id)?;
                let here = link.is_some_and(|link| link.dir == dir.ino() && *link.name == *name);
                let (tree, ino) = if here { (id, ROOT_DIR_INO) } else { (tree, EMPTY_SUBVOL_INO) };
                Ok(Found { tree, ino, kind: FileType::Directory })
            }
            _ => {
                let expected = Detail::Text("the key of an inode or of a subvolume");
                Err(Corrupt::new("location of a name", expected, stored.location.into())
                    .at(At::Inode(tree, dir.ino()))
                    .into())
            }
        }
    }

    /// Refuses a directory whose back reference names another place than the one where its name was found. A directory
    /// has one place, so that a path down from the root never returns to a directory it passed: without this check, an
    /// image could send a walk in circles. The caller holds the `names` lock of `dir`.
    ///
    /// # Errors
    /// `Corrupt`, or when a tree cannot be read.
    pub(crate) fn check_place(&self, dir: &Inode, found: Found) -> Result<()> {
        if !found.kind.is_dir() || found.ino == EMPTY_SUBVOL_INO {
            return Ok(());
        }
        let here = (dir.tree_id(), dir.ino());
        let place = if found.tree == here.0 {
            self.back_refs.parent_of(&dir.root, found.ino)?.map(|above| (here.0, above))
        } else {
            self.root_links.of(found.tree)?.map(|link| (link.parent, link.dir))
        };
        if place == Some(here) {
            return Ok(());
        }
        let found_in = place.map_or(Detail::Text("none"), |(_, above)| Detail::Number(above.0));
        let what = "directory that holds a directory";
        Err(corrupt_inode(found.tree, found.ino, what, Detail::Number(here.1.0), found_in))
    }

    /// Reads the inode that was found.
    ///
    /// # Errors
    /// `NotFound` when it was removed meanwhile, `Corrupt` when its kind differs from that in its name, or when it
    /// cannot be read.
    pub(crate) fn inode(&self, found: Found) -> Result<Arc<Inode>> {
        let inode = self.core.inode(found.tree, found.ino)?;
        if inode.kind() == found.kind {
            return Ok(inode);
        }
        let kind = |kind: FileType| Detail::Hex(kind.mode_bits().into());
        let (expected, is) = (kind(found.kind), kind(inode.kind()));
        Err(corrupt_inode(found.tree, found.ino, "type of an inode", expected, is))
    }
}

/// Refuses a look-up in an inode that is not a directory, and of a name that is too long.
fn check_can_have(dir: &Inode, name: &[u8]) -> Result<()> {
    check_is_dir(dir)?;
    if name.len() > NAME_BYTES_MAX {
        return Err(CallerError::NameTooLong.into());
    }
    Ok(())
}

/// True for the errors of an inode whose removal began after it was found.
pub(crate) fn has_gone(error: &Error) -> bool {
    matches!(error.caller_error(), Some(CallerError::NotFound | CallerError::NoSuchSubvolume | CallerError::Stale))
}

/// The entry of a name in the directory's `DIR_ITEM`.
pub(crate) fn stored(dir: &Inode, name: &[u8]) -> Result<Option<Stored>> {
    if dir.ino() == EMPTY_SUBVOL_INO {
        return Ok(None);
    }
    let key = Key::new(dir.ino().0, item_type::DIR_ITEM, name_hash(name));
    let answer = dir.root.tree.get_with(&key, |bytes| {
        let Some((entry, _)) = DiskEntry::find(bytes, name)? else {
            return Ok(None);
        };
        Stored::of(&entry).map(Some)
    })?;
    let place = At::Key(dir.tree_id(), key);
    Ok(answer.transpose().map_err(|corrupt: Corrupt| corrupt.at(place))?.flatten())
}

impl Stored {
    /// The parts of an entry.
    pub(crate) fn of(entry: &DiskEntry<'_>) -> Result<Self, Corrupt> {
        let Some(kind) = entry.kind() else {
            let found = Detail::Number(u64::from(entry.item.dir_type));
            return Err(Corrupt::new("type of a name", Detail::Range(1, 7), found));
        };
        Ok(Self { location: entry.location(), kind: kind_of(kind) })
    }
}
