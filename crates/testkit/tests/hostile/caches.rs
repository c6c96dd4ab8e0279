//! The kernel's caches of free space (`space_cache=v1`) were declared neither valid nor stale by a
//! write, and `btrfs check` found them wrong.

use super::{IMAGE_BYTES, options};
use blockdev::backends::MemoryDevice;
use btrfs::MakeOptions;
use btrfs_disk::flags::CompatRo;
use btrfs_disk::key::objectid::FREE_SPACE;
use btrfs_disk::{Key, TreeId};
use std::sync::Arc;
use testkit::hostile::Editor;

/// The cache fields of the superblock after a write, and its generation.
fn written(said: impl Fn(u64) -> u64, has_cache: bool) -> (u64, u64) {
    let device = Arc::new(MemoryDevice::new(IMAGE_BYTES));
    let make = MakeOptions { compat_ro: CompatRo::empty(), ..MakeOptions::default() };
    let volume = options().make_device(device.clone(), &make).unwrap();
    volume.close().unwrap();
    let edit = Editor::new(device.clone()).unwrap();
    if has_cache {
        let key = Key::new(FREE_SPACE, 0, 1 << 20);
        edit.put_item(TreeId::ROOT, &key, &[0; 41]).unwrap();
    }
    edit.change_superblock(|fields| {
        fields.cache_generation = said(fields.generation.get()).into();
    })
    .unwrap();
    for number in 0..2 {
        let volume = options().open_device(device.clone()).unwrap();
        volume.write(format!("/file{number}"), "contents").unwrap();
        volume.close().unwrap();
    }
    let fields = edit.superblock().unwrap();
    (fields.cache_generation.get(), fields.generation.get())
}

#[test]
fn caches_are_stale_after_a_write() {
    let claims: [fn(u64) -> u64; 5] = [|now| now, |now| now + 1, |now| now + 2, |_| 0, |_| u64::MAX];
    for said in claims {
        let (cache, generation) = written(said, true);
        assert!(cache > 0 && cache < generation, "{cache} of {generation}");
    }
}

#[test]
fn what_is_said_of_no_caches_stays() {
    assert_eq!(written(|_| 0, false).0, 0);
    assert_eq!(written(|_| u64::MAX, false).0, u64::MAX);
}
