//! Runs the workloads of `bench run` through the library, and `spinney mkfs`; `kernel_side` does the same with the
//! kernel. `main` calls it for `bench one`.

use std::process::Command;
use std::thread;
use std::time::Instant;

use anyhow::{Result, ensure};
use btrfs::{MakeOptions, Volume};

use crate::row::{FILES, IMAGE_BYTES, One, PIECE, RANDOM_BYTES, SEQUENTIAL_BYTES, Workload, as_float, as_u64};
use crate::tree;
use vfs::FileOptions;
use vfs::file_system::WholeNode;

/// Seconds, and bytes or operations.
pub(crate) fn run(one: &One) -> Result<(f64, f64)> {
    match one.row {
        Workload::Rootdir => rootdir(one),
        Workload::Tree => timed(one, |volume| {
            let bytes = tree::copy(volume, &one.source, one.threads)?;
            volume.sync()?;
            Ok(bytes)
        }),
        Workload::Seqwrite => timed_with(one, random_data(), |volume, data| {
            seqwrite(volume, one.threads, data)?;
            volume.sync()?;
            Ok(as_float(SEQUENTIAL_BYTES))
        }),
        Workload::Seqread => seqread(one),
        Workload::Randwrite => randwrite(one),
        Workload::Create => timed(one, |volume| {
            volume.create_dir("d")?;
            files(one.threads, |name| create(volume, name))?;
            volume.sync()?;
            Ok(as_float(FILES))
        }),
        Workload::Stat | Workload::Unlink => existing(one),
    }
}

fn make(one: &One) -> Result<Volume> {
    let make = MakeOptions { size: Some(IMAGE_BYTES), ..MakeOptions::default() };
    let volume = Volume::make(one.image(), &make)?;
    volume.sync()?;
    Ok(volume)
}

fn timed(one: &One, work: impl FnOnce(&Volume) -> Result<f64>) -> Result<(f64, f64)> {
    timed_with(one, Vec::new(), |volume, _| work(volume))
}

/// Times `work` with data that was made before.
fn timed_with(one: &One, data: Vec<u8>, work: impl FnOnce(&Volume, &[u8]) -> Result<f64>) -> Result<(f64, f64)> {
    let volume = make(one)?;
    let start = Instant::now();
    let amount = work(&volume, &data)?;
    Ok((start.elapsed().as_secs_f64(), amount))
}

fn rootdir(one: &One) -> Result<(f64, f64)> {
    let amount = tree::size(&one.source)?;
    let start = Instant::now();
    let status = Command::new(&one.program)
        .args(["mkfs", "-q", "-f", "--nodiscard", "--size", &IMAGE_BYTES.to_string(), "--rootdir"])
        .arg(&one.source)
        .arg(one.image())
        .status()?;
    ensure!(status.success(), "spinney mkfs: {status}");
    Ok((start.elapsed().as_secs_f64(), amount))
}

fn name(index: u64) -> String {
    format!("d/file-{index:06}")
}

fn create(volume: &Volume, index: u64) -> Result<()> {
    volume.create_node(name(index), &WholeNode { permissions: 0o644, ..WholeNode::default() })?;
    Ok(())
}

/// Calls `work` for every file, on several threads.
pub(crate) fn files(threads: usize, work: impl Fn(u64) -> Result<()> + Sync) -> Result<()> {
    let threads = u64::try_from(threads)?;
    thread::scope(|scope| {
        let work = &work;
        let handles: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || (thread..FILES).step_by(usize::try_from(threads)?).try_for_each(work)))
            .collect();
        handles.into_iter().try_for_each(|handle| handle.join().expect("a worker does not panic"))
    })
}

fn existing(one: &One) -> Result<(f64, f64)> {
    let volume = make(one)?;
    volume.create_dir("d")?;
    files(1, |index| create(&volume, index))?;
    volume.sync()?;
    let start = Instant::now();
    if one.row == Workload::Stat {
        files(one.threads, |index| {
            ensure!(volume.metadata(name(index))?.size == 0, "an empty file");
            Ok(())
        })?;
    } else {
        files(one.threads, |index| Ok(volume.remove_file(name(index))?))?;
        volume.sync()?;
    }
    Ok((start.elapsed().as_secs_f64(), as_float(FILES)))
}

fn seqwrite(volume: &Volume, threads: usize, data: &[u8]) -> Result<()> {
    shares(threads, |thread, share| {
        let file = FileOptions::new().write(true).create(true).open(volume, format!("big{thread}"))?;
        (0..share).try_for_each(|n| Ok(file.write_at(piece_of(data, n), n * as_u64(PIECE))?))
    })
}

/// Gives each thread its number and its share of the pieces of the sequential file.
fn shares(threads: usize, work: impl Fn(usize, u64) -> Result<()> + Sync) -> Result<()> {
    let share = SEQUENTIAL_BYTES / as_u64(PIECE) / as_u64(threads);
    thread::scope(|scope| {
        let work = &work;
        let handles: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread, share))).collect();
        handles.into_iter().try_for_each(|handle| handle.join().expect("a worker does not panic"))
    })
}

fn seqread(one: &One) -> Result<(f64, f64)> {
    let volume = make(one)?;
    seqwrite(&volume, one.threads, &random_data())?;
    volume.close()?;
    let volume = Volume::options().read_only(true).open(one.image())?;
    let start = Instant::now();
    shares(one.threads, |thread, share| {
        let file = FileOptions::new().read(true).open(&volume, format!("big{thread}"))?;
        let mut piece = vec![0; PIECE];
        (0..share).try_for_each(|n| {
            ensure!(file.read_at(&mut piece, n * as_u64(PIECE))? == PIECE, "a whole piece");
            Ok(())
        })
    })?;
    Ok((start.elapsed().as_secs_f64(), as_float(SEQUENTIAL_BYTES)))
}

fn randwrite(one: &One) -> Result<(f64, f64)> {
    let count = RANDOM_BYTES / 4096;
    timed_with(one, random_data(), |volume, data| {
        let file = FileOptions::new().write(true).create(true).open(volume, "random")?;
        file.set_len(RANDOM_BYTES)?;
        let threads = as_u64(one.threads);
        thread::scope(|scope| {
            let file = &file;
            let handles: Vec<_> = (0..threads)
                .map(|thread| {
                    scope.spawn(move || {
                        random_offsets(thread, threads, count)
                            .try_for_each(|offset| file.write_at(block_of(data, offset), offset))
                    })
                })
                .collect();
            handles.into_iter().try_for_each(|handle| handle.join().expect("a worker does not panic"))
        })?;
        volume.sync()?;
        Ok(as_float(count))
    })
}

/// Every block once, in an order that is random and the same for all systems.
pub(crate) fn random_offsets(thread: u64, threads: u64, count: u64) -> impl Iterator<Item = u64> {
    // An odd multiplier permutes the numbers below a power of two.
    (thread..count)
        .step_by(usize::try_from(threads).unwrap_or(1))
        .map(move |n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5bd1) % count * 4096)
}

/// Bytes that nothing can compress or find again, the same for all systems; made before the clock starts.
pub(crate) fn random_data() -> Vec<u8> {
    const POOL_BYTES: usize = 64 * PIECE;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.take(POOL_BYTES / 8).flatten().collect()
}

/// The `n`-th piece to write: no two of a row are the same before there are more than the pool has pages.
pub(crate) fn piece_of(data: &[u8], n: u64) -> &[u8] {
    // Pieces overlap, so that there are more than the pool is large.
    let start = n * 7 * 4096 % as_u64(data.len() - PIECE);
    let start = usize::try_from(start).unwrap_or(0);
    &data[start..start + PIECE]
}

/// The 4 KiB that are written at an offset.
pub(crate) fn block_of(data: &[u8], offset: u64) -> &[u8] {
    let start = usize::try_from(offset % as_u64(data.len() - 4096)).unwrap_or(0);
    &data[start..start + 4096]
}
