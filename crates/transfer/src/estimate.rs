//! Measures how much there is to copy: for a progress bar, and for the size of a new image. Called by `put`, `get` and
//! `mkfs` of the program.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use vfs::Metadata;
use vfs::file_system::{NodeKind, Time};

use crate::error::{Error, Result};
use crate::observer::Observer;
use crate::queue;
use crate::rules::{FileId, file_id};
use crate::source::{HostSource, Name, Source, host_metadata};
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

    fn add_contents(&mut self, found: &Metadata) {
        let size = found.size;
        let stored = found.blocks.saturating_mul(512);
        let bytes = size.min(stored.max(SMALL_FILE_BYTES));
        self.bytes = self.bytes.saturating_add(bytes);
        if size <= SMALL_FILE_BYTES {
            self.small_bytes += size;
        } else {
            let blocks = bytes.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES);
            self.block_bytes = self.block_bytes.saturating_add(blocks);
            self.large_files += 1;
        }
    }
}

/// Counts the file or directory of the host at `path`, of a directory everything that is in it. A symbolic link at
/// `path` is followed.
///
/// # Errors
/// Those of the host.
pub fn measure_host(path: &Path, options: &Options) -> Result<Totals> {
    let stat = rustix::fs::stat(path).map_err(|errno| Error::from(errno).about(path))?;
    let found = host_metadata(&stat).map_err(|error| error.about(path))?;
    if !found.is_dir() {
        let mut total = Totals { names: 1, ..Totals::default() };
        total.add_contents(&found);
        return Ok(total);
    }
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
        total.add_contents(&root);
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
                NodeKind::File if is_new(&seen, &found) => total.add_contents(&found),
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

/// False for a further name of a file that was counted.
fn is_new(seen: &Mutex<HashSet<FileId>>, found: &Metadata) -> bool {
    found.nlink < 2 || seen.lock().unwrap_or_else(PoisonError::into_inner).insert(file_id(found))
}
