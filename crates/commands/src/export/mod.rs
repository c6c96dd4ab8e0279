//! Copying a directory tree of a volume to the host: what `get` does.
//!
//! A few threads walk the image, as they walk the host for an import. Files get their contents
//! with holes left out, owner, mode, times and attributes; directories are private (0700) while
//! they are filled and get their metadata at the end, children before parents.
//!
//! Invariants
//! * Nothing is written outside the target: directories are opened from it with symbolic links
//!   forbidden, names that are no plain names are refused, and what is made must not exist.
//! * An existing directory is merged into; another existing file is only replaced on request, by
//!   removing its name. Existing symbolic links are never followed, nor is anything written
//!   through an existing name.
//! * A copy that continues an interrupted one leaves what is whole and replaces what was begun (`resume`).
//! * Set-user and set-group bits are not given to a file that did not get its owner.
//! * What is made as a name (links, pipes, devices) gets its metadata through a handle, of which is
//!   known that it is what was made: another program may put something else in its place.
//!
//! What the host does not permit (owners, device nodes, some attributes) is left out and counted
//! in [`Losses`]. A file or directory that fails is noted there, and the others are copied, unless
//! the first failure is to be the last; a host without room ends the export in any case. However it
//! ends, also by a signal, directories that were made get their metadata. Caller: `get`. Nothing here knows of
//! arguments or terminals.

mod contents;
mod estimate;
mod host;
mod metadata;
mod resume;
mod walk;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use vfs::{Metadata, Volume};

use crate::failures::Failures;
use crate::interrupt::Interrupt;
use crate::progress::Progress;

pub(crate) use contents::{copy_sparse, data_bytes, new_buffer};
pub(crate) use estimate::measure;
pub(crate) use walk::{export_contents, export_one};

/// How a tree is copied.
#[derive(Debug, Clone)]
pub(crate) struct ExportOptions {
    /// Threads that read and create.
    pub(crate) thread_count: usize,
    /// Existing files are replaced.
    pub(crate) replaces: bool,
    /// An interrupted copy is continued: what is whole stays, what was begun is replaced.
    pub(crate) continues: bool,
    /// Asked before each piece of the work.
    pub(crate) interrupt: Interrupt,
    /// The first failure ends the copy.
    pub(crate) fails_fast: bool,
    /// Character and block devices are made, not left out.
    pub(crate) makes_devices: bool,
    /// Files keep set-user and set-group bits and capabilities.
    pub(crate) keeps_setid: bool,
    /// Files get the owner and group that the image says.
    pub(crate) keeps_owners: bool,
    /// The part of a file that could be copied stays, unless a signal ended the copy; otherwise it is removed.
    pub(crate) keeps_partial: bool,
}

/// What the host did not permit.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    /// Files that kept the owner or group of this process.
    pub(crate) owners: AtomicU64,
    /// Attributes that could not be set.
    pub(crate) xattrs: AtomicU64,
    /// Device nodes that could not be made.
    pub(crate) nodes: AtomicU64,
    /// Device nodes that the options left out.
    pub(crate) withheld_nodes: AtomicU64,
    /// Files without set-user and set-group bits or capabilities that the options left out.
    pub(crate) withheld_setid: AtomicU64,
    /// Files that were whole before, of a copy that continues another.
    pub(crate) found: AtomicU64,
    /// Files and directories that could not be copied, wholly or in part.
    pub(crate) failures: Failures,
}

/// What all threads of one export share.
struct Export<'a> {
    volume: &'a Volume,
    root: host::Root,
    options: &'a ExportOptions,
    progress: &'a Progress,
    losses: &'a Losses,
    /// First name on the host of each file with several.
    links: Mutex<HashMap<(u64, u64), PathBuf>>,
    /// Directories that wait for their metadata.
    dirs: Mutex<Vec<MadeDir>>,
}

/// A directory that was made, or found.
struct MadeDir {
    /// Path relative to the target.
    host: PathBuf,
    image: PathBuf,
    metadata: Metadata,
}
