//! Finds the names lost from the directories of a damaged tree, and inodes without a name. `listing` adds them to
//! directories and `lost+found`.

use std::collections::{HashMap, HashSet};

use btrfs_disk::items::DirEntry;
use btrfs_disk::key::item_type;
use btrfs_disk::{Key, TreeId};

use crate::inode::{self, Back};
use crate::state::State;

/// Limit on names, and on inodes, per tree.
const NAMES_MAX: usize = 4 << 20;

/// Orphans of a tree.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    /// By directory: names that only back references of inodes have.
    pub(crate) extra: HashMap<u64, Vec<(Vec<u8>, u64)>>,
    /// Inodes without a name, ascending, including directories known only by their entries.
    pub(crate) nameless: Vec<u64>,
    /// Parents of directories that have a name and no back reference.
    pub(crate) parents: HashMap<u64, u64>,
}

impl Orphans {
    /// Searches all items of a tree.
    pub(crate) fn find(state: &State, tree: u64) -> Self {
        let mut search = Search { state, tree, top: state.infos.get(&tree).map_or(256, |info| info.top), ..of(state) };
        search.inodes();
        search.add_parents();
        search.name();
        let mut nameless: Vec<u64> = search.nameless.into_iter().collect();
        nameless.sort_unstable();
        Self { extra: search.extra, nameless, parents: search.parents }
    }
}

fn of(state: &State) -> Search<'_> {
    let (extra, parents, nameless) = (HashMap::new(), HashMap::new(), HashSet::new());
    Search { state, tree: 0, top: 0, extra, parents, nameless, count: 0 }
}

struct Search<'a> {
    state: &'a State,
    tree: u64,
    top: u64,
    extra: HashMap<u64, Vec<(Vec<u8>, u64)>>,
    parents: HashMap<u64, u64>,
    nameless: HashSet<u64>,
    count: usize,
}

/// True for the number of a file or directory.
pub(crate) fn is_inode(ino: u64) -> bool {
    (TreeId::FIRST_FREE.0..=TreeId::LAST_FREE.0).contains(&ino)
}

impl Search<'_> {
    /// Collects inodes without back references, and back references that no directory entry matches.
    fn inodes(&mut self) {
        let leaves = self.state.tree(self.tree);
        let (mut at, mut backs, mut unknown) = (0, 0_u32, Vec::new());
        leaves.items(&self.state.blocks, Key::MIN, Key::MAX, &mut |key, data| {
            if key.objectid != at {
                self.end(at, backs, std::mem::take(&mut unknown));
                (at, backs) = (key.objectid, 0);
            }
            if matches!(key.item_type, item_type::INODE_REF | item_type::INODE_EXTREF) && is_inode(at) {
                for back in inode::backs(key, data) {
                    backs = backs.saturating_add(1);
                    if at != self.top && !self.is_known(&back) {
                        unknown.push(back);
                    }
                }
            }
            self.count < NAMES_MAX
        });
        self.end(at, backs, unknown);
    }

    fn end(&mut self, ino: u64, backs: u32, unknown: Vec<Back>) {
        if !is_inode(ino) || ino == self.top {
            return;
        }
        for back in unknown {
            self.count += 1;
            self.extra.entry(back.parent).or_default().push((back.name, ino));
        }
        if backs == 0 {
            self.count += 1;
            self.nameless.insert(ino);
        }
    }

    /// Whether the directory has an entry for the name.
    fn is_known(&self, back: &Back) -> bool {
        let key = Key::new(back.parent, item_type::DIR_INDEX, back.index);
        let entry = self.state.tree(self.tree).get(&self.state.blocks, key);
        entry.is_some_and(|data| DirEntry::iter(&data).flatten().any(|entry| entry.name == back.name))
    }

    /// Adds parent directories that have no item left.
    fn add_parents(&mut self) {
        let state = self.state;
        let subvolumes = state.placed.keys().filter(|(tree, _)| *tree == self.tree).map(|(_, dir)| *dir);
        let dirs: HashSet<u64> = self.extra.keys().copied().chain(subvolumes).filter(|dir| is_inode(*dir)).collect();
        for dir in dirs {
            let mut is_known = dir == self.top;
            let (first, last) = (Key::new(dir, 0, 0), Key::new(dir, u8::MAX, u64::MAX));
            state.tree(self.tree).items(&state.blocks, first, last, &mut |_, _| {
                is_known = true;
                false
            });
            if !is_known {
                self.nameless.insert(dir);
            }
        }
    }

    /// Names nameless inodes by directory entries that refer to them.
    fn name(&mut self) {
        if self.nameless.is_empty() {
            return;
        }
        let state = self.state;
        state.tree(self.tree).items(&state.blocks, Key::MIN, Key::MAX, &mut |key, data| {
            if key.item_type == item_type::DIR_INDEX {
                for entry in DirEntry::iter(data).flatten() {
                    let to = entry.location();
                    let is_named = to.item_type == item_type::INODE_ITEM && to.objectid != key.objectid;
                    if is_named && self.nameless.remove(&to.objectid) {
                        self.parents.insert(to.objectid, key.objectid);
                    }
                }
            }
            !self.nameless.is_empty()
        });
    }
}
