//! Power cuts while block groups are given back and images are cut: on a volume that was full of names, data takes the
//! place of its metadata. `SPINNEY_POWER_CUTS` states (default 300).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use blockdev::Device;
use blockdev::backends::MemoryDevice;
use btrfs::{MakeOptions, Volume};
use crash_explorer::{Config, explore_given, parse};

const IMAGE_BYTES: u64 = 128 << 20;
/// A workload without enough space unless block groups of metadata are freed.
const WORKLOAD: &str = "\
creat a\ncreat b\ncreat c\ncreat d\n\
write a 0 16000000\nfsync a\nwrite b 0 16000000\nfsync b\nwrite c 0 16000000\nsync\n\
unlink b\nsync\nwrite c 3000000 100000\nfsync c\n\
resize min\nwrite a 100 5000\nfsync a\n\
resize 134217728\nwrite d 0 16000000\nfsync d\nunlink a\nsync\nresize min\n";

/// An almost empty volume whose metadata block groups have nearly all of the device.
fn emptied() -> Arc<dyn Device> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(IMAGE_BYTES));
    let volume = Volume::options().make_device(Arc::clone(&device), &MakeOptions::default()).unwrap();
    let mut count = 0;
    while volume.write(format!("/{count}"), vec![7; 1500]).is_ok() {
        count += 1;
    }
    assert!(count > 10_000, "{count}");
    for number in 0..=count {
        // The last one may be there without its contents.
        let _ = volume.remove_file(format!("/{number}"));
    }
    volume.sync().unwrap();
    assert!(volume.read_dir("/").unwrap().next().is_none());
    volume.close().unwrap();
    device
}

#[test]
fn power_cuts_lose_nothing_while_groups_are_given_back() {
    let states = std::env::var("SPINNEY_POWER_CUTS").ok().and_then(|states| states.parse().ok()).unwrap_or(300);
    let device = emptied();
    let config = Config { states, ..Config::new(Arc::new(btrfs_crash::Btrfs)) };
    let steps = parse(WORKLOAD.as_bytes()).unwrap();
    let report = explore_given(&config, &device, &steps).unwrap();
    eprintln!("{} states, {} with a log", report.states, report.replayed);
    for failure in &report.failures {
        eprintln!("{}: {}\n{}", failure.state, failure.reason, failure.story);
    }
    assert_eq!(report.failure_count, 0);
    assert!(report.states >= states / 2, "{} states", report.states);
}
