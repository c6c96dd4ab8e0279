//! Reads and writes the free-space tree: the free runs of every block group, on disk.
//!
//! A commit's changes are applied group by group in ascending order. Changes that lie close together are planned on one
//! piece of the tree that is read once; of old and new runs only those items are touched that differ, and where a run
//! merely grew or shrank its key is changed in place. The plan is pure, the edits follow it. Read by `load`, written by
//! the commit.

use btrfs_disk::convert::to_u64;
use btrfs_disk::flags::FreeSpaceFlags;
use btrfs_disk::items::{FreeSpaceInfo, OnDisk, bitmap_get, bitmap_runs, bitmap_set};
use btrfs_disk::key::item_type::{FREE_SPACE_BITMAP, FREE_SPACE_EXTENT, FREE_SPACE_INFO};
use btrfs_disk::{At, Corrupt, Detail, Key, TreeId};

use super::Space;
use super::changes::{GroupChanges, coalesced};
use super::free_map::{FreeMap, Run};
use super::free_space_form;
use crate::error::Result;
use crate::tree::{Edit, EditItem, Scan, Tree};

/// Changes are planned together while fewer than this many items are likely to lie between.
const ITEMS_BETWEEN_MAX: u64 = 32;

/// Most changes that are planned together: bounds the memory of a plan.
const CHANGES_TOGETHER_MAX: usize = 4096;

impl Space {
    /// Writes the changes noted since the last call to the free-space tree. Returns how many runs changed; editing may
    /// itself have caused further changes.
    ///
    /// # Errors
    /// `Corrupt` when the tree contradicts a changed run, and those of editing a tree.
    pub fn write_free_space(&self, edit: &Edit<'_>, tree: &Tree) -> Result<u64> {
        let mut count = 0;
        for group in self.touched_groups() {
            if let Some(changes) = group.take_changes() {
                count += to_u64(changes.allocated.len() + changes.freed.len());
                apply(edit, tree, &changes, self.config.sector_size)?;
            }
        }
        Ok(count)
    }
}

/// Adds a group all of which is free.
pub(crate) fn add_group(edit: &Edit<'_>, tree: &Tree, group: Run) -> Result<()> {
    let info = FreeSpaceInfo::new(1, FreeSpaceFlags::empty());
    edit.insert(tree, &info_key(group), info.bytes())?;
    edit.insert(tree, &extent_key(group), &[])
}

/// Removes all items of a group.
pub(crate) fn remove_group(edit: &Edit<'_>, tree: &Tree, group: Run) -> Result<()> {
    let (from, to) = (Key::new(group.start, 0, 0), Key::new(group.end() - 1, u8::MAX, u64::MAX));
    edit.remove_range(tree, &from, &to, |_, _| ()).map(|_| ())
}

/// The key of a group's FREE_SPACE_INFO.
pub(crate) const fn info_key(group: Run) -> Key {
    Key::new(group.start, FREE_SPACE_INFO, group.len)
}

const fn extent_key(run: Run) -> Key {
    Key::new(run.start, FREE_SPACE_EXTENT, run.len)
}

/// One run that changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Change {
    run: Run,
    is_free: bool,
}

fn apply(edit: &Edit<'_>, tree: &Tree, changes: &GroupChanges, sector: u64) -> Result<()> {
    let group = changes.group;
    let key = info_key(group);
    let info = tree.get_with(&key, |bytes| FreeSpaceInfo::parse(bytes).copied())?;
    let info = match info {
        Some(info) => info.map_err(|error| error.at(At::Key(TreeId::FREE_SPACE, key)))?,
        None => {
            let (expected, found) = (Detail::Text("an item"), Detail::Text("none"));
            return Err(corrupt("free space info of the block group", key, expected, found).into());
        }
    };
    let ordered = in_order(changes);
    let old = u64::from(info.extent_count.get());
    let new = if info.uses_bitmaps() {
        apply_to_bitmaps(edit, tree, group, &ordered, sector)?
    } else {
        apply_to_extents(edit, tree, group, &ordered, old)?
    };
    let flags = free_space_form::wanted(group, sector, new, info.info_flags());
    if flags != info.info_flags() {
        convert(edit, tree, group, flags, sector)?;
    } else if new == old {
        return Ok(());
    }
    let count = u32::try_from(new).map_err(|_| {
        corrupt("free space extent count", key, Detail::AtMost(u64::from(u32::MAX)), Detail::Number(new))
    })?;
    let info = FreeSpaceInfo::new(count, flags);
    edit.update(tree, &key, |bytes| bytes.copy_from_slice(info.bytes()))?;
    Ok(())
}

/// Converts the free space of a group to the other form. The caller writes its info item.
fn convert(edit: &Edit<'_>, tree: &Tree, group: Run, flags: FreeSpaceFlags, sector: u64) -> Result<()> {
    let (info, last) = (info_key(group), Key::new(group.end() - 1, u8::MAX, u64::MAX));
    let mut old = Reader::new(group, sector);
    tree.scan(&info, &last, |key, bytes| {
        old.push(*key, bytes)?;
        Ok(Scan::Continue)
    })?;
    edit.remove_range(tree, &Key::new(info.objectid, info.item_type, u64::MAX), &last, |_, _| ())?;
    if flags.contains(FreeSpaceFlags::USING_BITMAPS) {
        let bitmaps = free_space_form::bitmaps_of(group, sector, old.map.iter());
        let items: Vec<_> = bitmaps.iter().map(|(key, bytes)| (*key, bytes.as_slice())).collect();
        return edit.insert_batch(tree, &items);
    }
    let items: Vec<_> = old.map.iter().map(|run| (extent_key(run), &[][..])).collect();
    edit.insert_batch(tree, &items)
}

fn in_order(changes: &GroupChanges) -> Vec<Change> {
    let allocated = changes.allocated.iter().map(|run| Change { run: *run, is_free: false });
    let freed = changes.freed.iter().map(|run| Change { run: *run, is_free: true });
    let mut all: Vec<Change> = allocated.chain(freed).collect();
    all.sort_unstable_by_key(|change| change.run);
    all
}

/// Applies ascending changes to a group kept as extents; returns the new extent count.
fn apply_to_extents(edit: &Edit<'_>, tree: &Tree, group: Run, changes: &[Change], old_count: u64) -> Result<u64> {
    let (mut added, mut removed) = (0, 0);
    let mut rest = changes;
    while let Some(count) = together(rest, group, old_count) {
        let (now, later) = rest.split_at(count);
        rest = later;
        let old = read_extents(tree, group, now)?;
        let new = with_changes(&old, now).map_err(|run| {
            let expected = Detail::Text("the opposite of the change");
            corrupt("free space extents", extent_key(run), expected, Detail::Number(run.len))
        })?;
        added += to_u64(new.len());
        removed += to_u64(old.len());
        write_extents(edit, tree, &difference(&old, &new))?;
    }
    // The tree may claim fewer extents than it has: then the tree is corrupt.
    (old_count + added).checked_sub(removed).ok_or_else(|| {
        let (expected, found) = (Detail::AtLeast(removed), Detail::Number(old_count));
        corrupt("free space extent count", info_key(group), expected, found).into()
    })
}

/// How many of the first changes are planned together; `None` at the end.
fn together(changes: &[Change], group: Run, extent_count: u64) -> Option<usize> {
    changes.first()?;
    let bytes_per_extent = group.len / extent_count.max(1);
    let far = bytes_per_extent.saturating_mul(ITEMS_BETWEEN_MAX);
    let near = changes.iter().zip(changes.iter().skip(1));
    let near = near.take_while(|(a, b)| b.run.start.saturating_sub(a.run.end()) <= far);
    Some(near.take(CHANGES_TOGETHER_MAX - 1).count() + 1)
}

/// The free extents that contain, touch or lie between the changes.
fn read_extents(tree: &Tree, group: Run, changes: &[Change]) -> Result<Vec<Run>> {
    let [Change { run: first, .. }, ..] = changes else { return Ok(Vec::new()) };
    let last = changes.last().map_or(*first, |change| change.run);
    let before = Key::new(first.start, u8::MAX, u64::MAX);
    let from = match tree.at_or_before(&before)? {
        Some((key, _)) if key.item_type == FREE_SPACE_EXTENT && key.objectid >= group.start => key,
        _ => info_key(group),
    };
    // An extent that begins in the group's end belongs to the next group.
    let end = last.end().min(group.end() - 1);
    let to = Key::new(end, FREE_SPACE_EXTENT, u64::MAX);
    let mut extents = Vec::new();
    tree.scan(&from, &to, |key, _| {
        if key.item_type == FREE_SPACE_INFO {
            return Ok(Scan::Continue);
        }
        extents.push(checked_extent(*key, group)?);
        Ok(Scan::Continue)
    })?;
    Ok(extents)
}

fn checked_extent(key: Key, group: Run) -> Result<Run, Corrupt> {
    let end = key.objectid.checked_add(key.offset);
    let inside = key.objectid >= group.start && end.is_some_and(|end| end <= group.end());
    if key.item_type != FREE_SPACE_EXTENT || !inside || key.offset == 0 {
        let expected = Detail::Text("a free space extent inside its block group");
        return Err(corrupt("free space extent", key, expected, Detail::Number(key.offset)));
    }
    Ok(Run { start: key.objectid, len: key.offset })
}

/// The runs after the changes, or the change that contradicts them.
fn with_changes(old: &[Run], changes: &[Change]) -> Result<Vec<Run>, Run> {
    let mut new = Joined(Vec::with_capacity(old.len() + changes.len()));
    let mut old = coalesced(old);
    let mut next = old.next();
    for Change { run, is_free } in changes {
        while let Some(before) = next.filter(|before| before.end() <= run.start) {
            new.push(before)?;
            next = old.next();
        }
        if *is_free {
            if next.is_some_and(|after| after.start < run.end()) {
                return Err(*run);
            }
            new.push(*run)?;
            continue;
        }
        let around = next.filter(|free| free.start <= run.start && run.end() <= free.end());
        let around = around.ok_or(*run)?;
        if around.start < run.start {
            new.push(Run { start: around.start, len: run.start - around.start })?;
        }
        let rest = Run { start: run.end(), len: around.end() - run.end() };
        next = if rest.len > 0 { Some(rest) } else { old.next() };
    }
    next.into_iter().chain(old).try_for_each(|rest| new.push(rest))?;
    Ok(new.0)
}

/// Ascending runs; touching ones are joined, overlapping ones refused.
struct Joined(Vec<Run>);

impl Joined {
    fn push(&mut self, run: Run) -> Result<(), Run> {
        match self.0.last_mut() {
            Some(last) if last.end() > run.start => return Err(run),
            Some(last) if last.end() == run.start => last.len += run.len,
            _ => self.0.push(run),
        }
        Ok(())
    }
}

/// One edit of the extent items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Remove(Run),
    Insert(Run),
    /// At least one item stays between the steps before and after.
    Part,
    /// No other item, old or new, lies between the two.
    Replace(Run, Run),
}

/// The edits that turn the items `old` into `new`, in ascending order.
fn difference(old: &[Run], new: &[Run]) -> Vec<Step> {
    let (mut old, mut new) = (old.iter().copied().peekable(), new.iter().copied().peekable());
    let mut steps: Vec<Step> = Vec::new();
    loop {
        let step = match (old.peek(), new.peek()) {
            (None, None) => return steps,
            (Some(a), Some(b)) if a == b => {
                old.next();
                new.next();
                if !matches!(steps.last(), None | Some(Step::Part)) {
                    steps.push(Step::Part);
                }
                continue;
            }
            (Some(&a), b) if b.is_none_or(|b| a < *b) => {
                old.next();
                Step::Remove(a)
            }
            _ => match new.next() {
                Some(b) => Step::Insert(b),
                None => return steps,
            },
        };
        match (steps.last_mut(), step) {
            (Some(last), Step::Insert(to)) if let Step::Remove(from) = *last => {
                *last = Step::Replace(from, to);
            }
            (Some(last), Step::Remove(from)) if let Step::Insert(to) = *last => {
                *last = Step::Replace(from, to);
            }
            _ => steps.push(step),
        }
    }
}

fn write_extents(edit: &Edit<'_>, tree: &Tree, steps: &[Step]) -> Result<()> {
    let is_alike =
        |a: &Step, b: &Step| matches!((a, b), (Step::Remove(_), Step::Remove(_)) | (Step::Insert(_), Step::Insert(_)));
    for alike in steps.chunk_by(is_alike) {
        let (Some(head), Some(tail)) = (alike.first(), alike.last()) else { continue };
        match (*head, *tail) {
            (Step::Replace(from, to), _) => {
                edit.set_key(tree, &extent_key(from), &extent_key(to))?;
            }
            (Step::Remove(run), _) if alike.len() == 1 => {
                edit.edit(tree, &extent_key(run), |_| Ok(EditItem::Remove))?;
            }
            (Step::Remove(first), Step::Remove(last)) => {
                edit.remove_range(tree, &extent_key(first), &extent_key(last), |_, _| ())?;
            }
            (Step::Part, _) => {}
            _ => {
                let runs = alike.iter().filter_map(|step| match step {
                    Step::Insert(run) => Some((extent_key(*run), &[][..])),
                    Step::Remove(_) | Step::Replace(..) | Step::Part => None,
                });
                edit.insert_batch(tree, &runs.collect::<Vec<_>>())?;
            }
        }
    }
    Ok(())
}

/// Applies ascending changes to a group kept as bitmaps; returns the new extent count.
fn apply_to_bitmaps(edit: &Edit<'_>, tree: &Tree, group: Run, changes: &[Change], sector: u64) -> Result<u64> {
    let bitmaps = read_bitmaps(tree, group, sector)?;
    // Some changes reach over the end of a bitmap into the next one.
    let mut first = 0;
    let mut bits = 0;
    let mut count = RunCount::default();
    for (key, mut bitmap) in bitmaps {
        let end = key.objectid + key.offset;
        let mut is_changed = false;
        while changes.get(first).is_some_and(|change| change.run.end() <= key.objectid) {
            first += 1;
        }
        for change in changes.iter().skip(first).take_while(|change| change.run.start < end) {
            bits += change_bits(key, &mut bitmap, *change, sector)?;
            is_changed = true;
        }
        count.add(&bitmap, key.offset / sector);
        if is_changed {
            edit.update(tree, &key, |bytes| bytes.copy_from_slice(&bitmap))?;
        }
    }
    let wanted: u64 = changes.iter().map(|change| change.run.len / sector).sum();
    if bits != wanted {
        let (expected, found) = (Detail::Number(wanted), Detail::Number(bits));
        return Err(corrupt("bits of free space bitmaps", info_key(group), expected, found).into());
    }
    Ok(count.runs)
}

fn read_bitmaps(tree: &Tree, group: Run, sector: u64) -> Result<Vec<(Key, Vec<u8>)>> {
    let mut bitmaps = Vec::new();
    let to = Key::new(group.end() - 1, FREE_SPACE_BITMAP, u64::MAX);
    tree.scan(&info_key(group), &to, |key, bytes| {
        if key.item_type != FREE_SPACE_INFO {
            check_bitmap(*key, bytes, group, sector)?;
            bitmaps.push((*key, bytes.to_vec()));
        }
        Ok(Scan::Continue)
    })?;
    Ok(bitmaps)
}

/// Checks that a bitmap lies in its group and has as many bits as its range has sectors.
pub(super) fn check_bitmap(key: Key, bytes: &[u8], group: Run, sector: u64) -> Result<(), Corrupt> {
    let end = key.objectid.checked_add(key.offset);
    let inside = key.objectid >= group.start && end.is_some_and(|end| end <= group.end());
    let aligned = key.offset > 0 && key.offset.is_multiple_of(sector);
    if key.item_type != FREE_SPACE_BITMAP || !inside || !aligned {
        let expected = Detail::Text("a free space bitmap inside its block group");
        return Err(corrupt("free space bitmap", key, expected, Detail::Number(key.offset)));
    }
    let size = (key.offset / sector).div_ceil(8);
    if to_u64(bytes.len()) != size {
        let (expected, found) = (Detail::Number(size), Detail::size(bytes.len()));
        return Err(corrupt("free space bitmap size", key, expected, found));
    }
    Ok(())
}

/// Sets or clears the bits of a change that lie in one bitmap; returns how many those are.
fn change_bits(key: Key, bitmap: &mut [u8], change: Change, sector: u64) -> Result<u64, Corrupt> {
    let start = change.run.start.max(key.objectid) - key.objectid;
    let end = change.run.end().min(key.objectid + key.offset) - key.objectid;
    for bit in start / sector..end / sector {
        if bitmap_get(bitmap, bit) == change.is_free {
            let expected = Detail::Text("the opposite of the change");
            return Err(corrupt("bit of the free space bitmap", key, expected, Detail::Number(bit)));
        }
        bitmap_set(bitmap, bit, change.is_free);
    }
    Ok((end - start) / sector)
}

/// Counts the runs of set bits over several bitmaps in a row.
#[derive(Debug, Default)]
struct RunCount {
    runs: u64,
    was_set: bool,
}

impl RunCount {
    fn add(&mut self, bitmap: &[u8], bits: u64) {
        self.runs += to_u64(bitmap_runs(bitmap).count());
        if self.was_set && bitmap_get(bitmap, 0) {
            self.runs -= 1;
        }
        self.was_set = bits > 0 && bitmap_get(bitmap, bits - 1);
    }
}

/// Reads the free runs of one group out of its items, in order.
#[derive(Debug)]
pub(super) struct Reader {
    group: Run,
    sector: u64,
    info: Option<FreeSpaceInfo>,
    map: FreeMap,
    extents: u64,
    bitmap_runs: RunCount,
}

impl Reader {
    pub(super) fn new(group: Run, sector: u64) -> Self {
        Self { group, sector, info: None, map: FreeMap::default(), extents: 0, bitmap_runs: RunCount::default() }
    }

    /// Takes the next item of the group.
    pub(super) fn push(&mut self, key: Key, bytes: &[u8]) -> Result<(), Corrupt> {
        let at = At::Key(TreeId::FREE_SPACE, key);
        let Some(info) = self.info else {
            if key != info_key(self.group) {
                let expected = Detail::from(info_key(self.group));
                return Err(corrupt("free space info of the block group", key, expected, key.into()));
            }
            self.info = Some(*FreeSpaceInfo::parse(bytes).map_err(|error| error.at(at))?);
            return Ok(());
        };
        if info.uses_bitmaps() {
            check_bitmap(key, bytes, self.group, self.sector)?;
            self.bitmap_runs.add(bytes, key.offset / self.sector);
            for (first, count) in bitmap_runs(bytes) {
                let start = key.objectid + first * self.sector;
                self.insert(key, Run { start, len: count * self.sector })?;
            }
            return Ok(());
        }
        self.extents += 1;
        self.insert(key, checked_extent(key, self.group)?)
    }

    fn insert(&mut self, key: Key, run: Run) -> Result<(), Corrupt> {
        let is_aligned = run.start.is_multiple_of(self.sector) && run.len.is_multiple_of(self.sector);
        let inside = run.end() <= self.group.end();
        if !is_aligned || !inside || self.map.insert(run).is_err() {
            let expected = Detail::Text("whole sectors that overlap no other");
            return Err(corrupt("free space", key, expected, Detail::Number(run.start)));
        }
        Ok(())
    }

    /// The free space, when all items were there.
    pub(super) fn finish(self) -> Result<FreeMap, Corrupt> {
        let key = info_key(self.group);
        let Some(info) = self.info else {
            let (expected, found) = (Detail::Text("an item"), Detail::Text("none"));
            return Err(corrupt("free space info of the block group", key, expected, found));
        };
        let found = if info.uses_bitmaps() { self.bitmap_runs.runs } else { self.extents };
        let expected = u64::from(info.extent_count.get());
        if found != expected {
            let (expected, found) = (Detail::Number(expected), Detail::Number(found));
            return Err(corrupt("number of free space extents", key, expected, found));
        }
        Ok(self.map)
    }
}

#[cold]
fn corrupt(what: &'static str, key: Key, expected: Detail, found: Detail) -> Corrupt {
    Corrupt::new(what, expected, found).at(At::Key(TreeId::FREE_SPACE, key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::test_random::Random;
    use std::collections::BTreeSet;

    fn run(start: u64, len: u64) -> Run {
        Run { start, len }
    }

    fn change(start: u64, len: u64, is_free: bool) -> Change {
        Change { run: run(start, len), is_free }
    }

    #[test]
    fn growing_and_shrinking_runs_only_change_their_key() {
        let old = [run(0, 10), run(20, 10), run(40, 10)];
        let new = with_changes(&old, &[change(0, 2, false), change(30, 4, true), change(48, 2, false)]);
        let new = new.unwrap();
        assert_eq!(new, [run(2, 8), run(20, 14), run(40, 8)]);
        let steps = difference(&old, &new);
        let expected: Vec<_> = old.iter().zip(&new).map(|(a, b)| Step::Replace(*a, *b)).collect();
        assert_eq!(steps, expected);
    }

    #[test]
    fn splits_merges_and_contradictions() {
        assert_eq!(
            difference(&[run(0, 10)], &[run(0, 4), run(6, 4)]),
            [Step::Replace(run(0, 10), run(0, 4)), Step::Insert(run(6, 4))].as_slice()
        );
        assert_eq!(
            difference(&[run(0, 4), run(6, 4), run(20, 1)], &[run(0, 10), run(20, 1)]),
            [Step::Replace(run(0, 4), run(0, 10)), Step::Remove(run(6, 4)), Step::Part].as_slice()
        );
        assert!(with_changes(&[run(0, 4)], &[change(3, 2, false)]).is_err());
        assert!(with_changes(&[run(0, 4)], &[change(3, 2, true)]).is_err());
    }

    /// Replays steps on a set of items, insisting that each is possible when its turn comes.
    fn replay(items: &mut BTreeSet<Run>, steps: &[Step]) {
        for step in steps {
            match *step {
                Step::Remove(run) => assert!(items.remove(&run)),
                Step::Insert(run) => assert!(items.insert(run)),
                Step::Part => {}
                Step::Replace(from, to) => {
                    assert!(items.remove(&from));
                    let between = (from.min(to), from.max(to));
                    assert_eq!(items.range(between.0..=between.1).next(), None, "set_key would fail");
                    items.insert(to);
                }
            }
        }
    }

    #[test]
    fn what_stays_parts_the_runs_of_removals() {
        let steps = difference(&[run(0, 1), run(5, 1), run(9, 1)], &[run(5, 1)]);
        assert_eq!(steps, [Step::Remove(run(0, 1)), Step::Part, Step::Remove(run(9, 1))]);
    }

    #[test]
    fn random_differences_replay_in_order() {
        for seed in 0..500 {
            let mut random = Random::new(seed);
            let mut free = [false; 200];
            free.iter_mut().for_each(|bit| *bit = random.below(3) > 0);
            let old = runs_of(&free);
            let mut changes = Vec::new();
            let mut at = 0;
            while at < free.len() {
                let len = 1 + usize::try_from(random.below(6)).unwrap();
                let end = (at + len).min(free.len());
                let same = free[at..end].iter().all(|bit| *bit == free[at]);
                if same && random.below(3) == 0 {
                    changes.push(change(to_u64(at), to_u64(end - at), !free[at]));
                    let flipped = !free[at];
                    free[at..end].fill(flipped);
                }
                at = end;
            }
            let new = with_changes(&old, &changes).unwrap();
            assert_eq!(new, runs_of(&free), "seed {seed}");
            let mut items: BTreeSet<Run> = old.iter().copied().collect();
            replay(&mut items, &difference(&old, &new));
            assert_eq!(items.into_iter().collect::<Vec<_>>(), new, "seed {seed}");
        }
    }

    fn runs_of(free: &[bool]) -> Vec<Run> {
        let mut at = 0;
        let mut runs = Vec::new();
        for part in free.chunk_by(|a, b| a == b) {
            if part[0] {
                runs.push(run(at, to_u64(part.len())));
            }
            at += to_u64(part.len());
        }
        runs
    }

    #[test]
    fn far_changes_are_planned_apart() {
        let group = run(0, 1 << 30);
        let changes = [change(0, 1, true), change(100, 1, true), change(1 << 29, 1, true)];
        assert_eq!(together(&changes, group, 1000), Some(2));
        assert_eq!(together(&changes, group, 1), Some(3));
        assert_eq!(together(&[], group, 1), None);
    }

    fn info(count: u32, flags: FreeSpaceFlags) -> Vec<u8> {
        FreeSpaceInfo::new(count, flags).bytes().to_vec()
    }

    fn read(items: &[(Key, Vec<u8>)]) -> Result<Vec<Run>, Corrupt> {
        let mut reader = Reader::new(run(1 << 20, 16 << 20), 4096);
        for (key, bytes) in items {
            reader.push(*key, bytes)?;
        }
        Ok(reader.finish()?.iter().collect())
    }

    #[test]
    fn reader_refuses_what_contradicts_itself() {
        let group = run(1 << 20, 16 << 20);
        let head = (info_key(group), info(1, FreeSpaceFlags::empty()));
        let extent = |start, len| (extent_key(run(start, len)), Vec::new());
        let good = [head.clone(), extent(2 << 20, 4096)];
        assert_eq!(read(&good).unwrap(), [run(2 << 20, 4096)]);
        assert!(read(&[]).is_err(), "no info");
        assert!(read(&good[..1]).is_err(), "too few");
        assert!(read(&[head.clone(), extent(16 << 20, 2 << 20)]).is_err(), "beyond the group");
        assert!(read(&[head.clone(), extent(2 << 20, 100)]).is_err(), "part of a sector");
        assert!(read(&[head.clone(), extent(u64::MAX, u64::MAX)]).is_err());
        let two = (info_key(group), info(2, FreeSpaceFlags::empty()));
        assert!(read(&[two, extent(2 << 20, 8192), extent((2 << 20) + 4096, 4096)]).is_err(), "overlap");
    }

    #[test]
    fn reader_joins_runs_across_bitmaps() {
        let group = run(1 << 20, 16 << 20);
        let head = |count| (info_key(group), info(count, FreeSpaceFlags::USING_BITMAPS));
        let mut first = vec![0; 256];
        first[255] = 0x80;
        let mut second = vec![0; 256];
        second[0] = 0x05;
        let bitmap = |start, bytes: &Vec<u8>| (Key::new(start, FREE_SPACE_BITMAP, 8 << 20), bytes.clone());
        let items = |count| [head(count), bitmap(1 << 20, &first), bitmap(9 << 20, &second)];
        let middle = 9 << 20;
        assert_eq!(read(&items(2)).unwrap(), [run(middle - 4096, 8192), run(middle + 8192, 4096)]);
        assert!(read(&items(3)).is_err(), "wrong count");
        let short = (Key::new(1 << 20, FREE_SPACE_BITMAP, 8 << 20), vec![0; 255]);
        assert!(read(&[head(0), short]).is_err());
    }

    #[test]
    fn changed_bits_must_have_been_the_opposite() {
        let key = Key::new(0, FREE_SPACE_BITMAP, 8 << 20);
        let mut bitmap = vec![0; 256];
        assert_eq!(change_bits(key, &mut bitmap, change(4096, 8192, true), 4096).unwrap(), 2);
        assert_eq!(bitmap[0], 0b110);
        assert!(change_bits(key, &mut bitmap, change(8192, 8192, true), 4096).is_err());
        assert!(change_bits(key, &mut bitmap, change(0, 4096, false), 4096).is_err());
    }
}
