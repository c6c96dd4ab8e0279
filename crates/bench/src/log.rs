//! `bench log` measures the cost of an fsync: threads write at random offsets, each write followed by an fsync, on an
//! image in memory, through the library. `main` calls it.
//!
//! With the feature `ablation` the ways of doing it are measured in turn, several times: file
//! extent items that are prepared and copied into the log at once, items that are made in the
//! locked leaf, and a commit instead of the log.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use btrfs::{MakeOptions, Volume};
use clap::Args;

use crate::row::{as_float, as_u64, touch_bytes};
use crate::{process, table};
use vfs::FileOptions;

/// Sizes of writes and their share in percent: those of the seed workload.
const SIZES: &[(usize, u64)] = &[
    (4 << 10, 20),
    (8 << 10, 20),
    (16 << 10, 20),
    (32 << 10, 10),
    (64 << 10, 10),
    (128 << 10, 5),
    (256 << 10, 5),
    (512 << 10, 5),
    (1 << 20, 5),
];

/// Options of the benchmark.
#[derive(Args)]
pub(crate) struct Options {
    /// Directory on a memory file system for the image.
    #[arg(long, default_value = "/dev/shm/bench")]
    dir: PathBuf,
    /// Bytes of the image, in MiB.
    #[arg(long, default_value_t = 6144)]
    image_mib: u64,
    /// Writing threads, each with a file of its own.
    #[arg(long, default_value_t = 8)]
    threads: usize,
    /// Bytes of each file, in MiB.
    #[arg(long, default_value_t = 128)]
    file_mib: u64,
    /// Seconds of one run.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Rounds.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Only ways whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// Every write has this many KiB, instead of the mixture.
    #[arg(long)]
    write_kib: Option<usize>,
    /// `fdatasync` instead of `fsync`.
    #[arg(long)]
    data_only: bool,
    /// Files that are overwritten in place (nodatacow), written once before.
    #[arg(long)]
    in_place: bool,
}

/// How the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Prepared,
    #[cfg(feature = "ablation")]
    InLeaf,
    #[cfg(feature = "ablation")]
    Commit,
}

impl Way {
    const ALL: &[Self] = &[
        Self::Prepared,
        #[cfg(feature = "ablation")]
        Self::InLeaf,
        #[cfg(feature = "ablation")]
        Self::Commit,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Prepared => "prepared items",
            #[cfg(feature = "ablation")]
            Self::InLeaf => "items made in the leaf",
            #[cfg(feature = "ablation")]
            Self::Commit => "commit each time",
        }
    }

    fn switch(self) {
        #[cfg(feature = "ablation")]
        {
            btrfs::ablation::set_makes_items_in_leaf(self == Self::InLeaf);
            btrfs::ablation::set_commits_each_sync(self == Self::Commit);
            let _ = btrfs::ablation::take_hold_times();
        }
    }
}

/// Figures of one run.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    mib_per_second: f64,
    syncs_per_second: f64,
    /// Bytes handed to the system for each fsync, the data included.
    bytes_per_sync: f64,
    writes_per_sync: f64,
    cpu_us_per_sync: f64,
    lock_count_per_sync: f64,
    hold_mean_ns: f64,
    hold_ms: f64,
    upper_ms: f64,
}

/// A table of medians.
pub(crate) fn run(options: &Options) -> Result<String> {
    std::fs::create_dir_all(&options.dir)?;
    let ways: Vec<Way> = Way::ALL.iter().copied().filter(|way| way.name().contains(&options.only)).collect();
    let mut results: Vec<Vec<Figures>> = vec![Vec::new(); ways.len()];
    for round in 0..options.rounds {
        for (way, results) in ways.iter().zip(&mut results) {
            way.switch();
            let figures = one(options).with_context(|| way.name())?;
            eprintln!("round {round}: {:<24} {figures:.1?}", way.name());
            results.push(figures);
        }
    }
    let mut text = String::from(
        "| way | MiB/s | fsync/s | KiB written each | writes each | CPU us each | leaf locks each | held, mean ns | \
         held, ms | upper levels held, ms |\n|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for (way, results) in ways.iter().zip(&results) {
        let m = |of: fn(&Figures) -> f64| median(results, of);
        text += &format!(
            "| {} | {:.0} | {:.0} | {:.1} | {:.1} | {:.1} | {:.2} | {:.0} | {:.1} | {:.1} |\n",
            way.name(),
            m(|f| f.mib_per_second),
            m(|f| f.syncs_per_second),
            m(|f| f.bytes_per_sync) / 1024.0,
            m(|f| f.writes_per_sync),
            m(|f| f.cpu_us_per_sync),
            m(|f| f.lock_count_per_sync),
            m(|f| f.hold_mean_ns),
            m(|f| f.hold_ms),
            m(|f| f.upper_ms),
        );
    }
    if let [first, others @ ..] = &*results {
        for (way, others) in ways.iter().skip(1).zip(others) {
            let ratio = median(first, |f| f.mib_per_second) / median(others, |f| f.mib_per_second);
            text += &format!("{} / {}: {ratio:.3}\n", ways.first().map_or("", |way| way.name()), way.name());
        }
    }
    Ok(text)
}

fn median(results: &[Figures], of: impl Fn(&Figures) -> f64) -> f64 {
    table::median(results.iter().map(of).collect())
}

fn one(options: &Options) -> Result<Figures> {
    let image = options.dir.join("log.img");
    let bytes = options.image_mib << 20;
    touch_bytes(&image, bytes)?;
    let make = MakeOptions { size: Some(bytes), ..MakeOptions::default() };
    Volume::make(&image, &make)?.close()?;
    let volume = Volume::options().nodatacow(options.in_place).open(&image)?;
    for thread in 0..options.threads {
        let file = FileOptions::new().write(true).create(true).open(&volume, format!("f{thread}"))?;
        if options.in_place {
            let piece = vec![1; 1 << 20];
            for index in 0..options.file_mib {
                file.write_at(&piece, index << 20)?;
            }
        }
    }
    volume.sync()?;
    let before = Used::now()?;
    let start = Instant::now();
    let end = start + Duration::from_secs(options.seconds);
    let written = thread::scope(|scope| -> Result<(u64, u64)> {
        let volume = &volume;
        let threads: Vec<_> =
            (0..options.threads).map(|thread| scope.spawn(move || write(options, volume, thread, end))).collect();
        let mut sum = (0, 0);
        for thread in threads {
            let (bytes, syncs) = thread.join().expect("a writer does not panic")?;
            sum = (sum.0 + bytes, sum.1 + syncs);
        }
        Ok(sum)
    })?;
    let seconds = start.elapsed().as_secs_f64();
    let used = Used::now()?.since(&before);
    volume.close()?;
    Ok(figures(written, seconds, &used))
}

fn figures((bytes, syncs): (u64, u64), seconds: f64, used: &Used) -> Figures {
    let syncs = as_float(syncs.max(1));
    let figures = Figures {
        mib_per_second: as_float(bytes) / 1_048_576.0 / seconds,
        syncs_per_second: syncs / seconds,
        bytes_per_sync: as_float(used.bytes) / syncs,
        writes_per_sync: as_float(used.writes) / syncs,
        cpu_us_per_sync: used.cpu_us / syncs,
        ..Figures::default()
    };
    #[cfg(feature = "ablation")]
    let figures = {
        let held = btrfs::ablation::take_hold_times();
        Figures {
            lock_count_per_sync: as_float(held.count) / syncs,
            hold_mean_ns: as_float(held.total_ns) / as_float(held.count.max(1)),
            hold_ms: as_float(held.total_ns) / 1e6,
            upper_ms: as_float(held.upper_ns) / 1e6,
            ..figures
        }
    };
    figures
}

/// One thread's part; bytes and fsyncs.
fn write(options: &Options, volume: &Volume, thread: usize, end: Instant) -> Result<(u64, u64)> {
    let file = FileOptions::new().write(true).open(volume, format!("f{thread}"))?;
    let buffer: Vec<u8> = (0..1 << 20).map(|index: u32| index.to_le_bytes()[1]).collect();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(as_u64(thread) + 1);
    let mut next = move |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let (mut bytes, mut syncs) = (0, 0);
    while Instant::now() < end {
        let len = options.write_kib.map_or_else(|| pick(next(100)), |kib| kib << 10);
        let places = (options.file_mib << 20) / as_u64(len);
        file.write_at(&buffer[..len], next(places.max(1)) * as_u64(len))?;
        if options.data_only {
            file.sync_data()?
        } else {
            file.sync_all()?
        }
        bytes += as_u64(len);
        syncs += 1;
    }
    Ok((bytes, syncs))
}

fn pick(percent: u64) -> usize {
    let mut sum = 0;
    for (size, share) in SIZES {
        sum += share;
        if percent < sum {
            return *size;
        }
    }
    4096
}

/// Resources used by this process so far.
struct Used {
    bytes: u64,
    writes: u64,
    cpu_us: f64,
}

impl Used {
    fn now() -> Result<Self> {
        let io = std::fs::read_to_string("/proc/self/io")?;
        let field = |name: &str| {
            let line = io.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
        };
        Ok(Self { bytes: field("wchar:"), writes: field("syscw:"), cpu_us: process::cpu_us("self")? })
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            bytes: self.bytes - before.bytes,
            writes: self.writes - before.writes,
            cpu_us: self.cpu_us - before.cpu_us,
        }
    }
}
