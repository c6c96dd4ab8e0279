//! Valid and invalid sets of devices, and their error messages.

use super::superblocks::{put, superblock, system_chunk};
use super::*;
use btrfs_disk::superblock::DiskSuperblock;

/// The fields of member `id` of a file system on `count` devices, whose system chunk lies on the devices 1 and 2.
fn change(id: u64, count: u64) -> impl Fn(&mut DiskSuperblock) {
    move |fields| {
        fields.num_devices.set(count);
        fields.dev_item.devid.set(id);
        fields.dev_item.uuid = uuid(id);
        let array = system_chunk(2, M);
        fields.sys_chunk_array[..array.len()].copy_from_slice(&array);
    }
}

fn member(id: u64, count: u64, more: impl Fn(&mut DiskSuperblock)) -> Arc<dyn Device> {
    let device = MemoryDevice::new(80 * M);
    put(
        &device,
        &superblock(|fields| {
            change(id, count)(fields);
            more(fields);
        }),
        0,
    );
    Arc::new(device)
}

fn open(devices: &[Arc<dyn Device>], mode: Mode) -> Result<(Pool, FsSuper)> {
    Pool::open(devices, &Opening { mode, ..Opening::default() }, Arc::new(Workers::inline()))
}

fn items(count: u64) -> Vec<DevItem> {
    let item = |id| {
        let fields = superblock(change(id, count));
        fields.fields().dev_item
    };
    (1..=count).map(item).collect()
}

fn refusal(devices: &[Arc<dyn Device>], mode: Mode) -> MemberError {
    match open(devices, mode) {
        Err(Error::Members(error)) => *error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_newest_member_counts_and_each_has_its_own_item() {
    let devices = [member(2, 2, |_| ()), member(1, 2, |_| ())];
    let (pool, superblock) = open(&devices, Mode::Strict).unwrap();
    pool.settle_members(&superblock, &items(2)).unwrap();
    assert_eq!(pool.devices().iter().map(PoolDevice::id).collect::<Vec<_>>(), [DevId(2), DevId(1)]);
    let uuids: Vec<Uuid> = superblock.items().iter().map(|item| item.uuid).collect();
    assert_eq!(uuids, [uuid(2), uuid(1)]);
    // Salvage reads an older member, and uses the superblock of the newest.
    let older = member(1, 2, |fields| fields.generation.set(7));
    let members = Members::salvage(&[older, member(2, 2, |_| ())]).unwrap();
    assert_eq!(members.counting().unwrap().1.generation().0, 8);
}

#[test]
fn superblocks_are_written_to_every_member_with_its_own_item() {
    let devices = [member(1, 2, |_| ()), member(2, 2, |_| ())];
    let (pool, mut superblock) = open(&devices, Mode::Strict).unwrap();
    let pool = Pool { access: Intent::ReadWrite, ..pool };
    superblock.fields_mut().generation.set(9);
    superblock.change_item(DevId(2), |item| item.bytes_used.set(3 * M));
    superblock.change_item(DevId(1), |item| item.bytes_used.set(2 * M));
    pool.write_superblock(&superblock).unwrap();
    for (device, id) in devices.iter().zip([1u64, 2]) {
        for (offset, copy) in supers::Copies::read(&**device).iter() {
            let copy = copy.as_ref().unwrap();
            let item = &copy.fields().dev_item;
            assert_eq!((copy.generation().0, item.devid.get(), item.uuid), (9, id, uuid(id)), "{offset}");
            assert_eq!(item.bytes_used.get(), (id + 1) * M);
        }
    }
}

#[test]
fn missing_members_are_named_with_their_numbers() {
    let devices = [member(1, 3, |_| ())];
    let (pool, superblock) = open(&devices, Mode::Strict).unwrap();
    // The superblock alone names the device of the system chunk.
    let known = pool.missing(3).unwrap();
    assert_eq!(known, MemberError::Missing { present: 1, count: 3, missing: vec![DevId(2)] });
    let Err(Error::Members(error)) = pool.settle_members(&superblock, &items(3)) else { panic!() };
    let text = "1 of 3 devices are given, missing: device 2, 3";
    assert_eq!(error.to_string(), text);

    let (pool, superblock) = open(&devices, Mode::Degraded).unwrap();
    pool.settle_members(&superblock, &items(3)).unwrap();
    assert_eq!(pool.devices().present().count(), 1);
    let data = BlockGroupFlags::DATA | BlockGroupFlags::RAID1;
    add(&pool, 100 * M, 8 * M, data, &[stripe(1, 10 * M), stripe(3, 10 * M)]).unwrap();
    let good = pattern(64 << 10);
    devices[0].write_at(10 * M, &[&good]).unwrap();
    devices[0].write_at(11 * M, &[&good]).unwrap();
    for at in [100 * M, 101 * M] {
        let mut found = vec![0; good.len()];
        pool.read(Logical(at), &mut found, Expect::Unchecked).unwrap();
        assert_eq!(found, good);
    }
    assert_eq!(pool.devices().get(DevId(3)).unwrap().counts(), DeviceCounts::default(), "it is not even asked");
}

#[test]
fn foreign_repeated_stale_and_removed_members_are_refused() {
    let first = || member(1, 2, |_| ());
    let foreign = |fields: &mut DiskSuperblock| {
        fields.fsid = uuid(78);
        fields.dev_item.fsid = uuid(78);
    };
    let stale = |fields: &mut DiskSuperblock| fields.generation.set(6);
    let modes = [Mode::Strict, Mode::Degraded];
    for mode in modes {
        let error = refusal(&[first(), member(2, 2, foreign)], mode);
        assert!(matches!(&error, MemberError::Foreign { found, .. } if *found == uuid(78)), "{error}");
        let error = refusal(&[first(), member(1, 2, foreign)], mode);
        assert!(matches!(error, MemberError::Foreign { .. }), "the same id in another file system: {error}");
        let error = refusal(&[first(), member(1, 2, |_| ())], mode);
        assert!(matches!(error, MemberError::Repeated { id: DevId(1), .. }), "{error}");
        let error = refusal(&[member(2, 2, stale), first()], mode);
        let is_it = |found: &btrfs_disk::Generation, newest: &btrfs_disk::Generation| (found.0, newest.0) == (6, 8);
        assert!(
            matches!(&error, MemberError::Stale { id: DevId(2), found, newest, .. } if is_it(found, newest)),
            "{error}"
        );
        let error = refusal(&[first(), Arc::new(MemoryDevice::new(80 * M))], mode);
        assert!(matches!(error, MemberError::Unreadable { .. }), "{error}");
    }
    assert!(matches!(Members::salvage(&[first(), member(2, 2, foreign)]), Err(MemberError::Foreign { .. })));
    assert!(matches!(Members::salvage(&[first(), first()]), Err(MemberError::Repeated { .. })));
    assert!(Members::salvage(&[first(), Arc::new(MemoryDevice::new(80 * M))]).is_ok());
    assert!(matches!(Members::salvage(&[]), Err(MemberError::None)));
    let salvaged = Members::salvage(&[member(2, 2, stale), first()]).unwrap();
    let found: Vec<MemberError> = salvaged.stale().collect();
    assert!(matches!(&found[..], [MemberError::Stale { id: DevId(2), .. }]), "{found:?}");
    assert_eq!(Members::salvage(&[first(), member(2, 2, |_| ())]).unwrap().stale().count(), 0);

    let (pool, superblock) = open(&[first(), member(3, 2, |_| ())], Mode::Strict).unwrap();
    let Err(Error::Members(error)) = pool.settle_members(&superblock, &items(2)) else { panic!() };
    assert!(matches!(*error, MemberError::Removed { id: DevId(3), .. }), "{error}");
}

#[test]
fn superblocks_that_lie_about_devices_are_refused() {
    // A huge device count causes neither a search nor an allocation.
    let (pool, superblock) = open(&[member(1, 1 << 60, |_| ())], Mode::Strict).unwrap();
    let error = pool.settle_members(&superblock, &items(2)).unwrap_err();
    assert!(error.to_string().starts_with("corrupt number of devices"), "{error}");
    let (pool, superblock) = open(&[member(1, 2, |_| ())], Mode::Degraded).unwrap();
    let other = items(2).into_iter().map(|item| DevItem { uuid: uuid(9), ..item });
    let error = pool.settle_members(&superblock, &other.collect::<Vec<_>>()).unwrap_err();
    assert!(error.to_string().starts_with("corrupt UUID of a device"), "{error}");
    let large = |fields: &mut DiskSuperblock| fields.dev_item.total_bytes.set(1 << 60);
    let error = open(&[member(1, 2, |_| ()), member(2, 2, large)], Mode::Strict).unwrap_err();
    assert!(error.to_string().contains("has 83886080 bytes, and the file system uses 1152921504606846976"), "{error}");
}

/// A power cut between the writes of two superblocks: the store then looks for the blocks of the last commit.
#[test]
fn a_member_one_commit_behind_is_told() {
    let behind = |fields: &mut DiskSuperblock| fields.generation.set(7);
    for mode in [Mode::Strict, Mode::Degraded] {
        let (pool, superblock) = open(&[member(2, 2, behind), member(1, 2, |_| ())], mode).unwrap();
        assert_eq!(superblock.generation().0, 8);
        assert!(matches!(pool.lagging(), [(DevId(2), MemberError::Stale { .. })]), "{:?}", pool.lagging());
    }
    let (pool, _) = open(&[member(1, 2, |_| ()), member(2, 2, |_| ())], Mode::Strict).unwrap();
    assert!(pool.lagging().is_empty());
}

#[test]
fn members_that_were_written_apart_are_refused() {
    let apart = |fields: &mut DiskSuperblock| fields.root.set(7 * M);
    let remembers = |fields: &mut DiskSuperblock| {
        fields.generation.set(9);
        fields.super_roots[0].tree_root.set(9 * M);
        fields.super_roots[0].tree_root_gen.set(8);
    };
    for mode in [Mode::Strict, Mode::Degraded] {
        let error = refusal(&[member(1, 2, |_| ()), member(2, 2, apart)], mode);
        assert!(matches!(error, MemberError::Split { id: DevId(2), .. }), "the same number of commits: {error}");
        let error = refusal(&[member(1, 2, remembers), member(2, 2, apart)], mode);
        assert!(matches!(error, MemberError::Split { id: DevId(2), .. }), "one commit more: {error}");
        open(&[member(1, 2, remembers), member(2, 2, |_| ())], mode).unwrap();
    }
    Members::salvage(&[member(1, 2, |_| ()), member(2, 2, apart)]).unwrap();
}
