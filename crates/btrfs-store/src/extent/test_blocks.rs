//! Makes tree blocks by hand, as far as references are concerned. The tests of `extent` use it.

use btrfs_disk::items::OnDisk;
use btrfs_disk::node::{HEADER_SIZE, ITEM_SIZE, Item, KEY_PTR_SIZE, KeyPtr};
use btrfs_disk::{Generation, Key, Logical};

fn block(level: u8, count: usize) -> Vec<u8> {
    let mut block = vec![0; 4096];
    block[96] = u8::try_from(count).unwrap();
    block[100] = level;
    block
}

/// A node that points at these addresses.
pub(super) fn node(level: u8, children: &[u64]) -> Vec<u8> {
    let mut block = block(level, children.len());
    for (slot, child) in children.iter().enumerate() {
        let ptr = KeyPtr::new(Key::new(*child, 1, 0), Logical(*child), Generation(3));
        let at = HEADER_SIZE + slot * KEY_PTR_SIZE;
        block[at..at + KEY_PTR_SIZE].copy_from_slice(ptr.bytes());
    }
    block
}

/// A leaf with these items.
pub(super) fn leaf(items: &[(Key, Vec<u8>)]) -> Vec<u8> {
    let mut block = block(0, items.len());
    let mut end = block.len();
    for (slot, (key, bytes)) in items.iter().enumerate() {
        end -= bytes.len();
        block[end..end + bytes.len()].copy_from_slice(bytes);
        let offset = u32::try_from(end - HEADER_SIZE).unwrap();
        let item = Item::new(*key, offset, u32::try_from(bytes.len()).unwrap());
        let at = HEADER_SIZE + slot * ITEM_SIZE;
        block[at..at + ITEM_SIZE].copy_from_slice(item.bytes());
    }
    block
}
