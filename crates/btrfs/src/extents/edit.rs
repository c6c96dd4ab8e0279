//! Plans which items change when ranges of a file get new contents: a pure function. Called by `apply`.

use std::ops::Range;

use btrfs_disk::Logical;

use super::{FileExtent, Kind};

/// An item to insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NewExtent {
    pub(crate) extent: FileExtent,
    /// The disk extent was allocated for this item and has no reference yet.
    pub(crate) is_fresh: bool,
}

/// References gained (or lost, when negative) to one disk extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RefEdit {
    pub(crate) disk: Logical,
    pub(crate) disk_len: u64,
    /// See [`FileExtent::ref_offset`].
    pub(crate) ref_offset: u64,
    pub(crate) delta: i64,
    /// This is the extent's first reference.
    pub(crate) is_fresh: bool,
}

/// The edits, to be applied in the order of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EditPlan {
    /// Items to remove: first and last key offset of adjacent ones, and their number.
    pub(crate) removes: Vec<(u64, u64, u32)>,
    /// Items whose fields change in place.
    pub(crate) rewrites: Vec<FileExtent>,
    /// Items that lose their front: old key offset, and the item under its new key.
    pub(crate) moves: Vec<(u64, FileExtent)>,
    /// New items, ascending; their keys are free after the edits above.
    pub(crate) inserts: Vec<FileExtent>,
    pub(crate) refs: Vec<RefEdit>,
    /// Bytes that leave and enter the inode's `nbytes`.
    pub(crate) dropped_bytes: u64,
    pub(crate) added_bytes: u64,
}

/// Part of an inline extent was to be replaced. Inline extents are only ever replaced whole:
/// writers bring the first sector into memory before they extend or overwrite it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InlineCut;

/// Replaces the bytes in `cuts` (ascending, disjoint) by the items `new` (ascending, disjoint, each inside a cut); the
/// rest of the cuts has no item afterwards. `existing` are all items from the first cut to the last, ascending, also
/// those between two cuts.
///
/// # Errors
/// [`InlineCut`], see there.
pub(crate) fn plan(existing: &[FileExtent], cuts: &[Range<u64>], new: &[NewExtent]) -> Result<EditPlan, InlineCut> {
    debug_assert!(cuts.is_sorted_by(|a, b| a.end <= b.start), "cuts ascend and do not overlap");
    debug_assert!(new.is_sorted_by(|a, b| a.extent.end() <= b.extent.start), "new items ascend and do not overlap");
    let mut plan = EditPlan::default();
    let mut taken_keys = Vec::new();
    let mut cut_index = 0;
    let mut last_removed = None;
    for (index, old) in existing.iter().enumerate() {
        while cuts.get(cut_index).is_some_and(|cut| cut.end <= old.start) {
            cut_index += 1;
        }
        let rest = survivors(old, cuts.get(cut_index..).unwrap_or_default());
        if rest.as_slice() == [*old] {
            continue;
        }
        if old.kind == Kind::Inline && !rest.is_empty() {
            return Err(InlineCut);
        }
        plan.count_old(old, &rest);
        let replacement = new
            .binary_search_by_key(&old.start, |new| new.extent.start)
            .ok()
            .and_then(|at| new.get(at))
            .filter(|new| old.kind != Kind::Inline && new.extent.kind != Kind::Inline);
        if let Some(replacement) = replacement {
            plan.rewrites.push(replacement.extent);
            plan.inserts.extend(&rest);
            taken_keys.push(old.start);
        } else if let Some((first, others)) = rest.split_first() {
            if first.start == old.start {
                plan.rewrites.push(*first);
            } else {
                plan.moves.push((old.start, *first));
            }
            plan.inserts.extend(others);
        } else {
            let joins = index.checked_sub(1).is_some_and(|before| last_removed == Some(before));
            plan.remove(old.start, joins);
            last_removed = Some(index);
        }
    }
    for new in new {
        plan.count_new(new);
        if taken_keys.binary_search(&new.extent.start).is_err() {
            plan.inserts.push(new.extent);
        }
    }
    plan.inserts.sort_unstable_by_key(|item| item.start);
    debug_assert!(plan.inserts.is_sorted_by(|a, b| a.end() <= b.start), "what is inserted does not overlap");
    Ok(plan)
}

/// The parts of `old` that no cut covers. `cuts` begins with the first that may overlap it.
fn survivors(old: &FileExtent, cuts: &[Range<u64>]) -> Vec<FileExtent> {
    let mut rest = Vec::new();
    let mut at = old.start;
    for cut in cuts.iter().take_while(|cut| cut.start < old.end()) {
        if cut.start > at {
            rest.push(old.part(at..cut.start));
        }
        at = at.max(cut.end);
    }
    if at < old.end() {
        rest.push(old.part(at..old.end()));
    }
    rest
}

impl EditPlan {
    fn remove(&mut self, key: u64, joins: bool) {
        match self.removes.last_mut() {
            Some((_, last, count)) if joins => {
                *last = key;
                *count += 1;
            }
            _ => self.removes.push((key, key, 1)),
        }
    }

    fn count_old(&mut self, old: &FileExtent, rest: &[FileExtent]) {
        let kept: u64 = rest.iter().map(FileExtent::counted_bytes).sum();
        self.dropped_bytes += old.counted_bytes().saturating_sub(kept);
        let parts = i64::try_from(rest.len()).unwrap_or(i64::MAX);
        if old.disk.0 != 0 && parts != 1 {
            self.refs.push(RefEdit {
                disk: old.disk,
                disk_len: old.disk_len,
                ref_offset: old.ref_offset(),
                delta: parts - 1,
                is_fresh: false,
            });
        }
    }

    fn count_new(&mut self, new: &NewExtent) {
        let extent = &new.extent;
        self.added_bytes += extent.counted_bytes();
        if extent.disk.0 != 0 {
            self.refs.push(RefEdit {
                disk: extent.disk,
                disk_len: extent.disk_len,
                ref_offset: extent.ref_offset(),
                delta: 1,
                is_fresh: new.is_fresh,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::single_range_in_vec_init, reason = "one cut is a list of cuts")]

    use super::*;

    const K: u64 = 4096;

    fn data(start: u64, len: u64, disk: u64) -> FileExtent {
        FileExtent::whole(start * K, Kind::Regular, Logical(disk << 20), len * K)
    }

    fn fresh(extent: FileExtent) -> NewExtent {
        NewExtent { extent, is_fresh: true }
    }

    fn inline(len: u64) -> FileExtent {
        FileExtent { disk_len: 0, ..FileExtent::whole(0, Kind::Inline, Logical(0), len) }
    }

    /// The items after the plan, by carrying it out on a list.
    fn applied(existing: &[FileExtent], plan: &EditPlan) -> Vec<FileExtent> {
        let mut items: std::collections::BTreeMap<u64, FileExtent> =
            existing.iter().map(|item| (item.start, *item)).collect();
        for (first, last, count) in &plan.removes {
            let keys: Vec<u64> = items.range(first..=last).map(|(key, _)| *key).collect();
            assert_eq!(keys.len(), usize::try_from(*count).unwrap());
            items.retain(|key, _| !keys.contains(key));
        }
        for item in &plan.rewrites {
            assert!(items.insert(item.start, *item).is_some());
        }
        for (old, item) in &plan.moves {
            items.remove(old).unwrap();
            assert!(items.range(old..=&item.start).next().is_none());
            items.insert(item.start, *item);
        }
        for item in &plan.inserts {
            assert!(items.insert(item.start, *item).is_none());
        }
        items.into_values().collect()
    }

    #[test]
    fn a_write_into_the_middle_splits_and_adds_a_reference() {
        let old = data(0, 10, 1);
        let new = fresh(data(4, 2, 2));
        let plan = plan(&[old], &[4 * K..6 * K], &[new]).unwrap();
        let items = applied(&[old], &plan);
        assert_eq!(items, [old.part(0..4 * K), new.extent, old.part(6 * K..10 * K)]);
        assert_eq!(items[2].offset, 6 * K);
        assert_eq!(plan.refs.iter().map(|edit| edit.delta).collect::<Vec<_>>(), [1, 1]);
        assert_eq!((plan.dropped_bytes, plan.added_bytes), (2 * K, 2 * K));
        assert_eq!(items[0].ref_offset(), items[2].ref_offset());
    }

    #[test]
    fn trimming_an_end_keeps_the_reference() {
        let old = data(2, 8, 1);
        let front = plan(&[old], &[0..4 * K], &[]).unwrap();
        assert_eq!(applied(&[old], &front), [old.part(4 * K..10 * K)]);
        assert_eq!((front.refs.len(), front.dropped_bytes), (0, 2 * K));
        let back = plan(&[old], &[8 * K..20 * K], &[]).unwrap();
        assert_eq!(applied(&[old], &back), [old.part(2 * K..8 * K)]);
        assert_eq!((back.refs.len(), back.dropped_bytes), (0, 2 * K));
    }

    #[test]
    fn a_covered_extent_drops_its_reference_and_its_key_is_reused() {
        let old = [data(0, 1, 1), data(1, 1, 2), data(2, 1, 3)];
        let new = [fresh(data(1, 1, 9))];
        let plan = plan(&old, &[K..2 * K], &new).unwrap();
        assert_eq!((plan.rewrites.len(), plan.inserts.len(), plan.removes.len()), (1, 0, 0));
        assert_eq!(applied(&old, &plan), [old[0], new[0].extent, old[2]]);
        assert_eq!(plan.refs.iter().map(|edit| edit.delta).sum::<i64>(), 0);
    }

    #[test]
    fn adjacent_removals_become_one() {
        let old = [data(0, 1, 1), data(1, 1, 2), data(2, 1, 3), data(5, 1, 4)];
        let plan = plan(&old, &[0..3 * K, 5 * K..6 * K], &[]).unwrap();
        assert_eq!(plan.removes, [(0, 5 * K, 4)]);
        assert_eq!(applied(&old, &plan), []);
        assert_eq!(plan.dropped_bytes, 4 * K);
    }

    #[test]
    fn holes_have_neither_references_nor_bytes() {
        let old = FileExtent::hole(0..10 * K, btrfs_disk::Generation(1));
        let plan = plan(&[old], &[2 * K..3 * K], &[fresh(data(2, 1, 1))]).unwrap();
        assert_eq!(applied(&[old], &plan).len(), 3);
        assert_eq!((plan.refs.len(), plan.dropped_bytes, plan.added_bytes), (1, 0, K));
        assert!(applied(&[old], &plan).iter().all(|item| item.disk.0 != 0 || item.offset == 0));
    }

    #[test]
    fn an_inline_extent_goes_whole_or_not_at_all() {
        let old = inline(100);
        let whole = plan(&[old], &[0..K], &[fresh(data(0, 1, 1))]).unwrap();
        assert_eq!((whole.removes.len(), whole.dropped_bytes), (1, 100));
        let again = plan(&[old], &[0..K], &[fresh(inline(50))]).unwrap();
        assert_eq!((again.removes.len(), again.inserts.len(), again.added_bytes), (1, 1, 50));
        assert_eq!(plan(&[old], &[50..K], &[]), Err(InlineCut));
    }

    #[test]
    fn writing_into_preallocated_space_keeps_the_disk_extent() {
        let old = FileExtent { kind: Kind::Prealloc, ..data(0, 8, 1) };
        let part = FileExtent { kind: Kind::Regular, ..old.part(2 * K..4 * K) };
        let new = NewExtent { extent: part, is_fresh: false };
        let plan = plan(&[old], &[2 * K..4 * K], &[new]).unwrap();
        assert_eq!(applied(&[old], &plan).len(), 3);
        assert_eq!(plan.refs.iter().map(|edit| edit.delta).sum::<i64>(), 2);
        assert_eq!(plan.dropped_bytes, plan.added_bytes);
    }

    /// Seeded random cuts, checked sector by sector against arrays.
    #[test]
    fn random_edits_match_an_array_of_sectors() {
        let mut state = 7_u64;
        let mut random = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for round in 0..500 {
            let mut items: Vec<FileExtent> = Vec::new();
            let mut refs = std::collections::BTreeMap::<(u64, u64), i64>::new();
            let mut bytes = 0_u64;
            let mut model = [0_u64; 64];
            for step in 1..20 {
                let start = random(60);
                let len = 1 + random(64 - start);
                let cut = start * K..(start + len) * K;
                let new: Vec<NewExtent> = if random(3) == 0 { vec![] } else { vec![fresh(data(start, len, step))] };
                let overlap: Vec<FileExtent> =
                    items.iter().filter(|item| item.start < cut.end && cut.start < item.end()).copied().collect();
                let plan = plan(&overlap, std::slice::from_ref(&cut), &new).unwrap();
                items = applied(&items, &plan);
                for edit in &plan.refs {
                    *refs.entry((edit.disk.0, edit.ref_offset)).or_default() += edit.delta;
                }
                bytes = bytes - plan.dropped_bytes + plan.added_bytes;
                for sector in start..start + len {
                    let value = if new.is_empty() { 0 } else { (step << 20) + (sector - start) * K };
                    model[usize::try_from(sector).unwrap()] = value;
                }
            }
            let mut found = [0_u64; 64];
            let mut expected = std::collections::BTreeMap::new();
            for item in &items {
                *expected.entry((item.disk.0, item.ref_offset())).or_insert(0) += 1;
                for sector in item.start / K..item.end() / K {
                    found[usize::try_from(sector).unwrap()] = item.disk_at(sector * K).0;
                }
            }
            refs.retain(|_, count| *count != 0);
            assert_eq!(found, model, "round {round}");
            assert_eq!(refs, expected, "round {round}");
            assert_eq!(bytes, items.iter().map(|item| item.len).sum::<u64>(), "round {round}");
        }
    }
}
