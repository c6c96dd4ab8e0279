//! Subvolumes of a volume that was opened again: what random programs found.

use std::sync::Arc;

use anyhow::{Result, ensure};
use blockdev::backends::MemoryDevice;
use spinney::{MakeOptions, SnapshotMode, Volume};

const DEVICE_BYTES: u64 = 128 << 20;

fn make() -> Result<(Arc<MemoryDevice>, Volume)> {
    let device = Arc::new(MemoryDevice::new(DEVICE_BYTES));
    let make = MakeOptions { size: Some(DEVICE_BYTES), nodesize: 4096, ..MakeOptions::default() };
    let volume = Volume::options().make_device(Arc::<MemoryDevice>::clone(&device), &make)?;
    Ok((device, volume))
}

/// Its inodes may be in memory still, and programs may know them by their numbers.
#[test]
fn the_number_of_a_deleted_subvolume_is_not_given_to_another() -> Result<()> {
    let (device, volume) = make()?;
    volume.create_subvolume("a")?;
    let last = volume.create_subvolume("b")?;
    volume.close()?;
    let volume = Volume::options().open_device(device)?;
    volume.delete_subvolume("b")?;
    let next = volume.create_subvolume("c")?;
    ensure!(next > last, "{next} was given after {last} had been deleted");
    let copy = volume.snapshot("a", "d", SnapshotMode::ReadWrite)?;
    ensure!(copy > next, "{copy} after {next}");
    Ok(())
}

/// How many blocks the tree of roots has is not stored anywhere: it became less than none.
#[test]
fn subvolumes_can_be_deleted_after_the_volume_was_opened_again() -> Result<()> {
    for count in 1..24 {
        let (device, volume) = make()?;
        for number in 0..count {
            volume.create_subvolume(format!("{number}"))?;
        }
        volume.close()?;
        let volume = Volume::options().open_device(device)?;
        for number in 0..count {
            volume.delete_subvolume(format!("{number}"))?;
        }
        volume.close()?;
    }
    Ok(())
}
