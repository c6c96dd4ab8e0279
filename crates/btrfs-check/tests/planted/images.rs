//! Makes the images in which the tests plant damage: each test checks an image as it is, or damages a copy of it.
//! Called by `main`.

use std::sync::{Arc, OnceLock};

use blockdev::backends::MemoryDevice;
use btrfs::{Env, MakeOptions, TreeOptions, Volume};
use testkit::hostile::{Base, bases};
use vfs::SnapshotMode;

pub(crate) struct Image {
    pub(crate) base: Base,
}

/// Undamaged images of several variants of the format, each with a log and without, one with quotas, and one with
/// fs-verity; made once.
pub(crate) fn all() -> &'static [Image] {
    static IMAGES: OnceLock<Vec<Image>> = OnceLock::new();
    IMAGES.get_or_init(|| {
        let mut images: Vec<Image> = bases().unwrap().into_iter().map(|base| Image { base }).collect();
        images.push(Image { base: quotas() });
        images.push(Image { base: protected() });
        images
    })
}

fn quotas() -> Base {
    let device = Arc::new(MemoryDevice::new(96 << 20));
    let volume = Volume::options()
        .workers(1)
        .env(Env::seeded(5, (1_700_000_000, 0)))
        .make_device(device.clone(), &MakeOptions::default())
        .unwrap();
    volume.create_subvolume("/sub").unwrap();
    volume.write("/sub/file", vec![7; 100_000]).unwrap();
    volume.enable_quotas(btrfs::QuotaKind::Shared).unwrap();
    volume.snapshot("/sub", "/snap", SnapshotMode::ReadWrite).unwrap();
    volume.write("/snap/other", vec![8; 50_000]).unwrap();
    volume.sync().unwrap();
    Base::new("quotas", Arc::new(device.duplicate().into_read_only())).unwrap()
}

fn protected() -> Base {
    let device = Arc::new(MemoryDevice::new(96 << 20));
    let volume = Volume::options()
        .workers(1)
        .env(Env::seeded(6, (1_700_000_000, 0)))
        .make_device(device.clone(), &MakeOptions::default())
        .unwrap();
    volume.create_dir("/plain").unwrap();
    volume.write("/plain/file", vec![6; 9000]).unwrap();
    for (name, len) in [("/large", 700_000), ("/small", 500), ("/empty", 0)] {
        volume.write(name, vec![7; len]).unwrap();
        volume.enable_verity(name, &TreeOptions::default()).unwrap();
    }
    volume.snapshot("/", "/snap", SnapshotMode::ReadWrite).unwrap();
    volume.sync().unwrap();
    Base::new("fs-verity", Arc::new(device.duplicate().into_read_only())).unwrap()
}
