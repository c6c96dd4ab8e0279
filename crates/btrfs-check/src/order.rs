//! A tree in the order of its keys: the leaves below each node of level 1, and searches.

use std::collections::HashSet;

use btrfs_disk::node::{LEVELS_MAX, LeafView, NodeView, header};
use btrfs_disk::{Key, Logical};

use crate::media::Media;

/// Leaves that stand side by side below one node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Run {
    /// The node of level 1, or the leaf of a tree that has no other.
    pub(crate) node: u64,
    pub(crate) leaves: Vec<u64>,
}

/// All leaves of a tree, in order. What cannot be read is left out: the walk has reported it.
pub(crate) fn runs(media: &Media, root: u64, level: u8) -> Vec<Run> {
    let mut runs = Vec::new();
    if level == 0 {
        return vec![Run { node: root, leaves: vec![root] }];
    }
    let mut todo = vec![(root, level)];
    // No tree has a node twice; damaged ones that lead there again and again would have leaves without end.
    let mut seen = HashSet::new();
    while let Some((at, level)) = todo.pop() {
        if !seen.insert(at) {
            continue;
        }
        let Some(block) = read(media, at, level) else { continue };
        let node = NodeView::new(&block);
        let children = (0..node.nritems()).map(|slot| node.ptr(slot).0.0);
        if level == 1 {
            runs.push(Run { node: at, leaves: children.collect() });
        } else {
            let below = level.saturating_sub(1);
            let start = todo.len();
            todo.extend(children.map(|child| (child, below)));
            if let Some(children) = todo.get_mut(start..) {
                children.reverse();
            }
        }
    }
    runs
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
    // A leaf that ends before the key leads to the next one, by the key that its ancestors name.
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
