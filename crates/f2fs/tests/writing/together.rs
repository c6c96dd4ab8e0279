//! Fsyncs of many threads share flushes and requests, and each keeps its promise.

use std::sync::atomic::{AtomicU64, Ordering};
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

/// A device that takes its time to flush, so that others come meanwhile; it counts.
#[derive(Debug)]
struct Slow {
    inner: Arc<FileDevice>,
    flushes: AtomicU64,
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
        self.flushes.fetch_add(1, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(4));
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> blockdev::Result<()> {
        self.inner.discard(offset, len)
    }

    fn grow(&self, size_bytes: u64) -> blockdev::Result<()> {
        self.inner.grow(size_bytes)
    }
}

fn contents(thread: usize, number: usize) -> Vec<u8> {
    vec![u8::try_from(thread * FILES + number).unwrap(); 9000 + number * 500]
}

#[test]
fn fsyncs_that_come_together_share_their_flushes() {
    let image = NamedTempFile::new().unwrap();
    make(image.path(), 256 << 20, &MakeOptions { features: WITH_EXTRA, ..MakeOptions::default() });
    let slow = Arc::new(Slow { inner: device(image.path()), flushes: AtomicU64::new(0) });
    let fs = Arc::new(OpenOptions::new().writable(true).open(Arc::<Slow>::clone(&slow)).unwrap());
    let volume = Volume::new(Arc::<F2fs>::clone(&fs));
    (0..THREADS).for_each(|thread| volume.create_dir(thread.to_string()).unwrap());
    volume.write("shared", "as it was").unwrap();
    volume.sync().unwrap();
    let (before, checkpoint) = (slow.flushes.load(Ordering::Relaxed), fs.info().unwrap().checkpoint);
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
    let (syncs, flushes) = (2 * THREADS * FILES, slow.flushes.load(Ordering::Relaxed) - before);
    let alone = 2 * u64::try_from(syncs).unwrap();
    assert!(flushes * 2 < alone, "{flushes} flushes for {syncs} fsyncs, each of which alone takes two");
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
