//! Inodes.

use btrfs_check::Code;
use btrfs_disk::items::{FileKind, InodeItem, InodeRefEntry, OnDisk as _};
use btrfs_disk::key::item_type::{
    DIR_INDEX, DIR_ITEM, EXTENT_DATA, INODE_ITEM, INODE_REF, ORPHAN_ITEM, TEMPORARY_ITEM, VERITY_DESC_ITEM,
    VERITY_MERKLE_ITEM,
};
use btrfs_disk::key::objectid;
use btrfs_disk::{Key, TreeId};

use super::plant::{Damaged, Plant, Planted, add_u64, get_u64, plant, set_u32, set_u64};

const INODE: (TreeId, u8) = (TreeId::FS, INODE_ITEM);
const NLINK_AT: usize = 40;
const MODE_AT: usize = 52;
const FLAGS_AT: usize = 64;
const RAM_BYTES_AT: usize = 8;
/// In an entry of a directory: the type behind a location, a transaction and two lengths.
const DIR_TYPE_AT: usize = 29;

fn kind(item: &[u8]) -> Option<FileKind> {
    InodeItem::parse(item).ok()?.kind()
}

fn is_file(_: &Key, item: &[u8]) -> bool {
    kind(item) == Some(FileKind::File)
}

fn is_dir(key: &Key, item: &[u8]) -> bool {
    kind(item) == Some(FileKind::Directory) && key.objectid != objectid::FIRST_FREE
}

fn is_link(_: &Key, item: &[u8]) -> bool {
    kind(item) == Some(FileKind::Symlink)
}

/// A compressed extent outside its item.
pub(crate) fn is_compressed(_: &Key, item: &[u8]) -> bool {
    item[20] == 1 && item[16] != 0 && get_u64(item, 21) != 0
}

/// An entry of one name that leads to an inode.
fn leads_to_inode(_: &Key, item: &[u8]) -> bool {
    item[8] == INODE_ITEM
}

fn below_root(key: &Key, _: &[u8]) -> bool {
    key.objectid != objectid::FIRST_FREE
}

/// The files that have an extent behind the first, by key.
fn with_follower(image: &Planted) -> Option<Key> {
    let items = image.items(TreeId::FS);
    let extents: Vec<&Key> = items.iter().map(|(key, _)| key).filter(|key| key.item_type == EXTENT_DATA).collect();
    extents.windows(2).find(|pair| pair[0].objectid == pair[1].objectid).map(|pair| *pair[0])
}

fn inode(image: &Planted, is_wanted: fn(&Key, &[u8]) -> bool, change: impl FnOnce(&mut [u8])) -> Damaged {
    image.change(INODE, is_wanted, change)
}

pub(crate) const PLANTS: &[Plant] = &[
    plant(Code::FileInodeMissing, "of a file", |image| image.remove(INODE, is_file)),
    plant(Code::FileInodeMissing, "of a directory", |image| image.remove(INODE, is_dir)),
    plant(Code::FileLinkCount, "of a file", |image| inode(image, is_file, |item| set_u32(item, NLINK_AT, 7))),
    plant(Code::FileLinkCount, "of a directory", |image| inode(image, is_dir, |item| set_u32(item, NLINK_AT, 0))),
    plant(Code::FileRefNoEntry, "no position", |image| image.remove((TreeId::FS, DIR_INDEX), leads_to_inode)),
    plant(Code::FileRefNoEntry, "another position", |image| {
        image.change((TreeId::FS, INODE_REF), below_root, |item| add_u64(item, 0, 500))
    }),
    plant(Code::FileEntryNoRef, "a name is gone", |image| image.remove((TreeId::FS, INODE_REF), below_root)),
    plant(Code::FileEntryNoRef, "another name", |image| {
        image.change((TreeId::FS, INODE_REF), below_root, |item| item[10] ^= 1)
    }),
    plant(Code::FileEntryNoInode, "another inode", |image| {
        image.change((TreeId::FS, DIR_INDEX), leads_to_inode, |item| set_u64(item, 0, 99_999))
    }),
    plant(Code::FileEntryType, "by name and position", |image| {
        let entry =
            image.first(TreeId::FS, DIR_INDEX, |key, item| leads_to_inode(key, item) && item[DIR_TYPE_AT] == 1)?;
        image.editor.change_item(TreeId::FS, &entry.0, |item| item[DIR_TYPE_AT] = 4).ok()?;
        let is_same = |key: &Key, item: &[u8]| key.objectid == entry.0.objectid && item[30..] == entry.1[30..];
        image.change((TreeId::FS, DIR_ITEM), is_same, |item| item[DIR_TYPE_AT] = 4)
    }),
    plant(Code::FileEntryType, "by position", |image| {
        image.change((TreeId::FS, DIR_INDEX), leads_to_inode, |item| item[DIR_TYPE_AT] = 6)
    }),
    plant(Code::FileEntryType, "another mode", |image| inode(image, is_link, |item| set_u32(item, MODE_AT, 0o140_777))),
    plant(Code::FileDirItemMissing, "gone", |image| image.remove((TreeId::FS, DIR_ITEM), leads_to_inode)),
    plant(Code::FileDirIndexMissing, "gone", |image| image.remove((TreeId::FS, DIR_INDEX), leads_to_inode)),
    plant(Code::FileDirSize, "more", |image| inode(image, is_dir, |item| add_u64(item, 16, 2))),
    plant(Code::FileDirSize, "nothing", |image| {
        image.change(INODE, |key, item| is_dir(key, item) && get_u64(item, 16) > 0, |item| set_u64(item, 16, 0))
    }),
    plant(Code::FileDirLinks, "a second name", |image| {
        let (key, _) = image.first(TreeId::FS, INODE_ITEM, is_dir)?;
        let name = InodeRefEntry { index: 900, name: b"again" }.build();
        image.put(TreeId::FS, Key::new(key.objectid, INODE_REF, key.objectid + 1), &name)
    }),
    plant(Code::FileRootDir, "a file", |image| {
        let key = Key::new(objectid::FIRST_FREE, INODE_ITEM, 0);
        image.editor.change_item(TreeId::FS, &key, |item| set_u32(item, MODE_AT, 0o100_644)).ok()?;
        image.done()
    }),
    plant(Code::FileNbytes, "more", |image| inode(image, is_file, |item| add_u64(item, 24, 4096))),
    plant(Code::FileNbytes, "of a link", |image| inode(image, is_link, |item| add_u64(item, 24, 1))),
    plant(Code::FileExtentOverlap, "a longer extent", |image| {
        let key = with_follower(image)?;
        image
            .editor
            .change_item(TreeId::FS, &key, |item| {
                if item[20] != 0 {
                    add_u64(item, 45, 1 << 20);
                }
            })
            .ok()?;
        image.done()
    }),
    plant(Code::FileHole, "an item is gone", |image| {
        let fields = image.editor.superblock().ok()?;
        if fields.incompat().contains(btrfs_disk::flags::Incompat::NO_HOLES) {
            return None;
        }
        image.remove((TreeId::FS, EXTENT_DATA), |_, item| item[20] == 1 && get_u64(item, 21) == 0)
    }),
    plant(Code::FileHole, "a larger file", |image| {
        let fields = image.editor.superblock().ok()?;
        if fields.incompat().contains(btrfs_disk::flags::Incompat::NO_HOLES) {
            return None;
        }
        inode(image, is_file, |item| add_u64(item, 16, 1 << 20))
    }),
    plant(Code::FileKindItems, "a fifo with data", |image| {
        inode(image, is_file, |item| set_u32(item, MODE_AT, 0o010_644))
    }),
    plant(Code::FileKindItems, "a file with names", |image| {
        inode(image, is_dir, |item| set_u32(item, MODE_AT, 0o100_644))
    }),
    plant(Code::FileDirDouble, "the same entry again", |image| {
        let is_one = |key: &Key, item: &[u8]| leads_to_inode(key, item) && key.objectid == objectid::FIRST_FREE;
        let (key, item) = image.taken(TreeId::FS, DIR_ITEM, is_one)?;
        image.put(TreeId::FS, key, &[item.as_slice(), &item].concat())
    }),
    plant(Code::FileItem, "an unknown type", |image| {
        let (key, _) = image.first(TreeId::FS, INODE_ITEM, is_file)?;
        image.put(TreeId::FS, Key::new(key.objectid, 8, objectid::FIRST_FREE), &[])
    }),
    plant(Code::FileItem, "of another tree", |image| {
        let (key, _) = image.first(TreeId::FS, INODE_ITEM, is_dir)?;
        image.put(TreeId::FS, Key::new(key.objectid, TEMPORARY_ITEM, 0), &[0; 16])
    }),
    plant(Code::FileFlags, "immutable", |image| inode(image, is_link, |item| item[FLAGS_AT] |= 1 << 6)),
    plant(Code::FileFlags, "append only", |image| inode(image, is_link, |item| item[FLAGS_AT] |= 1 << 7)),
    plant(Code::FileCompressed, "flags of the inode", |image| {
        let (key, _) = image.first(TreeId::FS, EXTENT_DATA, is_compressed)?;
        let item = Key::new(key.objectid, INODE_ITEM, 0);
        image.editor.change_item(TreeId::FS, &item, |item| item[FLAGS_AT] |= 1).ok()?;
        image.done()
    }),
    plant(Code::FileInodeCache, "an inode of it", |image| {
        let (_, item) = image.first(TreeId::FS, INODE_ITEM, is_file)?;
        image.put(TreeId::FS, Key::new(objectid::FREE_INO, INODE_ITEM, 0), &item)
    }),
    plant(Code::FileStream, "more than is read", |image| {
        let (key, _) = image.first(TreeId::FS, EXTENT_DATA, is_compressed)?;
        image.editor.change_item(TreeId::FS, &key, |item| set_u64(item, RAM_BYTES_AT, 1 << 20)).ok()?;
        image.done()
    }),
    plant(Code::FileStream, "noise in an item", |image| {
        image.change((TreeId::FS, EXTENT_DATA), |_, item| item[20] == 0 && item.len() > 100, |item| item[16] = 3)
    }),
    plant(Code::FileStream, "a length that takes all memory", |image| {
        image.change(
            (TreeId::FS, EXTENT_DATA),
            |_, item| item[20] == 0 && item.len() > 100,
            |item| {
                item[16] = 1;
                set_u64(item, RAM_BYTES_AT, 1 << 40);
            },
        )
    }),
    plant(Code::FileSymlink, "shorter", |image| inode(image, is_link, |item| add_u64(item, 16, u64::MAX))),
    plant(Code::FileSymlink, "longer", |image| inode(image, is_link, |item| add_u64(item, 16, 1))),
    plant(Code::FileVerity, "without a descriptor", |image| {
        image.remove((TreeId::FS, VERITY_DESC_ITEM), |key, _| key.offset == 0)
    }),
    plant(Code::FileVerity, "for another size", |image| {
        image.change((TreeId::FS, VERITY_DESC_ITEM), |key, _| key.offset == 1, |item| add_u64(item, 8, 1))
    }),
    plant(Code::FileVerity, "without a part of the tree", |image| {
        image.remove((TreeId::FS, VERITY_MERKLE_ITEM), |key, _| key.offset > 0)
    }),
    plant(Code::FileVerity, "for a directory", |image| inode(image, is_dir, |item| item[FLAGS_AT + 4] |= 1)),
    plant(Code::FileOrphan, "without a name", |image| {
        let (key, _) = image.taken(TreeId::FS, INODE_REF, below_root)?;
        let item = Key::new(key.objectid, INODE_ITEM, 0);
        image.editor.change_item(TreeId::FS, &item, |item| set_u32(item, NLINK_AT, 0)).ok()?;
        image.done()
    }),
    plant(Code::FileOrphanItem, "of no inode", |image| {
        image.put(TreeId::FS, Key::new(objectid::ORPHAN, ORPHAN_ITEM, 88_888), &[])
    }),
];
