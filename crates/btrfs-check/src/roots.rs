//! Checks subvolumes, their parents and directories, the UUID tree, and deletions: the root pass. Called by `run`.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use btrfs_disk::flags::CompatRo;
use btrfs_disk::items::{RootItem, uuid_key, uuid_of_key};
use btrfs_disk::key::item_type;
use btrfs_disk::{Key, TreeId, Uuid};

use crate::code::Code;
use crate::collect::Facts;
use crate::context::Context;
use crate::files::SubvolumeEntry;
use crate::finding::Place;

type Name<'a> = (u64, u64, &'a [u8]);

/// Compares all records of subvolumes.
pub(crate) fn check(cx: &Context<'_>, facts: &Facts, entries: &HashMap<u64, Vec<SubvolumeEntry>>) {
    if cx.lost.has_system() {
        cx.note("roots: not compared, as tree blocks are lost");
        return;
    }
    let roots: BTreeMap<u64, &RootItem> = facts.roots.iter().map(|(key, item)| (key.objectid, item)).collect();
    required(cx, &roots);
    references(cx, facts, &roots, entries);
    orphans(cx, facts, &roots);
    if let Some(location) = facts.default
        && !roots.contains_key(&location.objectid)
    {
        cx.findings.add(
            Code::RootDefault,
            Place::tree(TreeId::ROOT.0).key(location),
            "a subvolume that exists",
            "none",
        );
    }
    uuids(cx, facts, &roots);
}

/// The trees that a file system must have.
fn required(cx: &Context<'_>, roots: &BTreeMap<u64, &RootItem>) {
    let compat_ro = cx.fields.compat_ro();
    let valid = CompatRo::FREE_SPACE_TREE | CompatRo::FREE_SPACE_TREE_VALID;
    let trees = [
        (TreeId::EXTENT, true),
        (TreeId::DEV, true),
        (TreeId::FS, true),
        (TreeId::CSUM, true),
        (TreeId::DATA_RELOC, true),
        (TreeId::FREE_SPACE, compat_ro.contains(valid)),
        (TreeId::BLOCK_GROUP, compat_ro.contains(CompatRo::BLOCK_GROUP_TREE)),
    ];
    for (tree, is_needed) in trees {
        if is_needed && !roots.contains_key(&tree.0) {
            cx.findings.add(Code::RootMissing, Place::tree(tree.0), "a root item", "none");
        }
    }
}

fn references(
    cx: &Context<'_>,
    facts: &Facts,
    roots: &BTreeMap<u64, &RootItem>,
    entries: &HashMap<u64, Vec<SubvolumeEntry>>,
) {
    let findings = &cx.findings;
    // By parent and child.
    let mut down: BTreeMap<(u64, u64), Name<'_>> = BTreeMap::new();
    let mut up: BTreeMap<(u64, u64), Name<'_>> = BTreeMap::new();
    for (key, dir, index, name) in &facts.root_refs {
        if key.item_type == item_type::ROOT_REF {
            down.insert((key.objectid, key.offset), (*dir, *index, name));
        } else {
            up.insert((key.offset, key.objectid), (*dir, *index, name));
        }
    }
    let named = entries.iter().flat_map(|(parent, entries)| entries.iter().map(move |entry| (*parent, entry)));
    let listed: HashSet<(u64, u64, Name<'_>)> = named
        .map(|(parent, entry)| (parent, entry.subvolume, (entry.dir, entry.index, entry.name.as_slice())))
        .collect();
    for ((parent, child), name) in &down {
        let place = Place::tree(*child).key(Key::new(*parent, item_type::ROOT_REF, *child));
        for tree in [parent, child].into_iter().filter(|tree| !roots.contains_key(tree)) {
            findings.add(Code::RootNoTree, place.clone(), format!("subvolume {tree}"), "none");
        }
        match up.get(&(*parent, *child)) {
            None => findings.add(Code::RootBackrefMissing, place.clone(), shown(*parent, *name), "none"),
            Some(other) if other != name => {
                findings.add(Code::RootRefName, place.clone(), shown(*parent, *name), shown(*parent, *other));
            }
            Some(_) => {}
        }
        let is_known = entries.contains_key(parent).then(|| listed.contains(&(*parent, *child, *name)));
        if is_known == Some(false) && !cx.lost.has_files() {
            findings.add(Code::RootRefEntry, place, shown(*parent, *name), "none in that directory");
        }
    }
    for ((parent, child), name) in up.iter().filter(|(edge, _)| !down.contains_key(edge)) {
        let place = Place::tree(*child).key(Key::new(*child, item_type::ROOT_BACKREF, *parent));
        findings.add(Code::RootRefMissing, place, shown(*parent, *name), "none");
    }
    let mut parents: HashMap<u64, BTreeSet<u64>> = HashMap::new();
    for (parent, child) in down.keys().chain(up.keys()) {
        parents.entry(*child).or_default().insert(*parent);
    }
    for (tree, item) in roots.iter().filter(|(tree, _)| TreeId(**tree).is_subvolume() && **tree != TreeId::FS.0) {
        let count = parents.get(tree).map_or(0, BTreeSet::len);
        if u64::from(item.refs.get()) != btrfs_disk::convert::to_u64(count) {
            findings.add(Code::RootRefs, Place::tree(*tree), count, item.refs);
        }
    }
}

fn shown(parent: u64, (dir, index, name): Name<'_>) -> String {
    let name = String::from_utf8_lossy(name);
    format!("{name:?} in directory {dir} of subvolume {parent}, position {index}")
}

fn orphans(cx: &Context<'_>, facts: &Facts, roots: &BTreeMap<u64, &RootItem>) {
    let orphans: BTreeSet<u64> = facts.orphans.iter().copied().collect();
    for (tree, item) in roots.iter().filter(|(tree, _)| TreeId(**tree).is_subvolume()) {
        if item.refs.get() == 0 && !orphans.contains(tree) {
            cx.findings.add(Code::RootOrphan, Place::tree(*tree), "an orphan item", "none");
        }
    }
    // Caches of free space are files of the root tree, and may be orphans as well.
    for orphan in orphans {
        if !roots.contains_key(&orphan) && !facts.root_inodes.contains(&orphan) {
            let place =
                Place::tree(orphan).key(Key::new(btrfs_disk::key::objectid::ORPHAN, item_type::ORPHAN_ITEM, orphan));
            cx.findings.add(Code::RootNoTree, place, format!("subvolume {orphan}"), "none");
        }
    }
}

fn uuids(cx: &Context<'_>, facts: &Facts, roots: &BTreeMap<u64, &RootItem>) {
    // The kernel rebuilds the tree at the next mount where the superblock has another generation.
    if !roots.contains_key(&TreeId::UUID.0) || cx.fields.uuid_tree_generation != cx.fields.generation {
        return;
    }
    let known: BTreeMap<Key, &Vec<u64>> = facts.uuids.iter().map(|(key, ids)| (*key, ids)).collect();
    for (tree, item) in roots
        .iter()
        .filter(|(tree, item)| TreeId(**tree).is_subvolume() && **tree != TreeId::FS.0 && item.refs.get() > 0)
    {
        let kinds = [
            (item.uuid, item_type::UUID_KEY_SUBVOL, "UUID"),
            (item.received_uuid, item_type::UUID_KEY_RECEIVED_SUBVOL, "UUID of what it was received from"),
        ];
        for (uuid, kind, what) in kinds.into_iter().filter(|(uuid, ..)| *uuid != Uuid([0; 16])) {
            if !known.get(&uuid_key(uuid, kind)).is_some_and(|ids| ids.contains(tree)) {
                cx.findings.add_what(Code::UuidMissing, what, Place::tree(*tree), uuid, "none");
            }
        }
    }
    for (key, ids) in known {
        let uuid = uuid_of_key(&key);
        for tree in ids {
            let own = roots.get(tree).map(|item| match key.item_type {
                item_type::UUID_KEY_SUBVOL => item.uuid,
                _ => item.received_uuid,
            });
            if own != Some(uuid) {
                let found = own.map_or_else(|| "no such subvolume".to_owned(), |own| own.to_string());
                cx.findings.add(Code::UuidExtra, Place::tree(*tree).key(key), uuid, found);
            }
        }
    }
}
