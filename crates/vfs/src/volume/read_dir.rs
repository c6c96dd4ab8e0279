//! Iterates over the names of a directory ([`ReadDir`]). `Volume::read_dir` and the recursive removal open it.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::vec;

use portable::{OsStrExt as _, OsStringExt as _};

use super::Volume;
use super::node_ref::Held;
use crate::error::Result;
use crate::file_system::{self, DirSink, Entry, Handle, NodeId, NodeKind, OpenFlags};

/// Most names in a batch.
const BATCH_NAMES: usize = 512;

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    name: OsString,
    ino: u64,
    kind: NodeKind,
    next: u64,
}

impl DirEntry {
    /// The name, without any path.
    #[must_use]
    pub fn file_name(&self) -> &OsStr {
        &self.name
    }

    /// The name's bytes.
    #[must_use]
    pub fn name_bytes(&self) -> &[u8] {
        self.name.as_bytes()
    }

    /// Number of the node, as [`Metadata::ino`](super::Metadata) has it.
    #[must_use]
    pub fn ino(&self) -> u64 {
        self.ino
    }

    /// Kind of the file, as the directory entry has it.
    #[must_use]
    pub fn file_type(&self) -> NodeKind {
        self.kind
    }

    /// Position behind the name. Names come in ascending order of it, and it never changes while the name is there.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.next
    }
}

/// The names of a directory in the order of their positions, without `.` and `..`. Names that are added or removed
/// meanwhile may or may not be returned; each other name is returned exactly once.
pub struct ReadDir {
    volume: Volume,
    node: NodeId,
    handle: Handle,
    /// Where the next batch begins; `None` at the end.
    next: Option<u64>,
    batch: vec::IntoIter<DirEntry>,
}

impl fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadDir").field("node", &self.node).field("next", &self.next).finish_non_exhaustive()
    }
}

impl ReadDir {
    pub(super) fn open(volume: &Volume, dir: Held<'_>) -> Result<Self> {
        let flags = OpenFlags::READ | OpenFlags::NO_ATIME;
        let handle = volume.fs.open(&volume.caller, dir.node(), flags)?;
        let node = dir.keep().node;
        Ok(Self { volume: volume.clone(), node, handle, next: Some(0), batch: Vec::new().into_iter() })
    }
}

impl Drop for ReadDir {
    fn drop(&mut self) {
        self.volume.fs.release(self.node, self.handle);
        self.volume.fs.forget(self.node, 1);
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    /// The next name. After an error the iteration is at its end.
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.batch.next() {
                return Some(Ok(entry));
            }
            let from = self.next.take()?;
            let mut batch = Batch::default();
            if let Err(error) = self.volume.fs.read_dir(self.node, from, false, &mut batch) {
                return Some(Err(error));
            }
            self.next = batch.last;
            self.batch = batch.entries.into_iter();
        }
    }
}

#[derive(Default)]
struct Batch {
    entries: Vec<DirEntry>,
    /// Position behind the last name, `.` and `..` included.
    last: Option<u64>,
}

impl DirSink for Batch {
    fn add(&mut self, entry: &file_system::DirEntry<'_>) -> bool {
        if self.entries.len() == BATCH_NAMES {
            return false;
        }
        self.last = Some(entry.next);
        if !matches!(entry.name, b"." | b"..") {
            let name = OsString::from_vec(entry.name.to_vec());
            self.entries.push(DirEntry { name, ino: entry.ino, kind: entry.kind, next: entry.next });
        }
        true
    }

    fn add_with_node(&mut self, entry: &file_system::DirEntry<'_>, _node: Option<&Entry>) -> bool {
        // Not expected, as `ReadDir` asks for names without nodes. `false` takes no reference to the node.
        let _ = entry;
        false
    }
}
