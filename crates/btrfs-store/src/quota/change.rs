//! Changes quota groups on request: groups, members, limits. Called by `store/quotas`.

use btrfs_disk::flags::{QgroupLimitFlags, QgroupStatusFlags};
use btrfs_disk::key::item_type::{QGROUP_LIMIT, QGROUP_RELATION};
use btrfs_disk::{Generation, Key, QgroupId, TreeId};

use super::groups::{Groups, STATUS_KEY};
use crate::error::QuotaError;

impl Groups {
    /// Turns quotas on, with a group for each subvolume; the next commit counts. Simple quotas count extents allocated
    /// from the transaction `simple` on.
    pub(crate) fn enable(&mut self, subvolumes: &[TreeId], simple: Option<Generation>) {
        let mode = if simple.is_some() { QgroupStatusFlags::SIMPLE_MODE } else { QgroupStatusFlags::empty() };
        *self = Self {
            flags: QgroupStatusFlags::ON | mode,
            enable_generation: simple,
            promised: std::mem::take(&mut self.promised),
            wants_rescan: simple.is_none(),
            ..Self::default()
        };
        subvolumes.iter().for_each(|id| self.add(QgroupId::of(*id)));
        self.dirty.insert(STATUS_KEY);
    }

    /// Turns quotas off, and forgets all groups.
    pub(crate) fn disable(&mut self) {
        *self = Self { promised: std::mem::take(&mut self.promised), ..Self::default() };
    }

    /// The next commit counts everything anew.
    pub(crate) fn rescan(&mut self) -> Result<(), QuotaError> {
        self.check_on()?;
        if self.flags.contains(QgroupStatusFlags::SIMPLE_MODE) {
            return Err(QuotaError::Simple);
        }
        self.wants_rescan = true;
        Ok(())
    }

    pub(crate) fn create(&mut self, id: QgroupId) -> Result<(), QuotaError> {
        self.check_on()?;
        if self.groups.contains_key(&id) {
            return Err(QuotaError::Exists(id));
        }
        self.add(id);
        Ok(())
    }

    /// Removes a group that has no members; `has_subvolume` says whether the group is that of an existing subvolume.
    pub(crate) fn destroy(&mut self, id: QgroupId, has_subvolume: bool) -> Result<(), QuotaError> {
        self.check_known(id)?;
        if has_subvolume || self.members_of(id).next().is_some() {
            return Err(QuotaError::InUse(id));
        }
        if self.parents_of(id).next().is_some() {
            self.recount_relation(id);
        }
        self.remove(id);
        Ok(())
    }

    /// Sets the limit of a group's referenced bytes, or with `is_excl` of its exclusive bytes.
    pub(crate) fn limit(&mut self, id: QgroupId, is_excl: bool, bytes: Option<u64>) -> Result<(), QuotaError> {
        self.check_known(id)?;
        if let Some(group) = self.groups.get_mut(&id) {
            let flag = if is_excl { QgroupLimitFlags::MAX_EXCL } else { QgroupLimitFlags::MAX_RFER };
            let mut flags = group.limit.limit_flags();
            flags.set(flag, bytes.is_some());
            group.limit.flags = flags.bits().into();
            let field = if is_excl { &mut group.limit.max_excl } else { &mut group.limit.max_rfer };
            *field = bytes.unwrap_or(0).into();
        }
        self.dirty.insert(Key::new(0, QGROUP_LIMIT, id.0));
        Ok(())
    }

    /// Makes a group a member of another, or no longer one.
    pub(crate) fn relate(&mut self, member: QgroupId, parent: QgroupId, is_member: bool) -> Result<(), QuotaError> {
        self.check_known(member)?;
        self.check_known(parent)?;
        if member.level() >= parent.level() {
            return Err(QuotaError::Level(member, parent));
        }
        match (is_member, self.parents.contains(&(member, parent))) {
            (true, true) => return Err(QuotaError::Exists(member)),
            (false, false) => return Err(QuotaError::NotRelated(member, parent)),
            _ => {}
        }
        self.recount_relation(member);
        self.set_related(member, parent, is_member);
        Ok(())
    }

    /// A member with counted bytes was added or removed: how much its parents share with it does not follow from sums.
    fn recount_relation(&mut self, member: QgroupId) {
        let has_any = self.groups.get(&member).is_some_and(|group| group.rfer() > 0);
        if has_any && !self.flags.contains(QgroupStatusFlags::SIMPLE_MODE) {
            self.wants_rescan = true;
        }
    }

    pub(super) fn set_related(&mut self, member: QgroupId, parent: QgroupId, is_member: bool) {
        if is_member {
            self.parents.insert((member, parent));
            self.members.insert((parent, member));
        } else {
            self.parents.remove(&(member, parent));
            self.members.remove(&(parent, member));
        }
        self.dirty.insert(Key::new(member.0, QGROUP_RELATION, parent.0));
        self.dirty.insert(Key::new(parent.0, QGROUP_RELATION, member.0));
    }

    fn check_on(&self) -> Result<(), QuotaError> {
        if self.is_on() { Ok(()) } else { Err(QuotaError::Off) }
    }

    fn check_known(&self, id: QgroupId) -> Result<(), QuotaError> {
        self.check_on()?;
        if self.groups.contains_key(&id) { Ok(()) } else { Err(QuotaError::NoGroup(id)) }
    }
}
