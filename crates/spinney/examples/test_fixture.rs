//! A fixture for tests: `test_fixture [IMAGE]`.
//!
//! Prepares a tree once, in memory or in an image. Each test gets a copy to break as it likes, which is made and
//! deleted in milliseconds, however much is in it.

use std::error::Error;
use std::time::{Duration, Instant};

use spinney::btrfs::{MakeOptions, Volume};
use spinney::testing::Fixture;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const VOLUME_BYTES: u64 = 256 << 20;

/// A test on a copy.
type Test = fn(&Volume) -> spinney::Result<()>;

fn main() -> Result<()> {
    let make = MakeOptions { size: Some(VOLUME_BYTES), ..MakeOptions::default() };
    let fixture = match std::env::args_os().nth(1) {
        Some(image) => Fixture::on(Volume::make(image, &make)?, prepare)?,
        None => Fixture::in_memory(VOLUME_BYTES, prepare)?,
    };
    let tests: [(&str, Test); 2] = [("removal", remove), ("damage", damage)];
    for (name, test) in tests {
        let copy = fixture.copy()?;
        test(&copy)?;
        let broken = copy.changes()?.len();
        let start = Instant::now();
        drop(copy);
        let copy = fixture.copy()?;
        let took = milliseconds(start.elapsed());
        println!("{name}: {broken} changes, rolled back in {took:.1} ms, {} left", copy.changes()?.len());
    }
    println!("{} files as before", count(&*fixture.copy()?)?);
    Ok(())
}

fn prepare(tree: &Volume) -> spinney::Result<()> {
    for shelf in 0..20 {
        tree.create_dir(format!("shelf-{shelf}"))?;
        for book in 0..100 {
            tree.write(format!("shelf-{shelf}/book-{book}"), format!("page {book}\n").repeat(1000))?;
        }
    }
    Ok(())
}

/// A test that removes everything.
fn remove(tree: &Volume) -> spinney::Result<()> {
    (0..20).try_for_each(|shelf| tree.remove_dir_all(format!("shelf-{shelf}")))
}

/// A test that writes over a half, and moves the rest.
fn damage(tree: &Volume) -> spinney::Result<()> {
    for shelf in 0..10 {
        for book in 0..100 {
            tree.write(format!("shelf-{shelf}/book-{book}"), "torn")?;
        }
        tree.rename(format!("shelf-{}", shelf + 10), format!("elsewhere-{shelf}"))?;
    }
    Ok(())
}

fn count(tree: &Volume) -> Result<usize> {
    let shelves = tree.read_dir("/")?.map(|shelf| Ok(tree.read_dir(shelf?.file_name())?.count()));
    shelves.sum()
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
