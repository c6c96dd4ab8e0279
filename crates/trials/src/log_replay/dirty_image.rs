//! Copies an image with a log that has not been replayed. Called by `workload` after an fsync; `crash` and `hostile`
//! start from it.

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Offset of the log's address in the primary superblock.
const LOG_ROOT_AT: u64 = (64 << 10) + 96;
/// The kernel's clock for files is behind by up to a tick.
const CLOCK_TICK: Duration = Duration::from_millis(20);

/// A copy of a backing file, taken while it was mounted.
#[derive(Debug)]
pub(super) struct Dirty {
    pub(super) path: PathBuf,
    /// How to make it again.
    pub(super) story: String,
    /// Later than every time in it.
    pub(super) made: SystemTime,
}

impl Dirty {
    /// Copies an image; `None`, and no copy, if it has no log.
    pub(super) fn copy(image: &Path, to: &Path, story: String) -> Result<Option<Self>> {
        std::fs::copy(image, to)?;
        std::thread::sleep(CLOCK_TICK);
        let made = SystemTime::now();
        std::thread::sleep(CLOCK_TICK);
        if !has_log(to)? {
            std::fs::remove_file(to)?;
            return Ok(None);
        }
        Ok(Some(Self { path: to.to_path_buf(), story, made }))
    }
}

/// Whether the superblock points at a log.
pub(super) fn has_log(image: &Path) -> Result<bool> {
    let mut bytes = [0; 8];
    File::open(image)?.read_exact_at(&mut bytes, LOG_ROOT_AT).context("the image has no superblock")?;
    Ok(u64::from_le_bytes(bytes) != 0)
}

/// The hash of all bytes of a file.
pub(super) fn hash(path: &Path) -> Result<[u8; 32]> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            return Ok(hash.finalize().into());
        }
        hash.update(buffer.get(..count).unwrap_or_default());
    }
}
