//! Reads the leaves of a run once, and gives the items to `inode` (in this folder), one inode after the other. Called
//! by the file pass (`mod.rs`).

use std::collections::VecDeque;
use std::rc::Rc;

use btrfs_disk::Key;
use btrfs_disk::items::{DirEntry, FileExtent, FileKind, InodeExtrefEntry, InodeItem, OnDisk as _};
use btrfs_disk::key::{item_type, objectid};
use btrfs_disk::node::LeafView;

use super::hash_name;
use super::inode::{Inode, View};
use crate::code::Code;
use crate::compressed_extents;
use crate::context::Context;
use crate::finding::Place;
use crate::media::Media;
use crate::pass::Pass;
use crate::sort::Record;

/// An entry of a directory that leads to a subvolume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SubvolumeEntry {
    pub(crate) subvolume: u64,
    pub(crate) dir: u64,
    pub(crate) index: u64,
    pub(crate) name: Vec<u8>,
}

/// The result of a run, or a subvolume.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    pub(super) inodes: u64,
    /// Sum over the entries of directories, and over the names that inodes know.
    pub(super) entries: u128,
    pub(super) refs: u128,
    /// Inodes without a name, and those in orphan items.
    pub(super) unnamed: Vec<u64>,
    pub(super) orphans: Vec<u64>,
    pub(super) subvolumes: Vec<SubvolumeEntry>,
    pub(super) has_root: bool,
}

impl Found {
    /// Adds another one, without the entries that lead to subvolumes which `is_inside` refuses.
    pub(super) fn add(&mut self, other: &Self, is_inside: impl Fn(u64) -> bool) {
        self.inodes = self.inodes.saturating_add(other.inodes);
        self.entries = self.entries.wrapping_add(other.entries);
        self.refs = self.refs.wrapping_add(other.refs);
        self.unnamed.extend(&other.unnamed);
        self.orphans.extend(&other.orphans);
        self.subvolumes.extend(other.subvolumes.iter().filter(|entry| is_inside(entry.subvolume)).cloned());
        self.has_root |= other.has_root;
    }
}

/// The end of the tree in a list of leaves read behind a run.
const NO_LEAF: u64 = u64::MAX;

/// Whether a scan of a run would read the same leaves behind it.
pub(super) fn goes_on(read: &[u64], behind: impl Iterator<Item = u64>) -> bool {
    read.iter().copied().eq(behind.chain([NO_LEAF]).take(read.len()))
}

/// Records for later passes.
#[derive(Default)]
pub(super) struct Noted {
    /// Extents that must have checksums.
    pub(super) needs: Vec<Record<4>>,
    /// Compressed extents.
    pub(super) streams: Vec<Record<6>>,
}

/// Leaves that are kept: the one before, the one that is scanned, and one behind.
const BLOCKS_MAX: usize = 3;

/// Reads leaves, and keeps the last ones: the next scan begins with them.
pub(super) struct Blocks<'a> {
    media: &'a Media,
    last: VecDeque<(u64, Rc<Vec<u8>>)>,
}

impl<'a> Blocks<'a> {
    pub(super) fn new(media: &'a Media) -> Self {
        Self { media, last: VecDeque::new() }
    }

    fn read(&mut self, at: u64) -> Option<Rc<Vec<u8>>> {
        if let Some((_, block)) = self.last.iter().find(|(known, _)| *known == at) {
            return Some(Rc::clone(block));
        }
        let block = Rc::new(self.media.read_block(at)?);
        if self.last.len() >= BLOCKS_MAX {
            self.last.pop_front();
        }
        self.last.push_back((at, Rc::clone(&block)));
        Some(block)
    }
}

/// Checks the inodes whose items begin in a run of leaves.
pub(super) struct Scan<'a> {
    pub(super) cx: &'a Context<'a>,
    pub(super) tree: u64,
    pub(super) has_no_holes: bool,
    noted: &'a mut Noted,
    now: Option<Inode>,
    found: Found,
}

impl<'a> Scan<'a> {
    pub(super) fn new(cx: &'a Context<'a>, tree: u64, has_no_holes: bool, noted: &'a mut Noted) -> Self {
        Self { cx, tree, has_no_holes, noted, now: None, found: Found::default() }
    }

    /// Returns the leaves behind the run that were read for the last inode, for [`goes_on`].
    pub(super) fn run(
        &mut self,
        before: Option<u64>,
        leaves: &[u64],
        behind: &mut dyn Iterator<Item = u64>,
        blocks: &mut Blocks<'_>,
    ) -> Vec<u64> {
        // An inode whose items begin before the run belongs to another run.
        let skipped = before.and_then(|leaf| blocks.read(leaf)).and_then(|block| {
            let leaf = LeafView::new(&block);
            leaf.nritems().checked_sub(1).map(|last| leaf.key(last).objectid)
        });
        for leaf in leaves {
            let Some(block) = blocks.read(*leaf) else { continue };
            for (key, data) in LeafView::new(&block).iter() {
                if skipped != Some(key.objectid) {
                    self.item(&key, data);
                }
            }
        }
        let mut read = Vec::new();
        while let Some(number) = self.now.as_ref().map(|inode| inode.number) {
            let Some(leaf) = behind.next() else {
                read.push(NO_LEAF);
                break;
            };
            read.push(leaf);
            let Some(block) = blocks.read(leaf) else { continue };
            let items = LeafView::new(&block);
            for (key, data) in items.iter().take_while(|(key, _)| key.objectid == number) {
                self.item(&key, data);
            }
            if items.nritems().checked_sub(1).is_some_and(|last| items.key(last).objectid != number) {
                break;
            }
        }
        read
    }

    pub(super) fn finish(mut self) -> Found {
        self.close();
        self.found
    }

    fn item(&mut self, key: &Key, data: &[u8]) {
        if key.objectid == objectid::ORPHAN {
            if key.item_type == item_type::ORPHAN_ITEM {
                self.found.orphans.push(key.offset);
            }
            return;
        }
        if !(objectid::FIRST_FREE..=objectid::LAST_FREE).contains(&key.objectid) {
            if key.objectid == objectid::FREE_INO && key.item_type == item_type::INODE_ITEM {
                let place = Place::inode(self.tree, key.objectid).key(*key);
                self.cx.findings.add(Code::FileInodeCache, place, "no inode with this number", "one");
            }
            return;
        }
        if self.now.as_ref().is_none_or(|inode| inode.number != key.objectid) {
            self.close();
            self.now = Some(Inode::new(key.objectid));
        }
        match key.item_type {
            item_type::INODE_ITEM => {
                let item = InodeItem::parse(data).ok().copied();
                self.each(|inode| inode.item = item);
            }
            item_type::INODE_REF | item_type::INODE_EXTREF => self.names(key, data),
            item_type::DIR_ITEM | item_type::DIR_INDEX => self.entries(key, data),
            item_type::EXTENT_DATA => self.extent(key, data),
            item_type::XATTR_ITEM => {}
            item_type::VERITY_DESC_ITEM | item_type::VERITY_MERKLE_ITEM => {
                self.each(|inode| inode.verity.item(key, data));
            }
            unknown => {
                let place = Place::inode(self.tree, key.objectid).key(*key);
                self.cx.findings.add(Code::FileItem, place, "an item of a subvolume", format!("type {unknown}"));
            }
        }
    }

    fn each(&mut self, change: impl FnOnce(&mut Inode)) {
        if let Some(inode) = &mut self.now {
            change(inode);
        }
    }

    fn names(&mut self, key: &Key, data: &[u8]) {
        let Some(inode) = &mut self.now else { return };
        let kind = inode.kind().map_or(0, FileKind::dir_type);
        for entry in InodeExtrefEntry::iter_either(key, data).map_while(Result::ok) {
            inode.names = inode.names.saturating_add(1);
            // The root directory names itself.
            if entry.parent.0 == key.objectid && entry.name == b".." {
                continue;
            }
            let hash = hash_name(key.objectid, entry.parent.0, entry.index, entry.name, kind);
            self.found.refs = self.found.refs.wrapping_add(hash);
        }
    }

    fn entries(&mut self, key: &Key, data: &[u8]) {
        let Some(inode) = &mut self.now else { return };
        let is_going = inode.is_going();
        if key.item_type == item_type::DIR_ITEM {
            inode.same_names(data);
        }
        for entry in DirEntry::iter(data).map_while(Result::ok) {
            let location = entry.location();
            let kind = entry.item.dir_type;
            let is_subvolume = location.item_type == item_type::ROOT_ITEM;
            let is_index = key.item_type == item_type::DIR_INDEX;
            inode.entry(&entry, is_index);
            if is_index && is_subvolume {
                self.found.subvolumes.push(SubvolumeEntry {
                    subvolume: location.objectid,
                    dir: key.objectid,
                    index: key.offset,
                    name: entry.name.to_vec(),
                });
            } else if is_index && !is_going {
                let hash = hash_name(location.objectid, key.objectid, key.offset, entry.name, kind);
                self.found.entries = self.found.entries.wrapping_add(hash);
            }
        }
    }

    fn extent(&mut self, key: &Key, data: &[u8]) {
        let Some(inode) = &mut self.now else { return };
        let Ok(extent) = FileExtent::parse(data) else { return };
        let sector = u64::from(self.cx.media.format.sectorsize);
        if let Some((expected, found)) = inode.extent(key.offset, &extent, sector) {
            let place = Place::inode(self.tree, inode.number).key(*key);
            self.cx.findings.add(Code::FileExtentOverlap, place, format!("an extent from {expected} on"), found);
        }
        let problem = match &extent {
            FileExtent::Inline { head, data } => {
                let len = head.ram_bytes.get();
                let expected = || format!("{} bytes that decompress to {len}", data.len());
                compressed_extents::inline_problem(self.cx, head, data).map(|found| (expected(), found))
            }
            FileExtent::Extent(item) => compressed_extents::length_problem(item)
                .map(|(max, found)| (format!("at most {max} bytes"), found.to_string())),
        };
        if let Some((expected, found)) = problem {
            let place = Place::inode(self.tree, inode.number).key(*key);
            self.cx.findings.add(Code::FileStream, place, expected, found);
        }
        let FileExtent::Extent(item) = extent else { return };
        if self.cx.wants(Pass::Data)
            && let Some(record) = compressed_extents::record(item, (self.tree, inode.number))
        {
            self.noted.streams.push(record);
        }
        if inode.has_checksums()
            && let Some((start, end)) = item.data_range()
        {
            self.noted.needs.push([start, end, self.tree, inode.number]);
        }
    }

    fn close(&mut self) {
        let Some(inode) = self.now.take() else { return };
        self.found.inodes = self.found.inodes.saturating_add(1);
        if inode.number == objectid::FIRST_FREE {
            self.found.has_root = inode.kind() == Some(FileKind::Directory);
        }
        if inode.is_going() {
            self.found.unnamed.push(inode.number);
        }
        inode.judge(&View { cx: self.cx, tree: self.tree, has_no_holes: self.has_no_holes });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_behind_a_run_has_to_be_there_again() {
        let goes_on_in = |read: &[u64], behind: &[u64]| goes_on(read, behind.iter().copied());
        assert!(goes_on_in(&[], &[]) && goes_on_in(&[], &[7]));
        assert!(goes_on_in(&[7], &[7]) && goes_on_in(&[7], &[7, 8]) && goes_on_in(&[7, NO_LEAF], &[7]));
        assert!(!goes_on_in(&[7], &[]) && !goes_on_in(&[7], &[8]) && !goes_on_in(&[7, 8], &[7]));
        assert!(!goes_on_in(&[7, NO_LEAF], &[7, 8]) && !goes_on_in(&[NO_LEAF], &[7]));
    }
}
