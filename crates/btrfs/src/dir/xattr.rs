//! Reads and changes extended attributes, ACLs among them: bytes under a name, in `XATTR_ITEM`s by hash. Called by
//! `vfs_impl`.

use btrfs_disk::Key;
use btrfs_disk::convert::to_usize;
use btrfs_disk::hash::name_hash;
use btrfs_disk::items::{DirEntry as DiskEntry, DirItem, splice};
use btrfs_disk::key::item_type;
use btrfs_store::{EditItem, Scan, Txn};

use super::create::check_xattr;
use super::{Namespace, XattrMode, check_changeable};
use crate::error::{CallerError, Result};
use crate::inode::{EMPTY_SUBVOL_INO, Inode};

/// Items that a change of an attribute changes: its own, and the inode's.
const XATTR_ITEMS: u32 = 2;
/// Bytes of all names of an inode's attributes, as `listxattr(2)` bounds them.
const LIST_BYTES_MAX: u64 = 64 << 10;

impl Namespace {
    /// The value of an attribute; `None` when there is none of that name.
    ///
    /// # Errors
    /// When the tree cannot be read.
    pub(crate) fn get_xattr(&self, inode: &Inode, name: &[u8]) -> Result<Option<Vec<u8>>> {
        if inode.ino() == EMPTY_SUBVOL_INO {
            return Ok(None);
        }
        let value = inode.root.tree.get_with(&key(inode, name), |bytes| {
            Ok::<_, btrfs_disk::Corrupt>(DiskEntry::find(bytes, name)?.map(|(entry, _)| entry.data.to_vec()))
        })?;
        Ok(value.transpose()?.flatten())
    }

    /// The names of all attributes, in the order of their hashes.
    ///
    /// # Errors
    /// When the tree cannot be read.
    pub(crate) fn list_xattrs(&self, inode: &Inode) -> Result<Vec<Vec<u8>>> {
        if inode.ino() == EMPTY_SUBVOL_INO {
            return Ok(Vec::new());
        }
        let end = |offset| Key::new(inode.ino().0, item_type::XATTR_ITEM, offset);
        let (mut names, mut room) = (Vec::new(), to_usize(LIST_BYTES_MAX));
        inode.root.tree.scan(&end(0), &end(u64::MAX), |_, bytes| {
            for entry in DiskEntry::iter(bytes) {
                let entry = entry?;
                room = room.saturating_sub(entry.name.len() + 1);
                names.push(entry.name.to_vec());
            }
            Ok(if room > 0 { Scan::Continue } else { Scan::Stop })
        })?;
        Ok(names)
    }

    /// Sets an attribute.
    ///
    /// # Errors
    /// `Exists` or `NoAttribute` as `mode` says, `AttributeTooLarge`, `NameTooLong`, `NoSpace`
    /// (names of one hash fill a leaf), `ReadOnly`, `NotPermitted` (immutable).
    pub(crate) fn set_xattr(&self, inode: &Inode, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        let bytes_max = self.xattr_bytes_max();
        check_xattr(name, value, bytes_max)?;
        self.edit_xattr(inode, name, |old, generation| {
            let found = DiskEntry::find(old, name)?.map(|(_, range)| range);
            let refusal = match (mode, &found) {
                (XattrMode::Create, Some(_)) => Some(CallerError::Exists),
                (XattrMode::Replace, None) => Some(CallerError::NoAttribute),
                _ => None,
            };
            if let Some(refusal) = refusal {
                return Ok(Err(refusal));
            }
            let range = found.unwrap_or(old.len()..old.len());
            let new = DiskEntry::build_xattr(generation, name, value);
            let item = splice(old, &range, &new);
            if item.len() > bytes_max + size_of::<DirItem>() {
                return Ok(Err(CallerError::AttributeTooLarge));
            }
            Ok(Ok(EditItem::Put(item)))
        })
    }

    /// Removes an attribute.
    ///
    /// # Errors
    /// `NoAttribute`, `ReadOnly`, `NotPermitted` (immutable).
    pub(crate) fn remove_xattr(&self, inode: &Inode, name: &[u8]) -> Result<()> {
        self.edit_xattr(inode, name, |old, _| {
            Ok(match DiskEntry::find(old, name)?.map(|(_, range)| range) {
                None => Err(CallerError::NoAttribute),
                Some(range) if range == (0..old.len()) => Ok(EditItem::Remove),
                Some(range) => Ok(EditItem::Put(splice(old, &range, &[]))),
            })
        })
    }

    /// Sets an attribute, or removes it, as one of several changes. The caller holds the inode's
    /// sole `names` lock and has checked that it may change.
    ///
    /// # Errors
    /// `AttributeTooLarge`, `NameTooLong`: before anything has changed.
    pub(crate) fn put_xattr(&self, txn: &Txn, inode: &Inode, name: &[u8], value: Option<&[u8]>) -> Result<()> {
        let bytes_max = self.xattr_bytes_max();
        check_xattr(name, value.unwrap_or_default(), bytes_max)?;
        inode.absent.clear();
        let new = value.map(|value| DiskEntry::build_xattr(txn.generation(), name, value));
        let new = new.unwrap_or_default();
        let mut is_too_large = false;
        note_items(txn, inode);
        txn.edit(&inode.root.tree, &key(inode, name), |old| {
            let old = old.unwrap_or_default();
            let range = DiskEntry::find(old, name)?.map_or(old.len()..old.len(), |(_, range)| range);
            let item = splice(old, &range, &new);
            is_too_large = item.len() > bytes_max + size_of::<DirItem>();
            Ok(match item.len() {
                _ if is_too_large || item == old => EditItem::Keep,
                0 => EditItem::Remove,
                _ => EditItem::Put(item),
            })
        })?;
        if is_too_large {
            return Err(CallerError::AttributeTooLarge.into());
        }
        Ok(())
    }

    fn edit_xattr(
        &self,
        inode: &Inode,
        name: &[u8],
        edit: impl Fn(&[u8], btrfs_disk::Generation) -> btrfs_store::Result<Result<EditItem, CallerError>>,
    ) -> Result<()> {
        inode.check_writable()?;
        check_changeable(inode)?;
        if needs_write_permission(name) {
            inode.check_not_read_only()?;
        }
        if inode.ino() == EMPTY_SUBVOL_INO {
            return Err(CallerError::NotPermitted.into());
        }
        let reservation = self.reserve_in(inode.tree_id(), XATTR_ITEMS)?;
        let _names = inode.lock_names();
        inode.absent.clear();
        self.apply(reservation, |txn| {
            let mut refusal = None;
            note_items(txn, inode);
            txn.edit(&inode.root.tree, &key(inode, name), |old| {
                match edit(old.unwrap_or_default(), txn.generation())? {
                    Ok(item) => Ok(item),
                    Err(what) => {
                        refusal = Some(what);
                        Ok(EditItem::Keep)
                    }
                }
            })?;
            if let Some(what) = refusal {
                return Err(what.into());
            }
            let now = self.core.now();
            inode.change(txn, |state| state.ctime = now);
            Ok(())
        })
    }
}

fn key(inode: &Inode, name: &[u8]) -> Key {
    Key::new(inode.ino().0, item_type::XATTR_ITEM, name_hash(name))
}

fn note_items(txn: &Txn, inode: &Inode) {
    inode.note(txn, |note| note.has_new_items = true);
}

/// Linux asks for write permission on the inode, except for names that it guards otherwise.
fn needs_write_permission(name: &[u8]) -> bool {
    let guarded: [&[u8]; 3] = [b"security.", b"system.", b"trusted."];
    !guarded.iter().any(|prefix| name.starts_with(prefix))
}
