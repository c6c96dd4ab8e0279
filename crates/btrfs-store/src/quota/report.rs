//! Makes reports of quota groups. Called by `store/quotas`, for the command line and the ioctls of `btrfs`.

use btrfs_disk::QgroupId;
use btrfs_disk::flags::QgroupStatusFlags;

use super::groups::Groups;

/// The state of all groups, as of the last commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuotaReport {
    /// How bytes are counted, and whether the numbers are consistent.
    pub flags: QgroupStatusFlags,
    /// The groups, by number.
    pub groups: Vec<QgroupReport>,
}

impl QuotaReport {
    /// Whether the numbers are unreliable until a rescan.
    #[must_use]
    pub fn is_inconsistent(&self) -> bool {
        self.flags.contains(QgroupStatusFlags::INCONSISTENT)
    }

    /// Whether extents count for the subvolume that made them.
    #[must_use]
    pub fn is_simple(&self) -> bool {
        self.flags.contains(QgroupStatusFlags::SIMPLE_MODE)
    }
}

/// One group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QgroupReport {
    /// Its number.
    pub id: QgroupId,
    /// Bytes that it refers to.
    pub rfer: u64,
    /// Bytes that only it refers to.
    pub excl: u64,
    /// Most bytes that it may refer to.
    pub max_rfer: Option<u64>,
    /// Most bytes that it may hold alone.
    pub max_excl: Option<u64>,
    /// Groups that it is a member of.
    pub parents: Vec<QgroupId>,
    /// Its members.
    pub members: Vec<QgroupId>,
}

impl Groups {
    pub(crate) fn report(&self) -> QuotaReport {
        let groups = self.groups.iter().map(|(id, group)| {
            let (max_rfer, max_excl) = group.limits();
            QgroupReport {
                id: *id,
                rfer: group.rfer(),
                excl: group.excl(),
                max_rfer,
                max_excl,
                parents: self.parents_of(*id).collect(),
                members: self.members_of(*id).collect(),
            }
        });
        QuotaReport { flags: self.flags, groups: groups.collect() }
    }
}
