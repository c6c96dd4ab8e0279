//! Reads inodes: their items, or defaults made up for lost items; names from back references; xattrs. Called by
//! `tree_view`, `listing` and `undelete`.

use btrfs_disk::Key;
use btrfs_disk::flags::InodeFlags;
use btrfs_disk::items::{DirEntry, FileExtent, FileKind, InodeExtrefEntry, InodeItem, OnDisk as _, rdev_from_disk};
use btrfs_disk::key::item_type;
use vfs::file_system::{NodeKind, Time};

use crate::state::State;

/// An inode of a tree: (tree, number).
pub(crate) type File = (u64, u64);

/// An inode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inode {
    pub(crate) kind: NodeKind,
    pub(crate) permissions: u32,
    pub(crate) nlink: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) rdev: u32,
    pub(crate) size: u64,
    /// Bytes that its extents should have; `None` if unknown.
    pub(crate) nbytes: Option<u64>,
    /// [atime, mtime, ctime, otime].
    pub(crate) times: [Time; 4],
    /// Whether its data has checksums.
    pub(crate) has_sums: bool,
    pub(crate) is_made_up: bool,
}

/// A back reference: parent directory, index and name.
#[derive(Clone, Debug)]
pub(crate) struct Back {
    pub(crate) parent: u64,
    pub(crate) index: u64,
    pub(crate) name: Vec<u8>,
}

/// Reads an inode. If the item is lost, attributes are made up from its other items.
pub(crate) fn read(state: &State, (tree, ino): File) -> Option<Inode> {
    let key = Key::new(ino, item_type::INODE_ITEM, 0);
    let leaves = state.tree(tree);
    match leaves.get(&state.blocks, key) {
        Some(data) => of_item(InodeItem::parse(&data).ok()?),
        None if leaves.may_lack(key, key) => make_up(state, (tree, ino)),
        None => None,
    }
}

fn of_item(item: &InodeItem) -> Option<Inode> {
    let mode = item.mode.get();
    let time = |time: &btrfs_disk::items::Timespec| Time::new(time.sec.get(), time.nsec.get().min(999_999_999));
    Some(Inode {
        kind: NodeKind::from_mode(mode)?,
        permissions: mode & btrfs_disk::items::mode::PERMISSIONS,
        nlink: item.nlink.get(),
        uid: item.uid.get(),
        gid: item.gid.get(),
        // The 32 bits that a file system serves: 12 of the major number, all of the minor.
        rdev: u32::try_from(rdev_from_disk(item.rdev.get()) & u64::from(u32::MAX)).unwrap_or(0),
        size: item.size.get(),
        nbytes: Some(item.nbytes.get()),
        times: [time(&item.atime), time(&item.mtime), time(&item.ctime), time(&item.otime)],
        has_sums: !item.inode_flags().contains(InodeFlags::NODATASUM),
        is_made_up: false,
    })
}

fn make_up(state: &State, (tree, ino): File) -> Option<Inode> {
    let (mut kind, mut size) = (None, 0);
    let (first, last) = (Key::new(ino, 0, 0), Key::new(ino, u8::MAX, u64::MAX));
    state.tree(tree).items(&state.blocks, first, last, &mut |key, data| {
        match key.item_type {
            item_type::DIR_ITEM | item_type::DIR_INDEX => {
                kind = Some(NodeKind::Directory);
                return false;
            }
            item_type::EXTENT_DATA => {
                kind = Some(NodeKind::File);
                let len = FileExtent::parse(data).map_or(0, |extent| extent.file_len());
                size = key.offset.saturating_add(len);
            }
            _ => {}
        }
        true
    });
    Some(made_up(kind?, size))
}

/// An inode of which only the kind and size are known.
pub(crate) fn made_up(kind: NodeKind, size: u64) -> Inode {
    Inode {
        kind,
        permissions: if kind.is_dir() { 0o755 } else { 0o644 },
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        size,
        nbytes: None,
        times: [Time::default(); 4],
        has_sums: true,
        is_made_up: true,
    }
}

/// Returns at most `max` names from the back references of an inode.
pub(crate) fn names(state: &State, (tree, ino): File, max: usize) -> Vec<Back> {
    let mut names = Vec::new();
    let (first, last) = (Key::new(ino, item_type::INODE_REF, 0), Key::new(ino, item_type::INODE_EXTREF, u64::MAX));
    state.tree(tree).items(&state.blocks, first, last, &mut |key, data| {
        names.extend(backs(key, data));
        names.len() < max
    });
    names.truncate(max);
    names
}

/// The back references in an item.
pub(crate) fn backs(key: Key, data: &[u8]) -> impl Iterator<Item = Back> {
    let entries = InodeExtrefEntry::iter_either(&key, data).flatten();
    entries.map(|entry| Back { parent: entry.parent.0, index: entry.index, name: entry.name.to_vec() })
}

/// Names and values of all attributes.
pub(crate) fn xattrs(state: &State, (tree, ino): File) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    let (first, last) = (Key::new(ino, item_type::XATTR_ITEM, 0), Key::new(ino, item_type::XATTR_ITEM, u64::MAX));
    state.tree(tree).items(&state.blocks, first, last, &mut |_, data| {
        let entries = DirEntry::iter(data).flatten();
        found.extend(entries.map(|entry| (entry.name.to_vec(), entry.data.to_vec())));
        true
    });
    found
}

/// The kind that a directory entry records.
pub(crate) fn node_kind(kind: Option<FileKind>) -> NodeKind {
    match kind {
        Some(FileKind::Directory) => NodeKind::Directory,
        Some(FileKind::CharDevice) => NodeKind::CharDevice,
        Some(FileKind::BlockDevice) => NodeKind::BlockDevice,
        Some(FileKind::Fifo) => NodeKind::Fifo,
        Some(FileKind::Socket) => NodeKind::Socket,
        Some(FileKind::Symlink) => NodeKind::Symlink,
        Some(FileKind::File) | None => NodeKind::File,
    }
}
