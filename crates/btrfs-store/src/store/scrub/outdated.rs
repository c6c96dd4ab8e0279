//! Finds what a member that missed commits may lack although its extent is older: `rebuild` compares it with the other
//! copies.
//!
//! A member has all extents that are not newer than its last commit, as they were then. Since then
//! - a balance may have moved extents, which keeps their generation: the extent tree has new leaves with their items;
//! - preallocated space may have been written for the first time: the checksum tree has new leaves with its checksums;
//! - data without checksums may have been overwritten in place, which leaves no trace: it is compared as a whole.
//!
//! Only blocks of these trees that are newer than the member's last commit are read here.

use btrfs_disk::convert::to_u64;
use btrfs_disk::flags::ExtentFlags;
use btrfs_disk::items::ExtentView;
use btrfs_disk::key::item_type::{EXTENT_CSUM, EXTENT_ITEM, METADATA_ITEM};
use btrfs_disk::{At, Generation, Key};

use crate::Result;
use crate::store::Store;
use crate::tree::Scan;

/// Ranges of logical addresses, ascending and apart: first byte and end.
#[derive(Debug, Default)]
struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    fn add(&mut self, start: u64, len: u64) {
        let end = start.saturating_add(len);
        match self.0.last_mut() {
            Some((_, last)) if *last >= start => *last = end.max(*last),
            _ => self.0.push((start, end)),
        }
    }

    fn meets(&self, start: u64, len: u64) -> bool {
        let next = self.0.partition_point(|(_, end)| *end <= start);
        self.0.get(next).is_some_and(|(first, _)| *first < start.saturating_add(len))
    }
}

/// Ranges that may be out of date on a member.
#[derive(Debug, Default)]
pub(super) struct Outdated {
    blocks: Ranges,
    sums: Ranges,
}

impl Outdated {
    /// Of a member whose last commit was `since`, in this state.
    ///
    /// # Errors
    /// Damage, I/O.
    pub(super) fn find(state: &Store, since: Generation) -> Result<Self> {
        let (core, sizes) = (&state.0.core, state.sizes());
        let first = Generation(since.0.saturating_add(1));
        let mut found = Self::default();
        core.extent.scan_since(&Key::MIN, &Key::MAX, first, |_, key, item| {
            if matches!(key.item_type, EXTENT_ITEM | METADATA_ITEM) {
                let view = ExtentView::parse(key, item).map_err(|error| error.at(At::Key(core.extent.id(), *key)))?;
                if view.item.extent_flags().contains(ExtentFlags::TREE_BLOCK) {
                    found.blocks.add(key.objectid, sizes.node.into());
                }
            }
            Ok(Scan::Continue)
        })?;
        core.csum.scan_since(&Key::MIN, &Key::MAX, first, |_, key, item| {
            if key.item_type == EXTENT_CSUM {
                let count = to_u64(item.len().checked_div(sizes.csum).unwrap_or(0));
                found.sums.add(key.offset, count.saturating_mul(sizes.sector.into()));
            }
            Ok(Scan::Continue)
        })?;
        Ok(found)
    }

    /// True if the tree block at this address may have been moved there.
    pub(super) fn has_block(&self, at: u64) -> bool {
        self.blocks.meets(at, 1)
    }

    /// True if a checksum in this range may be newer than the member.
    pub(super) fn has_sums_in(&self, at: u64, len: u64) -> bool {
        self.sums.meets(at, len)
    }
}
