//! Inserts written data into the trees. Called by `run` when a job's data is on disk.

use btrfs_disk::Generation;
use btrfs_disk::flags::Incompat;
use btrfs_store::Txn;
use codec::CompressionType;

use super::disk::is_in_one_group;
use super::job::Job;
use super::pending_extents;
use super::plan::EXTENT_BYTES_MAX;
use crate::error::Result;
use crate::extents::{BytesDelta, FileExtent, Kind, NewExtent, Target, fill_gaps, replace};
use crate::inode::{Core, feature_of};
use crate::locks::WriteGuard;

/// Items that are inserted while readers and writers of the file wait.
const HELD_ITEMS: usize = 64;

/// Inserts the result of a job: extents, checksums, references, size and `nbytes`, in one transaction. Readers find the
/// file's bytes in one place or the other: the flight covers the items until all of them are inserted.
///
/// # Errors
/// Those of editing the trees; the store then fails the transaction.
pub(super) fn finish(core: &Core, job: &mut Job<'_>) -> Result<()> {
    let inode = job.inode;
    let data = &inode.data;
    let sector = core.store.sizes().sector;
    let txn = std::mem::take(&mut job.out.receipt).begin(&core.store)?;
    let target = Target { txn: &txn, tree: &inode.root.tree, notes: &inode.root.notes, ino: inode.ino(), sector };
    // A reader that finds an item finds its checksums too.
    for extent in &job.flight.pending {
        if !extent.csums.is_empty() {
            txn.put_csums(extent.at, &extent.csums)?;
        }
    }
    for (at, csums) in &job.out.made.csums {
        txn.put_csums(*at, csums)?;
    }
    // Pending extents are older than the pages: ranges that both cover get the pages' items.
    add_features(&txn, &job.out.made.items);
    let mut older = pending_extents::to_items(&job.flight.pending);
    join(core, older.last_mut(), &mut job.out.made.items);
    stamp(&mut older, txn.generation());
    stamp(&mut job.out.made.items, txn.generation());
    let mut delta = BytesDelta::default();
    let mut layers = data.inner.write();
    let parts = older.chunks(HELD_ITEMS).chain(job.out.made.items.chunks(HELD_ITEMS));
    for (index, part) in parts.enumerate() {
        if index > 0 {
            data.forget_map();
            WriteGuard::bump(&mut layers);
        }
        let is_inline = part.iter().any(|new| new.extent.kind == Kind::Inline);
        let inline: &[u8] = if is_inline { &job.out.made.inline } else { &[] };
        delta.add(replace(target, part, inline)?);
    }
    let disk_size = inode.state().disk_size;
    if !core.store.has_incompat(Incompat::NO_HOLES.bits()) {
        let covered = |size: u64| size.next_multiple_of(u64::from(sector));
        fill_gaps(target, covered(disk_size)..covered(job.size))?;
    }
    inode.change(&txn, |state| {
        state.disk_size = state.disk_size.max(job.size);
        state.nbytes = delta.apply_to(state.nbytes);
    });
    data.forget_map();
    layers.flight = None;
    if layers.is_empty() {
        layers.receipt = crate::inode::Receipt::default();
        core.data.unlist(inode);
    }
    // A commit would free the replaced extents.
    data.settle(layers);
    drop(txn);
    Ok(())
}

/// Joins the last extent of a large write and the first one from pages, where both are adjacent in the file and on
/// disk.
fn join(core: &Core, last: Option<&mut NewExtent>, items: &mut Vec<NewExtent>) {
    let (Some(NewExtent { extent: last, .. }), Some(first)) = (last, items.first()) else { return };
    let new = &first.extent;
    let len = last.len.saturating_add(new.len);
    let is_plain = first.is_fresh && new.kind == Kind::Regular && new.compression == 0 && new.disk_len == new.len;
    let touches = last.end() == new.start && last.disk.0.saturating_add(last.disk_len) == new.disk.0;
    if is_plain && touches && len <= EXTENT_BYTES_MAX && is_in_one_group(core, last.disk, len) {
        *last = FileExtent::whole(last.start, Kind::Regular, last.disk, len);
        items.remove(0);
    }
}

/// Sets the feature bits that a reader of this compression needs.
fn add_features(txn: &Txn, items: &[NewExtent]) {
    let kinds = items.iter().filter_map(|new| CompressionType::from_raw(new.extent.compression));
    let features = kinds.filter_map(feature_of).fold(Incompat::empty(), Incompat::union);
    if !features.is_empty() {
        txn.add_incompat(features.bits());
    }
}

/// Items carry the transaction that wrote their data.
fn stamp(items: &mut [NewExtent], generation: Generation) {
    for item in items {
        item.extent.generation = generation;
    }
}
