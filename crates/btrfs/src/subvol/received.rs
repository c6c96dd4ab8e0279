//! A subvolume that was built from a send stream becomes what was sent: with the sender's UUID, and read-only.

use btrfs_disk::flags::RootFlags;
use btrfs_disk::items::Timespec;
use btrfs_disk::key::item_type;
use btrfs_disk::{TreeId, Uuid};

use super::{Received, add_uuid, remove_uuid};
use crate::dir::Namespace;
use crate::error::{CallerError, Result};
use crate::inode::time_to_disk;
use crate::writeback;

/// Items that change: the root item, two of the UUID tree.
const RECEIVED_ITEMS: u32 = 3;

/// Writes what was written to the subvolume, and notes with one change what it was received from and that nothing in
/// it changes any more. The next commit makes it durable.
///
/// # Errors
/// `NoSuchSubvolume`, `ReadOnly`; what writing its data can fail with.
pub(crate) fn set_received(namespace: &Namespace, id: TreeId, received: &Received) -> Result<()> {
    let core = &namespace.core;
    let root = core.root(id)?;
    if core.store.is_read_only() || root.is_read_only() {
        return Err(CallerError::ReadOnly.into());
    }
    root.set_read_only(true);
    let set = writeback::flush_tree(core, id).and_then(|()| note(namespace, id, received));
    if set.is_err() {
        root.set_read_only(false);
    }
    set
}

fn note(namespace: &Namespace, id: TreeId, received: &Received) -> Result<()> {
    let uuid = Uuid(received.uuid);
    let before = namespace.core.store.root_item(id)?.received_uuid;
    let reservation = namespace.reserve(RECEIVED_ITEMS)?;
    namespace.apply(reservation, |txn| {
        let (generation, now) = (txn.generation(), namespace.core.now());
        txn.update_root_item(id, |item| {
            let mut flags = item.root_flags();
            flags.insert(RootFlags::SUBVOL_RDONLY);
            item.flags = flags.bits().into();
            item.received_uuid = uuid;
            item.stransid = received.sent.0.into();
            item.rtransid = generation.0.into();
            // The stream does not say when it was sent.
            item.stime = Timespec::default();
            item.rtime = time_to_disk(now);
        })?;
        remove_uuid(namespace, txn, item_type::UUID_KEY_RECEIVED_SUBVOL, before, id)?;
        add_uuid(namespace, txn, item_type::UUID_KEY_RECEIVED_SUBVOL, uuid, id)
    })
}
