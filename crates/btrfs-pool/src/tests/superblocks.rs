//! The authoritative superblock copy, and refused features.

use super::*;
use btrfs_disk::flags::{CompatRo, Incompat, SuperFlags};
use btrfs_disk::items::{self, ChunkItem, OnDisk as _};
use btrfs_disk::key::{DiskKey, item_type};
use btrfs_disk::superblock::{DiskSuperblock, SUPERBLOCK_SIZE, mirror_offset};

type Change<'a> = &'a dyn Fn(&mut DiskSuperblock);

const ZEROS: [u8; SUPERBLOCK_SIZE] = [0; SUPERBLOCK_SIZE];

/// The fields of a plausible file system on a device of 80 MiB, with one system chunk.
fn fields() -> DiskSuperblock {
    let mut fields = *DiskSuperblock::parse(&ZEROS).unwrap();
    fields.fsid = uuid(77);
    fields.generation.set(8);
    fields.root.set(9 * M);
    fields.chunk_root.set(8 * M);
    fields.chunk_root_generation.set(8);
    fields.total_bytes.set(80 * M);
    fields.bytes_used.set(M);
    fields.root_dir_objectid.set(6);
    fields.num_devices.set(1);
    for size in [&mut fields.sectorsize, &mut fields.stripesize] {
        size.set(4096);
    }
    for size in [&mut fields.nodesize, &mut fields.leafsize] {
        size.set(16384);
    }
    fields.incompat_flags.set((Incompat::MIXED_BACKREF | Incompat::SKINNY_METADATA).bits());
    fields.flags.set(SuperFlags::WRITTEN.bits());
    fields.dev_item.devid.set(1);
    fields.dev_item.total_bytes.set(80 * M);
    fields.dev_item.bytes_used.set(8 * M);
    fields.dev_item.sector_size.set(4096);
    fields.dev_item.uuid = uuid(1);
    fields.dev_item.fsid = uuid(77);
    fields
}

pub(super) fn superblock(change: impl FnOnce(&mut DiskSuperblock)) -> Superblock {
    let mut fields = fields();
    let array = system_chunk(1, M);
    fields.sys_chunk_array[..array.len()].copy_from_slice(&array);
    fields.sys_chunk_array_size.set(u32::try_from(array.len()).unwrap());
    change(&mut fields);
    Superblock::new(fields).unwrap()
}

pub(super) fn system_chunk(device: u64, offset: u64) -> Vec<u8> {
    const ZEROS: [u8; 48] = [0; 48];
    let mut chunk = *items::Chunk::parse(&ZEROS).unwrap();
    chunk.length.set(8 * M);
    chunk.owner.set(2);
    chunk.stripe_len.set(items::STRIPE_LEN);
    chunk.chunk_type.set(BlockGroupFlags::SYSTEM.bits());
    chunk.sector_size.set(4096);
    chunk.sub_stripes.set(1);
    let stripe = items::Stripe { devid: device.into(), offset: offset.into(), dev_uuid: uuid(device) };
    let key = DiskKey::from(btrfs_disk::Key::new(256, item_type::CHUNK_ITEM, 8 * M));
    let mut bytes = key.objectid.to_bytes().to_vec();
    bytes.push(key.item_type);
    bytes.extend(key.offset.to_bytes());
    bytes.extend(ChunkItem::build(&chunk, &[stripe]));
    bytes
}

pub(super) fn put(device: &MemoryDevice, superblock: &Superblock, mirror: usize) {
    let offset = mirror_offset(mirror).unwrap();
    device.write_at(offset, &[superblock.sealed(offset).unwrap().bytes()]).unwrap();
}

fn open(device: &Arc<MemoryDevice>, access: Intent) -> Result<(Pool, FsSuper)> {
    let how = Opening { access, ..Opening::default() };
    Pool::open(&[Arc::clone(device) as Arc<dyn Device>], &how, Arc::new(Workers::inline()))
}

fn on_disk(change: impl FnOnce(&mut DiskSuperblock)) -> Arc<MemoryDevice> {
    let device = MemoryDevice::new(80 * M);
    put(&device, &superblock(change), 0);
    Arc::new(device)
}

/// The error message of an open, if it fails.
fn refusal(access: Intent, change: impl FnOnce(&mut DiskSuperblock)) -> Option<String> {
    open(&on_disk(change), access).err().map(|error| error.to_string())
}

#[test]
fn a_pool_knows_its_system_chunks_when_open() {
    let (pool, superblock) = open(&on_disk(|_| ()), Intent::ReadWrite).unwrap();
    assert_eq!(superblock.generation(), btrfs_disk::Generation(8));
    assert_eq!(pool.node_bytes(), 16384);
    let chunks = pool.chunks().all();
    assert_eq!((chunks.len(), chunks[0].start()), (1, Logical(8 * M)));
    assert_eq!(pool.devices().get(DevId(1)).unwrap().total_bytes(), 80 * M);
}

#[test]
fn every_copy_that_fits_is_written() {
    let device = on_disk(|_| ());
    let (pool, mut superblock) = open(&device, Intent::ReadWrite).unwrap();
    superblock.fields_mut().generation.set(9);
    pool.write_superblock(&superblock).unwrap();
    let copies = supers::Copies::read(&*device);
    let found: Vec<_> = copies.iter().map(|(offset, copy)| (*offset, copy.as_ref().unwrap().generation().0)).collect();
    assert_eq!(found, [(64 * K, 9), (64 * M, 9)]);

    pool.devices().get(DevId(1)).unwrap().set_total_bytes(64 * M + 4096);
    superblock.fields_mut().generation.set(10);
    pool.write_superblock(&superblock).unwrap();
    let copies = supers::Copies::read(&*device);
    let mirror = copies.iter().nth(1).unwrap().1.as_ref().unwrap();
    assert_eq!(mirror.generation().0, 9, "a mirror that ends with the device is left out");
}

#[test]
fn a_damaged_primary_is_stood_in_for_only_when_reading() {
    let device = on_disk(|_| ());
    put(&device, &superblock(|fields| fields.generation.set(6)), 1);
    device.write_at(64 * K + 2000, &[b"rot"]).unwrap();
    assert!(matches!(open(&device, Intent::ReadWrite), Err(Error::Corrupt(_))));
    let (_, found) = open(&device, Intent::ReadOnly).unwrap();
    assert_eq!(found.generation().0, 6);
    device.write_at(64 * M + 2000, &[b"rot"]).unwrap();
    assert!(matches!(open(&device, Intent::ReadOnly), Err(Error::Corrupt(_))));
}

#[test]
fn a_torn_primary_is_stood_in_for_when_writing_too() {
    let next = superblock(|fields| fields.generation.set(8));
    for (mirror, is_opened) in [(6, false), (7, true), (8, true), (9, false)] {
        let device = on_disk(|_| ());
        put(&device, &next, 0);
        put(&device, &superblock(|fields| fields.generation.set(mirror)), 1);
        device.write_at(64 * K + 2000, &[b"old"]).unwrap();
        let opened = open(&device, Intent::ReadWrite);
        assert_eq!(opened.is_ok(), is_opened, "mirror of commit {mirror}");
        if let Ok((_, found)) = opened {
            assert_eq!(found.generation().0, mirror);
        }
    }
}

#[test]
fn devices_that_are_cut_off_are_read_and_not_written() {
    let small = MemoryDevice::new(70 * M);
    put(&small, &superblock(|_| ()), 0);
    let small = Arc::new(small);
    assert!(open(&small, Intent::ReadOnly).is_ok());
    let error = open(&small, Intent::ReadWrite).unwrap_err();
    assert!(error.to_string().starts_with("corrupt size of the device"), "{error}");
    let tiny = Arc::new(MemoryDevice::new(65 * K));
    assert!(matches!(open(&tiny, Intent::ReadOnly), Err(Error::Device(_))));
    assert!(matches!(open(&tiny, Intent::ReadWrite), Err(Error::Device(_))));
}

#[test]
fn features_beyond_the_store_are_refused_by_name() {
    let both = [Intent::ReadOnly, Intent::ReadWrite];
    for (bit, name) in [
        (Incompat::ZONED, "zoned"),
        (Incompat::EXTENT_TREE_V2, "extent_tree_v2"),
        (Incompat::RAID_STRIPE_TREE, "raid_stripe_tree"),
        (Incompat::from_bits_retain(1 << 41), "bit 41"),
    ] {
        for access in both {
            let add = |fields: &mut DiskSuperblock| {
                fields.incompat_flags.set(fields.incompat_flags.get() | bit.bits());
            };
            assert_eq!(refusal(access, add), Some(format!("unsupported: {name}")));
        }
    }
}

#[test]
fn features_that_can_only_be_read_are_refused_for_writing() {
    let verity = |fields: &mut DiskSuperblock| {
        fields.compat_ro_flags.set((CompatRo::VERITY | CompatRo::FREE_SPACE_TREE).bits());
    };
    let unknown = |fields: &mut DiskSuperblock| fields.compat_ro_flags.set(1 << 50);
    let seed = |fields: &mut DiskSuperblock| {
        fields.flags.set((SuperFlags::WRITTEN | SuperFlags::SEEDING).bits());
    };
    assert_eq!(refusal(Intent::ReadWrite, verity), None);
    let cases: [(Change<'_>, &str); 2] = [
        (&unknown, "unsupported: writing with bit 50 (reading is possible)"),
        (&seed, "unsupported: writing with seeding (reading is possible)"),
    ];
    for (change, message) in cases {
        assert_eq!(refusal(Intent::ReadOnly, change), None, "{message}");
        assert_eq!(refusal(Intent::ReadWrite, change).as_deref(), Some(message));
    }
}

#[test]
fn system_chunks_must_lie_on_the_device() {
    for array in [system_chunk(2, M), system_chunk(1, 79 * M)] {
        let device = on_disk(|fields| {
            fields.sys_chunk_array = [0; 2048];
            fields.sys_chunk_array[..array.len()].copy_from_slice(&array);
            fields.sys_chunk_array_size.set(u32::try_from(array.len()).unwrap());
        });
        assert!(matches!(open(&device, Intent::ReadOnly), Err(Error::Corrupt(_))));
    }
}

#[test]
fn a_device_that_is_only_read_is_not_opened_for_writing() {
    let read_only = Arc::new(MemoryDevice::new(80 * M).into_read_only());
    assert!(matches!(open(&read_only, Intent::ReadWrite), Err(Error::ReadOnly)));
}
