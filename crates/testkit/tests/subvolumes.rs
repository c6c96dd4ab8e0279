//! Tests subvolumes of a reopened volume, where random programs found faults; and runs such programs.

use std::sync::Arc;

use anyhow::{Result, ensure};
use blockdev::backends::MemoryDevice;
use btrfs::{MakeOptions, Volume};
use testkit::lineage::{self, Settings};
use vfs::SnapshotMode;

const DEVICE_BYTES: u64 = 128 << 20;

fn make() -> Result<(Arc<MemoryDevice>, Volume)> {
    let device = Arc::new(MemoryDevice::new(DEVICE_BYTES));
    let make = MakeOptions { size: Some(DEVICE_BYTES), nodesize: 4096, ..MakeOptions::default() };
    let volume = Volume::options().make_device(Arc::<MemoryDevice>::clone(&device), &make)?;
    Ok((device, volume))
}

fn number_of(volume: &Volume, path: &str) -> Result<u64> {
    Ok(volume.metadata(path)?.home.subvolume)
}

/// Inodes of the deleted subvolume may still be in memory, and programs may still use its number.
#[test]
fn the_number_of_a_deleted_subvolume_is_not_given_to_another() -> Result<()> {
    let (device, volume) = make()?;
    volume.create_subvolume("a")?;
    volume.create_subvolume("b")?;
    let last = number_of(&volume, "b")?;
    volume.close()?;
    let volume = Volume::options().open_device(device)?;
    volume.delete_subvolume("b")?;
    volume.create_subvolume("c")?;
    let next = number_of(&volume, "c")?;
    ensure!(next > last, "{next} was given after {last} had been deleted");
    volume.snapshot("a", "d", SnapshotMode::ReadWrite)?;
    let copy = number_of(&volume, "d")?;
    ensure!(copy > next, "{copy} after {next}");
    Ok(())
}

/// The number of blocks of the root tree is not stored on disk, so the count starts at 0 when a volume is opened. In an
/// earlier version it fell below 0 when subvolumes were deleted.
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

/// `SPINNEY_SEEDS` (default 3) and `SPINNEY_OPERATIONS` (150) make it longer; `cargo trials subvolumes` runs more.
#[test]
fn random_trees_of_subvolumes_equal_their_model_at_each_commit() -> Result<()> {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let operations = number("SPINNEY_OPERATIONS").unwrap_or(150);
    let settings = Settings { operations, ..Settings::default() };
    let folder = tempfile::tempdir()?;
    let mut made = 0;
    for seed in 0..number("SPINNEY_SEEDS").unwrap_or(3) {
        let report = lineage::run(seed, &settings, folder.path())?;
        ensure!(report.commits > 1, "seed {seed} committed {} times", report.commits);
        made += report.made;
    }
    ensure!(made > 20, "{made} subvolumes were made");
    Ok(())
}
