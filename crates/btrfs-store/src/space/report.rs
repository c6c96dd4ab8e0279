//! Reports how full the file system is. Called by `Store`, for the status of a volume (`btrfs`, `open_volume/status`).

use std::collections::BTreeMap;

use btrfs_disk::flags::BlockGroupFlags;

use super::Space;
use super::group::BlockGroup;
use crate::error::SpaceKind;
use btrfs_pool::Profile;

/// Use of the space, at one moment apart from concurrent changes. All numbers are bytes; those of profiles do not count
/// copies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpaceReport {
    /// One for each use and profile of the groups.
    pub profiles: Vec<ProfileSpace>,
    /// Of all devices.
    pub device_total: u64,
    /// Of all devices, in no chunk; a chunk there takes this much for each copy.
    pub unallocated: u64,
    /// File data for which chunks could be added, in the profile that they would have.
    pub addable: u64,
    /// The global reserve, for commits and removals: present and intended size.
    pub global_reserve: (u64, u64),
    /// An estimate of how much more file data fits, as `df` shows it.
    pub free: u64,
    /// Held for views of an earlier state ([`crate::Store::committed_view`]).
    pub held: u64,
    /// No device has room for another chunk of tree blocks, as far as that was tried.
    pub is_metadata_full: bool,
}

/// Use of the groups with the same flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProfileSpace {
    /// Use and profile.
    pub flags: BlockGroupFlags,
    /// In such groups.
    pub total: u64,
    /// Taken by extents, on disk or about to be.
    pub used: u64,
    /// Freed, but in use by the last durable state.
    pub pinned: u64,
    /// Reserved by running operations (of the kind as a whole).
    pub reserved: u64,
    /// In groups that nothing is allocated from.
    pub read_only: u64,
}

impl Space {
    /// How full the file system is.
    #[must_use]
    pub fn report(&self) -> SpaceReport {
        let mut profiles: BTreeMap<u64, ProfileSpace> = BTreeMap::new();
        for group in self.groups.all() {
            let flags = group.flags();
            let profile = profiles.entry(flags.bits()).or_insert(ProfileSpace {
                flags,
                total: 0,
                used: 0,
                pinned: 0,
                reserved: self.accounts.reserved(group.kind()),
                read_only: 0,
            });
            profile.add(&group);
        }
        let (device_total, holes) = {
            let devices = self.devices.lock();
            // A damaged item of a missing device may claim any size.
            let total = devices.iter().fold(0u64, |sum, device| sum.saturating_add(device.total_bytes()));
            (total, devices.iter().map(super::DeviceSpace::unallocated).collect::<Vec<u64>>())
        };
        let unallocated = holes.iter().fold(0u64, |sum, hole| sum.saturating_add(*hole));
        let profiles: Vec<ProfileSpace> = profiles.into_values().collect();
        let global_reserve = self.accounts.global();
        let profile = self.chunk_flags(SpaceKind::Data).and_then(|flags| Profile::from_flags(flags).ok());
        let addable = profile.unwrap_or(Profile::Single).fits_in(&holes);
        let free = self.free_estimate(&profiles, addable, global_reserve.0);
        let is_metadata_full = self.accounts.is_full(SpaceKind::Metadata);
        SpaceReport { profiles, device_total, unallocated, addable, global_reserve, free, held: 0, is_metadata_full }
    }

    fn free_estimate(&self, profiles: &[ProfileSpace], addable: u64, kept_back: u64) -> u64 {
        let in_groups: u64 = profiles
            .iter()
            .filter(|profile| profile.flags.contains(BlockGroupFlags::DATA))
            .map(|profile| profile.total.saturating_sub(profile.used))
            .sum();
        let kept_back = if self.config.mixed { kept_back } else { 0 };
        (in_groups + addable).saturating_sub(kept_back)
    }
}

impl ProfileSpace {
    fn add(&mut self, group: &BlockGroup) {
        let bytes = group.bytes();
        self.total += bytes.total;
        self.used += bytes.used + bytes.allocated;
        self.pinned += bytes.pinned;
        if group.is_read_only() {
            self.read_only += bytes.total.saturating_sub(bytes.used);
        }
    }
}
