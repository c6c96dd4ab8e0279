//! Makes, deletes and lists subvolumes and snapshots: trees of files that have a name in another tree.
//!
//! A subvolume is a tree, a `ROOT_ITEM`, one name in a directory of another subvolume with the
//! `ROOT_REF` and `ROOT_BACKREF` that go with it, and an entry in the UUID tree. Creation and
//! deletion change all of these with one handle on the running transaction.
//!
//! ```text
//! created -> named -> nameless (refs 0, orphan item) -> tree dropped step by step -> removed
//!                     a deletion that a crash interrupts continues at the next open
//! ```
//!
//! Invariants
//! * Numbers of subvolumes only grow while a volume is open; one lock serialises the threads that take one.
//! * A snapshot has all writes that finished before it was requested: the source's data is flushed first, then the
//!   store commits and copies the root while no handle is open.
//! * Nothing below a deleted subvolume can be found, and no name in it changes: its `inode::Root` is marked. Its tree
//!   stays for as long as any inode of it is in memory, so that files that are open can be read and written until they
//!   are closed.
//! * A new snapshot has no inodes without names: those open in its source are removed from it at once.
//!
//! Failure: callers' mistakes as `Error::Caller`, before anything changes. A deletion whose dropping fails is complete
//! for its users; the space is freed after the next open.
//!
//! Callers: `volume` (open, subvolumes by number), and `vfs_impl` for requests and background work.

mod create;
mod delete;
mod info;
mod make;
mod receipt;
mod startup;
mod types;

use btrfs_disk::items::{uuid_key, uuid_subvolumes};
use btrfs_disk::key::item_type;
use btrfs_disk::{Key, TreeId, Uuid};
use btrfs_store::{EditItem, Txn};

use crate::dir::Namespace;
use crate::error::{Error, Result};

pub(crate) use create::{NewSnapshot, NewSubvolume, create, snapshot, snapshot_chain};
pub(crate) use delete::{delete, delete_if, drop_dead_trees, drop_some_dead_trees, set_read_only};
pub(crate) use info::{
    default_subvolume, for_each_root, info_of, list, list_deleted, name_of, path_of_inode, set_default_subvolume,
};
pub(crate) use make::make_trees;
pub(crate) use receipt::{changed_since_made, changed_since_receipt, note_received, set_received};
pub(crate) use startup::{finish_some_leftovers, prepare_for_writing};
pub(crate) use types::SnapshotMode;
pub use types::{Received, SubvolumeInfo};

/// Object id of orphan items (`BTRFS_ORPHAN_OBJECTID`).
const ORPHAN_OBJECTID: u64 = 0u64.wrapping_sub(5);

/// The key of the orphan item of a deleted subvolume.
fn orphan_key(id: TreeId) -> Key {
    Key::new(ORPHAN_OBJECTID, item_type::ORPHAN_ITEM, id.0)
}

/// The number for the next subvolume. The caller holds the lock on numbers.
fn next_id(namespace: &Namespace, last_given: &mut u64) -> Result<TreeId> {
    let largest = Key::new(TreeId::LAST_FREE.0, u8::MAX, u64::MAX);
    let roots = namespace.core.store.tree(TreeId::ROOT)?;
    let last = roots.at_or_before(&largest)?.map_or(0, |(key, _)| key.objectid);
    let id = last.max(*last_given).max(TreeId::FIRST_FREE.0 - 1) + 1;
    if !TreeId(id).is_subvolume() {
        return Err(Error::NoSpace(None));
    }
    *last_given = id;
    Ok(TreeId(id))
}

/// Adds the subvolume `id` to the entry of `uuid` in the UUID tree, if there is one.
fn add_uuid(namespace: &Namespace, txn: &Txn, item_type: u8, uuid: Uuid, id: TreeId) -> Result<()> {
    edit_uuid(namespace, txn, item_type, uuid, |mut ids| {
        if !ids.contains(&id) {
            ids.push(id);
        }
        ids
    })
}

/// Removes the subvolume `id` from the entry of `uuid` in the UUID tree.
fn remove_uuid(namespace: &Namespace, txn: &Txn, item_type: u8, uuid: Uuid, id: TreeId) -> Result<()> {
    edit_uuid(namespace, txn, item_type, uuid, |mut ids| {
        ids.retain(|other| *other != id);
        ids
    })
}

fn edit_uuid(
    namespace: &Namespace,
    txn: &Txn,
    item_type: u8,
    uuid: Uuid,
    edit: impl Fn(Vec<TreeId>) -> Vec<TreeId>,
) -> Result<()> {
    if uuid.is_nil() {
        return Ok(());
    }
    let tree = match namespace.core.store.tree(TreeId::UUID) {
        Ok(tree) => tree,
        Err(btrfs_store::Error::NoSuchTree(_)) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    txn.edit(&tree, &uuid_key(uuid, item_type), |old| {
        let ids = edit(uuid_subvolumes(old.unwrap_or_default())?.collect());
        let bytes: Vec<u8> = ids.iter().flat_map(|id| id.0.to_le_bytes()).collect();
        Ok(match (bytes.is_empty(), old) {
            (true, None) => EditItem::Keep,
            (true, Some(_)) => EditItem::Remove,
            (false, _) => EditItem::Put(bytes),
        })
    })?;
    Ok(())
}
