//! A fixture for tests: `test_fixture [IMAGE]`.
//!
//! Makes a volume once, in memory or in an image, and freezes it. Each test gets a fork to break as it likes; to roll
//! back is to delete that and to fork anew, which takes milliseconds, however much there is and was broken.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use spinney::btrfs::{MakeOptions, Volume};
use spinney::{MemoryDevice, SnapshotMode};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const VOLUME_BYTES: u64 = 256 << 20;
/// The state that tests begin with.
const FROZEN: &str = "frozen";
/// The fork that a test may break.
const NOW: &str = "now";

struct Fixture {
    volume: Volume,
    /// Paths of tests begin here.
    now: Volume,
}

impl Fixture {
    /// Has `prepare` fill a subvolume of a new volume, and takes a read-only snapshot.
    fn new(volume: Volume, prepare: impl FnOnce(&Volume) -> Result<()>) -> Result<Self> {
        volume.create_subvolume("prepared")?;
        prepare(&volume.open_subvolume("prepared")?)?;
        volume.snapshot("prepared", FROZEN, SnapshotMode::ReadOnly)?;
        volume.delete_subvolume("prepared")?;
        let now = volume.fork(FROZEN, NOW)?;
        Ok(Self { volume, now })
    }

    /// Whatever was done since is undone.
    fn roll_back(&mut self) -> Result<()> {
        self.volume.delete_subvolume(NOW)?;
        self.now = self.volume.fork(FROZEN, NOW)?;
        Ok(())
    }

    /// How many files and directories are not as they were frozen.
    fn difference(&self) -> Result<usize> {
        Ok(self.volume.diff(FROZEN, NOW)?.len())
    }
}

/// A test on a volume.
type Test = fn(&Volume) -> Result<()>;

fn main() -> Result<()> {
    let make = MakeOptions { size: Some(VOLUME_BYTES), ..MakeOptions::default() };
    let volume = match std::env::args_os().nth(1) {
        Some(image) => Volume::make(image, &make)?,
        None => Volume::options().make_device(Arc::new(MemoryDevice::new(VOLUME_BYTES)), &make)?,
    };
    let mut fixture = Fixture::new(volume, prepare)?;
    let tests: [(&str, Test); 2] = [("removal", remove), ("damage", damage)];
    for (name, test) in tests {
        test(&fixture.now)?;
        let broken = fixture.difference()?;
        let start = Instant::now();
        fixture.roll_back()?;
        let took = milliseconds(start.elapsed());
        println!("{name}: {broken} changes, rolled back in {took:.1} ms, {} left", fixture.difference()?);
    }
    println!("{} files as before", count(&fixture.now)?);
    Ok(())
}

fn prepare(volume: &Volume) -> Result<()> {
    for shelf in 0..20 {
        volume.create_dir(format!("shelf-{shelf}"))?;
        for book in 0..100 {
            volume.write(format!("shelf-{shelf}/book-{book}"), format!("page {book}\n").repeat(1000))?;
        }
    }
    Ok(())
}

/// A test that removes everything.
fn remove(volume: &Volume) -> Result<()> {
    for shelf in 0..20 {
        volume.remove_dir_all(format!("shelf-{shelf}"))?;
    }
    Ok(())
}

/// A test that writes over a half, and moves the rest.
fn damage(volume: &Volume) -> Result<()> {
    for shelf in 0..10 {
        for book in 0..100 {
            volume.write(format!("shelf-{shelf}/book-{book}"), "torn")?;
        }
        volume.rename(format!("shelf-{}", shelf + 10), format!("elsewhere-{shelf}"))?;
    }
    Ok(())
}

fn count(volume: &Volume) -> Result<usize> {
    let shelves = volume.read_dir("/")?.map(|shelf| Ok(volume.read_dir(shelf?.file_name())?.count()));
    shelves.sum()
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
