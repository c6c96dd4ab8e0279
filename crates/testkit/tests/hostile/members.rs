//! Volumes on several devices with wrong superblocks and device items: number and identity of devices, positions of
//! chunks. Each is refused before anything large is allocated, and a check and a rescue end.

use std::sync::Arc;

use blockdev::Device;
use blockdev::backends::MemoryDevice;
use btrfs::{Error, MemberError, Volume};
use btrfs_disk::items::{DevItem, OnDisk};
use btrfs_disk::key::item_type::{CHUNK_ITEM, DEV_ITEM};
use btrfs_disk::key::objectid;
use btrfs_disk::superblock::{DiskSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use btrfs_disk::{Key, TreeId, Uuid};
use testkit::hostile::Editor;

use super::{Image, options, reason};

/// Too few for a mirror of the superblock.
const SECOND_BYTES: u64 = 60 << 20;
pub(super) const FAR: u64 = 1 << 60;

/// A volume on two devices; the second one is empty but for its superblock.
pub(super) struct Pair {
    pub(super) first: Image,
    pub(super) second: Arc<MemoryDevice>,
    pub(super) edit: Editor,
}

pub(super) fn dev_item(id: u64) -> Key {
    Key::new(objectid::DEV_ITEMS, DEV_ITEM, id)
}

impl Pair {
    pub(super) fn new() -> Self {
        let first = Image::new(|volume| volume.write("file", "contents").unwrap());
        let edit = first.edit();
        let second = Arc::new(MemoryDevice::new(SECOND_BYTES));
        let item = edit.superblock().unwrap().dev_item;
        let item = DevItem {
            devid: 2.into(),
            uuid: Uuid([2; 16]),
            total_bytes: SECOND_BYTES.into(),
            bytes_used: 0.into(),
            ..item
        };
        edit.put_item(TreeId::CHUNK, &dev_item(2), item.bytes()).unwrap();
        let more = |fields: &mut DiskSuperblock| {
            fields.num_devices = 2.into();
            fields.total_bytes = (fields.total_bytes.get() + SECOND_BYTES).into();
            let (generation, total_bytes) = (fields.generation, fields.total_bytes);
            for backup in fields.super_roots.iter_mut().filter(|backup| backup.tree_root_gen == generation) {
                (backup.num_devices, backup.total_bytes) = (2.into(), total_bytes);
            }
        };
        edit.change_superblock(more).unwrap();
        let mut bytes = vec![0; SUPERBLOCK_SIZE];
        first.device.read_at(SUPERBLOCK_OFFSET, &mut bytes).unwrap();
        second.write_at(SUPERBLOCK_OFFSET, &[&bytes]).unwrap();
        let pair = Self { first, second, edit };
        pair.change_second(|fields| fields.dev_item = item);
        pair
    }

    pub(super) fn devices(&self) -> Vec<Arc<dyn Device>> {
        vec![self.first.any_device(), self.second.clone()]
    }

    pub(super) fn change_second(&self, change: impl Fn(&mut DiskSuperblock)) {
        let edit = Editor::new(self.second.clone()).unwrap();
        edit.change_superblock_at(SUPERBLOCK_OFFSET, change).unwrap();
    }

    pub(super) fn change_both(&self, change: impl Fn(&mut DiskSuperblock)) {
        self.edit.change_superblock(&change).unwrap();
        self.change_second(change);
    }

    pub(super) fn change_item(&self, id: u64, change: impl FnOnce(&mut DevItem)) {
        let change = |bytes: &mut [u8]| change(DevItem::parse_mut(bytes).unwrap());
        self.edit.change_item(TreeId::CHUNK, &dev_item(id), change).unwrap();
    }

    fn open(&self) -> vfs::Result<Volume> {
        options().read_only(true).open_devices(self.devices())
    }

    /// The refusal of the volume, which a check and a rescue have to survive as well.
    fn refused(&self) -> vfs::Error {
        let error = self.open().expect_err("opened");
        assert!(options().open_devices(self.devices()).is_err(), "opened for writing");
        // Their results differ; they only have to end.
        let check = btrfs_check::check(&self.devices(), &btrfs_check::Options::default(), &());
        assert!(check.is_err() || !check.unwrap().counts.is_empty(), "a check finds nothing");
        if let Ok(rescue) = btrfs_rescue::Rescue::open(&self.devices(), 1, Arc::new(())) {
            assert_eq!(rescue.view(None).unwrap().volume().read("file").unwrap(), b"contents");
        }
        error
    }
}

#[test]
fn a_pair_that_does_not_lie_is_read_and_written() {
    let pair = Pair::new();
    let is_clean = || {
        let found = btrfs_check::check(&pair.devices(), &btrfs_check::Options::default(), &()).unwrap();
        assert!(found.counts.is_empty(), "{:?}", found.counts);
    };
    assert_eq!(pair.open().unwrap().read("file").unwrap(), b"contents");
    is_clean();
    let volume = options().open_devices(pair.devices()).unwrap();
    volume.write("second", "more").unwrap();
    drop(volume);
    assert_eq!(pair.open().unwrap().read("second").unwrap(), b"more");
    is_clean();
    for read_only in [false, true] {
        let error = options().read_only(read_only).open_devices(vec![pair.first.any_device()]).unwrap_err();
        assert!(matches!(error.cause(), Some(Error::Members(_))), "{error}");
    }
    let alone = options().read_only(true).open_devices(vec![pair.first.any_device()]).unwrap_err();
    let Some(Error::Members(what)) = alone.cause() else { panic!("{alone}") };
    assert!(matches!(&**what, MemberError::Missing { present: 1, count: 2, missing } if missing.len() == 1), "{what}");
    let degraded = options().read_only(true).degraded(true).open_devices(vec![pair.first.any_device()]).unwrap();
    assert_eq!(degraded.read("file").unwrap(), b"contents");
    assert!(degraded.info().unwrap().devices.iter().any(|device| device.id == 2 && device.is_missing));
}

#[test]
fn numbers_of_devices_that_are_not_true_are_refused() {
    for count in [0, 1, 3, FAR, u64::MAX] {
        let pair = Pair::new();
        pair.change_both(|fields| fields.num_devices = count.into());
        let error = reason(&pair.refused());
        assert!(error.contains("number of devices"), "{count}: {error}");
    }
    // One device that says the same.
    let image = Image::new(|_| ());
    image.edit().change_superblock(|fields| fields.num_devices = FAR.into()).unwrap();
    let error = reason(&options().read_only(true).open_device(image.any_device()).unwrap_err());
    assert!(error.contains("number of devices"), "{error}");
}

#[test]
fn devices_that_are_not_what_they_say_are_refused() {
    let pair = Pair::new();
    pair.change_second(|fields| fields.dev_item.devid = 1.into());
    let error = pair.refused();
    assert!(
        matches!(error.cause(), Some(Error::Members(what)) if matches!(**what, MemberError::Repeated { .. })),
        "{error}"
    );

    let pair = Pair::new();
    pair.change_second(|fields| fields.dev_item.devid = 9.into());
    let error = pair.refused();
    assert!(
        matches!(error.cause(), Some(Error::Members(what)) if matches!(**what, MemberError::Removed { .. })),
        "{error}"
    );

    let pair = Pair::new();
    pair.change_second(|fields| fields.dev_item.total_bytes = FAR.into());
    assert!(reason(&pair.refused()).contains("it was cut short"));

    let pair = Pair::new();
    pair.change_item(2, |item| item.uuid = Uuid([3; 16]));
    assert!(reason(&pair.refused()).contains("UUID of a device"));

    let pair = Pair::new();
    pair.change_item(2, |item| item.devid = 1.into());
    pair.refused();
}

#[test]
fn chunks_on_devices_that_there_are_not_are_refused() {
    let pair = Pair::new();
    let chunks = pair.edit.items(TreeId::CHUNK, Key::MIN..=Key::MAX).unwrap();
    let (last, _) = chunks.iter().rfind(|(key, _)| key.item_type == CHUNK_ITEM).unwrap();
    /// Where the first stripe of a chunk item says on which device it is.
    const FIRST_DEVICE_AT: usize = 48;
    let elsewhere = |item: &mut [u8]| item[FIRST_DEVICE_AT..][..8].copy_from_slice(&77u64.to_le_bytes());
    pair.edit.change_item(TreeId::CHUNK, last, elsewhere).unwrap();
    let error = reason(&pair.open().unwrap_err());
    assert!(error.contains("device of a chunk"), "{error}");
    let degraded = options().read_only(true).degraded(true).open_devices(pair.devices()).unwrap_err();
    assert!(reason(&degraded).contains("device of a chunk"), "{degraded}");
}
