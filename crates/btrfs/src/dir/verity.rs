//! Protects files by fs-verity, and removes the items of that. Called by `volume::verity`; removals of inodes use the
//! steps.
//!
//! ```text
//! plain -> being protected     an orphan item: after a crash the next open of the volume removes the tree's items
//!       -> protected           the flag is set and the orphan item removed in one handle
//! ```
//!
//! The tree takes several transactions, as it may be large. A file that is written to meanwhile stays unprotected.

use std::sync::Arc;

use btrfs_disk::Key;
use btrfs_disk::convert::{to_u64, to_usize};
use btrfs_disk::flags::CompatRo;
use btrfs_disk::items::{OnDisk as _, VerityDescriptorItem};
use btrfs_disk::key::item_type;
use btrfs_store::{Scan, Txn};
use codec::verity::{BLOCK_SIZE, Builder, TreeOptions};

use super::Namespace;
use crate::error::{CallerError, Result};
use crate::file;
use crate::inode::{Change, Inode, InodeFlags};
use crate::writeback;

/// Bytes of an item of a tree or descriptor, as Linux writes them: small leaves have room for some.
const ITEM_BYTES: usize = 2048;
/// Items of a tree that one handle writes.
const STEP_ITEMS: u32 = 64;
/// Items that the last handle changes: the inode, its orphan item, and those of the descriptor.
const LAST_ITEMS: u32 = 4;
/// Contents whose tree has more than a few items.
const LARGE_BYTES_MIN: u64 = 1 << 20;
/// Bytes of contents that are read at a time: whole blocks.
const READ_BYTES: usize = 1 << 20;

/// An item of a tree.
type TreeItem = (Key, Vec<u8>);

impl Namespace {
    /// Protects a file: from here on its contents are read only as they are now, and nobody writes to them. Returns the
    /// descriptor.
    ///
    /// # Errors
    /// `InvalidArgument` for what is no file and for options that make no tree, `Exists` for a file that is protected,
    /// `Busy` for one that changed meanwhile; `NotPermitted`, `ReadOnly`, `NoSpace`; damage and I/O.
    pub(crate) fn protect(&self, inode: &Arc<Inode>, options: &TreeOptions) -> Result<Vec<u8>> {
        inode.check_writable()?;
        if !inode.kind().is_file() {
            return Err(CallerError::InvalidArgument.into());
        }
        if inode.state().flags.contains(InodeFlags::RO_VERITY) {
            return Err(CallerError::Exists.into());
        }
        inode.check_permits(Change::Other)?;
        self.core
            .within_quotas(|| self.core.store.check_quota(inode.tree_id()), || writeback::flush_all(&self.core))?;
        writeback::flush_inode(&self.core, inode)?;
        let size = inode.state().size;
        let builder = Builder::new(options.clone(), size).map_err(|_| CallerError::InvalidArgument)?;
        let before = inode.change_count();
        self.apply(self.reserve(1)?, |txn| self.put_orphan(txn, inode))?;
        self.drop_verity_items(inode)?;
        let made = self.write_tree(inode, builder, size);
        let made = made.and_then(|descriptor| self.finish_tree(inode, (before, size), descriptor));
        if made.is_err() {
            // The orphan item stays where this fails, and the next open of the volume tries again.
            let _ = self.drop_verity_items(inode).and_then(|()| self.unmark(inode));
        }
        made
    }

    /// Writes the tree of a file, and returns the descriptor.
    fn write_tree(&self, inode: &Arc<Inode>, mut builder: Builder, size: u64) -> Result<Vec<u8>> {
        let mut items: Vec<TreeItem> = Vec::new();
        let number = inode.ino().0;
        let write = |items: &mut Vec<TreeItem>, index: u64, block: &[u8]| -> Result<()> {
            let at = index.saturating_mul(to_u64(BLOCK_SIZE));
            for (part, offset) in block.chunks(ITEM_BYTES).zip((at..).step_by(ITEM_BYTES)) {
                items.push((Key::new(number, item_type::VERITY_MERKLE_ITEM, offset), part.to_vec()));
            }
            match to_u64(items.len()) >= u64::from(STEP_ITEMS) {
                true => self.write_tree_items(inode, items),
                false => Ok(()),
            }
        };
        let (mut at, mut buffer) = (0, vec![0; READ_BYTES.min(to_usize(size))]);
        while at < size {
            let count = file::read_at(&self.core, inode, at, &mut buffer)?;
            let data = buffer.get(..count).filter(|data| !data.is_empty()).ok_or(CallerError::Busy)?;
            for block in data.chunks(BLOCK_SIZE) {
                builder.add(block, &mut |index, block| write(&mut items, index, block))?;
            }
            at = at.saturating_add(to_u64(count));
        }
        let descriptor = builder.finish(&mut |index, block| write(&mut items, index, block))?;
        self.write_tree_items(inode, &mut items)?;
        Ok(descriptor.ok_or(CallerError::Busy)?)
    }

    fn write_tree_items(&self, inode: &Inode, items: &mut Vec<TreeItem>) -> Result<()> {
        // A block of an upper level becomes complete after those below it, whose keys are larger.
        items.sort_unstable_by_key(|(key, _)| *key);
        let reservation = self.reserve(u32::try_from(items.len()).unwrap_or(u32::MAX))?;
        let batch: Vec<(Key, &[u8])> = items.iter().map(|(key, bytes)| (*key, bytes.as_slice())).collect();
        self.apply(reservation, |txn| Ok(txn.insert_batch(&inode.root.tree, &batch)?))?;
        items.clear();
        Ok(())
    }

    /// Writes the descriptor, and makes the tree count.
    fn finish_tree(&self, inode: &Arc<Inode>, was: (u64, u64), descriptor: Vec<u8>) -> Result<Vec<u8>> {
        let head = VerityDescriptorItem { size: to_u64(descriptor.len()).into(), ..VerityDescriptorItem::default() };
        let _stay = self.core.data.stay();
        let _editing = inode.data.editing.lock();
        let reservation = self.reserve_urgent(LAST_ITEMS)?;
        if (inode.change_count(), inode.state().size) != was || !inode.data.is_clean() {
            return Err(CallerError::Busy.into());
        }
        let key = |offset| Key::new(inode.ino().0, item_type::VERITY_DESC_ITEM, offset);
        self.apply(reservation, |txn| {
            let tree = &inode.root.tree;
            txn.insert(tree, &key(0), head.bytes())?;
            for (part, offset) in descriptor.chunks(ITEM_BYTES).zip((1..).step_by(ITEM_BYTES)) {
                txn.insert(tree, &key(offset), part)?;
            }
            self.remove_orphan(txn, inode)?;
            inode.change(txn, |state| state.flags |= InodeFlags::RO_VERITY);
            txn.add_compat_ro(CompatRo::VERITY.bits());
            // A log has no items of trees.
            txn.require_commit();
            Ok(())
        })?;
        Ok(descriptor)
    }

    fn unmark(&self, inode: &Inode) -> Result<()> {
        self.apply(self.reserve_urgent(1)?, |txn| self.remove_orphan(txn, inode))
    }

    /// Removes the items of a tree that does not count, or of a file that is being removed.
    ///
    /// # Errors
    /// When a tree cannot be read or changed: some items may be left then.
    pub(super) fn drop_verity_items(&self, inode: &Inode) -> Result<()> {
        let key = |item_type, offset| Key::new(inode.ino().0, item_type, offset);
        let (from, to) = (key(item_type::VERITY_DESC_ITEM, 0), key(item_type::VERITY_MERKLE_ITEM, u64::MAX));
        loop {
            let (mut last, mut count) = (None, 0);
            inode.root.tree.scan(&from, &to, |key, _| {
                (last, count) = (Some(*key), count + 1);
                Ok(if count < STEP_ITEMS { Scan::Continue } else { Scan::Stop })
            })?;
            let Some(last) = last else { return Ok(()) };
            self.apply(self.reserve_urgent(count)?, |txn: &Txn| {
                txn.remove_range(&inode.root.tree, &from, &last, |_, _| ())?;
                Ok(())
            })?;
        }
    }

    /// True for a file whose tree has more items than go with the inode's own.
    pub(super) fn has_large_tree(inode: &Inode) -> bool {
        let state = inode.state();
        state.flags.contains(InodeFlags::RO_VERITY) && state.size > LARGE_BYTES_MIN
    }
}
