//! Answers listings of directories, in parts. Called by `serve`.

use vfs::file_system::{DirEntry, DirSink, Entry};

use crate::wire::{LIST_BYTES_MAX, Listed};

/// Names of a directory, as many as fit an answer.
#[derive(Default)]
pub(crate) struct List {
    pub(crate) names: Vec<Listed>,
    bytes: usize,
    pub(crate) is_full: bool,
}

impl List {
    fn take(&mut self, entry: &DirEntry<'_>, node: Option<&Entry>) -> bool {
        if self.bytes > LIST_BYTES_MAX {
            self.is_full = true;
            return false;
        }
        self.bytes = self.bytes.saturating_add(entry.name.len()).saturating_add(size_of::<Listed>());
        let DirEntry { name, ino, kind, next } = *entry;
        self.names.push(Listed { name: name.to_vec(), ino, kind, next, node: node.copied() });
        true
    }
}

impl DirSink for List {
    fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        self.take(entry, None)
    }

    fn add_with_node(&mut self, entry: &DirEntry<'_>, node: Option<&Entry>) -> bool {
        self.take(entry, node)
    }
}
