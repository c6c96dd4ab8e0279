//! Damages an image roughly: bytes that rot, blocks that are lost, exchanged or elsewhere, checksums that stay wrong.
//! Called by `small`.

use super::base::Base;
use super::editor::{Editor, data_range};
use crate::Random;
use anyhow::Result;
use blockdev::Device;
use btrfs_disk::key::DiskKey;
use btrfs_disk::node::{HEADER_SIZE, ITEM_SIZE, LeafView};
use btrfs_disk::superblock::SUPERBLOCK_OFFSET;
use btrfs_disk::verify::seal;
use std::ops::Range;

/// Unit of changes in bytes: a page of the device, a tree block of the small images.
pub(super) const PAGE_BYTES: u64 = 4096;
/// Bytes in front of the address in a block's header.
const BYTENR_AT: usize = 48;

/// Used parts of a device.
#[derive(Debug)]
pub(super) struct Used<'a> {
    pub(super) base: &'a Base,
    /// First bytes of the pages that are not zeros.
    pub(super) pages: &'a [u64],
}

/// Changes a copy of a base, and returns a description.
///
/// # Errors
/// If the device cannot be read or written.
pub(super) fn change(used: &Used<'_>, (device, editor): (&dyn Device, &Editor), random: &mut Random) -> Result<String> {
    match random.below(10) {
        0 | 1 => rot(used, device, random),
        2 => one_copy(used, (device, editor), random, Copy::Rotten),
        3 => one_copy(used, (device, editor), random, Copy::Changed),
        4 => one_copy(used, (device, editor), random, Copy::Zeroed),
        5 => one_copy(used, (device, editor), random, Copy::Other),
        6 => elsewhere(used, editor, random),
        7 | 8 => item_of_another(used, editor, random),
        _ => exchanged(used, editor, random),
    }
}

/// Where a device may end early: anywhere, or in or behind something that is in use.
pub(super) fn shorter(used: &Used<'_>, random: &mut Random) -> u64 {
    let page = random.pick(used.pages).copied().unwrap_or(0);
    match random.below(3) {
        0 => random.between(0, page.saturating_add(PAGE_BYTES)),
        1 => page,
        _ => page.saturating_add(random.below(PAGE_BYTES)),
    }
}

/// The fate of one copy of a block.
#[derive(Debug, Clone, Copy)]
enum Copy {
    /// A bit is another one.
    Rotten,
    /// A byte is another one, and the checksum right.
    Changed,
    Zeroed,
    /// It holds another block.
    Other,
}

/// Some bytes of anything become others; no checksum is made right.
fn rot(used: &Used<'_>, device: &dyn Device, random: &mut Random) -> Result<String> {
    let superblock = SUPERBLOCK_OFFSET;
    let page = if random.one_in(8) { superblock } else { random.pick(used.pages).copied().unwrap_or(superblock) };
    let at = page.saturating_add(random.below(PAGE_BYTES));
    let count = random.between(1, 16).min(device.size_bytes().saturating_sub(at));
    let bytes = random.noise(usize::try_from(count)?);
    device.write_at(at, &[&bytes])?;
    Ok(format!("{count} bytes from {at} on have rotten"))
}

fn one_copy(
    used: &Used<'_>,
    (device, editor): (&dyn Device, &Editor),
    random: &mut Random,
    what: Copy,
) -> Result<String> {
    let Some(block) = used.base.pick(random) else {
        return Ok("nothing".to_owned());
    };
    let mut bytes = editor.block(block.at)?;
    let (at, value) = (random.index(bytes.len()), u8::try_from(random.below(256))?);
    match (what, bytes.get_mut(at)) {
        (Copy::Rotten, Some(byte)) => *byte ^= 1 << random.below(8),
        (Copy::Changed, Some(byte)) => *byte = value,
        (Copy::Zeroed, _) => bytes.fill(0),
        _ => {
            let other = used.base.pick(random).unwrap_or(block);
            bytes = editor.block(other.at)?;
        }
    }
    if matches!(what, Copy::Changed) {
        seal(&mut bytes, editor.format().csum_type);
    }
    let places = editor.places(block.at)?;
    let place = random.pick(&places).copied().unwrap_or(0);
    device.write_at(place, &[&bytes])?;
    Ok(format!("the copy of {block:?} at {place} is {what:?}"))
}

/// Gives a block the contents of another one, with the block's own address.
fn elsewhere(used: &Used<'_>, editor: &Editor, random: &mut Random) -> Result<String> {
    let (Some(to), Some(from)) = (used.base.pick(random), used.base.pick(random)) else {
        return Ok("nothing".to_owned());
    };
    let bytes = editor.block(from.at)?;
    let says_so = !random.one_in(3);
    editor.change_block(to.at, |block| {
        block.copy_from_slice(&bytes);
        if let (true, Some(address)) = (says_so, block.get_mut(BYTENR_AT..BYTENR_AT + 8)) {
            address.copy_from_slice(&to.at.0.to_le_bytes());
        }
    })?;
    Ok(format!("{to:?} has the contents of {from:?}, with its own address: {says_so}"))
}

/// Gives an item the contents of an item of another leaf, as far as there is room; sometimes its key, too.
fn item_of_another(used: &Used<'_>, editor: &Editor, random: &mut Random) -> Result<String> {
    let (Some(to), Some(from)) = (used.base.pick(random), used.base.pick(random)) else {
        return Ok("nothing".to_owned());
    };
    let source = editor.block(from.at)?;
    let count = LeafView::new(&source).items().len();
    let from_slot = random.index(count.max(1));
    if to.level > 0 || from.level > 0 || count == 0 {
        return Ok("nothing".to_owned());
    }
    let (key, data) = (LeafView::new(&source).key(from_slot), LeafView::new(&source).data(from_slot));
    let takes_key = random.one_in(4);
    let mut said = "no item there".to_owned();
    editor.change_block(to.at, |block| {
        let view = LeafView::new(block);
        // One of the same type, where there is one.
        let all: Vec<usize> = (0..view.items().len()).collect();
        let alike: Vec<usize> = all.iter().copied().filter(|slot| view.key(*slot).item_type == key.item_type).collect();
        let Some(slot) = random.pick(if alike.is_empty() { &all } else { &alike }).copied() else { return };
        said = format!("item {slot} ({}) is as {key}, with its key: {takes_key}", view.key(slot));
        let room = data_range(block, slot).and_then(|range| block.get_mut(range)).unwrap_or_default();
        room.iter_mut().zip(data).for_each(|(byte, new)| *byte = *new);
        if let (true, Some(own), Some(new)) =
            (takes_key, block.get_mut(key_range(slot)), source.get(key_range(from_slot)))
        {
            own.copy_from_slice(new);
        }
    })?;
    Ok(format!("{to:?}, of {from:?}: {said}"))
}

/// Bytes of an item's key in its block.
fn key_range(slot: usize) -> Range<usize> {
    let start = HEADER_SIZE.saturating_add(slot.saturating_mul(ITEM_SIZE));
    start..start.saturating_add(size_of::<DiskKey>())
}

/// Exchanges the contents of two blocks.
fn exchanged(used: &Used<'_>, editor: &Editor, random: &mut Random) -> Result<String> {
    let (Some(one), Some(other)) = (used.base.pick(random), used.base.pick(random)) else {
        return Ok("nothing".to_owned());
    };
    let (first, second) = (editor.block(one.at)?, editor.block(other.at)?);
    for (at, bytes) in [(one.at, &second), (other.at, &first)] {
        editor.change_block(at, |block| {
            block.copy_from_slice(bytes);
            if let Some(address) = block.get_mut(BYTENR_AT..BYTENR_AT + 8) {
                address.copy_from_slice(&at.0.to_le_bytes());
            }
        })?;
    }
    Ok(format!("{one:?} and {other:?} are exchanged"))
}
