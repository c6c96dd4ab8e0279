//! Snapshots cost a check what they changed, not what they share: inodes are counted, not time.

use std::sync::Arc;

use blockdev::backends::MemoryDevice;
use btrfs::{Env, MakeOptions, Volume};
use btrfs_check::{Options, check};
use vfs::SnapshotMode;

const FILES: u64 = 1000;
const SNAPSHOTS: u64 = 60;
/// Inodes of the leaves that one changed file, its directory and their neighbours are in.
const INODES_PER_SNAPSHOT: u64 = 200;

#[test]
fn a_snapshot_costs_the_leaves_that_it_changed() {
    let device = Arc::new(MemoryDevice::new(256 << 20));
    let options = Volume::options().workers(1).env(Env::seeded(7, (1_700_000_000, 0)));
    let volume = options.make_device(device.clone(), &MakeOptions::default()).unwrap();
    volume.create_subvolume("/s").unwrap();
    for number in 0..FILES {
        volume.write(format!("/s/f{number}"), [b'x'; 100]).unwrap();
    }
    for number in 0..SNAPSHOTS {
        volume.write(format!("/s/f{}", number * 7), [b'y'; 100]).unwrap();
        // Beside the source, so that each has the names of those before it, and outside.
        let parent = if number % 2 == 0 { "/s" } else { "" };
        volume.snapshot("/s", format!("{parent}/snapshot{number}"), SnapshotMode::ReadOnly).unwrap();
    }
    volume.close().unwrap();
    let report = check(&[device], &Options { threads: 2, ..Options::default() }, &()).unwrap();
    assert!(report.counts.is_empty(), "{:?}", report.counts);
    let most = FILES * 2 + SNAPSHOTS * INODES_PER_SNAPSHOT;
    assert!((FILES..most).contains(&report.inodes), "{} inodes", report.inodes);
}
