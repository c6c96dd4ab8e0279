//! Power cuts while superblocks are written: a label is the old one or the new one, and one superblock is always whole.

use std::ffi::OsStr;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use blockdev::Device as _;
use blockdev::backends::MemoryDevice;
use btrfs::{MakeOptions, Volume};
use btrfs_disk::superblock::{SUPERBLOCK_SIZE, mirror_offset};
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

/// A power cut left the mirror of the superblock one commit behind its primary. The next one tore the primary in the
/// first write of the next opening, by a commit or by an `fsync`: the mirror was two commits behind then, and the
/// blocks that it led to were written anew.
#[test]
fn a_second_power_cut_finds_one_whole_superblock() -> Result<()> {
    let mirror = mirror_offset(1).expect("there is a first mirror");
    let read = |device: &MemoryDevice| -> Result<Vec<u8>> {
        let mut bytes = vec![0; SUPERBLOCK_SIZE];
        device.read_at(mirror, &mut bytes)?;
        Ok(bytes)
    };
    let make = MakeOptions { size: Some(DEVICE_BYTES), ..MakeOptions::default() };
    let device = Arc::new(MemoryDevice::new(DEVICE_BYTES));
    let volume = Volume::options().make_device(Arc::<MemoryDevice>::clone(&device), &make)?;
    volume.write("first", "committed")?;
    volume.sync()?;
    let behind = read(&device)?;
    volume.write("second", "committed")?;
    volume.close()?;
    ensure!(read(&device)? != behind, "the second commit did not write the mirror");
    device.write_at(mirror, &[&behind])?;
    for by_commit in [true, false] {
        let record = Arc::new(RecordingDevice::new(device.duplicate()));
        let volume = Volume::options().open_device(Arc::<RecordingDevice>::clone(&record))?;
        let from = record.event_count();
        let file = File::create(&volume, "third")?;
        file.write_at(b"synced", 0)?;
        if by_commit {
            volume.sync()?
        } else {
            file.sync_all()?
        }
        for cut in from..=record.event_count() {
            for seed in 0..SEEDS * 4 {
                let left = Arc::new(record.crash_after(cut, &mut Random::new(seed))?);
                let volume = Volume::options().open_device(left);
                let volume = volume.with_context(|| format!("cut {cut}, seed {seed}, commit {by_commit}"))?;
                ensure!(volume.read("second")? == b"committed");
                ensure!(
                    cut < record.event_count() || volume.read("third")? == b"synced",
                    "seed {seed}: an fsync is lost"
                );
            }
        }
    }
    Ok(())
}
