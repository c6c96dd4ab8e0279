#![allow(clippy::as_conversions, reason = "tests")]
//! Trees against a `BTreeMap`, with commits, cold caches and several threads.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use btrfs_disk::{Generation, Key, Logical, TreeId};
use parking_lot::Mutex;

use super::*;
use crate::Result;

const NODESIZE: usize = 4096;

#[derive(Default)]
struct Disk(Mutex<HashMap<u64, Box<[u8]>>>);

impl BlockSource for Disk {
    fn read_block(&self, expect: &ReadExpect) -> Result<Box<[u8]>> {
        let block = self.0.lock().get(&expect.at.0).expect("every pointer leads to a block").clone();
        assert_eq!(layout::bytenr(&block), expect.at.0);
        assert_eq!(layout::generation(&block), expect.generation.0);
        assert_eq!(layout::level(&block), expect.level);
        if let Some(key) = expect.first_key {
            assert_eq!(layout::key_at(&block, 0), key);
        }
        Ok(block)
    }
}

struct TestHost {
    generation: AtomicU64,
    next: AtomicU64,
    live: Mutex<HashMap<u64, ()>>,
    dirty: Mutex<HashMap<u64, Block>>,
}

impl Host for TestHost {
    fn generation(&self) -> Generation {
        Generation(self.generation.load(Ordering::Relaxed))
    }
    fn owns(&self, block: &Bytes) -> bool {
        layout::generation(&block.data) == self.generation().0
    }
    fn alloc_block(&self, _: &Tree, _: u8) -> Result<Logical> {
        let at = self.next.fetch_add(NODESIZE as u64, Ordering::Relaxed);
        self.live.lock().insert(at, ());
        Ok(Logical(at))
    }
    fn block_cowed(&self, _: &Tree, old: &BlockView<'_>, _: &mut [u8]) -> Result<()> {
        assert!(self.live.lock().remove(&old.at.0).is_some(), "the old block was live");
        Ok(())
    }
    fn block_freed(&self, tree: &Tree, block: &BlockView<'_>) -> Result<()> {
        assert!(self.live.lock().remove(&block.at.0).is_some(), "the block was live");
        self.dirty.lock().remove(&block.at.0);
        tree.forest().cache.remove(block.at);
        Ok(())
    }
    fn block_dirtied(&self, block: &Block) {
        self.dirty.lock().insert(block.at().0, block.clone());
    }
}

struct Fixture {
    disk: Arc<Disk>,
    host: TestHost,
    root: RootPtr,
    tree: Tree,
}

impl Fixture {
    fn new() -> Self {
        let disk = Arc::new(Disk::default());
        let mut block = layout::empty_block(NODESIZE, 0);
        layout::readdress(&mut block, 4096, 1, 5);
        disk.0.lock().insert(4096, block);
        let host = TestHost {
            generation: AtomicU64::new(2),
            next: AtomicU64::new(8192),
            live: Mutex::new(HashMap::from([(4096, ())])),
            dirty: Mutex::default(),
        };
        let root = RootPtr { at: Logical(4096), level: 0, generation: Generation(1) };
        let tree = Self::open(&disk, root);
        Self { disk, host, root, tree }
    }

    fn open(disk: &Arc<Disk>, root: RootPtr) -> Tree {
        let forest = Forest::new(Arc::clone(disk) as Arc<dyn BlockSource>, NODESIZE, 1 << 20, [0; 16], [0; 16]);
        let tree = Tree::new(forest, TreeId::FS, TreeKind::Single, root);
        tree.set_block_count(1);
        tree
    }

    fn commit(&mut self, cold: bool) {
        let mut disk = self.disk.0.lock();
        for (at, block) in self.host.dirty.lock().drain() {
            let mut locked = block.write_new();
            prepare_for_write(&mut locked.data);
            disk.insert(at, locked.data.clone());
        }
        drop(disk);
        self.host.generation.fetch_add(1, Ordering::Relaxed);
        self.root = self.tree.root_ptr();
        if cold {
            let count = self.tree.block_count();
            self.tree = Self::open(&self.disk, self.root);
            self.tree.set_block_count(count);
        }
    }

    fn verify(&self, model: &BTreeMap<Key, Vec<u8>>) {
        let mut all = Vec::new();
        self.tree
            .scan(&Key::MIN, &Key::MAX, |key, bytes| {
                all.push((*key, bytes.to_vec()));
                Ok(Scan::Continue)
            })
            .unwrap();
        let expected: Vec<_> = model.iter().map(|(k, v)| (*k, v.clone())).collect();
        assert_eq!(all.len(), expected.len());
        assert!(all == expected);
        let (mut count, mut firsts) = (0, Vec::new());
        self.tree
            .for_each_block(|at, block| {
                assert!(self.host.live.lock().contains_key(&at.0), "{at} is live");
                count += 1;
                for (key, child, _) in children(block) {
                    firsts.push((key, child));
                }
                if let Some(found) = firsts.iter().position(|(_, child)| *child == at) {
                    assert_eq!(layout::key_at(block, 0), firsts.swap_remove(found).0);
                }
                Ok(())
            })
            .unwrap();
        assert_eq!(count, self.host.live.lock().len(), "no block is lost");
        assert_eq!(count as u64, self.tree.block_count());
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n
    }
}

fn key(n: usize) -> Key {
    Key::new((n / 7) as u64, (n % 7) as u8, (n * 3) as u64)
}

/// Replaces a range, short or over many leaves, by few or many of its keys.
fn replace_range(
    edit: &Edit<'_>,
    tree: &Tree,
    model: &mut BTreeMap<Key, Vec<u8>>,
    random: &mut Random,
    (span, bytes): (usize, &[u8]),
) {
    let start = random.below(span);
    let width = if random.below(6) == 0 { 2_000 } else { 20 };
    let mut range: Vec<Key> = (start..start + 1 + random.below(width)).map(key).collect();
    range.sort_unstable();
    let (from, to) = (range[0], range[range.len() - 1]);
    let few = 1 + random.below(40);
    let kept: Vec<Key> = range.into_iter().filter(|_| random.below(few) == 0).collect();
    let items: Vec<(Key, &[u8])> = kept.iter().map(|k| (*k, bytes)).collect();
    edit.replace(tree, &from, &to, &items).unwrap();
    model.retain(|k, _| *k < from || *k > to);
    model.extend(items.iter().map(|(k, b)| (*k, b.to_vec())));
}

fn run(seed: u64, steps: usize, span: usize) {
    let mut random = Random(seed);
    let mut fixture = Fixture::new();
    let mut model: BTreeMap<Key, Vec<u8>> = BTreeMap::new();
    for step in 0..steps {
        let edit = Edit::new(&fixture.host);
        let tree = &fixture.tree;
        let at = key(random.below(span));
        let big = if random.below(20) == 0 { 3000 } else { 150 };
        let bytes = vec![step as u8; random.below(big)];
        match random.below(14) {
            0..=3 => {
                let result = edit.insert(tree, &at, &bytes);
                assert_eq!(result.is_err(), model.contains_key(&at), "seed {seed} step {step}");
                model.entry(at).or_insert(bytes);
            }
            4 | 5 => {
                edit.put(tree, &at, &bytes).unwrap();
                model.insert(at, bytes);
            }
            6 | 7 => {
                let was = edit.remove(tree, &at).unwrap();
                assert_eq!(was, model.remove(&at).is_some(), "seed {seed} step {step}");
            }
            8 if random.below(10) == 0 => {
                let to = key(random.below(span)).max(at);
                let expected: Vec<Key> = model.range(at..=to).map(|(k, _)| *k).collect();
                let mut shown = Vec::new();
                edit.remove_range(tree, &at, &to, |k, _| shown.push(*k)).unwrap();
                assert_eq!(shown, expected);
                model.retain(|k, _| *k < at || *k > to);
            }
            9 => {
                let start = random.below(span);
                let end = start + random.below(60);
                let is_new = |k: &Key| !model.contains_key(k);
                let mut sorted: Vec<Key> = (start..end).map(key).filter(is_new).collect();
                sorted.sort_unstable();
                let items: Vec<(Key, &[u8])> = sorted.iter().map(|k| (*k, &bytes[..bytes.len().min(150)])).collect();
                edit.insert_batch(tree, &items).unwrap();
                model.extend(items.iter().map(|(k, b)| (*k, b.to_vec())));
            }
            11 | 12 => replace_range(&edit, tree, &mut model, &mut random, (span, &bytes)),
            10 => {
                let found = edit.update(tree, &at, |b| b.fill(7)).unwrap();
                assert_eq!(found, model.get_mut(&at).map(|b| b.fill(7)).is_some());
            }
            _ => {
                let got = tree.get(&at).unwrap();
                assert_eq!(got.as_ref(), model.get(&at));
                let before = tree.at_or_before(&at).unwrap();
                assert_eq!(before, model.range(..=at).next_back().map(|(k, v)| (*k, v.clone())));
                let after = tree.at_or_after(&at).unwrap();
                assert_eq!(after, model.range(at..).next().map(|(k, v)| (*k, v.clone())));
            }
        }
        if random.below(400) == 0 {
            fixture.tree.raise(&fixture.host).unwrap();
        }
        if random.below(700) == 0 {
            fixture.verify(&model);
            let cold = random.below(2) == 0;
            fixture.commit(cold);
        }
    }
    fixture.verify(&model);
    let edit = Edit::new(&fixture.host);
    edit.remove_range(&fixture.tree, &Key::MIN, &Key::MAX, |_, _| ()).unwrap();
    fixture.verify(&BTreeMap::new());
}

#[test]
fn random_edits_match_a_map() {
    for seed in 0..12 {
        run(seed, 6_000, 3_000);
    }
    run(100, 40_000, 30_000);
}

#[test]
fn set_key_keeps_the_order() {
    let fixture = Fixture::new();
    let edit = Edit::new(&fixture.host);
    for n in 0..500u64 {
        edit.insert(&fixture.tree, &Key::new(n * 10, 1, 0), &[0; 50]).unwrap();
    }
    for n in 0..500u64 {
        edit.set_key(&fixture.tree, &Key::new(n * 10, 1, 0), &Key::new(n * 10 + 5, 1, 0)).unwrap();
        let (from, too_far) = (Key::new(n * 10 + 5, 1, 0), Key::new(n * 10 + 20, 1, 0));
        assert!(edit.set_key(&fixture.tree, &from, &too_far).is_err() || n == 499);
    }
    let mut count = 0;
    fixture
        .tree
        .scan(&Key::MIN, &Key::MAX, |_, _| {
            count += 1;
            Ok(Scan::Continue)
        })
        .unwrap();
    assert_eq!(count, 500);
}

#[test]
fn four_threads_edit_their_own_keys() {
    let fixture = Fixture::new();
    let models: Vec<BTreeMap<Key, Vec<u8>>> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..4u64)
            .map(|thread| {
                let fixture = &fixture;
                scope.spawn(move || {
                    let mut random = Random(thread + 50);
                    let mut model = BTreeMap::new();
                    for step in 0..20_000usize {
                        let edit = Edit::new(&fixture.host);
                        let at = Key::new(random.below(3_000) as u64, thread as u8, 0);
                        if random.below(5) < 3 {
                            let bytes = vec![step as u8; random.below(200)];
                            edit.put(&fixture.tree, &at, &bytes).unwrap();
                            model.insert(at, bytes);
                        } else {
                            assert_eq!(edit.remove(&fixture.tree, &at).unwrap(), model.remove(&at).is_some());
                        }
                        assert_eq!(fixture.tree.get(&at).unwrap().as_ref(), model.get(&at));
                    }
                    model
                })
            })
            .collect();
        handles.into_iter().map(|h| h.join().unwrap()).collect()
    });
    fixture.verify(&models.into_iter().flatten().collect());
}

/// A root of many children becomes the only child of a new one, once; both are freed when little is left.
#[test]
fn a_raised_root_has_one_child_and_comes_down_again() {
    let mut fixture = Fixture::new();
    let edit = Edit::new(&fixture.host);
    let fill = |edit: &Edit<'_>, count: u64| {
        (0..count).for_each(|n| edit.put(&fixture.tree, &Key::new(n, 0, 0), &[1; 100]).unwrap());
    };
    let children_of_root = |tree: &Tree| children(&tree.root_bytes().unwrap()).count();
    fill(&edit, 300);
    let before = (fixture.tree.root_ptr(), children_of_root(&fixture.tree));
    assert!(before.1 <= 16, "{before:?}");
    fixture.tree.raise(&fixture.host).unwrap();
    assert_eq!((fixture.tree.root_ptr(), children_of_root(&fixture.tree)), before, "few children: left as it is");
    fill(&edit, 1000);
    let before = fixture.tree.root_ptr();
    assert!(children_of_root(&fixture.tree) > 16);
    for _ in 0..2 {
        fixture.tree.raise(&fixture.host).unwrap();
        let root = fixture.tree.root_ptr();
        assert_eq!((root.level, children_of_root(&fixture.tree)), (before.level + 1, 1));
        assert_eq!(children(&fixture.tree.root_bytes().unwrap()).next().unwrap().1, before.at);
    }
    fixture.commit(true);
    let edit = Edit::new(&fixture.host);
    let mut model: BTreeMap<Key, Vec<u8>> = (0..1000).map(|n| (Key::new(n, 0, 0), vec![1; 100])).collect();
    fixture.verify(&model);
    for n in (2..1000).rev() {
        edit.remove(&fixture.tree, &Key::new(n, 0, 0)).unwrap();
        model.remove(&Key::new(n, 0, 0));
    }
    fixture.verify(&model);
    assert_eq!(fixture.tree.root_ptr().level, 0);
}

/// The size in a root item may be wrong, and the tree of roots has no root item: the count of blocks wrapped when more
/// were freed than counted, and so did the sum of several trees.
#[test]
fn more_blocks_may_go_than_were_counted() {
    let fixture = Fixture::new();
    let edit = Edit::new(&fixture.host);
    for n in 0..500 {
        edit.insert(&fixture.tree, &Key::new(n, 0, 0), &[1; 100]).unwrap();
    }
    assert!(fixture.tree.block_count() > 10);
    fixture.tree.set_block_count(2);
    edit.remove_range(&fixture.tree, &Key::MIN, &Key::MAX, |_, _| ()).unwrap();
    assert!(fixture.tree.block_count() <= 1, "{}", fixture.tree.block_count());
}

/// File contents come behind the items of their inode, which are there already, for some files at a time. Every leaf
/// was split in the middle, and a volume took two thirds of the small files that fit with the kernel.
#[test]
fn items_that_come_between_others_leave_full_leaves() {
    const FILES: u64 = 2_000;
    for is_backwards in [false, true] {
        let fixture = Fixture::new();
        let edit = Edit::new(&fixture.host);
        let mut random = Random(3);
        let mut model = BTreeMap::new();
        for batch in 0..FILES / 100 {
            let mut files: Vec<u64> = (batch * 100..(batch + 1) * 100).collect();
            for n in &files {
                model.insert(Key::new(*n, 1, 0), vec![1; 160]);
                model.insert(Key::new(*n, 12, 0), vec![2; 20]);
                edit.insert(&fixture.tree, &Key::new(*n, 1, 0), &[1; 160]).unwrap();
                edit.insert(&fixture.tree, &Key::new(*n, 12, 0), &[2; 20]).unwrap();
            }
            if is_backwards {
                files.reverse();
            }
            for n in files {
                let data = vec![3; 50 + random.below(300)];
                edit.insert(&fixture.tree, &Key::new(n, 108, 0), &data).unwrap();
                model.insert(Key::new(n, 108, 0), data);
            }
        }
        fixture.verify(&model);
        let bytes: usize = model.values().map(|data| data.len() + layout::ITEM).sum();
        let percent = bytes * 100 / (fixture.tree.block_count() as usize * NODESIZE);
        assert!(percent >= 80, "{percent} %, backwards: {is_backwards}");
    }
}

/// A comparison of two states finds the differences between their maps, and visits few blocks where few items differ.
#[test]
fn a_comparison_finds_what_differs_in_the_blocks_that_do() {
    let mut random = Random(5);
    let mut fixture = Fixture::new();
    let mut model: BTreeMap<Key, Vec<u8>> = BTreeMap::new();
    let mut states = vec![(fixture.root, model.clone())];
    for round in 0..14 {
        let changes = if round % 2 == 0 { 2_000 } else { 5 };
        for step in 0..changes {
            let edit = Edit::new(&fixture.host);
            let at = key(random.below(20_000));
            let bytes = vec![step as u8; random.below(120)];
            if random.below(3) == 0 {
                edit.remove(&fixture.tree, &at).unwrap();
                model.remove(&at);
            } else {
                edit.put(&fixture.tree, &at, &bytes).unwrap();
                model.insert(at, bytes);
            }
        }
        fixture.commit(true);
        let (root, before) = states.last().unwrap();
        let blocks = compared(&fixture.disk, Some((*root, before)), (fixture.root, &model));
        if changes == 5 {
            assert!(blocks < 60, "{blocks} blocks for {changes} changes");
        }
        states.push((fixture.root, model.clone()));
    }
    for (number, (old_root, old)) in states.iter().enumerate() {
        let (root, new) = &states[states.len() - 1 - number];
        compared(&fixture.disk, Some((*old_root, old)), (*root, new));
        compared(&fixture.disk, None, (*root, new));
    }
}

type State<'a> = (RootPtr, &'a BTreeMap<Key, Vec<u8>>);

/// Compares two states, and the answer with their maps; blocks looked at.
fn compared(disk: &Arc<Disk>, old: Option<State<'_>>, new: State<'_>) -> u64 {
    let nothing = BTreeMap::new();
    let open = |root| Arc::new(Fixture::open(disk, root));
    let mut compare = Compare::new(old.map(|(root, _)| open(root)), open(new.0)).unwrap();
    let mut found = Vec::new();
    while let Some(Difference { key, old, new }) = compare.step().unwrap() {
        found.push((key, old.map(<[u8]>::to_vec), new.map(<[u8]>::to_vec)));
    }
    let (old, new) = (old.map_or(&nothing, |(_, map)| map), new.1);
    let mut keys: Vec<Key> = old.keys().chain(new.keys()).copied().collect();
    keys.sort_unstable();
    keys.dedup();
    let of = |key: &Key| (*key, old.get(key).cloned(), new.get(key).cloned());
    let expected: Vec<_> = keys.iter().map(of).filter(|(_, old, new)| old != new).collect();
    assert!(found == expected, "{} differences of {}", found.len(), expected.len());
    compare.block_count()
}

#[test]
fn a_commit_looks_only_at_the_trees_that_changed() {
    let fixture = Fixture::new();
    let forest = fixture.tree.forest();
    let open = |id| Tree::new(Arc::clone(forest), TreeId(id), TreeKind::Shareable, fixture.root);
    let trees: Vec<Tree> = (256..1256).map(open).collect();
    assert!(forest.changed().is_empty(), "opening a tree does not change it");
    for index in [700, 7, 700] {
        trees[index].note_changed();
    }
    assert_eq!(forest.take_changed(), [TreeId(263), TreeId(956)]);
    assert!(trees[7].take_changed() && trees[7].is_changed() != trees[700].is_changed());
    trees[7].note_changed();
    trees[700].note_changed();
    assert_eq!(forest.take_changed(), [TreeId(263)], "the other is still marked");
}
