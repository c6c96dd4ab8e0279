//! Finishes a received subvolume: it gets the sender's UUID, and becomes read-only. Called by receive, through
//! `volume/subvolumes` and ioctls.

use btrfs_disk::flags::RootFlags;
use btrfs_disk::items::{InodeItem, OnDisk as _, RootItem, Timespec};
use btrfs_disk::key::item_type;
use btrfs_disk::{Generation, Key, TreeId, Uuid};
use btrfs_store::{Scan, Store};

use super::{Received, add_uuid, remove_uuid};
use crate::dir::Namespace;
use crate::error::{CallerError, Result};
use crate::inode::time_to_disk;
use crate::writeback;

/// Items that change: the root item, two of the UUID tree.
const RECEIVED_ITEMS: u32 = 3;

/// Writes the subvolume's dirty data, and records with one change what it was received from and that it is read-only.
/// The next commit makes it durable.
///
/// # Errors
/// `NoSuchSubvolume`, `ReadOnly`; those of writing its data.
pub(crate) fn set_received(namespace: &Namespace, id: TreeId, received: &Received) -> Result<()> {
    let core = &namespace.core;
    let root = core.root(id)?;
    if core.store.is_read_only() || root.is_read_only() {
        return Err(CallerError::ReadOnly.into());
    }
    root.set_read_only(true);
    let flags = RootFlags::SUBVOL_RDONLY;
    // The stream does not have its time of sending.
    let set = writeback::flush_tree(core, id).and_then(|()| note(namespace, id, received, Timespec::default(), flags));
    if set.is_err() {
        root.set_read_only(false);
    }
    set
}

/// Records what a subvolume was received from, which stays as writable as it is; returns the root item.
///
/// # Errors
/// `NoSuchSubvolume`, `ReadOnly`.
pub(crate) fn note_received(
    namespace: &Namespace,
    id: TreeId,
    received: &Received,
    sent_at: Timespec,
) -> Result<RootItem> {
    let root = namespace.core.root(id)?;
    if namespace.core.store.is_read_only() || root.is_read_only() {
        return Err(CallerError::ReadOnly.into());
    }
    note(namespace, id, received, sent_at, RootFlags::empty())?;
    Ok(namespace.core.store.root_item(id)?)
}

/// Writes that record, with `added` flags.
fn note(namespace: &Namespace, id: TreeId, received: &Received, sent_at: Timespec, added: RootFlags) -> Result<()> {
    let uuid = Uuid(received.uuid);
    let before = namespace.core.store.root_item(id)?.received_uuid;
    let reservation = namespace.reserve(RECEIVED_ITEMS)?;
    namespace.apply(reservation, |txn| {
        let (generation, now) = (txn.generation(), namespace.core.now());
        txn.update_root_item(id, |item| {
            item.flags = (item.root_flags() | added).bits().into();
            item.received_uuid = uuid;
            item.stransid = received.sent.0.into();
            item.rtransid = generation.0.into();
            item.stime = sent_at;
            item.rtime = time_to_disk(now);
        })?;
        remove_uuid(namespace, txn, item_type::UUID_KEY_RECEIVED_SUBVOL, before, id)?;
        add_uuid(namespace, txn, item_type::UUID_KEY_RECEIVED_SUBVOL, uuid, id)
    })
}

/// True if a subvolume was changed after it was received: a stream that uses its received UUID as a parent no longer
/// applies to it.
///
/// # Errors
/// When its tree cannot be read.
pub(crate) fn changed_since_receipt(store: &Store, id: TreeId, item: &RootItem) -> Result<bool> {
    changed_since(store, id, item, item.rtransid.get(), item.rtime)
}

/// True if a subvolume was changed after it was made as a read-only snapshot.
///
/// # Errors
/// When its tree cannot be read.
pub(crate) fn changed_since_made(store: &Store, id: TreeId, item: &RootItem) -> Result<bool> {
    changed_since(store, id, item, item.otransid.get(), item.otime)
}

/// For a read-only subvolume a later transaction proves no change: the kernel writes back data after the receipt ended,
/// and dedupe may share its extents. Neither changes the ctime of an inode, which every change of contents does.
fn changed_since(store: &Store, id: TreeId, item: &RootItem, transid: u64, time: Timespec) -> Result<bool> {
    if item.ctransid.get() <= transid {
        return Ok(false);
    }
    if !item.root_flags().contains(RootFlags::SUBVOL_RDONLY) {
        return Ok(true);
    }
    let instant = |time: Timespec| (time.sec.get(), time.nsec.get());
    let mut is_changed = false;
    let (from, to) = (Key::new(0, 0, 0), Key::new(u64::MAX, u8::MAX, u64::MAX));
    store.tree(id)?.scan_since(&from, &to, Generation(transid.saturating_add(1)), |_, key, bytes| {
        if key.item_type == item_type::INODE_ITEM {
            let inode = InodeItem::parse(bytes)?;
            is_changed = inode.transid.get() > transid && instant(inode.ctime) > instant(time);
        }
        Ok(if is_changed { Scan::Stop } else { Scan::Continue })
    })?;
    Ok(is_changed)
}
