//! Fsyncs of many threads share flushes and requests, and each keeps its promise.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use blockdev::Device;
use blockdev::backends::FileDevice;
use f2fs::{F2fs, MakeOptions, OpenOptions};
use tempfile::NamedTempFile;
use vfs::{File, FileOptions, Volume};

use crate::{WITH_EXTRA, check, device, make};

const THREADS: usize = 6;
const FILES: usize = 20;

/// A device that takes its time to flush, so that others come meanwhile; it counts. While it is held, flushes wait.
#[derive(Debug)]
struct Slow {
    inner: Arc<FileDevice>,
    flushes: AtomicU64,
    is_held: AtomicBool,
}

impl Slow {
    fn new(image: &NamedTempFile) -> Arc<Self> {
        let (flushes, is_held) = (AtomicU64::new(0), AtomicBool::new(false));
        Arc::new(Self { inner: device(image.path()), flushes, is_held })
    }

    fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::SeqCst)
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
        self.inner.write_at(offset, parts)
    }

    fn flush(&self) -> blockdev::Result<()> {
        self.flushes.fetch_add(1, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(4));
        wait_until(|| !self.is_held.load(Ordering::SeqCst));
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

#[test]
fn fsyncs_of_many_threads_keep_their_promises() {
    let image = NamedTempFile::new().unwrap();
    make(image.path(), 256 << 20, &MakeOptions { features: WITH_EXTRA, ..MakeOptions::default() });
    let slow = Slow::new(&image);
    let fs = Arc::new(OpenOptions::new().writable(true).open(Arc::<Slow>::clone(&slow)).unwrap());
    let volume = Volume::new(Arc::<F2fs>::clone(&fs));
    (0..THREADS).for_each(|thread| volume.create_dir(thread.to_string()).unwrap());
    volume.write("shared", "as it was").unwrap();
    volume.sync().unwrap();
    let checkpoint = fs.info().unwrap().checkpoint;
    let begin = Barrier::new(THREADS);
    let work = |thread: usize| {
        // All of them sync this one as well, now as data, now as a whole.
        let shared = FileOptions::new().write(true).open(&volume, "shared").unwrap();
        begin.wait();
        for number in 0..FILES {
            let path = format!("{thread}/{number}");
            let file: File = FileOptions::new().write(true).create(true).open(&volume, &path).unwrap();
            file.write_at(&contents(thread, number), 0).unwrap();
            file.sync_all().unwrap();
            shared.write_at(&contents(thread, number), 1 << 20).unwrap();
            if number % 2 == 0 { shared.sync_data() } else { shared.sync_all() }.unwrap();
        }
    };
    thread::scope(|scope| {
        let work = &work;
        (0..THREADS).for_each(|thread| drop(scope.spawn(move || work(thread))));
    });
    assert_eq!(fs.info().unwrap().checkpoint, checkpoint, "nodes say it");
    let cut = NamedTempFile::new().unwrap();
    std::fs::copy(image.path(), cut.path()).unwrap();
    check(cut.path());
    for is_writable in [false, true] {
        let again = Volume::new(Arc::new(OpenOptions::new().writable(is_writable).open(device(cut.path())).unwrap()));
        for (thread, number) in (0..THREADS).flat_map(|thread| (0..FILES).map(move |number| (thread, number))) {
            assert!(again.read(format!("{thread}/{number}")).unwrap() == contents(thread, number), "{thread}/{number}");
        }
        let shared = again.read("shared").unwrap();
        assert!(shared.len() > 1 << 20 && shared.starts_with(b"as it was"));
        again.close().unwrap();
    }
    check(cut.path());
    volume.close().unwrap();
}

/// While one is flushed the others come, and are one chain with two flushes.
#[test]
fn fsyncs_that_wait_share_flushes() {
    let image = NamedTempFile::new().unwrap();
    make(image.path(), 256 << 20, &MakeOptions { features: WITH_EXTRA, ..MakeOptions::default() });
    let slow = Slow::new(&image);
    let fs = Arc::new(OpenOptions::new().writable(true).open(Arc::<Slow>::clone(&slow)).unwrap());
    let volume = Volume::new(Arc::<F2fs>::clone(&fs));
    volume.write("first", "makes the checkpoint that fsyncs follow").unwrap();
    volume.sync().unwrap();
    let files: Vec<File> = (0..THREADS)
        .map(|number| {
            let path = number.to_string();
            let file = FileOptions::new().write(true).create(true).open(&volume, path).unwrap();
            file.write_at(&contents(number, 0), 0).unwrap();
            file
        })
        .collect();
    let before = slow.flushes();
    slow.is_held.store(true, Ordering::SeqCst);
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
        slow.is_held.store(false, Ordering::SeqCst);
    });
    let flushes = slow.flushes() - before;
    assert!((4..=6).contains(&flushes), "{flushes} flushes for one fsync and {} that waited", THREADS - 1);
    let cut = NamedTempFile::new().unwrap();
    std::fs::copy(image.path(), cut.path()).unwrap();
    check(cut.path());
    let again = Volume::new(Arc::new(OpenOptions::new().writable(true).open(device(cut.path())).unwrap()));
    for number in 0..THREADS {
        assert!(again.read(number.to_string()).unwrap() == contents(number, 0), "{number}");
    }
    again.close().unwrap();
    check(cut.path());
    volume.close().unwrap();
}
