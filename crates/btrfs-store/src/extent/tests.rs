//! Queue and extent tree against a model, on trees in memory.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use btrfs_disk::convert::{to_u64, to_usize};
use btrfs_disk::flags::{ExtentFlags, Incompat};
use btrfs_disk::items::{ExtentView, InlineRef};
use btrfs_disk::key::item_type;
use btrfs_disk::node::LeafView;
use btrfs_disk::{Generation, InodeNo, Key, Logical, TreeId, verify};
use parking_lot::Mutex;

use super::*;
use crate::Result;
use crate::tree::{
    Block, BlockSource, BlockView, Bytes, Edit, Forest, Host, ReadExpect, RootPtr, Scan, Tree, TreeKind, layout,
};

pub(super) const NODESIZE: u32 = 4096;
pub(super) const SECTOR: u64 = 4096;

/// Serves the empty leaves that trees start with; everything else stays in memory.
struct EmptyLeaves;

impl BlockSource for EmptyLeaves {
    fn read_block(&self, expect: &ReadExpect) -> Result<Box<[u8]>> {
        assert_eq!(expect.generation, Generation(1), "changed blocks stay in memory");
        let mut block = layout::empty_block(to_usize(NODESIZE.into()), 0);
        layout::readdress(&mut block, expect.at.0, 1, expect.owner.unwrap().0);
        Ok(block)
    }
}

/// A transaction that never ends and counts nothing.
#[derive(Default)]
struct TestHost {
    next: AtomicU64,
    dirty: Mutex<HashMap<u64, Block>>,
}

impl Host for TestHost {
    fn generation(&self) -> Generation {
        Generation(2)
    }
    fn owns(&self, block: &Bytes) -> bool {
        layout::generation(&block.data) == self.generation().0
    }
    fn alloc_block(&self, _: &Tree, _: u8) -> Result<Logical> {
        Ok(Logical((1 << 50) + self.next.fetch_add(NODESIZE.into(), Ordering::Relaxed)))
    }
    fn block_cowed(&self, _: &Tree, _: &BlockView<'_>, _: &mut [u8]) -> Result<()> {
        Ok(())
    }
    fn block_freed(&self, tree: &Tree, block: &BlockView<'_>) -> Result<()> {
        self.dirty.lock().remove(&block.at.0);
        tree.forest().cache.remove(block.at);
        Ok(())
    }
    fn block_dirtied(&self, block: &Block) {
        self.dirty.lock().insert(block.at().0, block.clone());
    }
}

pub(super) struct Fixture {
    host: TestHost,
    extents: Tree,
    pub(super) csums: Tree,
    queue: RefQueue,
    sizes: ExtentSizes,
}

#[derive(Default)]
pub(super) struct Events {
    allocated: RefCell<Vec<(u64, u64)>>,
    freed: RefCell<Vec<(u64, u64)>>,
    never_used: RefCell<Vec<(u64, u64)>>,
}

impl SpaceSink for Events {
    fn allocated(&self, at: Logical, len: u64) -> Result<()> {
        self.allocated.borrow_mut().push((at.0, len));
        Ok(())
    }
    fn freed(&self, at: Logical, len: u64) -> Result<()> {
        self.freed.borrow_mut().push((at.0, len));
        Ok(())
    }
    fn never_used(&self, at: Logical, len: u64) -> Result<()> {
        self.never_used.borrow_mut().push((at.0, len));
        Ok(())
    }
}

impl Fixture {
    pub(super) fn new(is_skinny: bool) -> Self {
        let forest = Forest::new(Arc::new(EmptyLeaves), to_usize(NODESIZE.into()), 1 << 30, [0; 16], [0; 16]);
        let tree = |id: TreeId| {
            let root = RootPtr { at: Logical(id.0 << 40), level: 0, generation: Generation(1) };
            Tree::new(Arc::clone(&forest), id, TreeKind::Single, root)
        };
        Self {
            host: TestHost::default(),
            extents: tree(TreeId::EXTENT),
            csums: tree(TreeId::CSUM),
            queue: RefQueue::new(),
            sizes: ExtentSizes { nodesize: NODESIZE, is_skinny },
        }
    }

    pub(super) fn edit(&self) -> Edit<'_> {
        Edit::new(&self.host)
    }

    pub(super) fn csums(&self) -> CsumTree<'_> {
        let sizes = CsumSizes { nodesize: NODESIZE, sectorsize: 4096, csum: 4 };
        CsumTree::new(&self.csums, &sizes)
    }

    fn apply(&self) -> Result<Events> {
        self.apply_with(self.edit(), &self.queue.take_all_sorted())
    }

    pub(super) fn apply_with(&self, edit: Edit<'_>, heads: &[(Logical, Head)]) -> Result<Events> {
        let events = Events::default();
        let apply = Apply {
            edit,
            tree: &self.extents,
            csums: self.csums(),
            space: &events,
            sizes: self.sizes,
            names_owners: false,
        };
        apply.run(heads)?;
        Ok(events)
    }

    /// Every block of both trees satisfies the rules of the format.
    pub(super) fn verify(&self) {
        let skinny = if self.sizes.is_skinny { Incompat::SKINNY_METADATA } else { Incompat::empty() };
        let format = verify::Format {
            fsid: btrfs_disk::Uuid([0; 16]),
            nodesize: NODESIZE,
            sectorsize: 4096,
            csum_type: codec::ChecksumType::Crc32c,
            incompat: Incompat::MIXED_BACKREF | skinny,
            checks_csum_items: true,
            seeds: [btrfs_disk::Uuid::NIL; btrfs_disk::verify::SEEDS_MAX],
        };
        for tree in [&self.extents, &self.csums] {
            tree.for_each_block(|at, bytes| {
                let expect = verify::Expect::at(&format, at, Generation(2));
                if LeafView::new(bytes).nritems() > 0 {
                    verify::content(bytes, &expect)?;
                }
                Ok(())
            })
            .unwrap();
        }
    }

    fn push(&self, change: RefChange) -> Pushed {
        self.queue.push(change).unwrap()
    }
}

pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// The expected state of an extent.
#[derive(Clone)]
struct Model {
    kind: ExtentKind,
    refs: BTreeMap<RefKey, u64>,
    /// The holders now, and those since the last durable state.
    holders: BTreeSet<RefKey>,
    is_new: bool,
    full_backref: bool,
}

impl Model {
    fn total(&self) -> u64 {
        self.refs.values().sum()
    }
}

fn change(at: Logical, kind: ExtentKind, key: RefKey, add: bool, new: bool) -> RefChange {
    let shared = match key {
        RefKey::SharedTree { parent } | RefKey::SharedData { parent } => Some(parent),
        _ => None,
    };
    match (kind, key, add) {
        (ExtentKind::Tree { level }, key, add) => {
            let owner = if let RefKey::TreeRef { owner } = key { owner } else { TreeId(5) };
            if add {
                RefChange::AddTree { at, level, owner, parent: shared, new }
            } else {
                RefChange::DropTree { at, level, owner, parent: shared }
            }
        }
        (ExtentKind::Data { len }, key, add) => {
            let (root, inode, offset) = match key {
                RefKey::DataRef { root, inode, offset } => (root, inode, offset),
                _ => (TreeId(5), InodeNo(257), 0),
            };
            if add {
                RefChange::AddData { at, len, root, inode, offset, parent: shared, new }
            } else {
                RefChange::DropData { at, len, root, inode, offset, parent: shared }
            }
        }
    }
}

fn random_holder(random: &mut Random, kind: ExtentKind) -> RefKey {
    match (kind, random.below(3)) {
        (ExtentKind::Tree { .. }, 0) => RefKey::SharedTree { parent: Logical(random.below(40) * SECTOR) },
        (ExtentKind::Tree { .. }, _) => RefKey::TreeRef { owner: TreeId(256 + random.below(40)) },
        (ExtentKind::Data { .. }, 0) => RefKey::SharedData { parent: Logical(random.below(10) * SECTOR) },
        (ExtentKind::Data { .. }, _) => RefKey::DataRef {
            root: TreeId(256 + random.below(3)),
            inode: InodeNo(257 + random.below(5)),
            offset: random.below(3) * SECTOR,
        },
    }
}

/// Runs rounds of random changes, each ended by an application, against the model.
struct World {
    fixture: Fixture,
    random: Random,
    model: BTreeMap<u64, Model>,
    next: u64,
}

impl World {
    fn new(seed: u64, is_skinny: bool) -> Self {
        Self { fixture: Fixture::new(is_skinny), random: Random(seed), model: BTreeMap::new(), next: 1 << 20 }
    }

    fn create(&mut self) {
        let kind = match self.random.below(3) {
            0 => ExtentKind::Tree { level: u8::try_from(self.random.below(8)).unwrap() },
            _ => ExtentKind::Data { len: SECTOR * (1 + self.random.below(8)) },
        };
        let at = Logical(self.next);
        self.next += self.fixture.sizes.len(kind) + SECTOR * self.random.below(2);
        if let ExtentKind::Data { len } = kind
            && self.random.below(4) > 0
        {
            let csums = vec![7; to_usize(len / SECTOR * 4)];
            self.fixture.csums().put(&self.fixture.edit(), at, &csums).unwrap();
        }
        let key = random_holder(&mut self.random, kind);
        assert_eq!(self.fixture.push(change(at, kind, key, true, true)), Pushed::Queued);
        let refs = BTreeMap::from([(key, 1)]);
        let holders = BTreeSet::from([key]);
        self.model.insert(at.0, Model { kind, refs, holders, is_new: true, full_backref: false });
    }

    fn pick(&mut self) -> Option<u64> {
        if self.model.is_empty() {
            return None;
        }
        // A small choice, so that some extents gather many references.
        let from = self.random.below(to_u64(self.model.len()));
        let step = if self.random.below(2) == 0 { 0 } else { to_usize(from) };
        self.model.keys().nth(step).copied()
    }

    fn add(&mut self) {
        let Some(at) = self.pick() else { return };
        let kind = self.model[&at].kind;
        let key = random_holder(&mut self.random, kind);
        let model = self.model.get_mut(&at).unwrap();
        if key.is_tree() && model.refs.contains_key(&key) || model.total() == 0 {
            return;
        }
        *model.refs.entry(key).or_default() += 1;
        model.holders.insert(key);
        assert_ne!(self.fixture.push(change(Logical(at), kind, key, true, false)), Pushed::Cancelled);
    }

    fn drop_one(&mut self) {
        let Some(at) = self.pick() else { return };
        let model = self.model.get_mut(&at).unwrap();
        if model.total() == 0 {
            return;
        }
        let count = to_u64(model.refs.len());
        let index = to_usize(self.random.below(count));
        let key = *model.refs.keys().nth(index).unwrap();
        let left = model.refs.get_mut(&key).unwrap();
        *left -= 1;
        if *left == 0 {
            model.refs.remove(&key);
        }
        let (kind, is_cancelled) = (model.kind, model.is_new && model.refs.is_empty() && key.is_tree());
        let pushed = self.fixture.push(change(Logical(at), kind, key, false, false));
        assert_eq!(pushed == Pushed::Cancelled, is_cancelled);
        if is_cancelled {
            self.model.remove(&at);
        }
    }

    fn set_full_backref(&mut self) {
        let Some(at) = self.pick() else { return };
        let model = self.model.get_mut(&at).unwrap();
        if let ExtentKind::Tree { level } = model.kind
            && model.total() > 0
        {
            model.full_backref = true;
            let _ = self.fixture.push(RefChange::SetFullBackref { at: Logical(at), level });
        }
    }

    fn check_lookups(&self) {
        let Fixture { extents, queue, sizes, .. } = &self.fixture;
        for (at, model) in &self.model {
            let info = lookup(extents, queue, Logical(*at), model.kind, sizes).unwrap();
            assert_eq!(info.refs, model.total());
            assert_eq!(info.flags.contains(ExtentFlags::FULL_BACKREF), model.full_backref);
            assert_eq!(info.generation.is_none(), model.is_new);
            let found = backrefs(extents, queue, Logical(*at)).unwrap();
            let found: BTreeMap<RefKey, u64> = found.iter().map(|one| (one.holder, one.count)).collect();
            assert_eq!(found, model.refs, "extent {at}");
            for holder in model.refs.keys() {
                if let RefKey::DataRef { root, inode, offset } = *holder {
                    let holder = DataHolder { root, inode, offset };
                    let is_only = is_held_only_by(extents, queue, Logical(*at), &holder).unwrap();
                    assert_eq!(is_only, model.holders.len() == 1);
                }
            }
        }
    }

    fn commit(&mut self) {
        let events = self.fixture.apply().unwrap();
        let sizes = self.fixture.sizes;
        let (mut allocated, mut freed, mut never_used) = (Vec::new(), Vec::new(), Vec::new());
        for (at, model) in &self.model {
            let extent = (*at, sizes.len(model.kind));
            match (model.is_new, model.total() > 0) {
                (true, true) => allocated.push(extent),
                (true, false) => never_used.push(extent),
                (false, false) => freed.push(extent),
                (false, true) => {}
            }
        }
        let sorted = |events: RefCell<Vec<(u64, u64)>>| {
            let mut events = events.into_inner();
            events.sort_unstable();
            events
        };
        assert_eq!(sorted(events.allocated), allocated);
        assert_eq!(sorted(events.freed), freed);
        assert_eq!(sorted(events.never_used), never_used);
        for (at, len) in freed.iter().chain(&never_used) {
            assert!(!self.fixture.csums().any(Logical(*at), *len).unwrap(), "csums go with data");
            self.model.remove(at);
        }
        for model in self.model.values_mut() {
            model.is_new = false;
        }
        assert!(self.fixture.queue.is_empty());
        // Withdrawn references count until the commit is durable.
        self.fixture.queue.note_settled();
        self.check_lookups();
        self.fixture.queue.note_durable();
        for model in self.model.values_mut() {
            model.holders = model.refs.keys().copied().collect();
        }
        self.check_lookups();
        self.check_items();
        self.fixture.verify();
    }

    /// The rules of the kernel's tree checker for extent items, and that no item is left over.
    fn check_items(&self) {
        let limit = self.fixture.sizes.item_size_limit();
        let mut inline: BTreeMap<u64, Vec<RefKey>> = BTreeMap::new();
        self.fixture
            .extents
            .scan(&Key::MIN, &Key::MAX, |key, bytes| {
                let model = self.model.get(&key.objectid).expect("only live extents have items");
                if key.item_type > item_type::METADATA_ITEM {
                    let (holder, _) = RefKey::split(&InlineRef::parse_keyed(key, bytes)?).unwrap();
                    assert!(!inline[&key.objectid].contains(&holder), "a holder stands twice");
                    return Ok(Scan::Continue);
                }
                assert!(bytes.len() < limit);
                let view = ExtentView::parse(key, bytes)?;
                let refs: Vec<InlineRef> = view.refs().collect::<Result<_, _>>()?;
                assert!(refs.is_sorted_by_key(|one| (one.item_type(), !one.sequence())));
                assert!(refs.iter().map(InlineRef::count).sum::<u64>() <= view.item.refs.get());
                assert_eq!(view.item.refs.get(), model.total());
                assert_eq!(view.item.generation.get(), 2);
                let holders = refs.iter().map(|one| RefKey::split(one).unwrap().0).collect();
                inline.insert(key.objectid, holders);
                Ok(Scan::Continue)
            })
            .unwrap();
        assert_eq!(inline.len(), self.model.len());
    }
}

#[test]
fn applied_changes_match_a_model() {
    for seed in 0..24 {
        println!("seed {seed}");
        let mut world = World::new(seed, seed % 2 == 0);
        for round in 0..12 {
            for _ in 0..160 {
                match world.random.below(20) {
                    0..5 => world.create(),
                    5..13 => world.add(),
                    13 => world.set_full_backref(),
                    _ if round % 3 == 2 || world.random.below(2) == 0 => world.drop_one(),
                    _ => {}
                }
            }
            world.check_lookups();
            world.commit();
            world.check_lookups();
        }
    }
}

fn data(at: u64, inode: u64, add: bool) -> RefChange {
    let (at, root, inode) = (Logical(at), TreeId(5), InodeNo(inode));
    match add {
        true => RefChange::AddData { at, len: SECTOR, root, inode, offset: 0, parent: None, new: false },
        false => RefChange::DropData { at, len: SECTOR, root, inode, offset: 0, parent: None },
    }
}

fn new_data(at: u64, inode: u64) -> RefChange {
    let (at, root, inode) = (Logical(at), TreeId(5), InodeNo(inode));
    RefChange::AddData { at, len: SECTOR, root, inode, offset: 0, parent: None, new: true }
}

#[test]
fn a_missing_reference_is_corrupt_and_named() {
    let fixture = Fixture::new(true);
    let _ = fixture.push(new_data(1 << 20, 257));
    fixture.apply().unwrap();
    let _ = fixture.push(data(1 << 20, 258, false));
    let error = fixture.apply().err().unwrap().to_string();
    assert!(error.contains("1048576 178") && error.contains("(5 178 258)"), "{error}");
    let _ = fixture.push(data(1 << 21, 258, false));
    let error = fixture.apply().err().unwrap().to_string();
    assert!(error.contains("extent item") && error.contains("2097152"), "{error}");
}

#[test]
fn blocks_with_items_of_the_old_form_are_found_after_the_feature_came() {
    let mut fixture = Fixture::new(false);
    let (at, level, owner) = (Logical(1 << 20), 1, TreeId(5));
    let _ = fixture.push(RefChange::AddTree { at, level, owner, parent: None, new: true });
    fixture.apply().unwrap();
    fixture.sizes.is_skinny = true;
    let kind = ExtentKind::Tree { level };
    let info = lookup(&fixture.extents, &fixture.queue, at, kind, &fixture.sizes).unwrap();
    assert_eq!(info.refs, 1);
    let _ = fixture.push(RefChange::DropTree { at, level, owner, parent: None });
    let events = fixture.apply().unwrap();
    assert_eq!(*events.freed.borrow(), [(at.0, u64::from(NODESIZE))]);
    assert_eq!(fixture.extents.at_or_after(&Key::MIN).unwrap(), None);
}

/// Two inodes of one subvolume whose references have the same hash.
fn colliding_inodes() -> (u64, u64) {
    // A CRC tells all numbers of 32 bits apart, so that small inode numbers never collide.
    let mut random = Random(1);
    let mut seen = HashMap::new();
    loop {
        let inode = random.below(1 << 31) << 20 | random.below(1 << 20);
        let key = RefKey::DataRef { root: TreeId(5), inode: InodeNo(inode), offset: 0 };
        match seen.insert(key.key(Logical(0)).offset, inode) {
            Some(other) if other != inode => return (other, inode),
            _ => {}
        }
    }
}

#[test]
fn references_whose_hashes_collide_do_not_mix() {
    let fixture = Fixture::new(true);
    let (a, b) = colliding_inodes();
    let at = 1 << 20;
    let _ = fixture.push(new_data(at, 257));
    for inode in 300..340 {
        let _ = fixture.push(data(at, inode, true));
    }
    fixture.apply().unwrap();
    let check = |counts: &[(u64, u64)]| {
        let found = backrefs(&fixture.extents, &fixture.queue, Logical(at)).unwrap();
        for (inode, count) in counts {
            let holder = RefKey::DataRef { root: TreeId(5), inode: InodeNo(*inode), offset: 0 };
            let found: u64 = found.iter().filter(|one| one.holder == holder).map(|one| one.count).sum();
            assert_eq!(found, *count);
        }
    };
    for inode in [a, b, b] {
        let _ = fixture.push(data(at, inode, true));
    }
    fixture.apply().unwrap();
    check(&[(a, 1), (b, 2)]);
    // The second keeps its place after the first is gone, and is still found there.
    let _ = fixture.push(data(at, a, false));
    fixture.apply().unwrap();
    let _ = fixture.push(data(at, b, true));
    fixture.apply().unwrap();
    check(&[(a, 0), (b, 3)]);
    for inode in [a, b, b, b] {
        let _ = fixture.push(data(at, inode, inode == a));
    }
    fixture.apply().unwrap();
    check(&[(a, 1), (b, 0)]);
}
