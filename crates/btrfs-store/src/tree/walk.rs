//! Lists the children of a node, and makes the last change to a block before it is written. Called by `relocate` and
//! `txn` (deletions, `write_out`).

use btrfs_disk::{Generation, Key, Logical};

use super::{layout, leaf, node};

/// The children of a node: key, address, generation.
pub(crate) fn children(block: &[u8]) -> impl Iterator<Item = (Key, Logical, Generation)> + '_ {
    let count = if layout::level(block) > 0 { layout::nritems(block) } else { 0 };
    (0..count).map(|slot| {
        let (at, generation) = node::child(block, slot);
        (layout::key_at(block, slot), at, generation)
    })
}

/// Zeroes unused bytes, so that nothing stale reaches the device.
pub(crate) fn prepare_for_write(block: &mut [u8]) {
    if layout::level(block) == 0 {
        leaf::zero_gap(block);
    } else {
        node::zero_gap(block);
    }
}
