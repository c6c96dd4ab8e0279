//! Measures how much there is to copy: for a progress bar, and for the size of a new image. Called by `put`, `get` and
//! `mkfs` of the program.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use vfs::Metadata;
use vfs::file_system::{NodeKind, Time};

use crate::contents::Contents as _;
use crate::error::{Error, Result};
use crate::observer::Observer;
use crate::queue;
use crate::rules::{FileId, file_id};
#[cfg(target_os = "linux")]
use crate::source::host_metadata;
use crate::source::{Found, HostSource, Name, Source};
use crate::walk::Options;

/// Files up to this size are counted apart: file systems may store them with their metadata.
const SMALL_FILE_BYTES: u64 = 2048;
/// Contents are counted in blocks of this size.
const BLOCK_BYTES: u64 = 4096;

/// The number of names and bytes that a source holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Names, directories and further names of the same file included.
    pub names: u64,
    /// Bytes of all names.
    pub name_bytes: u64,
    /// Bytes of contents, holes left out.
    pub bytes: u64,
    /// Bytes of contents of small files.
    pub small_bytes: u64,
    /// Bytes in blocks of the other files.
    pub block_bytes: u64,
    /// Files with blocks.
    pub large_files: u64,
    /// The latest modification time.
    pub newest: Time,
}

impl Totals {
    fn add(&mut self, other: &Self) {
        self.names = self.names.saturating_add(other.names);
        self.name_bytes = self.name_bytes.saturating_add(other.name_bytes);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.small_bytes = self.small_bytes.saturating_add(other.small_bytes);
        self.block_bytes = self.block_bytes.saturating_add(other.block_bytes);
        self.large_files = self.large_files.saturating_add(other.large_files);
        self.newest = self.newest.max(other.newest);
    }

    /// Adds a file of `size` bytes, of which `bytes` are in blocks that are no holes.
    fn add_contents(&mut self, size: u64, bytes: u64) {
        if size <= SMALL_FILE_BYTES {
            self.bytes = self.bytes.saturating_add(size);
            self.small_bytes = self.small_bytes.saturating_add(size);
        } else {
            self.bytes = self.bytes.saturating_add(size.min(bytes));
            let blocks = bytes.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES);
            self.block_bytes = self.block_bytes.saturating_add(blocks);
            self.large_files = self.large_files.saturating_add(1);
        }
    }
}

/// Counts the file or directory of the host at `path`, of a directory everything that is in it. A symbolic link at
/// `path` is followed.
///
/// # Errors
/// Those of the host.
#[cfg(target_os = "linux")]
pub fn measure_host(path: &Path, options: &Options) -> Result<Totals> {
    let stat = rustix::fs::stat(path).map_err(|errno| Error::from(errno).about(path))?;
    let found = host_metadata(&stat).map_err(|error| error.about(path))?;
    if !found.is_dir() {
        let mut total = Totals { names: 1, newest: found.mtime, ..Totals::default() };
        total.add_contents(found.size, found.size.min(allocated(&found)));
        return Ok(total);
    }
    measure(&HostSource::open(path)?, options, &())
}

/// Counts the directory of the host at `path`.
///
/// # Errors
/// [`crate::Cause::OtherSystem`].
#[cfg(not(target_os = "linux"))]
pub fn measure_host(path: &Path, options: &Options) -> Result<Totals> {
    measure(&HostSource::open(path)?, options, &())
}

/// Counts the root of a source and everything that is in it, until `watch` cancels.
///
/// # Errors
/// Those of the source; [`crate::Cause::Cancelled`].
pub fn measure<S: Source>(source: &S, options: &Options, watch: &dyn Observer) -> Result<Totals> {
    let root = source.top(Path::new(""))?.attr;
    let mut total = Totals { names: 1, newest: root.mtime, ..Totals::default() };
    if !root.is_dir() {
        total.add_contents(root.size, root.size.min(allocated(&root)));
        return Ok(total);
    }
    let is_entered = |found: &Metadata| !options.rules.one_file_system || found.home.subvolume == root.home.subvolume;
    let (sum, seen) = (Mutex::new(total), Mutex::new(HashSet::new()));
    let start = Vec::new;
    queue::run(options.thread_count, PathBuf::new(), start, |dirs: &mut Vec<PathBuf>, path, queue| {
        let dir = source.open_dir(&path)?;
        let mut total = Totals::default();
        // Names that cannot be read are left to the copy, which reports them.
        for entry in &source.names(&dir, &mut |_| Ok(()))? {
            let Name { name, .. } = entry;
            watch.check()?;
            total.names += 1;
            total.name_bytes += u64::try_from(name.len()).unwrap_or(u64::MAX);
            // A file that is gone by now is not copied either; everything else is reported by the copy.
            let Ok(found) = source.stat(&dir, entry) else { continue };
            total.newest = total.newest.max(found.mtime);
            match found.kind {
                NodeKind::File if is_new(&seen, &found) => {
                    total.add_contents(found.size, block_bytes(source, &dir, entry, &found));
                }
                NodeKind::Directory if is_entered(&found) => dirs.push(path.join(name)),
                _ => {}
            }
        }
        queue.add(dirs.drain(..));
        sum.lock().unwrap_or_else(PoisonError::into_inner).add(&total);
        Ok::<_, Error>(())
    })?;
    Ok(sum.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Bytes of a file in blocks that are no holes. What the file system of a source has allocated says it only where it is
/// enough for the whole file: compression and delayed allocation take less.
fn block_bytes<S: Source>(source: &S, dir: &S::Dir, name: &Name, found: &Metadata) -> u64 {
    if found.size <= SMALL_FILE_BYTES || allocated(found) >= found.size {
        return found.size;
    }
    // The copy reports a file that cannot be read.
    let Ok(Found { contents, .. }) = source.look_at_one(dir, name) else { return found.size };
    let (mut at, mut bytes) = (0, 0_u64);
    while let Ok(Some((start, end))) = contents.next_data(at, found.size) {
        let begin = (start / BLOCK_BYTES).saturating_mul(BLOCK_BYTES).max(at);
        at = end.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES);
        bytes = bytes.saturating_add(at.saturating_sub(begin));
    }
    bytes
}

/// Bytes that a file takes on its file system.
fn allocated(found: &Metadata) -> u64 {
    found.blocks.saturating_mul(512).max(SMALL_FILE_BYTES)
}

/// False for a further name of a file that was counted.
fn is_new(seen: &Mutex<HashSet<FileId>>, found: &Metadata) -> bool {
    found.nlink < 2 || seen.lock().unwrap_or_else(PoisonError::into_inner).insert(file_id(found))
}
