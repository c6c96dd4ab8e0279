//! Defines the rows of the benchmark's table (workloads, systems and measurements), and helpers for images and numbers
//! that the other benchmarks use. `main` runs the rows, `table` prints them.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

/// Bytes of every image.
pub(crate) const IMAGE_BYTES: u64 = 4 << 30;
/// Bytes of the file of the sequential rows.
pub(crate) const SEQUENTIAL_BYTES: u64 = 1 << 30;
/// Bytes of the file of the random row.
pub(crate) const RANDOM_BYTES: u64 = 512 << 20;
/// Files of the metadata rows.
pub(crate) const FILES: u64 = 50_000;
/// Bytes of one sequential read or write.
pub(crate) const PIECE: usize = 1 << 20;

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
pub(crate) enum Workload {
    /// A source tree, copied by the same threads through the library and through system calls; sync included.
    Tree,
    /// A source tree through `mkfs --rootdir`.
    Rootdir,
    /// One file written in 1 MiB pieces; sync included.
    Seqwrite,
    /// The same file read back, nothing cached.
    Seqread,
    /// 4 KiB writes at random places, one sync at the end.
    Randwrite,
    /// Empty files in one directory.
    Create,
    /// Looking each of them up.
    Stat,
    /// Removing each of them; sync included.
    Unlink,
}

impl Workload {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tree => "tree",
            Self::Rootdir => "rootdir",
            Self::Seqwrite => "seqwrite",
            Self::Seqread => "seqread",
            Self::Randwrite => "randwrite",
            Self::Create => "create",
            Self::Stat => "stat",
            Self::Unlink => "unlink",
        }
    }

    /// Unit of the rate that the table shows.
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::Tree | Self::Rootdir | Self::Seqwrite | Self::Seqread => "MB/s",
            Self::Randwrite => "writes/s",
            Self::Create => "creates/s",
            Self::Stat => "stats/s",
            Self::Unlink => "unlinks/s",
        }
    }
}

/// The system that does the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
pub(crate) enum System {
    /// This project.
    Spinney,
    /// The kernel's btrfs on a loop device, or `mkfs.btrfs`.
    Kernel,
}

impl System {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Spinney => "spinney",
            Self::Kernel => "kernel",
        }
    }
}

/// A workload with a number of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) workload: Workload,
    pub(crate) threads: usize,
}

impl Row {
    pub(crate) fn name(&self) -> String {
        format!("{} x{}", self.workload.name(), self.threads)
    }
}

/// All rows of the table.
pub(crate) fn all() -> Vec<Row> {
    let mut rows = Vec::new();
    for workload in Workload::value_variants() {
        let threads: &[usize] = if *workload == Workload::Rootdir { &[1] } else { &[1, 2, 4] };
        rows.extend(threads.iter().map(|threads| Row { workload: *workload, threads: *threads }));
    }
    rows
}

/// The result of one run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Measure {
    /// Wall clock of the timed part.
    pub(crate) seconds: f64,
    /// Bytes or operations in it.
    pub(crate) amount: f64,
    /// Peak resident memory of the process, KiB.
    pub(crate) peak_kib: i64,
}

impl Measure {
    /// Amount per second; megabytes (1e6) for bytes.
    pub(crate) fn rate(&self, workload: Workload) -> f64 {
        let per_second = self.amount / self.seconds;
        if workload.unit() == "MB/s" { per_second / 1e6 } else { per_second }
    }
}

/// The arguments of `bench one`: one run of one workload, in a process that `bench run` starts for it.
#[derive(Args)]
pub(crate) struct One {
    #[arg(long)]
    pub(crate) row: Workload,
    #[arg(long)]
    pub(crate) system: System,
    #[arg(long)]
    pub(crate) threads: usize,
    #[arg(long)]
    pub(crate) dir: PathBuf,
    #[arg(long)]
    pub(crate) source: PathBuf,
    #[arg(long)]
    pub(crate) program: PathBuf,
    #[arg(long)]
    pub(crate) mkfs: PathBuf,
}

impl One {
    pub(crate) fn image(&self) -> PathBuf {
        self.dir.join("bench.img")
    }
}

/// Fills the image with zeros before the timed part, unless it is filled already: the first write to a page of memory
/// takes several times as long as later ones.
pub(crate) fn touch(image: &std::path::Path) -> Result<()> {
    touch_bytes(image, IMAGE_BYTES)
}

/// As [`touch`], for an image of any size. The previous row may have freed parts of the image.
pub(crate) fn touch_bytes(image: &std::path::Path, bytes: u64) -> Result<()> {
    use std::os::unix::fs::MetadataExt as _;
    if std::fs::metadata(image).is_ok_and(|found| found.len() == bytes && found.blocks() * 512 >= bytes) {
        return Ok(());
    }
    use std::io::Write;
    if let Some(dir) = image.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let mut file = std::fs::File::create(image)?;
    let zeros = vec![0; PIECE];
    for _ in 0..bytes / (1 << 20) {
        file.write_all(&zeros)?;
    }
    Ok(())
}

pub(crate) fn as_u64(value: usize) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

/// Converts an amount to a float; amounts are far below 2^53, so the result is exact.
#[expect(clippy::as_conversions, reason = "exact below 2^53")]
pub(crate) fn as_float(value: u64) -> f64 {
    value as f64
}
