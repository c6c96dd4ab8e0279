//! The store against a map: edits, commits, opens, snapshots, deleted snapshots, full devices.
#![allow(clippy::as_conversions, clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::sync::Arc;

use blockdev::Device as _;
use blockdev::backends::MemoryDevice;
use btrfs_disk::items::RootItem;
use btrfs_disk::{Key, TreeId};
use btrfs_store::{DropProgress, MakeOptions, Need, Scan, Store, StoreOptions, Tree};
use zerocopy::FromZeros;

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n
    }
}

type Model = BTreeMap<Key, Vec<u8>>;

fn make(size: u64, options: &MakeOptions) -> (Arc<MemoryDevice>, Store) {
    let device = Arc::new(MemoryDevice::new(size));
    let store = Store::make(vec![Arc::clone(&device) as _], options, &StoreOptions::default()).unwrap();
    store.commit().unwrap();
    (device, store)
}

fn need(items: u32) -> Need {
    Need { items, data: 0 }
}

fn root_item() -> RootItem {
    let mut item = RootItem::new_zeroed();
    item.refs = 1.into();
    item
}

fn contents(tree: &Tree) -> Model {
    let mut found = Model::new();
    tree.scan(&Key::MIN, &Key::MAX, |key, bytes| {
        found.insert(*key, bytes.to_vec());
        Ok(Scan::Continue)
    })
    .unwrap();
    found
}

/// Keys of a type that no verifier knows, so that any bytes are good.
fn key(n: usize) -> Key {
    Key::new(256 + n as u64, 250, 0)
}

fn create(store: &Store, id: u64) -> Arc<Tree> {
    let txn = store.begin(store.reserve(need(4)).unwrap()).unwrap();
    txn.create_tree(TreeId(id), &root_item()).unwrap()
}

fn edit(store: &Store, tree: &Tree, model: &mut Model, random: &mut Random, span: usize) {
    let txn = store.begin(store.reserve(need(2)).unwrap()).unwrap();
    let at = key(random.below(span));
    if random.below(3) < 2 {
        let bytes = vec![random.below(250) as u8; random.below(400)];
        txn.put(tree, &at, &bytes).unwrap();
        model.insert(at, bytes);
    } else {
        assert_eq!(txn.remove(tree, &at).unwrap(), model.remove(&at).is_some());
    }
}

#[test]
fn commits_survive_an_open() {
    let (mut device, mut store) = make(256 << 20, &MakeOptions::default());
    let mut tree = create(&store, 256);
    let mut model = Model::new();
    let mut random = Random(1);
    for step in 0..20_000 {
        edit(&store, &tree, &mut model, &mut random, 4_000);
        if step % 3_000 == 2_999 {
            store.commit().unwrap();
            device = Arc::new(MemoryDevice::from_bytes(&device.to_bytes()));
            store = Store::open(vec![Arc::clone(&device) as _], &StoreOptions::default()).unwrap();
            tree = store.tree(TreeId(256)).unwrap();
            assert!(contents(&tree) == model);
        }
    }
}

#[test]
fn snapshots_keep_what_they_saw_and_go_without_a_trace() {
    let (_device, store) = make(256 << 20, &MakeOptions::default());
    let tree = create(&store, 256);
    let mut model = Model::new();
    let mut random = Random(2);
    let mut live: BTreeMap<u64, (Arc<Tree>, Model)> = BTreeMap::new();
    let mut next = 257;
    for step in 0..12_000 {
        edit(&store, &tree, &mut model, &mut random, 3_000);
        if step % 400 == 399 {
            let txn = store.begin_exclusive(need(8)).unwrap();
            let snapshot = txn.snapshot_tree(&tree, TreeId(next), &root_item()).unwrap();
            live.insert(next, (snapshot, model.clone()));
            next += 1;
        }
        if let Some(id) = live.keys().copied().nth(random.below(40)) {
            if random.below(3) == 0 && step % 20 == 0 {
                while store.drop_tree_step(TreeId(id), 20).unwrap() == DropProgress::More {}
                live.remove(&id);
            } else {
                let (snapshot, model) = live.get_mut(&id).unwrap();
                edit(&store, snapshot, model, &mut random, 3_000);
            }
        }
        if random.below(700) == 0 {
            store.commit().unwrap();
        }
    }
    assert!(contents(&tree) == model);
    for (snapshot, model) in live.values() {
        assert!(contents(snapshot) == *model);
    }
    for id in live.keys() {
        while store.drop_tree_step(TreeId(*id), 50).unwrap() == DropProgress::More {}
    }
    assert!(contents(&tree) == model);
    // Without snapshots, the space in use is that of the trees.
    while store.drop_tree_step(TreeId(256), 50).unwrap() == DropProgress::More {}
    store.commit().unwrap();
    store.commit().unwrap();
    let used: u64 = store.space().profiles.iter().map(|p| p.used).sum();
    assert!(used < 40 * 16384, "{used} bytes are still used by the empty store");
}

#[test]
fn what_settled_before_a_handle_that_was_alone_is_written_after_it() {
    let (device, store) = make(64 << 20, &MakeOptions::default());
    let tree = create(&store, 256);
    let committed = store.commit().unwrap();
    let put = |n| {
        let txn = store.begin(store.reserve(need(1)).unwrap()).unwrap();
        txn.put(&tree, &key(n), b"x").unwrap();
    };
    let on_device = || {
        let copy = Arc::new(MemoryDevice::from_bytes(&device.to_bytes()));
        let store = Store::open(vec![copy], &StoreOptions::default()).unwrap();
        let there = contents(&store.tree(TreeId(256)).unwrap());
        [1, 2, 3].map(|n| there.contains_key(&key(n)))
    };
    put(1);
    let alone = store.begin_exclusive(need(1)).unwrap();
    alone.put(&tree, &key(2), b"x").unwrap();
    assert_eq!(store.durable(), committed, "a lone transaction does not wait for the device");
    assert_eq!(on_device(), [false; 3]);
    drop(alone);
    put(3);
    store.write_settled().unwrap();
    assert_eq!((store.durable().0, on_device()), (committed.0 + 1, [true, false, false]));
    store.write_settled().unwrap();
    assert_eq!((store.durable().0, on_device()), (committed.0 + 1, [true, false, false]));
    store.commit().unwrap();
    assert_eq!(on_device(), [true; 3]);
    // By the next commit, or by the next exclusive handle.
    put(4);
    drop(store.begin_exclusive(need(1)).unwrap());
    put(5);
    drop(store.begin_exclusive(need(1)).unwrap());
    assert_eq!(store.durable().0, committed.0 + 3);
    store.commit().unwrap();
    assert_eq!(store.durable().0, committed.0 + 4);
}

#[test]
fn the_original_can_go_before_its_snapshots() {
    let (_device, store) = make(256 << 20, &MakeOptions::default());
    let tree = create(&store, 256);
    let mut model = Model::new();
    let mut random = Random(3);
    for _ in 0..8_000 {
        edit(&store, &tree, &mut model, &mut random, 3_000);
    }
    let mut snapshots = Vec::new();
    for id in 257..260 {
        let txn = store.begin_exclusive(need(8)).unwrap();
        snapshots.push((txn.snapshot_tree(&tree, TreeId(id), &root_item()).unwrap(), model.clone()));
        drop(txn);
        for _ in 0..200 {
            edit(&store, &tree, &mut model, &mut random, 3_000);
        }
    }
    while store.drop_tree_step(TreeId(256), 7).unwrap() == DropProgress::More {
        if random.below(4) == 0 {
            store.commit().unwrap();
        }
        let (snapshot, model) = &mut snapshots[1];
        edit(&store, snapshot, model, &mut random, 3_000);
    }
    for (snapshot, model) in &snapshots {
        assert!(contents(snapshot) == *model);
    }
    for id in [258, 257, 259] {
        while store.drop_tree_step(TreeId(id), 9).unwrap() == DropProgress::More {}
    }
    store.commit().unwrap();
    let used: u64 = store.space().profiles.iter().map(|p| p.used).sum();
    assert!(used < 40 * 16384, "{used} bytes are still used by the empty store");
}

#[test]
fn a_full_device_says_so_and_can_be_emptied() {
    let (device, store) = make(64 << 20, &MakeOptions::default());
    let tree = create(&store, 256);
    let mut count = 0;
    loop {
        let reservation = match store.reserve(need(1)) {
            Ok(reservation) => reservation,
            Err(error) => {
                assert!(error.to_string().contains("no space"), "{error}");
                break;
            }
        };
        let txn = store.begin(reservation).unwrap();
        txn.put(&tree, &key(count), &[7; 3000]).unwrap();
        count += 1;
    }
    assert!(count > 2_000, "only {count} items fit");
    for n in 0..count {
        let txn = store.begin(store.reserve_urgent(need(1)).unwrap()).unwrap();
        assert!(txn.remove(&tree, &key(n)).unwrap());
    }
    store.commit().unwrap();
    let copy = Arc::new(MemoryDevice::from_bytes(&device.to_bytes()));
    let store = Store::open(vec![copy], &StoreOptions::default()).unwrap();
    assert!(contents(&store.tree(TreeId(256)).unwrap()).is_empty());
}

#[test]
fn four_threads_and_a_committer() {
    let (_device, store) = make(256 << 20, &MakeOptions::default());
    let tree = create(&store, 256);
    std::thread::scope(|scope| {
        for thread in 0..4usize {
            let (store, tree) = (&store, &tree);
            scope.spawn(move || {
                let mut random = Random(thread as u64 + 10);
                let mut model = Model::new();
                for _ in 0..5_000 {
                    let at = Key::new(256 + random.below(2_000) as u64, 250, thread as u64);
                    let txn = store.begin(store.reserve(need(1)).unwrap()).unwrap();
                    if random.below(3) < 2 {
                        let bytes = vec![thread as u8; random.below(300)];
                        txn.put(tree, &at, &bytes).unwrap();
                        model.insert(at, bytes);
                    } else {
                        assert_eq!(txn.remove(tree, &at).unwrap(), model.remove(&at).is_some());
                    }
                    drop(txn);
                    assert_eq!(tree.get(&at).unwrap().as_ref(), model.get(&at));
                }
            });
        }
        for _ in 0..30 {
            store.commit().unwrap();
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    });
    store.commit().unwrap();
}

/// A power cut tore the primary superblock of a volume that had no log. It was opened from the mirror, read and closed:
/// there was nothing to commit, the primary stayed torn, and the kernel went on refusing the volume.
#[test]
fn an_open_for_writing_mends_a_torn_primary_superblock() {
    const PRIMARY_AT: u64 = 64 << 10;
    let (device, store) = make(128 << 20, &MakeOptions::default());
    drop(store);
    device.write_at(PRIMARY_AT + 2048, &[&[0xa5; 512]]).unwrap();
    let open = |read_only, superblock| {
        let options = StoreOptions { read_only, superblock, ..StoreOptions::default() };
        Store::open(vec![Arc::clone(&device) as _], &options)
    };
    assert!(open(true, None).is_ok(), "the mirror is whole");
    assert!(open(true, Some(0)).is_err(), "who reads changes nothing");
    assert!(open(false, Some(1)).is_ok(), "a copy that was asked for by its number");
    assert!(open(true, Some(0)).is_err(), "counts from its first commit on");
    drop(open(false, None).unwrap());
    assert!(open(true, Some(0)).is_ok(), "the primary is whole again");
}

#[test]
fn an_operation_that_is_aborted_half_way_ends_all_writing() {
    let (_device, store) = make(256 << 20, &MakeOptions::default());
    let tree = create(&store, 256);
    store.commit().unwrap();
    let reason = btrfs_store::Error::bug("a name without its reference", "this test");
    let txn = store.begin(store.reserve(need(2)).unwrap()).unwrap();
    txn.abort(&reason);
    txn.put(&tree, &key(1), b"whole").unwrap();
    assert!(store.poisoned().is_none(), "nothing was changed before");
    txn.abort(&reason);
    drop(txn);
    let said = store.commit().unwrap_err().to_string();
    assert!(said.contains("a bug in this program: a name without its reference, in this test"), "{said}");
    assert!(store.reserve(need(1)).is_err());
}

#[test]
fn empty_groups_are_given_back_but_for_one() {
    let (device, store) = make(600 << 20, &MakeOptions::default());
    let tree = create(&store, 256);
    let large = vec![5; 3000];
    let mut count = 0;
    let before = store.chunks().len();
    while store.chunks().len() < before + 4 {
        for _ in 0..200 {
            let txn = store.begin(store.reserve(need(4)).unwrap()).unwrap();
            txn.insert(&tree, &key(count), &large).unwrap();
            count += 1;
        }
    }
    store.commit().unwrap();
    assert_eq!(store.give_back_groups().unwrap(), 0, "all are in use");
    for number in 1..count {
        let txn = store.begin(store.reserve_urgent(need(4)).unwrap()).unwrap();
        assert!(txn.remove(&tree, &key(number)).unwrap());
    }
    store.commit().unwrap();
    // Blocks of the last commit are not free before the next one.
    store.commit().unwrap();
    let (chunks, unallocated) = (store.chunks().len(), store.space().unallocated);
    let gone = store.give_back_groups().unwrap();
    assert!(gone >= 2, "{gone}");
    assert_eq!(store.chunks().len(), chunks - gone);
    assert!(store.space().unallocated > unallocated);
    assert_eq!(store.give_back_groups().unwrap(), 0);
    let left = contents(&tree);
    let (chunks, unallocated) = (store.chunks(), store.space().unallocated);
    store.commit().unwrap();
    drop((tree, store));
    let store = Store::open(vec![device as _], &StoreOptions::default()).unwrap();
    assert_eq!((store.chunks(), store.space().unallocated), (chunks, unallocated));
    assert_eq!(contents(&store.tree(TreeId(256)).unwrap()), left);
    assert_eq!(left.len(), 1);
}
