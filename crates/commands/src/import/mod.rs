//! Copying a directory tree of the host into a volume: what `put` and `mkfs --rootdir` share.
//!
//! A few threads walk the source. A job is a directory, or a run of its names; a thread that has a
//! directory reads and sorts its names, makes the first run and leaves the rest to all. Each name
//! becomes an inode with all its metadata, and a small file with its contents, in one call of the
//! library; larger files are streamed.
//!
//! What is kept: kind, owner, mode with its special bits, access and modification time to the
//! nanosecond, attributes (ACLs are attributes), hard links, holes, device numbers, symbolic
//! links as they are. What is not: inode flags (`chattr`), and the shared extents of reflinks.
//!
//! Invariants
//! * Symbolic links of the source are copied, never followed, except the source path itself.
//! * A directory gets its times when its last name was made, since every name changes them.
//! * With one thread the volume sees the same calls in the same order for the same source.
//!
//! Failure: the first one ends the import and is returned, unless the caller records failures of single files. Files
//! that are complete by then stay; the one that failed is removed. Callers: `put`, `mkfs`. Nothing here knows of
//! arguments or terminals: [`Progress`] is a set of counters.

mod create;
mod data;
mod estimate;
mod links;
mod source;
mod walk;

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use vfs::Volume;

use crate::failures::Failures;
use crate::progress::Progress;

pub use estimate::{Totals, measure};
pub use walk::{import_contents, import_one};

/// How a tree is copied.
#[derive(Debug, Clone)]
pub struct ImportOptions {
    /// Threads that read and create. One makes the order of all calls fixed.
    pub thread_count: usize,
    /// What happens to a name that exists in the volume.
    pub existing: Existing,
    /// Everybody's owner and group, instead of those of the source.
    pub owner: Option<(u32, u32)>,
    /// Copies the time of the last inode change too, which otherwise is the time of the import.
    pub keeps_ctime: bool,
    /// Attributes that only root may set come along (`security.`, `trusted.`).
    pub keeps_privileged: bool,
    /// Character and block devices are made, not left out.
    pub makes_devices: bool,
    /// Files keep set-user and set-group bits and capabilities.
    pub keeps_setid: bool,
    /// The part of a file that could be copied is kept; otherwise it is removed.
    pub keeps_partial: bool,
    /// Leaves out what lies on another file system than the source.
    pub one_file_system: bool,
    /// Device and inode number of a file to leave out: the image itself.
    pub skip: Option<(u64, u64)>,
    /// Records the files and directories that fail, so that the others are copied; without it the first failure ends
    /// the import.
    pub failures: Option<Arc<Failures>>,
}

/// What happens to a name that exists already. Directories are merged in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// It stays, and the import fails.
    Fail,
    /// It is removed first.
    Replace,
}

impl Default for ImportOptions {
    fn default() -> Self {
        Self {
            thread_count: crate::work::default_threads(),
            existing: Existing::Fail,
            owner: None,
            keeps_ctime: false,
            keeps_privileged: true,
            makes_devices: true,
            keeps_setid: true,
            keeps_partial: false,
            one_file_system: false,
            skip: None,
            failures: None,
        }
    }
}

/// What all threads of one import share.
struct Import<'a> {
    volume: &'a Volume,
    source: source::Source,
    options: &'a ImportOptions,
    progress: &'a Progress,
    links: links::Links,
    /// Device of the source.
    device: u64,
}

impl Import<'_> {
    /// Records a failure if the caller wants to continue; otherwise returns it.
    fn note<T>(&self, result: Result<T>) -> Result<Option<T>> {
        match &self.options.failures {
            Some(failures) => failures.note(result, false),
            None => result.map(Some),
        }
    }
}

/// The result of one step, and the path it was about.
fn named<T>(import: &Import<'_>, path: &Path, result: Result<T>) -> Result<T> {
    result.map_err(|error| error.context(import.source.display(path).display().to_string()))
}
