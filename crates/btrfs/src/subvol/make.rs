//! Makes the trees that every new file system has for its files: the top-level subvolume, the UUID tree, the one that
//! balancing moves data with, and the directory that names the default. Called by `volume::open` for `mkfs`.

use btrfs_disk::hash::name_hash;
use btrfs_disk::items::{DirEntry as DiskEntry, FileKind, InodeRefEntry, OnDisk, RootItem, uuid_key};
use btrfs_disk::key::item_type;
use btrfs_disk::{Key, TreeId, Uuid};
use btrfs_store::{Need, Store, Txn};
use zerocopy::FromZeros;

use super::create::new_root_item;
use super::info::DEFAULT_NAME;
use crate::error::Result;
use crate::inode::{FileType, InodeState, ROOT_DIR_INO, Timestamp};

/// Items that making the trees changes.
const MAKE_ITEMS: u32 = 24;
/// Permission bits of the directories made here.
const DIRECTORY_PERMISSIONS: u32 = 0o755;

/// Makes the trees on a store that was just made, and commits.
///
/// # Errors
/// `NoSpace` for a device that is too small, `Io`.
pub(crate) fn make_trees(store: &Store, (uid, gid): (u32, u32)) -> Result<()> {
    let (sec, nsec) = store.env().now();
    let now = Timestamp { sec, nsec };
    let uuid = Uuid(store.env().uuid());
    let txn = store.begin(store.reserve(Need { items: MAKE_ITEMS, data: 0 })?)?;
    let mut item = new_root_item(txn.generation(), store.sizes().node, uuid, now);
    for id in [TreeId::FS, TreeId::DATA_RELOC] {
        let tree = txn.create_tree(id, &item)?;
        let mut state = InodeState::new(txn.generation(), FileType::Directory, DIRECTORY_PERMISSIONS);
        state.set_all_times(now);
        if id == TreeId::FS {
            (state.uid, state.gid) = (uid, gid);
        }
        insert_dir(&txn, &tree, ROOT_DIR_INO.0, &state)?;
        item.uuid = Uuid::NIL;
    }
    let mut item = RootItem::new_zeroed();
    item.refs = 1.into();
    item.bytes_used = u64::from(store.sizes().node).into();
    let uuids = txn.create_tree(TreeId::UUID, &item)?;
    let key = uuid_key(uuid, item_type::UUID_KEY_SUBVOL);
    txn.insert(&uuids, &key, &TreeId::FS.0.to_le_bytes())?;
    insert_default(&txn, store, now)?;
    drop(txn);
    store.commit()?;
    Ok(())
}

/// The directory in the tree of roots that names the default subvolume.
fn insert_default(txn: &Txn, store: &Store, now: Timestamp) -> Result<()> {
    let roots = store.tree(TreeId::ROOT)?;
    let mut state = InodeState::new(txn.generation(), FileType::Directory, DIRECTORY_PERMISSIONS);
    state.set_all_times(now);
    let dir = TreeId::ROOT_DIR.0;
    insert_dir(txn, &roots, dir, &state)?;
    let location = Key::new(TreeId::FS.0, item_type::ROOT_ITEM, u64::MAX);
    let entry = DiskEntry::build(location, txn.generation(), FileKind::Directory, DEFAULT_NAME);
    txn.insert(&roots, &Key::new(dir, item_type::DIR_ITEM, name_hash(DEFAULT_NAME)), &entry)?;
    let reference = InodeRefEntry { index: 0, name: DEFAULT_NAME }.build();
    txn.insert(&roots, &Key::new(TreeId::FS.0, item_type::INODE_REF, dir), &reference)?;
    Ok(())
}

fn insert_dir(txn: &Txn, tree: &btrfs_store::Tree, ino: u64, state: &InodeState) -> Result<()> {
    let dots = InodeRefEntry { index: 0, name: b".." }.build();
    let item = state.to_item();
    let items =
        [(Key::new(ino, item_type::INODE_ITEM, 0), item.bytes()), (Key::new(ino, item_type::INODE_REF, ino), &*dots)];
    Ok(txn.insert_batch(tree, &items)?)
}
