//! Writes the items of names in directories and inodes, as decided by `names`. Called by `names` and `roots`.

use std::collections::{BTreeMap, BTreeSet};

use btrfs_disk::flags::Incompat;
use btrfs_disk::hash::{extref_hash, name_hash};
use btrfs_disk::items::{DirEntry, FileKind, InodeExtrefEntry, InodeRefEntry};
use btrfs_disk::key::item_type;
use btrfs_disk::{Generation, InodeNo, Key, TreeId};

use super::Mending;
use super::inodes::{Files, Name};

/// Bytes of names of one inode in one directory that go into one item; others get items of their own.
const SHORT_NAMES_MAX: usize = 1000;

/// A name in its repaired form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) location: Key,
    pub(super) kind: u8,
    pub(super) index: u64,
}

/// The repaired names of a subvolume.
pub(super) type Names = BTreeMap<Name, Kept>;

/// Changes the items of names that differ.
pub(super) fn write(mending: &mut Mending<'_>, tree: TreeId, files: &Files, names: &Names) {
    by_name(mending, tree, files, names);
    by_index(mending, tree, files, names);
    of_inodes(mending, tree, files, names);
}

fn by_name(mending: &mut Mending<'_>, tree: TreeId, files: &Files, names: &Names) {
    let key = |dir, name: &[u8]| Key::new(dir, item_type::DIR_ITEM, name_hash(name));
    let mut wrong: BTreeSet<Key> = BTreeSet::new();
    for (name, link) in &files.links {
        let is = link.by_name.map(|entry| (entry.location, entry.kind));
        let wanted = names.get(name).map(|kept| (kept.location, kept.kind));
        if is != wanted || link.is_double {
            wrong.insert(key(name.0, &name.1));
        }
    }
    wrong.extend(names.keys().filter(|name| !files.links.contains_key(*name)).map(|(dir, name)| key(*dir, name)));
    if wrong.is_empty() {
        return;
    }
    let mut items: BTreeMap<Key, Vec<u8>> = BTreeMap::new();
    for (name, kept) in names {
        let key = key(name.0, &name.1);
        if wrong.contains(&key) {
            let transid = files.links.get(name).and_then(|link| link.by_name).map(|entry| entry.transid);
            items.entry(key).or_default().extend(entry(mending, kept, &name.1, transid));
        }
    }
    for key in wrong {
        let data = items.remove(&key);
        mending.change(tree, key, data);
    }
}

fn entry(mending: &Mending<'_>, kept: &Kept, name: &[u8], transid: Option<u64>) -> Vec<u8> {
    let kind = FileKind::from_dir_type(kept.kind).unwrap_or(FileKind::File);
    let transid = Generation(transid.unwrap_or_else(|| mending.image.generation()));
    DirEntry::build(kept.location, transid, kind, name)
}

fn by_index(mending: &mut Mending<'_>, tree: TreeId, files: &Files, names: &Names) {
    let mut changes: BTreeMap<Key, Option<Vec<u8>>> = BTreeMap::new();
    for (name, link) in &files.links {
        let wanted = names.get(name);
        for (index, found) in &link.by_index {
            let is_right = wanted
                .is_some_and(|kept| (kept.index, kept.location, kept.kind) == (*index, found.location, found.kind));
            if !is_right {
                changes.insert(Key::new(name.0, item_type::DIR_INDEX, *index), None);
            }
        }
    }
    for (name, kept) in names {
        let link = files.links.get(name);
        let found = link.and_then(|link| link.by_index.iter().find(|(index, _)| *index == kept.index));
        let is = found.map(|(_, entry)| (entry.location, entry.kind));
        if is != Some((kept.location, kept.kind)) {
            let transid = link.and_then(|link| link.by_name).or(found.map(|(_, entry)| *entry));
            let data = entry(mending, kept, &name.1, transid.map(|entry| entry.transid));
            changes.insert(Key::new(name.0, item_type::DIR_INDEX, kept.index), Some(data));
        }
    }
    for (key, data) in changes {
        mending.change(tree, key, data);
    }
}

/// Names of an inode in a directory: name and position, and whether it stands in an item for long ones.
type OfInode = BTreeMap<(u64, u64), BTreeMap<Vec<u8>, (u64, bool)>>;

fn of_inodes(mending: &mut Mending<'_>, tree: TreeId, files: &Files, names: &Names) {
    let (mut is, mut wanted) = (OfInode::new(), OfInode::new());
    let mut doubled: BTreeSet<(u64, u64)> = BTreeSet::new();
    for (name, link) in &files.links {
        for known in &link.known {
            let place = (known.inode, name.0);
            let old = is.entry(place).or_default().insert(name.1.clone(), (known.index, known.is_long));
            if old.is_some() {
                doubled.insert(place);
            }
        }
    }
    for (name, kept) in names.iter().filter(|(_, kept)| kept.location.item_type == item_type::INODE_ITEM) {
        let inode = kept.location.objectid;
        let known = files.links.get(name).map(|link| link.known.as_slice()).unwrap_or_default();
        let is_long = known.iter().any(|known| known.inode == inode && known.is_long);
        wanted.entry((inode, name.0)).or_default().insert(name.1.clone(), (kept.index, is_long));
    }
    let has_long = mending.image.fields.incompat().contains(Incompat::EXTENDED_IREF);
    let places: BTreeSet<(u64, u64)> = is.keys().chain(wanted.keys()).copied().collect();
    // Several directories may share an item for long names: all of an inode are written when one is wrong.
    let wrong: BTreeSet<u64> = places
        .iter()
        .filter(|place| is.get(place) != wanted.get(place) || doubled.contains(place))
        .map(|(inode, _)| *inode)
        .collect();
    for inode in wrong {
        let mut items: BTreeMap<Key, Vec<u8>> = BTreeMap::new();
        for ((_, dir), known) in is.range((inode, 0)..=(inode, u64::MAX)) {
            for key in known.iter().map(|(name, (_, is_long))| ref_key(inode, *dir, name, *is_long)) {
                mending.change(tree, key, None);
            }
        }
        for ((_, dir), known) in wanted.range((inode, 0)..=(inode, u64::MAX)) {
            for (name, (index, is_long)) in known {
                let short = ref_key(inode, *dir, name, false);
                let is_full = items.get(&short).is_some_and(|item| item.len() > SHORT_NAMES_MAX);
                if has_long && (*is_long || is_full) {
                    let entry = InodeExtrefEntry { parent: InodeNo(*dir), index: *index, name };
                    items.entry(ref_key(inode, *dir, name, true)).or_default().extend(entry.build());
                } else {
                    items.entry(short).or_default().extend(InodeRefEntry { index: *index, name }.build());
                }
            }
        }
        for (key, data) in items {
            mending.change(tree, key, Some(data));
        }
    }
}

fn ref_key(inode: u64, dir: u64, name: &[u8], is_long: bool) -> Key {
    if is_long {
        Key::new(inode, item_type::INODE_EXTREF, extref_hash(dir, name))
    } else {
        Key::new(inode, item_type::INODE_REF, dir)
    }
}

/// Adds an entry at a position of a directory, if nothing has the position or the name.
pub(super) fn add(mending: &mut Mending<'_>, tree: TreeId, (dir, index): (u64, u64), name: &[u8], entry: &[u8]) {
    let keys = [Key::new(dir, item_type::DIR_ITEM, name_hash(name)), Key::new(dir, item_type::DIR_INDEX, index)];
    let (mut is_free, mut is_dir) = (true, false);
    mending.each(tree, |key, _| {
        is_free &= !keys.contains(key);
        is_dir |= *key == Key::new(dir, item_type::INODE_ITEM, 0);
    });
    if is_free && is_dir {
        keys.into_iter().for_each(|key| mending.change(tree, key, Some(entry.to_vec())));
    }
}
