//! The rules of copying and dropping, on small trees that snapshots share: after every step, the counted references
//! equal those that the blocks hold, as `btrfs check` counts them.

use std::collections::{BTreeMap, BTreeSet};

use btrfs_disk::convert::{to_u64, to_usize};
use btrfs_disk::items::{FileExtentItem, NewFileExtent, OnDisk};
use btrfs_disk::key::item_type;
use btrfs_disk::{Generation, InodeNo, Key, Logical, TreeId};

use super::test_blocks::{leaf, node};
use super::*;
use crate::Result;

const SECTOR: u64 = 4096;
const FANOUT: usize = 3;
const ROOT_LEVEL: u8 = 3;

#[derive(Clone)]
struct Block {
    owner: u64,
    level: u8,
    generation: u64,
    /// Blocks below, or data extents.
    children: Vec<u64>,
}

#[derive(Default)]
struct Extent {
    refs: BTreeMap<RefKey, i64>,
    full_backref: bool,
}

struct Forest {
    blocks: BTreeMap<u64, Block>,
    extents: BTreeMap<u64, Extent>,
    /// Root and last snapshot of each tree.
    trees: BTreeMap<u64, (u64, u64)>,
    generation: u64,
    next: u64,
    seed: u64,
}

impl Block {
    fn bytes(&self) -> Vec<u8> {
        if self.level > 0 {
            return node(self.level, &self.children);
        }
        let items: Vec<_> = self.children.iter().map(|at| file_extent(*at)).collect();
        leaf(&items)
    }
}

/// A file of one extent; its inode number is the extent's address.
fn file_extent(at: u64) -> (Key, Vec<u8>) {
    let extent = NewFileExtent {
        generation: Generation(1),
        compression: 0,
        disk: Logical(at),
        disk_len: SECTOR,
        ram_len: SECTOR,
        offset: 0,
        len: SECTOR,
    };
    let key = Key::new(at, item_type::EXTENT_DATA, 0);
    (key, FileExtentItem::regular(&extent).bytes().to_vec())
}

fn data_key(tree: u64, at: u64) -> RefKey {
    RefKey::DataRef { root: TreeId(tree), inode: InodeNo(at), offset: 0 }
}

impl Forest {
    fn new(seed: u64) -> Self {
        let mut forest = Self {
            blocks: BTreeMap::new(),
            extents: BTreeMap::new(),
            trees: BTreeMap::new(),
            generation: 1,
            next: SECTOR,
            seed,
        };
        let root = forest.grow(5, ROOT_LEVEL);
        forest.trees.insert(5, (root, 0));
        forest
    }

    fn random(&mut self, below: usize) -> usize {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        to_usize((self.seed >> 33) % to_u64(below))
    }

    fn address(&mut self) -> u64 {
        self.next += SECTOR;
        self.next
    }

    /// A full subtree of new blocks.
    fn grow(&mut self, owner: u64, level: u8) -> u64 {
        let children = (0..FANOUT)
            .map(|_| match level {
                0 => self.new_data(owner),
                _ => self.grow(owner, level - 1),
            })
            .collect();
        self.new_block(Block { owner, level, generation: self.generation, children })
    }

    fn new_block(&mut self, block: Block) -> u64 {
        let at = self.address();
        self.count(at, RefKey::TreeRef { owner: TreeId(block.owner) }, 1);
        self.blocks.insert(at, block);
        at
    }

    fn new_data(&mut self, tree: u64) -> u64 {
        let at = self.address();
        self.count(at, data_key(tree, at), 1);
        at
    }

    fn count(&mut self, at: u64, key: RefKey, change: i64) {
        let extent = self.extents.entry(at).or_default();
        let count = extent.refs.entry(key).or_default();
        *count += change;
        assert!(*count >= 0, "{key:?} of {at} was not held");
        if *count == 0 {
            extent.refs.remove(&key);
        }
        if extent.refs.is_empty() {
            self.extents.remove(&at);
        }
    }

    fn apply(&mut self, run: impl FnOnce(&mut dyn FnMut(RefChange) -> Result<()>) -> Result<()>) {
        let mut changes = Vec::new();
        run(&mut |change| {
            changes.push(change);
            Ok(())
        })
        .unwrap();
        for change in changes {
            let parts = change.parts();
            if let Some((key, count)) = parts.delta {
                self.count(parts.at.0, key, count);
            }
            if parts.full_backref {
                self.extents.get_mut(&parts.at.0).unwrap().full_backref = true;
            }
        }
    }

    fn state(&self, tree: u64, at: u64) -> BlockState {
        let (block, extent) = (&self.blocks[&at], &self.extents[&at]);
        let state = BlockState {
            refs: extent.refs.values().sum::<i64>().unsigned_abs(),
            full_backref: extent.full_backref,
            is_owned: block.owner == tree,
            is_relocation: false,
        };
        let (root, last_snapshot) = self.trees[&tree];
        let may_be = may_be_shared(&Shareability {
            tree_is_shareable: true,
            is_root: at == root,
            block_generation: Generation(block.generation),
            last_snapshot: Generation(last_snapshot),
            is_relocated: false,
        });
        if !may_be {
            assert_eq!(state, unshared(false));
        }
        state
    }

    /// The block that `tree` may change in place of the one at `at`.
    fn cow(&mut self, tree: u64, at: u64) -> u64 {
        let old = self.blocks[&at].clone();
        if old.generation == self.generation {
            return at;
        }
        let plan = on_cow(&self.state(tree, at));
        let copy = Block { owner: tree, generation: self.generation, ..old.clone() };
        let new = self.new_block(copy);
        let places = (Logical(at), Logical(new));
        self.apply(|emit| cow_changes(&plan, &old.bytes(), places, TreeId(tree), emit));
        assert_eq!(plan.frees_old, !self.extents.contains_key(&at));
        if plan.frees_old {
            self.blocks.remove(&at);
        }
        new
    }

    /// Replaces one file extent of a tree.
    fn write(&mut self, tree: u64) {
        let mut at = self.cow(tree, self.trees[&tree].0);
        self.trees.get_mut(&tree).unwrap().0 = at;
        while self.blocks[&at].level > 0 {
            let slot = self.random(FANOUT);
            let child = self.cow(tree, self.blocks[&at].children[slot]);
            self.blocks.get_mut(&at).unwrap().children[slot] = child;
            at = child;
        }
        let slot = self.random(FANOUT);
        let new = self.new_data(tree);
        let place = &mut self.blocks.get_mut(&at).unwrap().children[slot];
        let old = std::mem::replace(place, new);
        self.count(old, data_key(tree, old), -1);
    }

    fn snapshot(&mut self, source: u64, id: u64) {
        self.generation += 1;
        let root = self.blocks[&self.trees[&source].0].clone();
        let copy = Block { owner: id, generation: self.generation, ..root.clone() };
        let at = self.new_block(copy);
        let how = (Counting::Normal, Sign::Add);
        self.apply(|emit| child_changes(&root.bytes(), Logical(at), TreeId(id), how, emit));
        self.trees.insert(id, (at, self.generation));
        self.trees.get_mut(&source).unwrap().1 = self.generation;
    }

    fn drop_tree(&mut self, tree: u64) {
        let root = self.trees[&tree].0;
        self.drop_block(tree, root, RefKey::TreeRef { owner: TreeId(tree) });
        self.trees.remove(&tree);
    }

    fn drop_block(&mut self, tree: u64, at: u64, held_as: RefKey) {
        let state = self.state(tree, at);
        match on_drop(&state) {
            DropPlan::Release => {}
            DropPlan::Convert => self.convert(tree, at),
            DropPlan::Descend(counting) => {
                let block = self.blocks.remove(&at).unwrap();
                assert!(counting == Counting::Shared || block.owner == tree);
                self.blocks.insert(at, block.clone());
                for child in &block.children {
                    self.drop_child(tree, at, *child, (counting, block.level));
                }
                self.blocks.remove(&at);
            }
        }
        self.count(at, held_as, -1);
    }

    fn drop_child(&mut self, tree: u64, parent: u64, child: u64, (counting, level): (Counting, u8)) {
        let parent = Logical(parent);
        match (counting, level) {
            (Counting::Shared, 0) => self.count(child, RefKey::SharedData { parent }, -1),
            (Counting::Normal, 0) => self.count(child, data_key(tree, child), -1),
            (Counting::Shared, _) => self.drop_block(tree, child, RefKey::SharedTree { parent }),
            (Counting::Normal, _) => {
                self.drop_block(tree, child, RefKey::TreeRef { owner: TreeId(tree) });
            }
        }
    }

    fn convert(&mut self, tree: u64, at: u64) {
        let block = self.blocks[&at].clone();
        if block.owner != tree || self.extents[&at].full_backref {
            return;
        }
        self.apply(|emit| convert_changes(&block.bytes(), Logical(at), TreeId(tree), emit));
        if block.level > 0 {
            for child in block.children {
                self.convert(tree, child);
            }
        }
    }

    /// Counts the references that the reachable blocks hold, and compares.
    fn check(&self) {
        let mut held: BTreeMap<u64, BTreeMap<RefKey, i64>> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        let mut todo = Vec::new();
        let mut hold = |at: u64, key| *held.entry(at).or_default().entry(key).or_default() += 1;
        for (tree, (root, _)) in &self.trees {
            hold(*root, RefKey::TreeRef { owner: TreeId(*tree) });
            todo.push(*root);
        }
        while let Some(at) = todo.pop() {
            if !seen.insert(at) {
                continue;
            }
            let (block, parent) = (&self.blocks[&at], Logical(at));
            for child in &block.children {
                hold(
                    *child,
                    match (self.extents[&at].full_backref, block.level) {
                        (true, 0) => RefKey::SharedData { parent },
                        (true, _) => RefKey::SharedTree { parent },
                        (false, 0) => data_key(block.owner, *child),
                        (false, _) => RefKey::TreeRef { owner: TreeId(block.owner) },
                    },
                );
                if block.level > 0 {
                    todo.push(*child);
                }
            }
        }
        assert!(self.blocks.keys().eq(&seen), "unreachable blocks");
        let counted: BTreeMap<u64, &BTreeMap<RefKey, i64>> =
            self.extents.iter().map(|(at, extent)| (*at, &extent.refs)).collect();
        assert!(held.iter().map(|(at, refs)| (*at, refs)).eq(counted));
        let is_once = |(key, count): (&RefKey, &i64)| !key.is_tree() || *count == 1;
        assert!(held.values().flatten().all(is_once), "a tree block is held twice as one");
    }
}

#[test]
fn shared_trees_are_counted_as_they_are() {
    for seed in 0..60 {
        println!("seed {seed}");
        let mut forest = Forest::new(seed);
        let mut next_tree = 256;
        for _ in 0..150 {
            let index = forest.random(forest.trees.len());
            let tree = *forest.trees.keys().nth(index).unwrap();
            match forest.random(10) {
                0 if forest.trees.len() < 6 => {
                    forest.snapshot(tree, next_tree);
                    next_tree += 1;
                }
                1 if forest.trees.len() > 1 => forest.drop_tree(tree),
                2 => forest.generation += 1,
                _ => forest.write(tree),
            }
            forest.check();
        }
        while let Some(tree) = forest.trees.keys().next().copied() {
            forest.drop_tree(tree);
            forest.check();
        }
        assert!(forest.extents.is_empty());
    }
}
