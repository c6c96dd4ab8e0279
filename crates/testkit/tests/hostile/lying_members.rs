//! Sets of devices that lie about each other, each with right checksums. Opened in either order, for reading or for
//! writing, a set is refused with an error that names the lie, or shows the right contents; a check and a rescue end.
//! A refused set is not changed by a byte.

use std::sync::Arc;

use blockdev::Device;
use btrfs_disk::flags::{Incompat, SuperFlags};
use btrfs_disk::items::{DevExtent, OnDisk};
use btrfs_disk::key::item_type::{CHUNK_ITEM, DEV_EXTENT};
use btrfs_disk::superblock::DiskSuperblock;
use btrfs_disk::{Key, TreeId, Uuid};

use super::members::{FAR, Pair};
use super::{options, reason};

/// Where parts of a chunk item are: the device, the offset and the UUID of its first stripe, and the offset of its
/// second one.
const FIRST_DEVICE_AT: usize = 48;
const FIRST_OFFSET_AT: usize = 56;
const FIRST_UUID_AT: usize = 64;
const SECOND_OFFSET_AT: usize = 88;

/// How a set of devices is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    /// It is refused, and the error has this text.
    Refused(&'static str),
    /// In one order it is refused, in the other one the lie is not seen, and the contents are right.
    InOneOrder,
    /// It is read, and a check finds the lie.
    Found,
}

struct Lie {
    name: &'static str,
    tell: fn(&Pair),
    taken: Taken,
}

fn last_chunk(pair: &Pair) -> Key {
    let chunks = pair.edit.items(TreeId::CHUNK, Key::MIN..=Key::MAX).unwrap();
    chunks.iter().rfind(|(key, _)| key.item_type == CHUNK_ITEM).unwrap().0
}

fn change_chunk(pair: &Pair, change: impl FnOnce(&mut [u8])) {
    pair.edit.change_item(TreeId::CHUNK, &last_chunk(pair), change).unwrap();
}

fn put(item: &mut [u8], at: usize, value: u64) {
    item[at..][..8].copy_from_slice(&value.to_le_bytes());
}

fn number(item: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(item[at..][..8].try_into().unwrap())
}

fn change_extent(pair: &Pair, change: impl FnOnce(&mut DevExtent)) {
    let extents = pair.edit.items(TreeId::DEV, Key::MIN..=Key::MAX).unwrap();
    let (key, _) = extents.iter().find(|(key, _)| key.item_type == DEV_EXTENT).unwrap();
    let change = |bytes: &mut [u8]| change(DevExtent::parse_mut(bytes).unwrap());
    pair.edit.change_item(TreeId::DEV, key, change).unwrap();
}

fn shift_system_chunks(fields: &mut DiskSuperblock) {
    // Behind the key of the first entry, and the fixed part of its item.
    put(&mut fields.sys_chunk_array, 17 + FIRST_OFFSET_AT, 100 << 20);
    put(&mut fields.sys_chunk_array, 17 + SECOND_OFFSET_AT, 110 << 20);
}

const LIES: &[Lie] = &[
    Lie {
        name: "both are device 1",
        tell: |pair| pair.change_second(|fields| fields.dev_item.devid = 1.into()),
        taken: Taken::Refused("both device 1"),
    },
    Lie {
        name: "it is a device that there is not",
        tell: |pair| pair.change_second(|fields| fields.dev_item.devid = 9.into()),
        taken: Taken::Refused("it was removed or replaced"),
    },
    Lie {
        name: "it has another UUID",
        tell: |pair| pair.change_second(|fields| fields.dev_item.uuid = Uuid([7; 16])),
        taken: Taken::Refused("UUID of a device"),
    },
    Lie {
        name: "it is larger than its file",
        tell: |pair| pair.change_second(|fields| fields.dev_item.total_bytes = FAR.into()),
        taken: Taken::Refused("it was cut short"),
    },
    Lie {
        name: "the chunk tree says that it is larger than its file",
        tell: |pair| pair.change_item(2, |item| item.total_bytes = FAR.into()),
        taken: Taken::Found,
    },
    Lie {
        name: "there are three devices",
        tell: |pair| pair.change_both(|fields| fields.num_devices = 3.into()),
        taken: Taken::Refused("number of devices"),
    },
    Lie {
        name: "there is one device",
        tell: |pair| pair.change_both(|fields| fields.num_devices = 1.into()),
        taken: Taken::Refused("number of devices"),
    },
    Lie {
        name: "only the second one says that there are 5 devices",
        tell: |pair| pair.change_second(|fields| fields.num_devices = 5.into()),
        taken: Taken::Refused("number of devices"),
    },
    Lie {
        name: "it is far ahead, with the same trees",
        tell: |pair| pair.change_second(|fields| fields.generation = (fields.generation.get() + 7).into()),
        taken: Taken::Refused("it missed commits"),
    },
    Lie {
        name: "it is one commit ahead, with the same trees",
        tell: |pair| pair.change_second(|fields| fields.generation = (fields.generation.get() + 1).into()),
        taken: Taken::Refused("generation"),
    },
    Lie {
        name: "it missed commits",
        tell: |pair| {
            pair.edit.change_superblock(|fields| fields.generation = (fields.generation.get() + 5).into()).unwrap();
        },
        taken: Taken::Refused("it missed commits"),
    },
    Lie {
        name: "it has another root tree of the same commit",
        tell: |pair| pair.change_second(|fields| fields.root = (fields.root.get() + 4096).into()),
        taken: Taken::Refused("written apart"),
    },
    Lie {
        name: "its sectors are larger",
        tell: |pair| pair.change_second(|fields| fields.sectorsize = 16384.into()),
        taken: Taken::Refused("no superblock: corrupt node size"),
    },
    Lie {
        name: "its tree blocks are larger",
        tell: |pair| pair.change_second(|fields| (fields.nodesize, fields.leafsize) = (8192.into(), 8192.into())),
        taken: Taken::Refused("node size"),
    },
    Lie {
        name: "it has other checksums",
        tell: |pair| pair.change_second(|fields| fields.csum_type = 1.into()),
        taken: Taken::Refused("checksum"),
    },
    Lie {
        name: "it is of another file system",
        tell: |pair| pair.change_second(|fields| (fields.fsid, fields.dev_item.fsid) = (Uuid([5; 16]), Uuid([5; 16]))),
        taken: Taken::Refused("give the devices of one file system"),
    },
    Lie {
        name: "its metadata is of another file system",
        tell: |pair| {
            pair.change_second(|fields| {
                fields.incompat_flags = (fields.incompat_flags.get() | Incompat::METADATA_UUID.bits()).into();
                fields.metadata_uuid = Uuid([6; 16]);
            });
        },
        taken: Taken::Refused("UUID"),
    },
    Lie {
        name: "it says that it is a seed of another file system",
        tell: |pair| {
            pair.change_second(|fields| {
                fields.flags = (fields.flags.get() | SuperFlags::SEEDING.bits()).into();
                (fields.fsid, fields.dev_item.fsid) = (Uuid([5; 16]), Uuid([5; 16]));
            });
        },
        taken: Taken::Refused("file system"),
    },
    Lie {
        name: "its system chunks lie elsewhere",
        tell: |pair| pair.change_second(shift_system_chunks),
        taken: Taken::InOneOrder,
    },
    Lie {
        name: "a chunk lies on a device that there is not",
        tell: |pair| change_chunk(pair, |item| put(item, FIRST_DEVICE_AT, 77)),
        taken: Taken::Refused("device of a chunk"),
    },
    Lie {
        name: "a chunk lies on a device with another UUID",
        tell: |pair| change_chunk(pair, |item| item[FIRST_UUID_AT..][..16].fill(9)),
        taken: Taken::Refused("device UUID of a chunk"),
    },
    Lie {
        name: "a chunk lies behind the end of the second device",
        tell: |pair| {
            change_chunk(pair, |item| {
                put(item, FIRST_DEVICE_AT, 2);
                item[FIRST_UUID_AT..][..16].fill(2);
                put(item, FIRST_OFFSET_AT, 59 << 20);
            });
        },
        taken: Taken::Refused("end of a chunk on its device"),
    },
    Lie {
        name: "a chunk lies where another one does",
        tell: |pair| {
            let chunks = pair.edit.items(TreeId::CHUNK, Key::MIN..=Key::MAX).unwrap();
            let (_, first) = chunks.iter().find(|(key, _)| key.item_type == CHUNK_ITEM).unwrap();
            let offset = number(first, FIRST_OFFSET_AT);
            change_chunk(pair, |item| put(item, FIRST_OFFSET_AT, offset));
        },
        taken: Taken::Refused("device offset of a chunk"),
    },
    Lie {
        name: "both copies of the system chunk are the same bytes",
        tell: |pair| {
            pair.change_both(|fields| {
                let offset = number(&fields.sys_chunk_array, 17 + FIRST_OFFSET_AT);
                put(&mut fields.sys_chunk_array, 17 + SECOND_OFFSET_AT, offset);
            });
        },
        taken: Taken::Refused("device offset of a chunk"),
    },
    Lie {
        name: "two extents of a device overlap",
        tell: |pair| change_extent(pair, |extent| extent.length = (64 << 20).into()),
        taken: Taken::Refused("start of a device extent"),
    },
    Lie {
        name: "an extent of a device belongs to another chunk",
        tell: |pair| change_extent(pair, |extent| extent.chunk_offset = (extent.chunk_offset.get() + (4 << 20)).into()),
        taken: Taken::Found,
    },
];

fn bytes_of(devices: &[Arc<dyn Device>]) -> Vec<Vec<u8>> {
    let read = |device: &Arc<dyn Device>| {
        let mut bytes = vec![0; usize::try_from(device.size_bytes()).unwrap()];
        device.read_at(0, &mut bytes).unwrap();
        bytes
    };
    devices.iter().map(read).collect()
}

/// Opens the set for reading, and for writing where that fails; true for a set that is refused.
fn is_refused(devices: &[Arc<dyn Device>], lie: &Lie) -> bool {
    let name = lie.name;
    let refused = match options().read_only(true).open_devices(devices.to_vec()) {
        Ok(volume) => {
            assert_eq!(volume.read("file").unwrap(), b"contents", "{name}");
            None
        }
        Err(error) => Some(reason(&error)),
    };
    if let Some(text) = &refused {
        if let Taken::Refused(why) = lie.taken {
            assert!(text.contains(why), "{name}: {text}");
        }
        for degraded in [false, true] {
            let opened = options().degraded(degraded).open_devices(devices.to_vec());
            assert!(opened.is_err(), "{name}: opened for writing, degraded: {degraded}");
        }
        let _ = options().degraded(true).read_only(true).open_devices(devices.to_vec());
    }
    let check = btrfs_check::check(devices, &btrfs_check::Options::default(), &());
    let is_found = check.is_err() || !check.unwrap().counts.is_empty();
    assert!(is_found || lie.taken != Taken::Found, "{name}: a check finds nothing");
    if let Ok(rescue) = btrfs_rescue::Rescue::open(devices, 1, Arc::new(())) {
        // The contents differ; it only has to end.
        let _ = rescue.view(None).map(|view| view.volume().read("file"));
    }
    refused.is_some()
}

#[test]
fn devices_that_lie_about_each_other_are_refused_and_not_written() {
    let mut refused = 0usize;
    for lie in LIES {
        let pair = Pair::new();
        (lie.tell)(&pair);
        let mut devices = pair.devices();
        let before = bytes_of(&devices);
        let mut orders = [false; 2];
        for order in &mut orders {
            *order = is_refused(&devices, lie);
            devices.reverse();
        }
        assert!(bytes_of(&devices) == before, "{}: something was written", lie.name);
        match lie.taken {
            Taken::Refused(_) => assert_eq!(orders, [true; 2], "{}", lie.name),
            Taken::InOneOrder => assert_ne!(orders, [true; 2], "{}", lie.name),
            Taken::Found => assert_eq!(orders, [false; 2], "{}", lie.name),
        }
        refused += usize::from(orders == [true; 2]);
    }
    assert!(refused >= 20, "{refused} sets are refused");
}
