//! Block contents as others need them: children, and the last touch before a write.

use btrfs_disk::{Generation, Key, Logical};

use super::{leaf, node, raw};

/// The children of a node: key, address, generation.
pub(crate) fn children(block: &[u8]) -> impl Iterator<Item = (Key, Logical, Generation)> + '_ {
    let count = if raw::level(block) > 0 { raw::nritems(block) } else { 0 };
    (0..count).map(|slot| {
        let (at, generation) = node::child(block, slot);
        (raw::key_at(block, slot), at, generation)
    })
}

/// Zeroes what is unused, so that nothing stale reaches the device.
pub(crate) fn prepare_for_write(block: &mut [u8]) {
    if raw::level(block) == 0 {
        leaf::zero_gap(block);
    } else {
        node::zero_gap(block);
    }
}
