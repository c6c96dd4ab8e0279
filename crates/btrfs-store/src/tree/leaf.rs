//! Edits one leaf in place: insert, remove, resize, move items to a neighbour.
//!
//! Item data is stacked from the end of the block without gaps, in the order of the items, so each edit moves the data
//! of the items after it as one piece. Called by the other modules of `tree`: edits, splits and merges.

#![expect(
    clippy::indexing_slicing,
    reason = "places in a block come from its header and items, which the verifier has seen; a panic is our own bug"
)]

use btrfs_disk::Key;
use btrfs_disk::convert::{u32_len, usize_from};

use super::layout::{self, HEADER, ITEM, capacity, data_at, get_u32, nritems, put_key, put_u32, set_nritems};

fn header_at(slot: usize) -> usize {
    HEADER + slot * ITEM
}

pub(crate) fn offset(block: &[u8], slot: usize) -> u32 {
    get_u32(block, header_at(slot) + 17)
}

pub(crate) fn size(block: &[u8], slot: usize) -> usize {
    usize_from(get_u32(block, header_at(slot) + 21))
}

fn set_offset(block: &mut [u8], slot: usize, value: u32) {
    put_u32(block, header_at(slot) + 17, value);
}

/// The bytes of an item.
pub(crate) fn data(block: &[u8], slot: usize) -> &[u8] {
    let start = data_at(offset(block, slot));
    &block[start..start + size(block, slot)]
}

/// The bytes of an item, to change in place.
pub(crate) fn data_mut(block: &mut [u8], slot: usize) -> &mut [u8] {
    let start = data_at(offset(block, slot));
    let len = size(block, slot);
    &mut block[start..start + len]
}

/// Where the data of the items before `slot` ends (counted from the header's end).
fn end_of(block: &[u8], slot: usize) -> u32 {
    if slot == 0 { u32_len(capacity(block)) } else { offset(block, slot - 1) }
}

/// Lowest byte used by item data.
fn data_low(block: &[u8]) -> u32 {
    end_of(block, nritems(block))
}

/// How many items from `slot` on have keys up to `to`.
pub(crate) fn count_until(block: &[u8], slot: usize, to: &Key) -> usize {
    (slot..layout::nritems(block)).take_while(|slot| layout::key_at(block, *slot) <= *to).count()
}

/// Bytes that are left for one more item's header and data.
pub(crate) fn free_space(block: &[u8]) -> usize {
    usize_from(data_low(block)).saturating_sub(nritems(block) * ITEM)
}

/// Bytes taken by item headers and data.
pub(crate) fn used(block: &[u8]) -> usize {
    capacity(block) - free_space(block)
}

/// Bytes taken by `count` items from `slot`, headers included.
pub(crate) fn used_by(block: &[u8], slot: usize, count: usize) -> usize {
    if count == 0 {
        return 0;
    }
    let bytes = end_of(block, slot) - offset(block, slot + count - 1);
    count * ITEM + usize_from(bytes)
}

/// Moves the data of the items from `slot` on down by `len` bytes (towards the headers).
fn shift_down(block: &mut [u8], slot: usize, len: u32) {
    let (low, end) = (data_at(data_low(block)), data_at(end_of(block, slot)));
    let distance = usize_from(len);
    block.copy_within(low..end, low - distance);
    for moved in slot..nritems(block) {
        let value = offset(block, moved) - len;
        set_offset(block, moved, value);
    }
}

/// Moves the data of the items from `slot` on up by `len` bytes.
fn shift_up(block: &mut [u8], slot: usize, end: u32, len: u32) {
    let (low, end) = (data_at(data_low(block)), data_at(end));
    let distance = usize_from(len);
    block.copy_within(low..end, low + distance);
    for moved in slot..nritems(block) {
        let value = offset(block, moved) + len;
        set_offset(block, moved, value);
    }
}

/// Inserts consecutive items at `slot`. The caller made sure of the room and the order.
pub(crate) fn insert(block: &mut [u8], slot: usize, items: &[(Key, &[u8])]) {
    let count = nritems(block);
    let total: usize = items.iter().map(|(_, bytes)| bytes.len()).sum();
    debug_assert!(slot <= count, "an item goes between others, or behind the last");
    debug_assert!(free_space(block) >= total + items.len() * ITEM, "room was checked");
    let used_before = used(block);
    let end = end_of(block, slot);
    shift_down(block, slot, u32_len(total));
    let (from, to) = (header_at(slot), header_at(count));
    block.copy_within(from..to, from + items.len() * ITEM);
    set_nritems(block, count + items.len());
    let mut low = end;
    for (index, (key, bytes)) in items.iter().enumerate() {
        low -= u32_len(bytes.len());
        let at = header_at(slot + index);
        put_key(block, at, key);
        put_u32(block, at + 17, low);
        put_u32(block, at + 21, u32_len(bytes.len()));
        let start = data_at(low);
        block[start..start + bytes.len()].copy_from_slice(bytes);
    }
    debug_assert!(used(block) == used_before + total + items.len() * ITEM, "nothing but the new items was added");
}

/// Whether the keys of `count` items from `slot` on ascend, between those before and behind.
pub(crate) fn is_in_order(block: &[u8], slot: usize, count: usize) -> bool {
    let (first, end) = (slot.saturating_sub(1), (slot + count + 1).min(nritems(block)));
    (first..end).map(|slot| layout::key_at(block, slot)).is_sorted_by(|a, b| a < b)
}

/// Removes `count` items from `slot` on.
pub(crate) fn remove(block: &mut [u8], slot: usize, count: usize) {
    if count == 0 {
        return;
    }
    let all = nritems(block);
    debug_assert!(slot + count <= all, "only items that are there are removed");
    let used_after = used(block) - used_by(block, slot, count);
    let end = end_of(block, slot);
    let low = offset(block, slot + count - 1);
    // Data first: the offsets of the items behind are needed to find it.
    shift_up_tail(block, slot + count, low, end - low);
    let (from, to) = (header_at(slot + count), header_at(all));
    block.copy_within(from..to, header_at(slot));
    set_nritems(block, all - count);
    debug_assert!(used(block) == used_after, "nothing but the items went");
}

fn shift_up_tail(block: &mut [u8], slot: usize, end: u32, len: u32) {
    if slot < nritems(block) {
        shift_up(block, slot, end, len);
    }
}

/// Changes the size of an item; bytes are kept from the front, new ones are zero.
/// The caller made sure of the room.
pub(crate) fn resize(block: &mut [u8], slot: usize, new_len: usize) {
    let old_len = size(block, slot);
    if new_len == old_len {
        return;
    }
    let start = offset(block, slot);
    if new_len < old_len {
        let gone = u32_len(old_len - new_len);
        // The item's own data moves with the data of the items behind it.
        let keep_end = start + u32_len(new_len);
        shift_up(block, slot, keep_end, gone);
    } else {
        let more = u32_len(new_len - old_len);
        let end = start + u32_len(old_len);
        let (low, end) = (data_at(data_low(block)), data_at(end));
        block.copy_within(low..end, low - usize_from(more));
        for moved in slot..nritems(block) {
            let value = offset(block, moved) - more;
            set_offset(block, moved, value);
        }
        let new_start = data_at(start - more);
        block[new_start + old_len..new_start + new_len].fill(0);
    }
    put_u32(block, header_at(slot) + 21, u32_len(new_len));
}

/// Replaces an item's bytes, of any size; the caller made sure of the room.
pub(crate) fn replace(block: &mut [u8], slot: usize, bytes: &[u8]) {
    resize(block, slot, bytes.len());
    data_mut(block, slot).copy_from_slice(bytes);
}

/// Replaces the bytes of some items, of ascending slots, and moves every byte once; the caller made sure of the room.
pub(crate) fn replace_many(block: &mut [u8], puts: &[(usize, Vec<u8>)]) {
    let Some((first, _)) = puts.first() else { return };
    let (low, end) = (data_low(block), end_of(block, *first));
    let old = block[data_at(low)..data_at(end)].to_vec();
    let mut puts = puts.iter().peekable();
    let (mut old_end, mut new_end) = (old.len(), end);
    for slot in *first..nritems(block) {
        let old_start = old_end - size(block, slot);
        let bytes = match puts.next_if(|(put, _)| *put == slot) {
            Some((_, bytes)) => bytes,
            None => &old[old_start..old_end],
        };
        new_end -= u32_len(bytes.len());
        let start = data_at(new_end);
        block[start..start + bytes.len()].copy_from_slice(bytes);
        set_offset(block, slot, new_end);
        put_u32(block, header_at(slot) + 21, u32_len(bytes.len()));
        old_end = old_start;
    }
    debug_assert!(puts.next().is_none() && old_end == 0, "the slots ascend, and every byte was moved");
}

/// Changes an item's key; the caller made sure of the order.
pub(crate) fn set_key(block: &mut [u8], slot: usize, key: &Key) {
    put_key(block, header_at(slot), key);
}

/// Copies `count` items from `from` at `slot` into `to` at `to_slot`, and removes them.
pub(crate) fn move_items(from: &mut [u8], slot: usize, count: usize, to: &mut [u8], to_slot: usize) {
    if count == 0 {
        return;
    }
    let high = end_of(from, slot);
    let low = offset(from, slot + count - 1);
    let bytes = high - low;
    let end = end_of(to, to_slot);
    let to_count = nritems(to);
    let used_before = used(from) + used(to);
    shift_down(to, to_slot, bytes);
    let (start, stop) = (header_at(to_slot), header_at(to_count));
    to.copy_within(start..stop, start + count * ITEM);
    to[start..start + count * ITEM].copy_from_slice(&from[header_at(slot)..header_at(slot + count)]);
    set_nritems(to, to_count + count);
    let to_low = end - bytes;
    to[data_at(to_low)..data_at(end)].copy_from_slice(&from[data_at(low)..data_at(high)]);
    for moved in to_slot..to_slot + count {
        let value = offset(to, moved) - low + to_low;
        set_offset(to, moved, value);
    }
    remove(from, slot, count);
    debug_assert!(used(from) + used(to) == used_before, "what left one leaf is in the other");
}

/// Zeroes the space between item headers and data, so that nothing stale reaches the device.
pub(crate) fn zero_gap(block: &mut [u8]) {
    let start = header_at(nritems(block));
    let end = data_at(data_low(block));
    if start < end {
        block[start..end].fill(0);
    }
}

/// The item that holds the middle byte: a leaf is split before it (never before item 0).
pub(crate) fn middle(block: &[u8]) -> usize {
    let half = used(block) / 2;
    let count = nritems(block);
    let mut sum = 0;
    for slot in 0..count {
        sum += ITEM + size(block, slot);
        if sum >= half {
            return (slot + 1).min(count.saturating_sub(1)).max(1);
        }
    }
    count.max(1)
}

/// Key and bytes of an item.
pub(crate) fn item(block: &[u8], slot: usize) -> (Key, &[u8]) {
    (layout::key_at(block, slot), data(block, slot))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::as_conversions, reason = "tests")]
    use super::*;

    fn fill(sizes: &[usize]) -> Box<[u8]> {
        let mut block = layout::empty_block(4096, 0);
        for (index, len) in sizes.iter().enumerate() {
            let bytes = vec![index as u8 + 1; *len];
            insert(&mut block, index, &[(Key::new(index as u64 * 10, 1, 0), &bytes)]);
        }
        block
    }

    fn contents(block: &[u8]) -> Vec<(u64, Vec<u8>)> {
        (0..nritems(block)).map(|s| (layout::key_at(block, s).objectid, data(block, s).to_vec())).collect()
    }

    #[test]
    fn random_edits_match_a_vector() {
        let mut seed = 7u64;
        let mut random = move |n: usize| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as usize % n
        };
        let mut block = layout::empty_block(4096, 0);
        let mut model: Vec<(u64, Vec<u8>)> = Vec::new();
        for step in 0..20_000u64 {
            match random(5) {
                4 => {
                    let mut room = free_space(&block);
                    let mut puts = Vec::new();
                    for (slot, (_, old)) in model.iter_mut().enumerate() {
                        if random(3) > 0 {
                            continue;
                        }
                        let bytes = vec![(step + slot as u64) as u8; random(90)];
                        if room + old.len() >= bytes.len() {
                            room = room + old.len() - bytes.len();
                            old.clone_from(&bytes);
                            puts.push((slot, bytes));
                        }
                    }
                    replace_many(&mut block, &puts);
                }
                0 | 1 => {
                    let slot = random(model.len() + 1);
                    let bytes = vec![step as u8; random(120)];
                    if free_space(&block) >= bytes.len() + ITEM {
                        insert(&mut block, slot, &[(Key::new(step, 1, 0), &bytes)]);
                        model.insert(slot, (step, bytes));
                    }
                }
                2 if !model.is_empty() => {
                    let slot = random(model.len());
                    let count = 1 + random((model.len() - slot).min(3));
                    remove(&mut block, slot, count);
                    model.drain(slot..slot + count);
                }
                _ if !model.is_empty() => {
                    let slot = random(model.len());
                    let bytes = vec![step as u8; random(200)];
                    if free_space(&block) + model[slot].1.len() >= bytes.len() {
                        replace(&mut block, slot, &bytes);
                        model[slot].1 = bytes;
                    }
                }
                _ => {}
            }
            assert_eq!(contents(&block), model, "step {step}");
            let used_bytes: usize = model.iter().map(|(_, b)| b.len() + ITEM).sum();
            assert_eq!(used(&block), used_bytes);
        }
    }

    #[test]
    fn items_move_between_leaves() {
        let mut from = fill(&[10, 20, 30, 40]);
        let mut to = fill(&[5, 6]);
        move_items(&mut from, 1, 2, &mut to, 1);
        assert_eq!(contents(&from), [(0, vec![1; 10]), (30, vec![4; 40])]);
        let lens: Vec<usize> = contents(&to).iter().map(|(_, b)| b.len()).collect();
        assert_eq!(lens, [5, 20, 30, 6]);
    }

    #[test]
    fn resize_keeps_the_front() {
        let mut block = fill(&[10, 20, 30]);
        resize(&mut block, 1, 5);
        assert_eq!(contents(&block)[1].1, [2; 5]);
        resize(&mut block, 1, 8);
        assert_eq!(contents(&block)[1].1, [2, 2, 2, 2, 2, 0, 0, 0]);
        assert_eq!(contents(&block)[2].1, [3; 30]);
        assert_eq!(contents(&block)[0].1, [1; 10]);
    }
}
