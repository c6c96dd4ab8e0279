//! Removes inodes without names: their items go at once or in bounded steps. Called by `unlink` and `rename`, when the
//! last user of an inode goes (`vfs_impl`, `orphan`), and at the open of a volume (`subvol::startup`).
//!
//! ```text
//! named -> nameless, in use      an orphan item keeps it findable after a crash
//!       -> nameless, large       the same, and its extents go step by step
//!       -> gone
//! nameless -> gone               when it is not in use any more, or at the next open of the volume
//! ```
//!
//! An inode is in use while it is open or a server refers to it: a caller that found it by a name
//! continues with it, whatever the name leads to by then. Servers give most references back at once,
//! so the orphan item is staged, and in the tree only where a commit comes in between.

use btrfs_disk::items::FileExtent as DiskExtent;
use btrfs_disk::key::item_type;
use btrfs_disk::{InodeNo, Key, Logical};
use btrfs_store::{RefChange, Reservation, Txn};

use super::Namespace;
use crate::error::{Error, Result};
use crate::extents::{DROPS_PER_ITEM, FILE_BYTES_MAX, Target, drop_items, drops_for};
use crate::inode::{Inode, InodeFlags, Timestamp, orphan_key};
use crate::locks::MutexGuard;

/// Items that the removal of a small inode without extents may change.
const SMALL_ITEMS: u32 = 8;
/// Extents up to this many bytes go together with the name.
const SMALL_BYTES_MAX: u64 = 1 << 20;
/// File bytes that one reserved item is counted for, of a small inode.
const BYTES_PER_ITEM: u64 = 32 << 10;
/// Extents dropped by one handle, of a large inode.
const STEP_EXTENTS: u32 = 128;

/// The effect of the loss of a name on an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LastName {
    /// Other names remain, or it is in use.
    No,
    /// The inode is removed in the same handle.
    Small,
    /// The inode becomes an orphan and is removed in steps.
    Large,
}

/// The loss of a name, decided before the handle begins. The inode keeps its link count and its data in memory until
/// the handle removes the name: a commit between the two has the file in its old state, with the data that a sync wrote
/// of it.
#[must_use = "the file's data cannot be flushed until this is dropped"]
pub(crate) struct NameLoss<'a> {
    last: LastName,
    /// The inode's `editing` lock: no flush stages the inode, or inserts extents, while its items are removed.
    _editing: Option<MutexGuard<'a, ()>>,
}

impl NameLoss<'_> {
    /// No inode loses a name.
    pub(crate) const NONE: Self = Self { last: LastName::No, _editing: None };

    /// Permits flushes of the file again, once the handle that removed the name has ended.
    pub(crate) fn end(self) -> LastName {
        self.last
    }
}

impl Namespace {
    /// Decides what happens to `inode` when it loses one name, in a handle with `reservation`, which on a full volume
    /// may be less than was asked for. Unless the inode stays, it cannot be opened from here on. Waits for a flush of
    /// the file. The caller holds its `names` lock.
    pub(crate) fn begin_last_name<'a>(&self, inode: &'a Inode, reservation: &Reservation) -> NameLoss<'a> {
        if !inode.begin_removal() {
            return NameLoss::NONE;
        }
        let editing = inode.data.editing.lock();
        NameLoss {
            last: match goes_at_once(inode, reservation) {
                true => LastName::Small,
                false => LastName::Large,
            },
            _editing: Some(editing),
        }
    }

    /// Takes one off `inode`'s link count; with the last, the inode is removed or becomes an orphan.
    pub(crate) fn drop_name(&self, txn: &Txn, inode: &Inode, loss: &NameLoss<'_>, now: Timestamp) -> Result<()> {
        if loss.last != LastName::No {
            crate::writeback::discard_held(&self.core, inode);
        }
        if loss.last == LastName::Small {
            // A server may still refer to it.
            inode.change_in_memory(|state| state.ctime = now);
            return self.remove_items(txn, inode);
        }
        if inode.state().nlink <= 1 {
            // Before the count: the last user removes the inode as soon as that is 0.
            self.insert_orphan(txn, inode);
        }
        inode.change(txn, |state| {
            state.nlink = state.nlink.saturating_sub(1);
            state.ctime = now;
        });
        Ok(())
    }

    /// Stages an orphan item for `inode`, for the next open after a crash.
    pub(crate) fn insert_orphan(&self, txn: &Txn, inode: &Inode) {
        txn.stage_insert(&inode.root.tree, &orphan_key(inode.ino()), Vec::new());
    }

    /// As [`Namespace::insert_orphan`], for an inode that may have the item already.
    ///
    /// # Errors
    /// When the tree cannot be read or changed.
    pub(crate) fn put_orphan(&self, txn: &Txn, inode: &Inode) -> Result<()> {
        Ok(txn.put(&inode.root.tree, &orphan_key(inode.ino()), &[])?)
    }

    /// Removes the orphan item: the inode got a name, or is removed.
    pub(crate) fn remove_orphan(&self, txn: &Txn, inode: &Inode) -> Result<()> {
        let key = orphan_key(inode.ino());
        if !txn.unstage(&inode.root.tree, &key) {
            txn.remove(&inode.root.tree, &key)?;
        }
        Ok(())
    }

    /// Items to reserve for the loss of `inode`'s last name.
    pub(crate) fn removal_items(inode: &Inode) -> u32 {
        let extents = inode.state().nbytes.min(SMALL_BYTES_MAX) / BYTES_PER_ITEM;
        SMALL_ITEMS + 2 * u32::try_from(extents).unwrap_or(u32::MAX / 4)
    }

    /// Removes all items of an inode without names, and drops the references of its extents.
    fn remove_items(&self, txn: &Txn, inode: &Inode) -> Result<()> {
        if inode.root.find_next_ino().is_err() {
            // The number may be given to another inode, which a log cannot record.
            txn.require_commit();
        }
        let (tree, ino) = (&inode.root.tree, inode.ino());
        let (from, to) = (Key::new(ino.0, 0, 0), Key::new(ino.0, u8::MAX, u64::MAX));
        let mut drops = Vec::new();
        let mut failure = None;
        inode.set_gone();
        txn.unstage(tree, &inode.key());
        txn.remove_range(tree, &from, &to, |key, bytes| {
            if key.item_type == item_type::EXTENT_DATA {
                match dropped_reference(inode, key, bytes) {
                    Ok(change) => drops.extend(change),
                    Err(error) => failure = Some(error),
                }
            }
        })?;
        if let Some(error) = failure {
            return Err(error);
        }
        for change in drops {
            txn.ref_change(change)?;
        }
        self.core.inodes.remove(inode.tree_id(), ino);
        Ok(())
    }

    /// Finishes a removal, when the handle that dropped the name has ended and no lock is held.
    ///
    /// # Errors
    /// As [`Namespace::reap`].
    pub(crate) fn finish_removal(&self, inode: &Inode, last: LastName) -> Result<()> {
        match last {
            LastName::Small => Ok(()),
            LastName::Large => self.reap(inode),
            LastName::No => self.reap_if_last(inode),
        }
    }

    /// Removes the inode when it has no names and is not in use.
    ///
    /// # Errors
    /// As [`Namespace::reap`].
    pub(crate) fn reap_if_last(&self, inode: &Inode) -> Result<()> {
        if inode.root.is_deleted() {
            // It is removed with its tree, which waits until none is in use.
            if self.core.inodes.remove_unused(inode) {
                crate::writeback::discard(&self.core, inode);
            }
            return Ok(());
        }
        if inode.claim_removal() { self.reap(inode) } else { Ok(()) }
    }

    /// Removes an inode without names that is not in use: a large one's extents in steps, then the
    /// rest.
    ///
    /// # Errors
    /// When a tree cannot be read or changed: the orphan item is still there then.
    fn reap(&self, inode: &Inode) -> Result<()> {
        crate::writeback::discard(&self.core, inode);
        let mut reservation = self.reserve_urgent(Self::removal_items(inode))?;
        if !goes_at_once(inode, &reservation) {
            drop(reservation);
            while !self.drop_extents_step(inode)? {}
            self.drop_verity_items(inode)?;
            reservation = self.reserve_urgent(SMALL_ITEMS)?;
        }
        self.apply(reservation, |txn| {
            self.remove_orphan(txn, inode)?;
            self.remove_items(txn, inode)
        })
    }

    /// Drops some extents from the end of the file; true when none is left.
    fn drop_extents_step(&self, inode: &Inode) -> Result<bool> {
        if inode.state().nbytes == 0 {
            return Ok(true);
        }
        let step_items = STEP_EXTENTS / DROPS_PER_ITEM + SMALL_ITEMS;
        let reservation = self.reserve_urgent(step_items)?;
        let extents = drops_for(&reservation, STEP_EXTENTS);
        self.apply(reservation, |txn| {
            let target = Target {
                txn,
                tree: &inode.root.tree,
                notes: &inode.root.notes,
                ino: inode.ino(),
                sector: self.core.store.sizes().sector,
            };
            let step = drop_items(target, 0..FILE_BYTES_MAX, extents)?;
            inode.change(txn, |state| {
                state.nbytes = step.delta.apply_to(state.nbytes);
                state.set_sizes(state.disk_size.min(step.dropped_from));
            });
            Ok(step.is_done)
        })
    }

    /// Removes the orphans of a subvolume, left from before the volume was closed.
    ///
    /// # Errors
    /// When a tree cannot be read or changed.
    pub(crate) fn remove_orphans(&self, root: &crate::inode::Root) -> Result<()> {
        let (from, to) = (orphan_key(InodeNo(0)), orphan_key(InodeNo(u64::MAX)));
        let mut orphans = Vec::new();
        root.tree.scan(&from, &to, |key, _| {
            orphans.push(InodeNo(key.offset));
            Ok(btrfs_store::Scan::Continue)
        })?;
        for ino in orphans {
            match self.core.inode(root.id, ino) {
                Ok(inode) if inode.state().nlink == 0 => self.reap_if_last(&inode)?,
                // A truncation was interrupted, or fs-verity's items were being written.
                Ok(inode) => {
                    if !inode.state().flags.contains(InodeFlags::RO_VERITY) {
                        self.drop_verity_items(&inode)?;
                    }
                    self.remove_stale_orphan(root, ino)?;
                }
                // The inode is gone: only the item is left.
                Err(error) if error.is_not_found() => self.remove_stale_orphan(root, ino)?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn remove_stale_orphan(&self, root: &crate::inode::Root, ino: InodeNo) -> Result<()> {
        let reservation = self.reserve_urgent(1)?;
        self.apply(reservation, |txn| {
            txn.remove(&root.tree, &orphan_key(ino))?;
            Ok(())
        })
    }
}

/// True for an inode all of whose items can be removed in one handle.
fn goes_at_once(inode: &Inode, reservation: &Reservation) -> bool {
    let promised = reservation.items_left();
    let is_small = inode.state().nbytes <= SMALL_BYTES_MAX && !Namespace::has_large_tree(inode);
    is_small && promised >= Namespace::removal_items(inode).into()
}

/// The reference dropped with a file extent item; `None` for inline data and holes.
fn dropped_reference(inode: &Inode, key: &Key, bytes: &[u8]) -> Result<Option<RefChange>> {
    let extent = DiskExtent::parse(bytes)
        .map_err(|corrupt| Error::from(corrupt.at(btrfs_disk::At::Key(inode.tree_id(), *key))))?;
    let DiskExtent::Extent(item) = extent else {
        return Ok(None);
    };
    let (at, len) = (item.disk_bytenr.get(), item.disk_num_bytes.get());
    Ok((at != 0).then(|| RefChange::DropData {
        at: Logical(at),
        len,
        root: inode.tree_id(),
        inode: inode.ino(),
        offset: key.offset.wrapping_sub(item.offset.get()),
        parent: None,
    }))
}
