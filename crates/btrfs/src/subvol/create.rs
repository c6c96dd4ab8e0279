//! Creates subvolumes: empty ones, and snapshots. Called by `vfs_impl/subvolumes`.

use btrfs_disk::flags::{InodeFlags, RootFlags};
use btrfs_disk::items::{InodeItem, InodeRefEntry, OnDisk, RootItem, Timespec};
use btrfs_disk::key::item_type;
use btrfs_disk::{Generation, Key, TreeId, Uuid};
use btrfs_store::{Need, Txn};
use zerocopy::FromZeros;

use super::{SnapshotMode, add_uuid, next_id};
use crate::dir::{Found, Namespace, NewName, RootLink, Stored, XattrItems, check_can_add, check_name, grow};
use crate::error::{CallerError, Error, Result};
use crate::inode::{
    DirState, FileType, Inode, InodeState, ROOT_DIR_INO, Root, Timestamp, inherited_flags, lock_all, time_to_disk,
};
use crate::writeback;

/// Items that a new subvolume changes: root item, two of its root directory, two root
/// references, two entries, the directory's inode, one or two UUIDs.
const CREATE_ITEMS: u32 = 12;

/// The attributes of a new subvolume's root directory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewSubvolume<'a> {
    pub(crate) permissions: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Access control lists that it inherits.
    pub(crate) xattrs: &'a [(&'a [u8], &'a [u8])],
}

/// Makes an empty subvolume named `name` in `dir`.
///
/// # Errors
/// As making a directory.
pub(crate) fn create(namespace: &Namespace, dir: &Inode, name: &[u8], new: NewSubvolume<'_>) -> Result<TreeId> {
    check_name(name)?;
    let core = &namespace.core;
    let xattr_items = u32::try_from(new.xattrs.len()).unwrap_or(u32::MAX / 2);
    let mut last_given = core.last_subvolume.lock();
    let reservation = namespace.reserve(CREATE_ITEMS.saturating_add(xattr_items))?;
    let mut names = dir.lock_names();
    check_is_free(namespace, dir, name)?;
    let id = next_id(namespace, &mut last_given)?;
    namespace.apply(reservation, |txn| {
        let now = core.now();
        let uuid = Uuid(core.store.env().uuid());
        let item = new_root_item(txn.generation(), core.store.sizes().node, uuid, now);
        let tree = txn.create_tree(id, &item)?;
        let mut state = InodeState::new(txn.generation(), FileType::Directory, new.permissions);
        (state.uid, state.gid) = (new.uid, new.gid);
        state.flags = inherited_flags(dir.state().flags, FileType::Directory);
        state.set_all_times(now);
        let dots = InodeRefEntry { index: 0, name: b".." }.build();
        let root_dir = ROOT_DIR_INO.0;
        let inode_item = state.to_item();
        let xattrs = XattrItems::build(txn.generation(), new.xattrs, namespace.xattr_bytes_max())?;
        let mut batch: Vec<(Key, &[u8])> = vec![
            (Key::new(root_dir, item_type::INODE_ITEM, 0), inode_item.bytes()),
            (Key::new(root_dir, item_type::INODE_REF, root_dir), &dots),
        ];
        batch.extend(xattrs.of(ROOT_DIR_INO));
        txn.insert_batch(&tree, &batch)?;
        add_uuid(namespace, txn, item_type::UUID_KEY_SUBVOL, uuid, id)?;
        name_subvolume(namespace, txn, (dir, &mut names), name, id, now)
    })?;
    Ok(id)
}

/// A snapshot to make.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewSnapshot<'a> {
    /// Where it gets its name.
    pub(crate) dir: &'a Inode,
    pub(crate) name: &'a [u8],
    pub(crate) mode: SnapshotMode,
    /// Its UUID.
    pub(crate) uuid: Uuid,
}

/// Makes a snapshot of the subvolume `source`, named `name` in `dir`.
///
/// # Errors
/// As making a directory, and those of writing the source's data.
pub(crate) fn snapshot(
    namespace: &Namespace,
    source: TreeId,
    dir: &Inode,
    name: &[u8],
    mode: SnapshotMode,
) -> Result<TreeId> {
    let uuid = Uuid(namespace.core.store.env().uuid());
    let [id] = snapshot_chain(namespace, source, [NewSnapshot { dir, name, mode, uuid }])?;
    Ok(id)
}

/// Makes snapshots in one transaction: the first of the subvolume `source`, each further one of the one before it. A
/// crash leaves all of them or none. There are at most four.
///
/// # Errors
/// As [`snapshot`].
pub(crate) fn snapshot_chain<const N: usize>(
    namespace: &Namespace,
    source: TreeId,
    chain: [NewSnapshot<'_>; N],
) -> Result<[TreeId; N]> {
    let core = &namespace.core;
    let source = core.root(source)?;
    // Checked early, so that a mistake costs no commit.
    for new in &chain {
        check_name(new.name)?;
        check_is_free(namespace, new.dir, new.name)?;
    }
    let _waiting = core.data.syncs.wait();
    writeback::flush_tree(core, source.id)?;
    core.store.make_way()?;
    let ids = copy_tree(namespace, &source, &chain)?;
    writeback::write_settled_soon(core);
    ids.iter().try_for_each(|id| drop_nameless(namespace, *id))?;
    Ok(ids)
}

/// Removes inodes without names from a new snapshot: in the source they are open, but here they cannot be opened.
fn drop_nameless(namespace: &Namespace, id: TreeId) -> Result<()> {
    match namespace.remove_orphans(&*namespace.core.root(id)?) {
        // The snapshot is made. Its orphan items stay for the next open of the volume.
        Err(Error::NoSpace(_)) => Ok(()),
        removed => removed,
    }
}

/// Makes the snapshots as the first changes of a new transaction.
fn copy_tree<const N: usize>(
    namespace: &Namespace,
    source: &Root,
    chain: &[NewSnapshot<'_>; N],
) -> Result<[TreeId; N]> {
    let core = &namespace.core;
    let mut last_given = core.last_subvolume.lock();
    let mut names = lock_all(std::array::from_fn(|place| chain.get(place).map(|new| new.dir)));
    for new in chain {
        check_is_free(namespace, new.dir, new.name)?;
    }
    let _in_place = writeback::stop_in_place_writes(core);
    let items = CREATE_ITEMS.saturating_mul(u32::try_from(N).unwrap_or(u32::MAX));
    let txn = core.store.begin_exclusive(Need { items, data: 0 })?;
    let mut ids = [source.id; N];
    for id in &mut ids {
        *id = next_id(namespace, &mut last_given)?;
    }
    namespace.finish(&txn, |txn| {
        let now = core.now();
        let mut item = core.store.root_item(source.id)?;
        for (new, id) in chain.iter().zip(ids) {
            item = snapshot_item(item, txn.generation(), new.uuid, now, new.mode);
            txn.snapshot_tree(&source.tree, id, &item)?;
            add_uuid(namespace, txn, item_type::UUID_KEY_SUBVOL, new.uuid, id)?;
            add_uuid(namespace, txn, item_type::UUID_KEY_RECEIVED_SUBVOL, item.received_uuid, id)?;
        }
        // All copies are made: the source may be the tree that gets the names.
        for (new, id) in chain.iter().zip(ids) {
            name_subvolume(namespace, txn, (new.dir, names.of(new.dir)), new.name, id, now)?;
        }
        Ok(())
    })?;
    Ok(ids)
}

fn check_is_free(namespace: &Namespace, dir: &Inode, name: &[u8]) -> Result<()> {
    check_can_add(dir)?;
    if namespace.lookup_locked(dir, name)?.is_some() {
        return Err(CallerError::Exists.into());
    }
    namespace.check_room(dir, name)
}

/// Gives the subvolume `id` its name, in both trees.
fn name_subvolume(
    namespace: &Namespace,
    txn: &Txn,
    (dir, names): (&Inode, &mut DirState),
    name: &[u8],
    id: TreeId,
    now: Timestamp,
) -> Result<()> {
    let index = namespace.next_index(dir, names)?;
    let link = RootLink { parent: dir.tree_id(), dir: dir.ino(), index, name: name.into() };
    namespace.root_links.add(txn, id, &link)?;
    let kind = FileType::Directory;
    let location = Key::new(id.0, item_type::ROOT_ITEM, u64::MAX);
    let found = Found { tree: id, ino: ROOT_DIR_INO, kind };
    let entry = NewName { name, stored: Stored { location, kind }, found };
    namespace.add_name(txn, dir, names, &entry)?;
    grow(txn, dir, name, now);
    Ok(())
}

/// The root item of an empty subvolume, as the kernel fills it; the store knows the block.
pub(super) fn new_root_item(generation: Generation, node_bytes: u32, uuid: Uuid, now: Timestamp) -> RootItem {
    let mut item = RootItem::new_zeroed();
    item.inode = InodeItem::new_zeroed();
    item.inode.generation = 1.into();
    item.inode.size = 3.into();
    item.inode.nlink = 1.into();
    item.inode.nbytes = u64::from(node_bytes).into();
    item.inode.mode = (FileType::Directory.mode_bits() | 0o755).into();
    item.inode.flags = InodeFlags::ROOT_ITEM_INIT.bits().into();
    item.generation = generation.0.into();
    item.generation_v2 = generation.0.into();
    item.root_dirid = ROOT_DIR_INO.0.into();
    item.bytes_used = u64::from(node_bytes).into();
    item.refs = 1.into();
    item.uuid = uuid;
    item.ctransid = generation.0.into();
    item.otransid = generation.0.into();
    (item.ctime, item.otime) = (time_to_disk(now), time_to_disk(now));
    item
}

/// The root item of a snapshot: the source's, with a UUID of its own.
fn snapshot_item(source: RootItem, generation: Generation, uuid: Uuid, now: Timestamp, mode: SnapshotMode) -> RootItem {
    let mut item = source;
    let mut flags = source.root_flags();
    flags.set(RootFlags::SUBVOL_RDONLY, mode == SnapshotMode::ReadOnly);
    item.flags = flags.bits().into();
    item.generation_v2 = generation.0.into();
    item.refs = 1.into();
    item.drop_progress = Key::MIN.into();
    item.drop_level = 0;
    item.parent_uuid = source.uuid;
    item.uuid = uuid;
    item.otransid = generation.0.into();
    item.otime = time_to_disk(now);
    if mode == SnapshotMode::ReadWrite {
        item.received_uuid = Uuid::NIL;
        (item.stransid, item.rtransid) = (0.into(), 0.into());
        (item.stime, item.rtime) = (Timespec::default(), Timespec::default());
    }
    item
}
