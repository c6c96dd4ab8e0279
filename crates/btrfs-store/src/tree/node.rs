//! Reads and edits the child pointers of one node (a block above the leaves) in place. Called by the other modules of
//! `tree`: reads, edits, splits and merges.

#![expect(
    clippy::indexing_slicing,
    reason = "places in a block come from its header and items, which the verifier has seen; a panic is our own bug"
)]

use btrfs_disk::{Generation, Key, Logical};

use super::layout::{HEADER, PTR, capacity, get_u64, nritems, put_key, put_u64, set_nritems};

/// A child pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ptr {
    pub(crate) key: Key,
    pub(crate) at: Logical,
    pub(crate) generation: Generation,
}

fn ptr_at(slot: usize) -> usize {
    HEADER + slot * PTR
}

/// How many pointers a node can hold.
pub(crate) fn max_ptrs(block: &[u8]) -> usize {
    capacity(block) / PTR
}

/// Address and generation of a child.
pub(crate) fn child(block: &[u8], slot: usize) -> (Logical, Generation) {
    let at = ptr_at(slot);
    (Logical(get_u64(block, at + 17)), Generation(get_u64(block, at + 25)))
}

pub(crate) fn set_child(block: &mut [u8], slot: usize, at: Logical, generation: Generation) {
    let start = ptr_at(slot);
    put_u64(block, start + 17, at.0);
    put_u64(block, start + 25, generation.0);
}

pub(crate) fn set_key(block: &mut [u8], slot: usize, key: &Key) {
    put_key(block, ptr_at(slot), key);
}

/// Inserts a pointer; the caller has checked that there is room.
pub(crate) fn insert(block: &mut [u8], slot: usize, ptr: &Ptr) {
    let count = nritems(block);
    debug_assert!(count < max_ptrs(block), "room was checked");
    debug_assert!(slot <= count, "a pointer goes between others, or behind the last");
    block.copy_within(ptr_at(slot)..ptr_at(count), ptr_at(slot + 1));
    set_nritems(block, count + 1);
    set_key(block, slot, &ptr.key);
    set_child(block, slot, ptr.at, ptr.generation);
}

pub(crate) fn remove(block: &mut [u8], slot: usize) {
    let count = nritems(block);
    debug_assert!(slot < count, "only pointers that are there are removed");
    block.copy_within(ptr_at(slot + 1)..ptr_at(count), ptr_at(slot));
    set_nritems(block, count - 1);
}

/// Moves `count` pointers from `from` at `slot` to `to` at `to_slot`.
pub(crate) fn move_ptrs(from: &mut [u8], slot: usize, count: usize, to: &mut [u8], to_slot: usize) {
    let to_count = nritems(to);
    to.copy_within(ptr_at(to_slot)..ptr_at(to_count), ptr_at(to_slot + count));
    to[ptr_at(to_slot)..ptr_at(to_slot + count)].copy_from_slice(&from[ptr_at(slot)..ptr_at(slot + count)]);
    set_nritems(to, to_count + count);
    let from_count = nritems(from);
    from.copy_within(ptr_at(slot + count)..ptr_at(from_count), ptr_at(slot));
    set_nritems(from, from_count - count);
}

/// Zeroes the space behind the pointers.
pub(crate) fn zero_gap(block: &mut [u8]) {
    let start = ptr_at(nritems(block));
    block[start..].fill(0);
}
