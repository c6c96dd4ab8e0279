//! Appends records with checksums to files, each followed by an fsync, and finds the ones that are lost. A record
//! counts as promised only after its fsync has returned. Called by the trial `ceph`.

use anyhow::{Context as _, Result, ensure};
use codec::checksum::{ChecksumType, checksum};
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Bytes of a record: its number, the number of its file, filler, and the checksum of all this.
const RECORD_BYTES: usize = 1000;
const SUM_BYTES: usize = 32;

/// The writers of the records, one for each file.
pub(super) struct Records {
    /// The promised records of each file.
    promised: Vec<Arc<AtomicU64>>,
    writers: Vec<JoinHandle<io::Error>>,
}

impl Records {
    /// Begins to write `files` files on a mount.
    pub(super) fn start(dir: &Path, files: u64) -> Result<Self> {
        let (mut promised, mut writers) = (Vec::new(), Vec::new());
        for file in 0..files {
            let open = File::create_new(path(dir, file))?;
            // The name is promised too.
            open.sync_all()?;
            let count = Arc::new(AtomicU64::new(0));
            promised.push(Arc::clone(&count));
            writers.push(thread::spawn(move || append(open, file, &count)));
        }
        Ok(Self { promised, writers })
    }

    /// The promised records of all files.
    pub(super) fn count(&self) -> u64 {
        self.promised.iter().map(|count| count.load(Ordering::SeqCst)).sum()
    }

    /// Waits until each file has two more: the first one may have been under way.
    pub(super) fn wait_for_more(&self, longest: Duration) -> Result<()> {
        let deadline = Instant::now() + longest;
        for (file, count) in self.promised.iter().enumerate() {
            let wanted = count.load(Ordering::SeqCst) + 2;
            while count.load(Ordering::SeqCst) < wanted {
                ensure!(Instant::now() < deadline, "no fsync of file {file} returned in {longest:?}");
                let has_ended = self.writers.get(file).is_none_or(JoinHandle::is_finished);
                ensure!(!has_ended, "the writer of file {file} failed");
                thread::sleep(Duration::from_millis(5));
            }
        }
        Ok(())
    }

    /// Waits until all writers have failed; returns the numbers of records that were promised.
    pub(super) fn join(self, longest: Duration) -> Result<Vec<u64>> {
        let deadline = Instant::now() + longest;
        while !self.writers.iter().all(JoinHandle::is_finished) {
            ensure!(Instant::now() < deadline, "a writer did not get its error within {longest:?}");
            thread::sleep(Duration::from_millis(5));
        }
        Ok(self.promised.iter().map(|count| count.load(Ordering::SeqCst)).collect())
    }
}

fn path(dir: &Path, file: u64) -> PathBuf {
    dir.join(format!("records-{file}"))
}

/// Appends until there is an error, which it returns.
fn append(mut open: File, file: u64, promised: &AtomicU64) -> io::Error {
    loop {
        let number = promised.load(Ordering::SeqCst);
        let written = open.write_all(&record(file, number)).and_then(|()| open.sync_all());
        match written {
            Ok(()) => promised.store(number + 1, Ordering::SeqCst),
            Err(error) => return error,
        }
    }
}

fn record(file: u64, number: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(RECORD_BYTES);
    let filler = file.wrapping_mul(7).wrapping_add(number).to_le_bytes();
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.extend_from_slice(&file.to_le_bytes());
    while bytes.len() < RECORD_BYTES - SUM_BYTES {
        bytes.extend_from_slice(&filler);
    }
    let sum = checksum(ChecksumType::Sha256, &bytes);
    bytes.extend_from_slice(&sum);
    bytes
}

/// The promised records that a tree lacks, or has with other contents.
pub(super) fn lost(dir: &Path, promised: &[u64]) -> Result<Vec<String>> {
    let mut lost = Vec::new();
    for (file, count) in (0u64..).zip(promised) {
        let found = std::fs::read(path(dir, file)).with_context(|| format!("records-{file}"))?;
        let mut records = found.chunks(record(file, 0).len());
        for number in 0..*count {
            if records.next() != Some(&record(file, number)) {
                lost.push(format!("record {number} of {count} in file {file}, which has {} bytes", found.len()));
                break;
            }
        }
    }
    Ok(lost)
}
