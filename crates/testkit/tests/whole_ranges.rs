//! Ranges of files that get new contents as a whole: `copy_range`, reflinks, zeroed ranges.
//!
//! A copy over data dropped the old extents in one transaction and added the new ones in the next: a reader in between
//! saw zeros that were never written, so did a crash, and on a full volume the copy failed and left them.

#![allow(clippy::as_conversions, reason = "a test with small numbers")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};
use blockdev::backends::MemoryDevice;
use btrfs::{MakeOptions, Volume, VolumeOptions};
use testkit::faults::{Event, RecordingDevice};
use vfs::file_system::{AllocateFlags, Errno};
use vfs::{Blame, Error, File, FileOptions};

const DEVICE_BYTES: u64 = 128 << 20;
const BLOCK: usize = 4096;
/// Every second block is its own extent: as many items as take several transactions.
const BLOCKS: usize = 4000;
const LEN: usize = BLOCKS * BLOCK;
const LEN_U64: u64 = 16_384_000;
const OLD: u8 = 1;
const NEW: u8 = 2;

fn options() -> VolumeOptions {
    Volume::options().workers(1)
}

fn make() -> Result<Arc<MemoryDevice>> {
    let device = Arc::new(MemoryDevice::new(DEVICE_BYTES));
    let make = MakeOptions { size: Some(DEVICE_BYTES), ..MakeOptions::default() };
    options().make_device(Arc::<MemoryDevice>::clone(&device), &make)?.close()?;
    Ok(device)
}

fn open(volume: &Volume, path: &str) -> Result<File> {
    let options = FileOptions::new().read(true).write(true).create(true).clone();
    Ok(options.open(volume, path)?)
}

/// A file of many extents, all of whose bytes are `fill`.
fn scattered(volume: &Volume, path: &str, fill: u8) -> Result<File> {
    let file = open(volume, path)?;
    for half in 0..2 {
        for block in (half..BLOCKS).step_by(2) {
            file.write_at(&[fill; BLOCK], u64::try_from(block * BLOCK)?)?;
        }
        file.sync_all()?;
    }
    ensure!(file.extents()?.len() > BLOCKS / 2, "{path} has few extents");
    ensure!(file.metadata()?.size == LEN_U64, "both lengths are one");
    Ok(file)
}

/// A change of a file whose bytes are all `OLD`, and the only other bytes that it may leave.
struct Case {
    name: &'static str,
    change: fn(&File, &File) -> Result<(), Error>,
    new: u8,
}

const CASES: [Case; 4] = [
    Case { name: "copy_range", change: |file, source| copy_all(source, file), new: NEW },
    Case { name: "reflink", change: |file, source| file.reflink(source, 0, 0, 0), new: NEW },
    Case { name: "zero range", change: |file, _| file.allocate(AllocateFlags::ZERO_RANGE, 0, LEN_U64), new: 0 },
    Case {
        name: "zero range, the size stays",
        change: |file, _| file.allocate(AllocateFlags::ZERO_RANGE | AllocateFlags::KEEP_SIZE, 100, LEN_U64 - 200),
        new: 0,
    },
];

fn copy_all(source: &File, file: &File) -> Result<(), Error> {
    let mut at = 0;
    while at < LEN_U64 {
        at += file.copy_range(source, at, at, LEN_U64 - at)?;
    }
    Ok(())
}

fn check_bytes(bytes: &[u8], new: u8) -> Result<()> {
    let strange = bytes.iter().filter(|byte| **byte != OLD && **byte != new).count();
    ensure!(strange == 0 && bytes.len() == LEN, "{strange} bytes of {} are neither old nor new", bytes.len());
    Ok(())
}

#[test]
fn readers_see_old_bytes_or_new_ones() -> Result<()> {
    for Case { name, change, new } in CASES {
        let volume = options().open_device(make()?)?;
        let file = scattered(&volume, "file", OLD)?;
        let source = scattered(&volume, "source", NEW)?;
        let (is_done, looks) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| -> Result<()> {
            let reader = scope.spawn(|| -> Result<()> {
                while !is_done.load(Ordering::Relaxed) {
                    let mut bytes = vec![0xee; LEN];
                    let count = file.read_at(&mut bytes, 0)?;
                    check_bytes(&bytes[..count], new)?;
                    looks.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            });
            while looks.load(Ordering::Relaxed) < 2 && !reader.is_finished() {
                std::thread::yield_now();
            }
            let changed = change(&file, &source);
            is_done.store(true, Ordering::Relaxed);
            reader.join().ok().context("the reader panicked")?.context(name)?;
            Ok(changed?)
        })?;
        check_bytes(&volume.read("file")?, new).context(name)?;
    }
    Ok(())
}

#[test]
fn a_crash_leaves_old_bytes_or_new_ones() -> Result<()> {
    for Case { name, change, new } in CASES {
        let device = Arc::new(RecordingDevice::new(make()?.duplicate()));
        let volume = options().open_device(Arc::<RecordingDevice>::clone(&device))?;
        let file = scattered(&volume, "file", OLD)?;
        let source = scattered(&volume, "source", NEW)?;
        volume.sync()?;
        let first = device.event_count();
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| -> Result<()> {
            let syncer = scope.spawn(|| -> Result<()> {
                while !is_done.load(Ordering::Relaxed) {
                    volume.sync()?;
                }
                Ok(())
            });
            let changed = change(&file, &source);
            is_done.store(true, Ordering::Relaxed);
            syncer.join().ok().context("the syncer panicked")??;
            Ok(changed?)
        })?;
        let events = device.events();
        let flushes = (first..events.len()).filter(|at| events.get(*at) == Some(&Event::Flush));
        let mut commits = 0;
        for flush in flushes {
            let image = Arc::new(device.image_after(flush + 1)?);
            let volume = options().read_only(true).open_device(image)?;
            check_bytes(&volume.read("file")?, new).with_context(|| format!("{name}, after event {flush}"))?;
            commits += 1;
        }
        ensure!(commits > 1, "{name}: {commits} flushes only");
    }
    Ok(())
}

/// Fills the volume with the writes of `left`, until there is no space.
fn fill(volume: &Volume) -> Result<()> {
    let is_full = |error: &Error| error.blame() == Blame::Space;
    for (number, len) in [(0, 1 << 20), (1, 64 << 10), (2, 4096)] {
        let file = open(volume, &format!("filler{number}"))?;
        let mut at = 0;
        loop {
            match file.write_at(&vec![9; len], at) {
                Ok(()) => at += u64::try_from(len)?,
                Err(error) if is_full(&error) => break,
                Err(error) => return Err(error.into()),
            }
        }
    }
    // A commit returns unused reservations: repeated until nothing more fits after one.
    let mut number = 0;
    loop {
        let before = number;
        loop {
            match volume.create_dir(format!("{number:0>240}")) {
                Ok(()) => number += 1,
                Err(error) if is_full(&error) => break,
                Err(error) => return Err(error.into()),
            }
        }
        volume.sync()?;
        if number < before + 4 {
            return Ok(());
        }
    }
}

#[test]
fn without_room_a_change_fails_and_leaves_what_was_there() -> Result<()> {
    for Case { name, change, new } in CASES {
        let volume = options().open_device(make()?)?;
        // Few items: dropping them makes no room for those that come.
        let file = open(&volume, "file")?;
        file.write_at(&[OLD; LEN], 0)?;
        let source = scattered(&volume, "source", NEW)?;
        fill(&volume)?;
        let changed = change(&file, &source);
        let bytes = volume.read("file")?;
        check_bytes(&bytes, new).context(name)?;
        match changed {
            Ok(()) => {}
            Err(error) if error.blame() == Blame::Space => {
                let is_first_old = bytes.iter().take(64).all(|byte| *byte == OLD);
                ensure!(is_first_old || name != "zero range", "{name} failed and zeroed the start");
            }
            Err(error) if error.errno() == Errno::EINVAL => {}
            Err(error) => return Err(error).context(name),
        }
        drop((file, source));
        volume.sync()?;
        check_bytes(&volume.read("file")?, new).context(name)?;
    }
    Ok(())
}

/// A copy behind the end of a small file that is kept in its item.
#[test]
fn a_copy_behind_a_small_file_leaves_its_bytes() -> Result<()> {
    let volume = options().open_device(make()?)?;
    let source = scattered(&volume, "source", NEW)?;
    let small = open(&volume, "small")?;
    small.write_at(&[OLD; 100], 0)?;
    small.sync_all()?;
    small.reflink(&source, 0, 8192, 8192)?;
    volume.sync()?;
    let bytes = volume.read("small")?;
    ensure!(bytes.len() == 16384 && bytes[..100] == [OLD; 100], "the start is another");
    ensure!(bytes[100..8192].iter().all(|byte| *byte == 0), "the gap is not zeros");
    ensure!(bytes[8192..].iter().all(|byte| *byte == NEW), "the copy is not there");
    let (tiny, copy) = (open(&volume, "tiny")?, open(&volume, "copy")?);
    tiny.write_at(&[NEW; 100], 0)?;
    copy.write_at(&[OLD; 60], 0)?;
    copy.reflink(&tiny, 0, 0, 0)?;
    volume.sync()?;
    ensure!(volume.read("copy")? == [NEW; 100], "an inline copy is another");
    Ok(())
}
