//! Micro benchmarks of the engine, without any server in front of it:
//! `cargo run --release -p spinney-btrfs --example micro -- IMAGE [WORKLOAD..]`. The image is made anew.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a benchmark fails by panicking")]

use std::path::Path;
use std::time::Instant;

use btrfs::{MakeOptions, Volume};
use vfs::{File, FileOptions};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const IMAGE_BYTES: u64 = 4 << 30;
/// Size of the file that threads share.
const FILE_BYTES: u64 = 512 * MIB;
/// Random operations of all threads together.
const RANDOM_COUNT: u64 = 64 * KIB;
/// Small files made and removed.
const SMALL_COUNT: u64 = 50_000;
const THREADS: [u64; 4] = [1, 2, 4, 16];

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

fn open(volume: &Volume, path: &str) -> File {
    let options = FileOptions::new().read(true).write(true).create(true);
    options.open(volume, path).unwrap()
}

/// Processor time of this process so far, in microseconds.
fn cpu_us() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks = |index: usize| fields[index].parse::<u64>().unwrap();
    (ticks(11) + ticks(12)) * 10_000
}

/// Runs `work` with the number of each thread, and prints how long that took per operation.
fn measure(name: &str, threads: u64, count: u64, bytes: u64, work: impl Fn(u64) + Sync) {
    let (start, cpu) = (Instant::now(), cpu_us());
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let work = &work;
            scope.spawn(move || work(thread));
        }
    });
    let seconds = start.elapsed().as_secs_f64();
    let number = |n: u64| f64::from(u32::try_from(n).unwrap());
    println!(
        "{name:24} {threads:3} threads {:8.0} operations/s {:8.1} MiB/s {:8.2} us, {:8.2} us of CPU each",
        number(count) / seconds,
        number(count) * number(bytes) / number(1 << 20) / seconds,
        seconds * 1e6 / number(count),
        number(cpu_us() - cpu) / number(count),
    );
}

fn fill(volume: &Volume, path: &str) -> File {
    let file = open(volume, path);
    let data = vec![0x5a; 1 << 20];
    for at in 0..FILE_BYTES / MIB {
        file.write_at(&data, at * MIB).unwrap();
    }
    file.sync_all().unwrap();
    file
}

/// Random writes of 4 KiB in disjoint parts of one file; `sync_every` counts those of a thread.
fn random_writes(volume: &Volume, name: &str, threads: u64, total: u64, sync_every: u64) {
    let file = fill(volume, "random");
    let part = FILE_BYTES / threads;
    measure(name, threads, total, 4 * KIB, |thread| {
        let mut random = Random(thread + 99);
        let data = [7; 4096];
        for index in 1..=total / threads {
            let at = thread * part + random.below(part / (4 * KIB)) * 4 * KIB;
            file.write_at(&data, at).unwrap();
            if index % sync_every == 0 {
                file.sync_all().unwrap();
            }
        }
    });
    file.sync_all().unwrap();
}

fn sequential(volume: &Volume, threads: u64, writes: bool) {
    let file = if writes { open(volume, "fresh") } else { fill(volume, "random") };
    let part = FILE_BYTES / threads;
    let name = if writes { "write 1 MiB" } else { "read 1 MiB" };
    measure(name, threads, FILE_BYTES / MIB, MIB, |thread| {
        let mut buffer = vec![3; 1 << 20];
        for index in 0..part / MIB {
            let at = thread * part + index * MIB;
            if writes {
                file.write_at(&buffer, at).unwrap();
            } else {
                assert_eq!(file.read_at(&mut buffer, at).unwrap(), buffer.len());
            }
        }
        if writes {
            file.sync_all().unwrap();
        }
    });
    drop(file);
    let _ = volume.remove_file("fresh");
    volume.sync().unwrap();
}

/// Random reads of 4 KiB; of every `write_every` operations one is a write.
fn random_reads(volume: &Volume, name: &str, threads: u64, write_every: u64) {
    let file = open(volume, "random");
    measure(name, threads, RANDOM_COUNT, 4 * KIB, |thread| {
        let mut random = Random(thread + 5);
        let mut data = [7; 4096];
        for index in 1..=RANDOM_COUNT / threads {
            let at = random.below(FILE_BYTES / (4 * KIB)) * 4 * KIB;
            if index % write_every == 0 {
                file.write_at(&data, at).unwrap();
            } else {
                file.read_at(&mut data, at).unwrap();
            }
        }
    });
}

fn small_files(volume: &Volume, threads: u64) {
    for thread in 0..threads {
        volume.create_dir_all(format!("small/{thread}")).unwrap();
    }
    let path = |thread: u64, index: u64| format!("small/{thread}/{index}");
    let count = SMALL_COUNT / threads;
    measure("create small", threads, SMALL_COUNT, 2500, |thread| {
        let data = [9; 4000];
        for index in 0..count {
            let file = FileOptions::new().write(true).create_new(true);
            let file = file.open(volume, path(thread, index)).unwrap();
            let len = usize::try_from(1000 + index * 37 % 3000).unwrap();
            file.write_at(&data[..len], 0).unwrap();
        }
    });
    measure("sync", 1, 1, 0, |_| volume.sync().unwrap());
    measure("stat and read small", threads, SMALL_COUNT, 2500, |thread| {
        let mut buffer = [0; 4096];
        for index in 0..count {
            let path = path(thread, index);
            assert!(volume.metadata(&path).unwrap().is_file());
            File::open(volume, &path).unwrap().read_at(&mut buffer, 0).unwrap();
        }
    });
    measure("unlink small", threads, SMALL_COUNT, 2500, |thread| {
        for index in 0..count {
            volume.remove_file(path(thread, index)).unwrap();
        }
    });
    measure("sync", 1, 1, 0, |_| volume.sync().unwrap());
}

fn run(volume: &Volume, workload: &str) {
    for threads in THREADS {
        match workload {
            "random-write" => {
                random_writes(volume, "write 4 KiB", threads, RANDOM_COUNT, u64::MAX);
            }
            "random-sync" => random_writes(volume, "write 4 KiB, sync", threads, 2048, 1),
            "write" => sequential(volume, threads, true),
            "read" => sequential(volume, threads, false),
            "random-read" => {
                drop(fill(volume, "random"));
                random_reads(volume, "read 4 KiB", threads, u64::MAX);
                random_writes(volume, "(fragment)", threads, RANDOM_COUNT, u64::MAX);
                random_reads(volume, "read 4 KiB, fragments", threads, u64::MAX);
            }
            "mixed" => random_reads(volume, "read 4 KiB, 1/4 write", threads, 4),
            "small" if threads <= 4 => small_files(volume, threads),
            "small" => {}
            other => panic!("no workload {other}"),
        }
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let image = arguments.next().expect("an image");
    let _ = std::fs::remove_file(&image);
    let options = MakeOptions { size: Some(IMAGE_BYTES), ..MakeOptions::default() };
    let volume = Volume::make(Path::new(&image), &options).unwrap();
    let mut workloads: Vec<String> = arguments.collect();
    if workloads.is_empty() {
        let all = ["random-write", "random-sync", "write", "read", "random-read", "mixed", "small"];
        workloads = all.map(str::to_owned).to_vec();
    }
    for workload in &workloads {
        run(&volume, workload);
    }
    volume.close().unwrap();
}
