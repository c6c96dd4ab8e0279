//! Replaces the extents of a range of a file, in one transaction. Called by `reflink`, `allocate` and `encoded_write`.
//!
//! The old extents are dropped in the transaction in which the new ones are inserted: no reader, and no crash,
//! finds the range without either. Longer ranges are replaced part by part ([`first_part`]), each
//! whole, and room for a part is reserved before anything of it changes.
//!
//! Callers hold the inode's `editing` lock: no item changes between [`first_part`] and [`exchange`].
//! Writers may make the range dirty meanwhile; the new contents count as later than those writes, unless the range
//! keeps its bytes.

use std::ops::Range;
use std::sync::Arc;

use btrfs_disk::convert::to_u64;
use btrfs_store::{Need, Txn};

use super::truncate::{covered, fill_holes, forget_layers, note_edit, sector};
use crate::error::Result;
use crate::extents::{DROPS_PER_ITEM, ExtentMap, NewExtent, SCAN_ITEMS_MAX, Target, replace_range};
use crate::inode::{Core, Inode, InodeFlags};
use crate::writeback::{ITEMS_PER_FILE, need_for};

/// Items of the old contents that one transaction replaces.
const OLD_ITEMS_MAX: usize = 256;

/// The relation between the old and the new contents of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Old {
    /// They differ: data of the range in memory is dropped, too.
    Replaced,
    /// They have the same bytes, in other extents: newer ones in memory stay, and so do the times.
    Same,
}

/// The new contents of a range of a file.
pub(super) struct Exchange<'a> {
    /// Whole sectors.
    pub(super) range: Range<u64>,
    /// The items within it, ascending; the rest of the range becomes a hole.
    pub(super) items: &'a [NewExtent],
    /// The file has at least so many bytes afterwards.
    pub(super) size: u64,
    /// Flags that the inode gets.
    pub(super) flags: InodeFlags,
    /// The relation to the old contents.
    pub(super) old: Old,
}

/// The first part of `range`, whole sectors, that one transaction can replace.
///
/// # Errors
/// Damage and I/O.
pub(super) fn first_part(core: &Core, inode: &Inode, range: Range<u64>) -> Result<Range<u64>> {
    let _layers = inode.data.inner.read();
    let (tree, ino) = (&inode.root.tree, inode.ino());
    let map = ExtentMap::load(tree, ino, range.clone(), OLD_ITEMS_MAX, sector(core))?;
    Ok(range.start..map.known().end.min(range.end))
}

/// Room for the items of one [`exchange`] that inserts `new_items`.
pub(super) fn need_to_exchange(new_items: usize) -> Need {
    let dropped = u32::try_from(OLD_ITEMS_MAX).unwrap_or(u32::MAX) / DROPS_PER_ITEM;
    let inserted = need_for(to_u64(new_items).saturating_add(1), 0);
    Need { items: inserted.items.saturating_add(dropped).saturating_add(ITEMS_PER_FILE), data: 0 }
}

/// Replaces a range that is no more than [`first_part`] said.
///
/// # Errors
/// Those of editing the trees; damage and I/O.
pub(super) fn exchange(core: &Core, inode: &Arc<Inode>, txn: Txn, what: &Exchange<'_>) -> Result<()> {
    let target =
        Target { txn: &txn, tree: &inode.root.tree, notes: &inode.root.notes, ino: inode.ino(), sector: sector(core) };
    let range = what.range.clone();
    let mut layers = inode.data.inner.write();
    let old = ExtentMap::load(target.tree, target.ino, range.clone(), SCAN_ITEMS_MAX, sector(core))?;
    let delta = replace_range(target, old.items(), range.clone(), what.items)?;
    let unused = match what.old {
        Old::Same => Vec::new(),
        Old::Replaced => forget_layers(core, &mut layers, range.clone()),
    };
    let disk_size = inode.state().disk_size;
    // Dirty data elsewhere may lie between: its flush sets the size.
    let new_disk_size = match layers.is_empty() {
        true => disk_size.max(what.size),
        false => disk_size,
    };
    let holes_from = match new_disk_size > disk_size {
        true => range.start.min(covered(core, disk_size)),
        false => range.start,
    };
    fill_holes(core, target, holes_from..range.end.min(covered(core, new_disk_size)))?;
    let kept_times = (what.old == Old::Same).then(|| {
        let state = inode.state();
        (state.mtime, state.ctime)
    });
    note_edit(core, inode, target, delta, |state| {
        if let Some(times) = kept_times {
            (state.mtime, state.ctime) = times;
        }
        state.size = state.size.max(what.size);
        state.disk_size = new_disk_size;
        state.flags |= what.flags;
    });
    if new_disk_size < what.size {
        core.data.list(inode);
    }
    inode.data.settle(layers);
    drop(txn);
    for extent in unused {
        core.store.free_unused(extent);
    }
    Ok(())
}
