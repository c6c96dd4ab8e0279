//! Writes dirty data to disk, and inserts it into the trees.
//!
//! A flush takes the dirty data of one or many files (it becomes their `flight` layer, see `inode::data`), plans each
//! run ([`plan`], a pure function), compresses on the store's workers where asked for ([`encode`]), allocates space for
//! all of it in file order, so that small files end up side by side and are written together ([`run`], [`batch`]), and
//! then inserts extents, checksums and references, file by file, each with one handle on the running transaction
//! ([`completion`]). Large writes take the same path ([`outgoing_data`]) from the caller's bytes ([`direct_write`]),
//! and leave pending extents ([`pending_extents`]) that the next flush inserts.
//!
//! Invariants
//! * data is on disk before an item points at it, in the same transaction as its checksums, its
//!   reference, and the size and `nbytes` of its inode;
//! * `disk_size` never covers bytes that were not inserted, so no commit shows stale data;
//! * space for data and items was reserved when the bytes became dirty, so a flush does not run out of it; a failed
//!   flush puts everything back and reserves again next time;
//! * memory is bounded: a writer that takes the volume over its budget flushes until the volume is below it.
//!
//! Failure: I/O errors and corruption found while writing; the data stays dirty. An error after the
//! first change of an item leaves the transaction to the store, which fails it.
//!
//! Callers: `file` (a writer over budget, truncate, clones and the like), `log` (fsync), `open_volume` (sync),
//! `vfs_impl` (writeback of old data), `subvol` (snapshots, deletion), `dir` (removal, shortage of space), `balance`,
//! and `volume` (quotas).

mod batch;
mod completion;
mod direct_write;
mod disk;
mod encode;
mod flusher;
mod job;
mod outgoing_data;
mod overwrite;
pub(crate) mod pending_extents;
mod plan;
mod run;

use std::sync::Arc;

use btrfs_disk::TreeId;
use btrfs_store::Need;

#[cfg(test)]
pub(crate) use flusher::step as flusher_step;
pub(crate) use flusher::{Flusher, write_settled_soon};

pub(crate) use direct_write::{DirectWrite, write_direct, write_encoded};
pub(crate) use disk::{give_up, is_in_one_group};
pub(crate) use overwrite::covers as may_write_in_place;
pub(crate) use plan::EXTENT_BYTES_MAX;

use crate::error::Result;
use crate::inode::{Core, Inode};
use crate::locks::WriteGuard;
use job::Job;

/// Items to reserve for a file that is flushed: a path to its extents, to the checksums, and its
/// own item.
pub(crate) const ITEMS_PER_FILE: u32 = 3;
/// Dirty runs for which one item is reserved beyond those. An item stands for a path of blocks, and
/// the runs of one file share all of it but the leaves, of which each has room for hundreds.
const RUNS_PER_ITEM: u64 = 16;
/// Dirty bytes for which one item is reserved: their checksums, and the extents they replace.
const BYTES_PER_ITEM: u64 = 8 << 20;
/// Dirty files, each with its reservation, after which a writer flushes the oldest.
const DIRTY_FILES_MAX: usize = 512;
/// Files that one batch takes at most.
const BATCH_FILES_MAX: usize = 256;
/// Dirty bytes after which a batch takes no further file.
const BATCH_BYTES: u64 = 8 << 20;
/// Room that is left behind a growing file with large writes, so that it is contiguous: bytes.
pub(crate) const GROWTH_WINDOW_BYTES: u64 = 8 << 20;
/// A writer over budget flushes until this many eighths of the budget are left.
const BUDGET_EIGHTHS_KEPT: usize = 6;

/// Space to reserve for `runs` dirty runs of `bytes` together.
pub(crate) fn need_for(runs: u64, bytes: u64) -> Need {
    let items =
        u64::from(ITEMS_PER_FILE).saturating_add(runs.div_ceil(RUNS_PER_ITEM)).saturating_add(bytes / BYTES_PER_ITEM);
    Need { items: u32::try_from(items).unwrap_or(u32::MAX), data: bytes }
}

/// The part of `wanted` beyond `promised`; `None` when there is none.
pub(crate) fn missing(wanted: Need, promised: Need) -> Option<Need> {
    let missing =
        Need { items: wanted.items.saturating_sub(promised.items), data: wanted.data.saturating_sub(promised.data) };
    (missing != Need::default()).then_some(missing)
}

/// Writes everything that is dirty in one file, and inserts it.
///
/// # Errors
/// See the module's text.
pub(crate) fn flush_inode(core: &Core, inode: &Arc<Inode>) -> Result<()> {
    if inode.data.is_clean() {
        return Ok(());
    }
    let _stay = core.data.stay();
    let _editing = inode.data.editing.lock();
    flush_held(core, inode)
}

/// As [`flush_inode`], with the inode's `editing` lock held. Writers may make the
/// file dirty again at any time.
///
/// # Errors
/// See the module's text.
pub(crate) fn flush_held(core: &Core, inode: &Arc<Inode>) -> Result<()> {
    let mut jobs: Vec<Job<'_>> = Job::take(core, inode, None).into_iter().collect();
    run::run(core, &mut jobs)
}

/// As [`flush_held`], but makes no inline extent. For a caller that is about to insert extents behind the first sector:
/// a file cannot have both.
///
/// # Errors
/// See the module's text.
pub(crate) fn flush_without_inline(core: &Core, inode: &Arc<Inode>) -> Result<()> {
    let mut jobs: Vec<Job<'_>> = Job::take(core, inode, None).into_iter().collect();
    jobs.iter_mut().for_each(|job| job.may_inline = false);
    run::run(core, &mut jobs)
}

/// Writes everything that was dirty in any file when the call began.
///
/// # Errors
/// The first failure; the other files are written all the same.
pub(crate) fn flush_all(core: &Core) -> Result<()> {
    flush_where(core, |_| true, Busy::Wait)
}

/// Writes everything that was dirty in one subvolume when the call began.
///
/// # Errors
/// As [`flush_all`].
pub(crate) fn flush_tree(core: &Core, tree: TreeId) -> Result<()> {
    flush_where(core, |inode| inode.tree_id() == tree, Busy::Wait)
}

/// How to treat a file that another thread is editing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Busy {
    Wait,
    Skip,
    /// As `Skip`, for a caller with `editing` locks, and the guard that comes before them.
    SkipHeld,
}

fn flush_where(core: &Core, select: impl Fn(&Inode) -> bool, on_busy: Busy) -> Result<()> {
    flush_places(core, core.data.next_place(), select, on_busy)
}

/// Writes dirty files that became so before `last_place` was the next place in the list (`VolumeData::next_place`),
/// except those that another thread is editing.
///
/// # Errors
/// As [`flush_all`].
pub(crate) fn flush_before(core: &Core, last_place: u64) -> Result<()> {
    flush_places(core, last_place, |_| true, Busy::Skip)
}

fn flush_places(core: &Core, last_place: u64, select: impl Fn(&Inode) -> bool, on_busy: Busy) -> Result<()> {
    let mut place = 0;
    let mut result = Ok(());
    while place < last_place {
        let (mut inodes, last) = core.data.dirty_after(place, BATCH_FILES_MAX);
        if inodes.is_empty() {
            break;
        }
        place = last;
        inodes.retain(|inode| select(inode));
        let mut rest = inodes.as_slice();
        while !rest.is_empty() {
            let stay = (on_busy != Busy::SkipHeld).then(|| core.data.stay());
            let (count, busy, outcome) = flush_batch(core, rest);
            drop(stay);
            result = result.and(outcome);
            for inode in busy.into_iter().filter(|_| on_busy == Busy::Wait) {
                result = result.and(flush_inode(core, inode));
            }
            rest = rest.get(count..).unwrap_or_default();
        }
    }
    result
}

/// Writes dirty files, except those that another thread is editing: for callers with `editing` locks, which must not
/// wait for others.
///
/// # Errors
/// As [`flush_all`].
pub(crate) fn flush_idle(core: &Core) -> Result<()> {
    flush_where(core, |_| true, Busy::SkipHeld)
}

/// Wakes the flusher, if the writer's data is compressed, or the volume writes ahead
/// ([`crate::VolumeOptions::writes_ahead`]), or syncs are frequent. Where that is not enough, or there is no flusher,
/// writes the oldest dirty files itself: when the volume has too many of them, too many dirty bytes (until it is well
/// below its budget), or reserved more than it has left. Called by every writer, without locks.
///
/// # Errors
/// See the module's text.
pub(crate) fn relieve(core: &Core, writer: &Arc<Inode>) -> Result<()> {
    let (budget, rounds) = (&core.data.budget, &core.data.rounds);
    let is_ahead = core.settings.writes_ahead || core.may_compress(writer.state().flags);
    if is_ahead && flusher::is_much(core, flusher::BEGIN_EIGHTHS) || flusher::is_late(core) {
        rounds.wake();
    }
    if budget.is_exceeded() {
        let goal = budget.limit_bytes() / 8 * BUDGET_EIGHTHS_KEPT;
        while budget.used_bytes() > goal && flush_oldest(core, writer, goal)? {}
        rounds.forget_failure();
    }
    let dirty_files = core.data.dirty_file_count();
    if dirty_files > DIRTY_FILES_MAX || (dirty_files > 0 && core.store.is_promised_much()) {
        flush_oldest(core, writer, 0)?;
    }
    Ok(())
}

/// Writes one batch of the oldest dirty files; false when other threads are writing all of them. Then there is nothing
/// to do if they bring the dirty bytes down to `goal`.
fn flush_oldest(core: &Core, writer: &Arc<Inode>, goal: usize) -> Result<bool> {
    let oldest = core.data.dirty_inodes(BATCH_FILES_MAX);
    let stay = core.data.stay();
    let (count, busy, result) = flush_batch(core, &oldest);
    drop(stay);
    result?;
    if busy.len() < count {
        return Ok(true);
    }
    let budget = &core.data.budget;
    core.data.rounds.wait_while(|| budget.is_exceeded());
    if !budget.is_exceeded() {
        return Ok(false);
    }
    // Only the writer's own bytes are left, and waiting for its lock is waiting for the thread that writes them.
    let _stay = core.data.stay();
    let _editing = writer.data.editing.lock();
    if core.data.budget.used_bytes() > goal {
        flush_held(core, writer)?;
    }
    Ok(false)
}

/// Writes a prefix of `inodes` worth one batch, with a guard of `VolumeData::stay` held by the caller; returns its
/// length, those of them that another thread is editing, and the result.
fn flush_batch<'a>(core: &Core, inodes: &'a [Arc<Inode>]) -> (usize, Vec<&'a Arc<Inode>>, Result<()>) {
    let mut jobs = Vec::new();
    let mut busy = Vec::new();
    let (mut count, mut bytes) = (0, 0);
    for inode in inodes {
        count += 1;
        match inode.data.editing.try_lock() {
            Some(editing) => jobs.extend(Job::take(core, inode, Some(editing))),
            None => busy.push(inode),
        }
        bytes += jobs.last().map_or(0, Job::dirty_bytes);
        if bytes >= BATCH_BYTES {
            break;
        }
    }
    let result = run::run(core, &mut jobs);
    (count, busy, result)
}

/// Drops the dirty data of a file whose items have been removed, or are about to be.
pub(crate) fn discard(core: &Core, inode: &Inode) {
    let _editing = inode.data.editing.lock();
    discard_held(core, inode);
}

/// As [`discard`], with the inode's `editing` lock held.
pub(crate) fn discard_held(core: &Core, inode: &Inode) {
    let mut layers = inode.data.inner.write();
    layers.dirty = None;
    inode.data.note_moved();
    let unused = std::mem::take(&mut layers.pending);
    layers.receipt = crate::inode::Receipt::default();
    // A thread that listed the file before and waits for its lock must find nothing to write, not even a size, once the
    // items are gone.
    inode.change_in_memory(|state| state.size = state.size.min(state.disk_size));
    core.data.unlist(inode);
    inode.data.settle(layers);
    for pending in unused {
        core.store.free_unused(btrfs_store::DataExtent { at: pending.at, len: pending.len });
    }
}

/// Stops overwrites in place, while a snapshot is being made.
pub(crate) fn stop_in_place_writes(core: &Core) -> WriteGuard<'_, ()> {
    core.data.in_place.write()
}
