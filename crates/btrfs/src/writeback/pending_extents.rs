//! Keeps the list of pending extents: written to disk by large writes, and not inserted yet. Called by `file/write`,
//! `file/truncate` and `job`.

use std::ops::Range;

use btrfs_disk::Logical;
use btrfs_disk::convert::to_usize;
use btrfs_store::DataExtent;

use super::plan::EXTENT_BYTES_MAX;
use crate::extents::{FileExtent, Kind, NewExtent};
use crate::inode::Pending;

/// Pending extents of one file. A file that has more is flushed by its writer.
pub(crate) const PENDING_COUNT_MAX: usize = 256;
/// Bytes of checksums that one file's pending extents may have.
const PENDING_CSUM_BYTES_MAX: usize = 4 << 20;

/// True when nothing in `list` overlaps the range.
pub(crate) fn is_free(list: &[Pending], start: u64, end: u64) -> bool {
    !list.iter().any(|pending| pending.start < end && start < pending.end())
}

/// True when the list should be inserted before it grows further.
pub(crate) fn is_full(list: &[Pending]) -> bool {
    list.len() >= PENDING_COUNT_MAX
        || list.iter().map(|pending| pending.csums.len()).sum::<usize>() >= PENDING_CSUM_BYTES_MAX
}

/// Adds an extent, joined to its predecessor where both touch in the file and on disk, and `may_be_one` finds the
/// joined extent in one block group.
pub(crate) fn push(list: &mut Vec<Pending>, new: Pending, may_be_one: impl FnOnce(Logical, u64) -> bool) {
    debug_assert!(new.len > 0, "an extent has bytes");
    debug_assert!(is_free(list, new.start, new.end()), "older extents of the range were cut out before");
    let joins = |last: &&mut Pending| {
        last.end() == new.start
            && last.at.0.saturating_add(last.len) == new.at.0
            && last.len.saturating_add(new.len) <= EXTENT_BYTES_MAX
            && last.csums.is_empty() == new.csums.is_empty()
            && may_be_one(last.at, last.len + new.len)
    };
    match list.last_mut().filter(joins) {
        Some(last) => {
            last.len += new.len;
            last.csums.extend_from_slice(&new.csums);
        }
        None => list.push(new),
    }
}

/// Takes `range`, whole sectors, out of the list; returns the space that becomes unused. `sizes` are those of a sector
/// and of its checksum.
pub(crate) fn cut(list: &mut Vec<Pending>, range: Range<u64>, sizes: (u32, usize)) -> Vec<DataExtent> {
    let mut unused = Vec::new();
    let mut kept = Vec::with_capacity(list.len());
    for pending in list.drain(..) {
        let middle = range.start.max(pending.start)..range.end.min(pending.end());
        if middle.is_empty() {
            kept.push(pending);
            continue;
        }
        unused.push(DataExtent {
            at: Logical(pending.at.0.saturating_add(middle.start - pending.start)),
            len: middle.end - middle.start,
        });
        for rest in [pending.start..middle.start, middle.end..pending.end()] {
            kept.extend(part_of(&pending, rest, sizes));
        }
    }
    *list = kept;
    debug_assert!(is_free(list, range.start, range.end), "nothing of the range is left");
    unused
}

/// The part of an extent that holds the file's bytes of `range`; none of an empty range.
fn part_of(pending: &Pending, range: Range<u64>, (sector, csum): (u32, usize)) -> Option<Pending> {
    if range.is_empty() {
        return None;
    }
    let skipped = range.start.saturating_sub(pending.start);
    let in_csums = |bytes: u64| to_usize(bytes / u64::from(sector)).saturating_mul(csum);
    let len = range.end - range.start;
    let csums = pending.csums.get(in_csums(skipped)..in_csums(skipped.saturating_add(len)));
    Some(Pending {
        start: range.start,
        len,
        at: Logical(pending.at.0.saturating_add(skipped)),
        csums: csums.unwrap_or_default().to_vec(),
    })
}

/// Where the next extent should go: after the last one.
pub(crate) fn hint(list: &[Pending]) -> Option<Logical> {
    list.last().map(|last| Logical(last.at.0.saturating_add(last.len)))
}

/// The items to insert, in file order.
pub(super) fn to_items(list: &[Pending]) -> Vec<NewExtent> {
    let mut items: Vec<NewExtent> = list
        .iter()
        .map(|pending| NewExtent {
            extent: FileExtent::whole(pending.start, Kind::Regular, pending.at, pending.len),
            is_fresh: true,
        })
        .collect();
    items.sort_unstable_by_key(|new| new.extent.start);
    items
}

/// Bytes that the list holds.
pub(crate) fn total_bytes(list: &[Pending]) -> u64 {
    list.iter().map(|pending| pending.len).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(start: u64, len: u64, at: u64) -> Pending {
        Pending { start, len, at: Logical(at), csums: vec![1; 4] }
    }

    #[test]
    fn sequential_writes_become_one_extent() {
        let mut list = Vec::new();
        for index in 0..200 {
            push(&mut list, pending(index << 20, 1 << 20, (5 << 30) + (index << 20)), |_, _| true);
        }
        assert_eq!(list.iter().map(|p| p.len >> 20).collect::<Vec<_>>(), [128, 72]);
        assert_eq!(list[0].csums.len(), 128 * 4);
        assert_eq!(hint(&list), Some(Logical((5 << 30) + (200 << 20))));
    }

    #[test]
    fn what_is_cut_out_leaves_its_ends_with_their_checksums() {
        let csums: Vec<u8> = (0..16).collect();
        let mut one = pending(8192, 16384, 1 << 20);
        one.csums = csums.clone();
        let mut list = vec![one, pending(1 << 20, 4096, 2 << 20)];
        let unused = cut(&mut list, 12288..16384, (4096, 4));
        assert_eq!(unused.len(), 1);
        assert_eq!((unused[0].at, unused[0].len), (Logical((1 << 20) + 4096), 4096));
        let parts: Vec<_> = list.iter().map(|p| (p.start, p.len, p.at.0)).collect();
        let ends = [(8192, 4096, 1 << 20), (16384, 8192, (1 << 20) + 8192)];
        assert_eq!(parts[..2], ends);
        assert_eq!(parts[2].0, 1 << 20);
        assert_eq!((&list[0].csums[..], &list[1].csums[..]), (&csums[..4], &csums[8..]));
        assert_eq!(cut(&mut list, 0..1 << 30, (4096, 4)).len(), 3);
        assert!(list.is_empty());
    }

    #[test]
    fn what_does_not_touch_stays_apart() {
        let mut list = Vec::new();
        push(&mut list, pending(0, 4096, 1 << 20), |_, _| true);
        push(&mut list, pending(4096, 4096, (1 << 20) + 4096), |_, _| false);
        push(&mut list, pending(1 << 20, 4096, (1 << 20) + 8192), |_, _| true);
        assert_eq!(list.len(), 3);
        assert!(is_free(&list, 8192, 1 << 20) && !is_free(&list, 8191, 8192));
    }
}
