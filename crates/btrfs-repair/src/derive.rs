//! Rebuilds the derived trees (extents, block groups, free space) as a whole from the other trees. Called by `round`.
//!
//! They describe their own blocks too. So their size is found by trying: places are taken for as many leaves as the
//! last attempt needed, never for fewer than before, until an attempt fits.

use std::collections::BTreeMap;

use btrfs_disk::convert::{u32_len, usize_from};
use btrfs_disk::flags::{CompatRo, FreeSpaceFlags};
use btrfs_disk::items::{BlockGroupItem, FreeSpaceInfo, OnDisk as _};
use btrfs_disk::key::item_type;
use btrfs_disk::node::node_ptrs_max;
use btrfs_disk::{Key, TreeId};

use crate::error::{Error, Result};
use crate::extents::{Maker, ranges};
use crate::image::Image;
use crate::pack::{self, OwnedItem, Places};
use crate::space::{Allocator, gaps, nodes_above, tree_blocks};
use crate::survey::{BlockFacts, BlockRef, Survey};

/// Attempts to find the size. Each but the last needs more blocks than the one before.
const ATTEMPTS_MAX: usize = 100;

/// The result of a rebuild.
pub(crate) struct Derived {
    /// Roots of the trees: address and level.
    pub(crate) roots: Vec<(TreeId, (u64, u8))>,
    /// Bytes that extents take.
    pub(crate) used: u64,
}

/// The derived trees of a file system with these features.
pub(crate) fn trees(image: &Image) -> Vec<TreeId> {
    let compat_ro = image.fields.compat_ro();
    let mut trees = vec![TreeId::EXTENT];
    if compat_ro.contains(CompatRo::BLOCK_GROUP_TREE) {
        trees.push(TreeId::BLOCK_GROUP);
    }
    if compat_ro.contains(CompatRo::FREE_SPACE_TREE) {
        trees.push(TreeId::FREE_SPACE);
    }
    trees
}

/// Writes the derived trees.
///
/// # Errors
/// No space, or overlapping extents in use.
pub(crate) fn write(image: &Image, survey: &Survey, allocator: &mut Allocator) -> Result<Derived> {
    let trees = trees(image);
    let extents = ranges(image, survey)?;
    let base = items(image, survey, &extents);
    let ptrs_max = usize_from(node_ptrs_max(image.media.format.nodesize));
    let mut leaves = vec![1usize; trees.len()];
    let mut places: Vec<u64> = Vec::new();
    for _ in 0..ATTEMPTS_MAX {
        let counts: Vec<u64> = leaves.iter().map(|count| tree_blocks(*count, ptrs_max)).collect();
        let needed = counts.iter().fold(0u64, |sum, count| sum.saturating_add(*count));
        while btrfs_disk::convert::to_u64(places.len()) < needed {
            places.push(allocator.take(&image.media.chunks, false)?);
        }
        let attempt = Attempt { image, trees: &trees, leaves: &leaves, ptrs_max, places: &places };
        let (contents, used) = attempt.contents(&base, &extents);
        let nodesize = image.media.format.nodesize;
        let splits: Vec<_> =
            contents.iter().zip(&leaves).map(|(items, count)| pack::leaves(items, nodesize, *count)).collect();
        if splits.iter().zip(&leaves).all(|(split, count)| split.len() == *count) {
            let mut roots = Vec::new();
            let own = attempt.own();
            for (((tree, items), split), own) in trees.iter().zip(&contents).zip(&splits).zip(own) {
                let mut places = Places::Given(own.into_iter().map(|(at, _)| at).collect::<Vec<_>>().into_iter());
                let ptrs = pack::write_leaves(image, *tree, (items, split), &mut places)?;
                roots.push((*tree, pack::raise(image, *tree, (ptrs, 0), &mut places)?));
            }
            return Ok(Derived { roots, used });
        }
        for (count, split) in leaves.iter_mut().zip(&splits) {
            *count = (*count).max(split.len());
        }
    }
    Err(Error::Beyond("the extent tree does not come to an end".to_owned()))
}

/// The items of all extents but those of the derived trees, in the order of keys.
fn items(image: &Image, survey: &Survey, extents: &BTreeMap<u64, u64>) -> Vec<OwnedItem> {
    let maker = Maker::new(image);
    let mut items = Vec::new();
    for (at, len) in extents {
        if let Some(facts) = survey.blocks.get(at) {
            maker.block(*at, facts, &mut items);
        } else if let Some(facts) = survey.data.get(at) {
            maker.data((*at, *len), facts, survey.old.get(at), &mut items);
        }
    }
    items
}

struct Attempt<'a> {
    image: &'a Image,
    trees: &'a [TreeId],
    leaves: &'a [usize],
    ptrs_max: usize,
    places: &'a [u64],
}

impl Attempt<'_> {
    /// The places of each tree with their levels, leaves first.
    fn own(&self) -> Vec<Vec<(u64, u8)>> {
        let mut places = self.places.iter().copied();
        let own = self.leaves.iter().map(|leaves| {
            let mut own: Vec<(u64, u8)> = places.by_ref().take(*leaves).map(|at| (at, 0)).collect();
            for (level, count) in (1u8..).zip(nodes_above(*leaves, self.ptrs_max)) {
                own.extend(places.by_ref().take(count).map(|at| (at, level)));
            }
            own
        });
        own.collect()
    }

    /// The items of each tree, and the bytes that all extents take.
    fn contents(&self, base: &[OwnedItem], extents: &BTreeMap<u64, u64>) -> (Vec<Vec<OwnedItem>>, u64) {
        let maker = Maker::new(self.image);
        let mut all = extents.clone();
        let mut own_items = Vec::new();
        for (tree, own) in self.trees.iter().zip(self.own()) {
            for (at, level) in own {
                all.insert(at, self.image.media.node_len());
                let refs = std::iter::once(BlockRef::Tree(tree.0)).collect();
                let generation = self.image.generation();
                maker.block(at, &BlockFacts { level, generation, refs, ..BlockFacts::default() }, &mut own_items);
            }
        }
        let mut extent_items: Vec<OwnedItem> = base.to_vec();
        extent_items.extend(own_items);
        let (mut groups, mut free, mut used) = (Vec::new(), Vec::new(), 0u64);
        for chunk in self.image.media.chunks.values() {
            let (start, len, end) = (chunk.start().0, chunk.len_bytes(), chunk.end().0);
            let inside = || all.range(start..end).map(|(at, len)| (*at, *len));
            let bytes = inside().fold(0u64, |sum, (_, len)| sum.saturating_add(len));
            used = used.saturating_add(bytes);
            let item = BlockGroupItem::new(bytes, chunk.flags());
            groups.push((Key::new(start, item_type::BLOCK_GROUP_ITEM, len), item.bytes().to_vec()));
            let ranges = gaps(start, end, inside());
            let info = FreeSpaceInfo::new(u32_len(ranges.len()), FreeSpaceFlags::empty());
            free.push((Key::new(start, item_type::FREE_SPACE_INFO, len), info.bytes().to_vec()));
            for (from, to) in ranges {
                free.push((Key::new(from, item_type::FREE_SPACE_EXTENT, to.saturating_sub(from)), Vec::new()));
            }
        }
        if !self.trees.contains(&TreeId::BLOCK_GROUP) {
            extent_items.append(&mut groups);
        }
        extent_items.sort_by_key(|(key, _)| *key);
        free.sort_by_key(|(key, _)| *key);
        let mut contents = Vec::new();
        for tree in self.trees {
            contents.push(match *tree {
                TreeId::EXTENT => std::mem::take(&mut extent_items),
                TreeId::BLOCK_GROUP => std::mem::take(&mut groups),
                _ => std::mem::take(&mut free),
            });
        }
        (contents, used)
    }
}
