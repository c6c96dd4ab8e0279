//! Lists the leaves of a tree, found by its nodes, and for lost nodes from the scan.
//!
//! ```text
//! root --walk--> leaves with their ranges of keys
//!          '---> holes: ranges whose block is lost --scanned leaves of the tree, newest first--> pieces of ranges
//!                                                                                          '--> missing ranges
//! ```
//!
//! A tree is a list of key ranges, each with the leaf that holds its items. Items of a leaf outside its range are
//! ignored, so no item is read from two leaves, and an older leaf fills only ranges that no newer leaf covers.
//!
//! Invariants: a tree visits each block once, and every step goes one level down, so walks end on any image. The number
//! of blocks that fit on the devices bounds memory. `State` reads every tree through this module.

use std::collections::{BTreeMap, HashSet};

use btrfs_disk::Key;
use btrfs_disk::node::{LEVELS_MAX, LeafView, NodeView};

use crate::blocks::{At, Blocks};

/// Limit on separate holes of a tree; the last one covers the rest.
const HOLES_MAX: usize = 1 << 20;

/// Sources of a tree's leaves.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spec {
    /// The root block and its level, if known.
    pub(crate) root: Option<(At, u8)>,
    /// Trees whose leaves may fill holes, each with its newest generation: the tree itself and the sources of its
    /// snapshots.
    pub(crate) owners: Vec<(u64, u64)>,
    /// Uses referenced blocks only.
    pub(crate) is_strict: bool,
}

/// A key range and the leaf with its items.
#[derive(Clone, Copy, Debug)]
struct Piece {
    first: Key,
    /// The last key of the range.
    last: Key,
    at: At,
}

/// The leaves of a tree.
#[derive(Debug, Default)]
pub(crate) struct Leaves {
    pieces: Vec<Piece>,
    /// First and last keys of missing ranges, ascending.
    holes: Vec<(Key, Key)>,
    /// Ranges wholly or partly filled from unreferenced blocks, ascending.
    filled: Vec<(Key, Key)>,
}

impl Leaves {
    /// Reads the nodes of a tree.
    pub(crate) fn read(blocks: &Blocks, spec: &Spec) -> Self {
        let mut walk = Walk { blocks, seen: HashSet::new(), pieces: Vec::new(), holes: Vec::new() };
        match spec.root {
            Some((at, level)) if level < LEVELS_MAX => walk.run(at, level),
            _ => walk.holes.push((Key::MIN, Key::MAX)),
        }
        let Walk { mut pieces, holes, seen, .. } = walk;
        let mut leaves = Self::default();
        if spec.is_strict || holes.is_empty() {
            leaves.holes = holes;
        } else {
            leaves.holes = fill(blocks, spec, &seen, &mut pieces);
            leaves.filled = holes;
        }
        pieces.sort_unstable_by_key(|piece| piece.first);
        leaves.holes.sort_unstable();
        leaves.filled.sort_unstable();
        leaves.pieces = pieces;
        leaves
    }

    /// Calls `take` with every item from `from` to `to`, both inclusive, in key order, until it returns false.
    pub(crate) fn items(&self, blocks: &Blocks, from: Key, to: Key, take: &mut dyn FnMut(Key, &[u8]) -> bool) {
        let start = self.pieces.partition_point(|piece| piece.last < from);
        for piece in self.pieces.get(start..).unwrap_or_default() {
            if piece.first > to {
                return;
            }
            let Some(block) = blocks.read(piece.at, 0) else { continue };
            let leaf = LeafView::new(&block);
            let (low, high) = (piece.first.max(from), piece.last.min(to));
            let slot = leaf.find(&low).unwrap_or_else(|slot| slot);
            for slot in slot..leaf.nritems() {
                let (key, data) = leaf.item(slot);
                if key > high {
                    break;
                }
                if key >= low && !take(key, data) {
                    return;
                }
            }
        }
    }

    /// The item with this key.
    pub(crate) fn get(&self, blocks: &Blocks, key: Key) -> Option<Vec<u8>> {
        let mut found = None;
        self.items(blocks, key, key, &mut |_, data| {
            found = Some(data.to_vec());
            false
        });
        found
    }

    /// The generation of the leaf whose range covers a key.
    pub(crate) fn generation_at(&self, key: Key) -> Option<u64> {
        let piece = self.pieces.get(self.pieces.partition_point(|piece| piece.last < key))?;
        (piece.first <= key).then_some(piece.at.generation)
    }

    /// Whether items between two keys may be lost.
    pub(crate) fn may_lack(&self, from: Key, to: Key) -> bool {
        overlaps(&self.holes, from, to)
    }

    /// Whether items between two keys may be from an older state.
    pub(crate) fn is_filled(&self, from: Key, to: Key) -> bool {
        overlaps(&self.filled, from, to)
    }

    /// Whether blocks of the tree were lost.
    pub(crate) fn is_damaged(&self) -> bool {
        !self.filled.is_empty() || !self.holes.is_empty()
    }

    /// Key ranges that are or may be missing.
    pub(crate) fn holes(&self) -> &[(Key, Key)] {
        &self.holes
    }

    /// Number of leaves.
    pub(crate) fn len(&self) -> usize {
        self.pieces.len()
    }

    /// The leaves in use.
    pub(crate) fn used(&self) -> impl Iterator<Item = At> {
        self.pieces.iter().map(|piece| piece.at)
    }
}

fn overlaps(ranges: &[(Key, Key)], from: Key, to: Key) -> bool {
    let index = ranges.partition_point(|(_, last)| *last < from);
    ranges.get(index).is_some_and(|(first, _)| *first <= to)
}

struct Walk<'a> {
    blocks: &'a Blocks,
    seen: HashSet<At>,
    pieces: Vec<Piece>,
    holes: Vec<(Key, Key)>,
}

/// A key range, and the block and level that cover it.
type Step = (Key, Key, At, u8);

impl Walk<'_> {
    /// Walks down in key order.
    fn run(&mut self, root: At, level: u8) {
        let mut todo = vec![(Key::MIN, Key::MAX, root, level)];
        while let Some(step) = todo.pop() {
            self.visit(step, &mut todo);
        }
    }

    fn visit(&mut self, (first, last, at, level): Step, todo: &mut Vec<Step>) {
        if self.seen.contains(&at) {
            return;
        }
        if level == 0 {
            if self.blocks.is_good(at, 0) {
                self.seen.insert(at);
                self.pieces.push(Piece { first, last, at });
            } else {
                self.lose(first, last);
            }
            return;
        }
        let Some(block) = self.blocks.read(at, level) else {
            self.lose(first, last);
            return;
        };
        self.seen.insert(at);
        let node = NodeView::new(&block);
        let (mut from, start) = (first, todo.len());
        for (slot, ptr) in node.ptrs().iter().enumerate() {
            let next = node.ptrs().get(slot + 1).map(|next| next.key.get());
            let to = next.and_then(before).unwrap_or(last).min(last);
            let at = At { logical: ptr.blockptr.get(), generation: ptr.generation.get() };
            if from <= to {
                todo.push((from, to, at, level - 1));
            }
            if let Some(next) = next {
                from = next.max(from);
            }
        }
        todo.get_mut(start..).unwrap_or_default().reverse();
    }

    fn lose(&mut self, first: Key, last: Key) {
        if self.holes.len() < HOLES_MAX {
            self.holes.push((first, last));
        } else if let Some(hole) = self.holes.last_mut() {
            hole.1 = hole.1.max(last);
        }
    }
}

/// The key before this one.
pub(crate) fn before(key: Key) -> Option<Key> {
    let Key { objectid, item_type, offset } = key;
    if let Some(offset) = offset.checked_sub(1) {
        return Some(Key::new(objectid, item_type, offset));
    }
    if let Some(item_type) = item_type.checked_sub(1) {
        return Some(Key::new(objectid, item_type, u64::MAX));
    }
    Some(Key::new(objectid.checked_sub(1)?, u8::MAX, u64::MAX))
}

/// Takes unreferenced leaves, newest first, for ranges that neither the tree's own leaves nor newer ones cover. Returns
/// the ranges still missing.
fn fill(blocks: &Blocks, spec: &Spec, seen: &HashSet<At>, pieces: &mut Vec<Piece>) -> Vec<(Key, Key)> {
    let mut covered = Covered(pieces.iter().map(|piece| (piece.first, piece.last)).collect());
    let table = blocks.table();
    let mut candidates: Vec<Piece> = Vec::new();
    for (owner, generation_max) in &spec.owners {
        for found in table.of(*owner, 0).filter(|found| found.generation <= *generation_max) {
            let at = At { logical: found.logical, generation: found.generation };
            if !seen.contains(&at) {
                candidates.push(Piece { first: found.first, last: found.last, at });
            }
        }
    }
    candidates.sort_by_key(|piece| (std::cmp::Reverse(piece.at.generation), piece.first, piece.at.logical));
    candidates.dedup_by_key(|piece| piece.at);
    for piece in candidates {
        let at = piece.at;
        covered.add(piece.first, piece.last, &mut |first, last| pieces.push(Piece { first, last, at }));
    }
    covered.missing()
}

/// Disjoint key ranges, by first key.
#[derive(Debug, Default)]
struct Covered(BTreeMap<Key, Key>);

impl Covered {
    /// Adds a range and passes each part that was not covered before to `new`.
    fn add(&mut self, first: Key, last: Key, new: &mut dyn FnMut(Key, Key)) {
        let start = self.0.range(..=first).next_back().filter(|(_, end)| **end >= first).map_or(first, |(key, _)| *key);
        let over: Vec<(Key, Key)> = self.0.range(start..=last).map(|(from, to)| (*from, *to)).collect();
        let (mut at, mut is_done) = (first, false);
        for (from, to) in &over {
            if *from > at
                && let Some(end) = before(*from)
            {
                new(at, end);
            }
            self.0.remove(from);
            match to.next() {
                Some(next) => at = at.max(next),
                None => is_done = true,
            }
        }
        if !is_done && at <= last {
            new(at, last);
        }
        let from = over.first().map_or(first, |(from, _)| first.min(*from));
        let to = over.last().map_or(last, |(_, to)| last.max(*to));
        self.0.insert(from, to);
    }

    /// The ranges that are not covered.
    fn missing(&self) -> Vec<(Key, Key)> {
        let (mut missing, mut at) = (Vec::new(), Key::MIN);
        for (first, last) in &self.0 {
            if *first > at
                && let Some(end) = before(*first)
            {
                missing.push((at, end));
            }
            match last.next() {
                Some(next) => at = at.max(next),
                None => return missing,
            }
        }
        missing.push((at, Key::MAX));
        missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(at: u64) -> Key {
        Key::new(at, 1, 0)
    }

    #[test]
    fn newer_leaves_hide_what_older_ones_have() {
        let mut covered = Covered::default();
        let mut new = Vec::new();
        let mut add = |first: u64, last: u64| {
            new.clear();
            covered.add(key(first), key(last), &mut |from, to| new.push((from, to)));
            new.clone()
        };
        assert_eq!(add(10, 20), [(key(10), key(20))]);
        assert_eq!(add(12, 18), []);
        assert_eq!(add(5, 15), [(key(5), before(key(10)).unwrap())]);
        assert_eq!(add(30, 40), [(key(30), key(40))]);
        let gaps = [
            (key(1), before(key(5)).unwrap()),
            (key(20).next().unwrap(), before(key(30)).unwrap()),
            (key(40).next().unwrap(), key(50)),
        ];
        assert_eq!(add(1, 50), gaps);
        assert_eq!(add(1, 50), []);
        assert_eq!(covered.0.len(), 1);
    }

    #[test]
    fn what_no_leaf_covers_is_missing() {
        let mut covered = Covered::default();
        assert_eq!(covered.missing(), [(Key::MIN, Key::MAX)]);
        covered.add(key(5), key(6), &mut |_, _| {});
        covered.add(key(2), Key::MAX, &mut |_, _| {});
        assert_eq!(covered.missing(), [(Key::MIN, before(key(2)).unwrap())]);
        assert_eq!(before(key(7).next().unwrap()), Some(key(7)));
        assert_eq!(before(Key::MIN), None);
    }
}
