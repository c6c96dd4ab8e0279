//! Opens a state of the file system: the root tree of one commit and the trees that it lists. `rescue`, `roots` and
//! `undelete` open states; `tree_view`, `listing`, `contents`, `data`, `inode` and `orphans` read them.
//!
//! If the root tree is damaged or replaced by an older one, newer tree roots come from the scan: a commit that changes
//! a tree writes a new root block for it with its generation.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use btrfs_disk::items::{DirEntry, RootItem, RootRefEntry};
use btrfs_disk::key::item_type;
use btrfs_disk::node::NodeView;
use btrfs_disk::{Key, TreeId, Uuid};

use crate::blocks::{At, Blocks};
use crate::leaves::{Leaves, Spec};
use crate::locks::lock;

/// Limit on trees per state.
const TREES_MAX: usize = 100_000;
/// Limit on cached leaf records; about 60 bytes each.
const LEAVES_MAX: usize = 4 << 20;
/// Limit on snapshot ancestors followed.
const ANCESTORS_MAX: usize = 16;

/// Selects a state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pick {
    /// The root block of the root tree and its level; `None` if lost.
    pub(crate) root: Option<(At, u8)>,
    /// Newest generation of any block read.
    pub(crate) generation_max: u64,
    /// Uses referenced blocks only, without guessing.
    pub(crate) is_strict: bool,
}

/// A tree that a state lists, or that the scan found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Info {
    root: Option<(At, u8)>,
    /// The root was chosen among several of one commit, only one of which can be the last.
    is_chosen: bool,
    /// Inode number of its top directory.
    pub(crate) top: u64,
    pub(crate) uuid: Uuid,
    pub(crate) parent_uuid: Uuid,
    otransid: u64,
    /// Newest time in the root item, in seconds.
    pub(crate) seconds: i64,
    /// Place of a subvolume: tree and directory.
    pub(crate) place: Option<(u64, u64)>,
}

impl Info {
    /// The root block and its level.
    pub(crate) fn root(&self) -> Option<(At, u8)> {
        self.root
    }

    const UNKNOWN: Self = Self {
        root: None,
        is_chosen: false,
        top: 256,
        uuid: Uuid::NIL,
        parent_uuid: Uuid::NIL,
        otransid: 0,
        seconds: 0,
        place: None,
    };
}

/// A subvolume in a directory.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) tree: u64,
    pub(crate) name: Vec<u8>,
}

/// A state of the file system.
pub(crate) struct State {
    pub(crate) blocks: Arc<Blocks>,
    pub(crate) pick: Pick,
    pub(crate) roots: Leaves,
    pub(crate) infos: BTreeMap<u64, Info>,
    /// Subvolumes by tree and directory.
    pub(crate) placed: HashMap<(u64, u64), Vec<Placed>>,
    /// Generation of the state; if unknown, the newest generation found.
    pub(crate) last: u64,
    trees: Mutex<HashMap<u64, Arc<Leaves>>>,
}

impl State {
    /// Reads the root tree.
    pub(crate) fn open(blocks: &Arc<Blocks>, pick: Pick) -> Self {
        let owners = vec![(TreeId::ROOT.0, pick.generation_max)];
        let roots = Leaves::read(blocks, &Spec { root: pick.root, owners, is_strict: pick.is_strict });
        let blocks = Arc::clone(blocks);
        let (infos, placed, trees) = (BTreeMap::new(), HashMap::new(), Mutex::default());
        let last = if pick.generation_max == u64::MAX { newest_commit(&blocks) } else { pick.generation_max };
        let mut state = Self { blocks, pick, roots, infos, placed, last, trees };
        state.list();
        if state.roots.is_damaged() && !pick.is_strict {
            state.find_others();
            state.find_places();
        }
        state
    }

    fn list(&mut self) {
        let Self { blocks, pick, roots, infos, placed, .. } = self;
        roots.items(blocks, Key::MIN, Key::MAX, &mut |key, data| {
            let tree = key.objectid;
            if key.item_type == item_type::ROOT_ITEM
                && let Ok(item) = RootItem::read(data)
            {
                let mut info = Info { place: infos.get(&tree).and_then(|info| info.place), ..of_item(&item) };
                if roots.is_filled(key, key) && !pick.is_strict {
                    (info.root, info.is_chosen) = newest_root(blocks, tree, info.root, pick.generation_max);
                }
                infos.insert(tree, info);
            }
            if key.item_type == item_type::ROOT_BACKREF
                && let Ok(entry) = RootRefEntry::parse(data)
            {
                let place = (key.offset, entry.dir.0);
                infos.entry(tree).or_insert(Info::UNKNOWN).place = Some(place);
                placed.entry(place).or_default().push(Placed { tree, name: entry.name.to_vec() });
            }
            infos.len() < TREES_MAX
        });
    }

    /// Adds trees whose root items are lost, with roots from the blocks that the scan found.
    fn find_others(&mut self) {
        for owner in self.blocks.table().owners() {
            let tree = TreeId(owner);
            let is_wanted = tree.is_subvolume() || tree == TreeId::CSUM;
            if is_wanted && !self.infos.contains_key(&owner) && self.infos.len() < TREES_MAX && self.is_lost(owner) {
                let (root, is_chosen) = newest_root(&self.blocks, owner, None, self.pick.generation_max);
                self.infos.insert(owner, Info { root, is_chosen, ..Info::UNKNOWN });
            }
        }
    }

    /// Whether the root tree may have lost the item of a tree: its place is missing, or the leaf there is older than
    /// the blocks of the tree.
    fn is_lost(&self, tree: u64) -> bool {
        let item = |offset| Key::new(tree, item_type::ROOT_ITEM, offset);
        if self.roots.may_lack(item(0), item(u64::MAX)) {
            return true;
        }
        let table = self.blocks.table();
        let levels = 0..btrfs_disk::node::LEVELS_MAX;
        let newest = levels.filter_map(|level| table.of(tree, level).find(|found| self.is_seen(found.generation)));
        let newest = newest.map(|found| found.generation).max();
        self.roots.is_filled(item(0), item(0)) && newest > self.roots.generation_at(item(0))
    }

    fn is_seen(&self, generation: u64) -> bool {
        generation <= self.pick.generation_max
    }

    /// Places subvolumes whose back references are lost, by the directory entries that name them.
    fn find_places(&mut self) {
        let is_unplaced = |info: &Info| info.place.is_none();
        let lost = |infos: &BTreeMap<u64, Info>| {
            infos.iter().any(|(tree, info)| *tree > TreeId::FS.0 && TreeId(*tree).is_subvolume() && is_unplaced(info))
        };
        for tree in self.subvolumes() {
            if !lost(&self.infos) {
                return;
            }
            let leaves = self.tree(tree);
            let mut named: Vec<(u64, u64, Vec<u8>)> = Vec::new();
            leaves.items(&self.blocks, Key::MIN, Key::MAX, &mut |key, data| {
                if key.item_type == item_type::DIR_INDEX {
                    let entries = DirEntry::iter(data).flatten();
                    let entries = entries.filter(|entry| entry.location().item_type == item_type::ROOT_ITEM);
                    named.extend(entries.map(|entry| (entry.location().objectid, key.objectid, entry.name.to_vec())));
                }
                named.len() < TREES_MAX
            });
            for (child, dir, name) in named {
                let is_wanted = self.infos.get(&child).is_some_and(is_unplaced) && child != TreeId::FS.0;
                if is_wanted && !self.is_within(tree, child) {
                    if let Some(info) = self.infos.get_mut(&child) {
                        info.place = Some((tree, dir));
                    }
                    self.placed.entry((tree, dir)).or_default().push(Placed { tree: child, name });
                }
            }
        }
    }

    /// Whether a subvolume is inside another or is the same.
    fn is_within(&self, tree: u64, other: u64) -> bool {
        let mut at = tree;
        for _ in 0..=self.infos.len() {
            if at == other {
                return true;
            }
            match self.infos.get(&at).and_then(|info| info.place) {
                Some((parent, _)) => at = parent,
                None => return false,
            }
        }
        true
    }

    /// The leaves of a tree.
    pub(crate) fn tree(&self, tree: u64) -> Arc<Leaves> {
        if let Some(leaves) = lock(&self.trees).get(&tree) {
            return Arc::clone(leaves);
        }
        let info = self.infos.get(&tree).copied();
        // A tree without a root or known blocks has no items. The csum tree is read from the scan too.
        let is_known = info.is_some() || !self.pick.is_strict;
        let spec = Spec {
            root: info.and_then(|info| info.root),
            owners: self.owners(tree),
            is_strict: self.pick.is_strict || !is_known,
        };
        let leaves = Arc::new(Leaves::read(&self.blocks, &spec));
        let mut trees = lock(&self.trees);
        let count: usize = trees.values().map(|leaves| leaves.len()).sum();
        if count.saturating_add(leaves.len()) > LEAVES_MAX {
            trees.clear();
        }
        trees.insert(tree, Arc::clone(&leaves));
        leaves
    }

    /// Trees whose leaves may replace lost ones. A snapshot shares leaves that are older than itself.
    fn owners(&self, tree: u64) -> Vec<(u64, u64)> {
        let mut owners = vec![(tree, self.pick.generation_max)];
        let (mut at, mut generation_max) = (tree, self.pick.generation_max);
        while let Some(info) = self.infos.get(&at).filter(|info| !info.parent_uuid.is_nil()) {
            let parent = self.infos.iter().find(|(_, parent)| parent.uuid == info.parent_uuid);
            let Some((parent, _)) = parent else { break };
            generation_max = generation_max.min(info.otransid);
            if owners.iter().any(|(owner, _)| owner == parent) || owners.len() > ANCESTORS_MAX {
                break;
            }
            owners.push((*parent, generation_max));
            at = *parent;
        }
        owners
    }

    /// Subvolumes that may have changed after their remaining state, with its generation: the root tree with their
    /// newest roots is lost and an older one replaces it. A tree may have several roots within one commit, so even the
    /// last generation need not be the last state.
    pub(crate) fn older(&self) -> Vec<(u64, u64)> {
        let of = |tree: u64| {
            let item = |offset| Key::new(tree, item_type::ROOT_ITEM, offset);
            let info = self.infos.get(&tree)?;
            let root = info.root.map(|(at, _)| at.generation);
            let (from, to) = (item(0), item(u64::MAX));
            let named_in = match self.pick.root {
                Some((at, _)) if !self.roots.is_filled(from, to) && !self.roots.may_lack(from, to) => at.generation,
                _ => self.roots.generation_at(from).unwrap_or(0),
            };
            let newest = root.map_or(named_in, |root| root.max(named_in));
            (newest < self.last || info.is_chosen).then_some((tree, newest))
        };
        self.subvolumes().into_iter().filter_map(of).collect()
    }

    /// Numbers of the subvolumes, the top level first.
    pub(crate) fn subvolumes(&self) -> Vec<u64> {
        let all = self.infos.keys().copied();
        all.filter(|tree| TreeId(*tree).is_subvolume()).collect()
    }
}

fn of_item(item: &RootItem) -> Info {
    let (at, generation) = item.root_block();
    let at = At { logical: at.0, generation: generation.0 };
    let times = [item.ctime.sec.get(), item.otime.sec.get(), item.inode.ctime.sec.get()];
    Info {
        root: Some((at, item.level)),
        is_chosen: false,
        top: item.root_dirid.get().max(256),
        uuid: item.uuid,
        parent_uuid: item.parent_uuid,
        otransid: item.otransid.get(),
        seconds: times.into_iter().max().unwrap_or(0),
        place: None,
    }
}

/// The newest generation of any block, except log trees, which are ahead of the commit.
fn newest_commit(blocks: &Blocks) -> u64 {
    let all = blocks.table().all().iter().filter(|found| found.owner != TreeId::TREE_LOG.0);
    all.map(|found| found.generation).max().unwrap_or(0)
}

/// Limit on roots of one tree and commit that are compared.
const ROOTS_MAX: usize = 64;

/// Finds a newer root than the one in the item: the newest block of the tree, if it can be a root. Also returns whether
/// there were several in that commit.
fn newest_root(blocks: &Blocks, tree: u64, known: Option<(At, u8)>, generation_max: u64) -> (Option<(At, u8)>, bool) {
    let table = blocks.table();
    let levels = 0..btrfs_disk::node::LEVELS_MAX;
    let newest = levels.filter_map(|level| table.of(tree, level).find(|found| found.generation <= generation_max));
    let newest = newest.max_by_key(|found| (found.generation, found.level));
    let Some(newest) = newest else { return (known, false) };
    let (generation, level) = (newest.generation, newest.level);
    match known {
        Some((known_at, _)) if known_at.generation >= generation => return (known, false),
        // The root of that commit is lost, but its leaves may be left.
        Some((_, known_level)) if level < known_level => return (None, false),
        None if level == 0 && table.of(tree, 1).next().is_some() => return (None, false),
        _ => {}
    }
    // Blocks written before the end of a commit are copied again, so later roots refer to more new blocks.
    let mut roots: Vec<At> = Vec::new();
    for found in table.of(tree, level).skip_while(|found| found.generation > generation) {
        let at = At { logical: found.logical, generation };
        if found.generation < generation || roots.len() >= ROOTS_MAX {
            break;
        }
        if roots.last() != Some(&at) {
            roots.push(at);
        }
    }
    let root = roots.iter().copied().max_by_key(|at| (new_children(blocks, *at, level), at.logical));
    (root.map(|at| (at, level)), roots.len() > 1)
}

/// Number of children with the same generation as their node.
fn new_children(blocks: &Blocks, at: At, level: u8) -> usize {
    let Some(block) = blocks.read(at, level).filter(|_| level > 0) else { return 0 };
    let ptrs = NodeView::new(&block).ptrs().iter();
    ptrs.filter(|ptr| ptr.generation.get() == at.generation).count()
}
