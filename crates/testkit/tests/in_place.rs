//! Files without copies on write, that share an extent with a file which a crash brings back.
//!
//! Two files shared an extent; one was removed (or cut, punched, replaced) without a sync, the other overwritten in
//! place and synced. After a power cut the first was back, as its removal had not been committed, with the other's
//! bytes in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use blockdev::Device;
use blockdev::backends::MemoryDevice;
use btrfs::{MakeOptions, Volume, VolumeOptions};
use testkit::faults::{Event, RecordingDevice};
use vfs::file_system::AllocateFlags;
use vfs::{File, FileOptions};

const DEVICE_BYTES: u64 = 128 << 20;
const LEN: usize = 64 << 10;
const OLD: u8 = 1;
const NEW: u8 = 2;
const NEW_LEN: usize = 8192;
/// Where the primary superblock is.
const SUPERBLOCK_AT: u64 = 64 << 10;

fn options() -> VolumeOptions {
    Volume::options().nodatacow(true).workers(1)
}

fn open(volume: &Volume, path: &str) -> Result<File> {
    let options = FileOptions::new().read(true).write(true).create(true).clone();
    Ok(options.open(volume, path)?)
}

/// A volume with `a`, a committed file, and `b`, which shares all of it.
fn shared() -> Result<(Arc<RecordingDevice>, Volume)> {
    let device = Arc::new(MemoryDevice::new(DEVICE_BYTES));
    let make = MakeOptions { size: Some(DEVICE_BYTES), ..MakeOptions::default() };
    options().make_device(Arc::<MemoryDevice>::clone(&device), &make)?.close()?;
    let device = Arc::new(RecordingDevice::new(device.duplicate()));
    let volume = options().open_device(Arc::<RecordingDevice>::clone(&device))?;
    open(&volume, "a")?.write_at(&[OLD; LEN], 0)?;
    open(&volume, "c")?.write_at(&[OLD; LEN], 0)?;
    open(&volume, "b")?.reflink(&open(&volume, "a")?, 0, 0, 0)?;
    volume.sync()?;
    Ok((device, volume))
}

/// Contents of `a` and `b` after a crash, if every write arrived.
fn after_crash(device: &RecordingDevice, events: usize) -> Result<(Option<Vec<u8>>, Vec<u8>)> {
    let image = Arc::new(device.image_after(events)?);
    let volume = options().open_device(image)?;
    Ok((volume.read("a").ok(), volume.read("b")?))
}

fn check_old(a: &[u8]) -> Result<()> {
    let foreign = a.iter().filter(|byte| **byte != OLD).count();
    ensure!(foreign == 0 && a.len() == LEN, "a has {foreign} foreign bytes of {}", a.len());
    Ok(())
}

fn check_new(b: &[u8]) -> Result<()> {
    let is_new = b.iter().take(NEW_LEN).all(|byte| *byte == NEW);
    ensure!(is_new && b.iter().skip(NEW_LEN).all(|byte| *byte == OLD), "b differs from the synced data");
    Ok(())
}

type Removal = fn(&Volume) -> Result<()>;

/// Ways to lose the extent.
const REMOVALS: [(&str, Removal); 7] = [
    ("unlink", |volume| Ok(volume.remove_file("a")?)),
    ("rename over", |volume| Ok(volume.rename("c", "a")?)),
    ("truncate", |volume| Ok(open(volume, "a")?.set_len(0)?)),
    ("punch", |volume| {
        Ok(open(volume, "a")?.allocate(AllocateFlags::PUNCH_HOLE | AllocateFlags::KEEP_SIZE, 0, 64 << 10)?)
    }),
    ("punch the start", |volume| {
        Ok(open(volume, "a")?.allocate(AllocateFlags::PUNCH_HOLE | AllocateFlags::KEEP_SIZE, 0, 32 << 10)?)
    }),
    ("zero", |volume| Ok(open(volume, "a")?.allocate(AllocateFlags::ZERO_RANGE, 0, 64 << 10)?)),
    ("reflink over", |volume| Ok(open(volume, "a")?.reflink(&open(volume, "c")?, 0, 0, 0)?)),
];

#[test]
fn a_removal_that_is_not_committed_leaves_the_extent_shared() -> Result<()> {
    let mut wrong = Vec::new();
    for (name, remove) in REMOVALS {
        for is_full in [true, false] {
            let (device, volume) = shared()?;
            remove(&volume)?;
            let b = open(&volume, "b")?;
            b.write_at(&[NEW; NEW_LEN], 0)?;
            if is_full {
                b.sync_all()?
            } else {
                b.sync_data()?
            }
            let (a, b) = after_crash(&device, device.event_count())?;
            let result = check_old(&a.context("a is not back")?).and_then(|()| check_new(&b));
            wrong.extend(result.err().map(|error| format!("{name}: {error}")));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// The same where the log brings a file back: `d` came, was synced and went in one transaction.
#[test]
fn a_reference_that_only_the_log_has_counts_as_one() -> Result<()> {
    let (device, volume) = shared()?;
    for name in ["a", "c"] {
        volume.remove_file(name)?;
    }
    volume.sync()?;
    let d = open(&volume, "d")?;
    d.reflink(&open(&volume, "b")?, 0, 0, 0)?;
    d.sync_all()?;
    drop(d);
    volume.remove_file("d")?;
    let b = open(&volume, "b")?;
    b.write_at(&[NEW; NEW_LEN], 0)?;
    b.sync_data()?;
    let image = Arc::new(device.image_after(device.event_count())?);
    let volume = options().open_device(image)?;
    check_new(&volume.read("b")?)?;
    check_old(&volume.read("d").context("d is not back")?)
}

/// Preallocated space that two files share: it is written in place, and the other file reads zeros.
#[test]
fn preallocated_space_of_a_removed_file_still_reads_as_zeros() -> Result<()> {
    let (device, volume) = shared()?;
    let p = open(&volume, "p")?;
    p.allocate(AllocateFlags::empty(), 0, 64 << 10)?;
    let q = open(&volume, "q")?;
    q.reflink(&p, 0, 0, 0)?;
    drop(p);
    volume.sync()?;
    volume.remove_file("p")?;
    q.write_at(&[NEW; NEW_LEN], 0)?;
    q.sync_data()?;
    let image = Arc::new(device.image_after(device.event_count())?);
    let volume = options().open_device(image)?;
    ensure!(volume.read("p").context("p is not back")? == [0; LEN], "p has foreign bytes");
    ensure!(volume.read("q")?.starts_with(&[NEW; NEW_LEN]), "q differs from the synced data");
    Ok(())
}

/// Once the removal is durable the rest is private: overwriting it again takes no new space.
#[test]
fn after_the_commit_it_is_overwritten_in_place_again() -> Result<()> {
    let (_, volume) = shared()?;
    volume.remove_file("a")?;
    volume.sync()?;
    let b = open(&volume, "b")?;
    let before = b.extents()?;
    b.write_at(&[NEW; NEW_LEN], 0)?;
    b.sync_data()?;
    ensure!(b.extents()? == before, "b was written elsewhere");
    Ok(())
}

/// Lets a commit wait with its superblock.
#[derive(Debug)]
struct Slow {
    inner: Arc<RecordingDevice>,
    is_armed: AtomicBool,
    /// The commit has come to its superblock.
    is_waiting: AtomicBool,
}

impl Device for Slow {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> blockdev::Result<()> {
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> blockdev::Result<()> {
        if offset == SUPERBLOCK_AT && self.is_armed.swap(false, Ordering::SeqCst) {
            self.is_waiting.store(true, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(300));
        }
        self.inner.write_at(offset, parts)
    }

    fn flush(&self) -> blockdev::Result<()> {
        self.inner.flush()
    }

    fn discard(&self, _: u64, _: u64) -> blockdev::Result<()> {
        Ok(())
    }

    fn grow(&self, size_bytes: u64) -> blockdev::Result<()> {
        self.inner.grow(size_bytes)
    }
}

/// A commit has the removal, but its superblock is not written yet: others work on, and the power fails.
#[test]
fn a_removal_whose_commit_is_under_way_leaves_the_extent_shared() -> Result<()> {
    let (device, volume) = shared()?;
    volume.close()?;
    let slow = Arc::new(Slow {
        inner: Arc::clone(&device),
        is_armed: AtomicBool::new(false),
        is_waiting: AtomicBool::new(false),
    });
    let volume = options().open_device(Arc::<Slow>::clone(&slow))?;
    // Free space is read at its first use, which must not be during a commit.
    open(&volume, "w")?.write_at(&[OLD; LEN], 0)?;
    volume.sync()?;
    let b = open(&volume, "b")?;
    volume.remove_file("a")?;
    slow.is_armed.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| -> Result<()> {
        let commit = scope.spawn(|| volume.sync());
        while !slow.is_waiting.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        b.write_at(&[NEW; NEW_LEN], 0)?;
        b.sync_data()?;
        commit.join().ok().context("the commit panicked")??;
        Ok(())
    })?;
    let is_commit = |event: &Event| matches!(event, Event::Write { offset, .. } if *offset == SUPERBLOCK_AT);
    let has_new = |event: &Event| matches!(event, Event::Write { data, .. } if data.starts_with(&[NEW; NEW_LEN]));
    let events = device.events();
    let written = events.iter().position(has_new).context("b was not written")?;
    let commit = events.iter().skip(written).position(is_commit).context("no commit")? + written;
    let (a, _) = after_crash(&device, commit)?;
    check_old(&a.context("a is not back: the commit was not under way")?)
}
