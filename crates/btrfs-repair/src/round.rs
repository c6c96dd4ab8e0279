//! Runs one round of a repair, on the overlay: menders collect changes, trees are changed by copy on write, derived
//! trees are rebuilt, and the superblock gets the new roots. Called by `plan`.

use std::collections::{BTreeMap, BTreeSet};

use btrfs_disk::flags::{CompatRo, Incompat, SuperFlags};
use btrfs_disk::items::{OnDisk as _, RootItem};
use btrfs_disk::key::item_type;
use btrfs_disk::node::{HEADER_SIZE, LeafView, NodeView};
use btrfs_disk::superblock::DiskSuperblock;
use btrfs_disk::{Key, TreeId};
use zerocopy::FromZeros as _;

use crate::derive;
use crate::edit::{Changes, Rewrite, with_ancestors};
use crate::error::{Error, Result};
use crate::image::Image;
use crate::items::{believed, may_drop};
use crate::mend::{self, Mending};
use crate::pack;
use crate::space::{Allocator, Ranges};
use crate::step::Step;
use crate::survey::{Survey, is_of_files};

/// Takes these steps. `kept` is space for no new block; the space in use now is added.
///
/// # Errors
/// Damage that a step cannot repair, or no space. The overlay may be changed then, and has to be discarded.
pub(crate) fn run(image: &mut Image, steps: &BTreeSet<Step>, kept: &mut Ranges) -> Result<()> {
    let survey = Survey::of(image, &[]);
    survey.used.iter().for_each(|(start, end)| kept.add(start, end.saturating_sub(start)));
    if steps.contains(&Step::Mirrors) {
        mirrors(image, &survey)?;
    }
    if steps.contains(&Step::Log) {
        image.fields.log_root = 0.into();
        image.fields.log_root_level = 0;
    }
    let only_tops = [Step::Superblock, Step::Log, Step::Mirrors];
    if steps.iter().any(|step| !only_tops.contains(step)) {
        sound_enough(image, &survey)?;
        trees(image, &survey, steps, kept)?;
    }
    finish(image, steps)
}

/// Makes the superblock agree with the trees, and writes it.
fn finish(image: &mut Image, steps: &BTreeSet<Step>) -> Result<()> {
    let survey = Survey::of(image, &[TreeId::EXTENT, TreeId::FREE_SPACE, TreeId::BLOCK_GROUP, TreeId::CSUM]);
    let mut fields: Box<DiskSuperblock> = image.fields.clone();
    if steps.contains(&Step::Superblock) || steps.contains(&Step::Devices) {
        mend::supers::mend(image, &survey, &mut fields);
    }
    mend::supers::backup(&survey, &mut fields);
    image.fields = fields;
    image.write_superblocks()
}

/// Rewrites bad copies from the good one.
fn mirrors(image: &Image, survey: &Survey) -> Result<()> {
    for (at, level, copies) in &survey.bad_copies {
        if let Some(block) = image.read(*at, *level).filter(|block| block.problem.is_none()) {
            image.write_copies(*at, &block.bytes, |mirror| copies.contains(&mirror))?;
        }
    }
    Ok(())
}

/// Refuses to write trees where the references to extents are not fully known.
fn sound_enough(image: &Image, survey: &Survey) -> Result<()> {
    if let Some(feature) = unknown_feature(image) {
        return Err(Error::Beyond(format!("the feature {feature} is not known well enough to be repaired")));
    }
    if image.bad_chunks > 0 {
        return Err(Error::Beyond("a chunk makes no sense, so it is not known what lies where".to_owned()));
    }
    if survey.root(TreeId::FS).is_none() {
        return Err(Error::Beyond(
            "the root item of the top subvolume is lost, and what it refers to unknown".to_owned(),
        ));
    }
    let needed = |tree: TreeId| {
        is_of_files(tree) || matches!(tree, TreeId::ROOT | TreeId::CHUNK | TreeId::QUOTA | TreeId::RAID_STRIPE)
    };
    if let Some((tree, at)) = survey.lost.iter().find(|(tree, _)| needed(*tree)) {
        return Err(Error::Beyond(format!("the block at {at} of tree {tree} is lost, and what it refers to unknown")));
    }
    if let Some((at, tree)) = survey.stale.iter().find(|(_, tree)| needed(**tree)) {
        return Err(Error::Beyond(format!(
            "the block at {at} of tree {tree} is of another generation than it should be"
        )));
    }
    for (at, tree) in survey.damaged.iter().filter(|(at, tree)| needed(**tree) && is_leaf(survey, **at)) {
        let Some(block) = image.read(*at, 0) else { continue };
        let mut items = LeafView::new(&block.bytes).iter();
        // The extents of such an item would lose their extent items, and be overwritten.
        if let Some((key, _)) =
            items.find(|(key, data)| believed(image, *tree, key, data).is_none() && !may_drop(*tree, key))
        {
            return Err(Error::Beyond(format!(
                "the item {key} of tree {tree} makes no sense, and others depend on it"
            )));
        }
    }
    Ok(())
}

/// A feature that affects extents or trees and is not known here.
fn unknown_feature(image: &Image) -> Option<String> {
    let known = Incompat::NAMED
        - Incompat::ZONED
        - Incompat::EXTENT_TREE_V2
        - Incompat::RAID_STRIPE_TREE
        - Incompat::REMAP_TREE;
    // Restored dumps have no data, but ordinary trees.
    let dump = SuperFlags::METADUMP | SuperFlags::METADUMP_V2;
    let state = SuperFlags::WRITTEN | SuperFlags::RELOC | SuperFlags::ERROR | dump;
    let incompat = image.fields.incompat().beyond(known).map(|beyond| beyond.to_string());
    let compat_ro = || image.fields.compat_ro().beyond(CompatRo::NAMED).map(|beyond| beyond.to_string());
    let of_state = || image.fields.super_flags().beyond(state).map(|beyond| beyond.to_string());
    incompat.or_else(compat_ro).or_else(of_state)
}

fn is_leaf(survey: &Survey, at: u64) -> bool {
    survey.blocks.get(&at).is_some_and(|facts| facts.level == 0)
}

fn trees(image: &mut Image, survey: &Survey, steps: &BTreeSet<Step>, kept: &mut Ranges) -> Result<()> {
    let mending = mended(image, survey, steps)?;
    let Mending { mut edits, fresh, .. } = mending;
    let derived = derive::trees(image);
    let mut allocator = Allocator::new(kept.clone(), image.media.node_len());
    let is_copied = |tree: &TreeId| {
        !derived.contains(tree) && !fresh.contains_key(tree) && (is_of_files(*tree) || steps.contains(&Step::Blocks))
    };
    let damaged = survey.damaged.iter().filter(|(_, tree)| is_copied(tree));
    let copied = with_ancestors(survey, damaged.map(|(at, _)| *at).filter(|_| steps.contains(&Step::Blocks)));
    let mut moved: BTreeMap<TreeId, (u64, u8)> = BTreeMap::new();
    for (tree, items) in &fresh {
        moved.insert(*tree, pack::write_tree(image, *tree, items, &mut allocator)?);
    }
    let mut changes_of_root = edits.remove(&TreeId::ROOT).unwrap_or_default();
    for root in survey.roots.iter().filter(|root| root.key.objectid != TreeId::TREE_RELOC.0) {
        let tree = TreeId(root.key.objectid);
        let changes = edits.remove(&tree).unwrap_or_default();
        let at = root.item.bytenr.get();
        if derived.contains(&tree) || fresh.contains_key(&tree) || (changes.is_empty() && !copied.contains(&at)) {
            continue;
        }
        let mut rewrite = Rewrite { image, tree, copied: &copied, allocator: &mut allocator };
        moved.insert(tree, rewrite.run((at, root.item.level), &changes)?);
    }
    chunk_tree(image, &copied, edits.remove(&TreeId::CHUNK).unwrap_or_default(), &mut allocator)?;
    // The roots of derived trees are set once they are known; their items are copied now.
    moved.extend(derived.iter().map(|tree| (*tree, (0, 0))));
    for (tree, root) in &moved {
        let (key, item) = root_item(image, survey, &changes_of_root, *tree, *root);
        changes_of_root.insert(key, Some(item.bytes().to_vec()));
    }
    root_tree(image, &copied, &changes_of_root, &mut allocator)?;
    let mut after = Survey::of(image, &derived);
    after.old.clone_from(&survey.old);
    let written = derive::write(image, &after, &mut allocator)?;
    for (tree, root) in written.roots {
        name_root(image, tree, root)?;
    }
    image.fields.bytes_used = written.used.into();
    if derived.contains(&TreeId::FREE_SPACE) {
        let flags = image.fields.compat_ro() | CompatRo::FREE_SPACE_TREE_VALID;
        image.fields.compat_ro_flags = flags.bits().into();
    } else if image.fields.cache_generation.get() == image.generation() {
        // Caches of free space in files are stale: the kernel drops those of another generation.
        image.fields.cache_generation = image.generation().saturating_sub(1).into();
    }
    *kept = allocator.into_used();
    Ok(())
}

/// Collects the changes of the menders.
fn mended<'a>(image: &'a Image, survey: &'a Survey, steps: &BTreeSet<Step>) -> Result<Mending<'a>> {
    let mut mending = Mending { image, survey, edits: BTreeMap::new(), fresh: BTreeMap::new() };
    let has = |step| steps.contains(&step);
    let subvolumes = mend::roots::check(&mending)?;
    if has(Step::Extents) {
        mend::extents::mend(&mut mending)?;
    }
    if has(Step::Names) || has(Step::Files) || has(Step::Blocks) {
        let names = has(Step::Names) || has(Step::Blocks);
        mend::names::mend(&mut mending, mend::names::Wanted { names, files: has(Step::Files) });
    }
    if has(Step::Subvolumes) {
        mend::roots::mend(&mut mending, &subvolumes);
    }
    if has(Step::Uuids) {
        mend::roots::mend_uuids(&mut mending);
    }
    if has(Step::Quotas) {
        mend::quotas::mend(&mut mending);
    }
    if has(Step::Devices) {
        mend::devices::mend(&mut mending);
    }
    if has(Step::Checksums) {
        mend::checksums::mend(&mut mending)?;
    }
    Ok(mending)
}

fn chunk_tree(image: &mut Image, copied: &BTreeSet<u64>, changes: Changes, allocator: &mut Allocator) -> Result<()> {
    let root = (image.fields.chunk_root.get(), image.fields.chunk_root_level);
    if changes.is_empty() && !copied.contains(&root.0) {
        return Ok(());
    }
    let (at, level) = Rewrite { image, tree: TreeId::CHUNK, copied, allocator }.run(root, &changes)?;
    image.fields.chunk_root = at.into();
    image.fields.chunk_root_level = level;
    image.fields.chunk_root_generation = image.fields.generation;
    Ok(())
}

fn root_tree(image: &mut Image, copied: &BTreeSet<u64>, changes: &Changes, allocator: &mut Allocator) -> Result<()> {
    let root = (image.fields.root.get(), image.fields.root_level);
    let (at, level) = Rewrite { image, tree: TreeId::ROOT, copied, allocator }.run(root, changes)?;
    image.fields.root = at.into();
    image.fields.root_level = level;
    Ok(())
}

/// The root item of a tree that moved, with its other changes.
fn root_item(
    image: &Image,
    survey: &Survey,
    changes: &Changes,
    tree: TreeId,
    (at, level): (u64, u8),
) -> (Key, RootItem) {
    let new = || {
        let is_files = tree == TreeId::DATA_RELOC;
        RootItem {
            refs: 1.into(),
            root_dirid: if is_files { btrfs_disk::key::objectid::FIRST_FREE } else { 0 }.into(),
            ..RootItem::new_zeroed()
        }
    };
    let found = survey.root(tree);
    let key = found.map_or(Key::new(tree.0, item_type::ROOT_ITEM, 0), |root| root.key);
    let changed = changes.get(&key).and_then(|data| RootItem::read(data.as_deref()?).ok());
    let item = changed.or(found.map(|root| root.item)).unwrap_or_else(new);
    let generation = image.fields.generation;
    let bytenr = if at == 0 { item.bytenr } else { at.into() };
    (key, RootItem { bytenr, level, generation, generation_v2: generation, ..item })
}

/// Sets the root of a tree in its root item, which was copied in this round.
fn name_root(image: &Image, tree: TreeId, (root, root_level): (u64, u8)) -> Result<()> {
    let lost = || Error::Beyond(format!("the root item of tree {tree} cannot be read back"));
    let from = Key::new(tree.0, item_type::ROOT_ITEM, 0);
    let (mut at, mut level) = (image.fields.root.get(), image.fields.root_level);
    loop {
        let mut block = image.read(at, level).ok_or_else(lost)?.bytes;
        if let Some(below) = level.checked_sub(1) {
            let node = NodeView::new(&block);
            // Root items of these trees have the offset 0, and so the first key of their number.
            (at, level) = (node.ptr(node.child_slot(&from)).0.0, below);
            continue;
        }
        let leaf = LeafView::new(&block);
        let slot = leaf.find(&from).unwrap_or_else(|slot| slot);
        let (key, data) = leaf.item(slot);
        let mut item = RootItem::read(data).ok().filter(|_| key.objectid == tree.0).ok_or_else(lost)?;
        (item.bytenr, item.level) = (root.into(), root_level);
        (item.generation, item.generation_v2) = (image.fields.generation, image.fields.generation);
        let start = leaf.items().get(slot).map(|item| btrfs_disk::convert::usize_from(item.offset.get()));
        let start = start.ok_or_else(lost)?.saturating_add(HEADER_SIZE);
        let to = block.get_mut(start..start.saturating_add(item.bytes().len())).ok_or_else(lost)?;
        to.copy_from_slice(item.bytes());
        return image.write(at, block);
    }
}
