//! Finds the names on which directories and inodes disagree, once sums show that there are some. Called by the file
//! pass.

use std::io;

use btrfs_disk::items::{DirEntry, FileKind, InodeExtrefEntry, InodeItem, OnDisk as _, RootItem};
use btrfs_disk::key::item_type;
use btrfs_disk::node::LeafView;
use btrfs_disk::{Key, TreeId};

use super::{Code, Context, Place, Run, hash_name};
use crate::order::at_or_after;
use crate::sort::{Record, Sorter};

/// Items of one inode that are read.
const ITEMS_MAX: usize = 4_000_000;

const INODE: u64 = 0;
const REF: u64 = 1;
const ENTRY: u64 = 2;

/// Compares all names of a subvolume by sorting them.
///
/// # Errors
/// The host's, where records do not fit into memory.
pub(super) fn find(cx: &Context<'_>, tree: u64, runs: &[Run]) -> io::Result<()> {
    // Inode, hash of the name in its directory, side, position and type, directory.
    let sorter: Sorter<5> = cx.sorter();
    let mut records: Vec<Record<5>> = Vec::new();
    let mut now = Now::default();
    for leaf in leaves(runs) {
        let Some(block) = cx.media.read_block(leaf) else { continue };
        for (key, data) in LeafView::new(&block).iter() {
            names(&key, data, &mut now, &mut records);
        }
        sorter.take(&mut records);
    }
    let sorted = sorter.finish()?;
    let mut now: Vec<Record<5>> = Vec::new();
    let mut exists = None;
    for record in sorted.iter() {
        let [inode, hash, side, ..] = record;
        if now.first().is_some_and(|[first, other, ..]| (*first, *other) != (inode, hash)) {
            compare(cx, tree, exists, &now);
            now.clear();
        }
        if hash == 0 && side == INODE {
            exists = Some(inode);
        } else {
            now.push(record);
        }
    }
    compare(cx, tree, exists, &now);
    Ok(())
}

/// The inode of the present items.
#[derive(Default)]
struct Now {
    inode: u64,
    /// The type in entries of directories.
    kind: u8,
    /// It has no link, and no name was seen yet.
    is_going: bool,
}

fn names(key: &Key, data: &[u8], now: &mut Now, records: &mut Vec<Record<5>>) {
    let hash = |dir, name: &[u8]| u64::try_from(hash_name(0, dir, 0, name, 0) >> 64).unwrap_or(1).max(1);
    match key.item_type {
        item_type::INODE_ITEM => {
            let item = InodeItem::parse(data).ok();
            let kind = item.and_then(InodeItem::kind).map_or(0, FileKind::dir_type);
            let is_going = item.is_some_and(|item| item.nlink.get() == 0);
            *now = Now { inode: key.objectid, kind, is_going };
            records.push([key.objectid, 0, INODE, 0, 0]);
        }
        item_type::INODE_REF | item_type::INODE_EXTREF => {
            now.is_going &= now.inode != key.objectid;
            let own = if now.inode == key.objectid { now.kind } else { 0 };
            for entry in InodeExtrefEntry::iter_either(key, data).map_while(Result::ok) {
                if entry.parent.0 == key.objectid && entry.name == b".." {
                    continue;
                }
                let more = entry.index << 8 | u64::from(own);
                records.push([key.objectid, hash(entry.parent.0, entry.name), REF, more, entry.parent.0]);
            }
        }
        // Entries of a directory that is being deleted do not count.
        item_type::DIR_INDEX if now.is_going && now.inode == key.objectid => {}
        item_type::DIR_INDEX => {
            for entry in DirEntry::iter(data).map_while(Result::ok) {
                let location = entry.location();
                if location.item_type != item_type::ROOT_ITEM {
                    let more = key.offset << 8 | u64::from(entry.item.dir_type);
                    records.push([location.objectid, hash(key.objectid, entry.name), ENTRY, more, key.objectid]);
                }
            }
        }
        _ => {}
    }
}

/// Compares the records of one name of one inode.
fn compare(cx: &Context<'_>, tree: u64, exists: Option<u64>, records: &[Record<5>]) {
    let Some([inode, ..]) = records.first().copied() else { return };
    let of = |wanted: u64| records.iter().filter(move |[_, _, side, ..]| *side == wanted);
    let (refs, entries): (Vec<_>, Vec<_>) = (of(REF).collect(), of(ENTRY).collect());
    let findings = &cx.findings;
    let place = Place::inode(tree, inode);
    match (refs.as_slice(), entries.as_slice()) {
        ([], [[_, _, _, more, dir], ..]) => {
            let name = shown(cx, tree, *dir, more >> 8);
            if exists == Some(inode) {
                let expected = format!("the name {name} in directory {dir}");
                findings.add(Code::FileEntryNoRef, place, expected, "not known to the inode");
            } else {
                let found = format!("none; {name} in directory {dir} leads there");
                findings.add(Code::FileEntryNoInode, Place::inode(tree, *dir), format!("inode {inode}"), found);
            }
        }
        ([[_, _, _, more, dir], ..], []) => {
            let expected = format!("an entry at position {} of directory {dir}", more >> 8);
            findings.add(Code::FileRefNoEntry, place, expected, "none");
        }
        ([[_, _, _, by_ref, dir], ..], [[_, _, _, by_entry, _], ..]) if by_ref != by_entry => {
            if by_ref >> 8 == by_entry >> 8 {
                let (expected, found) = (by_ref & 0xff, by_entry & 0xff);
                findings.add(Code::FileEntryType, place, format!("type {expected}"), format!("type {found}"));
            } else {
                let expected = format!("position {} of directory {dir}", by_entry >> 8);
                findings.add_what(Code::FileRefNoEntry, "position", place, expected, by_ref >> 8);
            }
        }
        _ => {}
    }
}

/// The name at a position of a directory.
fn shown(cx: &Context<'_>, tree: u64, dir: u64, index: u64) -> String {
    let mut name = None;
    let wanted = Key::new(dir, item_type::DIR_INDEX, index);
    items_from(cx, tree, wanted, |key, data| {
        if *key == wanted {
            name = DirEntry::iter(data).map_while(Result::ok).next().map(|entry| entry.name.to_vec());
        }
        false
    });
    name.map_or_else(|| "?".to_owned(), |name| format!("{:?}", String::from_utf8_lossy(&name)))
}

/// True when a subvolume has this inode.
pub(super) fn exists(cx: &Context<'_>, runs: &[Run], inode: u64) -> bool {
    let wanted = Key::new(inode, item_type::INODE_ITEM, 0);
    let mut blocks = leaves(runs).filter_map(|leaf| cx.media.read_block(leaf));
    blocks.any(|block| LeafView::new(&block).find(&wanted).is_ok())
}

/// Calls `each` with all items of an inode.
pub(super) fn items_of(cx: &Context<'_>, tree: u64, inode: u64, mut each: impl FnMut(&Key, &[u8])) {
    items_from(cx, tree, Key::new(inode, 0, 0), |key, data| {
        let is_of = key.objectid == inode;
        if is_of {
            each(key, data);
        }
        is_of
    });
}

fn items_from(cx: &Context<'_>, tree: u64, from: Key, mut each: impl FnMut(&Key, &[u8]) -> bool) {
    let fields = &cx.fields;
    let root_tree = (fields.root.get(), fields.root_level);
    let root = at_or_after(&cx.media, root_tree, &Key::new(tree, item_type::ROOT_ITEM, 0));
    let Some(root) = root.filter(|(key, _)| TreeId(key.objectid) == TreeId(tree)) else { return };
    let Ok(item) = RootItem::read(&root.1) else { return };
    let root = (item.bytenr.get(), item.level);
    let mut wanted = Some(from);
    for _ in 0..ITEMS_MAX {
        let Some((key, data)) = wanted.and_then(|wanted| at_or_after(&cx.media, root, &wanted)) else { return };
        if !each(&key, &data) {
            return;
        }
        wanted = key.next();
    }
}

/// Leaves of all runs, in order.
fn leaves(runs: &[Run]) -> impl Iterator<Item = u64> + '_ {
    runs.iter().flat_map(|run| run.iter().copied())
}
