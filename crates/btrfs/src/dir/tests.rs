//! Names on a real store, at moments that public calls do not stop at.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;

use blockdev::backends::MemoryDevice;
use btrfs_disk::{InodeNo, TreeId};
use btrfs_store::{MakeOptions, Need, Store, StoreOptions};

use super::lookup::stored;
use super::{Namespace, NewInode, Place, RenameFlags, Unlink};
use crate::inode::{Core, FileType, Inode, InodeFlags, InodeState, Settings};

const DEVICE_BYTES: u64 = 128 << 20;

/// An empty file system in memory, with two files in its top directory.
fn names() -> (Namespace, Arc<Inode>, [Arc<Inode>; 2]) {
    let device = Arc::new(MemoryDevice::new(DEVICE_BYTES));
    let make = MakeOptions::default();
    let store = Store::make(vec![device], &make, &StoreOptions::default()).unwrap();
    crate::subvol::make_trees(&store, (0, 0)).unwrap();
    let settings = Settings {
        max_inline: 2048,
        dirty_bytes: 1 << 20,
        compress: None,
        file_flags: InodeFlags::empty(),
        writes_ahead: false,
        inherits_data_flags: false,
        is_reproducible: false,
        verifies_data: true,
    };
    let names = Namespace::new(Arc::new(Core::new(store, settings)));
    let top = names.core.root_dir(TreeId::FS).unwrap();
    let new = NewInode { kind: FileType::File, permissions: 0o644, ..NewInode::default() };
    let files = [&b"a"[..], b"b"].map(|name| names.create(&top, name, &new).unwrap());
    names.core.store.commit().unwrap();
    (names, top, files)
}

/// The link count in the tree, as the last commit wrote it.
fn links_in_tree(inode: &Inode) -> Option<u32> {
    let state = inode.root.tree.get_with(&inode.key(), InodeState::from_item);
    Some(state.unwrap()?.unwrap().nlink)
}

/// Whether the tree has an orphan item for the inode.
fn has_orphan(inode: &Inode) -> bool {
    let key = crate::inode::orphan_key(inode.ino());
    inode.root.tree.get_with(&key, |_| ()).unwrap().is_some()
}

/// Stages the inode as writeback does after writing its data, so that a commit writes its item.
fn stage(names: &Namespace, inode: &Inode) {
    let reservation = names.core.store.reserve(Need { items: 1, data: 0 }).unwrap();
    let txn = names.core.begin(reservation).unwrap();
    inode.change(&txn, |state| state.nbytes += 0);
}

/// Runs `change`, which removes the last name of `inode`, up to its wait for the file's flush; meanwhile the flush
/// stages the inode, and a commit writes it. Returns the state in this commit: names and links.
fn commit_within(
    names: &Namespace,
    top: &Inode,
    (inode, name): (&Inode, &[u8]),
    change: impl FnOnce() + Send,
) -> (Option<InodeNo>, Option<u32>, bool) {
    std::thread::scope(|scope| {
        let flushing = inode.data.editing.lock();
        let changer = scope.spawn(change);
        // From here on the inode cannot be opened: its removal waits for the lock that is held here.
        while !inode.is_going() && !changer.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
        }
        stage(names, inode);
        names.core.store.commit().unwrap();
        let entry = stored(top, name).unwrap();
        let leads_to = entry.map(|entry| InodeNo(entry.location.objectid));
        let seen = (leads_to, links_in_tree(inode), has_orphan(inode));
        drop(flushing);
        changer.join().unwrap();
        seen
    })
}

/// A damaged link count of 0 made the first look-up remove the inode, and its name led nowhere.
#[test]
fn a_count_of_no_links_without_an_orphan_item_removes_nothing() {
    let (names, top, [a, _]) = names();
    let reservation = names.core.store.reserve(Need { items: 1, data: 0 }).unwrap();
    let txn = names.core.begin(reservation).unwrap();
    a.change(&txn, |state| state.nlink = 0);
    drop(txn);
    names.core.store.commit().unwrap();
    names.core.inodes.remove(TreeId::FS, a.ino());

    let read = names.core.inode(TreeId::FS, a.ino()).unwrap();
    drop(names.hold(&read).unwrap());
    names.core.store.commit().unwrap();
    assert_eq!((links_in_tree(&read), has_orphan(&read)), (Some(0), false));
    assert!(stored(&top, b"a").unwrap().is_some());
}

/// A sync was writing a file while it was unlinked: the commit had the name, and an inode without links.
#[test]
fn a_commit_within_an_unlink_has_the_name_and_its_link() {
    let (names, top, [a, _]) = names();
    let unlink = || names.unlink(&top, b"a", Unlink::File).unwrap();
    let seen = commit_within(&names, &top, (&a, b"a"), unlink);
    assert_eq!(seen, (Some(a.ino()), Some(1), false));
    names.core.store.commit().unwrap();
    assert_eq!((links_in_tree(&a), has_orphan(&a)), (None, false));
    assert_eq!(a.state().nlink, 0);
}

/// The same with a rename over the name.
#[test]
fn a_commit_within_a_rename_has_the_replaced_name_and_its_link() {
    let (names, top, [a, b]) = names();
    let at = |name: &'static [u8]| Place { dir: &top, name };
    let rename = || {
        let whiteout = NewInode::whiteout(0, 0);
        names.rename(at(b"b"), at(b"a"), RenameFlags::empty(), &whiteout).unwrap();
    };
    let seen = commit_within(&names, &top, (&a, b"a"), rename);
    assert_eq!(seen, (Some(a.ino()), Some(1), false));
    names.core.store.commit().unwrap();
    assert_eq!((links_in_tree(&a), links_in_tree(&b)), (None, Some(1)));
}

/// An unlink that waited for a commit had discarded data that this commit's sync had promised.
#[test]
fn a_file_keeps_its_data_until_its_name_goes() {
    let (names, top, [a, _]) = names();
    let bytes = [7; 5000];
    crate::file::write_at(&names.core, &a, 0, &bytes).unwrap();
    let need = Need { items: 1, data: 0 };
    let alone = names.core.store.begin_exclusive(need).unwrap();
    std::thread::scope(|scope| {
        let unlink = || names.unlink(&top, b"a", Unlink::File).unwrap();
        let unlink = scope.spawn(unlink);
        while !a.is_going() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(20));
        let mut read = [0; 5000];
        let count = crate::file::read_at(&names.core, &a, 0, &mut read).unwrap();
        assert!(count == bytes.len() && read == bytes, "{count} bytes read");
        drop(alone);
        unlink.join().unwrap();
    });
    assert_eq!(links_in_tree(&a), None);
}
