//! Repairs the names of files. Each is in three items: by name and by position in its directory, and in a back
//! reference of its inode. A name in two of them is kept; a name in only one is kept where the inode would have none
//! otherwise. An inode that still has none gets one in `lost+found`. Called by `round`.

use std::collections::{BTreeMap, BTreeSet};

use btrfs_disk::items::{DIR_INDEX_FIRST, FileKind, InodeRefEntry, OnDisk as _};
use btrfs_disk::key::{item_type, objectid};
use btrfs_disk::{Key, TreeId};

use super::Mending;
use super::entries::{self, Kept, Names};
use super::inodes::{Files, Inode, Link, numbers};

const LOST_AND_FOUND: &[u8] = b"lost+found";

/// Which of the two steps are requested.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) names: bool,
    pub(crate) files: bool,
}

/// A log of fsyncs has inodes and positions that are not in the trees yet, and that follow those of the trees: new
/// numbers keep this far from both.
const GAP_OF_LOGS: u64 = 1 << 20;

/// Mends all subvolumes.
pub(crate) fn mend(mending: &mut Mending<'_>, wanted: Wanted) {
    let gap = if mending.image.fields.log_root.get() == 0 { 1 } else { GAP_OF_LOGS };
    for tree in mending.subvolumes() {
        let mut files = Files::of(mending, tree);
        let names = if wanted.names {
            let mut names = decide(&files);
            find_lost(&mut files, &mut names, gap);
            positions(&files, &mut names, gap);
            let kinds = kinds(&files);
            set_kinds(&files, &mut names, &kinds);
            entries::write(mending, tree, &files, &names);
            orphans(mending, tree, &files);
            for key in &files.foreign {
                mending.change(tree, *key, None);
            }
            names
        } else {
            Names::new()
        };
        inode_items(mending, tree, &files, wanted.names.then_some(&names), wanted);
    }
}

/// The items that support a name.
#[derive(Clone, Copy, Debug, Default)]
struct Votes {
    by_name: bool,
    by_index: bool,
    known: bool,
    kind: u8,
}

impl Votes {
    fn count(self) -> u8 {
        u8::from(self.by_name).saturating_add(u8::from(self.by_index)).saturating_add(u8::from(self.known))
    }
}

fn votes(link: &Link) -> BTreeMap<Key, Votes> {
    let mut votes: BTreeMap<Key, Votes> = BTreeMap::new();
    if let Some(entry) = link.by_name {
        let vote = votes.entry(entry.location).or_default();
        (vote.by_name, vote.kind) = (true, entry.kind);
    }
    for (_, entry) in &link.by_index {
        let vote = votes.entry(entry.location).or_default();
        (vote.by_index, vote.kind) = (true, entry.kind);
    }
    for known in &link.known {
        votes.entry(Key::new(known.inode, item_type::INODE_ITEM, 0)).or_default().known = true;
    }
    votes
}

fn is_there(files: &Files, location: &Key) -> bool {
    location.item_type == item_type::ROOT_ITEM || files.inodes.get(&location.objectid).is_some_and(Inode::is_there)
}

/// The names to keep.
fn decide(files: &Files) -> Names {
    let mut names = Names::new();
    let mut named: BTreeSet<u64> = BTreeSet::from([objectid::FIRST_FREE]);
    let mut doubtful = Vec::new();
    for (name, link) in &files.links {
        if !files.inodes.get(&name.0).is_some_and(Inode::is_there) {
            continue;
        }
        let votes = votes(link);
        let best = votes.iter().filter(|(location, _)| is_there(files, location)).max_by_key(|(_, vote)| vote.count());
        let Some((location, vote)) = best else { continue };
        let kept = Kept { location: *location, kind: vote.kind, index: 0 };
        if location.item_type == item_type::ROOT_ITEM {
            names.insert(name.clone(), kept);
        } else if vote.count() < 2 {
            doubtful.push((name.clone(), kept));
        } else if may_be_named(files, &named, location.objectid) {
            named.insert(location.objectid);
            names.insert(name.clone(), kept);
        }
    }
    for (name, kept) in doubtful {
        if named.insert(kept.location.objectid) {
            names.insert(name, kept);
        }
    }
    names
}

/// A directory has one name.
fn may_be_named(files: &Files, named: &BTreeSet<u64>, inode: u64) -> bool {
    let is_dir = files.inodes.get(&inode).is_some_and(|inode| {
        inode.has_entries || inode.item.is_some_and(|item| item.kind() == Some(FileKind::Directory))
    });
    !is_dir || !named.contains(&inode)
}

/// Gives names to inodes that have none and are not to be deleted.
fn find_lost(files: &mut Files, names: &mut Names, gap: u64) {
    let named: BTreeSet<u64> = names
        .values()
        .filter(|kept| kept.location.item_type == item_type::INODE_ITEM)
        .map(|kept| kept.location.objectid)
        .collect();
    let is_lost = |(number, inode): (&u64, &Inode)| {
        let is_known = named.contains(number) || *number == objectid::FIRST_FREE || files.orphans.contains(number);
        (!is_known && inode.is_there()).then_some(*number)
    };
    let lost: Vec<u64> = files.inodes.iter().filter_map(is_lost).collect();
    if lost.is_empty() {
        return;
    }
    let is_other =
        |kept: &Kept| kept.location.item_type != item_type::INODE_ITEM || kept.kind != FileKind::Directory.dir_type();
    let top = objectid::FIRST_FREE;
    let place = (top, free_name(LOST_AND_FOUND, |name| names.get(&(top, name.to_vec())).is_some_and(is_other)));
    let dir = match names.get(&place) {
        Some(kept) => kept.location.objectid,
        None => {
            let last = files.inodes.keys().next_back().copied().unwrap_or(objectid::FIRST_FREE);
            let number = last.saturating_add(gap).min(objectid::LAST_FREE);
            files.inodes.insert(number, Inode { has_entries: true, ..Inode::default() });
            let location = Key::new(number, item_type::INODE_ITEM, 0);
            names.insert(place, Kept { location, kind: FileKind::Directory.dir_type(), index: 0 });
            number
        }
    };
    for number in lost {
        let location = Key::new(number, item_type::INODE_ITEM, 0);
        let name = format!("inode-{number}").into_bytes();
        let name = free_name(&name, |name| names.contains_key(&(dir, name.to_vec())));
        names.insert((dir, name), Kept { location, kind: 0, index: 0 });
    }
}

/// The name, or the first free one with a number appended.
fn free_name(name: &[u8], is_taken: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let mut free = name.to_vec();
    let mut number = 0u64;
    while is_taken(&free) {
        number = number.saturating_add(1);
        free = [name, b".", number.to_string().as_bytes()].concat();
    }
    free
}

/// Positions: that of the directory, else that of the back reference if it is free, else the next.
fn positions(files: &Files, names: &mut Names, gap: u64) {
    let mut taken: BTreeSet<(u64, u64)> = BTreeSet::new();
    let mut without = Vec::new();
    for (name, kept) in names.iter_mut() {
        let link = files.links.get(name);
        let own = link.and_then(|link| link.by_index.iter().find(|(_, entry)| entry.location == kept.location));
        match own {
            Some((index, _)) => {
                kept.index = *index;
                taken.insert((name.0, *index));
            }
            None => without.push(name.clone()),
        }
    }
    for name in without {
        let Some(kept) = names.get_mut(&name) else { continue };
        let link = files.links.get(&name);
        let known = link.and_then(|link| link.known.iter().find(|known| known.inode == kept.location.objectid));
        // A position that leads somewhere else is this name's own, if the item has the name.
        let wrong = link.and_then(|link| link.by_index.first()).map(|(index, _)| *index);
        let candidates = known.map(|known| known.index).into_iter().chain(wrong);
        let free = candidates.into_iter().find(|index| *index >= DIR_INDEX_FIRST && !taken.contains(&(name.0, *index)));
        let last = taken.range((name.0, 0)..=(name.0, u64::MAX)).next_back().map(|(_, index)| *index);
        kept.index = free.unwrap_or_else(|| last.unwrap_or(DIR_INDEX_FIRST.saturating_sub(1)).saturating_add(gap));
        taken.insert((name.0, kept.index));
    }
}

/// The type of each inode, where its entries by name and by position agree.
fn kinds(files: &Files) -> BTreeMap<u64, FileKind> {
    let mut by_entries: BTreeMap<u64, FileKind> = BTreeMap::new();
    for link in files.links.values() {
        let index = link.by_index.first().map(|(_, entry)| *entry);
        if let (Some(a), Some(b)) = (link.by_name.or(index), index.or(link.by_name))
            && (a.location, a.kind) == (b.location, b.kind)
            && a.location.item_type == item_type::INODE_ITEM
        {
            by_entries.extend(FileKind::from_dir_type(a.kind).map(|kind| (a.location.objectid, kind)));
        }
    }
    files.inodes.iter().map(|(number, inode)| (*number, inode.kind(*number, by_entries.get(number).copied()))).collect()
}

fn set_kinds(files: &Files, names: &mut Names, kinds: &BTreeMap<u64, FileKind>) {
    debug_assert!(kinds.len() == files.inodes.len(), "every inode has a type");
    for kept in names.values_mut() {
        kept.kind = match kept.location.item_type {
            item_type::ROOT_ITEM => FileKind::Directory.dir_type(),
            _ => kinds.get(&kept.location.objectid).map_or(kept.kind, |kind| kind.dir_type()),
        };
    }
}

/// Removes orphan items of missing inodes.
fn orphans(mending: &mut Mending<'_>, tree: TreeId, files: &Files) {
    for orphan in &files.orphans {
        if !files.inodes.get(orphan).is_some_and(Inode::is_there) {
            let key = Key::new(objectid::ORPHAN, item_type::ORPHAN_ITEM, *orphan);
            mending.change(tree, key, None);
        }
    }
}

fn inode_items(mending: &mut Mending<'_>, tree: TreeId, files: &Files, names: Option<&Names>, wanted: Wanted) {
    let kinds = kinds(files);
    let (mut links, mut sizes): (BTreeMap<u64, u32>, BTreeMap<u64, u64>) = Default::default();
    links.insert(objectid::FIRST_FREE, 1);
    for ((dir, name), kept) in names.into_iter().flatten() {
        let size = sizes.entry(*dir).or_default();
        *size = size.saturating_add(btrfs_disk::convert::to_u64(name.len()).saturating_mul(2));
        if kept.location.item_type == item_type::INODE_ITEM {
            let count = links.entry(kept.location.objectid).or_default();
            *count = count.saturating_add(1);
        }
    }
    if names.is_some() && !files.root_is_named {
        let number = objectid::FIRST_FREE;
        let item = InodeRefEntry { index: 0, name: b".." }.build();
        mending.change(tree, Key::new(number, item_type::INODE_REF, number), Some(item));
    }
    for (number, inode) in
        files.inodes.iter().filter(|(number, inode)| inode.is_there() || **number == objectid::FIRST_FREE)
    {
        let kind = kinds.get(number).copied().unwrap_or(FileKind::File);
        let mut item = match (names, inode.item) {
            (None, None) => continue,
            (None, Some(item)) => item,
            (Some(_), _) => inode.item_of(kind, mending.image.generation()),
        };
        if names.is_some() {
            item.nlink = links.get(number).copied().unwrap_or(0).into();
            if kind == FileKind::Directory {
                item.size = sizes.get(number).copied().unwrap_or(0).into();
            }
        }
        // A new inode item gets all its numbers.
        if wanted.files || inode.item.is_none() {
            numbers(mending, (tree, *number), inode, (item.kind().unwrap_or(kind), &mut item));
        }
        if inode.item != Some(item) {
            mending.change(tree, Key::new(*number, item_type::INODE_ITEM, 0), Some(item.bytes().to_vec()));
        }
    }
}
