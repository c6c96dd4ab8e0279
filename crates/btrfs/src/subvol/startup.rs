//! What a volume needs before it is changed: quotas marked as out of date, and what an earlier
//! session left unfinished brought to its end.

use btrfs_disk::flags::QgroupStatusFlags;
use btrfs_disk::items::{OnDisk, QgroupStatusItem};
use btrfs_disk::key::item_type;
use btrfs_disk::{Key, TreeId};
use btrfs_store::Scan;

use super::delete::drop_tree;
use super::info::for_each_root;
use super::orphan_key;
use crate::dir::Namespace;
use crate::error::{Error, Result};

/// Prepares a volume that was just opened for writing.
///
/// # Errors
/// When a tree cannot be read or changed.
pub(crate) fn prepare_for_writing(namespace: &Namespace) -> Result<()> {
    if mark_quotas_inconsistent(namespace)? {
        namespace.core.store.commit()?;
    }
    match finish_leftovers(namespace) {
        // Their notes stay for the next open; whoever makes room needs the volume for it.
        Err(Error::NoSpace) => Ok(()),
        result => result,
    }
}

/// Brings to an end what an earlier session began.
fn finish_leftovers(namespace: &Namespace) -> Result<()> {
    finish_deletions(namespace)?;
    let mut live = Vec::new();
    for_each_root(namespace, |id, item| {
        if item.refs.get() > 0 {
            live.push(id);
        }
    })?;
    for id in live {
        namespace.remove_orphans(&*namespace.core.root(id)?)?;
    }
    Ok(())
}

/// Quotas are not kept here. As the kernel does when it cannot keep them, their state is marked
/// inconsistent before anything they count changes; the next rescan counts anew. True when that
/// changed something.
///
/// # Errors
/// When a tree cannot be read or changed.
pub(crate) fn mark_quotas_inconsistent(namespace: &Namespace) -> Result<bool> {
    let core = &namespace.core;
    let tree = match core.store.tree(TreeId::QUOTA) {
        Ok(tree) => tree,
        Err(btrfs_store::Error::NoSuchTree(_)) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    let key = Key::new(0, item_type::QGROUP_STATUS, 0);
    let flags = tree.get_with(&key, |bytes| {
        QgroupStatusItem::parse_prefix(bytes).map(|(item, _)| item.status_flags())
    })?;
    let Some(flags) = flags.transpose()? else {
        return Ok(false);
    };
    if flags.contains(QgroupStatusFlags::INCONSISTENT) {
        return Ok(false);
    }
    let flags = flags | QgroupStatusFlags::INCONSISTENT;
    namespace.apply(namespace.reserve(1)?, |txn| {
        txn.update(&tree, &key, |bytes| {
            if let Ok(item) = QgroupStatusItem::parse_mut(bytes) {
                item.flags = flags.bits().into();
            }
        })?;
        Ok(())
    })?;
    Ok(true)
}

/// Drops the trees of deleted subvolumes.
///
/// # Errors
/// When a tree cannot be read or changed.
pub(crate) fn finish_deletions(namespace: &Namespace) -> Result<()> {
    let (from, to) = (orphan_key(TreeId(0)), orphan_key(TreeId(u64::MAX)));
    let mut deleted = Vec::new();
    namespace
        .core
        .store
        .tree(TreeId::ROOT)?
        .scan(&from, &to, |key, _| {
            deleted.push(TreeId(key.offset));
            Ok(Scan::Continue)
        })?;
    for id in deleted {
        drop_tree(namespace, id)?;
    }
    Ok(())
}
