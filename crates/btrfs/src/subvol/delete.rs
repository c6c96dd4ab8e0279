//! Deletes a subvolume: its name at once, its tree step by step. Called by `vfs_impl/subvolumes`, `volume` and
//! background work.

use std::time::{Duration, Instant};

use btrfs_disk::flags::RootFlags;
use btrfs_disk::key::item_type;
use btrfs_disk::{Key, TreeId};
use btrfs_store::{DropProgress, Scan, Txn};

use super::{default_subvolume, orphan_key, remove_uuid};
use crate::dir::{Namespace, check_can_remove, check_name, shrink};
use crate::error::{CallerError, Result};
use crate::inode::{Inode, ROOT_DIR_INO};
use crate::writeback;

/// Items that a deletion changes: two entries, two root references, the directory's inode, the
/// root item, an orphan item, two UUIDs.
const DELETE_ITEMS: u32 = 10;
/// Tree blocks that one step of dropping a tree visits: a commit, and other operations, may wait for it, and for
/// applying the changes it queues, which are hundreds for a leaf full of extents.
const DROP_STEP_BLOCKS: u32 = 16;
/// Steps that a sync waits for: a quarter of a GiB of tree blocks.
const SYNC_STEPS_MAX: u32 = 1024;
/// How long a sync begins further steps while other operations use the volume, which wait for the processors or the
/// sync.
const SYNC_SHARED_MAX: Duration = Duration::from_millis(5);

/// Deletes the subvolume named `name` in `dir`. On return its name is gone, and nothing in it can be found. Open files
/// can be read and written until they are closed; [`drop_dead_trees`] frees the space of subvolumes that are not in
/// use.
///
/// # Errors
/// `NotFound`, `InvalidArgument` (no subvolume), `Busy` (the default subvolume), `NotEmpty` (it
/// contains other subvolumes), `ReadOnly` (the containing subvolume).
pub(crate) fn delete(namespace: &Namespace, dir: &Inode, name: &[u8]) -> Result<()> {
    delete_if(namespace, dir, name, |_| true)
}

/// As [`delete`], but only if `is_right` accepts the subvolume: it may have been renamed since the caller looked.
///
/// # Errors
/// As [`delete`]; `NotFound` if the name leads to another subvolume.
pub(crate) fn delete_if(
    namespace: &Namespace,
    dir: &Inode,
    name: &[u8],
    is_right: impl FnOnce(TreeId) -> bool,
) -> Result<()> {
    check_name(name)?;
    let core = &namespace.core;
    let reservation = namespace.reserve_urgent(DELETE_ITEMS)?;
    // Serialises with creations: none can be made below the subvolume meanwhile.
    let mut last_given = core.last_subvolume.lock();
    let names = dir.lock_names();
    check_can_remove(dir)?;
    let found = namespace.lookup_locked(dir, name)?.ok_or(CallerError::NotFound)?;
    if found.tree == dir.tree_id() || found.ino != ROOT_DIR_INO {
        return Err(CallerError::InvalidArgument.into());
    }
    let id = found.tree;
    if !is_right(id) {
        return Err(CallerError::NotFound.into());
    }
    check_deletable(namespace, id)?;
    // The number is not reused, though the tree of roots loses it: programs may know the subvolume by it.
    *last_given = id.0.max(*last_given);
    let root = core.root(id)?;
    root.set_deleted();
    namespace.apply(reservation, |txn| {
        let index = namespace.root_links.remove(txn, dir.tree_id(), id)?;
        namespace.remove_name(txn, dir, name, index)?;
        shrink(txn, dir, name, core.now());
        mark_deleted(namespace, txn, id)
    })?;
    drop(names);
    namespace.dentries.remove_tree(id);
    for unused in core.forget_root(id) {
        writeback::discard(core, &unused);
    }
    Ok(())
}

fn check_deletable(namespace: &Namespace, id: TreeId) -> Result<()> {
    if default_subvolume(namespace)? == id {
        return Err(CallerError::Busy.into());
    }
    let (from, to) = (Key::new(id.0, item_type::ROOT_REF, 0), Key::new(id.0, item_type::ROOT_REF, u64::MAX));
    let mut has_children = false;
    namespace.core.store.tree(TreeId::ROOT)?.scan(&from, &to, |_, _| {
        has_children = true;
        Ok(Scan::Stop)
    })?;
    if has_children { Err(CallerError::NotEmpty.into()) } else { Ok(()) }
}

fn mark_deleted(namespace: &Namespace, txn: &Txn, id: TreeId) -> Result<()> {
    let item = namespace.core.store.root_item(id)?;
    txn.update_root_item(id, |item| {
        item.refs = 0.into();
        item.drop_progress = Key::MIN.into();
        item.drop_level = 0;
    })?;
    txn.put(&*namespace.core.store.tree(TreeId::ROOT)?, &orphan_key(id), &[])?;
    remove_uuid(namespace, txn, item_type::UUID_KEY_SUBVOL, item.uuid, id)?;
    remove_uuid(namespace, txn, item_type::UUID_KEY_RECEIVED_SUBVOL, item.received_uuid, id)
}

/// Frees the space of deleted subvolumes that are not in use any more.
///
/// # Errors
/// As [`drop_tree`].
pub(crate) fn drop_dead_trees(namespace: &Namespace) -> Result<()> {
    drop_dead(namespace, &mut Patience::endless())
}

/// Begins with that, for a caller that does not wait long: after some steps, or a short time where other operations use
/// the volume (one step, where syncs are frequent), the rest is left to [`drop_dead_trees`].
///
/// # Errors
/// As [`drop_tree`].
pub(crate) fn drop_some_dead_trees(namespace: &Namespace) -> Result<()> {
    let is_often = namespace.core.data.syncs.is_often();
    let patient_until = Instant::now().checked_add(if is_often { Duration::ZERO } else { SYNC_SHARED_MAX });
    let begun = namespace.core.store.changes_begun();
    drop_dead(namespace, &mut Patience { steps_left: SYNC_STEPS_MAX, patient_until, begun })
}

/// The limits of a deletion of trees.
struct Patience {
    steps_left: u32,
    /// Time until which it continues although other operations use the volume; no limit if `None`.
    patient_until: Option<Instant>,
    /// Changes begun before the deletion, or by the deletion.
    begun: u64,
}

impl Patience {
    const fn endless() -> Self {
        Self { steps_left: u32::MAX, patient_until: None, begun: 0 }
    }

    /// Notes that the caller began a change.
    const fn note_change(&mut self) {
        self.begun = self.begun.saturating_add(1);
    }

    /// Notes a step; false where it was the last. `begun` is the number of all changes begun by now.
    fn goes_on(&mut self, begun: u64) -> bool {
        self.note_change();
        self.steps_left = self.steps_left.saturating_sub(1);
        let is_late = self.patient_until.is_some_and(|until| Instant::now() >= until);
        self.steps_left > 0 && !(is_late && begun > self.begun)
    }
}

fn drop_dead(namespace: &Namespace, patience: &mut Patience) -> Result<()> {
    let dead = &namespace.core.dead;
    while let Some(id) = dead.take() {
        if !drop_in_steps(namespace, id, patience)? {
            dead.add(id);
            break;
        }
    }
    Ok(())
}

/// Frees the space of a deleted subvolume. Commits first: until then the last committed state still has the subvolume.
///
/// # Errors
/// When a tree cannot be read or changed; the next open continues from there.
pub(crate) fn drop_tree(namespace: &Namespace, id: TreeId) -> Result<()> {
    drop_in_steps(namespace, id, &mut Patience::endless()).map(drop)
}

/// Deletes a tree in steps; false when `patience` ended before the tree was gone.
fn drop_in_steps(namespace: &Namespace, id: TreeId, patience: &mut Patience) -> Result<bool> {
    let store = &namespace.core.store;
    while store.drop_tree_step(id, DROP_STEP_BLOCKS)? == DropProgress::More {
        if !patience.goes_on(store.changes_begun()) {
            return Ok(false);
        }
    }
    remove_note(namespace, id)?;
    // The changes of the last step and of removing the orphan item.
    patience.note_change();
    patience.note_change();
    Ok(true)
}

/// Removes the orphan item of a deleted subvolume.
///
/// # Errors
/// When the tree of roots cannot be changed.
pub(super) fn remove_note(namespace: &Namespace, id: TreeId) -> Result<()> {
    let reservation = namespace.reserve_urgent(1)?;
    namespace.apply(reservation, |txn| {
        txn.remove(&*namespace.core.store.tree(TreeId::ROOT)?, &orphan_key(id))?;
        Ok(())
    })
}

/// Makes a subvolume read-only, or writable again.
///
/// # Errors
/// `NoSuchSubvolume`, `ReadOnly` (the volume), and those of writing its data.
pub(crate) fn set_read_only(namespace: &Namespace, id: TreeId, read_only: bool) -> Result<()> {
    let core = &namespace.core;
    let root = core.root(id)?;
    if core.store.is_read_only() {
        return Err(CallerError::ReadOnly.into());
    }
    let was_read_only = root.is_read_only();
    if read_only {
        root.set_read_only(true);
    }
    let set = note_read_only(namespace, id, read_only);
    root.set_read_only(if set.is_ok() { read_only } else { was_read_only });
    set
}

/// Writes earlier changes of the subvolume, then the flag.
fn note_read_only(namespace: &Namespace, id: TreeId, read_only: bool) -> Result<()> {
    if read_only {
        writeback::flush_tree(&namespace.core, id)?;
        // The last change must not count as one of a read-only subvolume: its transaction is committed before the flag.
        namespace.core.store.commit()?;
    }
    // Only a writable one can be deleted, which is how a full volume gets room.
    let reservation = if read_only { namespace.reserve(1)? } else { namespace.reserve_urgent(1)? };
    namespace.apply(reservation, |txn| {
        txn.update_root_item(id, |item| {
            let mut flags = item.root_flags();
            flags.set(RootFlags::SUBVOL_RDONLY, read_only);
            item.flags = flags.bits().into();
        })?;
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_continues_for_long_only_without_changes_by_others() {
        let now = Instant::now();
        let mut alone = Patience { steps_left: SYNC_STEPS_MAX, patient_until: Some(now), begun: 7 };
        assert!((8..100).all(|begun| alone.goes_on(begun)), "every change was the caller's own");
        assert!(!alone.goes_on(102), "a newer deletion began");
        let later = now.checked_add(Duration::from_secs(3600));
        let mut early = Patience { steps_left: 3, patient_until: later, begun: 7 };
        assert!(early.goes_on(100) && early.goes_on(100));
        assert!(!early.goes_on(100), "there are no steps left");
        let mut endless = Patience::endless();
        assert!((0..100).all(|_| endless.goes_on(u64::MAX)));
    }
}
