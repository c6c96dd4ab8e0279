//! A power cut while a label is changed leaves the old one or the new one, and everything else.

use std::ffi::OsStr;
use std::sync::Arc;

use anyhow::{Result, ensure};
use blockdev::backends::MemoryDevice;
use btrfs::{MakeOptions, Volume};
use testkit::Random;
use testkit::faults::RecordingDevice;
use vfs::File;

const DEVICE_BYTES: u64 = 128 << 20;
const SEEDS: u64 = 4;

#[test]
fn a_power_cut_leaves_one_of_two_labels() -> Result<()> {
    let make = MakeOptions { size: Some(DEVICE_BYTES), label: b"old".to_vec(), ..MakeOptions::default() };
    let empty = Arc::new(MemoryDevice::new(DEVICE_BYTES));
    let volume = Volume::options().make_device(Arc::<MemoryDevice>::clone(&empty), &make)?;
    volume.write("before", "committed")?;
    volume.close()?;
    let record = Arc::new(RecordingDevice::new(empty.duplicate()));
    let volume = Volume::options().open_device(Arc::<RecordingDevice>::clone(&record))?;
    // One file is in the log when the label changes, one nowhere yet.
    let file = File::create(&volume, "synced")?;
    file.write_at(b"in the log", 0)?;
    file.sync_all()?;
    drop(file);
    volume.write("unsynced", "nowhere")?;
    let from = record.event_count();
    volume.set_label("new")?;
    let to = record.event_count();
    ensure!(volume.info()?.label == "new");
    let mut counts = [0, 0];
    for cut in from..=to {
        for seed in 0..SEEDS {
            let mut random = Random::new(seed);
            let left = Arc::new(record.crash_after(cut, &mut random)?);
            let volume = Volume::options().open_device(left)?;
            let label = volume.info()?.label;
            let is_new = label == "new";
            ensure!(is_new || label == "old", "cut {cut}, seed {seed}: {label:?}");
            ensure!(is_new || cut < to, "seed {seed}: the label is lost");
            ensure!(volume.read("before")? == b"committed");
            ensure!(volume.read("synced")? == b"in the log", "cut {cut}, seed {seed}");
            counts[usize::from(is_new)] += 1;
            volume.set_label(OsStr::new("again"))?;
            volume.close()?;
        }
    }
    ensure!(counts.iter().all(|count| *count > 0), "{counts:?}");
    Ok(())
}
