//! Images with right checksums and wrong contents: wrong structures are refused, and right ones stay as they are.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod books;
mod caches;
mod compressed_extents;
mod cycles;
mod generations;
mod lying_members;
mod members;
mod orphans;
mod sizes;
mod small;
mod stripes;
mod symlinks;

use std::sync::Arc;

use blockdev::Device;
use blockdev::backends::MemoryDevice;
use btrfs::{Env, MakeOptions, SendOptions, Volume, VolumeOptions};
use btrfs_check::{CodeTable as _, Pass, PassTable as _};
use btrfs_disk::items::{OnDisk, RootItem};
use btrfs_disk::key::item_type::ROOT_ITEM;
use btrfs_disk::{Key, TreeId};
use testkit::hostile::Editor;
use vfs::SnapshotMode;

const IMAGE_BYTES: u64 = 128 << 20;

/// An image in memory that a test lies about.
struct Image {
    device: Arc<MemoryDevice>,
}

impl Image {
    /// An image with small tree blocks, filled by `fill`.
    fn new(fill: impl FnOnce(&Volume)) -> Self {
        let device = Arc::new(MemoryDevice::new(IMAGE_BYTES));
        let make = MakeOptions { nodesize: 4096, ..MakeOptions::default() };
        let volume = options().make_device(device.clone(), &make).unwrap();
        fill(&volume);
        volume.close().unwrap();
        Self { device }
    }

    fn any_device(&self) -> Arc<dyn Device> {
        self.device.clone()
    }

    fn edit(&self) -> Editor {
        Editor::new(self.device.clone()).unwrap()
    }

    fn open(&self) -> vfs::Result<Volume> {
        options().open_device(self.device.clone())
    }

    fn read_only(&self) -> Volume {
        options().read_only(true).open_device(self.device.clone()).unwrap()
    }

    /// Changes the root item of a tree.
    fn change_root_item(&self, id: TreeId, change: impl FnOnce(&mut RootItem)) {
        let edit = self.edit();
        let keys = Key::new(id.0, ROOT_ITEM, 0)..=Key::new(id.0, ROOT_ITEM, u64::MAX);
        let (key, _) = edit.items(TreeId::ROOT, keys).unwrap().pop().unwrap();
        let change = |bytes: &mut [u8]| change(RootItem::parse_mut(bytes).unwrap());
        edit.change_item(TreeId::ROOT, &key, change).unwrap();
    }

    /// Every byte, to see whether anything was written.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(IMAGE_BYTES).unwrap()];
        self.device.read_at(0, &mut bytes).unwrap();
        bytes
    }
}

/// Ids of the findings of a check with all passes.
fn found(image: &Image) -> Vec<String> {
    let passes = Pass::all().iter().map(|info| info.pass).collect();
    let options = btrfs_check::Options { passes, ..btrfs_check::Options::default() };
    let report = btrfs_check::check(&[image.any_device()], &options, &()).unwrap();
    report.counts.iter().map(|(code, _)| code.id().to_owned()).collect()
}

/// The stream of a read-only snapshot of all.
fn sent(image: &Image) -> Vec<u8> {
    let volume = image.open().unwrap();
    volume.snapshot("/", "/snapshot", SnapshotMode::ReadOnly).unwrap();
    volume.sync().unwrap();
    let mut stream = Vec::new();
    volume.send("/snapshot", None, &[], &SendOptions::default(), &mut stream).unwrap();
    volume.close().unwrap();
    stream
}

fn options() -> VolumeOptions {
    Volume::options().workers(1).env(Env::seeded(1, (1_700_000_000, 0)))
}

fn reason(error: &vfs::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
