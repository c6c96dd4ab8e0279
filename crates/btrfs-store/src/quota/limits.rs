//! Checks the limits of quota groups, before a subvolume takes more space. Called by `store/quotas`, for reservations
//! of data.

use std::sync::Arc;

use btrfs_disk::{QgroupId, TreeId};

use super::Quota;
use super::groups::Groups;

/// A limit would be exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Over {
    pub(crate) group: QgroupId,
    /// The sum includes bytes promised or allocated since the last commit, which may be shared: it may be too high.
    pub(crate) is_estimated: bool,
}

/// Bytes of a subvolume's quotas, promised to data that is not written yet. Dropping it gives them back: the data was
/// counted, or not written.
#[derive(Debug)]
#[must_use = "dropping a charge gives it back"]
pub struct Charge {
    quota: Arc<Quota>,
    subvolume: TreeId,
    bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut groups = self.quota.lock();
        if let Some(promised) = groups.promised.get_mut(&self.subvolume) {
            *promised = promised.saturating_sub(self.bytes);
            if *promised == 0 {
                groups.promised.remove(&self.subvolume);
            }
        }
    }
}

impl Quota {
    /// Promises `bytes` to a subvolume.
    pub(crate) fn charge(self: &Arc<Self>, subvolume: TreeId, bytes: u64) -> Result<Charge, Over> {
        let mut groups = self.lock();
        groups.check(subvolume, bytes)?;
        let promised = groups.promised.entry(subvolume).or_default();
        *promised = promised.saturating_add(bytes);
        Ok(Charge { quota: Arc::clone(self), subvolume, bytes })
    }
}

impl Groups {
    /// Whether `bytes` more of a subvolume are within the limits of all groups that it counts for.
    pub(crate) fn check(&self, subvolume: TreeId, bytes: u64) -> Result<(), Over> {
        for id in self.ancestors(subvolume) {
            let Some(group) = self.groups.get(&id) else { continue };
            let (max_rfer, max_excl) = group.limits();
            for (max, sum) in [(max_rfer, group.rfer()), (max_excl, group.excl())] {
                let Some(max) = max else { continue };
                let wanted = sum.saturating_add(bytes);
                let held = self.held(id);
                if wanted.saturating_add(held) > max {
                    return Err(Over { group: id, is_estimated: held > 0 });
                }
            }
        }
        Ok(())
    }

    /// Whether anything is promised to data that is not written yet.
    pub(crate) fn has_promised(&self) -> bool {
        !self.promised.is_empty()
    }

    /// Bytes of a group's subvolumes that no commit has counted.
    fn held(&self, id: QgroupId) -> u64 {
        let all = self.promised.iter().chain(&self.made);
        all.filter(|(root, _)| self.ancestors(**root).contains(&id))
            .fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }

    /// Notes that the transaction allocated an extent for a subvolume.
    pub(crate) fn note_made(&mut self, subvolume: TreeId, bytes: u64) {
        let made = self.made.entry(subvolume).or_default();
        *made = made.saturating_add(bytes);
    }

    /// Notes that the transaction freed an extent that it had allocated.
    pub(crate) fn note_unmade(&mut self, subvolume: TreeId, bytes: u64) {
        if let Some(made) = self.made.get_mut(&subvolume) {
            *made = made.saturating_sub(bytes);
        }
    }

    /// Forgets the transaction's allocations: the commit counted them.
    pub(crate) fn forget_made(&mut self) {
        self.made.clear();
    }
}
