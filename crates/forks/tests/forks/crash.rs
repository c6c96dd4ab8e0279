//! Power cuts during fork, merge and drop: of every write since the last flush some arrive. In each state a fork is
//! there or not, the base is as before the merge or after it, and the next merge and drop work. `FORK_CRASH_STATES`
//! sets how many states, `FORK_SEED` the first one.

use std::path::Path;
use std::sync::Arc;

use blockdev::{Device, Result};
use btrfs::{MakeOptions, MemoryDevice, Volume};
use forks::{ForkOptions, Forks, Merge};
use parking_lot::Mutex;
use vfs::Errno;

const STATES_DEFAULT: usize = 200;
const FILES: usize = 12;
/// Bytes that a device writes whole.
const SECTOR_BYTES: usize = 4096;

#[derive(Debug, Clone)]
enum Event {
    Write(u64, Vec<u8>),
    Flush,
}

/// A device that keeps what was written to it, in order.
#[derive(Debug)]
struct Tape {
    inner: MemoryDevice,
    events: Mutex<Vec<Event>>,
}

impl Device for Tape {
    fn name(&self) -> &str {
        "tape"
    }
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.inner.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        self.events.lock().push(Event::Write(offset, parts.concat()));
        self.inner.write_at(offset, parts)
    }
    fn flush(&self) -> Result<()> {
        self.events.lock().push(Event::Flush);
        self.inner.flush()
    }
    fn discard(&self, _offset: u64, _len: u64) -> Result<()> {
        Ok(())
    }
    fn grow(&self, size_bytes: u64) -> Result<()> {
        self.inner.grow(size_bytes)
    }
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state >> 11
}

fn options() -> btrfs::VolumeOptions {
    Volume::options().workers(1).cache_bytes(4 << 20)
}

/// The device before, and all that a fork, a merge, a second fork and the drops wrote.
fn record() -> (MemoryDevice, Vec<Event>) {
    let device = Arc::new(MemoryDevice::new(128 << 20));
    let volume = options().make_device(device.clone(), &MakeOptions::default()).unwrap();
    volume.create_subvolume("base").unwrap();
    for name in 0..FILES {
        volume.write(format!("base/{name}"), "before").unwrap();
    }
    volume.close().unwrap();
    let before = device.duplicate();
    let tape = Arc::new(Tape { inner: device.duplicate(), events: Mutex::default() });
    let volume = options().open_device(tape.clone()).unwrap();
    let forks = Forks::new(volume.clone());
    let fork = |name: &str| forks.fork(Path::new("base"), Path::new(name), &ForkOptions::default()).unwrap();
    fork("trial");
    for name in 0..FILES {
        // Some with data outside of the trees.
        let after = if name % 3 == 0 { "after".repeat(3000) } else { "after".to_owned() };
        volume.write(format!("trial/{name}"), after).unwrap();
    }
    volume.create_dir("trial/dir").unwrap();
    volume.write("trial/dir/new", "after").unwrap();
    volume.sync().unwrap();
    fork("other");
    assert!(forks.merge(Path::new("trial"), &Merge::default()).unwrap().is_merged);
    volume.sync().unwrap();
    forks.drop_fork(Path::new("trial")).unwrap();
    volume.sync().unwrap();
    forks.drop_fork(Path::new("other")).unwrap();
    volume.close().unwrap();
    let events = tape.events.lock().clone();
    (before, events)
}

/// The state after the first `end` events: everything before the last flush, and some sectors of the writes after it.
fn cut(before: &MemoryDevice, events: &[Event], end: usize, seed: &mut u64) -> MemoryDevice {
    let device = before.duplicate();
    let is_flush = |event: &Event| matches!(event, Event::Flush);
    let safe = events[..end].iter().rposition(is_flush).unwrap_or(0);
    for (index, event) in events[..end].iter().enumerate() {
        let Event::Write(offset, bytes) = event else { continue };
        if index < safe {
            device.write_at(*offset, &[bytes]).unwrap();
            continue;
        }
        for (part, at) in bytes.chunks(SECTOR_BYTES).zip((*offset..).step_by(SECTOR_BYTES)) {
            if random(seed).is_multiple_of(2) {
                device.write_at(at, &[part]).unwrap();
            }
        }
    }
    device
}

/// The names in the root, and the contents of the base: before or after, never both.
fn judge(volume: &Volume) {
    let read = |path: &str| match volume.read(path) {
        Err(error) if error.errno() == Errno::ENOENT => None,
        text => Some(text.unwrap()),
    };
    let state = |root: &str| {
        let mut states: Vec<bool> =
            (0..FILES).map(|name| read(&format!("{root}/{name}")).unwrap().starts_with(b"after")).collect();
        states.push(read(&format!("{root}/dir/new")).is_some_and(|text| text == b"after"));
        states
    };
    let base = state("base");
    assert!(base.iter().all(|is_after| *is_after == base[0]), "half merged: {base:?}");
    let forks = Forks::new(volume.clone());
    let known = forks.list().unwrap();
    for name in ["trial", "other"] {
        let is_there = volume.exists(name).unwrap();
        assert_eq!(known.iter().any(|fork| fork.path == Path::new(name)), is_there, "{name}: no fork");
    }
    if volume.exists("other").unwrap() {
        let other = state("other");
        assert!(other.iter().all(|is_after| *is_after == other[0]), "half forked: {other:?}");
    }
    // The forks that are left work, and leave nothing behind.
    for fork in known {
        let merged = forks.merge(&fork.path, &Merge { strategy: forks::Strategy::Theirs, into: None }).unwrap();
        assert!(merged.conflicts.is_empty(), "{merged:?}");
        forks.drop_fork(&fork.path).unwrap();
    }
    let info = volume.subvolume_info(volume.subvolume_at(Path::new("base")).unwrap()).unwrap();
    // A merge of another fork would have made it writable again.
    let is_merging = volume.subvolumes().unwrap().iter().any(|one| one.path.to_string_lossy().contains("-merge-"));
    assert!(!info.read_only || is_merging);
}

#[test]
fn a_power_cut_leaves_forks_and_merges_whole() {
    let number = |name: &str, default| std::env::var(name).map_or(default, |value| value.parse().unwrap());
    let (first, states) = (number("FORK_SEED", 1), number("FORK_CRASH_STATES", STATES_DEFAULT));
    let (before, events) = record();
    for seed in first..first + states {
        let mut random_state = u64::try_from(seed).unwrap().wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        random(&mut random_state);
        let end = usize::try_from(random(&mut random_state)).unwrap() % (events.len() + 1);
        let device = Arc::new(cut(&before, &events, end, &mut random_state));
        let judged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let volume = options().open_device(device.clone()).unwrap();
            judge(&volume);
            // A commit renews the mirrors of the superblock.
            volume.write("later", "later").unwrap();
            volume.close().unwrap();
            let devices: [Arc<dyn Device>; 1] = [device.clone()];
            let report = btrfs_check::check(&devices, &btrfs_check::Options::default(), &()).unwrap();
            assert!(report.findings.is_empty(), "{:?}", report.findings);
        }));
        assert!(judged.is_ok(), "event {end} of {}: FORK_SEED={seed} FORK_CRASH_STATES=1 repeats it", events.len());
    }
}
