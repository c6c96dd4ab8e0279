//! Lists directories: from directory items, and in damaged trees also from back references of inodes and subvolumes.
//!
//! A directory is listed only in the parent that its own back reference names, so it has one place, and walks from the
//! root end on hostile images too. `tree_view` and `undelete` read listings.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use btrfs_disk::items::DirEntry;
use btrfs_disk::key::item_type;
use btrfs_disk::{Key, TreeId};
use vfs::file_system::NodeKind;

use crate::inode::{self, File};
use crate::locks::lock;
use crate::orphans::Orphans;
use crate::state::State;

/// Limit on cached listings.
const KEPT_MAX: usize = 64;
/// Limit on names in cached listings.
const KEPT_NAMES_MAX: usize = 1 << 20;

/// Target of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Target {
    /// An inode.
    File(File),
    /// A subvolume placed elsewhere. It reads as an empty directory.
    Empty,
}

/// A name in a directory.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub(crate) name: Vec<u8>,
    pub(crate) target: Target,
    pub(crate) kind: NodeKind,
}

/// The entries of a directory.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) names: Vec<Named>,
    by_name: HashMap<Vec<u8>, usize>,
}

impl Listing {
    /// Adds a name. If it exists with another target, the inode number is appended.
    pub(crate) fn add(&mut self, name: &[u8], target: Target, kind: NodeKind) {
        let mut name = plain(name);
        if let Some(named) = self.find(&name) {
            let Target::File((_, ino)) = target else { return };
            if named.target == target {
                return;
            }
            name.extend(format!(".inode-{ino}").bytes());
            if self.by_name.contains_key(&name) {
                return;
            }
        }
        self.by_name.insert(name.clone(), self.names.len());
        self.names.push(Named { name, target, kind });
    }

    /// Finds a name.
    pub(crate) fn find(&self, name: &[u8]) -> Option<&Named> {
        self.by_name.get(name).and_then(|index| self.names.get(*index))
    }
}

/// Escapes a name that is not valid as a file name.
fn plain(name: &[u8]) -> Vec<u8> {
    match name {
        b"" => return b"\\x".to_vec(),
        b"." => return b"\\x2e".to_vec(),
        b".." => return b"\\x2e\\x2e".to_vec(),
        _ => {}
    }
    let mut out = Vec::with_capacity(name.len());
    for byte in name {
        match byte {
            0 => out.extend(b"\\x00"),
            b'/' => out.extend(b"\\x2f"),
            byte => out.push(*byte),
        }
    }
    out.truncate(255);
    out
}

/// Directory listings of a state, read on demand.
pub(crate) struct Listings {
    orphans: Mutex<HashMap<u64, Arc<Orphans>>>,
    kept: Mutex<HashMap<File, Arc<Listing>>>,
}

impl Listings {
    pub(crate) fn new() -> Self {
        Self { orphans: Mutex::default(), kept: Mutex::default() }
    }

    /// The orphans of a tree; empty if the tree is whole.
    pub(crate) fn orphans(&self, state: &State, tree: u64) -> Arc<Orphans> {
        let mut orphans = lock(&self.orphans);
        let found = orphans.entry(tree).or_insert_with(|| {
            let is_damaged = !state.pick.is_strict && state.tree(tree).is_damaged();
            Arc::new(if is_damaged { Orphans::find(state, tree) } else { Orphans::default() })
        });
        Arc::clone(found)
    }

    /// The entries of a directory.
    pub(crate) fn list(&self, state: &State, dir: File) -> Arc<Listing> {
        if let Some(listing) = lock(&self.kept).get(&dir) {
            return Arc::clone(listing);
        }
        let listing = Arc::new(self.read(state, dir));
        let mut kept = lock(&self.kept);
        let count: usize = kept.values().map(|listing| listing.names.len()).sum();
        if kept.len() >= KEPT_MAX || count.saturating_add(listing.names.len()) > KEPT_NAMES_MAX {
            kept.clear();
        }
        kept.insert(dir, Arc::clone(&listing));
        listing
    }

    fn read(&self, state: &State, (tree, dir): File) -> Listing {
        let mut listing = Listing::default();
        let orphans = self.orphans(state, tree);
        let leaves = state.tree(tree);
        let is_damaged = leaves.is_damaged();
        // DIR_ITEMs repeat DIR_INDEX items, so they are needed only if some of those are lost.
        let types =
            if is_damaged { vec![item_type::DIR_INDEX, item_type::DIR_ITEM] } else { vec![item_type::DIR_INDEX] };
        let mut entries: Vec<(Vec<u8>, Key, NodeKind)> = Vec::new();
        for item_type in types {
            let (first, last) = (Key::new(dir, item_type, 0), Key::new(dir, item_type, u64::MAX));
            leaves.items(&state.blocks, first, last, &mut |_, data| {
                let found = DirEntry::iter(data).flatten();
                entries
                    .extend(found.map(|entry| (entry.name.to_vec(), entry.location(), inode::node_kind(entry.kind()))));
                true
            });
        }
        for (name, location, kind) in entries {
            if let Some(target) = self.target(state, (tree, dir), location, kind, &orphans) {
                listing.add(&name, target, kind);
            }
        }
        for (name, ino) in orphans.extra.get(&dir).into_iter().flatten() {
            let kind = inode::read(state, (tree, *ino)).map_or(NodeKind::File, |inode| inode.kind);
            if !kind.is_dir() || parent(state, (tree, *ino), &orphans) == Some(dir) {
                listing.add(name, Target::File((tree, *ino)), kind);
            }
        }
        let placed = state.placed.get(&(tree, dir)).into_iter().flatten();
        for placed in placed.filter(|placed| placed.tree != TreeId::FS.0) {
            if let Some(info) = state.infos.get(&placed.tree) {
                listing.add(&placed.name, Target::File((placed.tree, info.top)), NodeKind::Directory);
            }
        }
        listing
    }

    fn target(&self, state: &State, (tree, dir): File, to: Key, kind: NodeKind, orphans: &Orphans) -> Option<Target> {
        match to.item_type {
            item_type::INODE_ITEM => {
                let file = (tree, to.objectid);
                // The top is its own parent, so a name for it would make a cycle.
                if state.infos.get(&tree).is_some_and(|info| info.top == to.objectid) {
                    return None;
                }
                let is_here = !kind.is_dir() || parent(state, file, orphans) == Some(dir);
                is_here.then_some(Target::File(file))
            }
            item_type::ROOT_ITEM if to.objectid == TreeId::FS.0 => None,
            item_type::ROOT_ITEM => match state.infos.get(&to.objectid) {
                Some(info) if info.place == Some((tree, dir)) => Some(Target::File((to.objectid, info.top))),
                _ => Some(Target::Empty),
            },
            _ => None,
        }
    }
}

/// The parent of a directory.
pub(crate) fn parent(state: &State, file: File, orphans: &Orphans) -> Option<u64> {
    let own = inode::names(state, file, 1).first().map(|back| back.parent);
    own.or_else(|| orphans.parents.get(&file.1).copied())
}

/// The escaped path of a file from the root, below `lost+found` if a parent is lost.
pub(crate) fn path_of(state: &State, listings: &Listings, file: File) -> Vec<u8> {
    /// Limit on the depth of a path.
    const DEPTH_MAX: usize = 4096;
    let (mut at, mut parts, mut seen): (File, Vec<Vec<u8>>, HashSet<File>) = (file, Vec::new(), HashSet::new());
    let mut is_lost = false;
    while seen.insert(at) && parts.len() < DEPTH_MAX {
        let (tree, ino) = at;
        let Some(info) = state.infos.get(&tree) else {
            is_lost = true;
            break;
        };
        if ino == info.top {
            if tree == TreeId::FS.0 {
                break;
            }
            let placed = info.place.and_then(|place| Some((place, state.placed.get(&place)?)));
            let placed = placed.and_then(|(place, all)| Some((place, all.iter().find(|one| one.tree == tree)?)));
            let Some((place, named)) = placed else {
                is_lost = true;
                break;
            };
            parts.push(plain(&named.name));
            at = place;
            continue;
        }
        let orphans = listings.orphans(state, tree);
        let back = inode::names(state, at, 1).into_iter().next();
        let named = back.map(|back| (back.parent, plain(&back.name))).or_else(|| {
            let dir = *orphans.parents.get(&ino)?;
            let listing = listings.list(state, (tree, dir));
            let found = listing.names.iter().find(|named| named.target == Target::File(at))?;
            Some((dir, found.name.clone()))
        });
        let Some((dir, name)) = named else {
            is_lost = true;
            break;
        };
        parts.push(name);
        at = (tree, dir);
    }
    if is_lost {
        let name = match state.infos.get(&at.0) {
            Some(info) if info.top == at.1 => "top".to_owned(),
            _ => format!("inode-{}", at.1),
        };
        parts.extend([name.into_bytes(), format!("subvol-{}", at.0).into_bytes(), b"lost+found".to_vec()]);
    }
    let mut path = Vec::new();
    for part in parts.iter().rev() {
        path.push(b'/');
        path.extend(part);
    }
    if path.is_empty() { b"/".to_vec() } else { path }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_cannot_be_are_escaped_and_doubles_are_told_apart() {
        let mut listing = Listing::default();
        for (name, ino) in [(&b"a"[..], 1), (b"..", 2), (b"x/y\0", 3), (b"a", 4), (b"a", 1)] {
            listing.add(name, Target::File((5, ino)), NodeKind::File);
        }
        let names: Vec<_> = listing.names.iter().map(|named| String::from_utf8_lossy(&named.name)).collect();
        assert_eq!(names, ["a", "\\x2e\\x2e", "x\\x2fy\\x00", "a.inode-4"]);
        assert!(listing.find(b"a.inode-4").is_some());
    }
}
