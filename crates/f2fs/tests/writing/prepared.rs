//! Writes of several threads are prepared at the same time: none waits for another one's reads from the device, and
//! changes in between are not lost.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use blockdev::Device;
use blockdev::backends::FileDevice;
use f2fs::{F2fs, MakeOptions, OpenOptions};
use tempfile::NamedTempFile;
use vfs::file_system::AllocateFlags;
use vfs::{File, FileOptions, Volume};

use crate::{WITH_EXTRA, check, device, make};

const FILE_BYTES: usize = 6 << 20;
/// In a block whose address is not in the inode, and not at its start.
const OFFSET: usize = (5 << 20) + 100;
const BLOCK_START: usize = 5 << 20;

/// A device that holds back one read of one thread until it is released: the read returns old data.
#[derive(Debug)]
struct Holding {
    inner: Arc<FileDevice>,
    /// The thread, and the number of its reads that return before.
    held: Mutex<Option<(ThreadId, u64)>>,
    reads: AtomicU64,
    is_held: AtomicBool,
    is_let_go: AtomicBool,
}

impl Holding {
    /// A reopened volume, with files "a" and "b" whose nodes and contents are not in memory.
    fn with_volume(image: &NamedTempFile) -> (Arc<Self>, Volume) {
        make(image.path(), 256 << 20, &MakeOptions { features: WITH_EXTRA, ..MakeOptions::default() });
        let volume = Volume::new(Arc::new(OpenOptions::new().writable(true).open(device(image.path())).unwrap()));
        ["a", "b"].into_iter().for_each(|path| volume.write(path, vec![1; FILE_BYTES]).unwrap());
        volume.close().unwrap();
        let (held, reads) = (Mutex::new(None), AtomicU64::new(0));
        let (is_held, is_let_go) = (AtomicBool::new(false), AtomicBool::new(false));
        let holding = Arc::new(Self { inner: device(image.path()), held, reads, is_held, is_let_go });
        let fs: Arc<F2fs> = Arc::new(OpenOptions::new().writable(true).open(Arc::<Self>::clone(&holding)).unwrap());
        let volume = Volume::new(fs);
        // Fsyncs write nodes behind a checkpoint of this opening, and contents in place.
        volume.write("c", "").unwrap();
        volume.sync().unwrap();
        (holding, volume)
    }

    /// Holds back read `number` of the calling thread.
    fn hold_at(&self, number: u64) {
        *self.held.lock().unwrap() = Some((thread::current().id(), number));
        self.reads.store(0, Ordering::SeqCst);
    }

    /// Waits until a read is held, or the thread has ended without one.
    fn wait(&self, thread: &thread::ScopedJoinHandle<'_, ()>) -> bool {
        while !self.is_held.load(Ordering::SeqCst) && !thread.is_finished() {
            thread::sleep(Duration::from_millis(1));
        }
        self.is_held.load(Ordering::SeqCst)
    }
}

/// Releases the held read, after a failed assertion too.
struct LetGo<'a>(&'a Holding);

impl Drop for LetGo<'_> {
    fn drop(&mut self) {
        self.0.is_let_go.store(true, Ordering::SeqCst);
    }
}

impl Device for Holding {
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
        self.inner.read_at(offset, buf)?;
        let held = *self.held.lock().unwrap();
        if let Some((thread, number)) = held
            && thread == thread::current().id()
            && self.reads.fetch_add(1, Ordering::SeqCst) == number
        {
            self.is_held.store(true, Ordering::SeqCst);
            while !self.is_let_go.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> blockdev::Result<()> {
        self.inner.write_at(offset, parts)
    }

    fn flush(&self) -> blockdev::Result<()> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> blockdev::Result<()> {
        self.inner.discard(offset, len)
    }

    fn grow(&self, size_bytes: u64) -> blockdev::Result<()> {
        self.inner.grow(size_bytes)
    }
}

fn open(volume: &Volume, path: &str) -> File {
    FileOptions::new().read(true).write(true).open(volume, path).unwrap()
}

/// Closes a volume, checks it and opens it anew.
fn reopen(image: &NamedTempFile, holding: Arc<Holding>, volume: Volume) -> Volume {
    volume.close().unwrap();
    drop(holding);
    check(image.path());
    Volume::new(Arc::new(OpenOptions::new().open(device(image.path())).unwrap()))
}

/// One writer waits for each block in turn that it reads, of the NAT, a node and the contents; meanwhile another one
/// writes, fsyncs and commits.
#[test]
fn a_writer_that_waits_for_the_device_blocks_no_other() {
    let mut number = 0;
    loop {
        let image = NamedTempFile::new().unwrap();
        let (holding, volume) = Holding::with_volume(&image);
        let (a, b) = (open(&volume, "a"), open(&volume, "b"));
        let was_held = thread::scope(|scope| {
            let held = LetGo(&holding);
            let one = scope.spawn(|| {
                holding.hold_at(number);
                a.write_at(b"first", u64::try_from(OFFSET).unwrap()).unwrap();
            });
            let was_held = holding.wait(&one);
            let other = scope.spawn(|| {
                b.write_at(b"second", u64::try_from(OFFSET).unwrap()).unwrap();
                b.sync_all().unwrap();
                volume.write("c", vec![3; 10_000]).unwrap();
                assert_eq!(volume.read("c").unwrap(), vec![3; 10_000]);
                volume.sync().unwrap();
            });
            let start = Instant::now();
            while !other.is_finished() && start.elapsed() < Duration::from_secs(20) {
                thread::sleep(Duration::from_millis(1));
            }
            let has_waited = !other.is_finished();
            assert!(!was_held || !one.is_finished(), "the device has not answered");
            drop(held);
            assert!(!has_waited, "the other writer waits at read {number} of the first one");
            was_held
        });
        drop((a, b));
        let again = reopen(&image, holding, volume);
        for (path, text) in [("a", &b"first"[..]), ("b", b"second")] {
            let mut expected = vec![1; FILE_BYTES];
            expected.get_mut(OFFSET..OFFSET + text.len()).unwrap().copy_from_slice(text);
            assert!(again.read(path).unwrap() == expected, "{path}, read {number}");
        }
        if !was_held {
            break;
        }
        number += 1;
    }
    assert!(number >= 2, "a node and contents are read before the lock is taken: {number}");
}

/// A change that another writer makes between the first writer's read of a page and its use of it.
type Meanwhile = fn(&Volume, &File, &mut [u8]);

fn write_beside(_volume: &Volume, file: &File, expected: &mut [u8]) {
    file.write_at(b"beside", u64::try_from(BLOCK_START).unwrap()).unwrap();
    expected.get_mut(BLOCK_START..BLOCK_START + 6).unwrap().copy_from_slice(b"beside");
}

fn write_and_commit(volume: &Volume, file: &File, expected: &mut [u8]) {
    write_beside(volume, file, expected);
    volume.sync().unwrap();
}

/// The block is the same, with other contents.
fn write_in_place(volume: &Volume, file: &File, expected: &mut [u8]) {
    let at = |file: &File| file.extents_from(u64::try_from(BLOCK_START).unwrap()).unwrap().first().unwrap().logical;
    let before = at(file);
    write_beside(volume, file, expected);
    file.sync_data().unwrap();
    assert_eq!(at(file), before);
}

fn cut_and_grow(_volume: &Volume, file: &File, expected: &mut [u8]) {
    file.set_len(0).unwrap();
    file.set_len(u64::try_from(FILE_BYTES).unwrap()).unwrap();
    expected.fill(0);
}

fn punch(volume: &Volume, file: &File, expected: &mut [u8]) {
    let offset = u64::try_from(BLOCK_START).unwrap();
    file.allocate(AllocateFlags::KEEP_SIZE | AllocateFlags::PUNCH_HOLE, offset, 4096).unwrap();
    expected.get_mut(BLOCK_START..BLOCK_START + 4096).unwrap().fill(0);
    volume.sync().unwrap();
}

/// Another file may have reused the block.
fn replace(volume: &Volume, file: &File, expected: &mut [u8]) {
    cut_and_grow(volume, file, expected);
    volume.sync().unwrap();
    volume.write("d", vec![4; FILE_BYTES]).unwrap();
    volume.sync().unwrap();
}

#[test]
fn a_page_that_others_changed_meanwhile_is_read_anew() {
    let all: [Meanwhile; 6] = [write_beside, write_and_commit, write_in_place, cut_and_grow, punch, replace];
    for (index, meanwhile) in all.into_iter().enumerate() {
        let image = NamedTempFile::new().unwrap();
        let (holding, volume) = Holding::with_volume(&image);
        let (one, other) = (open(&volume, "a"), open(&volume, "a"));
        // All nodes are in memory: the first read is that of the contents.
        one.extents().unwrap();
        let mut expected = vec![1; FILE_BYTES];
        thread::scope(|scope| {
            let held = LetGo(&holding);
            let writer = scope.spawn(|| {
                holding.hold_at(0);
                one.write_at(b"first", u64::try_from(OFFSET).unwrap()).unwrap();
            });
            assert!(holding.wait(&writer));
            meanwhile(&volume, &other, &mut expected);
            assert!(!writer.is_finished());
            drop(held);
        });
        expected.get_mut(OFFSET..OFFSET + 5).unwrap().copy_from_slice(b"first");
        let mut found = vec![0; FILE_BYTES];
        assert_eq!(one.read_at(&mut found, 0).unwrap(), FILE_BYTES);
        assert!(found == expected, "change {index}");
        drop((one, other));
        let again = reopen(&image, holding, volume);
        assert!(again.read("a").unwrap() == expected, "change {index}, opened anew");
    }
}

/// Threads write to parts of the same pages, cached or not, while others make them durable.
#[test]
fn threads_that_write_the_same_pages_lose_nothing() {
    const THREADS: usize = 4;
    const STRIPE: usize = 700;
    const ROUNDS: usize = 400;
    let image = NamedTempFile::new().unwrap();
    let (holding, volume) = Holding::with_volume(&image);
    let mut expected = vec![1; FILE_BYTES];
    let work = |thread: usize| {
        let file = open(&volume, "a");
        let mut random = u64::try_from(thread).unwrap();
        let mut written = Vec::new();
        for round in 0..ROUNDS {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let stripe = usize::try_from(random >> 33).unwrap() % (FILE_BYTES / STRIPE / THREADS - 1);
            let at = (stripe * THREADS + thread) * STRIPE;
            let bytes = vec![u8::try_from(round % 250).unwrap(); STRIPE];
            file.write_at(&bytes, u64::try_from(at).unwrap()).unwrap();
            match round % 50 {
                11 => volume.sync().unwrap(),
                23 => file.sync_data().unwrap(),
                37 => file.sync_all().unwrap(),
                _ => {}
            }
            written.push((at, bytes));
        }
        written
    };
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        for (at, bytes) in threads.into_iter().flat_map(|thread| thread.join().unwrap()) {
            expected.get_mut(at..at + STRIPE).unwrap().copy_from_slice(&bytes);
        }
    });
    assert!(volume.read("a").unwrap() == expected);
    assert!(reopen(&image, holding, volume).read("a").unwrap() == expected);
}
