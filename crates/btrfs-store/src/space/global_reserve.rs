//! Computes the size of the global reserve: metadata space for commits, and for removals on a full volume. Called by
//! `reserve`.

/// The largest global reserve (the kernel's limit too).
const GLOBAL_MAX: u64 = 512 << 20;

/// The least global reserve, in tree blocks, on a volume that can afford it: the kernel's reservation for 22 items.
const GLOBAL_BLOCKS_MIN: u64 = 22 * 16;

/// The least global reserve, in tree blocks, on the smallest volume.
pub(super) const GLOBAL_BLOCKS_FLOOR: u64 = 16;

/// Between those two, the reserve is at most this part of the metadata space.
const GLOBAL_SHARE: u64 = 8;

/// The size of the global reserve, where the trees that every commit changes have `tree_bytes` and all groups `total`.
pub(super) fn global_size(tree_bytes: u64, total: u64, node_size: u64) -> u64 {
    tree_bytes
        .max(GLOBAL_BLOCKS_MIN * node_size)
        .min(GLOBAL_MAX)
        .min(total / GLOBAL_SHARE)
        .max(GLOBAL_BLOCKS_FLOOR * node_size)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: u64 = 16384;
    const MIB: u64 = 1 << 20;

    #[test]
    fn the_global_reserve_is_small_on_small_volumes() {
        assert_eq!(global_size(0, 8 * MIB, NODE), MIB);
        assert_eq!(global_size(0, MIB, NODE), 16 * NODE);
        assert_eq!(global_size(20 * MIB, 1 << 40, NODE), 20 * MIB);
        assert_eq!(global_size(1 << 40, 1 << 50, NODE), GLOBAL_MAX);
    }
}
