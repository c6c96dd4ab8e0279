//! Makes a store with block groups of RAID5 and RAID6 writable: each kind whose groups all have parity gets one with
//! another profile before anything is written. Called when a store is opened for a balance that converts them.
//!
//! The groups with parity are closed from the beginning: they can be emptied, and nothing is written to them.

use btrfs_disk::flags::BlockGroupFlags;

use super::Store;
use crate::error::SpaceKind;
use crate::options::NewProfiles;
use crate::space::BlockGroup;
use crate::{Error, Result, make};

impl Store {
    /// Adds the groups, in the running transaction.
    pub(super) fn leave_parity(&self, wanted: &NewProfiles) -> Result<()> {
        let engine = &self.0;
        let has_parity = |group: &BlockGroup| group.flags().intersects(BlockGroupFlags::RAID5 | BlockGroupFlags::RAID6);
        let groups = engine.space.all_groups();
        let mut missing = Vec::new();
        for (kind, uses, profile) in [
            (SpaceKind::System, BlockGroupFlags::SYSTEM, wanted.system),
            (SpaceKind::Metadata, BlockGroupFlags::METADATA, wanted.metadata),
            (SpaceKind::Data, BlockGroupFlags::DATA, wanted.data),
        ] {
            let mut same = groups.iter().filter(|group| group.kind() == kind);
            let Some(parity) = same.clone().find(|group| has_parity(group)) else { continue };
            let profile = profile.ok_or_else(|| {
                let name = (parity.flags() & BlockGroupFlags::PROFILE_MASK).to_string().to_uppercase();
                Error::unsupported(format!("writing with {name} block groups (reading is possible)"))
            })?;
            if parity.flags().contains(BlockGroupFlags::MIXED) {
                return Err(Error::unsupported("a conversion of mixed block groups with parity"));
            }
            if same.all(|group| group.is_only_left()) {
                missing.push((kind, uses | profile));
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        // The blocks that are changed need space of the other kinds.
        for kind in [SpaceKind::System, SpaceKind::Metadata] {
            if !missing.iter().any(|(other, _)| *other == kind) {
                self.load_group(kind)?;
            }
        }
        let _one = engine.space.lock_growth();
        self.change_chunks(|edit, trees| {
            let mut plans = Vec::new();
            for (kind, flags) in missing {
                let plan = engine.space.plan_chunk(flags)?;
                let plan = plan.ok_or(Error::NoSpace { kind, needed: make::DEVICE_BYTES_MIN, available: 0 })?;
                // Its space is there before the items that say so are written into it.
                engine.adopt_chunk(&plan)?;
                plans.push(plan);
            }
            plans.iter().try_for_each(|plan| engine.space.write_chunk(edit, trees, plan))
        })
    }
}
