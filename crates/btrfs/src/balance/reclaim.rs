//! Chooses almost empty block groups, one after the other, to be emptied into others of their kind and removed. Called
//! by `vfs_impl::balancing`, in the background work of a mount.

use std::collections::{BTreeMap, BTreeSet};

use btrfs_disk::Logical;
use btrfs_disk::flags::BlockGroupFlags;
use btrfs_store::GroupState;

/// Bytes that must be free in the others beside the moved ones: blocks are copied while others are moved.
const SPARE_BYTES: u64 = 4 << 20;

/// The history of a volume's groups.
#[derive(Debug, Default)]
pub(crate) struct Reclaim {
    /// Groups that were at least that full once, so that a new chunk is not taken for one that was emptied.
    were_full: BTreeSet<Logical>,
    /// Used bytes of the groups that have been tried.
    tried: BTreeMap<Logical, u64>,
}

impl Reclaim {
    /// The next to be moved: less than `percent` of it is in use, and there is room for that in others.
    pub(crate) fn next(&mut self, groups: &[GroupState], percent: u64) -> Option<Logical> {
        if percent == 0 {
            return None;
        }
        let is_full = |group: &GroupState| group.used.saturating_mul(100) >= group.len.saturating_mul(percent);
        self.were_full.retain(|start| groups.iter().any(|group| group.start == *start));
        self.were_full.extend(groups.iter().filter(|group| is_full(group)).map(|group| group.start));
        let is_candidate = |group: &&GroupState| {
            group.used > 0
                && !is_full(group)
                && !group.flags.contains(BlockGroupFlags::SYSTEM)
                && self.were_full.contains(&group.start)
                && self.tried.get(&group.start).is_none_or(|used| group.used < *used / 2)
                && room_beside(group, groups) >= group.used.saturating_add(group.used / 4).saturating_add(SPARE_BYTES)
        };
        let chosen = groups.iter().filter(is_candidate).min_by_key(|group| group.used)?;
        self.tried.insert(chosen.start, chosen.used);
        Some(chosen.start)
    }
}

/// The free bytes of the other groups with the same flags.
fn room_beside(group: &GroupState, groups: &[GroupState]) -> u64 {
    let others = groups.iter().filter(|other| other.flags == group.flags && other.start != group.start);
    others.map(|other| other.len.saturating_sub(other.used)).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn group(start: u64, used: u64) -> GroupState {
        let (start, len) = (Logical(start * 100 * MIB), 100 * MIB);
        let used = used * MIB;
        GroupState {
            start,
            len,
            flags: BlockGroupFlags::DATA,
            used,
            stripes: Vec::new(),
            stripe_bytes: len,
            is_fixed: false,
            is_on_seed: false,
        }
    }

    #[test]
    fn groups_that_lost_what_they_had_are_moved_once() {
        let mut reclaim = Reclaim::default();
        let full = [group(1, 90), group(2, 80), group(3, 10)];
        assert_eq!(reclaim.next(&full, 30), None, "the third was never fuller");
        let emptied = [group(1, 20), group(2, 80), group(3, 10)];
        assert_eq!(reclaim.next(&emptied, 0), None);
        assert_eq!(reclaim.next(&emptied, 30), Some(group(1, 0).start));
        assert_eq!(reclaim.next(&emptied, 30), None, "it was tried");
        let lower = [group(1, 5), group(2, 80), group(3, 10)];
        assert_eq!(reclaim.next(&lower, 30), Some(group(1, 0).start));
    }

    #[test]
    fn there_is_room_for_it_in_others_of_its_kind() {
        let mut reclaim = Reclaim::default();
        reclaim.next(&[group(1, 90), group(2, 97)], 30);
        assert_eq!(reclaim.next(&[group(1, 20), group(2, 97)], 30), None);
        let metadata = GroupState { flags: BlockGroupFlags::METADATA, ..group(3, 0) };
        assert_eq!(reclaim.next(&[group(1, 20), group(2, 97), metadata], 30), None);
        assert_eq!(reclaim.next(&[group(1, 20), group(2, 60)], 30), Some(group(1, 0).start));
    }
}
