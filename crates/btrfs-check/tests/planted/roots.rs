//! Subvolumes and quotas.

use btrfs_check::Code;
use btrfs_disk::items::RootRefEntry;
use btrfs_disk::key::item_type::{
    DIR_ITEM, ORPHAN_ITEM, QGROUP_INFO, QGROUP_RELATION, ROOT_BACKREF, ROOT_ITEM, ROOT_REF, UUID_KEY_SUBVOL,
};
use btrfs_disk::key::objectid;
use btrfs_disk::{InodeNo, Key, TreeId};

use super::plant::{Damaged, Plant, Planted, add_u64, get_u64, plant, set_u32, set_u64};

const REFS_AT: usize = 160 + 8 * 7;
const UUID_AT: usize = 160 + 8 * 7 + 4 + 17 + 2 + 8;

fn any(_: &Key, _: &[u8]) -> bool {
    true
}

fn is_subvolume(key: &Key, _: &[u8]) -> bool {
    TreeId(key.objectid).is_subvolume() && key.objectid != 5
}

fn root(image: &Planted, change: impl FnOnce(&mut [u8])) -> Damaged {
    image.change((TreeId::ROOT, ROOT_ITEM), is_subvolume, change)
}

fn gone(image: &Planted, tree: TreeId) -> Damaged {
    image.remove((TreeId::ROOT, ROOT_ITEM), |key, _| key.objectid == tree.0)
}

pub(crate) const PLANTS: &[Plant] = &[
    plant(Code::RootMissing, "of relocation", |image| gone(image, TreeId::DATA_RELOC)),
    plant(Code::RootMissing, "of checksums", |image| gone(image, TreeId::CSUM)),
    plant(Code::RootMissing, "of free space", |image| gone(image, TreeId::FREE_SPACE)),
    plant(Code::RootRefMissing, "gone", |image| image.remove((TreeId::ROOT, ROOT_REF), any)),
    plant(Code::RootBackrefMissing, "gone", |image| image.remove((TreeId::ROOT, ROOT_BACKREF), any)),
    plant(Code::RootRefName, "position", |image| {
        image.change((TreeId::ROOT, ROOT_BACKREF), any, |item| add_u64(item, 8, 1))
    }),
    plant(Code::RootRefName, "name", |image| image.change((TreeId::ROOT, ROOT_REF), any, |item| item[18] ^= 1)),
    plant(Code::RootRefEntry, "another directory", |image| {
        let (key, _) = image.first(TreeId::ROOT, ROOT_REF, any)?;
        let back = Key::new(key.offset, ROOT_BACKREF, key.objectid);
        for key in [key, back] {
            image.editor.change_item(TreeId::ROOT, &key, |item| add_u64(item, 0, 9000)).ok()?;
        }
        image.done()
    }),
    plant(Code::RootRefs, "two", |image| root(image, |item| set_u32(item, REFS_AT, 2))),
    plant(Code::RootRefs, "none", |image| root(image, |item| set_u32(item, REFS_AT, 0))),
    plant(Code::RootNoTree, "a reference", |image| {
        let name = RootRefEntry { dir: InodeNo(256), index: 900, name: b"none" }.build();
        image.put(TreeId::ROOT, Key::new(5, ROOT_REF, 7777), &name)
    }),
    plant(Code::RootNoTree, "an orphan item", |image| {
        image.put(TreeId::ROOT, Key::new(objectid::ORPHAN, ORPHAN_ITEM, 7777), &[])
    }),
    plant(Code::RootOrphan, "no orphan item", |image| root(image, |item| set_u32(item, REFS_AT, 0))),
    plant(Code::RootDefault, "another subvolume", |image| {
        let is_default = |key: &Key, _: &[u8]| key.objectid == objectid::ROOT_TREE_DIR;
        image.change((TreeId::ROOT, DIR_ITEM), is_default, |item| set_u64(item, 0, 7777))
    }),
    plant(Code::UuidMissing, "gone", |image| {
        // The top level is found without it.
        image.remove((TreeId::UUID, UUID_KEY_SUBVOL), |_, item| get_u64(item, 0) != TreeId::FS.0)
    }),
    plant(Code::UuidMissing, "another UUID", |image| root(image, |item| item[UUID_AT] ^= 1)),
    plant(Code::UuidExtra, "another subvolume", |image| {
        image.change((TreeId::UUID, UUID_KEY_SUBVOL), any, |item| set_u64(item, 0, 7777))
    }),
    plant(Code::UuidExtra, "an unknown UUID", |image| {
        image.put(TreeId::UUID, Key::new(u64::MAX - 1, UUID_KEY_SUBVOL, 7), &256u64.to_le_bytes())
    }),
    plant(Code::QuotaMissing, "gone", |image| image.remove((TreeId::QUOTA, QGROUP_INFO), |key, _| key.offset != 5)),
    plant(Code::QuotaReferenced, "more", |image| {
        image.change((TreeId::QUOTA, QGROUP_INFO), any, |item| add_u64(item, 8, 4096))
    }),
    plant(Code::QuotaReferenced, "of a snapshot", |image| {
        image.change((TreeId::QUOTA, QGROUP_INFO), |key, _| key.offset > 256, |item| set_u64(item, 8, 0))
    }),
    plant(Code::QuotaExclusive, "more", |image| {
        image.change((TreeId::QUOTA, QGROUP_INFO), any, |item| add_u64(item, 24, 4096))
    }),
    plant(Code::QuotaRelation, "one side", |image| {
        image.first(TreeId::QUOTA, QGROUP_INFO, any)?;
        image.put(TreeId::QUOTA, Key::new(256, QGROUP_RELATION, 1 << 48 | 100), &[])
    }),
];
