//! The names of a directory, one after the other.

use std::vec;

use super::Volume;
use crate::dir::{DirEntry, OpenInode};
use crate::error::Result;

/// The names of a directory in the order of their positions. Names that are added or removed
/// meanwhile may or may not come; all others come exactly once.
#[derive(Debug)]
pub struct ReadDir {
    // The directory keeps the volume's parts alive; this keeps the volume from syncing early.
    _volume: Volume,
    dir: OpenInode,
    next_index: Option<u64>,
    batch: vec::IntoIter<DirEntry>,
}

impl ReadDir {
    pub(crate) fn new(volume: Volume, dir: OpenInode) -> Self {
        Self { _volume: volume, dir, next_index: Some(0), batch: Vec::new().into_iter() }
    }

    /// Goes on behind the entry whose [`DirEntry::index`] this is.
    pub fn seek_behind(&mut self, index: u64) {
        self.next_index = index.checked_add(1);
        self.batch = Vec::new().into_iter();
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    /// The next name. After an error the iteration is at its end.
    fn next(&mut self) -> Option<Self::Item> {
        if let Some(entry) = self.batch.next() {
            return Some(Ok(entry));
        }
        let from = self.next_index.take()?;
        match self.dir.namespace().list(&self.dir, from) {
            Ok(entries) => {
                self.next_index = entries.last().and_then(|last| last.index.checked_add(1));
                self.batch = entries.into_iter();
                self.batch.next().map(Ok)
            }
            Err(error) => Some(Err(error)),
        }
    }
}
