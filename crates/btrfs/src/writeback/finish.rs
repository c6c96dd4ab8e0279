//! Written data enters the trees.

use btrfs_disk::Generation;
use btrfs_disk::flags::Incompat;

use super::job::Job;
use super::pending;
use crate::error::Result;
use crate::extents::{BytesDelta, NewExtent, Target, fill_gaps, replace};
use crate::inode::Core;

/// Inserts what a job wrote: extents, checksums, references, size and `nbytes`, in one
/// transaction. Readers wait, so they see the file's bytes in one place or the other.
///
/// # Errors
/// What editing the trees fails with; the store then fails the transaction.
pub(super) fn finish(core: &Core, job: &mut Job<'_>) -> Result<()> {
    let inode = job.inode;
    let sector = core.store.sizes().sector;
    let mut layers = inode.data.inner.write();
    let txn = std::mem::take(&mut job.receipt).begin(&core.store)?;
    let tree = &*inode.root.tree;
    let target = Target {
        txn: &txn,
        tree,
        ino: inode.ino(),
        sector,
    };
    let mut delta = BytesDelta::default();

    // Pending extents are older than the pages: what both cover ends up with the pages' items.
    let mut older = pending::to_items(&job.flight.pending);
    stamp(&mut older, txn.generation());
    delta.add(replace(target, &older, &[])?);
    for extent in job
        .flight
        .pending
        .iter()
        .filter(|extent| !extent.csums.is_empty())
    {
        txn.put_csums(extent.at, &extent.csums)?;
    }
    stamp(&mut job.items, txn.generation());
    delta.add(replace(target, &job.items, &job.inline)?);
    for (at, csums) in &job.csums {
        txn.put_csums(*at, csums)?;
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
    drop(txn);
    inode.data.forget_map();
    layers.flight = None;
    if layers.is_empty() {
        layers.receipt = crate::inode::Receipt::default();
        core.data.unlist(inode);
    }
    Ok(())
}

/// Items carry the transaction that wrote their data.
fn stamp(items: &mut [NewExtent], generation: Generation) {
    for item in items {
        item.extent.generation = generation;
    }
}
