//! Tests a full f2fs volume that is overwritten at random: does every write succeed in time, how much more is written
//! because of cleaning, and is all data intact?
//!
//! The trial fills an image with files, and overwrites random blocks of them for `--seconds`, with syncs in between. A
//! counting device measures writes. Then the trial compares all data with the last writes, before and after reopening
//! the image, and `fsck.f2fs` checks it. For comparison, [`Simulation`] counts the blocks that the kernel's greedy rule
//! (clean the segment with the fewest blocks in use) would move for the same writes. It simulates data only: no nodes,
//! no checkpoints, and no writes into the gaps of segments, which the kernel does when few segments are free.
//!
//! Fails if data differs, an operation takes longer than [`SECONDS_MAX`], or `fsck.f2fs` finds an error. Needs no root.
//! Called by `cargo trials f2fs-cleaning`.

use crate::formats::Kind;
use anyhow::{Context, Result, bail, ensure};
use blockdev::backends::{FileDevice, FileOptions};
use blockdev::trace::TracingDevice;
use f2fs::{Features, MakeOptions, OpenOptions};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use testkit::Random;
use vfs::{File, FileOptions as Open, Volume};

const BLOCK: u64 = 4096;
const FILE_BLOCKS: u64 = 1024;
const SEGMENT_BLOCKS: u64 = 512;
/// The trial fails if an operation takes longer.
const SECONDS_MAX: u64 = 60;

/// Options of the trial.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Seconds of overwriting.
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Bytes of the image.
    #[arg(long, default_value_t = 1 << 30)]
    size: u64,
    /// Percent of the space for files that is in use
    #[arg(long, default_value_t = 95)]
    full: u64,
    /// Blocks between two syncs.
    #[arg(long, default_value_t = 1000)]
    sync_every: u64,
    /// Seed of the random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The image.
    #[arg(long, default_value = "/dev/shm/spinney-cleaning.img")]
    image: PathBuf,
}

/// Runs the trial: fills the volume, overwrites blocks, compares the data, and prints the result.
pub(crate) fn run(options: &Options) -> Result<()> {
    std::fs::File::create(&options.image)?.set_len(options.size)?;
    let features = Features::EXTRA_ATTR | Features::INODE_CHKSUM | Features::SB_CHKSUM;
    f2fs::make(
        &FileDevice::open(&options.image, &FileOptions::default())?,
        &MakeOptions { features, ..MakeOptions::default() },
    )?;
    let device = Arc::new(TracingDevice::counting(FileDevice::open(&options.image, &FileOptions::default())?));
    let opened = Arc::new(OpenOptions::new().writable(true).open(Arc::<TracingDevice<FileDevice>>::clone(&device))?);
    let segments = u64::from(opened.info()?.segments);
    let volume = Volume::new(Arc::<f2fs::F2fs>::clone(&opened));
    let mut data = Data { files: Vec::new(), versions: Vec::new() };
    fill(options, &volume, &opened, &mut data)?;
    let (before, start) = (device.counts(), Instant::now());
    let (mut random, mut trace, mut longest) = (Random::new(options.seed), Vec::new(), Duration::ZERO);
    while start.elapsed() < Duration::from_secs(options.seconds) {
        let block = random.below(data.block_count());
        let began = Instant::now();
        data.write(block)?;
        trace.push(block);
        if u64::try_from(trace.len())?.is_multiple_of(options.sync_every.max(1)) {
            volume.sync()?;
        }
        longest = longest.max(began.elapsed());
        ensure!(longest < Duration::from_secs(SECONDS_MAX), "an operation took {longest:?}");
    }
    volume.sync()?;
    let (seconds, after) = (start.elapsed(), device.counts());
    data.compare().context("before it is opened anew")?;
    let blocks = data.block_count();
    data.files.clear();
    volume.close()?;
    drop((opened, device));
    if let Some(problem) = Kind::F2fs.check(&options.image)? {
        bail!("fsck.f2fs: {problem}");
    }
    let device = FileDevice::open(&options.image, &FileOptions { read_only: true, ..FileOptions::default() })?;
    let volume = Volume::new(Arc::new(OpenOptions::new().open(Arc::new(device))?));
    for file in 0..data.block_count() / FILE_BLOCKS {
        data.files.push(File::open(&volume, name(file))?);
    }
    data.compare().context("after it was opened anew")?;
    report(
        options,
        &Seen {
            segments,
            blocks,
            trace,
            seconds,
            longest,
            writes: after.writes - before.writes,
            bytes: after.write_bytes - before.write_bytes,
        },
    )?;
    Ok(std::fs::remove_file(&options.image)?)
}

/// Measurements.
struct Seen {
    segments: u64,
    blocks: u64,
    trace: Vec<u64>,
    seconds: Duration,
    longest: Duration,
    writes: u64,
    bytes: u64,
}

fn report(options: &Options, seen: &Seen) -> Result<()> {
    let user = u64::try_from(seen.trace.len())?;
    let mut simulation = Simulation::new(seen.segments, seen.blocks)?;
    for block in &seen.trace {
        simulation.write(*block)?;
    }
    let share = |part: u64, whole: u64| -> Result<f64> {
        Ok(f64::from(u32::try_from(part)?) / f64::from(u32::try_from(whole.max(1))?))
    };
    println!(
        "f2fs-cleaning: {} MiB, {} percent full ({} blocks in {} segments), {user} blocks overwritten in {:.0} s with \
         a sync every {}; longest operation {:.2} s",
        options.size >> 20,
        options.full,
        seen.blocks,
        seen.segments,
        seen.seconds.as_secs_f64(),
        options.sync_every,
        seen.longest.as_secs_f64()
    );
    println!(
        "  the device: {} writes of {} MiB; write amplification {:.2}",
        seen.writes,
        seen.bytes >> 20,
        share(seen.bytes / BLOCK, user)?
    );
    println!(
        "  greedy cleaning of data alone, simulated: {} blocks moved, write amplification {:.2}",
        simulation.moved,
        1.0 + share(simulation.moved, user)?
    );
    println!("  all data is there, fsck.f2fs clean, seed {}", options.seed);
    Ok(())
}

/// Writes files until the wanted part of the space is in use.
fn fill(options: &Options, volume: &Volume, opened: &f2fs::F2fs, data: &mut Data) -> Result<()> {
    loop {
        let status = vfs::FileSystem::status(opened)?;
        let left = status.blocks_available.saturating_mul(u64::from(status.block_bytes)) / BLOCK;
        let total = status.blocks.saturating_mul(u64::from(status.block_bytes)) / BLOCK;
        if left.saturating_sub(FILE_BLOCKS) < total.saturating_mul(100 - options.full.min(100)) / 100 {
            return Ok(volume.sync()?);
        }
        let number = u64::try_from(data.files.len())?;
        let file = Open::new().read(true).write(true).create_new(true).open(volume, name(number))?;
        data.files.push(file);
        for block in number * FILE_BLOCKS..(number + 1) * FILE_BLOCKS {
            data.versions.push(0);
            data.write(block)?;
        }
    }
}

fn name(file: u64) -> String {
    format!("/file-{file}")
}

/// The files, and the number of writes to each of their blocks.
struct Data {
    files: Vec<File>,
    versions: Vec<u32>,
}

impl Data {
    fn block_count(&self) -> u64 {
        u64::try_from(self.versions.len()).unwrap_or(0)
    }

    fn write(&mut self, block: u64) -> Result<()> {
        let version = self.versions.get_mut(usize::try_from(block)?).context("no such block")?;
        *version += 1;
        let contents = contents(block, *version);
        Ok(self.file(block)?.write_at(&contents, block % FILE_BLOCKS * BLOCK)?)
    }

    fn file(&self, block: u64) -> Result<&File> {
        self.files.get(usize::try_from(block / FILE_BLOCKS)?).context("no such file")
    }

    fn compare(&self) -> Result<()> {
        let mut found = vec![0; usize::try_from(BLOCK)?];
        for (block, version) in (0..).zip(&self.versions) {
            let count = self.file(block)?.read_at(&mut found, block % FILE_BLOCKS * BLOCK)?;
            ensure!(
                count == found.len() && found == contents(block, *version),
                "block {} of {} differs from the last write",
                block % FILE_BLOCKS,
                name(block / FILE_BLOCKS)
            );
        }
        Ok(())
    }
}

/// Contents of a block, different for each version.
fn contents(block: u64, version: u32) -> Vec<u8> {
    let mut word = block.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (u64::from(version) << 40);
    let mut bytes = Vec::new();
    while bytes.len() < 4096 {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// Simulates segments of a log that is cleaned greedily.
struct Simulation {
    /// Blocks in use, of each segment.
    used: Vec<Vec<u64>>,
    /// Segment of each block.
    places: Vec<usize>,
    free: Vec<usize>,
    /// Segments being written: of new blocks, and of moved ones.
    logs: [usize; 2],
    filled: [u64; 2],
    moved: u64,
}

/// Segments that stay free for the cleaner.
const SPARE: usize = 4;

impl Simulation {
    fn new(segments: u64, blocks: u64) -> Result<Self> {
        let count = usize::try_from(segments)?;
        let mut free: Vec<usize> = (0..count).rev().collect();
        let logs = [free.pop().context("no segment")?, free.pop().context("no segment")?];
        let places = vec![usize::MAX; usize::try_from(blocks)?];
        let mut own = Self { used: vec![Vec::new(); count], places, free, logs, filled: [0; 2], moved: 0 };
        for block in 0..blocks {
            own.write(block)?;
        }
        own.moved = 0;
        Ok(own)
    }

    fn write(&mut self, block: u64) -> Result<()> {
        while self.free.len() < SPARE {
            self.clean()?;
        }
        self.append(0, block)
    }

    fn append(&mut self, log: usize, block: u64) -> Result<()> {
        let place = self.places.get_mut(usize::try_from(block)?).context("no such block")?;
        let to = self.logs.get_mut(log).context("no such log")?;
        let filled = self.filled.get_mut(log).context("no such log")?;
        if *filled == SEGMENT_BLOCKS {
            *to = self.free.pop().context("the simulated volume is too full")?;
            *filled = 0;
        }
        *filled += 1;
        if let Some(old) = self.used.get_mut(*place) {
            old.retain(|known| *known != block);
        }
        *place = *to;
        self.used.get_mut(*to).context("no such segment")?.push(block);
        Ok(())
    }

    fn clean(&mut self) -> Result<()> {
        let is_candidate = |segment: &usize| !self.logs.contains(segment) && !self.free.contains(segment);
        let victim =
            (0..self.used.len()).filter(is_candidate).min_by_key(|segment| self.used.get(*segment).map(Vec::len));
        let victim = victim.context("no segment to clean")?;
        let blocks = self.used.get(victim).cloned().unwrap_or_default();
        self.moved += u64::try_from(blocks.len())?;
        for block in blocks {
            self.append(1, block)?;
        }
        self.free.insert(0, victim);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_simulated_volume_that_is_half_empty_moves_little_and_a_full_one_much() {
        let moved = |blocks: u64| {
            let mut random = Random::new(7);
            let mut simulation = Simulation::new(40, blocks).unwrap();
            (0..40_000).for_each(|_| simulation.write(random.below(blocks)).unwrap());
            let used: usize = simulation.used.iter().map(Vec::len).sum();
            assert_eq!(u64::try_from(used).unwrap(), blocks);
            simulation.moved
        };
        assert!(moved(17_000) > 3 * moved(8000));
    }
}
