//! Reads a tree in the order of its keys: lists its leaves, in runs that other trees may share, and searches for keys.
//! Called by the file and log passes, and for paths of findings.

use std::collections::HashSet;
use std::sync::Arc;

use btrfs_disk::node::{LEVELS_MAX, LeafView, NodeView, header};
use btrfs_disk::{Key, Logical};

use crate::media::Media;

/// Leaves of a run: about so many, and at most.
const RUN_LEAVES_LOG2: u32 = 5;
const RUN_LEAVES_MAX: usize = 128;

/// Adjacent leaves of a tree.
pub(crate) type Run = Arc<[u64]>;

/// All leaves of a tree, in order, in runs that end at leaves selected by their address: trees that differ in a few
/// leaves differ in a few runs.
pub(crate) fn runs(media: &Media, root: u64, level: u8) -> Vec<Run> {
    split(&leaves(media, root, level))
}

fn split(leaves: &[u64]) -> Vec<Run> {
    let (mut runs, mut start) = (Vec::new(), 0);
    for (index, leaf) in leaves.iter().enumerate() {
        let end = index.saturating_add(1);
        if ends_run(*leaf) || end.saturating_sub(start) >= RUN_LEAVES_MAX || end == leaves.len() {
            runs.push(leaves.get(start..end).unwrap_or_default().into());
            start = end;
        }
    }
    runs
}

fn ends_run(leaf: u64) -> bool {
    leaf.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - RUN_LEAVES_LOG2) == 0
}

/// All leaves of a tree, in order. Unreadable blocks are skipped: the walk has reported them.
pub(crate) fn leaves(media: &Media, root: u64, level: u8) -> Vec<u64> {
    let mut leaves = Vec::new();
    if level == 0 {
        return vec![root];
    }
    let mut todo = vec![(root, level)];
    // No sound tree has a node twice; a damaged one with a cycle would have leaves without end.
    let mut seen = HashSet::new();
    while let Some((at, level)) = todo.pop() {
        if !seen.insert(at) {
            continue;
        }
        let Some(block) = read(media, at, level) else { continue };
        let node = NodeView::new(&block);
        let children = (0..node.nritems()).map(|slot| node.ptr(slot).0.0);
        if level == 1 {
            leaves.extend(children);
        } else {
            let below = level.saturating_sub(1);
            let start = todo.len();
            todo.extend(children.map(|child| (child, below)));
            if let Some(children) = todo.get_mut(start..) {
                children.reverse();
            }
        }
    }
    leaves
}

fn read(media: &Media, at: u64, level: u8) -> Option<Vec<u8>> {
    let block = media.read_block(at)?;
    let is_it =
        header(&block).is_some_and(|header| header.level == level && Logical(header.bytenr.get()) == Logical(at));
    is_it.then_some(block)
}

/// The first item of a tree whose key is not below `key`, with its data.
pub(crate) fn at_or_after(media: &Media, root: (u64, u8), key: &Key) -> Option<(Key, Vec<u8>)> {
    let mut wanted = *key;
    // A leaf that ends before the key leads to the next one, by the key in its ancestors.
    for _ in 0..2 {
        let (mut at, mut level) = root;
        let mut next: Option<Key> = None;
        for _ in 0..LEVELS_MAX {
            let block = read(media, at, level)?;
            if level == 0 {
                let leaf = LeafView::new(&block);
                let slot = leaf.find(&wanted).unwrap_or_else(|slot| slot);
                if slot < leaf.nritems() {
                    let (key, data) = leaf.item(slot);
                    return Some((key, data.to_vec()));
                }
                break;
            }
            let node = NodeView::new(&block);
            let slot = node.child_slot(&wanted);
            if slot.saturating_add(1) < node.nritems() {
                next = Some(node.key(slot.saturating_add(1)));
            }
            at = node.ptr(slot).0.0;
            level = level.saturating_sub(1);
        }
        wanted = next?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_that_differ_in_few_leaves_differ_in_few_runs() {
        let leaves: Vec<u64> = (0..10_000).map(|n| (1 << 30) + n * 16384).collect();
        let runs = split(&leaves);
        assert!((150..600).contains(&runs.len()), "{} runs", runs.len());
        assert!(runs.iter().all(|run| (1..=RUN_LEAVES_MAX).contains(&run.len())));
        assert!(runs.iter().flat_map(|run| run.iter()).eq(&leaves));
        let mut other = leaves.clone();
        other.splice(5000..5001, [7 << 40, 8 << 40]);
        let known: HashSet<Run> = runs.into_iter().collect();
        let new = split(&other).into_iter().filter(|run| !known.contains(run)).count();
        assert!((1..=4).contains(&new), "{new} runs are new");
        assert!(split(&[]).is_empty());
    }
}
