//! Finishes the operations that an earlier session left unfinished, before a volume is changed. Called by
//! `volume/open`, and by the background work of a mount.

use std::time::{Duration, Instant};

use btrfs_disk::key::item_type;
use btrfs_disk::{Key, TreeId};
use btrfs_store::Scan;

use super::delete::{drop_tree, remove_note};
use super::info::for_each_root;
use super::orphan_key;
use crate::dir::Namespace;
use crate::error::{CallerError, Error, Result};

/// Subvolumes that are looked at before a volume can be used: those that changed last, in which a crash may have left
/// something. To look at each of many snapshots would take seconds. A mount looks at the others later.
const AT_ONCE_MAX: usize = 64;
/// How long one step of the background work looks at others.
const STEP_MAX: Duration = Duration::from_millis(5);

/// Prepares a volume that was just opened for writing.
///
/// # Errors
/// When a tree cannot be read or changed.
pub(crate) fn prepare_for_writing(namespace: &Namespace) -> Result<()> {
    match finish_leftovers(namespace) {
        // Their orphan items stay for the next open; making room needs the volume to be open.
        Err(Error::NoSpace(_)) => Ok(()),
        result => result,
    }
}

/// Finishes the operations of an earlier session; in most subvolumes later, if there are many
/// ([`finish_some_leftovers`]).
fn finish_leftovers(namespace: &Namespace) -> Result<()> {
    let dropped = namespace.core.store.drop_relocation_trees().map(drop);
    leave_damaged(namespace, TreeId::TREE_RELOC, dropped.map_err(Error::from))?;
    finish_deletions(namespace)?;
    // Data that an interrupted balance of the kernel was moving.
    match namespace.core.root(TreeId::DATA_RELOC).and_then(|root| namespace.remove_orphans(&root)) {
        Err(Error::Caller { what: CallerError::NoSuchSubvolume, .. }) => {}
        removed => leave_damaged(namespace, TreeId::DATA_RELOC, removed)?,
    }
    let mut live = Vec::new();
    for_each_root(namespace, |id, item| {
        if item.refs.get() > 0 {
            live.push((item.generation.get(), id));
        }
    })?;
    live.sort_unstable();
    let mut live: Vec<TreeId> = live.into_iter().map(|(_, id)| id).collect();
    let newest = live.split_off(live.len().saturating_sub(AT_ONCE_MAX));
    *namespace.core.unchecked.lock() = live;
    newest.into_iter().rev().try_for_each(|id| finish_in(namespace, id))
}

/// Removes what an earlier session left in one subvolume.
fn finish_in(namespace: &Namespace, id: TreeId) -> Result<()> {
    let root = match namespace.core.root(id) {
        Err(Error::Caller { what: CallerError::NoSuchSubvolume, .. }) => return Ok(()),
        root => root,
    };
    leave_damaged(namespace, id, root.and_then(|root| namespace.remove_orphans(&root)))
}

/// Looks into some more subvolumes for what an earlier session left, for a short time. Nothing depends on it but the
/// space of files that were deleted while they were open.
///
/// # Errors
/// When a tree cannot be changed.
pub(crate) fn finish_some_leftovers(namespace: &Namespace) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < STEP_MAX {
        let Some(id) = namespace.core.unchecked.lock().pop() else { return Ok(()) };
        match finish_in(namespace, id) {
            // It stays for the next open.
            Err(Error::NoSpace(_)) => {}
            finished => finished?,
        }
    }
    Ok(())
}

/// The object of an orphan item in the tree of roots.
enum Noted {
    /// A subvolume without references: its tree is dropped.
    Deleted,
    /// An inode of the tree of roots, which only the kernel can remove: left to it.
    KernelOnly,
    /// A tree that is in use, or none: only the item is removed.
    Stale,
}

fn what_is_noted(namespace: &Namespace, id: TreeId) -> Result<Noted> {
    let store = &namespace.core.store;
    // The top level cannot be deleted, and no other tree is a subvolume's.
    if id.is_subvolume() && id != TreeId::FS {
        match store.root_item(id) {
            Ok(item) if item.refs.get() > 0 => return Ok(Noted::Stale),
            Ok(_) => return Ok(Noted::Deleted),
            Err(btrfs_store::Error::NoSuchTree(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let inode = Key::new(id.0, item_type::INODE_ITEM, 0);
    let is_inode = store.tree(TreeId::ROOT)?.get_with(&inode, |_| ())?.is_some();
    Ok(if is_inode { Noted::KernelOnly } else { Noted::Stale })
}

/// Drops the trees of deleted subvolumes, and removes stale orphan items. An unreadable tree keeps its item; the rest
/// of the volume can be used.
///
/// # Errors
/// When a tree cannot be changed.
pub(crate) fn finish_deletions(namespace: &Namespace) -> Result<()> {
    let (from, to) = (orphan_key(TreeId(0)), orphan_key(TreeId(u64::MAX)));
    let mut deleted = Vec::new();
    namespace.core.store.tree(TreeId::ROOT)?.scan(&from, &to, |key, _| {
        deleted.push(TreeId(key.offset));
        Ok(Scan::Continue)
    })?;
    for id in deleted {
        let finished = match what_is_noted(namespace, id) {
            Ok(Noted::Deleted) => drop_tree(namespace, id),
            Ok(Noted::Stale) => remove_note(namespace, id),
            Ok(Noted::KernelOnly) => Ok(()),
            Err(error) => Err(error),
        };
        leave_damaged(namespace, id, finished)?;
    }
    Ok(())
}

/// Leaves the unfinished operations of a damaged subvolume as they are. `Ok` as long as nothing was half changed.
fn leave_damaged(namespace: &Namespace, id: TreeId, finished: Result<()>) -> Result<()> {
    match finished {
        Err(error @ Error::Corrupt { .. }) if namespace.core.store.poisoned().is_none() => {
            tracing::warn!("subvolume {id}: unfinished operations of an earlier session stay: {error}");
            Ok(())
        }
        result => result,
    }
}
