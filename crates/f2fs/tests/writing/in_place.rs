//! In-place updates: which contents they overwrite, which requests they save, and that they overwrite nothing else.

use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use blockdev::Device as _;
use blockdev::trace::Counts;
use f2fs::{F2fs, MakeOptions, Mode, OpenOptions};
use f2fs_disk::superblock::{SUPERBLOCK_SIZE, UncheckedSuperblock, copy_offset};
use f2fs_disk::{BLOCK_SIZE, BlockAddr, SEGMENT_BLOCKS};
use tempfile::NamedTempFile;
use vfs::file_system::NodeId;
use vfs::{File, FileOptions, FileSystem, Volume};

use crate::{Traced as Bench, WITH_EXTRA, check, device, make};

const BLOCK: u64 = 4096;
/// Pages of a file with an inode and two direct nodes.
const PAGES: u64 = 2500;

impl Bench {
    /// A volume with two files of [`PAGES`] pages, one of which is kept with cold data.
    fn with_files(options: OpenOptions) -> Self {
        let image = NamedTempFile::new().unwrap();
        make(image.path(), 256 << 20, &MakeOptions { features: WITH_EXTRA, ..MakeOptions::default() });
        let bench = Self::open(image, options);
        for name in ["file", "film.mp4"] {
            bench.volume.write(name, vec![1; usize::try_from(PAGES * BLOCK).unwrap()]).unwrap();
        }
        bench.volume.sync().unwrap();
        bench
    }

    fn file(&self, name: &str) -> File {
        FileOptions::new().read(true).write(true).open(&self.volume, name).unwrap()
    }

    /// Addresses of all blocks of a file.
    fn blocks(&self, name: &str) -> Vec<u64> {
        let node = NodeId(self.volume.metadata(name).unwrap().ino);
        let extents = self.fs.extents(node, 0).unwrap();
        extents.iter().flat_map(|run| (0..run.len / BLOCK).map(|index| run.logical.unwrap() + index * BLOCK)).collect()
    }

    /// The requests to the device during `work`.
    fn counted(&self, work: impl FnOnce()) -> Counts {
        let before = self.device.counts();
        work();
        let after = self.device.counts();
        Counts {
            writes: after.writes - before.writes,
            write_bytes: after.write_bytes - before.write_bytes,
            flushes: after.flushes - before.flushes,
            ..Counts::default()
        }
    }

    /// Checks the files after a power cut now, opened for reading and for writing.
    fn cut(&self, expected: &[(&str, &[u8])]) {
        let copy = NamedTempFile::new().unwrap();
        std::fs::copy(self.image.path(), copy.path()).unwrap();
        check(copy.path());
        for is_writable in [false, true] {
            let fs = Arc::new(OpenOptions::new().writable(is_writable).open(device(copy.path())).unwrap());
            let volume = Volume::new(Arc::<F2fs>::clone(&fs));
            for (name, data) in expected {
                assert!(volume.read(name).unwrap() == *data, "{name}");
            }
            volume.close().unwrap();
        }
        check(copy.path());
    }
}

#[test]
fn an_fdatasync_of_old_blocks_writes_them_and_nothing_else() {
    let bench = Bench::with_files(OpenOptions::new());
    let (file, blocks) = (bench.file("file"), bench.blocks("file"));
    let mut data = vec![1; usize::try_from(PAGES * BLOCK).unwrap()];
    for (round, page) in [0, 900, 1000, 2000, PAGES - 1, 3].into_iter().enumerate() {
        let value = u8::try_from(round + 2).unwrap();
        let at = usize::try_from(page * BLOCK + 17).unwrap();
        data[at..at + 100].fill(value);
        file.write_at(&[value; 100], page * BLOCK + 17).unwrap();
        let counts = bench.counted(|| file.sync_data().unwrap());
        assert_eq!((counts.writes, counts.write_bytes, counts.flushes), (1, BLOCK, 1), "page {page}");
        bench.cut(&[("file", &data)]);
    }
    // Many of them, one behind the other.
    file.write_at(&[9; 100 << 12], 50 << 12).unwrap();
    data[50 << 12..150 << 12].fill(9);
    let counts = bench.counted(|| file.sync_data().unwrap());
    assert_eq!((counts.writes, counts.write_bytes, counts.flushes), (1, 100 * BLOCK, 1));
    assert_eq!(bench.blocks("file"), blocks);
    bench.cut(&[("file", &data)]);
    // An fsync records times.
    let counts = bench.counted(|| file.sync_all().unwrap());
    assert_eq!(counts.flushes, 2);
    // Then a later fdatasync has nothing else to record.
    data.extend([5; 3000]);
    file.write_at(&[5; 3000], PAGES * BLOCK).unwrap();
    file.sync_data().unwrap();
    bench.cut(&[("file", &data)]);
    data.truncate(700_000);
    file.set_len(700_000).unwrap();
    file.write_at(&[6; 10], 0).unwrap();
    data[..10].fill(6);
    bench.volume.sync().unwrap();
    file.sync_data().unwrap();
    bench.cut(&[("file", &data)]);
    bench.volume.close().unwrap();
    check(bench.image.path());
}

#[test]
fn an_fsync_writes_few_pages_in_place_and_many_elsewhere() {
    for (mode, pages, is_in_place) in
        [(Mode::Adaptive, 8, true), (Mode::Adaptive, 9, false), (Mode::Lfs, 1, false), (Mode::Adaptive, 1, true)]
    {
        let bench = Bench::with_files(OpenOptions::new().mode(mode));
        let (file, blocks) = (bench.file("file"), bench.blocks("file"));
        for page in 0..pages {
            file.write_at(&[7; 10], page * 3 * BLOCK).unwrap();
        }
        file.sync_all().unwrap();
        assert_eq!(bench.blocks("file") == blocks, is_in_place, "{mode:?}, {pages} pages");
        // Durable only together with other files.
        file.write_at(&[8; 10], 0).unwrap();
        bench.volume.sync().unwrap();
        assert_ne!(bench.blocks("file"), blocks);
        bench.volume.close().unwrap();
        check(bench.image.path());
    }
}

#[test]
fn cold_contents_stay_where_they_are() {
    for (mode, is_in_place) in [(Mode::Adaptive, true), (Mode::Lfs, false)] {
        let bench = Bench::with_files(OpenOptions::new().mode(mode));
        let blocks = bench.blocks("film.mp4");
        bench.file("film.mp4").write_at(&[7; 100_000], 3_000_000).unwrap();
        bench.volume.sync().unwrap();
        assert_eq!(bench.blocks("film.mp4") == blocks, is_in_place, "{mode:?}");
        let mut data = vec![1; usize::try_from(PAGES * BLOCK).unwrap()];
        data[3_000_000..3_100_000].fill(7);
        bench.cut(&[("film.mp4", &data)]);
        bench.volume.close().unwrap();
        check(bench.image.path());
    }
}

#[test]
fn another_size_than_that_on_the_disk_keeps_old_blocks() {
    // A crash would show old bytes behind the former end, once a file is extended.
    let bench = Bench::with_files(OpenOptions::new());
    let file = bench.file("file");
    file.set_len(10).unwrap();
    file.sync_all().unwrap();
    let blocks = bench.blocks("file");
    file.write_at(&[7; 100], 0).unwrap();
    let other = bench.file("film.mp4");
    other.sync_all().unwrap();
    file.sync_data().unwrap();
    assert_ne!(bench.blocks("file"), blocks);
    // Shorter, and as long again: zeros.
    let blocks = bench.blocks("file");
    file.set_len(5).unwrap();
    file.set_len(100).unwrap();
    file.sync_data().unwrap();
    assert_eq!(bench.blocks("file"), blocks);
    let mut data = vec![7; 5];
    data.resize(100, 0);
    bench.cut(&[("file", &data)]);
}

#[test]
fn a_block_that_another_file_may_own_is_not_written_over() {
    let bench = Bench::with_files(OpenOptions::new());
    let first = BlockAddr(u32::try_from(bench.blocks("file")[0] / BLOCK).unwrap());
    bench.volume.close().unwrap();
    let Bench { image, device, fs, .. } = bench;
    let mut superblock = vec![0; SUPERBLOCK_SIZE];
    device.read_at(copy_offset(0), &mut superblock).unwrap();
    drop((fs, device));
    let superblock = UncheckedSuperblock::new(&superblock).unwrap().verify(copy_offset(0)).unwrap();
    let geometry = superblock.geometry();
    let within = first.0 - geometry.main.0;
    let summary = geometry.summary_block(within / SEGMENT_BLOCKS);
    let file = std::fs::OpenOptions::new().read(true).write(true).open(image.path()).unwrap();
    let mut block = [0; BLOCK_SIZE];
    file.read_exact_at(&mut block, summary.byte()).unwrap();
    let entry = usize::try_from(within % SEGMENT_BLOCKS).unwrap() * 7;
    assert_ne!(block[entry..entry + 4], [0; 4]);
    block[entry] ^= 1;
    file.write_all_at(&block, summary.byte()).unwrap();
    let mut old = [0; BLOCK_SIZE];
    let bench = Bench::open(image, OpenOptions::new());
    let file = bench.file("file");
    // Nodes are valid only behind a checkpoint of this opening.
    file.write_at(&[7; 100], 2 * BLOCK).unwrap();
    bench.volume.sync().unwrap();
    for page in [0, 1] {
        file.write_at(&[7; 100], page * BLOCK).unwrap();
    }
    file.sync_data().unwrap();
    bench.device.read_at(first.byte(), &mut old).unwrap();
    assert!(old == [1; BLOCK_SIZE], "written over");
    let blocks = bench.blocks("file");
    assert!(blocks[0] != first.byte() && blocks[1] == first.byte() + BLOCK);
}
