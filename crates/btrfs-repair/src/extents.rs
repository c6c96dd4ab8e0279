//! Makes extent items: one for each tree block and each data extent, with all references. Called by `derive`.

use std::collections::BTreeMap;

use btrfs_disk::flags::{ExtentFlags, Incompat};
use btrfs_disk::items::{ExtentItem, ExtentView, InlineRef, TreeBlockInfo};
use btrfs_disk::key::item_type;
use btrfs_disk::node::{ITEM_SIZE, leaf_data_size};
use btrfs_disk::{Generation, InodeNo, Key, Logical, TreeId};

use crate::error::{Error, Result};
use crate::image::Image;
use crate::pack::OwnedItem;
use crate::space::first_overlap;
use crate::survey::{BlockFacts, BlockRef, DataFacts, DataRef, OldExtent, Survey};

/// The length of a data extent: that of its item, if files fit into it; else that of the files.
///
/// # Errors
/// Where files disagree.
pub(crate) fn data_len(at: u64, facts: &DataFacts, old: Option<&OldExtent>) -> Result<u64> {
    let most = facts.lens.last().copied().unwrap_or(0);
    match old.map(|old| old.len).filter(|len| *len >= facts.used && *len > 0) {
        Some(len) => Ok(len),
        None if facts.lens.len() == 1 => Ok(most),
        None => Err(Error::Beyond(format!("files disagree about the length of the extent at {at}"))),
    }
}

/// All extents: address and length.
///
/// # Errors
/// Where two overlap, or one lies in no chunk.
pub(crate) fn ranges(image: &Image, survey: &Survey) -> Result<BTreeMap<u64, u64>> {
    let mut extents: BTreeMap<u64, u64> = BTreeMap::new();
    for (at, facts) in &survey.data {
        extents.insert(*at, data_len(*at, facts, survey.old.get(at))?);
    }
    for at in survey.blocks.keys() {
        if extents.insert(*at, image.media.node_len()).is_some() {
            return Err(Error::Beyond(format!("the tree block at {at} is data of a file as well")));
        }
    }
    if let Some((a, b)) = first_overlap(&extents) {
        return Err(Error::Beyond(format!("the extents at {a} and {b} overlap, and both are in use")));
    }
    let outside = extents.iter().find(|(at, len)| image.media.chunk(**at, **len).is_none());
    if let Some((at, _)) = outside {
        return Err(Error::Beyond(format!("the extent at {at} is in use, and in no chunk")));
    }
    Ok(extents)
}

/// Makes the items of extents.
pub(crate) struct Maker<'a> {
    pub(crate) image: &'a Image,
    /// Most bytes of an item; further references are items of their own.
    inline_max: usize,
    is_skinny: bool,
}

impl<'a> Maker<'a> {
    pub(crate) fn new(image: &'a Image) -> Self {
        let room = btrfs_disk::convert::usize_from(leaf_data_size(image.media.format.nodesize) >> 4);
        let is_skinny = image.fields.incompat().contains(Incompat::SKINNY_METADATA);
        Self { image, inline_max: room.saturating_sub(ITEM_SIZE), is_skinny }
    }

    /// The items of a tree block.
    pub(crate) fn block(&self, at: u64, facts: &BlockFacts, out: &mut Vec<OwnedItem>) {
        let refs = facts.refs.iter().map(|to| match *to {
            BlockRef::Tree(root) => InlineRef::TreeBlock { root: TreeId(root) },
            BlockRef::Parent(at) => InlineRef::SharedBlock { parent: Logical(at) },
        });
        let mut flags = ExtentFlags::TREE_BLOCK;
        flags.set(ExtentFlags::FULL_BACKREF, facts.is_full);
        let info = TreeBlockInfo { key: facts.first.into(), level: facts.level };
        let (key, info) = if self.is_skinny {
            (Key::new(at, item_type::METADATA_ITEM, facts.level.into()), None)
        } else {
            (Key::new(at, item_type::EXTENT_ITEM, self.image.media.node_len()), Some(info))
        };
        self.extent(key, (Generation(facts.generation), flags), info.as_ref(), refs.collect(), out);
    }

    /// The items of a data extent of so many bytes.
    pub(crate) fn data(
        &self,
        (at, len): (u64, u64),
        facts: &DataFacts,
        old: Option<&OldExtent>,
        out: &mut Vec<OwnedItem>,
    ) {
        let refs = facts.refs.iter().map(|(to, count)| match *to {
            DataRef::File(root, inode, offset) => {
                InlineRef::Data { root: TreeId(root), inode: InodeNo(inode), offset, count: *count }
            }
            DataRef::Leaf(at) => InlineRef::SharedData { parent: Logical(at), count: *count },
        });
        let owner = old.and_then(|old| old.owner).map(|root| InlineRef::Owner { root });
        let limit = self.image.media.generation_max.0;
        let generation = old.map(|old| old.generation).filter(|found| *found != 0 && *found < limit);
        let generation = Generation(generation.unwrap_or(facts.generation));
        let key = Key::new(at, item_type::EXTENT_ITEM, len);
        self.extent(key, (generation, ExtentFlags::DATA), None, owner.into_iter().chain(refs).collect(), out);
    }

    fn extent(
        &self,
        key: Key,
        (generation, flags): (Generation, ExtentFlags),
        info: Option<&TreeBlockInfo>,
        mut refs: Vec<InlineRef>,
        out: &mut Vec<OwnedItem>,
    ) {
        refs.sort_by_key(|one| (one.item_type(), std::cmp::Reverse(one.sequence())));
        let count = refs.iter().map(InlineRef::count).fold(0, u64::saturating_add);
        let item = ExtentItem::new(count, generation, flags);
        let (mut inline, mut keyed) = (Vec::new(), Vec::new());
        let mut size = ExtentView::build(&item, info, &[]).len();
        for one in refs {
            size = size.saturating_add(one.size());
            if size <= self.inline_max.max(64) || matches!(one, InlineRef::Owner { .. }) {
                inline.push(one);
            } else {
                keyed.push(one);
            }
        }
        out.push((key, ExtentView::build(&item, info, &inline)));
        let mut own: BTreeMap<Key, Vec<u8>> = BTreeMap::new();
        for one in keyed {
            let (mut key, data) = one.keyed(Logical(key.objectid));
            // Where hashes collide the next free offset is taken.
            while own.contains_key(&key) {
                key.offset = key.offset.wrapping_add(1);
            }
            own.insert(key, data);
        }
        out.extend(own);
    }
}
