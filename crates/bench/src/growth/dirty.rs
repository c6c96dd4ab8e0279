//! The steps of the dimension of files with unwritten data at once. `growth` runs them.

use std::time::{Duration, Instant};

use anyhow::Result;
use btrfs::{MakeOptions, Volume};
use vfs::{File, FileOptions};

use super::step::{At, Outcome, Step};

pub(super) const STEPS: &[Step] = &[
    Step::prepares("make", make),
    Step::whole("write", write),
    Step::whole("commit", commit),
    Step::single("fsync", fsync),
];

const IMAGE_BYTES: u64 = 4 << 30;
/// Bytes of each file.
const FILE_BYTES: usize = 64 << 10;
/// Files that are synced one by one while the others are dirty.
const SYNCED: u32 = 20;

fn make(at: &At<'_>) -> Result<Outcome> {
    let volume = Volume::make(at.image(), &MakeOptions { size: Some(IMAGE_BYTES), ..MakeOptions::default() })?;
    volume.close()?;
    Ok(0.0.into())
}

/// Writes to all files without a sync; what does not fit into the memory for dirty data is written out.
fn fill(at: &At<'_>, volume: &Volume) -> Result<(Vec<File>, Duration)> {
    let data = crate::spinney_side::random_data();
    let files = (0..at.count).map(|number| {
        let file = FileOptions::new().write(true).create(true).open(volume, format!("f{number}"))?;
        file.set_len(0)?;
        Ok(file)
    });
    let files: Vec<File> = files.collect::<Result<_>>()?;
    volume.sync()?;
    let start = Instant::now();
    for file in &files {
        file.write_at(&data[..FILE_BYTES], 0)?;
    }
    Ok((files, start.elapsed()))
}

fn write(at: &At<'_>) -> Result<Outcome> {
    let volume = at.volume()?;
    let (_files, time) = fill(at, &volume)?;
    Ok(time.into())
}

fn commit(at: &At<'_>) -> Result<Outcome> {
    let volume = at.volume()?;
    let (_files, _) = fill(at, &volume)?;
    let start = Instant::now();
    volume.sync()?;
    Ok(start.elapsed().into())
}

/// The mean of a few fsyncs, each of a small change, while all files are dirty.
fn fsync(at: &At<'_>) -> Result<Outcome> {
    let volume = at.volume()?;
    let own = FileOptions::new().write(true).create(true).open(&volume, "own")?;
    let (_files, _) = fill(at, &volume)?;
    let start = Instant::now();
    for number in 0..SYNCED {
        own.write_at(b"changed", u64::from(number) * 4096)?;
        own.sync_all()?;
    }
    Ok((start.elapsed() / SYNCED).into())
}
