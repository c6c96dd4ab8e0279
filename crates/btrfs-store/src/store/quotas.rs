//! Reports quotas, checks their limits and changes them: methods of `Store`. The crate `btrfs` calls them for writes,
//! ioctls and the command line.

use btrfs_disk::flags::Incompat;
use btrfs_disk::items::RootItem;
use btrfs_disk::key::item_type::ROOT_ITEM;
use btrfs_disk::{Key, QgroupId, TreeId};
use zerocopy::FromZeros;

use super::{Need, Store};
use crate::error::QuotaError;
use crate::quota::{Groups, Over, QuotaReport};
use crate::space::Reservation;
use crate::tree::Scan;
use crate::txn::remove_whole;
use crate::{Error, Result};

/// How quotas count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuotaKind {
    /// Extents that a subvolume reaches, and those that it alone reaches.
    #[default]
    Shared,
    /// Extents that a subvolume allocated, as long as any reference is left (simple quotas, Linux 6.7).
    Simple,
}

/// A change of the quota groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaChange {
    /// Everything is counted anew.
    Rescan,
    /// A new group, which is not a subvolume's.
    Create(QgroupId),
    /// Removes a group without members and subvolume.
    Destroy(QgroupId),
    /// A group becomes a member of another.
    Assign {
        /// Of a lower level.
        member: QgroupId,
        /// Of a higher level.
        parent: QgroupId,
    },
    /// A group is no longer a member of another.
    Remove {
        /// The member.
        member: QgroupId,
        /// The group it leaves.
        parent: QgroupId,
    },
    /// Sets a limit of a group.
    Limit {
        /// The group.
        group: QgroupId,
        /// Limits its exclusive rather than its referenced bytes.
        is_excl: bool,
        /// Bytes; `None` for no limit.
        bytes: Option<u64>,
    },
}

impl Store {
    /// The quota groups as the last commit left them; none where quotas are off.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn quotas(&self) -> Result<Option<QuotaReport>> {
        let engine = &self.0;
        let Some(tree) = engine.trees.try_tree(TreeId::QUOTA)? else { return Ok(None) };
        let groups = Groups::load(&tree, engine.gate.durable())?;
        Ok(groups.is_on().then(|| groups.report()))
    }

    /// Why the numbers of quota groups are inconsistent, where that was found since the last call.
    #[must_use]
    pub fn why_quotas_inconsistent(&self) -> Option<String> {
        if self.0.quota.is_on() { self.0.quota.lock().take_reason() } else { None }
    }

    /// Whether anything is limited: without limits, the charges and checks here do nothing.
    #[must_use]
    pub fn has_quota_limits(&self) -> bool {
        self.0.quota.has_limits()
    }

    /// Charges `bytes` of data to a subvolume, within its limits, until the reservation is dropped. Commits where that
    /// may help. Not to be called with an open handle.
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`]; those of a commit.
    pub fn charge_quota(&self, subvolume: TreeId, bytes: u64, reservation: &Reservation) -> Result<()> {
        if !self.has_quota_limits() || bytes == 0 {
            return Ok(());
        }
        let quota = &self.0.quota;
        reservation.keep(self.within_limits(|| quota.charge(subvolume, bytes))?);
        Ok(())
    }

    /// As [`Self::charge_quota`], without a commit; false where a limit would be exceeded.
    #[must_use]
    pub fn try_charge_quota(&self, subvolume: TreeId, bytes: u64, reservation: &Reservation) -> bool {
        if !self.has_quota_limits() || bytes == 0 {
            return true;
        }
        let charge = self.0.quota.charge(subvolume, bytes);
        charge.map(|charge| reservation.keep(charge)).is_ok()
    }

    /// Whether anything is charged for data that is not written yet: writing it may use less.
    #[must_use]
    pub fn has_charged_quotas(&self) -> bool {
        self.0.quota.lock().has_promised()
    }

    /// Checks whether a subvolume may get the tree blocks that a change of names needs at most. Commits where that may
    /// help. Not to be called with an open handle.
    ///
    /// # Errors
    /// As [`Self::charge_quota`].
    pub fn check_quota(&self, subvolume: TreeId) -> Result<()> {
        if !self.has_quota_limits() {
            return Ok(());
        }
        let bytes = self.0.nodesize().saturating_mul(BLOCKS_PER_CHANGE);
        self.within_limits(|| self.0.quota.lock().check(subvolume, bytes))
    }

    /// Where uncommitted changes reach the limit, or something was freed, a commit counts exactly.
    fn within_limits<R>(&self, ask: impl Fn() -> Result<R, Over>) -> Result<R> {
        match ask() {
            Err(over) if over.is_estimated || self.0.pending.touched.count() > 0 => {
                self.0.commit()?;
                ask()
            }
            answer => answer,
        }
        .map_err(|over| Error::QuotaExceeded { group: over.group })
    }

    /// Turns quotas on, and counts the existing extents; simple quotas count extents allocated from now on, for the
    /// subvolume that allocates them.
    ///
    /// # Errors
    /// [`QuotaError::On`]; those of a commit.
    pub fn enable_quotas(&self, kind: QuotaKind) -> Result<()> {
        if self.0.trees.try_tree(TreeId::QUOTA)?.is_some() {
            return Err(QuotaError::On.into());
        }
        self.commit()?;
        let txn = self.begin_exclusive(Need { items: CHANGE_ITEMS, data: 0 })?;
        let mut item = RootItem::new_zeroed();
        item.refs = 1.into();
        txn.create_tree(TreeId::QUOTA, &item)?;
        let subvolumes = self.subvolumes()?;
        let simple = (kind == QuotaKind::Simple).then(|| txn.generation());
        if kind == QuotaKind::Simple {
            txn.add_incompat(Incompat::SIMPLE_QUOTA.bits());
        }
        self.0.quota.change(|groups| groups.enable(&subvolumes, simple));
        drop(txn);
        self.0.commit().map(drop)
    }

    /// Turns quotas off; the groups and their limits are forgotten.
    ///
    /// # Errors
    /// [`QuotaError::Off`]; those of a commit.
    pub fn disable_quotas(&self) -> Result<()> {
        let Some(tree) = self.0.trees.try_tree(TreeId::QUOTA)? else { return Err(QuotaError::Off.into()) };
        let items = u32::try_from(tree.block_count()).unwrap_or(u32::MAX).saturating_add(CHANGE_ITEMS);
        self.commit()?;
        let txn = self.begin_exclusive(Need { items, data: 0 })?;
        remove_whole(&txn, &tree)?;
        self.0.quota.change(Groups::disable);
        drop(txn);
        self.0.commit().map(drop)
    }

    /// Changes the groups, and commits.
    ///
    /// # Errors
    /// [`QuotaError`]; those of a commit.
    pub fn change_quotas(&self, change: QuotaChange) -> Result<()> {
        self.commit()?;
        let txn = self.begin_exclusive(Need { items: CHANGE_ITEMS, data: 0 })?;
        let has_subvolume = match change {
            QuotaChange::Destroy(group) => group.level() == 0 && self.0.trees.try_tree(TreeId(group.0))?.is_some(),
            _ => false,
        };
        self.0.quota.change(|groups| match change {
            QuotaChange::Rescan => groups.rescan(),
            QuotaChange::Create(id) => groups.create(id),
            QuotaChange::Destroy(id) => groups.destroy(id, has_subvolume),
            QuotaChange::Assign { member, parent } => groups.relate(member, parent, true),
            QuotaChange::Remove { member, parent } => groups.relate(member, parent, false),
            QuotaChange::Limit { group, is_excl, bytes } => groups.limit(group, is_excl, bytes),
        })?;
        drop(txn);
        self.0.commit().map(drop)
    }

    fn subvolumes(&self) -> Result<Vec<TreeId>> {
        let mut found: Vec<TreeId> = Vec::new();
        self.0.trees.root_tree.scan(&Key::MIN, &Key::MAX, |key, _| {
            let id = TreeId(key.objectid);
            if key.item_type == ROOT_ITEM && id.is_subvolume() && found.last() != Some(&id) {
                found.push(id);
            }
            Ok(Scan::Continue)
        })?;
        Ok(found)
    }
}

/// Items that a change of groups is reserved for.
const CHANGE_ITEMS: u32 = 16;

/// Tree blocks by which a subvolume may grow with one operation on names: as many as are split on one path.
const BLOCKS_PER_CHANGE: u64 = 4;
