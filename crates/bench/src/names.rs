//! `bench names` creates, stats, writes or removes the names of one directory in a loop, which a shell would be too
//! slow for, and prints files per second. `workload.sh` runs it, through `main`.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};

/// The operation on each name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Operation {
    /// Makes an empty file.
    Create,
    /// Reads its metadata.
    Stat,
    /// Removes it.
    Unlink,
    /// Makes a file with contents; all is synced at the end, which counts.
    Write,
    /// Makes a file with contents and syncs it.
    WriteFsync,
}

/// One loop.
#[derive(Args)]
pub(crate) struct Options {
    operation: Operation,
    /// The directory; `stat` and `unlink` expect the names that `create` made in it.
    dir: PathBuf,
    /// Files.
    count: u32,
    /// Bytes of each that is written.
    #[arg(default_value_t = 0)]
    bytes: usize,
}

/// Runs the loop and gives files per second.
pub(crate) fn run(options: &Options) -> Result<f64> {
    let contents = vec![b'x'; options.bytes];
    let start = Instant::now();
    for number in 0..options.count {
        let path = options.dir.join(format!("f{number:07}"));
        let done = match options.operation {
            Operation::Create => File::create_new(&path).map(drop),
            Operation::Stat => std::fs::metadata(&path).map(drop),
            Operation::Unlink => std::fs::remove_file(&path),
            Operation::Write => File::create(&path).and_then(|mut file| file.write_all(&contents)),
            Operation::WriteFsync => File::create(&path).and_then(|mut file| {
                file.write_all(&contents)?;
                file.sync_all()
            }),
        };
        done.with_context(|| path.display().to_string())?;
    }
    if options.operation == Operation::Write {
        rustix::fs::syncfs(File::open(&options.dir)?)?;
    }
    Ok(f64::from(options.count) / start.elapsed().as_secs_f64())
}
