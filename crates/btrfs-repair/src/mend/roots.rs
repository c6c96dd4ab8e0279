//! Repairs subvolumes: their parents and directories, deletions, and the UUID tree. Called by `round`.

use std::collections::{BTreeMap, BTreeSet};

use btrfs_disk::items::{
    DirEntry, FileKind, InodeItem, InodeRefEntry, OnDisk as _, RootItem, RootRefEntry, mode, uuid_key, uuid_subvolumes,
};
use btrfs_disk::key::{item_type, objectid};
use btrfs_disk::{Generation, InodeNo, Key, TreeId, Uuid};
use zerocopy::FromZeros as _;

use super::Mending;
use crate::error::{Error, Result};

/// A place of a subvolume in its parent: directory, position, name.
type Place = (u64, u64, Vec<u8>);

/// The items about subvolumes.
#[derive(Default)]
pub(crate) struct Found {
    down: BTreeMap<(u64, u64), Place>,
    up: BTreeMap<(u64, u64), Place>,
    orphans: BTreeSet<u64>,
    inodes: BTreeSet<u64>,
    default: Option<(Key, Vec<u8>)>,
    /// By parent and subvolume: entries of directories.
    entries: BTreeMap<(u64, u64), Vec<Place>>,
    /// The names of these, and those by which a directory finds them.
    names: BTreeMap<(u64, u64), BTreeSet<Vec<u8>>>,
}

fn look(mending: &Mending<'_>) -> Found {
    let mut found = Found::default();
    mending.each(TreeId::ROOT, |key, data| match key.item_type {
        item_type::ROOT_REF | item_type::ROOT_BACKREF => {
            let Ok(entry) = RootRefEntry::parse(data) else { return };
            let place = (entry.dir.0, entry.index, entry.name.to_vec());
            if key.item_type == item_type::ROOT_REF {
                found.down.insert((key.objectid, key.offset), place);
            } else {
                found.up.insert((key.offset, key.objectid), place);
            }
        }
        item_type::ORPHAN_ITEM if key.objectid == objectid::ORPHAN => drop(found.orphans.insert(key.offset)),
        item_type::INODE_ITEM => drop(found.inodes.insert(key.objectid)),
        item_type::DIR_ITEM if key.objectid == objectid::ROOT_TREE_DIR => {
            found.default = Some((*key, data.to_vec()));
        }
        _ => {}
    });
    found.look_into_directories(mending);
    found
}

impl Found {
    fn look_into_directories(&mut self, mending: &Mending<'_>) {
        for tree in mending.subvolumes() {
            mending.each(tree, |key, data| {
                if !matches!(key.item_type, item_type::DIR_INDEX | item_type::DIR_ITEM) {
                    return;
                }
                let leads = |entry: &DirEntry<'_>| entry.location().item_type == item_type::ROOT_ITEM;
                for entry in DirEntry::iter(data).map_while(Result::ok).filter(leads) {
                    let edge = (tree.0, entry.location().objectid);
                    self.names.entry(edge).or_default().insert(entry.name.to_vec());
                    if key.item_type == item_type::DIR_INDEX {
                        let place = (key.objectid, key.offset, entry.name.to_vec());
                        self.entries.entry(edge).or_default().push(place);
                    }
                }
            });
        }
    }
}

/// Refuses damage that no tree can be written beside: space of a subvolume would be given away, the kernel would delete
/// one at the next mount, or it would have two names. Returns the items found.
///
/// # Errors
/// `Beyond`.
pub(crate) fn check(mending: &Mending<'_>) -> Result<Found> {
    let found = look(mending);
    let exists = |tree: u64| mending.survey.root(TreeId(tree)).is_some();
    let beyond = |text: String| Err(Error::Beyond(text));
    if let Some((_, child)) = found.down.keys().find(|edge| found.up.contains_key(*edge) && !exists(edge.1)) {
        return beyond(format!("subvolume {child} has lost its root item, and what it holds is unknown"));
    }
    if let Some(((parent, child), _)) = found.names.iter().find(|(_, names)| names.len() > 1) {
        return beyond(format!("subvolume {child} has several names in subvolume {parent}, and nothing decides"));
    }
    let is_held = |tree: u64| {
        let edges = found.down.keys().chain(found.up.keys());
        edges.into_iter().any(|(parent, child)| *child == tree && exists(*parent))
    };
    let nameless = mending.survey.roots.iter().find(|root| {
        let tree = root.key.objectid;
        let is_used = TreeId(tree).is_subvolume() && tree != TreeId::FS.0 && root.item.refs.get() > 0;
        is_used && root.item.drop_progress.objectid.get() == 0 && !found.orphans.contains(&tree) && !is_held(tree)
    });
    match nameless {
        Some(root) => beyond(format!("no subvolume knows subvolume {}; it would be deleted", root.key.objectid)),
        None => Ok(found),
    }
}

/// Makes references, entries, counts, orphans and the default subvolume agree.
pub(crate) fn mend(mending: &mut Mending<'_>, found: &Found) {
    let exists = |mending: &Mending<'_>, tree: u64| mending.survey.root(TreeId(tree)).is_some();
    let edges: BTreeSet<(u64, u64)> = found.down.keys().chain(found.up.keys()).copied().collect();
    let mut parents: BTreeMap<u64, u32> = BTreeMap::new();
    for (parent, child) in edges {
        let keys = [Key::new(parent, item_type::ROOT_REF, child), Key::new(child, item_type::ROOT_BACKREF, parent)];
        if !exists(mending, parent) || !exists(mending, child) {
            keys.into_iter().for_each(|key| mending.change(TreeId::ROOT, key, None));
            continue;
        }
        let known = [found.down.get(&(parent, child)), found.up.get(&(parent, child))];
        let of_dirs = found.entries.get(&(parent, child)).map(Vec::as_slice).unwrap_or_default();
        // Users see the directory's entry; of several entries the one with a reference is kept.
        let agreed = of_dirs.iter().find(|place| known.contains(&Some(place))).or(of_dirs.first());
        let Some(place) = agreed.or(known[0]).or(known[1]).cloned() else { continue };
        if agreed.is_none() {
            add_entry(mending, parent, child, &place);
        }
        for (key, known) in keys.into_iter().zip(known) {
            if known != Some(&place) {
                let (dir, index, name) = &place;
                let item = RootRefEntry { dir: InodeNo(*dir), index: *index, name }.build();
                mending.change(TreeId::ROOT, key, Some(item));
            }
        }
        let count = parents.entry(child).or_default();
        *count = count.saturating_add(1);
    }
    counts(mending, &parents, found);
    for orphan in &found.orphans {
        if !exists(mending, *orphan) && !found.inodes.contains(orphan) {
            mending.change(TreeId::ROOT, Key::new(objectid::ORPHAN, item_type::ORPHAN_ITEM, *orphan), None);
        }
    }
    default_subvolume(mending, found);
    if !exists(mending, TreeId::DATA_RELOC.0) {
        mending.fresh.insert(TreeId::DATA_RELOC, empty_directory(mending.image.generation()));
    }
}

fn add_entry(mending: &mut Mending<'_>, parent: u64, child: u64, (dir, index, name): &Place) {
    let location = Key::new(child, item_type::ROOT_ITEM, u64::MAX);
    let generation = Generation(mending.image.generation());
    let entry = DirEntry::build(location, generation, FileKind::Directory, name);
    super::entries::add(mending, TreeId(parent), (*dir, *index), name, &entry);
}

fn counts(mending: &mut Mending<'_>, parents: &BTreeMap<u64, u32>, found: &Found) {
    for root in mending.survey.roots.iter().filter(|root| TreeId(root.key.objectid).is_subvolume()) {
        let tree = root.key.objectid;
        let count = parents.get(&tree).copied().unwrap_or(0);
        let is_top = tree == TreeId::FS.0;
        let orphan = Key::new(objectid::ORPHAN, item_type::ORPHAN_ITEM, tree);
        let is_begun = root.item.drop_progress.objectid.get() != 0;
        if !is_top && root.item.refs.get() != count && !is_begun {
            let item = RootItem { refs: count.into(), ..root.item };
            mending.change(TreeId::ROOT, root.key, Some(item.bytes().to_vec()));
        }
        if !is_top && count == 0 && !found.orphans.contains(&tree) {
            mending.change(TreeId::ROOT, orphan, Some(Vec::new()));
        }
    }
}

fn default_subvolume(mending: &mut Mending<'_>, found: &Found) {
    let Some((key, bytes)) = &found.default else { return };
    let parsed: Vec<DirEntry<'_>> = DirEntry::iter(bytes).map_while(Result::ok).collect();
    let Some(entry) = parsed.iter().find(|entry| entry.name == b"default") else { return };
    if mending.survey.root(TreeId(entry.location().objectid)).is_none() && parsed.len() == 1 {
        let location = Key::new(TreeId::FS.0, item_type::ROOT_ITEM, u64::MAX);
        let generation = Generation(entry.item.transid.get());
        let item = DirEntry::build(location, generation, FileKind::Directory, b"default");
        mending.change(TreeId::ROOT, *key, Some(item));
    }
}

/// The tree of relocations: an empty root directory.
fn empty_directory(generation: u64) -> Vec<(Key, Vec<u8>)> {
    let inode = InodeItem {
        generation: generation.into(),
        transid: generation.into(),
        nlink: 1.into(),
        mode: (mode::S_IFDIR | 0o755).into(),
        ..InodeItem::new_zeroed()
    };
    let number = objectid::FIRST_FREE;
    vec![
        (Key::new(number, item_type::INODE_ITEM, 0), inode.bytes().to_vec()),
        (Key::new(number, item_type::INODE_REF, number), InodeRefEntry { index: 0, name: b".." }.build()),
    ]
}

/// Makes the UUID tree match the root items.
pub(crate) fn mend_uuids(mending: &mut Mending<'_>) {
    let mut wanted: BTreeMap<Key, BTreeSet<u64>> = BTreeMap::new();
    for root in &mending.survey.roots {
        let (tree, item) = (root.key.objectid, &root.item);
        if !TreeId(tree).is_subvolume() || item.refs.get() == 0 {
            continue;
        }
        let kinds =
            [(item.uuid, item_type::UUID_KEY_SUBVOL), (item.received_uuid, item_type::UUID_KEY_RECEIVED_SUBVOL)];
        for (uuid, kind) in kinds.into_iter().filter(|(uuid, _)| *uuid != Uuid::NIL) {
            wanted.entry(uuid_key(uuid, kind)).or_default().insert(tree);
        }
    }
    let build = |trees: &BTreeSet<u64>| trees.iter().flat_map(|tree| tree.to_le_bytes()).collect::<Vec<u8>>();
    if mending.is_broken(TreeId::UUID) {
        let items = wanted.iter().map(|(key, trees)| (*key, build(trees))).collect();
        mending.fresh.insert(TreeId::UUID, items);
        return;
    }
    let mut changes: Vec<(Key, Option<Vec<u8>>)> = Vec::new();
    mending.each(TreeId::UUID, |key, data| {
        let trees: BTreeSet<u64> = uuid_subvolumes(data).map(|ids| ids.map(|id| id.0).collect()).unwrap_or_default();
        match wanted.remove(key) {
            Some(right) if right == trees => {}
            Some(right) => changes.push((*key, Some(build(&right)))),
            None => changes.push((*key, None)),
        }
    });
    changes.extend(wanted.iter().map(|(key, trees)| (*key, Some(build(trees)))));
    for (key, data) in changes {
        mending.change(TreeId::UUID, key, data);
    }
}
