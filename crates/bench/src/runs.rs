//! `bench runs` measures how contiguously files lie on the device: many threads write files at once, more than memory
//! may hold, and each request to the device is recorded. Flushes allocate space for a file at once, or, with the
//! feature `ablation`, extent by extent. `main` calls it.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result};
use blockdev::backends::{FileDevice, FileOptions as DeviceOptions};
use blockdev::recording::{RecordedDevice, Recorder};
use btrfs::{MakeOptions, Volume};
use clap::Args;
use vfs::FileOptions;

use crate::row::as_float;

/// Options of the benchmark.
#[derive(Args)]
pub(crate) struct Options {
    /// Directory for the image, and for the recordings `together.trace` and `apart.trace`.
    #[arg(long, default_value = "/dev/shm/bench")]
    dir: PathBuf,
    /// Writing threads.
    #[arg(long, default_value_t = 16)]
    threads: u32,
    /// Files of each thread.
    #[arg(long, default_value_t = 100)]
    files: u32,
    /// Bytes of each file, in KiB.
    #[arg(long, default_value_t = 512)]
    file_kib: u64,
    /// Bytes of each write, in KiB.
    #[arg(long, default_value_t = 16)]
    write_kib: u64,
    /// Dirty data that may wait in memory, in MiB.
    #[arg(long, default_value_t = 32)]
    dirty_mib: usize,
}

/// How flushes take their space.
const WAYS: &[(&str, bool)] = &[
    ("together", false),
    #[cfg(feature = "ablation")]
    ("apart", true),
];

/// A line for each way.
pub(crate) fn run(options: &Options) -> Result<String> {
    std::fs::create_dir_all(&options.dir)?;
    let mut text = String::new();
    for (name, _apart) in WAYS {
        #[cfg(feature = "ablation")]
        btrfs::ablation::set_allocates_apart(*_apart);
        let recording = options.dir.join(format!("{name}.trace"));
        let seconds = one(options, &recording).with_context(|| (*name).to_owned())?;
        let bytes = u64::from(options.threads) * u64::from(options.files) * (options.file_kib << 10);
        let rate = as_float(bytes) / 1_048_576.0 / seconds;
        text.push_str(&format!("{name}: {seconds:.2} s, {rate:.0} MiB/s, {}\n", recording.display()));
    }
    Ok(text)
}

/// Writes everything once; returns the seconds that it took.
fn one(options: &Options, recording: &Path) -> Result<f64> {
    let image = options.dir.join("runs.img");
    let bytes = u64::from(options.threads) * u64::from(options.files) * (options.file_kib << 10);
    let size = bytes * 5 / 4 + (512 << 20);
    File::create(&image)?.set_len(size)?;
    let device = FileDevice::open(&image, &DeviceOptions::default())?;
    let recorder = Recorder::new(Box::new(BufWriter::new(File::create(recording)?)));
    let device = Arc::new(RecordedDevice::new(Arc::new(device), Arc::clone(&recorder)));
    let options_of_volume = Volume::options().dirty_bytes(options.dirty_mib << 20);
    let volume = options_of_volume.make_device(device, &MakeOptions::default())?;
    let begin = Instant::now();
    let done: Result<Vec<()>> = thread::scope(|scope| {
        let write = |thread| write_files(&volume, options, thread);
        let threads: Vec<_> = (0..options.threads).map(|thread| scope.spawn(move || write(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a writer ends")).collect()
    });
    done?;
    volume.close()?;
    let seconds = begin.elapsed().as_secs_f64();
    recorder.finish()?;
    std::fs::remove_file(&image)?;
    Ok(seconds)
}

fn write_files(volume: &Volume, options: &Options, thread: u32) -> Result<()> {
    let piece = vec![u8::try_from(thread % 251)?; usize::try_from(options.write_kib << 10)?];
    volume.create_dir_all(format!("/{thread}"))?;
    for number in 0..options.files {
        let path = format!("/{thread}/{number}");
        let file = FileOptions::new().write(true).create(true).open(volume, &path)?;
        let mut at = 0;
        while at < options.file_kib << 10 {
            file.write_at(&piece, at)?;
            at += options.write_kib << 10;
        }
    }
    Ok(())
}
