//! Differences between snapshots, and the reads needed to find them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use blockdev::Device;
use blockdev::backends::{FileDevice, FileOptions as DeviceOptions};
use btrfs::{Change, ChangeKind, Named, SendError, SendOptions, TreeId, Volume};
use common::whole::{contents, make, populate};
use vfs::{FileOptions, SnapshotMode};

const MIB: u64 = 1 << 20;

/// A device that counts reads.
#[derive(Debug)]
struct Counting {
    inner: FileDevice,
    reads: Arc<AtomicU64>,
}

impl Device for Counting {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }
    fn is_read_only(&self) -> bool {
        true
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> blockdev::Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.inner.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> blockdev::Result<()> {
        self.inner.write_at(offset, parts)
    }
    fn flush(&self) -> blockdev::Result<()> {
        Ok(())
    }
    fn discard(&self, offset: u64, len: u64) -> blockdev::Result<()> {
        self.inner.discard(offset, len)
    }
    fn grow(&self, size_bytes: u64) -> blockdev::Result<()> {
        self.inner.grow(size_bytes)
    }
}

fn counted(path: &Path) -> (Volume, Arc<AtomicU64>) {
    let reads = Arc::new(AtomicU64::new(0));
    let inner = FileDevice::open(path, &DeviceOptions { read_only: true, ..DeviceOptions::default() }).unwrap();
    let device = Counting { inner, reads: Arc::clone(&reads) };
    let options = Volume::options().read_only(true).subvolume_id(TreeId::FS);
    (options.open_device(Arc::new(device)).unwrap(), reads)
}

/// Bytes of a stream, and reads of the device.
fn sent(image: &Path, parent: Option<&str>, name: &str) -> (usize, u64) {
    let (volume, reads) = counted(image);
    let before = reads.load(Ordering::Relaxed);
    let mut stream = Vec::new();
    volume.send(name, parent.map(Path::new), &[], &SendOptions::default(), &mut stream).unwrap();
    (stream.len(), reads.load(Ordering::Relaxed) - before)
}

#[test]
fn what_two_snapshots_share_is_not_read() {
    let (file, volume) = make(600 * MIB);
    volume.create_subvolume("/work").unwrap();
    for dir in 0..40 {
        volume.create_dir(format!("/work/{dir}")).unwrap();
        for number in 0..150 {
            volume.write(format!("/work/{dir}/{number}"), contents(number, 1000)).unwrap();
        }
    }
    volume.snapshot("/work", "/one", SnapshotMode::ReadOnly).unwrap();
    for (dir, number) in [(3, 7), (20, 100), (39, 149)] {
        volume.write(format!("/work/{dir}/{number}"), contents(dir, 2000)).unwrap();
    }
    volume.rename("/work/5/5", "/work/6/moved").unwrap();
    volume.snapshot("/work", "/two", SnapshotMode::ReadOnly).unwrap();
    volume.close().unwrap();
    let (whole, reads_of_all) = sent(file.path(), None, "/two");
    let (part, reads) = sent(file.path(), Some("/one"), "/two");
    assert!(whole > 6_000_000 && part < 20_000, "{whole} bytes of all, {part} of what differs");
    assert!(reads_of_all > 500, "{reads_of_all} reads of all");
    assert!(reads < 80, "{reads} reads of what differs, {reads_of_all} of all");
}

#[test]
fn changes_are_named() {
    let (_file, volume) = make(600 * MIB);
    volume.create_subvolume("/work").unwrap();
    volume.create_dir_all("/work/dir/sub").unwrap();
    for name in ["dir/kept", "dir/moved", "dir/sub/gone", "written", "owned"] {
        volume.write(format!("/work/{name}"), contents(1, 100_000)).unwrap();
    }
    volume.snapshot("/work", "/one", SnapshotMode::ReadOnly).unwrap();
    volume.rename("/work/dir/moved", "/work/other").unwrap();
    volume.remove_file("/work/dir/sub/gone").unwrap();
    volume.write("/work/new", b"new").unwrap();
    let file = FileOptions::new().write(true).open(&volume, "/work/written").unwrap();
    file.write_at(&[1; 4096], 8192).unwrap();
    file.sync_all().unwrap();
    volume.set_owner("/work/owned", Some(1), Some(2)).unwrap();
    volume.rename("/work/dir", "/work/renamed").unwrap();
    volume.snapshot("/work", "/two", SnapshotMode::ReadOnly).unwrap();
    let mut found: Vec<String> = Vec::new();
    let shown = |path: &PathBuf| path.display().to_string();
    let mut show = |change: Change| {
        found.extend(change.names.iter().map(|name| match name {
            Named::Added(path) => format!("+ {}", shown(path)),
            Named::Removed(path) => format!("- {}", shown(path)),
            Named::Renamed(old, new) => format!("R {} {}", shown(old), shown(new)),
        }));
        if let ChangeKind::Changed { path, data, size, metadata } = change.what {
            assert_eq!(size, None);
            found.extend((!data.is_empty()).then(|| format!("M {} {data:?}", shown(&path))));
            found.extend((data.is_empty() && metadata).then(|| format!("m {}", shown(&path))));
        }
    };
    volume.diff("/one", "/two").unwrap().into_iter().for_each(&mut show);
    found.sort();
    let expected =
        ["+ new", "- dir/sub/gone", "M written [0..100000]", "R dir renamed", "R dir/moved other", "m owned"];
    assert_eq!(found, expected);
}

#[test]
fn only_what_cannot_change_is_sent_also_while_others_write() {
    let (_file, volume) = make(600 * MIB);
    populate(&volume);
    let mut stream = Vec::new();
    let refused = volume.send("/sub", None, &[], &SendOptions::default(), &mut stream);
    assert!(matches!(refused, Err(SendError::Writable { .. })), "{refused:?}");
    assert!(stream.is_empty());
    volume.write("/sub/in-the-running-transaction", b"new").unwrap();
    volume.send("/snap-2", None, &[], &SendOptions::default(), &mut stream).unwrap();
    let mut again = Vec::new();
    volume.write("/sub/later", b"new").unwrap();
    volume.send("/snap-2", None, &[], &SendOptions::default(), &mut again).unwrap();
    assert!(stream == again);
    let old = SendOptions { compressed_data: true, ..SendOptions::default() };
    assert!(volume.send("/snap-2", None, &[], &old, &mut again).is_err(), "version 1 has no compressed data");
}

/// A receiver identifies the state of a parent by the transaction of its last change: a subvolume that was changed
/// after it had been sent kept that number, and the differences were applied to another state.
#[test]
fn a_change_after_sending_gets_a_new_transaction() {
    let (image, volume) = make(128 * MIB);
    volume.create_subvolume("live").unwrap();
    volume.write("live/file", "first").unwrap();
    volume.snapshot("live", "sent", SnapshotMode::ReadOnly).unwrap();
    volume.sync().unwrap();
    let changed = || volume.subvolumes().unwrap().into_iter().find(|found| found.path == "sent").unwrap().changed;
    let first = changed();
    // Changes elsewhere, and of its flag alone, do not matter.
    volume.write("live/file", "second").unwrap();
    volume.set_subvolume_read_only("sent", false).unwrap();
    volume.set_subvolume_read_only("sent", true).unwrap();
    volume.sync().unwrap();
    assert_eq!(changed(), first);
    volume.set_subvolume_read_only("sent", false).unwrap();
    volume.write("sent/file", "third").unwrap();
    volume.set_subvolume_read_only("sent", true).unwrap();
    let second = changed();
    assert!(second > first, "{second:?}");
    drop(volume);
    let volume = Volume::open(image.path()).unwrap();
    let found = volume.subvolumes().unwrap().into_iter().find(|found| found.path == "sent").unwrap();
    assert_eq!(found.changed, second);
}
