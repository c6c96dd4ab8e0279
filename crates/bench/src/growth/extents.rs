//! The steps of the dimension of extents of one sparse file of 1 TiB. `growth` runs them.

use std::ffi::OsStr;
use std::time::Instant;

use anyhow::{Result, ensure};
use btrfs::{MakeOptions, Volume};
use vfs::{File, FileOptions, SnapshotMode};

use super::step::{self, At, Outcome, Step, each};
use crate::row::as_u64;
use crate::spinney_side::{block_of, random_data};

pub(super) const STEPS: &[Step] = &[
    Step::whole("make", make),
    Step::single("open", step::open),
    Step::single("open to write", step::open_to_write),
    Step::single("read", read),
    Step::whole("extents", list),
    Step::single("rewrite", rewrite),
    Step::single("fsync", fsync),
    Step::single("snapshot", snapshot),
    Step::single("write after snapshot", after_snapshot),
    Step::whole("check", step::check),
    Step::whole("scrub", step::scrub),
    Step::whole("send", send),
    Step::single("diff", diff),
    Step::whole("truncate", truncate),
];

/// Bytes of the file.
const FILE_BYTES: u64 = 1 << 40;
const BLOCK: u64 = 4096;
/// Blocks that are read, or written anew: so few that each is in a leaf of its own in larger trees, too.
const TOUCHED: u64 = 100;
/// Blocks that are synced one by one.
const SYNCED: u64 = 100;

/// Bytes between two blocks.
fn step(at: &At<'_>) -> u64 {
    FILE_BYTES / at.count / BLOCK * BLOCK
}

/// `count` blocks all over the file, each once, in an order in which neighbours do not follow each other.
fn places(at: &At<'_>, count: u64) -> impl Iterator<Item = u64> {
    // A prime permutes the numbers below a power of ten.
    const PRIME: u64 = 7919;
    let (all, count, step) = (at.count, count.min(at.count), step(at));
    (0..count).map(move |number| number * PRIME % count * (all / count) * step)
}

fn make(at: &At<'_>) -> Result<Outcome> {
    let size = (2 << 30) + at.count * BLOCK * 3;
    let volume = Volume::make(at.image(), &MakeOptions { size: Some(size), ..MakeOptions::default() })?;
    volume.create_subvolume("s")?;
    let data = random_data();
    let start = Instant::now();
    let file = FileOptions::new().write(true).create(true).open(&volume, "s/big")?;
    file.set_len(FILE_BYTES)?;
    for offset in places(at, at.count) {
        file.write_at(block_of(&data, offset), offset)?;
    }
    volume.sync()?;
    let time = start.elapsed();
    volume.close()?;
    Ok(time.into())
}

fn file(volume: &Volume) -> Result<File> {
    Ok(FileOptions::new().read(true).write(!volume.is_read_only()).open(volume, "s/big")?)
}

fn read(at: &At<'_>) -> Result<Outcome> {
    let volume = at.to_read()?;
    let file = file(&volume)?;
    let mut block = vec![0; usize::try_from(BLOCK)?];
    let start = Instant::now();
    for offset in places(at, TOUCHED) {
        ensure!(file.read_at(&mut block, offset)? == block.len(), "a whole block");
    }
    Ok(each(start.elapsed(), TOUCHED))
}

fn list(at: &At<'_>) -> Result<Outcome> {
    let volume = at.to_read()?;
    let file = file(&volume)?;
    let start = Instant::now();
    let extents = file.extents()?;
    let time = start.elapsed();
    ensure!(as_u64(extents.len()) >= at.count, "{} extents", extents.len());
    Ok(time.into())
}

/// Blocks written anew, with the commit.
fn write_some(at: &At<'_>, count: u64) -> Result<Outcome> {
    let volume = at.volume()?;
    let (file, data) = (file(&volume)?, random_data());
    let start = Instant::now();
    for offset in places(at, count) {
        file.write_at(block_of(&data, offset + 1), offset)?;
    }
    volume.sync()?;
    let time = start.elapsed();
    volume.close()?;
    Ok(time.into())
}

fn rewrite(at: &At<'_>) -> Result<Outcome> {
    write_some(at, TOUCHED)
}

fn after_snapshot(at: &At<'_>) -> Result<Outcome> {
    write_some(at, SYNCED)
}

fn fsync(at: &At<'_>) -> Result<Outcome> {
    let volume = at.volume()?;
    let (file, data) = (file(&volume)?, random_data());
    let start = Instant::now();
    for offset in places(at, SYNCED) {
        file.write_at(block_of(&data, offset + 1), offset)?;
        file.sync_all()?;
    }
    let time = start.elapsed();
    volume.close()?;
    Ok(each(time, SYNCED))
}

fn snapshot(at: &At<'_>) -> Result<Outcome> {
    let volume = at.volume()?;
    let start = Instant::now();
    volume.snapshot("s", "snapshot", SnapshotMode::ReadOnly)?;
    volume.sync()?;
    let time = start.elapsed();
    volume.snapshot("s", "now", SnapshotMode::ReadOnly)?;
    volume.close()?;
    Ok(time.into())
}

fn send(at: &At<'_>) -> Result<Outcome> {
    step::on_image(at, &["send", "-q"], &[OsStr::new("/snapshot")])
}

fn diff(at: &At<'_>) -> Result<Outcome> {
    step::on_image(at, &["diff"], &["/snapshot", "/s"].map(OsStr::new))
}

fn truncate(at: &At<'_>) -> Result<Outcome> {
    let volume = at.volume()?;
    for name in ["snapshot", "now"] {
        volume.delete_subvolume(name)?;
    }
    volume.sync()?;
    let file = file(&volume)?;
    let start = Instant::now();
    file.set_len(0)?;
    volume.sync()?;
    let time = start.elapsed();
    drop(file);
    volume.close()?;
    Ok(time.into())
}
