//! How much there is to copy: for the progress bar, and for the size of a new image.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::Result;
use rustix::fs::Stat;
use vfs::file_system::NodeKind;

use super::source::Source;
use super::{ImportOptions, data};
use crate::work;

/// Files up to this size are counted apart: file systems may store them with their metadata.
const SMALL_FILE_BYTES: u64 = 2048;
/// Contents are counted in blocks of this size.
const BLOCK_BYTES: u64 = 4096;

/// What a source holds.
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
}

impl Totals {
    fn add(&mut self, other: &Self) {
        self.names += other.names;
        self.name_bytes += other.name_bytes;
        self.bytes += other.bytes;
        self.small_bytes += other.small_bytes;
        self.block_bytes += other.block_bytes;
        self.large_files += other.large_files;
    }

    fn add_contents(&mut self, stat: &Stat) {
        let size = data::size(stat);
        let stored = u64::try_from(stat.st_blocks).unwrap_or_default().saturating_mul(512);
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

/// Adds up what is below `source`, which may be a file.
///
/// # Errors
/// A directory that cannot be read.
pub fn measure(source: &Path, options: &ImportOptions) -> Result<Totals> {
    let stat = rustix::fs::stat(source).map_err(|errno| super::source::at(source, errno))?;
    let mut total = Totals { names: 1, ..Totals::default() };
    if NodeKind::from_mode(stat.st_mode) != Some(NodeKind::Directory) {
        total.add_contents(&stat);
        return Ok(total);
    }
    let source = Source::open(source)?;
    let (sum, seen) = (Mutex::new(total), Mutex::new(HashSet::new()));
    let start = Vec::new;
    work::run(options.thread_count, PathBuf::new(), start, |dirs: &mut Vec<PathBuf>, path, queue| {
        let dir = source.open_dir(&path)?;
        let mut total = Totals::default();
        for name in dir.names().map_err(|error| super::source::at(&source.display(&path), error))? {
            // What is gone by now is not copied either; everything else is reported by the copy.
            let Ok(found) = dir.stat(&name.bytes) else {
                continue;
            };
            total.names += 1;
            total.name_bytes += u64::try_from(name.bytes.to_bytes().len())?;
            match NodeKind::from_mode(found.st_mode) {
                Some(NodeKind::File) if is_new(&seen, &found) => total.add_contents(&found),
                Some(NodeKind::Directory) if !options.one_file_system || found.st_dev == stat.st_dev => {
                    dirs.push(path.join(name.as_path()));
                }
                _ => {}
            }
        }
        queue.add(dirs.drain(..));
        sum.lock().unwrap_or_else(PoisonError::into_inner).add(&total);
        Ok(())
    })?;
    Ok(sum.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// False for a further name of a file that was counted.
fn is_new(seen: &Mutex<HashSet<(u64, u64)>>, stat: &Stat) -> bool {
    stat.st_nlink < 2 || seen.lock().unwrap_or_else(PoisonError::into_inner).insert((stat.st_dev, stat.st_ino))
}
