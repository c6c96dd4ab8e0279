//! Runs the workloads of `bench seeds` through the library: the same threads, sizes and syncs as `workload.sh` has them
//! made through a mount, without requests to a server. `mounts` and `seeds` use it as the system `spinney-library`.
//!
//! Two are not the same work, and say so in the table's notes: a tree is copied from a directory by two threads, where
//! a mount has `tar`; and nothing passes a page cache, since there is none but the volume's own.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use btrfs::{MakeOptions, Volume};
use vfs::file_system::{AllocateFlags, NodeFlags, SnapshotMode};
use vfs::{File, FileOptions};

use crate::row::{as_float, touch_bytes};
use crate::spinney_side::random_data;
use crate::tree;

/// The name of this side among the systems.
pub(crate) const SYSTEM: &str = "spinney-library";

const MIB: u64 = 1 << 20;
/// Seconds of workloads limited by time, as in `workload.sh`.
const SECONDS: u64 = 20;
const FSYNC_FILE_BYTES: u64 = 128 * MIB;
const SNAPSHOT_FILE_BYTES: u64 = 1 << 30;
const SHARED_FILE_BYTES: u64 = 2 << 30;
const TREES: u32 = 3;
/// `fs_mark`: files of each thread, bytes of a file and of a write.
const MARK_FILES: u32 = 250;
const MARK_FILE_BYTES: u64 = 512 << 10;
const MARK_WRITE_BYTES: u64 = 16 << 10;

/// Lengths of writes in KiB, and how many of twenty have each.
type Lengths = &'static [(u64, u64)];
const FSYNC_LENGTHS: Lengths = &[(4, 4), (8, 4), (16, 4), (32, 2), (64, 2), (128, 1), (256, 1), (512, 1), (1024, 1)];
const SHARED_LENGTHS: Lengths = &[(4, 4), (8, 4), (16, 4), (32, 4), (64, 4)];
const BLOCKS: Lengths = &[(4, 20)];

/// Where, and for how long.
pub(crate) struct Run<'a> {
    /// The image; its pages are made to exist first.
    pub(crate) image: &'a Path,
    pub(crate) image_bytes: u64,
    /// A kernel tree, for `trees`.
    pub(crate) source: &'a Path,
    /// Instead of the seconds that the workload has.
    pub(crate) seconds: Option<u64>,
}

impl Run<'_> {
    /// The figure of one workload, and its unit.
    ///
    /// # Errors
    /// The volume's; a workload of another name.
    pub(crate) fn run(&self, workload: &str) -> Result<(f64, &'static str)> {
        touch_bytes(self.image, self.image_bytes)?;
        let make = MakeOptions { size: Some(self.image_bytes), ..MakeOptions::default() };
        let volume = Volume::make(self.image, &make).with_context(|| self.image.display().to_string())?;
        let figure = match workload {
            "fsync_randwrite" => (self.fsync_randwrite(&volume)?, "MiB/s"),
            "snap_randwrite" => (self.snap_randwrite(&volume)?, "IOPS"),
            "trees" => (self.trees(&volume)?, "MB/s"),
            "fsmark" => (fsmark(&volume)?, "s"),
            "uring_randwrite" => (self.shared_file(&volume, NodeFlags::empty())?, "MiB/s"),
            "uring_randwrite_nocow" => (self.shared_file(&volume, NodeFlags::NOCOW)?, "MiB/s"),
            other => bail!("{other}: not through the library"),
        };
        volume.close()?;
        Ok(figure)
    }

    fn fsync_randwrite(&self, volume: &Volume) -> Result<f64> {
        let files = (0..8).map(|thread| new_file(volume, &format!("/writer{thread}"))).collect::<Result<Vec<_>>>()?;
        let work = Work { lengths: FSYNC_LENGTHS, file_bytes: FSYNC_FILE_BYTES, syncs: true };
        let (_, bytes, seconds) = self.write_randomly(&files.iter().collect::<Vec<_>>(), &work)?;
        Ok(as_float(bytes) / as_float(MIB) / seconds)
    }

    fn snap_randwrite(&self, volume: &Volume) -> Result<f64> {
        volume.create_subvolume("/sub")?;
        let file = new_file(volume, "/sub/test")?;
        file.allocate(AllocateFlags::empty(), 0, SNAPSHOT_FILE_BYTES)?;
        volume.sync()?;
        volume.snapshot("/sub", "/snapshot", SnapshotMode::ReadWrite)?;
        let work = Work { lengths: BLOCKS, file_bytes: SNAPSHOT_FILE_BYTES, syncs: false };
        let (writes, _, seconds) = self.write_randomly(&[&file; 4], &work)?;
        Ok(as_float(writes) / seconds)
    }

    fn shared_file(&self, volume: &Volume, flags: NodeFlags) -> Result<f64> {
        volume.create_dir("/d")?;
        volume.set_flags("/d", flags)?;
        let file = new_file(volume, "/d/test")?;
        file.allocate(AllocateFlags::empty(), 0, SHARED_FILE_BYTES)?;
        let work = Work { lengths: SHARED_LENGTHS, file_bytes: SHARED_FILE_BYTES, syncs: false };
        let (_, bytes, seconds) = self.write_randomly(&[&file; 16], &work)?;
        Ok(as_float(bytes) / as_float(MIB) / seconds)
    }

    fn trees(&self, volume: &Volume) -> Result<f64> {
        let begin = Instant::now();
        let mut bytes = 0.0;
        for number in 0..TREES {
            let below = tree::Below { volume, dir: number.to_string().into() };
            volume.create_dir(&below.dir)?;
            bytes += tree::copy(&below, self.source, 2)?;
        }
        volume.sync()?;
        Ok(bytes / 1e6 / begin.elapsed().as_secs_f64())
    }

    /// A thread for each file of the list writes to it until the time is over; writes, bytes and seconds, with the
    /// sync at the end.
    fn write_randomly(&self, files: &[&File], work: &Work) -> Result<(u64, u64, f64)> {
        let data = random_data();
        let begin = Instant::now();
        let end = begin + Duration::from_secs(self.seconds.unwrap_or(SECONDS));
        let done: Result<Vec<(u64, u64)>> = thread::scope(|scope| {
            let data = &data;
            let threads: Vec<_> = (1..)
                .zip(files)
                .map(|(thread, file)| scope.spawn(move || write_until(end, file, work, Numbers(thread), data)))
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("a writer ends")).collect()
        });
        let (writes, bytes) = done?.into_iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        Ok((writes, bytes, begin.elapsed().as_secs_f64()))
    }
}

/// How files are written at random.
struct Work {
    lengths: Lengths,
    file_bytes: u64,
    /// After each write, and not only at the end.
    syncs: bool,
}

fn write_until(end: Instant, file: &File, work: &Work, mut numbers: Numbers, data: &[u8]) -> Result<(u64, u64)> {
    let (mut writes, mut bytes) = (0, 0);
    while Instant::now() < end {
        let mut place = numbers.below(20);
        let fits = |(_, share): &&(u64, u64)| match place.checked_sub(*share) {
            Some(rest) => {
                place = rest;
                false
            }
            None => true,
        };
        let (kib, _) = work.lengths.iter().find(fits).context("the shares are twenty")?;
        let len = kib << 10;
        let offset = numbers.below(work.file_bytes / len) * len;
        let start = usize::try_from(numbers.below(32 * MIB))?;
        file.write_at(&data[start..start + usize::try_from(len)?], offset)?;
        if work.syncs {
            file.sync_all()?;
        }
        writes += 1;
        bytes += len;
    }
    file.sync_all()?;
    Ok((writes, bytes))
}

/// Seconds.
fn fsmark(volume: &Volume) -> Result<f64> {
    let data = random_data();
    let begin = Instant::now();
    let done: Result<Vec<()>> = thread::scope(|scope| {
        let mark = |thread| mark_files(volume, thread, &data);
        let threads: Vec<_> = (0..16).map(|thread| scope.spawn(move || mark(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a writer ends")).collect()
    });
    done?;
    Ok(begin.elapsed().as_secs_f64())
}

fn mark_files(volume: &Volume, thread: u32, data: &[u8]) -> Result<()> {
    let piece = &data[..usize::try_from(MARK_WRITE_BYTES)?];
    for number in 0..MARK_FILES {
        let file = new_file(volume, &format!("/{thread}-{number}"))?;
        for at in (0..MARK_FILE_BYTES).step_by(piece.len()) {
            file.write_at(piece, at)?;
        }
        file.sync_all()?;
    }
    Ok(())
}

fn new_file(volume: &Volume, path: &str) -> Result<File> {
    Ok(FileOptions::new().write(true).create(true).open(volume, path)?)
}

/// Numbers that look random, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}
