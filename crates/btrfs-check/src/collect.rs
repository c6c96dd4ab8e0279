//! Turns tree blocks into records, and keeps small tables: roots, devices, chunks, groups, quotas. Called by `walk`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::sync::{Mutex, PoisonError};

use btrfs_disk::convert::{to_u64, usize_from};
use btrfs_disk::flags::{ExtentFlags, QgroupStatusFlags};
use btrfs_disk::items::{
    BlockGroupItem, CsumGeometry, DevExtent, DevItem, DirEntry, ExtentView, FileExtent, FreeSpaceInfo, InlineRef,
    OnDisk as _, QgroupInfoItem, QgroupStatusItem, RootItem, RootRefEntry, bitmap_runs, uuid_subvolumes,
};
use btrfs_disk::key::{item_type, objectid};
use btrfs_disk::node::{Header, LeafView};
use btrfs_disk::{Key, Logical, TreeId};

use crate::context::Context;
use crate::pass::Pass;
use crate::pointer::{Class, Pointer};
use crate::records::{About, ExtentRecord, Item, NO_LEVEL, Ref, Side, encode};
use crate::sort::{Record, Sorted, Sorter, lock};

/// A block that was read.
pub(crate) struct Seen<'a> {
    pub(crate) at: u64,
    pub(crate) class: Class,
    pub(crate) header: &'a Header,
    pub(crate) block: &'a [u8],
    /// All pointers that lead to it.
    pub(crate) pointers: &'a [Pointer],
}

/// Records of one thread, until there are enough to be handed over.
#[derive(Default)]
pub(crate) struct Local {
    pub(crate) pointers: Vec<Record<9>>,
    refs: Vec<ExtentRecord>,
    free: Vec<Record<4>>,
    csums: Vec<Record<2>>,
    holders: Vec<Record<3>>,
    set_bytes: HashMap<u32, u64>,
}

impl Local {
    /// A reference of a parent to a block.
    pub(crate) fn block_ref(&mut self, child: u64, parent: &Seen<'_>, is_full: bool) {
        let to = if is_full { Ref::Parent(parent.at) } else { Ref::Tree(parent.header.owner.get()) };
        self.refs.push(encode(child, About::Ref { to, side: Side::Walked(0) }));
    }
}

/// Small tables of the items of system trees.
#[derive(Default)]
pub(crate) struct Facts {
    pub(crate) roots: Vec<(Key, RootItem)>,
    /// ROOT_REF and ROOT_BACKREF items: key, directory, index, name.
    pub(crate) root_refs: Vec<(Key, u64, u64, Vec<u8>)>,
    pub(crate) orphans: Vec<u64>,
    /// Files of the root tree: caches of free space.
    pub(crate) root_inodes: BTreeSet<u64>,
    /// Where the name of the default subvolume leads.
    pub(crate) default: Option<Key>,
    pub(crate) uuids: Vec<(Key, Vec<u64>)>,
    pub(crate) dev_items: Vec<DevItem>,
    pub(crate) dev_extents: Vec<(Key, DevExtent)>,
    /// Chunks: first address, and the item.
    pub(crate) chunks: Vec<(u64, Vec<u8>)>,
    pub(crate) groups: BTreeMap<u64, (u64, BlockGroupItem)>,
    pub(crate) quota_status: Option<QgroupStatusItem>,
    /// Quota groups: referenced and exclusive bytes.
    pub(crate) quotas: BTreeMap<u64, (u64, u64)>,
    pub(crate) quota_relations: Vec<(u64, u64)>,
}

/// Collects the records of all threads.
pub(crate) struct Collector {
    pub(crate) facts: Mutex<Facts>,
    refs: Sorter<5>,
    /// Ranges of the free-space tree: start, kind, bytes, more.
    free: Sorter<4>,
    /// Ranges that have checksums: start, end.
    csums: Sorter<2>,
    pub(crate) csum_leaves: Mutex<Vec<u64>>,
    /// Data extents: address, bytes, set of subvolumes.
    holders: Sorter<3>,
    /// Blocks whose children are counted by the block's address.
    full: Mutex<Vec<u64>>,
    full_sorted: Vec<u64>,
    drops: HashMap<u64, (u8, Key)>,
    sets: Sets,
    set_bytes: Mutex<HashMap<u32, u64>>,
    counts_quota: bool,
}

/// The result of the walks.
pub(crate) struct Collected {
    pub(crate) facts: Facts,
    pub(crate) refs: Sorted<5>,
    pub(crate) free: Sorted<4>,
    pub(crate) csums: Sorted<2>,
    pub(crate) csum_leaves: Vec<u64>,
    pub(crate) holders: Sorted<3>,
    pub(crate) sets: Sets,
    pub(crate) set_bytes: HashMap<u32, u64>,
}

impl Collector {
    pub(crate) fn new(cx: &Context<'_>) -> Self {
        Self {
            facts: Mutex::default(),
            refs: cx.sorter(),
            free: cx.sorter(),
            csums: cx.sorter(),
            csum_leaves: Mutex::default(),
            holders: cx.sorter(),
            full: Mutex::default(),
            full_sorted: Vec::new(),
            drops: HashMap::new(),
            sets: Sets::default(),
            set_bytes: Mutex::default(),
            counts_quota: cx.wants(Pass::Quota),
        }
    }

    /// To be called between the walks of system trees and of trees of files.
    pub(crate) fn prepare_files(&mut self) {
        let facts = lock(&self.facts);
        let begun = |item: &RootItem| item.refs.get() == 0 && item.drop_progress.objectid.get() != 0;
        let drops = facts.roots.iter().filter(|(_, item)| begun(item));
        self.drops = drops.map(|(key, item)| (key.objectid, (item.drop_level, item.drop_progress.get()))).collect();
        // Of many snapshots there are as many sets as leaves, and each has most of the subvolumes.
        self.counts_quota &=
            facts.quota_status.is_some_and(|status| status.status_flags().contains(QgroupStatusFlags::ON));
        drop(facts);
        self.full_sorted = std::mem::take(self.full.get_mut().unwrap_or_else(PoisonError::into_inner));
        self.full_sorted.sort_unstable();
    }

    /// The set that the root of a subvolume begins with; the empty one where no quotas are compared.
    pub(crate) fn set_of(&self, tree: u64) -> u32 {
        if self.counts_quota && TreeId(tree).is_subvolume() { self.sets.single(tree) } else { 0 }
    }

    /// How far an interrupted deletion has come.
    pub(crate) fn dropped(&self, tree: u64) -> Option<(u8, Key)> {
        self.drops.get(&tree).copied()
    }

    /// Whether the references of a block's pointers are counted by its address.
    pub(crate) fn is_full(&self, at: u64) -> bool {
        self.full_sorted.binary_search(&at).is_ok()
    }

    /// Counts the reference to a root.
    pub(crate) fn add_root(&self, pointer: &Pointer) {
        let to = if pointer.tree == TreeId::TREE_RELOC.0 { Ref::Parent(pointer.at) } else { Ref::Tree(pointer.tree) };
        self.refs.add(encode(pointer.at, About::Ref { to, side: Side::Walked(0) }));
    }

    /// Takes the records of a thread.
    pub(crate) fn take(&self, local: &mut Local) {
        self.refs.take(&mut local.refs);
        self.free.take(&mut local.free);
        self.csums.take(&mut local.csums);
        self.holders.take(&mut local.holders);
        if !local.set_bytes.is_empty() {
            let mut all = lock(&self.set_bytes);
            for (set, bytes) in local.set_bytes.drain() {
                let sum = all.entry(set).or_default();
                *sum = sum.saturating_add(bytes);
            }
        }
    }

    /// All that was collected, sorted.
    ///
    /// # Errors
    /// The host's, where records did not fit into memory.
    pub(crate) fn finish(self) -> io::Result<Collected> {
        let whole = PoisonError::into_inner;
        Ok(Collected {
            facts: self.facts.into_inner().unwrap_or_else(whole),
            refs: self.refs.finish()?,
            free: self.free.finish()?,
            csums: self.csums.finish()?,
            csum_leaves: self.csum_leaves.into_inner().unwrap_or_else(PoisonError::into_inner),
            holders: self.holders.finish()?,
            sets: self.sets,
            set_bytes: self.set_bytes.into_inner().unwrap_or_else(PoisonError::into_inner),
        })
    }

    /// Collects the records of a block; returns the set of subvolumes that reach it.
    pub(crate) fn block(&self, cx: &Context<'_>, local: &mut Local, seen: &Seen<'_>) -> u32 {
        if seen.class == Class::Log {
            lock(&cx.log).blocks.push(seen.at);
            return 0;
        }
        let header = seen.header;
        let level = u64::from(header.level);
        let about = About::Block { level, owner: header.owner.get(), generation: header.generation.get() };
        local.refs.push(encode(seen.at, about));
        let set = if self.counts_quota { self.sets.union(seen.pointers.iter().map(|pointer| pointer.set)) } else { 0 };
        if set != 0 {
            let sum = local.set_bytes.entry(set).or_default();
            *sum = sum.saturating_add(cx.media.node_len());
        }
        if level > 0 {
            return set;
        }
        let leaf = LeafView::new(seen.block);
        let Some(first) = seen.pointers.first() else { return set };
        match TreeId(first.tree) {
            _ if seen.class == Class::Files => self.files(local, seen, &leaf, set),
            TreeId::EXTENT => self.extents(cx, local, &leaf),
            TreeId::CSUM => self.csums(cx, local, seen, &leaf),
            TreeId::FREE_SPACE => free_space(cx, local, &leaf),
            TreeId::ROOT => {
                self.files(local, seen, &leaf, 0);
                self.root_tree(&leaf);
            }
            _ => self.small(&leaf),
        }
        set
    }

    fn files(&self, local: &mut Local, seen: &Seen<'_>, leaf: &LeafView<'_>, set: u32) {
        let is_full = self.is_full(seen.at);
        for (slot, item) in leaf.items().iter().enumerate() {
            if item.key.item_type != item_type::EXTENT_DATA {
                continue;
            }
            let key = item.key.get();
            let Ok(FileExtent::Extent(extent)) = FileExtent::parse(leaf.data(slot)) else { continue };
            if extent.is_hole() {
                continue;
            }
            let (at, len) = (extent.disk_bytenr.get(), extent.disk_num_bytes.get());
            let to = if is_full {
                Ref::Leaf(seen.at)
            } else {
                Ref::Data(seen.header.owner.get(), key.objectid, key.offset.wrapping_sub(extent.offset.get()))
            };
            local.refs.push(encode(at, About::Ref { to, side: Side::Walked(len) }));
            if set != 0 {
                local.holders.push([at, len, u64::from(set)]);
            }
        }
    }

    fn extents(&self, cx: &Context<'_>, local: &mut Local, leaf: &LeafView<'_>) {
        let mut facts: Option<std::sync::MutexGuard<'_, Facts>> = None;
        for (key, data) in leaf.iter() {
            match key.item_type {
                item_type::EXTENT_ITEM | item_type::METADATA_ITEM => {
                    let Ok(view) = ExtentView::parse(&key, data) else { continue };
                    let flags = view.item.extent_flags();
                    let is_full = flags.contains(ExtentFlags::FULL_BACKREF);
                    let is_short = key.item_type == item_type::METADATA_ITEM;
                    let level = view.level(&key).map_or(NO_LEVEL, u64::from);
                    let about = About::Item(Item {
                        len: if is_short { cx.media.node_len() } else { key.offset },
                        is_data: flags.contains(ExtentFlags::DATA),
                        is_full,
                        level,
                        generation: view.item.generation.get(),
                        refs: view.item.refs.get(),
                    });
                    if is_full {
                        lock(&self.full).push(key.objectid);
                    }
                    local.refs.push(encode(key.objectid, about));
                    let refs = view.refs().map_while(Result::ok);
                    local.refs.extend(refs.filter_map(|one| extent_ref(key.objectid, &one)));
                }
                item_type::TREE_BLOCK_REF
                | item_type::SHARED_BLOCK_REF
                | item_type::EXTENT_DATA_REF
                | item_type::SHARED_DATA_REF => {
                    let one = InlineRef::parse_keyed(&key, data).ok();
                    local.refs.extend(one.and_then(|one| extent_ref(key.objectid, &one)));
                }
                item_type::BLOCK_GROUP_ITEM => {
                    let Ok((item, _)) = BlockGroupItem::parse_prefix(data) else { continue };
                    let facts = facts.get_or_insert_with(|| lock(&self.facts));
                    facts.groups.insert(key.objectid, (key.offset, *item));
                }
                _ => {}
            }
        }
    }

    fn csums(&self, cx: &Context<'_>, local: &mut Local, seen: &Seen<'_>, leaf: &LeafView<'_>) {
        let geometry = csum_geometry(cx);
        if cx.wants(Pass::Data) {
            lock(&self.csum_leaves).push(seen.at);
        }
        for (slot, item) in leaf.items().iter().enumerate() {
            let key = item.key.get();
            if key.item_type == item_type::EXTENT_CSUM {
                let end = geometry.end(Logical(key.offset), leaf.data(slot).len());
                local.csums.push([key.offset, end.0]);
            }
        }
    }

    fn root_tree(&self, leaf: &LeafView<'_>) {
        let mut facts = lock(&self.facts);
        for (key, data) in leaf.iter() {
            match key.item_type {
                item_type::ROOT_ITEM => facts.roots.extend(RootItem::read(data).ok().map(|item| (key, item))),
                item_type::ROOT_REF | item_type::ROOT_BACKREF => {
                    let entry = RootRefEntry::parse(data).ok();
                    facts.root_refs.extend(entry.map(|entry| (key, entry.dir.0, entry.index, entry.name.to_vec())));
                }
                item_type::ORPHAN_ITEM if key.objectid == objectid::ORPHAN => facts.orphans.push(key.offset),
                item_type::INODE_ITEM => {
                    facts.root_inodes.insert(key.objectid);
                }
                item_type::DIR_ITEM if key.objectid == objectid::ROOT_TREE_DIR => {
                    let entries = DirEntry::iter(data).map_while(Result::ok);
                    for entry in entries.filter(|entry| entry.name == b"default") {
                        facts.default = Some(entry.location());
                    }
                }
                _ => {}
            }
        }
    }

    /// Items of small trees.
    fn small(&self, leaf: &LeafView<'_>) {
        let mut facts = lock(&self.facts);
        for (key, data) in leaf.iter() {
            match key.item_type {
                item_type::CHUNK_ITEM => facts.chunks.push((key.offset, data.to_vec())),
                item_type::DEV_ITEM => facts.dev_items.extend(DevItem::parse(data).ok()),
                item_type::DEV_EXTENT => facts.dev_extents.extend(DevExtent::parse(data).ok().map(|item| (key, *item))),
                item_type::BLOCK_GROUP_ITEM => {
                    if let Ok((item, _)) = BlockGroupItem::parse_prefix(data) {
                        facts.groups.insert(key.objectid, (key.offset, *item));
                    }
                }
                item_type::UUID_KEY_SUBVOL | item_type::UUID_KEY_RECEIVED_SUBVOL => {
                    let ids = uuid_subvolumes(data).map(|ids| ids.map(|id| id.0).collect()).unwrap_or_default();
                    facts.uuids.push((key, ids));
                }
                item_type::QGROUP_STATUS => {
                    facts.quota_status = QgroupStatusItem::parse_prefix(data).ok().map(|(item, _)| *item);
                }
                item_type::QGROUP_INFO => {
                    if let Ok(item) = QgroupInfoItem::parse(data) {
                        facts.quotas.insert(key.offset, (item.rfer.get(), item.excl.get()));
                    }
                }
                item_type::QGROUP_RELATION => facts.quota_relations.push((key.objectid, key.offset)),
                _ => {}
            }
        }
    }
}

fn extent_ref(at: u64, one: &InlineRef) -> Option<ExtentRecord> {
    let (to, count) = Ref::of(one)?;
    Some(encode(at, About::Ref { to, side: Side::Extent(count) }))
}

/// Sizes of checksums.
pub(crate) fn csum_geometry(cx: &Context<'_>) -> CsumGeometry {
    let format = &cx.media.format;
    let csum_len = btrfs_disk::convert::u32_len(format.csum_type.len());
    CsumGeometry { sectorsize: format.sectorsize, csum_len }
}

/// Kinds of records of the free-space tree: see `space`.
pub(crate) const FREE_INFO: u64 = 0;
/// A range of its own.
pub(crate) const FREE_EXTENT: u64 = 1;
/// A run of a bitmap.
pub(crate) const FREE_BITS: u64 = 2;

fn free_space(cx: &Context<'_>, local: &mut Local, leaf: &LeafView<'_>) {
    let sector = u64::from(cx.media.format.sectorsize);
    for (key, data) in leaf.iter() {
        match key.item_type {
            item_type::FREE_SPACE_INFO => {
                if let Ok(info) = FreeSpaceInfo::parse(data) {
                    let more = u64::from(info.extent_count.get()) << 1 | u64::from(info.uses_bitmaps());
                    local.free.push([key.objectid, FREE_INFO, key.offset, more]);
                }
            }
            item_type::FREE_SPACE_EXTENT => local.free.push([key.objectid, FREE_EXTENT, key.offset, 0]),
            item_type::FREE_SPACE_BITMAP => {
                local.free.extend(bitmap_runs(data).map(|(first, count)| {
                    let at = key.objectid.saturating_add(first.saturating_mul(sector));
                    [at, FREE_BITS, count.saturating_mul(sector), 0]
                }));
            }
            _ => {}
        }
    }
}

/// Sets of subvolumes, each stored once and known by its number; 0 is the empty one.
#[derive(Default)]
pub(crate) struct Sets(Mutex<Interned>);

#[derive(Default)]
struct Interned {
    numbers: HashMap<Vec<u64>, u32>,
    sets: Vec<Vec<u64>>,
    unions: HashMap<(u32, u32), u32>,
}

impl Sets {
    /// The set of one subvolume.
    pub(crate) fn single(&self, subvolume: u64) -> u32 {
        lock(&self.0).intern(vec![subvolume])
    }

    /// The set of all that are in any of these.
    pub(crate) fn union(&self, sets: impl Iterator<Item = u32>) -> u32 {
        let mut union = 0;
        for set in sets {
            if set == union || set == 0 {
                continue;
            }
            union = if union == 0 { set } else { lock(&self.0).union(union, set) };
        }
        union
    }

    /// The subvolumes of a set.
    pub(crate) fn of(&self, set: u32) -> Vec<u64> {
        let interned = lock(&self.0);
        let index = usize_from(set).checked_sub(1);
        index.and_then(|index| interned.sets.get(index)).cloned().unwrap_or_default()
    }
}

impl Interned {
    fn intern(&mut self, set: Vec<u64>) -> u32 {
        if let Some(number) = self.numbers.get(&set) {
            return *number;
        }
        self.sets.push(set.clone());
        let number = u32::try_from(to_u64(self.sets.len())).unwrap_or(u32::MAX);
        self.numbers.insert(set, number);
        number
    }

    fn union(&mut self, a: u32, b: u32) -> u32 {
        let key = (a.min(b), a.max(b));
        if let Some(known) = self.unions.get(&key) {
            return *known;
        }
        let of = |set: u32| usize_from(set).checked_sub(1).and_then(|index| self.sets.get(index)).cloned();
        let mut both: Vec<u64> = of(a).into_iter().chain(of(b)).flatten().collect();
        both.sort_unstable();
        both.dedup();
        let number = self.intern(both);
        self.unions.insert(key, number);
        number
    }
}
