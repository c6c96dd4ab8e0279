//! Background cleaning: segments that are mostly holes are emptied while the volume is idle.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use f2fs::{BackgroundGc, F2fs, MakeOptions, Mode, OpenOptions};
use host::{Env, EnvSource};
use tempfile::NamedTempFile;
use vfs::{FileOptions, FileSystem, Volume};

use crate::{WITH_EXTRA, check, device, make};

/// Interval of steps without cleaning.
const RESTS: Duration = Duration::from_millis(500);
const STEPS_MAX: usize = 20_000;
/// Longest delay of an operation by a part of cleaning.
const STEP_MAX: Duration = Duration::from_secs(5);

/// A clock that is set.
struct Clock(AtomicI64);

impl EnvSource for Clock {
    fn now(&self) -> (i64, u32) {
        (self.0.load(Ordering::Relaxed), 0)
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        bytes.fill(7);
    }
}

struct Bench {
    image: NamedTempFile,
    clock: Arc<Clock>,
    fs: Arc<F2fs>,
    volume: Volume,
    files: BTreeMap<String, Vec<u8>>,
}

impl Bench {
    /// A volume with many holes and few free segments.
    fn new(background_gc: BackgroundGc, section_segments: u32, scale: u32) -> Self {
        let image = NamedTempFile::new().unwrap();
        let options = MakeOptions { features: WITH_EXTRA, section_segments, ..MakeOptions::default() };
        make(image.path(), u64::from(scale) * (128 << 20), &options);
        let clock = Arc::new(Clock(AtomicI64::new(1_700_000_000)));
        let env = Env::from_source(Arc::<Clock>::clone(&clock));
        let options = OpenOptions::new().writable(true).mode(Mode::Lfs).background_gc(background_gc).env(env);
        let fs = Arc::new(options.open(device(image.path())).unwrap());
        let volume = Volume::new(Arc::<F2fs>::clone(&fs));
        let mut bench = Self { image, clock, fs, volume, files: BTreeMap::new() };
        for round in 0..usize::try_from(scale).unwrap() * 15 {
            bench.round(round);
        }
        bench
    }

    fn round(&mut self, round: usize) {
        for number in 0..220 {
            let data = vec![u8::try_from((round + number) % 251).unwrap(); 3000 + number * 7919 % 40_000];
            let name = format!("{round}-{number}");
            self.volume.write(&name, &data).unwrap();
            match number % 7 == round % 7 {
                true => drop(self.files.insert(name, data)),
                false => self.clock.pass(1),
            }
        }
        self.volume.sync().unwrap();
        for number in (0..220).filter(|number| number % 7 != round % 7) {
            self.volume.remove_file(format!("{round}-{number}")).unwrap();
        }
        self.volume.sync().unwrap();
    }

    fn free_segments(&self) -> u32 {
        self.volume.sync().unwrap();
        self.fs.info().unwrap().free_segments
    }

    fn compare(&self) {
        for (name, data) in &self.files {
            assert!(self.volume.read(name).unwrap() == *data, "{name}");
        }
    }

    /// Runs background steps until there is nothing to clean; returns their number.
    fn steps(&self) -> usize {
        for count in 0..STEPS_MAX {
            let began = Instant::now();
            let wait = self.fs.step();
            assert!(began.elapsed() < STEP_MAX, "{:?}", began.elapsed());
            if wait >= RESTS {
                return count;
            }
        }
        panic!("cleaning does not end: {:?}", self.fs.info());
    }

    fn close(self) {
        let Self { image, fs, volume, .. } = self;
        volume.close().unwrap();
        drop(fs);
        check(image.path());
    }
}

impl Clock {
    fn pass(&self, seconds: i64) {
        self.0.fetch_add(seconds, Ordering::Relaxed);
    }
}

#[test]
fn an_idle_volume_gets_free_segments() {
    for (background_gc, section_segments) in [(BackgroundGc::On, 1), (BackgroundGc::Sync, 1), (BackgroundGc::On, 2)] {
        let mut bench = Bench::new(background_gc, section_segments, section_segments);
        let before = bench.free_segments();
        assert_eq!(bench.steps(), 0, "something was asked just now");
        bench.clock.pass(10);
        let steps = bench.steps();
        assert!(steps > 10, "{steps} steps");
        let after = bench.free_segments();
        assert!(after >= before + 4 * section_segments, "{before} and {after} free segments");
        bench.clock.pass(10);
        assert_eq!(bench.steps(), 0, "the other sections are not worth cleaning");
        bench.compare();
        // Changes in between.
        bench.round(100);
        bench.round(101);
        bench.clock.pass(10);
        for number in 0..40 {
            bench.fs.step();
            let name = format!("between-{number}");
            let data = vec![u8::try_from(number).unwrap(); 9000];
            bench.volume.write(&name, &data).unwrap();
            bench.files.insert(name, data);
            bench.clock.pass(10);
        }
        bench.steps();
        bench.compare();
        bench.close();
    }
}

/// An fsync of a file with moved blocks, and a power cut before the checkpoint that makes the move durable.
#[test]
fn what_is_fsynced_while_segments_are_emptied_is_found() {
    let mut bench = Bench::new(BackgroundGc::On, 1, 3);
    let names: Vec<String> = bench.files.keys().cloned().collect();
    bench.volume.sync().unwrap();
    bench.clock.pass(10);
    bench.fs.step();
    let mut by_nodes = 0;
    for name in names.iter().step_by(47) {
        bench.clock.pass(10);
        for _ in 0..4 {
            bench.fs.step();
        }
        let before = bench.fs.info().unwrap().checkpoint;
        let file = FileOptions::new().write(true).open(&bench.volume, name.as_str()).unwrap();
        file.write_at(&[0xa5; 700], 1000).unwrap();
        file.sync_all().unwrap();
        bench.files.get_mut(name).unwrap()[1000..1700].fill(0xa5);
        by_nodes += usize::from(bench.fs.info().unwrap().checkpoint == before);
        let copy = NamedTempFile::new().unwrap();
        std::fs::copy(bench.image.path(), copy.path()).unwrap();
        let fs = Arc::new(OpenOptions::new().writable(true).open(device(copy.path())).unwrap());
        let volume = Volume::new(Arc::<F2fs>::clone(&fs));
        for (name, data) in &bench.files {
            assert!(volume.read(name).unwrap() == *data, "{name}");
        }
        volume.close().unwrap();
        drop(fs);
        check(copy.path());
    }
    assert!(by_nodes > 3, "{by_nodes} of the fsyncs wrote nodes alone");
    bench.close();
}

#[test]
fn without_background_gc_nothing_is_emptied() {
    let bench = Bench::new(BackgroundGc::Off, 1, 1);
    let before = bench.free_segments();
    for _ in 0..20 {
        bench.clock.pass(100);
        assert_eq!(bench.steps(), 0);
    }
    assert_eq!(bench.free_segments(), before);
    bench.close();
}
