//! Replays inode items and attributes. Called by the replay for each inode.

use btrfs_disk::items::{DirEntry, OnDisk};
use btrfs_disk::key::item_type;
use btrfs_disk::{Detail, Generation, InodeNo, Key};
use btrfs_store::EditItem;
use btrfs_store::ablation::{Mutation, mutated};

use super::Replay;
use super::log_tree::copy_items;
use super::names::Removed;
use crate::error::{Result, corrupt_inode};
use crate::extents::FILE_BYTES_MAX;
use crate::inode::{FileType, Inode, InodeFlags, InodeState};

/// Items that the change of an inode or of an attribute changes.
const INODE_ITEMS: usize = 2;
/// Attributes looked at with one search.
const ATTRIBUTES_PER_BATCH: usize = 64;

impl Replay<'_> {
    /// Replays an inode item: the inode exists afterwards, with the fields in the log.
    pub(super) fn inode(&mut self, ino: InodeNo, bytes: &[u8]) -> Result<()> {
        let logged = InodeState::from_item(bytes)?;
        let Some(kind) = FileType::from_mode(logged.mode) else {
            let expected = Detail::Text("the type bits of a kind of file");
            return Err(self.wrong_mode(ino, expected, &logged));
        };
        self.remove_attributes(ino)?;
        if kind.is_dir() {
            self.remove_names(ino, Removed::NotInLog)?;
        }
        match self.find(ino)? {
            Some(inode) if inode.kind() != kind => {
                let expected = Detail::Octal(inode.kind().mode_bits().into());
                return Err(self.wrong_mode(ino, expected, &logged));
            }
            Some(inode) => self.overwrite(&inode, logged)?,
            None => self.create(ino, kind, logged)?,
        }
        if kind.is_file() {
            self.cut_to_size(ino)?;
        }
        self.touched.insert(ino);
        Ok(())
    }

    fn wrong_mode(&self, ino: InodeNo, expected: Detail, logged: &InodeState) -> crate::Error {
        let found = Detail::Octal(logged.mode.into());
        corrupt_inode(self.root.id, ino, "mode in the log", expected, found)
    }

    /// Creates an inode; bytes of extents and length of names are counted when those are replayed.
    fn create(&self, ino: InodeNo, kind: FileType, logged: InodeState) -> Result<()> {
        self.change(INODE_ITEMS, |txn| {
            let mut state = logged;
            state.nbytes = 0;
            state.flags.remove(InodeFlags::RO_VERITY);
            if kind.is_dir() {
                state.set_sizes(0);
            }
            if state.generation == Generation(0) {
                state.generation = txn.generation();
            }
            let key = Key::new(ino.0, item_type::INODE_ITEM, 0);
            txn.insert(&self.root.tree, &key, state.to_item().bytes())?;
            Ok(())
        })
    }

    /// Generation 0 marks an inode of which the log has only its existence, and of a file perhaps its size: a size of 0
    /// means nothing then.
    fn overwrite(&self, inode: &Inode, logged: InodeState) -> Result<()> {
        self.change(INODE_ITEMS, |txn| {
            if logged.generation == Generation(0) {
                if inode.kind().is_file() && logged.disk_size != 0 {
                    inode.change(txn, |state| state.set_sizes(logged.disk_size));
                }
                return Ok(());
            }
            inode.change(txn, |state| {
                let (nbytes, size, protected) = (state.nbytes, state.disk_size, state.flags & InodeFlags::RO_VERITY);
                if mutated(Mutation::AttributesNotReplayed) {
                    state.set_sizes(logged.disk_size);
                } else {
                    *state = logged;
                }
                state.nbytes = nbytes;
                // A log has no items of fs-verity: only the tree knows whether there are any.
                state.flags.remove(InodeFlags::RO_VERITY);
                state.flags |= protected;
                if inode.kind().is_dir() {
                    state.set_sizes(size);
                }
            });
            Ok(())
        })
    }

    /// Cuts a file to its size before extents are replayed: extents beyond the end may be preallocated, and stay.
    fn cut_to_size(&self, ino: InodeNo) -> Result<()> {
        let inode = self.inode_of(ino)?;
        let sector = u64::from(self.namespace.core.store.sizes().sector);
        let size = inode.state().disk_size;
        let start = size.checked_next_multiple_of(sector);
        match start.filter(|start| *start < FILE_BYTES_MAX) {
            Some(start) => self.drop_extents(&inode, start..FILE_BYTES_MAX),
            None => Ok(()),
        }
    }

    /// Removes attributes that the log does not have: it always has all of an inode's.
    fn remove_attributes(&self, ino: InodeNo) -> Result<()> {
        let tree = &self.root.tree;
        let last = Key::new(ino.0, item_type::XATTR_ITEM, u64::MAX);
        let mut next = Some(Key::new(ino.0, item_type::XATTR_ITEM, 0));
        while let Some(from) = next {
            let batch = copy_items(tree, &from, &last, ATTRIBUTES_PER_BATCH)?;
            next = batch.last().and_then(|(key, _)| key.next());
            for (key, bytes) in &batch {
                let mut kept = Vec::with_capacity(bytes.len());
                let mut rest = bytes.as_slice();
                while !rest.is_empty() {
                    let (entry, after) = DirEntry::parse_prefix(rest)?;
                    if self.log.has_attribute(ino, entry.name)? {
                        kept.extend(rest.iter().take(rest.len().saturating_sub(after.len())));
                    }
                    rest = after;
                }
                if kept != *bytes {
                    self.put_attributes(key, &kept)?;
                }
            }
        }
        Ok(())
    }

    /// Replays an item of attributes.
    pub(super) fn attribute(&self, key: &Key, bytes: &[u8]) -> Result<()> {
        self.put_attributes(key, bytes)
    }

    fn put_attributes(&self, key: &Key, bytes: &[u8]) -> Result<()> {
        self.change(INODE_ITEMS, |txn| {
            txn.edit(&self.root.tree, key, |old| {
                Ok(match old {
                    _ if !bytes.is_empty() => EditItem::Put(bytes.to_vec()),
                    Some(_) => EditItem::Remove,
                    None => EditItem::Keep,
                })
            })?;
            Ok(())
        })
    }
}
