//! Adds, removes and reads the copies of a subvolume's name that lie in the tree of roots: `ROOT_REF` and
//! `ROOT_BACKREF`. Called by `subvol`, `rename`, `lookup` and path resolution.

use std::sync::Arc;

use btrfs_disk::items::RootRefEntry;
use btrfs_disk::key::item_type;
use btrfs_disk::{At, Corrupt, Detail, InodeNo, Key, TreeId};
use btrfs_store::Txn;

use crate::error::Result;
use crate::inode::Core;

/// The place of a subvolume's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RootLink {
    /// The subvolume that contains it.
    pub(crate) parent: TreeId,
    /// The directory in that subvolume.
    pub(crate) dir: InodeNo,
    /// Position in the directory.
    pub(crate) index: u64,
    pub(crate) name: Box<[u8]>,
}

/// The names of all subvolumes.
#[derive(Debug)]
pub(crate) struct RootLinks {
    core: Arc<Core>,
}

impl RootLinks {
    pub(super) fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    /// The name that the subvolume `child` has in `parent`.
    ///
    /// # Errors
    /// When the tree of roots cannot be read.
    pub(crate) fn get(&self, parent: TreeId, child: TreeId) -> Result<Option<RootLink>> {
        let key = Key::new(parent.0, item_type::ROOT_REF, child.0);
        let roots = self.core.store.tree(TreeId::ROOT)?;
        let link = roots.get_with(&key, |bytes| RootLink::parse(parent, bytes))?;
        link.transpose().map_err(|corrupt| corrupt.at(At::Key(TreeId::ROOT, key)).into())
    }

    /// The one name of the subvolume `child`; `None` for the top level and a deleted subvolume.
    ///
    /// # Errors
    /// When the tree of roots cannot be read.
    pub(crate) fn of(&self, child: TreeId) -> Result<Option<RootLink>> {
        let last = Key::new(child.0, item_type::ROOT_BACKREF, u64::MAX);
        match self.core.store.tree(TreeId::ROOT)?.at_or_before(&last)? {
            Some((key, bytes)) if key.objectid == child.0 && key.item_type == item_type::ROOT_BACKREF => {
                let link = RootLink::parse(TreeId(key.offset), &bytes);
                Ok(Some(link.map_err(|corrupt| corrupt.at(At::Key(TreeId::ROOT, key)))?))
            }
            _ => Ok(None),
        }
    }

    /// Adds this name to the subvolume `child`.
    pub(crate) fn add(&self, txn: &Txn, child: TreeId, link: &RootLink) -> Result<()> {
        let roots = self.core.store.tree(TreeId::ROOT)?;
        let bytes = RootRefEntry { dir: link.dir, index: link.index, name: &link.name }.build();
        for key in keys(link.parent, child) {
            txn.insert(&roots, &key, &bytes)?;
        }
        Ok(())
    }

    /// Removes the name of the subvolume `child` in `parent`; returns the position of the name.
    pub(crate) fn remove(&self, txn: &Txn, parent: TreeId, child: TreeId) -> Result<u64> {
        let Some(link) = self.get(parent, child)? else {
            return Err(missing_link(parent, child));
        };
        let roots = self.core.store.tree(TreeId::ROOT)?;
        for key in keys(parent, child) {
            if !txn.remove(&roots, &key)? {
                return Err(missing_link(parent, child));
            }
        }
        Ok(link.index)
    }
}

impl RootLink {
    fn parse(parent: TreeId, bytes: &[u8]) -> Result<Self, Corrupt> {
        let entry = RootRefEntry::parse(bytes)?;
        Ok(Self { parent, dir: entry.dir, index: entry.index, name: entry.name.into() })
    }
}

fn keys(parent: TreeId, child: TreeId) -> [Key; 2] {
    [Key::new(parent.0, item_type::ROOT_REF, child.0), Key::new(child.0, item_type::ROOT_BACKREF, parent.0)]
}

#[cold]
fn missing_link(parent: TreeId, child: TreeId) -> crate::Error {
    let [key, _] = keys(parent, child);
    let (expected, found) = (Detail::Text("the name of a subvolume"), Detail::Text("none"));
    Corrupt::new("root references", expected, found).at(At::Key(TreeId::ROOT, key)).into()
}
