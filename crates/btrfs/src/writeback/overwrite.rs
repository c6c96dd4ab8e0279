//! Finds the extents of a file that may be overwritten in place. Called by `job` and `file/write`.

use std::ops::Range;

use vfs::Run;

use btrfs_disk::Generation;
use btrfs_store::DataHolder;

use crate::error::Result;
use crate::extents::{ExtentMap, FileExtent, Kind, SCAN_ITEMS_MAX};
use crate::inode::{Core, Inode, InodeFlags};

/// The extents under `runs` whose bytes may be overwritten on disk: preallocated ones, and written
/// ones of a NODATACOW file, unless another file or snapshot shares them or they have checksums.
///
/// The answer holds as long as the caller keeps the inode's `editing` lock and, against snapshots,
/// the volume's `in_place` lock. Called without the `inner` lock.
///
/// # Errors
/// Corrupt items; I/O.
pub(super) fn find(core: &Core, inode: &Inode, flags: InodeFlags, runs: &[Run]) -> Result<Vec<FileExtent>> {
    let mut found: Vec<FileExtent> = Vec::new();
    if !flags.intersects(InodeFlags::NODATACOW | InodeFlags::PREALLOC) {
        return Ok(found);
    }
    let sector = core.store.sizes().sector;
    let mut map = ExtentMap::default();
    for run in runs {
        let mut at = run.start;
        while at < run.end() {
            if !map.knows(at) {
                let range = at..run.end();
                let (tree, ino) = (&inode.root.tree, inode.ino());
                // Not while items are being edited, but only for the load: the check whether an extent is shared waits
                // for a commit.
                let _layers = inode.data.inner.read();
                map = ExtentMap::load(tree, ino, range, SCAN_ITEMS_MAX, sector)?;
            }
            let known_end = map.known().end;
            for item in map.items().iter().filter(|item| item.start < run.end() && item.end() > at) {
                let is_new = found.last().is_none_or(|last| last.end() <= item.start);
                if is_new && may_overwrite(core, inode, flags, item)? {
                    found.push(*item);
                }
            }
            at = known_end.max(at.saturating_add(u64::from(sector)));
        }
    }
    Ok(found)
}

/// True when all of `range` (whole sectors) may be overwritten on disk, until a snapshot is made. Called without locks.
///
/// # Errors
/// As [`find`].
pub(crate) fn covers(core: &Core, inode: &Inode, range: Range<u64>) -> Result<bool> {
    if !inode.state().flags.intersects(InodeFlags::NODATACOW | InodeFlags::PREALLOC) {
        return Ok(false);
    }
    if covers_now(core, inode, &range)? {
        return Ok(true);
    }
    // A concurrent flush in the same extent may have been seen half done: checksums in a part of an extent that was
    // preallocated as a whole.
    let _stay = core.data.stay();
    let _editing = inode.data.editing.lock();
    covers_now(core, inode, &range)
}

fn covers_now(core: &Core, inode: &Inode, range: &Range<u64>) -> Result<bool> {
    let flags = inode.state().flags;
    let run = Run { start: range.start, len: range.end.saturating_sub(range.start) };
    let found = find(core, inode, flags, &[run])?;
    let end = found.iter().fold(range.start, |at, old| if old.start <= at { at.max(old.end()) } else { at });
    Ok(end >= range.end)
}

fn may_overwrite(core: &Core, inode: &Inode, flags: InodeFlags, item: &FileExtent) -> Result<bool> {
    let is_candidate = match item.kind {
        Kind::Prealloc => true,
        Kind::Regular => flags.contains(InodeFlags::NODATACOW) && !item.is_hole() && !item.is_compressed(),
        Kind::Inline => false,
    };
    if !is_candidate || item.generation <= last_snapshot(inode) {
        return Ok(false);
    }
    let (root, ino) = (inode.tree_id(), inode.ino());
    let holder = DataHolder { root, inode: ino, offset: item.ref_offset() };
    let shared = core.store.is_data_shared(item.disk, item.disk_len, &holder)?;
    Ok(!shared && !core.store.has_any_csum(item.disk_at(item.start), item.len)?)
}

/// Extents not younger than this may be shared through tree blocks that a snapshot shares.
fn last_snapshot(inode: &Inode) -> Generation {
    inode.root.tree.last_snapshot()
}
