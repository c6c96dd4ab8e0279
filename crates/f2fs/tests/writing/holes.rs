//! Logs fill holes of segments if free segments are few: nothing is lost, and fsyncs into holes are found.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use f2fs::{F2fs, MakeOptions, Mode, OpenOptions};
use tempfile::NamedTempFile;
use vfs::{File, FileOptions, Volume};

use crate::{WITH_EXTRA, check, device, make};

const FILES_OF_ROUND: usize = 220;
const ROUNDS_MAX: usize = 40;
/// Number of logs for files of a directory: its own names and node are too few.
const LOGS_OF_FILES: u32 = 2;

/// A volume, and the contents of its files.
struct Bench {
    image: NamedTempFile,
    fs: Arc<F2fs>,
    volume: Volume,
    files: BTreeMap<String, Vec<u8>>,
}

fn open(path: &Path, mode: Mode) -> (Arc<F2fs>, Volume) {
    let fs = Arc::new(OpenOptions::new().writable(true).mode(mode).open(device(path)).unwrap());
    let volume = Volume::new(Arc::<F2fs>::clone(&fs));
    (fs, volume)
}

fn contents(seed: usize) -> Vec<u8> {
    let len = 3000 + seed * 7919 % 40_000;
    (0..len).map(|at| u8::try_from((at / 7 + seed * 31) % 253).unwrap()).collect()
}

impl Bench {
    fn new(mode: Mode, section_segments: u32) -> Self {
        let image = NamedTempFile::new().unwrap();
        let options = MakeOptions { features: WITH_EXTRA, section_segments, ..MakeOptions::default() };
        make(image.path(), u64::from(section_segments) * (128 << 20), &options);
        let (fs, volume) = open(image.path(), mode);
        volume.create_dir("d").unwrap();
        Self { image, fs, volume, files: BTreeMap::new() }
    }

    /// Writes files, and removes most of them: the rest lies in partly used segments.
    fn round(&mut self, round: usize) {
        for number in 0..FILES_OF_ROUND {
            let (name, data) = (format!("d/{round}-{number}"), contents(round * 1000 + number));
            self.volume.write(&name, &data).unwrap();
            self.files.insert(name, data);
        }
        self.volume.sync().unwrap();
        for number in (0..FILES_OF_ROUND).filter(|number| number % 7 != round % 7) {
            let name = format!("d/{round}-{number}");
            self.volume.remove_file(&name).unwrap();
            self.files.remove(&name);
        }
        self.volume.sync().unwrap();
    }

    /// Ages the volume until logs fill holes.
    fn age(&mut self) {
        for round in 0..ROUNDS_MAX {
            self.round(round);
            if self.fs.info().unwrap().ssr_logs >= LOGS_OF_FILES {
                return;
            }
        }
        panic!("no holes are filled after {ROUNDS_MAX} rounds: {:?}", self.fs.info());
    }

    fn compare(&self, volume: &Volume) {
        for (name, data) in &self.files {
            assert!(volume.read(name).unwrap() == *data, "{name}");
        }
        assert_eq!(volume.read_dir("d").unwrap().count(), self.files.len());
    }

    fn close(self) -> NamedTempFile {
        let Self { image, fs, volume, .. } = self;
        volume.close().unwrap();
        drop(fs);
        check(image.path());
        image
    }
}

#[test]
fn holes_are_filled_and_nothing_is_lost() {
    for section_segments in [1, 3] {
        let mut bench = Bench::new(Mode::Adaptive, section_segments);
        bench.age();
        let mut logs_seen = 0;
        for round in 100..112 {
            bench.round(round);
            bench.compare(&bench.volume);
            logs_seen += bench.fs.info().unwrap().ssr_logs;
        }
        assert!(logs_seen >= 12, "{logs_seen}");
        // Overwritten in the middle: the blocks of one file lie in many segments.
        for (name, data) in &mut bench.files {
            let end = data.len().min(5000);
            data[1000..end].fill(7);
            let file = FileOptions::new().write(true).open(&bench.volume, name.as_str()).unwrap();
            file.write_at(&data[1000..end], 1000).unwrap();
        }
        bench.volume.sync().unwrap();
        let copy = NamedTempFile::new().unwrap();
        std::fs::copy(bench.image.path(), copy.path()).unwrap();
        check(copy.path());
        bench.compare(&open(copy.path(), Mode::Adaptive).1);
        let files = std::mem::take(&mut bench.files);
        let image = bench.close();
        // Logs go on in the holes named by the checkpoint.
        let (fs, volume) = open(image.path(), Mode::Adaptive);
        let mut bench = Bench { image, fs, volume, files };
        bench.compare(&bench.volume);
        bench.round(200);
        bench.compare(&bench.volume);
        bench.close();
    }
}

fn file(bench: &Bench, name: &str) -> File {
    FileOptions::new().read(true).write(true).create(true).open(&bench.volume, name).unwrap()
}

/// The chain of fsyncs leads from hole to hole, and into the next segment.
#[test]
fn what_was_fsynced_into_holes_is_found() {
    let mut bench = Bench::new(Mode::Adaptive, 1);
    bench.age();
    let checkpoint = bench.fs.info().unwrap().checkpoint;
    let mut synced = 0;
    for number in 0..900 {
        let (name, data) = (format!("d/new-{}", number % 150), contents(number));
        let file = file(&bench, &name);
        file.set_len(0).unwrap();
        file.write_at(&data, 0).unwrap();
        file.sync_all().unwrap();
        bench.files.insert(name, data);
        synced += usize::from(bench.fs.info().unwrap().checkpoint == checkpoint);
        if number % 150 == 149 {
            let copy = NamedTempFile::new().unwrap();
            std::fs::copy(bench.image.path(), copy.path()).unwrap();
            check(copy.path());
            crate::property::keep(copy.path()).unwrap();
            let shown = Arc::new(OpenOptions::new().open(device(copy.path())).unwrap());
            bench.compare(&Volume::new(Arc::<F2fs>::clone(&shown)));
            drop(shown);
            let (fs, volume) = open(copy.path(), Mode::Adaptive);
            bench.compare(&volume);
            volume.close().unwrap();
            drop(fs);
            check(copy.path());
        }
    }
    assert!(synced > 0, "every fsync made a checkpoint");
    bench.close();
}

#[test]
fn with_mode_lfs_no_hole_is_filled() {
    let mut bench = Bench::new(Mode::Lfs, 1);
    for round in 0..12 {
        bench.round(round);
        assert_eq!(bench.fs.info().unwrap().ssr_logs, 0);
    }
    bench.compare(&bench.volume);
    bench.close();
    // Logs in holes are moved.
    let mut bench = Bench::new(Mode::Adaptive, 1);
    bench.age();
    let files = std::mem::take(&mut bench.files);
    let image = bench.close();
    let (fs, volume) = open(image.path(), Mode::Lfs);
    let mut bench = Bench { image, fs, volume, files };
    bench.round(50);
    assert_eq!(bench.fs.info().unwrap().ssr_logs, 0);
    bench.compare(&bench.volume);
    bench.close();
}

/// Blocks freed since the last checkpoint are no holes yet: a power cut brings them back.
#[test]
fn what_a_power_cut_brings_back_is_no_hole() {
    let mut bench = Bench::new(Mode::Adaptive, 1);
    bench.age();
    let checkpoint = bench.fs.info().unwrap().checkpoint;
    let mut expected = bench.files.clone();
    for name in bench.files.keys() {
        bench.volume.remove_file(name).unwrap();
    }
    let mut number = 0;
    while number < 300 {
        let (name, data) = (format!("new-{number}"), contents(number));
        let file = file(&bench, &name);
        file.write_at(&data, 0).unwrap();
        file.sync_all().unwrap();
        if bench.fs.info().unwrap().checkpoint != checkpoint {
            break;
        }
        expected.insert(name, data);
        let copy = NamedTempFile::new().unwrap();
        if number % 10 == 9 {
            std::fs::copy(bench.image.path(), copy.path()).unwrap();
            let shown = Volume::new(Arc::new(OpenOptions::new().open(device(copy.path())).unwrap()));
            for (name, data) in &expected {
                assert!(shown.read(name).unwrap() == *data, "{name} after {number} new files");
            }
        }
        number += 1;
    }
    assert!(number > 30, "a checkpoint after {number} new files");
    bench.files.clear();
    bench.close();
}
