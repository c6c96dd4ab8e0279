#![allow(clippy::as_conversions, reason = "tests")]
//! The space of a small store against models, with real trees that live in memory.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use btrfs_disk::flags::{BlockGroupFlags, FreeSpaceFlags};
use btrfs_disk::items::{BlockGroupItem, DevItem, FreeSpaceInfo, OnDisk, bitmap_set};
use btrfs_disk::key::item_type::{BLOCK_GROUP_ITEM, DEV_ITEM, EXTENT_ITEM, FREE_SPACE_BITMAP};
use btrfs_disk::{DevId, Generation, Key, TreeId, Uuid};
use parking_lot::Mutex as PlainMutex;

use super::free_map::FreeMap;
use super::test_random::Random;
use super::*;
use crate::tree::{
    Block, BlockSource, BlockView, Bytes, Edit, Forest, Host, ReadExpect, RootPtr, Scan, Tree, TreeKind, layout,
};
use btrfs_pool::chunk_map::superblock_runs;

const NODE: u64 = 4096;
const SECTOR: u64 = 4096;
const MIB: u64 = 1 << 20;

/// Blocks are never written here: the host keeps the dirty ones, which are all.
struct NoDisk(Box<[u8]>);

impl BlockSource for NoDisk {
    fn read_block(&self, expect: &ReadExpect) -> Result<Box<[u8]>> {
        assert_eq!(expect.at.0, layout::bytenr(&self.0), "only the first root is on disk");
        Ok(self.0.clone())
    }
}

/// Gives out addresses that have nothing to do with the space under test.
struct TestHost {
    next: AtomicU64,
    blocks: PlainMutex<HashMap<u64, Block>>,
}

impl Host for TestHost {
    fn generation(&self) -> Generation {
        Generation(2)
    }
    fn owns(&self, block: &Bytes) -> bool {
        layout::generation(&block.data) == self.generation().0
    }
    fn alloc_block(&self, _: &Tree, _: u8) -> Result<Logical> {
        Ok(Logical(self.next.fetch_add(NODE, Ordering::Relaxed)))
    }
    fn block_cowed(&self, _: &Tree, _: &BlockView<'_>, _: &mut [u8]) -> Result<()> {
        Ok(())
    }
    fn block_freed(&self, _: &Tree, block: &BlockView<'_>) -> Result<()> {
        self.blocks.lock().remove(&block.at.0);
        Ok(())
    }
    fn block_dirtied(&self, block: &Block) {
        self.blocks.lock().insert(block.at().0, block.clone());
    }
}

fn host() -> TestHost {
    TestHost { next: AtomicU64::new(1 << 50), blocks: PlainMutex::default() }
}

fn tree(id: TreeId) -> Tree {
    let mut block = layout::empty_block(NODE as usize, 0);
    let at = 1 << 45;
    layout::readdress(&mut block, at, 1, id.0);
    let source = Arc::new(NoDisk(block)) as Arc<dyn BlockSource>;
    let forest = Forest::new(source, NODE as usize, 1 << 20, [0; 16], [0; 16]);
    let root = RootPtr { at: Logical(at), level: 0, generation: Generation(1) };
    let tree = Tree::new(forest, id, TreeKind::Single, root);
    tree.set_block_count(1);
    tree
}

fn space(mixed: bool) -> Space {
    Space::new(SpaceConfig { node_size: NODE, sector_size: SECTOR, mixed, free_space_tree: true })
}

fn info(start: u64, len: u64, flags: BlockGroupFlags) -> GroupInfo {
    GroupInfo {
        start: Logical(start),
        len,
        flags,
        used: 0,
        excluded: Vec::new(),
        read_only: false,
        is_only_left: false,
    }
}

fn request(kind: SpaceKind, len: u64) -> AllocRequest {
    AllocRequest { kind, len, min_len: SECTOR, hint: None, window: 0 }
}

fn data_need(bytes: u64) -> Need {
    Need { data: bytes, ..Need::default() }
}

fn items(tree: &Tree) -> BTreeMap<Key, Vec<u8>> {
    let mut items = BTreeMap::new();
    tree.scan(&Key::MIN, &Key::MAX, |key, bytes| {
        items.insert(*key, bytes.to_vec());
        Ok(Scan::Continue)
    })
    .unwrap();
    items
}

/// Turns the only, empty group of a free-space tree into one with bitmaps.
fn use_bitmaps(edit: &Edit<'_>, tree: &Tree, group: Run) {
    let extents = (Key::new(group.start, 199, 0), Key::new(group.end(), 199, 0));
    edit.remove_range(tree, &extents.0, &extents.1, |_, _| ()).unwrap();
    let info = FreeSpaceInfo::new(1, FreeSpaceFlags::USING_BITMAPS);
    edit.put(tree, &free_space_tree::info_key(group), info.bytes()).unwrap();
    let mut start = group.start;
    while start < group.end() {
        let len = (2048 * SECTOR).min(group.end() - start);
        let bits = len / SECTOR;
        let mut bitmap = vec![0; bits.div_ceil(8) as usize];
        (0..bits).for_each(|bit| bitmap_set(&mut bitmap, bit, true));
        edit.insert(tree, &Key::new(start, FREE_SPACE_BITMAP, len), &bitmap).unwrap();
        start += len;
    }
}

/// Random allocations and frees with commits in between; after each commit the free-space
/// tree must equal the free space of a second space that was loaded from it.
fn free_space_tree_follows(bitmaps: bool, seed: u64) {
    let group = Run { start: 16 * MIB, len: 33 * MIB + 5 * SECTOR };
    let (host, fst) = (host(), tree(TreeId::FREE_SPACE));
    let edit = Edit::new(&host);
    free_space_tree::add_group(&edit, &fst, group).unwrap();
    if bitmaps {
        use_bitmaps(&edit, &fst, group);
    }
    let space = space(false);
    let flags = BlockGroupFlags::DATA;
    let loaded = space.add_group(info(group.start, group.len, flags)).unwrap();
    load_group(&space, &loaded, LoadFrom::FreeSpaceTree(&fst)).unwrap();
    let mut random = Random::new(seed);
    let mut live: Vec<Extent> = Vec::new();
    for commit in 0..40 {
        for _ in 0..random.below(300) {
            if random.below(5) < 3 {
                let len = (1 + random.below(12)) * SECTOR;
                let Ok(paid) = space.reserve(data_need(len), Urgency::Normal) else { continue };
                let extent = space.alloc(&request(SpaceKind::Data, len), Payer::Reservation(&paid)).unwrap();
                space.note_allocated(extent).unwrap();
                live.push(extent);
            } else if !live.is_empty() {
                let extent = live.swap_remove(random.below(live.len() as u64) as usize);
                space.note_freed(extent).unwrap();
                space.pin(extent).unwrap();
            }
        }
        space.write_free_space(&edit, &fst).unwrap();
        assert_eq!(space.write_free_space(&edit, &fst).unwrap(), 0);
        let pinned = space.take_pinned();
        space.unpin(pinned).unwrap();
        check_reload(&space, &fst, &live, group, seed * 1000 + commit);
    }
}

fn check_reload(space: &Space, fst: &Tree, live: &[Extent], group: Run, seed: u64) {
    let used = live.iter().map(|extent| extent.len).sum();
    let again = self::space(false);
    let info = GroupInfo { used, ..info(group.start, group.len, BlockGroupFlags::DATA) };
    let loaded = again.add_group(info).unwrap();
    load_group(&again, &loaded, LoadFrom::FreeSpaceTree(fst)).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    for extent in live {
        assert!(!loaded.take_at(SpaceKind::Data, Run { start: extent.at.0, len: SECTOR }, 0), "seed {seed}");
    }
    let free = group.len - used;
    assert_eq!(again.accounts().available(SpaceKind::Data), free, "seed {seed}");
    assert_eq!(space.accounts().available(SpaceKind::Data), free, "seed {seed}");
}

#[test]
fn the_free_space_tree_follows_random_changes_as_extents() {
    (0..12).for_each(|seed| free_space_tree_follows(false, seed));
}

#[test]
fn the_free_space_tree_follows_random_changes_as_bitmaps() {
    (0..6).for_each(|seed| free_space_tree_follows(true, seed));
}

#[test]
fn a_free_space_tree_that_contradicts_a_change_is_corrupt() {
    let group = Run { start: MIB, len: MIB };
    let (host, fst) = (host(), tree(TreeId::FREE_SPACE));
    let edit = Edit::new(&host);
    let space = space(false);
    space.add_new_group(info(MIB, MIB, BlockGroupFlags::DATA)).unwrap();
    let extent = space.alloc(&request(SpaceKind::Data, SECTOR), Payer::Commit).unwrap();
    space.note_allocated(extent).unwrap();
    assert!(matches!(space.write_free_space(&edit, &fst), Err(Error::Corrupt(_))), "no info item");
    let full = FreeSpaceInfo::new(0, FreeSpaceFlags::empty());
    edit.insert(&fst, &free_space_tree::info_key(group), full.bytes()).unwrap();
    space.note_freed(extent).unwrap();
    space.note_allocated(Extent { at: Logical(MIB + SECTOR), ..extent }).unwrap();
    assert!(matches!(space.write_free_space(&edit, &fst), Err(Error::Corrupt(_))), "nothing is free");
}

#[test]
fn the_extent_tree_says_the_same_as_the_free_space_tree() {
    let host = host();
    let edit = Edit::new(&host);
    let extents = tree(TreeId::EXTENT);
    let start = 4 * MIB;
    edit.insert(&extents, &Key::new(start + SECTOR, EXTENT_ITEM, 2 * SECTOR), &[]).unwrap();
    let space = space(false);
    let found = GroupInfo { used: 2 * SECTOR, ..info(start, MIB, BlockGroupFlags::DATA) };
    let group = space.add_group(found).unwrap();
    assert!(matches!(space.reserve(data_need(SECTOR), Urgency::Normal), Err(Shortage::Load(_))));
    assert!(Arc::ptr_eq(&space.unloaded_group(SpaceKind::Data).unwrap(), &group));
    load_group(&space, &group, LoadFrom::ExtentTree(&extents)).unwrap();
    assert!(space.unloaded_group(SpaceKind::Data).is_none());
    assert_eq!(space.accounts().available(SpaceKind::Data), MIB - 2 * SECTOR);
    let whole = AllocRequest { min_len: MIB, ..request(SpaceKind::Data, MIB) };
    let got = space.alloc(&whole, Payer::Commit).unwrap();
    assert_eq!(got, Extent { at: Logical(start + 3 * SECTOR), len: MIB - 3 * SECTOR });
}

#[test]
fn a_chunk_gets_its_items_and_shrinks_to_what_is_left() {
    let host = host();
    let edit = Edit::new(&host);
    let (chunk, device) = (tree(TreeId::CHUNK), tree(TreeId::DEV));
    let (groups, fst) = (tree(TreeId::BLOCK_GROUP), tree(TreeId::FREE_SPACE));
    let item = DevItem::parse(&[0; 98]).copied().unwrap();
    let device_key = Key::new(1, DEV_ITEM, 1);
    edit.insert(&chunk, &device_key, item.bytes()).unwrap();
    let trees = ChunkTrees {
        chunk: &chunk,
        device: &device,
        block_group: &groups,
        free_space: Some(&fst),
        chunk_tree_uuid: Uuid::NIL,
    };
    let space = space(false);
    space.add_device(DeviceSpace::new(DevId(1), Uuid::NIL, 100 * MIB));
    let mut chunks = Vec::new();
    while let Some(plan) = space.plan_chunk(BlockGroupFlags::METADATA | BlockGroupFlags::DUP).unwrap() {
        space.write_chunk(&edit, &trees, &plan).unwrap();
        space.adopt_chunk(&plan).unwrap();
        chunks.push(Arc::new(plan.chunk));
    }
    let lens: Vec<u64> = chunks.iter().map(|chunk| chunk.len_bytes() / MIB).collect();
    assert_eq!(lens, [16, 16, 16, 1]);
    assert_eq!(chunks[1].start().0, 17 * MIB);
    let used = items(&chunk)[&device_key].clone();
    assert_eq!(DevItem::parse(&used).unwrap().bytes_used.get(), 99 * MIB);
    assert_eq!((items(&device).len(), items(&groups).len(), items(&fst).len()), (8, 4, 8));
    check_reopen(&chunks, &trees);
    let report = space.report();
    assert_eq!((report.profiles[0].total, report.unallocated), (49 * MIB + MIB / 2 - excluded(&chunks), 0));
}

fn excluded(chunks: &[Arc<btrfs_pool::Chunk>]) -> u64 {
    let runs = chunks.iter().flat_map(|chunk| superblock_runs(chunk));
    runs.map(|(_, len)| len).sum()
}

fn check_reopen(chunks: &[Arc<btrfs_pool::Chunk>], trees: &ChunkTrees<'_>) {
    let again = space(false);
    let device = DeviceSpace::load(trees.device, DevId(1), Uuid::NIL, 100 * MIB).unwrap();
    assert_eq!((device.bytes_used(), device.unallocated()), (99 * MIB, 0));
    again.add_device(device);
    for info in group_infos(trees.block_group, chunks).unwrap() {
        let group = again.add_group(info).unwrap();
        load_group(&again, &group, LoadFrom::FreeSpaceTree(trees.free_space.unwrap())).unwrap();
    }
    assert_eq!(again.accounts().available(SpaceKind::Metadata), 49 * MIB + MIB / 2 - excluded(chunks));
    let reversed: Vec<_> = chunks.iter().rev().map(Arc::clone).collect();
    assert_eq!(group_infos(trees.block_group, &reversed).unwrap().len(), 4);
    assert!(group_infos(trees.device, chunks).is_err(), "no item");
}

#[test]
fn group_items_say_what_is_used() {
    let host = host();
    let edit = Edit::new(&host);
    let groups = tree(TreeId::BLOCK_GROUP);
    let flags = BlockGroupFlags::METADATA;
    let space = space(false);
    space.add_new_group(info(MIB, MIB, flags)).unwrap();
    let key = Key::new(MIB, BLOCK_GROUP_ITEM, MIB);
    edit.insert(&groups, &key, BlockGroupItem::new(0, flags).bytes()).unwrap();
    let extent = space.alloc(&request(SpaceKind::Metadata, NODE), Payer::Commit).unwrap();
    assert!(!space.is_dirty());
    space.note_allocated(extent).unwrap();
    assert!(space.is_dirty());
    assert_eq!(space.write_group_items(&edit, &groups).unwrap(), 1);
    assert_eq!(space.write_group_items(&edit, &groups).unwrap(), 0);
    let item = items(&groups)[&key].clone();
    assert_eq!(BlockGroupItem::parse(&item).unwrap().used.get(), NODE);
    edit.remove(&groups, &key).unwrap();
    space.note_freed(extent).unwrap();
    assert!(matches!(space.write_group_items(&edit, &groups), Err(Error::NotFound { .. })));
}

#[test]
fn overlapping_groups_are_corrupt() {
    let space = space(false);
    let flags = BlockGroupFlags::DATA;
    space.add_group(info(MIB, 4 * MIB, flags)).unwrap();
    assert!(space.add_group(info(4 * MIB, MIB, flags)).is_err());
    assert!(space.add_group(info(0, MIB + 1, flags)).is_err());
    assert!(space.add_group(info(u64::MAX - 5, 10, flags)).is_err());
    assert!(space.add_group(GroupInfo { used: 2 * MIB, ..info(8 * MIB, MIB, flags) }).is_err());
    assert!(space.group_of(Extent { at: Logical(4 * MIB), len: 2 * MIB }).is_err());
}

#[test]
fn a_hint_is_followed_and_mixed_groups_serve_both_kinds() {
    let space = space(true);
    space.add_new_group(info(MIB, 8 * MIB, BlockGroupFlags::MIXED)).unwrap();
    let first = space.alloc(&request(SpaceKind::Data, 4 * SECTOR), Payer::Commit).unwrap();
    let _block = space.alloc(&request(SpaceKind::Metadata, NODE), Payer::Commit).unwrap();
    let hinted = AllocRequest { hint: Some(Logical(4 * MIB)), ..request(SpaceKind::Data, SECTOR) };
    let second = space.alloc(&hinted, Payer::Commit).unwrap();
    assert_eq!((first.at, second.at), (Logical(MIB), Logical(4 * MIB)));
    let third = space.alloc(&request(SpaceKind::Data, SECTOR), Payer::Commit).unwrap();
    assert_eq!(third.at.0, second.at.0 + SECTOR);
    assert_eq!(space.accounts().available(SpaceKind::Data), 8 * MIB - 7 * SECTOR);
}

#[test]
fn what_grows_begins_where_it_has_room() {
    let space = space(false);
    space.add_new_group(info(MIB, 16 * MIB, BlockGroupFlags::DATA)).unwrap();
    let all = space.alloc(&request(SpaceKind::Data, 16 * MIB), Payer::Commit).unwrap();
    // Runs of 64 KiB, 1 MiB and 4 MiB.
    for (at, len) in [(2 * MIB, MIB / 16), (4 * MIB, MIB), (8 * MIB, 4 * MIB)] {
        space.free_now(Extent { at: Logical(at), len }).unwrap();
    }
    assert_eq!(all.len, 16 * MIB);
    let growing = |window| AllocRequest { window, ..request(SpaceKind::Data, MIB / 16) };
    let first = space.alloc(&growing(8 * MIB), Payer::Commit).unwrap();
    assert_eq!(first.at.0, 8 * MIB, "8 MiB are nowhere, 2 MiB are");
    let complete = space.alloc(&request(SpaceKind::Data, MIB), Payer::Commit).unwrap();
    assert_ne!(complete.at.0, first.at.0 + first.len, "the room behind the first is left");
    let goes_on = AllocRequest { hint: Some(Logical(first.at.0 + first.len)), ..growing(8 * MIB) };
    assert_eq!(space.alloc(&goes_on, Payer::Commit).unwrap().at.0, first.at.0 + first.len);
}

#[test]
fn threads_allocate_every_byte_once() {
    let space = space(false);
    for start in [MIB, 9 * MIB, 17 * MIB] {
        space.add_new_group(info(start, 8 * MIB, BlockGroupFlags::METADATA)).unwrap();
    }
    let taken = PlainMutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (space, taken) = (&space, &taken);
            scope.spawn(move || {
                let mut random = Random::new(thread);
                let mut mine = Vec::new();
                while let Ok(paid) = space.reserve(Need { metadata: NODE, ..Need::default() }, Urgency::Normal) {
                    let block = space.alloc(&request(SpaceKind::Metadata, NODE), Payer::Reservation(&paid));
                    mine.push(block.unwrap());
                    if random.below(4) == 0 {
                        let index = random.below(mine.len() as u64) as usize;
                        space.free_now(mine.swap_remove(index)).unwrap();
                    }
                }
                taken.lock().append(&mut mine);
            });
        }
    });
    let mut taken = taken.into_inner();
    taken.sort_unstable();
    assert_eq!(taken.len() as u64, 24 * MIB / NODE);
    assert!(taken.windows(2).all(|pair| pair[0].at.0 + NODE <= pair[1].at.0));
    assert!(matches!(space.alloc(&request(SpaceKind::Metadata, NODE), Payer::Commit), Err(Error::NoSpace { .. })));
}

/// Prints its rates; run with `--release -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn speed() {
    let space = space(false);
    space.add_new_group(info(MIB, 1 << 32, BlockGroupFlags::METADATA)).unwrap();
    for threads in [1u32, 2, 4] {
        let count = 500_000 / threads;
        let begin = std::time::Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let mut mine = Vec::new();
                    for i in 0..count {
                        let need = Need { metadata: NODE, ..Need::default() };
                        let paid = space.reserve(need, Urgency::Normal).unwrap();
                        let request = request(SpaceKind::Metadata, NODE);
                        mine.push(space.alloc(&request, Payer::Reservation(&paid)).unwrap());
                        if i % 100 == 99 {
                            mine.drain(..).for_each(|extent| space.free_now(extent).unwrap());
                        }
                    }
                });
            }
        });
        println!("{threads} threads: {:?} per reserve, alloc and free", begin.elapsed() / (threads * count));
    }
    let (host, fst) = (host(), tree(TreeId::FREE_SPACE));
    let edit = Edit::new(&host);
    free_space_tree::add_group(&edit, &fst, Run { start: MIB, len: 1 << 32 }).unwrap();
    let extents: Vec<Extent> =
        (0..200_000).map(|_| space.alloc(&request(SpaceKind::Metadata, NODE), Payer::Commit).unwrap()).collect();
    let mut random = Random::new(7);
    let kept: Vec<&Extent> = extents.iter().filter(|_| random.below(2) == 0).collect();
    kept.iter().for_each(|extent| space.note_allocated(**extent).unwrap());
    let begin = std::time::Instant::now();
    let runs = space.write_free_space(&edit, &fst).unwrap();
    println!("dense free-space tree changes: {:?} for {runs} runs", begin.elapsed());
    let some = kept.iter().filter(|_| random.below(20) == 0);
    some.for_each(|extent| space.note_freed(**extent).unwrap());
    let begin = std::time::Instant::now();
    let runs = space.write_free_space(&edit, &fst).unwrap();
    println!("sparse free-space tree changes: {:?} for {runs} runs", begin.elapsed());
}

/// As many blocks as threads, spread over groups: each thread finds the block it was promised, wherever the others free
/// theirs.
#[test]
fn reserved_blocks_are_found_while_others_take_and_free() {
    const THREADS: u64 = 4;
    let space = space(false);
    for number in 1..=THREADS {
        let group = info(number * MIB, NODE, BlockGroupFlags::METADATA);
        space.add_group(group).unwrap();
    }
    while let Some(group) = space.unloaded_group(SpaceKind::Metadata) {
        let mut map = FreeMap::default();
        map.insert(group.range()).unwrap();
        space.install(&group, map).unwrap();
    }
    let need = Need { metadata: NODE, ..Need::default() };
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..200_000 {
                    let reservation = space.reserve(need, Urgency::Normal).unwrap();
                    let payer = Payer::Reservation(&reservation);
                    let extent = space.alloc(&request(SpaceKind::Metadata, NODE), payer).unwrap();
                    space.free_now(extent).unwrap();
                }
            });
        }
    });
}
