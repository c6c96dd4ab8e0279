//! Mutates an image: a few fields get other values, chosen among the existing structures. Called by `trial` and
//! `small`.

use super::base::Base;
use super::editor::{Editor, data_range};
use super::fields::{self, Field};
use crate::Random;
use anyhow::Result;
use btrfs_disk::key::item_type::{EXTENT_ITEM, FREE_SPACE_EXTENT, METADATA_ITEM, ORPHAN_ITEM};
use btrfs_disk::key::objectid;
use btrfs_disk::node::{HEADER_SIZE, ITEM_SIZE, KEY_PTR_SIZE, LeafView, header};
use btrfs_disk::superblock::SUPERBLOCK_OFFSET;
use btrfs_disk::{Key, Logical, TreeId};

/// Most fields that are changed in one image.
const CHANGES_MAX: u64 = 3;

/// Changes some fields of a copy of `base`, and says which.
///
/// # Errors
/// When the copy cannot be read or written.
pub(super) fn mutate(base: &Base, editor: &Editor, random: &mut Random) -> Result<Vec<String>> {
    let mut said = Vec::new();
    let changes = if random.one_in(2) { 1 } else { random.between(2, CHANGES_MAX) };
    for _ in 0..changes {
        said.push(match random.below(20) {
            0 | 1 => superblock(editor, random)?,
            2 => note(editor, random),
            // After another lie the books may not be found any more.
            3..=5 => books(editor, random).unwrap_or_else(|error| error.to_string()),
            _ => block(base, editor, random)?,
        });
    }
    Ok(said)
}

fn superblock(editor: &Editor, random: &mut Random) -> Result<String> {
    let (at, len) = *random.pick(fields::SUPERBLOCK).unwrap_or(&(72, 8));
    let value = random.number();
    let choice = random.clone();
    let change = |bytes: &mut [u8]| {
        let mut choice = choice.clone();
        put(bytes, (at, len), &mut choice, value);
    };
    let is_primary_alone = random.one_in(3);
    if is_primary_alone {
        editor.change_superblock_bytes(SUPERBLOCK_OFFSET, change)?;
    } else {
        editor.change_superblocks_bytes(change)?;
    }
    Ok(format!("superblock field {at}+{len}, primary alone: {is_primary_alone}"))
}

/// An orphan item for some tree or inode.
fn note(editor: &Editor, random: &mut Random) -> String {
    let id = match random.below(3) {
        0 => random.between(0, 12),
        1 => random.between(256, 270),
        _ => random.number(),
    };
    let tree = *random.pick(&[TreeId::ROOT, TreeId::FS, TreeId(256)]).unwrap_or(&TreeId::ROOT);
    let key = Key::new(objectid::ORPHAN, ORPHAN_ITEM, id);
    let put = editor.put_item(tree, &key, &[]).is_ok();
    format!("orphan item for {id} in tree {tree}: {put}")
}

/// Wrong records of space: free runs that are in use, extents without an owner, or with wrong reference counts.
fn books(editor: &Editor, random: &mut Random) -> Result<String> {
    let all = Key::MIN..=Key::MAX;
    let free = editor.items(TreeId::FREE_SPACE, all.clone()).unwrap_or_default();
    let runs: Vec<Key> = keys_of(&free, &[FREE_SPACE_EXTENT]);
    let extents = editor.items(TreeId::EXTENT, all)?;
    let extent = random.pick(&keys_of(&extents, &[EXTENT_ITEM, METADATA_ITEM])).copied();
    let largest = runs.iter().max_by_key(|run| run.offset).copied();
    let run = if random.one_in(2) { largest } else { random.pick(&runs).copied() };
    let (run, Some(extent)) = (run, extent) else {
        return Ok("nothing".to_owned());
    };
    let more = 4096 * random.between(1, 16);
    let replace = |old: Key, new: Key| {
        let removed = editor.remove_item(TreeId::FREE_SPACE, &old);
        let put = editor.put_item(TreeId::FREE_SPACE, &new, &[]);
        format!("{old} becomes {new}: {}", removed.and(put).is_ok())
    };
    let said = match (random.below(9), run) {
        (0, Some(old)) => replace(old, Key::new(old.objectid, old.item_type, old.offset.saturating_add(more))),
        (1, Some(old)) => {
            let start = old.objectid.saturating_sub(more);
            replace(old, Key::new(start, old.item_type, old.offset.saturating_add(more)))
        }
        (2, Some(old)) => replace(old, Key::new(extent.objectid, old.item_type, more)),
        (3, _) => {
            let removed = editor.remove_item(TreeId::EXTENT, &extent).is_ok();
            format!("{extent} is gone: {removed}")
        }
        // Nothing but the place is wrong: all sums are right.
        (4 | 5, Some(old)) => {
            let start =
                if random.one_in(2) { old.objectid.saturating_sub(more) } else { old.objectid.saturating_add(more) };
            replace(old, Key::new(start, old.item_type, old.offset))
        }
        (4..=6, _) => moved(editor, &extents, extent, random),
        _ => {
            let mut was = 0;
            let change = |bytes: &mut [u8]| {
                was = get(bytes, (0, 8));
                let new = if random.one_in(2) { was.wrapping_add(1) } else { was.wrapping_sub(1) };
                set(bytes, (0, 8), new);
            };
            editor.change_item(TreeId::EXTENT, &extent, change)?;
            format!("{extent} had {was} references")
        }
    };
    Ok(format!("books: {said}"))
}

/// The item of an extent says that it is elsewhere.
fn moved(editor: &Editor, extents: &[(Key, Vec<u8>)], extent: Key, random: &mut Random) -> String {
    let data = extents.iter().find(|(key, _)| *key == extent).map(|(_, data)| data.clone());
    let more = 4096 * random.between(1, 16);
    let start =
        if random.one_in(2) { extent.objectid.saturating_sub(more) } else { extent.objectid.saturating_add(more) };
    let new = Key::new(start, extent.item_type, extent.offset);
    let removed = editor.remove_item(TreeId::EXTENT, &extent);
    let put = editor.put_item(TreeId::EXTENT, &new, &data.unwrap_or_default());
    format!("{extent} is at {new}: {}", removed.and(put).is_ok())
}

fn keys_of(items: &[(Key, Vec<u8>)], types: &[u8]) -> Vec<Key> {
    let keys = items.iter().map(|(key, _)| *key);
    keys.filter(|key| types.contains(&key.item_type)).collect()
}

fn block(base: &Base, editor: &Editor, random: &mut Random) -> Result<String> {
    let Some(block) = base.pick(random) else {
        return Ok("nothing".to_owned());
    };
    let mut said = String::new();
    let other = base.any(random);
    editor.change_block(block.at, |bytes| {
        said = match random.below(10) {
            0 => in_header(bytes, random),
            1 => in_bytes(bytes, random),
            _ if block.level > 0 => in_pointer(bytes, random, other),
            2 | 3 => in_item_head(bytes, random),
            4 => whole_item(bytes, random),
            _ => in_item(bytes, random),
        };
    })?;
    Ok(format!("tree {} block {} level {}: {said}", block.tree, block.at, block.level))
}

fn in_header(bytes: &mut [u8], random: &mut Random) -> String {
    let field = *random.pick(fields::HEADER).unwrap_or(&(80, 8));
    let value = random.number();
    put(bytes, field, random, value);
    format!("header field {field:?}")
}

fn in_bytes(bytes: &mut [u8], random: &mut Random) -> String {
    let at = random.between(32, u64::try_from(bytes.len()).unwrap_or(0).saturating_sub(9));
    let at = usize::try_from(at).unwrap_or(32);
    let len = *random.pick(&[1, 2, 4, 8]).unwrap_or(&1);
    let value = random.number();
    put(bytes, (at, len), random, value);
    format!("bytes {at}+{len}")
}

fn count(bytes: &[u8]) -> usize {
    let count = header(bytes).map_or(0, |header| header.nritems.get());
    usize::try_from(count).unwrap_or(0)
}

fn in_pointer(bytes: &mut [u8], random: &mut Random, other: Option<(Logical, u64)>) -> String {
    let slot = random.index(count(bytes).min(bytes.len() / KEY_PTR_SIZE));
    let at = HEADER_SIZE.saturating_add(slot.saturating_mul(KEY_PTR_SIZE));
    if let (true, Some((to, generation))) = (random.one_in(3), other) {
        set(bytes, (at.saturating_add(17), 8), to.0);
        set(bytes, (at.saturating_add(25), 8), generation);
        return format!("pointer {slot} leads to {to}");
    }
    let (offset, len) = *random.pick(fields::POINTER).unwrap_or(&(17, 8));
    let like = random.index(count(bytes));
    let like = HEADER_SIZE.saturating_add(like.saturating_mul(KEY_PTR_SIZE));
    let value = get(bytes, (like.saturating_add(offset), len));
    put(bytes, (at.saturating_add(offset), len), random, value);
    format!("pointer {slot} field {offset}+{len}")
}

fn in_item_head(bytes: &mut [u8], random: &mut Random) -> String {
    let slot = random.index(count(bytes));
    let (offset, len) = *random.pick(fields::ITEM_HEAD).unwrap_or(&(0, 8));
    let head = |slot: usize| HEADER_SIZE.saturating_add(slot.saturating_mul(ITEM_SIZE));
    let like = get(bytes, (head(random.index(count(bytes))).saturating_add(offset), len));
    let key = LeafView::new(bytes).key(slot);
    put(bytes, (head(slot).saturating_add(offset), len), random, like);
    format!("item {slot} ({key}) head field {offset}+{len}")
}

/// An item gets the data of another one, or none that makes sense.
fn whole_item(bytes: &mut [u8], random: &mut Random) -> String {
    let slot = random.index(count(bytes));
    let from = random.index(count(bytes));
    let key = LeafView::new(bytes).key(slot);
    let data = LeafView::new(bytes).data(from).to_vec();
    if let Some(target) = data_range(bytes, slot).and_then(|range| bytes.get_mut(range)) {
        let len = target.len().min(data.len());
        let (target, data) = (target.get_mut(..len), data.get(..len));
        if let (Some(target), Some(data)) = (target, data) {
            target.copy_from_slice(data);
        }
    }
    format!("item {slot} ({key}) has the data of item {from}")
}

fn in_item(bytes: &mut [u8], random: &mut Random) -> String {
    let leaf = LeafView::new(bytes);
    let slot = random.index(count(bytes));
    let key = leaf.key(slot);
    let Some(range) = data_range(bytes, slot) else {
        return "no item".to_owned();
    };
    let len = range.len();
    let any = (random.index(len), *random.pick(&[1, 2, 4, 8]).unwrap_or(&1));
    let fits: Vec<Field> =
        fields::of_item(key.item_type).iter().filter(|(at, bytes)| at.saturating_add(*bytes) <= len).copied().collect();
    let (offset, width) = match random.pick(&fits) {
        Some(field) if !random.one_in(8) => *field,
        _ => any,
    };
    // The same field of another item of the type is a value that makes sense.
    let alike: Vec<usize> = (0..leaf.nritems()).filter(|other| leaf.key(*other).item_type == key.item_type).collect();
    let like = random.pick(&alike).and_then(|other| data_range(bytes, *other));
    let like = like.map_or(0, |range| get(bytes, (range.start.saturating_add(offset), width)));
    put(bytes, (range.start.saturating_add(offset), width), random, like);
    format!("item {slot} ({key}) field {offset}+{width}")
}

fn get(bytes: &[u8], (at, len): Field) -> u64 {
    let mut raw = [0; 8];
    let end = at.saturating_add(len.min(8));
    if let (Some(from), Some(to)) = (bytes.get(at..end), raw.get_mut(..len.min(8))) {
        to.copy_from_slice(from);
    }
    u64::from_le_bytes(raw)
}

fn set(bytes: &mut [u8], (at, len): Field, value: u64) {
    let raw = value.to_le_bytes();
    let end = at.saturating_add(len.min(8));
    if let (Some(to), Some(from)) = (bytes.get_mut(at..end), raw.get(..len.min(8))) {
        to.copy_from_slice(from);
    }
}

/// Gives a field another value: a special one, one near it, or one like `like`.
fn put(bytes: &mut [u8], field: Field, random: &mut Random, like: u64) {
    let old = get(bytes, field);
    let value = match random.below(14) {
        0 => 0,
        1 => 1,
        2 => u64::MAX,
        3 => old.wrapping_add(1),
        4 => old.wrapping_sub(1),
        5 => old ^ 1u64.wrapping_shl(u32::try_from(random.below(64)).unwrap_or(0)),
        6 => old.wrapping_add(4096),
        7 => old.wrapping_sub(4096),
        8 => random.below(300),
        9 => random.number(),
        10 => random.skewed(u64::MAX),
        11 => (1 << 63) - 1,
        _ => like,
    };
    set(bytes, field, value);
}
