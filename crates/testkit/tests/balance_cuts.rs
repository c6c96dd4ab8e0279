//! Power cuts while block groups are written anew, with snapshots and clones in them, and while an image that has to be
//! moved together is cut, and on a volume that is full. `SPINNEY_POWER_CUTS` states of each (default 300).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use blockdev::Device;
use blockdev::backends::MemoryDevice;
use btrfs::{MakeOptions, Volume};
use crash_explorer::{Config, explore_given, parse};
use vfs::SnapshotMode;

const IMAGE_BYTES: u64 = 192 << 20;
const FULL_BYTES: u64 = 96 << 20;
/// Inline files, deleted from a volume that was full.
const INLINE_DELETED: u32 = 60;

const BALANCE: &str = "\
creat a\nwrite a 0 3000000\ncreat b\nwrite b 0 200000\nsync\n\
order btrfs.balance start data metadata system\n\
write a 1000000 5000\nfsync a\nreflink a 0 b 0 65536\nfsync b\n\
order btrfs.balance start data:convert=dup metadata:convert=single system:convert=single force\n\
write b 100 70000\nfsync b\ncreat c\nwrite c 0 9000\nfsync c\n\
order btrfs.balance start metadata:convert=dup system:convert=dup\nunlink a\nsync\n";

const SHRINK: &str = "\
creat a\nwrite a 0 16000000\nsync\ncreat b\nwrite b 0 16000000\nsync\ncreat c\nwrite c 0 3000000\nsync\n\
unlink a\nsync\nwrite b 5000000 100000\nfsync b\nresize min\n\
write c 100 5000\nfsync c\nresize 201326592\nwrite c 0 4000000\nfsync c\nresize min\nwrite b 0 3000\nfsync b\n";

/// The size at which nothing is lost where the one superblock is torn, as nothing is written then.
const GROW: &str = "creat a\nwrite a 0 200000\nsync\nresize min\nresize 134217728\ncreat b\nfsync b\nsync\n";

/// There is no room to move most groups, and little for anything else.
const FULL: &str = "\
creat a\nwrite a 0 300000\nfsync a\n\
order btrfs.balance start data metadata system\n\
write a 100000 5000\nfsync a\ncreat b\nwrite b 0 60000\nfsync b\nunlink a\nsync\n\
order btrfs.balance start data:usage=90 metadata:convert=single system:convert=single force\n\
creat c\nwrite c 0 400000\nfsync c\nwrite b 0 9000\nfsync b\n\
order btrfs.balance start metadata:convert=dup system:convert=dup\n\
unlink c\nsync\norder btrfs.balance start data\nwrite b 5000 100\nfsync b\n";

/// A volume that was filled until nothing more went into it, of which a little was deleted.
fn full() -> Arc<dyn Device> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(FULL_BYTES));
    let volume = Volume::options().make_device(Arc::clone(&device), &MakeOptions::default()).unwrap();
    for (name, len) in [("large", 3_000_000), ("middle", 150_000), ("small", 9_000), ("inline", 1_200)] {
        let mut count = 0;
        while volume.write(format!("/{name}-{count}"), vec![7; len]).is_ok() {
            count += 1;
        }
        // The last one may be there without its contents.
        let _ = volume.remove_file(format!("/{name}-{count}"));
    }
    volume.remove_file("/large-0").unwrap();
    for number in 0..INLINE_DELETED {
        volume.remove_file(format!("/inline-{number}")).unwrap();
    }
    volume.sync().unwrap();
    volume.close().unwrap();
    device
}

/// A volume with files that two snapshots share, on both sides changed since.
fn shared() -> Arc<dyn Device> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(IMAGE_BYTES));
    let volume = Volume::options().make_device(Arc::clone(&device), &MakeOptions::default()).unwrap();
    for number in 0..150u8 {
        volume.write(format!("/{number}"), vec![number; usize::from(number) * 40]).unwrap();
    }
    volume.write("/large", vec![3; 2_000_000]).unwrap();
    for (name, mode) in [("/one", SnapshotMode::ReadWrite), ("/two", SnapshotMode::ReadOnly)] {
        volume.snapshot("/", name, mode).unwrap();
        for number in 0..30u8 {
            volume.write(format!("/{}", number * 5), vec![number; 3000]).unwrap();
        }
    }
    volume.write("/one/large", vec![4; 300_000]).unwrap();
    volume.close().unwrap();
    device
}

fn explore(device: &Arc<dyn Device>, workload: &str) {
    let states = std::env::var("SPINNEY_POWER_CUTS").ok().and_then(|states| states.parse().ok()).unwrap_or(300);
    let config = Config { states, ..Config::new(Arc::new(btrfs_crash::Btrfs)) };
    let report = explore_given(&config, device, &parse(workload.as_bytes()).unwrap()).unwrap();
    eprintln!("{} states, {} with a log", report.states, report.replayed);
    for failure in &report.failures {
        eprintln!("{}: {}\n{}", failure.state, failure.reason, failure.story);
    }
    assert_eq!(report.failure_count, 0);
    assert!(report.states >= states / 2, "{} states", report.states);
}

#[test]
fn power_cuts_lose_nothing_while_a_balance_goes_on() {
    explore(&shared(), BALANCE);
}

#[test]
fn power_cuts_lose_nothing_while_an_image_is_moved_together() {
    explore(&shared(), SHRINK);
}

#[test]
fn power_cuts_lose_nothing_while_a_full_volume_is_balanced() {
    explore(&full(), FULL);
}

#[test]
fn power_cuts_lose_nothing_while_an_image_becomes_large_enough_for_a_mirror() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(128 << 20));
    Volume::options().make_device(Arc::clone(&device), &MakeOptions::default()).unwrap().close().unwrap();
    explore(&device, GROW);
}
