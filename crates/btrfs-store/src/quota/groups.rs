//! Holds the quota groups and their numbers in memory. The other modules of `quota` and the commit (`txn/quotas`)
//! change them.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use btrfs_disk::flags::{QgroupLimitFlags, QgroupStatusFlags};
use btrfs_disk::items::{QgroupInfoItem, QgroupLimitItem};
use btrfs_disk::key::item_type::{QGROUP_INFO, QGROUP_LIMIT, QGROUP_STATUS};
use btrfs_disk::{Generation, Key, Logical, QgroupId, TreeId};
use zerocopy::FromZeros;

/// Subvolumes that reach an extent.
pub(crate) type Roots = Rc<BTreeSet<TreeId>>;

/// Key of the item with the state of all groups.
pub(super) const STATUS_KEY: Key = Key { objectid: 0, item_type: QGROUP_STATUS, offset: 0 };

/// A group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub(super) info: QgroupInfoItem,
    pub(super) limit: QgroupLimitItem,
}

impl Group {
    pub(super) fn new() -> Self {
        Self { info: QgroupInfoItem::new_zeroed(), limit: QgroupLimitItem::new_zeroed() }
    }

    /// The limits of the group: referenced bytes, exclusive bytes.
    pub(super) fn limits(&self) -> (Option<u64>, Option<u64>) {
        let flags = self.limit.limit_flags();
        (
            flags.contains(QgroupLimitFlags::MAX_RFER).then(|| self.limit.max_rfer.get()),
            flags.contains(QgroupLimitFlags::MAX_EXCL).then(|| self.limit.max_excl.get()),
        )
    }

    pub(super) fn rfer(&self) -> u64 {
        self.info.rfer.get()
    }

    pub(super) fn excl(&self) -> u64 {
        self.info.excl.get()
    }

    fn set(&mut self, rfer: u64, excl: u64) {
        self.info.rfer = rfer.into();
        self.info.rfer_cmpr = rfer.into();
        self.info.excl = excl.into();
        self.info.excl_cmpr = excl.into();
    }
}

/// A change of the subvolumes in the running transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// An empty subvolume was made.
    Made(TreeId),
    /// A snapshot was taken, when the source's root block was there.
    Copied { source: TreeId, copy: TreeId, source_root: Logical },
    /// The tree of a deleted subvolume is gone.
    Gone(TreeId),
}

/// All groups, and the items that have to be written.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    pub(super) groups: BTreeMap<QgroupId, Group>,
    /// Member and parent, and the other way round.
    pub(super) parents: BTreeSet<(QgroupId, QgroupId)>,
    pub(super) members: BTreeSet<(QgroupId, QgroupId)>,
    pub(super) flags: QgroupStatusFlags,
    pub(super) enable_generation: Option<Generation>,
    /// Keys of the items that changed.
    pub(super) dirty: BTreeSet<Key>,
    pub(super) events: Vec<Event>,
    /// The next commit counts everything anew.
    pub(super) wants_rescan: bool,
    /// Why the numbers are inconsistent, where that was found by this store.
    pub(super) reason: Option<String>,
    /// Bytes promised to data that is not written yet.
    pub(super) promised: BTreeMap<TreeId, u64>,
    /// Bytes that the running transaction made.
    pub(super) made: BTreeMap<TreeId, u64>,
}

impl Groups {
    /// Whether anything is counted.
    pub(crate) fn is_on(&self) -> bool {
        self.flags.contains(QgroupStatusFlags::ON)
    }

    /// Whether extents count for the subvolume that allocated them.
    pub(crate) fn is_simple(&self) -> bool {
        self.flags.contains(QgroupStatusFlags::ON | QgroupStatusFlags::SIMPLE_MODE)
    }

    pub(crate) fn has_limits(&self) -> bool {
        self.groups.values().any(|group| group.limits() != (None, None))
    }

    pub(crate) fn is_inconsistent(&self) -> bool {
        self.flags.contains(QgroupStatusFlags::INCONSISTENT)
    }

    /// Whether a commit has something to write, though nothing else changed.
    pub(crate) fn is_dirty(&self) -> bool {
        !self.dirty.is_empty() || self.wants_rescan
    }

    /// Marks the numbers inconsistent.
    pub(crate) fn set_inconsistent(&mut self, reason: impl Into<String>) {
        if !self.is_inconsistent() {
            self.reason = Some(reason.into());
        }
        self.flags |= QgroupStatusFlags::INCONSISTENT;
        self.dirty.insert(STATUS_KEY);
    }

    /// Why the numbers are inconsistent, on the first call.
    pub(crate) fn take_reason(&mut self) -> Option<String> {
        self.reason.take()
    }

    pub(crate) fn note_event(&mut self, event: Event) {
        self.events.push(event);
    }

    pub(crate) fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Whether the running transaction is to count everything anew; asked once.
    pub(crate) fn take_rescan(&mut self) -> bool {
        std::mem::take(&mut self.wants_rescan)
    }

    /// The groups that a subvolume counts for: its own, and all above.
    pub(super) fn ancestors(&self, subvolume: TreeId) -> BTreeSet<QgroupId> {
        let mut found = BTreeSet::new();
        let mut todo = vec![QgroupId::of(subvolume)];
        while let Some(id) = todo.pop() {
            if self.groups.contains_key(&id) && found.insert(id) {
                todo.extend(self.parents_of(id));
            }
        }
        found
    }

    pub(crate) fn parents_of(&self, id: QgroupId) -> impl Iterator<Item = QgroupId> + '_ {
        self.parents.range((id, QgroupId(0))..=(id, QgroupId(u64::MAX))).map(|(_, parent)| *parent)
    }

    pub(crate) fn members_of(&self, id: QgroupId) -> impl Iterator<Item = QgroupId> + '_ {
        self.members.range((id, QgroupId(0))..=(id, QgroupId(u64::MAX))).map(|(_, member)| *member)
    }

    /// `bytes` that were reached by `old` are reached by `new`.
    pub(crate) fn account(&mut self, old: &Roots, new: &Roots, bytes: u64) {
        if old == new {
            return;
        }
        // How many of the old ones, and of the new, count for a group.
        let mut counts: BTreeMap<QgroupId, (usize, usize)> = BTreeMap::new();
        for root in &**old {
            self.ancestors(*root).into_iter().for_each(|id| counts.entry(id).or_default().0 += 1);
        }
        for root in &**new {
            self.ancestors(*root).into_iter().for_each(|id| counts.entry(id).or_default().1 += 1);
        }
        for (id, (before, after)) in counts {
            let Some(group) = self.groups.get_mut(&id) else { continue };
            let rfer = changed(group.rfer(), before > 0, after > 0, bytes);
            let (was_alone, is_alone) = (before > 0 && before == old.len(), after > 0 && after == new.len());
            let excl = changed(group.excl(), was_alone, is_alone, bytes);
            if (rfer, excl) != (group.rfer(), group.excl()) {
                group.set(rfer, excl);
                self.dirty.insert(Key::new(0, QGROUP_INFO, id.0));
            }
        }
    }

    /// Whether simple quotas count extents of this transaction.
    pub(crate) fn counts_since(&self, generation: Generation) -> bool {
        self.enable_generation.is_none_or(|enabled| generation >= enabled)
    }

    /// An extent that `owner` made came or went: simple quotas.
    pub(crate) fn account_simply(&mut self, owner: TreeId, generation: Generation, bytes: u64, is_gone: bool) {
        if !owner.is_subvolume() || !self.counts_since(generation) {
            return;
        }
        for id in self.ancestors(owner) {
            if let Some(group) = self.groups.get_mut(&id) {
                // The kernel leaves the compressed sums as they are.
                let sum = changed(group.rfer(), is_gone, !is_gone, bytes);
                group.info.rfer = sum.into();
                group.info.excl = sum.into();
                self.dirty.insert(Key::new(0, QGROUP_INFO, id.0));
            }
        }
    }

    /// Resets all sums, before everything is counted anew.
    pub(crate) fn forget_counts(&mut self) {
        for (id, group) in &mut self.groups {
            group.set(0, 0);
            self.dirty.insert(Key::new(0, QGROUP_INFO, id.0));
        }
    }

    /// Notes that everything was counted.
    pub(crate) fn set_counted(&mut self) {
        self.flags.remove(QgroupStatusFlags::INCONSISTENT | QgroupStatusFlags::RESCAN);
        self.reason = None;
        self.dirty.insert(STATUS_KEY);
    }

    /// Adds an empty group for a subvolume, if it had none.
    pub(crate) fn add_subvolume(&mut self, id: TreeId) {
        self.add(QgroupId::of(id));
    }

    /// A snapshot shares everything with its source but the root blocks, of `node_bytes` each; its own is counted like
    /// other blocks that the transaction allocated.
    pub(crate) fn inherit(&mut self, source: TreeId, copy: TreeId, node_bytes: u64) {
        self.add(QgroupId::of(copy));
        let (source, copy) = (QgroupId::of(source), QgroupId::of(copy));
        let Some(from) = self.groups.get_mut(&source) else { return };
        let shared = from.rfer().saturating_sub(node_bytes);
        from.set(from.rfer(), node_bytes.min(from.rfer()));
        if let Some(to) = self.groups.get_mut(&copy) {
            to.set(shared, 0);
        }
        self.dirty.extend([source, copy].map(|id| Key::new(0, QGROUP_INFO, id.0)));
        if self.parents_of(source).next().is_some() {
            // Extents exclusive to its parents are shared now, if the snapshot is not in those groups.
            self.set_inconsistent(format!("a snapshot was taken of {source}, which is in another group"));
        }
    }

    /// Removes the group of a deleted subvolume, where nothing is counted for it.
    pub(crate) fn forget_subvolume(&mut self, id: TreeId) {
        let id = QgroupId::of(id);
        let is_empty = self.groups.get(&id).is_some_and(|group| (group.rfer(), group.excl()) == (0, 0));
        if is_empty && !self.is_inconsistent() {
            self.remove(id);
        }
    }

    pub(super) fn add(&mut self, id: QgroupId) {
        if self.groups.contains_key(&id) {
            return;
        }
        self.groups.insert(id, Group::new());
        self.dirty.extend([QGROUP_INFO, QGROUP_LIMIT].map(|kind| Key::new(0, kind, id.0)));
    }

    pub(super) fn remove(&mut self, id: QgroupId) {
        let mut related: Vec<(QgroupId, QgroupId)> = self.parents_of(id).map(|parent| (id, parent)).collect();
        related.extend(self.members_of(id).map(|member| (member, id)));
        for (member, parent) in related {
            self.set_related(member, parent, false);
        }
        self.groups.remove(&id);
        self.dirty.extend([QGROUP_INFO, QGROUP_LIMIT].map(|kind| Key::new(0, kind, id.0)));
    }
}

/// A sum after an extent that counted `before` counts, or does not, `after`. Inconsistent sums may be too small.
fn changed(sum: u64, before: bool, after: bool, bytes: u64) -> u64 {
    match (before, after) {
        (false, true) => sum.saturating_add(bytes),
        (true, false) => sum.saturating_sub(bytes),
        _ => sum,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roots(ids: &[u64]) -> Roots {
        Rc::new(ids.iter().map(|id| TreeId(*id)).collect())
    }

    fn numbers(groups: &Groups, id: &str) -> (u64, u64) {
        let group = &groups.groups[&id.parse().unwrap()];
        (group.rfer(), group.excl())
    }

    fn family() -> Groups {
        let mut groups = Groups { flags: QgroupStatusFlags::ON, ..Groups::default() };
        for id in ["0/256", "0/257", "0/258", "1/1", "2/1"] {
            groups.add(id.parse().unwrap());
        }
        for (member, parent) in [("0/256", "1/1"), ("0/257", "1/1"), ("1/1", "2/1")] {
            groups.set_related(member.parse().unwrap(), parent.parse().unwrap(), true);
        }
        groups
    }

    #[test]
    fn what_members_share_is_their_parents_alone() {
        let mut groups = family();
        groups.account(&roots(&[]), &roots(&[256, 257]), 10);
        assert_eq!(numbers(&groups, "0/256"), (10, 0));
        assert_eq!(numbers(&groups, "1/1"), (10, 10));
        assert_eq!(numbers(&groups, "2/1"), (10, 10));
        groups.account(&roots(&[256, 257]), &roots(&[256, 257, 258]), 10);
        assert_eq!((numbers(&groups, "1/1"), numbers(&groups, "0/258")), ((10, 0), (10, 0)));
        groups.account(&roots(&[256, 257, 258]), &roots(&[258]), 10);
        assert_eq!((numbers(&groups, "1/1"), numbers(&groups, "0/258")), ((0, 0), (10, 10)));
    }

    #[test]
    fn a_subvolume_without_a_group_still_shares() {
        let mut groups = family();
        groups.account(&roots(&[]), &roots(&[256, 300]), 10);
        assert_eq!((numbers(&groups, "0/256"), numbers(&groups, "1/1")), ((10, 0), (10, 0)));
    }

    #[test]
    fn a_snapshot_takes_what_its_source_held_alone() {
        let mut groups = family();
        groups.account(&roots(&[]), &roots(&[258]), 100);
        groups.inherit(TreeId(258), TreeId(259), 16);
        assert_eq!((numbers(&groups, "0/258"), numbers(&groups, "0/259")), ((100, 16), (84, 0)));
        assert!(!groups.is_inconsistent());
        groups.inherit(TreeId(256), TreeId(260), 16);
        assert!(groups.is_inconsistent(), "its parent's numbers cannot be known");
    }

    #[test]
    fn members_of_each_other_are_counted_once() {
        let mut groups = family();
        // An image may say so.
        groups.set_related("2/1".parse().unwrap(), "0/256".parse().unwrap(), true);
        groups.account(&roots(&[]), &roots(&[256]), 10);
        assert_eq!((numbers(&groups, "0/256"), numbers(&groups, "2/1")), ((10, 10), (10, 10)));
    }
}
