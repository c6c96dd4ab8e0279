//! Fsyncs of many threads share flushes and requests, and each keeps its promise, with other changes meanwhile.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use blockdev::backends::FileDevice;
use blockdev::{Device, Op};
use f2fs::{F2fs, MakeOptions, OpenOptions};
use tempfile::NamedTempFile;
use vfs::{File, FileOptions, Volume};

use crate::{WITH_EXTRA, check, device, make};

const THREADS: usize = 6;
const FILES: usize = 20;

/// A device with slow flushes, so that other fsyncs come meanwhile; it counts. While it is held, flushes wait; while
/// `writes` is locked, no write ends.
#[derive(Debug)]
struct Slow {
    inner: Arc<FileDevice>,
    flushes: AtomicU64,
    is_held: AtomicBool,
    /// All flushes after this number fail.
    good_flushes: AtomicU64,
    writes: Mutex<()>,
}

impl Slow {
    /// A new volume on such a device, with a checkpoint that fsyncs follow.
    fn with_volume(image: &NamedTempFile) -> (Arc<Self>, Arc<F2fs>, Volume) {
        make(image.path(), 256 << 20, &MakeOptions { features: WITH_EXTRA, ..MakeOptions::default() });
        let (flushes, is_held, good_flushes) = (AtomicU64::new(0), AtomicBool::new(false), AtomicU64::new(u64::MAX));
        let (inner, writes) = (device(image.path()), Mutex::new(()));
        let slow = Arc::new(Self { inner, flushes, is_held, good_flushes, writes });
        let fs = Arc::new(OpenOptions::new().writable(true).open(Arc::<Self>::clone(&slow)).unwrap());
        let volume = Volume::new(Arc::<F2fs>::clone(&fs));
        (0..THREADS).for_each(|thread| volume.create_dir(thread.to_string()).unwrap());
        volume.write("shared", "as it was").unwrap();
        volume.sync().unwrap();
        (slow, fs, volume)
    }

    fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::SeqCst)
    }

    fn hold(&self, is_held: bool) {
        self.is_held.store(is_held, Ordering::SeqCst);
    }
}

impl Device for Slow {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> blockdev::Result<()> {
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> blockdev::Result<()> {
        let _one = self.writes.lock().unwrap();
        self.inner.write_at(offset, parts)
    }

    fn flush(&self) -> blockdev::Result<()> {
        let number = self.flushes.fetch_add(1, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(4));
        wait_until(|| !self.is_held.load(Ordering::SeqCst));
        if number >= self.good_flushes.load(Ordering::SeqCst) {
            let source = std::io::Error::other("the disk is gone");
            return Err(blockdev::Error::io(Op::Flush, "slow", 0, 0, source));
        }
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> blockdev::Result<()> {
        self.inner.discard(offset, len)
    }

    fn grow(&self, size_bytes: u64) -> blockdev::Result<()> {
        self.inner.grow(size_bytes)
    }
}

fn wait_until(is_so: impl Fn() -> bool) {
    while !is_so() {
        thread::sleep(Duration::from_millis(1));
    }
}

fn contents(thread: usize, number: usize) -> Vec<u8> {
    vec![u8::try_from(thread * FILES + number).unwrap(); 9000 + number * 500]
}

/// The image after a power cut now: every write that has ended is on the disk.
fn cut(slow: &Slow, image: &NamedTempFile) -> NamedTempFile {
    let cut = NamedTempFile::new().unwrap();
    let _no_write = slow.writes.lock().unwrap();
    std::fs::copy(image.path(), cut.path()).unwrap();
    cut
}

/// Opens an image after a power cut, at first only to read, and checks it before and after.
fn after_cut(cut: &NamedTempFile, look: impl Fn(&Volume)) {
    check(cut.path());
    for is_writable in [false, true] {
        let again = Volume::new(Arc::new(OpenOptions::new().writable(is_writable).open(device(cut.path())).unwrap()));
        look(&again);
        again.close().unwrap();
    }
    check(cut.path());
}

fn create(volume: &Volume, path: &str) -> File {
    FileOptions::new().write(true).create(true).open(volume, path).unwrap()
}

#[test]
fn fsyncs_of_many_threads_keep_their_promises() {
    const CUTS: usize = 5;
    let image = NamedTempFile::new().unwrap();
    let (slow, fs, volume) = Slow::with_volume(&image);
    let checkpoint = fs.info().unwrap().checkpoint;
    let (begin, promised) = (Barrier::new(THREADS), Mutex::new(Vec::new()));
    let work = |thread: usize| {
        // All of them sync this file as well, as data or as a whole.
        let shared = FileOptions::new().write(true).open(&volume, "shared").unwrap();
        begin.wait();
        for number in 0..FILES {
            let file = create(&volume, &format!("{thread}/{number}"));
            file.write_at(&contents(thread, number), 0).unwrap();
            file.sync_all().unwrap();
            promised.lock().unwrap().push((thread, number));
            shared.write_at(&contents(thread, number), 1 << 20).unwrap();
            if number % 2 == 0 { shared.sync_data() } else { shared.sync_all() }.unwrap();
        }
    };
    let mut cuts = Vec::new();
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        for part in 1..CUTS {
            let is_there = || promised.lock().unwrap().len() >= part * THREADS * FILES / CUTS;
            wait_until(|| is_there() || threads.iter().any(thread::ScopedJoinHandle::is_finished));
            let promised = promised.lock().unwrap().clone();
            cuts.push((cut(&slow, &image), promised));
        }
    });
    assert_eq!(fs.info().unwrap().checkpoint, checkpoint, "nodes say it");
    cuts.push((cut(&slow, &image), promised.into_inner().unwrap()));
    assert_eq!(cuts.last().unwrap().1.len(), THREADS * FILES);
    for (cut, promised) in cuts {
        after_cut(&cut, |again| {
            for (thread, number) in &promised {
                let found = again.read(format!("{thread}/{number}")).unwrap();
                assert!(found == contents(*thread, *number), "{thread}/{number} of {}", promised.len());
            }
            let shared = again.read("shared").unwrap();
            assert!(shared.starts_with(b"as it was"));
            assert!(shared.len() > 1 << 20 || promised.len() < THREADS * FILES, "all have synced it");
        });
    }
    volume.close().unwrap();
}

/// During a flush the other fsyncs come, and become one chain with two flushes.
#[test]
fn fsyncs_that_wait_share_flushes() {
    let image = NamedTempFile::new().unwrap();
    let (slow, _fs, volume) = Slow::with_volume(&image);
    let files: Vec<File> = (0..THREADS)
        .map(|number| {
            let file = create(&volume, &format!("{number}/file"));
            file.write_at(&contents(number, 0), 0).unwrap();
            file
        })
        .collect();
    let before = slow.flushes();
    slow.hold(true);
    let begun = AtomicU64::new(0);
    thread::scope(|scope| {
        for (number, file) in files.iter().enumerate() {
            let begun = &begun;
            scope.spawn(move || {
                begun.fetch_add(1, Ordering::SeqCst);
                file.sync_all().unwrap();
            });
            if number == 0 {
                wait_until(|| slow.flushes() > before);
            }
        }
        wait_until(|| begun.load(Ordering::SeqCst) == u64::try_from(THREADS).unwrap());
        // From there it is a few instructions to where they wait.
        thread::sleep(Duration::from_millis(300));
        assert_eq!(slow.flushes(), before + 1, "one at a time");
        slow.hold(false);
    });
    let flushes = slow.flushes() - before;
    assert!((4..=6).contains(&flushes), "{flushes} flushes for one fsync and {} that waited", THREADS - 1);
    after_cut(&cut(&slow, &image), |again| {
        for number in 0..THREADS {
            assert!(again.read(format!("{number}/file")).unwrap() == contents(number, 0), "{number}");
        }
    });
    volume.close().unwrap();
}

/// While blocks are in flight the volume is changed in memory, including those blocks; further writes wait.
#[test]
fn an_fsync_lets_others_change_the_volume() {
    let image = NamedTempFile::new().unwrap();
    let (slow, _fs, volume) = Slow::with_volume(&image);
    let [kept, cut_short, gone] = ["0/kept", "0/cut", "0/gone"].map(|path| create(&volume, path));
    [&kept, &cut_short, &gone].into_iter().for_each(|file| file.write_at(&contents(1, 1), 0).unwrap());
    gone.sync_all().unwrap();
    let before = slow.flushes();
    slow.hold(true);
    let is_synced = AtomicBool::new(false);
    thread::scope(|scope| {
        let (volume, slow, is_synced) = (&volume, &slow, &is_synced);
        let fsync = scope.spawn(|| kept.sync_all().unwrap());
        wait_until(|| slow.flushes() > before);
        let meanwhile = scope.spawn(|| {
            assert!(volume.read("0/kept").unwrap() == contents(1, 1), "it is in flight");
            kept.write_at(b"newer", 4096).unwrap();
            assert_eq!(volume.read("0/kept").unwrap().get(4096..4101).unwrap(), b"newer");
            cut_short.set_len(5000).unwrap();
            volume.remove_file("0/gone").unwrap();
            volume.rename("0/cut", "1/moved").unwrap();
            volume.write("2/new", "made meanwhile").unwrap();
            assert_eq!(volume.read("2/new").unwrap(), b"made meanwhile");
        });
        let start = std::time::Instant::now();
        wait_until(|| meanwhile.is_finished() || start.elapsed() > Duration::from_secs(20));
        if !meanwhile.is_finished() {
            slow.hold(false);
        }
        assert!(slow.is_held.load(Ordering::SeqCst), "changes wait for the device");
        assert!(!fsync.is_finished(), "the device has not answered");
        meanwhile.join().unwrap();
        scope.spawn(|| {
            volume.sync().unwrap();
            is_synced.store(true, Ordering::SeqCst);
        });
        thread::sleep(Duration::from_millis(200));
        assert_eq!(slow.flushes(), before + 1, "a checkpoint waits for writes in flight");
        assert!(!is_synced.load(Ordering::SeqCst));
        slow.hold(false);
        fsync.join().unwrap();
        after_cut(&cut(slow, &image), |again| {
            assert!(again.read("0/kept").unwrap().starts_with(contents(1, 1).get(..4096).unwrap()));
        });
    });
    after_cut(&cut(&slow, &image), |again| {
        let kept = again.read("0/kept").unwrap();
        assert_eq!((kept.len(), kept.get(4096..4101).unwrap()), (contents(1, 1).len(), &b"newer"[..]));
        assert!(again.read("1/moved").unwrap() == contents(1, 1).get(..5000).unwrap());
        assert_eq!(again.read("2/new").unwrap(), b"made meanwhile");
        assert!(again.read("0/gone").is_err());
    });
    volume.close().unwrap();
}

#[test]
fn what_fails_on_its_way_is_told_and_still_read() {
    let image = NamedTempFile::new().unwrap();
    let (slow, _fs, volume) = Slow::with_volume(&image);
    let file = create(&volume, "0/file");
    file.write_at(&contents(1, 1), 0).unwrap();
    let other = create(&volume, "0/other");
    other.write_at(&contents(2, 2), 0).unwrap();
    let before = slow.flushes();
    slow.hold(true);
    thread::scope(|scope| {
        let fsync = scope.spawn(|| file.sync_all());
        wait_until(|| slow.flushes() > before);
        let late = scope.spawn(|| volume.sync());
        slow.good_flushes.store(0, Ordering::SeqCst);
        slow.hold(false);
        assert!(fsync.join().unwrap().is_err() && late.join().unwrap().is_err());
    });
    assert!(other.sync_all().is_err() && volume.write("0/later", "").is_err());
    assert!(volume.read("0/file").unwrap() == contents(1, 1) && volume.read("0/other").unwrap() == contents(2, 2));
    slow.good_flushes.store(u64::MAX, Ordering::SeqCst);
    assert!(volume.sync().is_err(), "the state on the device is unknown");
    after_cut(&cut(&slow, &image), |again| assert_eq!(again.read("shared").unwrap(), b"as it was"));
}

/// More changes than fit the journal of a checkpoint, which fails at either of its flushes.
#[test]
fn what_a_failed_checkpoint_had_is_still_read() {
    for good in 0..2 {
        let image = NamedTempFile::new().unwrap();
        let (slow, _fs, volume) = Slow::with_volume(&image);
        (0..FILES).for_each(|number| volume.write(format!("0/{number}"), "older").unwrap());
        volume.sync().unwrap();
        let newer = |number: usize| format!("0/newer-{number}");
        for number in 0..100 {
            volume.write(newer(number), contents(1, 1)).unwrap();
        }
        volume.write("0/1", "newest").unwrap();
        volume.remove_file("0/2").unwrap();
        slow.good_flushes.store(slow.flushes() + good, Ordering::SeqCst);
        assert!(volume.sync().is_err());
        for number in 0..100 {
            assert!(volume.read(newer(number)).unwrap() == contents(1, 1), "{number}, flush {good}");
        }
        assert_eq!(volume.read("0/1").unwrap(), b"newest");
        assert!(volume.read("0/2").is_err(), "flush {good}");
        assert_eq!(volume.read("0/3").unwrap(), b"older");
    }
}
